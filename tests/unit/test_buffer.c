/* SPDX-License-Identifier: Apache-2.0 */
/* Payload memory: contents survive growing, shares are bounded, whoever waits is told. */
#include "core/buffer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

static struct buffer_pool *open_pool(uint64_t staging_bytes, uint64_t reading_bytes) {
    const uint64_t shares[BUFFER_SHARES] = {staging_bytes, reading_bytes};
    struct buffer_pool *pool;
    cr_assert_eq(buffer_pool_open(staging_bytes + reading_bytes, shares, false, &pool), 0);
    return pool;
}

static struct buffer *create(struct buffer_pool *pool, uint64_t capacity_bytes) {
    struct buffer *buffer;
    cr_assert_eq(buffer_create(pool, BUFFER_STAGING, capacity_bytes, &buffer), 0);
    return buffer;
}

static int try_create(struct buffer_pool *pool, enum buffer_share share, uint64_t capacity_bytes) {
    struct buffer *buffer;
    int error = buffer_create(pool, share, capacity_bytes, &buffer);
    if (error == 0)
        buffer_destroy(buffer);
    return error;
}

static uint8_t pattern_at(uint64_t offset, unsigned seed) {
    return (uint8_t)(offset * 131 + (offset >> 12) * 7 + seed);
}

static void fill(struct buffer *buffer, uint64_t offset, uint64_t count, unsigned seed) {
    uint8_t *bytes = malloc(count);
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = pattern_at(offset + i, seed);
    buffer_write(buffer, offset, bytes, count);
    free(bytes);
}

static bool is_filled(const struct buffer *buffer, uint64_t offset, uint64_t count, unsigned seed) {
    uint8_t *bytes = malloc(count);
    buffer_read(buffer, offset, bytes, count);
    bool same = true;
    for (uint64_t i = 0; i < count && same; i++)
        same = bytes[i] == pattern_at(offset + i, seed);
    free(bytes);
    return same;
}

Test(buffer, impossible_pools_are_refused) {
    struct buffer_pool *pool;
    cr_expect_eq(buffer_pool_open(0, (uint64_t[BUFFER_SHARES]){0, 0}, false, &pool), -EINVAL);
    cr_expect_eq(buffer_pool_open(MIB, (uint64_t[BUFFER_SHARES]){MIB, 1}, false, &pool), -EINVAL);
    cr_expect_eq(buffer_pool_open(MIB, (uint64_t[BUFFER_SHARES]){UINT64_MAX, 2}, false, &pool),
                 -EINVAL);
    cr_expect_eq(buffer_pool_open(UINT64_C(1) << 60, (uint64_t[BUFFER_SHARES]){0, 0}, false, &pool),
                 -EINVAL);
    buffer_pool_close(NULL);
    buffer_destroy(NULL);
}

Test(buffer, capacity_is_whole_mebibytes_and_a_power_of_two) {
    struct buffer_pool *pool = open_pool(8 * MIB, 0);
    static const uint64_t cases[][2] = {
        {0, 0},
        {1, 4 * KIB},
        {4 * KIB, 4 * KIB},
        {4 * KIB + 1, 8 * KIB},
        {513 * KIB, MIB},
        {MIB, MIB},
        {MIB + 1, MIB + 4 * KIB},
        {2 * MIB + 100 * KIB, 2 * MIB + 128 * KIB},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buffer *buffer = create(pool, cases[i][0]);
        cr_expect_eq(buffer_capacity_bytes(buffer), cases[i][1], "case %zu", i);
        cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_STAGING), cases[i][1], "case %zu", i);
        buffer_destroy(buffer);
        cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_STAGING), 0);
    }
    buffer_pool_close(pool);
}

Test(buffer, bytes_written_are_read_back_across_segments) {
    struct buffer_pool *pool = open_pool(4 * MIB, 0);
    struct buffer *buffer = create(pool, 3 * MIB);
    fill(buffer, 0, 3 * MIB, 1);
    fill(buffer, MIB - 100, 2 * MIB + 100, 2);
    cr_expect(is_filled(buffer, 0, MIB - 100, 1));
    cr_expect(is_filled(buffer, MIB - 100, MIB + 100, 2));
    buffer_zero(buffer, MIB - 50, 100);
    uint8_t around[102];
    buffer_read(buffer, MIB - 51, around, sizeof(around));
    cr_expect_neq(around[0], 0);
    for (int i = 1; i < 101; i++)
        cr_expect_eq(around[i], 0);
    cr_expect_eq(around[101], pattern_at(MIB + 50, 2));
    buffer_destroy(buffer);
    buffer_pool_close(pool);
}

Test(buffer, pieces_cover_a_range_exactly) {
    struct buffer_pool *pool = open_pool(4 * MIB, 0);
    struct buffer *buffer = create(pool, 2 * MIB + 8 * KIB);
    fill(buffer, 0, 2 * MIB + 8 * KIB, 3);
    struct iovec pieces[4];
    cr_expect_eq(buffer_pieces(buffer, 0, 0, pieces, 0), 0);
    cr_assert_eq(buffer_pieces(buffer, MIB - 1, MIB + 2, pieces, 3), 3);
    cr_expect_eq(pieces[0].iov_len, 1);
    cr_expect_eq(pieces[1].iov_len, MIB);
    cr_expect_eq(pieces[2].iov_len, 1);
    cr_expect_eq(*(uint8_t *)pieces[0].iov_base, pattern_at(MIB - 1, 3));
    cr_expect_eq(*(uint8_t *)pieces[1].iov_base, pattern_at(MIB, 3));
    cr_expect_eq(*(uint8_t *)pieces[2].iov_base, pattern_at(2 * MIB, 3));
    cr_assert_eq(buffer_pieces(buffer, 0, 2 * MIB + 8 * KIB, pieces, 4), 3);
    for (int i = 0; i < 3; i++)
        cr_expect_eq((uintptr_t)pieces[i].iov_base % 4096, 0, "for O_DIRECT");
    buffer_destroy(buffer);
    buffer_pool_close(pool);
}

Test(buffer, growing_keeps_the_contents) {
    struct buffer_pool *pool = open_pool(8 * MIB, 0);
    struct buffer *other = create(pool, 4 * KIB);
    struct buffer *buffer = create(pool, 0);
    uint64_t filled = 0;
    for (uint64_t bytes = 1; bytes < 5 * MIB; bytes = bytes * 3 / 2 + 1000) {
        cr_assert_eq(buffer_reserve(buffer, bytes), 0);
        cr_assert_geq(buffer_capacity_bytes(buffer), bytes);
        cr_assert(filled == 0 || is_filled(buffer, 0, filled, 4), "at %zu", (size_t)bytes);
        fill(buffer, filled, buffer_capacity_bytes(buffer) - filled, 4);
        filled = buffer_capacity_bytes(buffer);
        cr_assert_eq(buffer_pool_used_bytes(pool, BUFFER_STAGING), filled + 4 * KIB);
    }
    cr_expect_eq(buffer_reserve(buffer, 1), 0, "less is nothing to do");
    cr_expect_eq(buffer_capacity_bytes(buffer), filled);
    buffer_destroy(buffer);
    buffer_destroy(other);
    buffer_pool_close(pool);
}

Test(buffer, growing_into_the_free_rest_of_a_full_pool_works) {
    struct buffer_pool *pool = open_pool(MIB, MIB);
    struct buffer *reading;
    cr_assert_eq(buffer_create(pool, BUFFER_READING, MIB, &reading), 0);
    struct buffer *buffer = create(pool, 512 * KIB);
    fill(buffer, 0, 512 * KIB, 5);
    cr_assert_eq(buffer_reserve(buffer, MIB), 0, "only in place is there room");
    cr_expect(is_filled(buffer, 0, 512 * KIB, 5));
    buffer_destroy(buffer);
    buffer_destroy(reading);
    buffer_pool_close(pool);
}

Test(buffer, a_share_is_bounded_and_failing_changes_nothing) {
    struct buffer_pool *pool = open_pool(2 * MIB, 4 * MIB);
    struct buffer *buffer = create(pool, MIB + 4 * KIB);
    fill(buffer, 0, MIB + 4 * KIB, 6);
    cr_expect_eq(try_create(pool, BUFFER_STAGING, MIB), -ENOMEM);
    cr_expect_eq(buffer_reserve(buffer, 3 * MIB), -ENOMEM);
    cr_expect_eq(buffer_reserve(buffer, UINT64_MAX), -ENOMEM);
    cr_expect_eq(buffer_capacity_bytes(buffer), MIB + 4 * KIB);
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_STAGING), MIB + 4 * KIB);
    cr_expect(is_filled(buffer, 0, MIB + 4 * KIB, 6));
    cr_expect_eq(try_create(pool, BUFFER_READING, 4 * MIB), 0, "the other share is untouched");
    cr_expect_eq(buffer_reserve(buffer, 2 * MIB), 0, "up to the bound itself");
    cr_expect(is_filled(buffer, 0, MIB + 4 * KIB, 6));
    buffer_destroy(buffer);
    buffer_pool_close(pool);
}

/* The first step (growing in place) is undone when the second one finds no memory. */
Test(buffer, growing_that_fails_half_way_changes_nothing) {
    struct buffer_pool *pool = open_pool(4 * MIB, 0);
    struct buffer *halves[8];
    for (int i = 0; i < 8; i++)
        halves[i] = create(pool, 512 * KIB);
    struct iovec high, low;
    struct buffer *buffer = NULL;
    for (int i = 0; i < 8; i += 2) { /* one half of each MiB stays in use */
        buffer_pieces(halves[i], 0, 1, &high, 1);
        buffer_pieces(halves[i + 1], 0, 1, &low, 1);
        cr_assert_eq((uintptr_t)high.iov_base / MIB, (uintptr_t)low.iov_base / MIB);
        cr_assert_gt(high.iov_base, low.iov_base, "the kept one must move to grow");
        buffer_destroy(halves[i + 1]);
        buffer = halves[i];
    }
    fill(buffer, 0, 512 * KIB, 8);
    cr_expect_eq(buffer_reserve(buffer, 2 * MIB), -ENOMEM, "the account has room");
    cr_expect_eq(buffer_capacity_bytes(buffer), 512 * KIB);
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_STAGING), 2 * MIB);
    for (int i = 1; i < 8; i += 2) {
        halves[i] = create(pool, 512 * KIB);
        fill(halves[i], 0, 512 * KIB, 9);
    }
    cr_expect(is_filled(buffer, 0, 512 * KIB, 8));
    for (int i = 0; i < 8; i++)
        buffer_destroy(halves[i]);
    buffer_pool_close(pool);
}

Test(buffer, trimming_gives_whole_segments_back) {
    struct buffer_pool *pool = open_pool(4 * MIB, 0);
    struct buffer *buffer = create(pool, 3 * MIB + 4 * KIB);
    fill(buffer, 0, 3 * MIB, 7);
    buffer_trim(buffer, MIB + 1);
    cr_expect_eq(buffer_capacity_bytes(buffer), 2 * MIB);
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_STAGING), 2 * MIB);
    cr_expect(is_filled(buffer, 0, 2 * MIB, 7));
    buffer_trim(buffer, 5 * MIB);
    cr_expect_eq(buffer_capacity_bytes(buffer), 2 * MIB);
    buffer_trim(buffer, 0);
    cr_expect_eq(buffer_capacity_bytes(buffer), 0);
    cr_assert_eq(buffer_reserve(buffer, 4 * MIB), 0);
    buffer_destroy(buffer);
    buffer_pool_close(pool);
}

Test(buffer, moving_to_the_other_share_moves_the_account) {
    struct buffer_pool *pool = open_pool(4 * MIB, 2 * MIB);
    struct buffer *buffer = create(pool, 2 * MIB), *other = create(pool, MIB);
    cr_expect(buffer_move_to_share(buffer, BUFFER_STAGING));
    cr_expect(buffer_move_to_share(buffer, BUFFER_READING));
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_STAGING), MIB);
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_READING), 2 * MIB);
    cr_expect_not(buffer_move_to_share(other, BUFFER_READING));
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_STAGING), MIB);
    buffer_destroy(buffer);
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_READING), 0);
    buffer_destroy(other);
    buffer_pool_close(pool);
}

/* who waits is told */

static void count_call(void *argument) {
    ++*(int *)argument;
}

Test(buffer, exchanged_segments_keep_their_bytes_and_the_accounts_stay) {
    const uint64_t shares[BUFFER_SHARES] = {[BUFFER_STAGING] = 4 * MIB, [BUFFER_REQUESTS] = MIB};
    struct buffer_pool *pool;
    struct buffer *received, *staged;
    cr_assert_eq(buffer_pool_open(5 * MIB, shares, false, &pool), 0);
    cr_assert_eq(buffer_create(pool, BUFFER_REQUESTS, MIB, &received), 0);
    cr_assert_eq(buffer_create(pool, BUFFER_STAGING, 3 * MIB, &staged), 0);
    fill(staged, 0, 3 * MIB, 1);
    for (uint64_t segment = 0; segment < 3; segment++) {
        fill(received, 0, MIB, 2);
        cr_assert(buffer_exchange_segment(staged, segment * MIB, received));
        struct iovec piece;
        buffer_pieces(staged, segment * MIB, MIB, &piece, 1);
        for (uint64_t i = 0; i < MIB; i += 1021)
            cr_assert_eq(((uint8_t *)piece.iov_base)[i], pattern_at(i, 2));
        cr_expect(segment == 2 || is_filled(staged, (segment + 1) * MIB, MIB, 1));
    }
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_STAGING), 3 * MIB);
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_REQUESTS), MIB);
    buffer_destroy(staged);
    buffer_destroy(received);
    buffer_pool_close(pool);
}

Test(buffer, only_whole_segments_are_exchanged) {
    struct buffer_pool *pool = open_pool(8 * MIB, 0);
    struct buffer *whole = create(pool, MIB), *longer = create(pool, MIB + 4 * KIB),
                  *half = create(pool, 512 * KIB), *none = create(pool, 0);
    cr_expect(!buffer_exchange_segment(longer, MIB, whole), "the last one is 4 KiB");
    cr_expect(!buffer_exchange_segment(longer, 2 * MIB, whole), "beyond the end");
    cr_expect(!buffer_exchange_segment(half, 0, whole));
    cr_expect(!buffer_exchange_segment(whole, 0, half));
    cr_expect(!buffer_exchange_segment(none, 0, whole));
    cr_expect(!buffer_exchange_segment(whole, 0, none));
    cr_expect(buffer_exchange_segment(longer, 0, whole));
    struct buffer *all[] = {whole, longer, half, none};
    for (int i = 0; i < 4; i++)
        buffer_destroy(all[i]);
    buffer_pool_close(pool);
}

Test(buffer, a_free_tells_only_who_asked_and_only_once) {
    struct buffer_pool *pool = open_pool(4 * MIB, 4 * MIB);
    int staging = 0, reading = 0;
    buffer_pool_on_free(pool, BUFFER_STAGING, count_call, &staging);
    buffer_pool_on_free(pool, BUFFER_READING, count_call, &reading);
    buffer_destroy(create(pool, MIB));
    cr_expect_eq(staging, 0, "nobody asked");
    buffer_pool_want(pool, BUFFER_STAGING);
    buffer_pool_want(pool, BUFFER_READING);
    buffer_destroy(create(pool, MIB));
    buffer_destroy(create(pool, MIB));
    cr_expect_eq(staging, 1);
    cr_expect_eq(reading, 0, "the other share");
    struct buffer *buffer = create(pool, MIB);
    buffer_pool_want(pool, BUFFER_STAGING);
    buffer_move_to_share(buffer, BUFFER_READING);
    cr_expect_eq(staging, 2, "moving frees as well");
    buffer_destroy(buffer);
    cr_expect_eq(reading, 1);
    buffer_pool_close(pool);
}

Test(buffer, whoever_failed_by_fragmentation_is_told_of_any_free) {
    struct buffer_pool *pool = open_pool(MIB, MIB);
    int reading = 0;
    buffer_pool_on_free(pool, BUFFER_READING, count_call, &reading);
    /* A small block of staging in each half of the only 2 MiB. */
    struct buffer *high = create(pool, 256 * KIB), *filler[3];
    for (int i = 0; i < 3; i++)
        cr_assert_eq(buffer_create(pool, BUFFER_READING, 256 * KIB, &filler[i]), 0);
    struct buffer *low = create(pool, 256 * KIB);
    for (int i = 0; i < 3; i++)
        buffer_destroy(filler[i]);
    buffer_pool_want(pool, BUFFER_READING);
    cr_assert_eq(try_create(pool, BUFFER_READING, MIB), -ENOMEM, "the account has room");
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_READING), 0);
    buffer_destroy(low);
    cr_expect_eq(reading, 1);
    cr_expect_eq(try_create(pool, BUFFER_READING, MIB), 0);
    buffer_destroy(high);
    buffer_pool_close(pool);
}

/* misuse and threads */

Test(buffer, writing_beyond_the_capacity_aborts, .signal = SIGABRT) {
    struct buffer *buffer = create(open_pool(2 * MIB, 0), 4 * KIB);
    buffer_write(buffer, 4 * KIB - 1, "ab", 2);
}

Test(buffer, a_range_that_wraps_around_aborts, .signal = SIGABRT) {
    struct buffer *buffer = create(open_pool(2 * MIB, 0), 4 * KIB);
    buffer_zero(buffer, 1, UINT64_MAX);
}

Test(buffer, closing_a_pool_in_use_aborts, .signal = SIGABRT) {
    struct buffer_pool *pool = open_pool(2 * MIB, 0);
    create(pool, 1);
    buffer_pool_close(pool);
}

struct worker {
    pthread_t thread;
    struct buffer_pool *pool;
    unsigned seed;
    unsigned wrong;
};

static void *use_buffers(void *argument) {
    struct worker *worker = argument;
    unsigned random = worker->seed;
    for (int round = 0; round < 60; round++) {
        struct buffer *buffer;
        uint64_t bytes = 1 + (uint64_t)rand_r(&random) % (700 * KIB);
        if (buffer_create(worker->pool, worker->seed % BUFFER_SHARES, bytes, &buffer) != 0)
            continue;
        fill(buffer, 0, bytes, worker->seed);
        uint64_t more = bytes + (uint64_t)rand_r(&random) % (2 * MIB);
        if (buffer_reserve(buffer, more) == 0) {
            fill(buffer, bytes, more - bytes, worker->seed);
            bytes = more;
        }
        worker->wrong += !is_filled(buffer, 0, bytes, worker->seed);
        buffer_destroy(buffer);
    }
    return NULL;
}

/* The toucher works under their hands; nobody sees another's bytes, or any byte changed. */
Test(buffer, threads_and_the_toucher_do_not_disturb_each_other) {
    const uint64_t shares[BUFFER_SHARES] = {8 * MIB, 8 * MIB, 8 * MIB};
    struct buffer_pool *pool;
    cr_assert_eq(buffer_pool_open(64 * MIB, shares, true, &pool), 0);
    struct worker workers[4] = {0};
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (struct worker){.pool = pool, .seed = i + 1};
        pthread_create(&workers[i].thread, NULL, use_buffers, &workers[i]);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        cr_expect_eq(workers[i].wrong, 0);
    }
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_STAGING), 0);
    cr_expect_eq(buffer_pool_used_bytes(pool, BUFFER_READING), 0);
    buffer_pool_close(pool);
}
