/* SPDX-License-Identifier: Apache-2.0 */
/* The index's environment: files, bounds, threads, and other processes on the same file. */
#include "core/index.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/support/index_world.h"

enum { RANK = 1, OTHER_RANK = 2 };

TestSuite(index_env, .init = world_make, .fini = world_remove);

/* files */

Test(index_env, the_files_are_for_their_owner_only) {
    struct stat status;
    umask(0);
    struct index *index = world_open();
    cr_assert_eq(stat(world.path, &status), 0);
    cr_expect_eq(status.st_mode & 07777, 0700);
    cr_assert_eq(stat(world.file, &status), 0);
    cr_expect_eq(status.st_mode & 07777, 0600);
    cr_assert_eq(stat(world.lock, &status), 0);
    cr_expect_eq(status.st_mode & 07777, 0600);
    index_close(index);
    index_close(NULL);
}

Test(index_env, an_index_of_another_format_is_refused) {
    struct index_options options = {.map_bytes = 1 << 20};
    struct index *index = world_open(), *other = NULL;
    struct index_txn *txn = world_begin(index);
    cr_assert_eq(index_txn_put_meta(txn, "format", 2), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    index_close(index);
    cr_expect_eq(index_open(world.path, &options, &other), -EINVAL);
    cr_expect_null(other);
}

Test(index_env, a_file_that_is_no_index_is_refused) {
    struct index_options options = {.map_bytes = 1 << 20};
    struct index *index = NULL;
    static uint8_t garbage[8192];
    cr_assert_eq(mkdir(world.path, 0700), 0);
    memset(garbage, 'x', sizeof garbage);
    world_write_file(garbage, sizeof garbage);
    cr_expect_eq(index_open(world.path, &options, &index), -EUCLEAN);
    cr_expect_null(index);
}

Test(index_env, read_only_reads_and_never_writes_or_makes) {
    struct index_options options = {.read_only = true};
    struct index *index = NULL;
    struct index_txn *txn = NULL;
    uint64_t bad;
    cr_expect_eq(index_open(world.path, &options, &index), -ENOENT);
    cr_expect_neq(access(world.path, F_OK), 0);
    index = world_open();
    world_fill(index, RANK, true, 0, 50);
    index_close(index);
    cr_assert_eq(index_open(world.path, &options, &index), 0);
    cr_expect_eq(world_count_blobs(index, RANK, &bad), 50);
    cr_expect_eq(index_txn_begin(index, &txn), -EROFS);
    cr_expect_null(txn);
    index_close(index);
}

Test(index_env, usage_counts_records_and_pages) {
    struct index_usage before, after;
    struct index *index = world_open();
    cr_assert_eq(index_get_usage(index, &before), 0);
    world_fill(index, RANK, true, 0, 600);
    cr_assert_eq(index_get_usage(index, &after), 0);
    cr_expect_eq(before.blobs + before.inlines + before.names, 0);
    cr_expect_eq(after.blobs, 600);
    cr_expect_eq(after.inlines, 200);
    cr_expect_eq(after.names, 600);
    cr_expect_eq(after.map_bytes, 64 << 20);
    cr_expect_eq(after.readers_max, 1022);
    cr_expect_gt(after.used_bytes, before.used_bytes + 200 * 1024);
    cr_expect_leq(after.used_bytes, after.file_bytes + 64 * 4096);
    struct index_txn *txn = world_begin(index);
    cr_assert_eq(index_txn_delete_rank_blobs(txn, RANK, 1000), 600);
    cr_assert_eq(index_txn_commit(txn), 0);
    cr_assert_eq(index_get_usage(index, &before), 0);
    cr_expect_lt(before.used_bytes, after.used_bytes / 2, "freed pages do not count");
    cr_expect_geq(before.file_bytes, after.file_bytes);
    index_close(index);
}

Test(index_env, a_reopened_file_gets_room_for_twice_its_size) {
    struct index_usage usage;
    struct index *index = world_open();
    world_fill(index, RANK, true, 0, 2000);
    index_close(index);
    index = world_open_sized(1);
    cr_assert_eq(index_get_usage(index, &usage), 0);
    cr_expect_geq(usage.map_bytes, 2 * usage.file_bytes);
    cr_expect_lt(usage.map_bytes, 2 * usage.file_bytes + (1 << 20));
    index_close(index);
}

/* the bound */

static int put_payload(struct index_txn *txn, uint32_t number) {
    static const uint8_t payload[INLINE_BYTES_MAX];
    struct blob_key key = world_key(RANK, false, number);
    return index_txn_put_inline(txn, &key, payload, sizeof payload);
}

/* Transactions of 20 payloads until one is refused; how many are in. */
static uint32_t fill_to_the_bound(struct index *index) {
    for (uint32_t number = 0;; number += 20) {
        struct index_txn *txn = world_begin(index);
        for (uint32_t i = 0; i < 20; i++) {
            int error = put_payload(txn, number + i);
            if (error) {
                cr_assert_eq(error, -ENOSPC);
                cr_assert(index_txn_is_full(txn));
                cr_assert_eq(i, 0);
                cr_assert_eq(index_txn_commit(txn), 0);
                return number;
            }
        }
        cr_assert_eq(index_txn_commit(txn), 0);
        cr_assert_lt(number, 10000);
    }
}

Test(index_env, a_full_index_refuses_puts_and_never_deletes) {
    uint8_t payload[INLINE_BYTES_MAX];
    struct index *index = world_open_sized(2 << 20);
    struct blob_key key = world_key(OTHER_RANK, false, 1);
    struct blob_record record = world_record(&key);
    world_fill(index, OTHER_RANK, false, 1, 1);
    uint32_t count = fill_to_the_bound(index);
    cr_expect_gt(count, 100);

    record.hits++;
    struct index_txn *txn = world_begin(index);
    cr_expect_eq(index_txn_put_blob(txn, &key, &record), 0, "same size: attributes and touches");
    cr_expect_eq(index_txn_put_meta(txn, "rank 1 clean", 0), 0);
    cr_expect_eq(index_txn_commit(txn), 0);

    for (uint32_t number = 0; number < count; number++) {
        struct blob_key victim = world_key(RANK, false, number);
        txn = world_begin(index);
        cr_assert_eq(index_txn_delete_inline(txn, &victim), 0);
        cr_assert_eq(index_txn_commit(txn), 0);
        cr_assert_eq(index_get_inline(index, &victim, payload, sizeof payload), -ENOENT);
    }
    cr_expect_eq(fill_to_the_bound(index), count, "all of the space came back");
    index_close(index);
}

Test(index_env, a_transaction_larger_than_the_map_fails_and_changes_nothing) {
    struct index_usage usage;
    struct index *index = world_open_sized(1 << 20);
    struct index_txn *txn = world_begin(index);
    int error = 0;
    for (uint32_t number = 0; number < 5000 && !error; number++)
        error = put_payload(txn, number);
    cr_expect_eq(error, -ENOSPC);
    cr_expect_eq(put_payload(txn, 1), -ENOSPC, "it cannot go on");
    cr_expect_eq(index_txn_commit(txn), -ENOSPC);
    world_fill(index, RANK, false, 3, 1);
    cr_assert_eq(index_get_usage(index, &usage), 0);
    cr_expect_eq(usage.inlines, 1);
    index_close(index);
}

/* threads */

static void *look_once(void *argument) {
    uint64_t value;
    return (void *)(intptr_t)index_get_meta(argument, "format", &value);
}

Test(index_env, a_thread_that_ends_gives_its_reader_slot_back) {
    struct index_options options = {.map_bytes = 1 << 20, .readers_max = 2};
    struct index *index;
    cr_assert_eq(index_open(world.path, &options, &index), 0);
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        void *result;
        cr_assert_eq(pthread_create(&thread, NULL, look_once, index), 0);
        cr_assert_eq(pthread_join(thread, &result), 0);
        cr_assert_null(result, "thread %d: %d", i, (int)(intptr_t)result);
    }
    index_close(index);
}

struct two_indexes {
    struct index *index;
    pthread_barrier_t barrier;
    int first, second;
};

static void *look_before_and_after_a_reopen(void *argument) {
    struct two_indexes *two = argument;
    uint64_t value;
    two->first = index_get_meta(two->index, "format", &value);
    pthread_barrier_wait(&two->barrier);
    pthread_barrier_wait(&two->barrier); /* closed and opened */
    two->second = index_get_meta(two->index, "format", &value);
    return NULL;
}

Test(index_env, a_thread_survives_the_close_of_an_index_that_it_read) {
    struct two_indexes two = {.index = world_open()};
    pthread_t thread;
    pthread_barrier_init(&two.barrier, NULL, 2);
    cr_assert_eq(pthread_create(&thread, NULL, look_before_and_after_a_reopen, &two), 0);
    pthread_barrier_wait(&two.barrier);
    index_close(two.index);
    two.index = world_open();
    pthread_barrier_wait(&two.barrier);
    pthread_join(thread, NULL);
    cr_expect_eq(two.first, 0);
    cr_expect_eq(two.second, 0);
    index_close(two.index);
    pthread_barrier_destroy(&two.barrier);
}

enum { THREADS = 4, ROUNDS = 60, PER_ROUND = 20 };

struct crowd {
    struct index *index;
    _Atomic unsigned done; /* rounds of the writer */
};

/* What is committed is found, whole, from then on. */
static void *read_along(void *argument) {
    struct crowd *crowd = argument;
    for (uint32_t i = 0; atomic_load(&crowd->done) < ROUNDS; i++) {
        uint32_t there = atomic_load(&crowd->done) * PER_ROUND;
        struct blob_key key = world_key(RANK, true, i % (ROUNDS * PER_ROUND));
        int error = world_look_at_blob(crowd->index, &key);
        CHECK(error == 0 || (error == -ENOENT && world_number(&key) >= there));
    }
    return NULL;
}

Test(index_env, threads_read_whole_records_while_one_writes) {
    struct crowd crowd = {.index = world_open()};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, read_along, &crowd), 0);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        world_fill(crowd.index, RANK, true, round * PER_ROUND, PER_ROUND);
        atomic_fetch_add(&crowd.done, 1);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    index_close(crowd.index);
}

struct rank_writer {
    struct index *index;
    uint16_t rank;
};

static void *write_own_rank(void *argument) {
    const struct rank_writer *writer = argument;
    for (uint32_t round = 0; round < 15; round++)
        world_fill(writer->index, writer->rank, true, round * PER_ROUND, PER_ROUND);
    return NULL;
}

Test(index_env, threads_of_several_ranks_write_in_turn) {
    uint64_t bad;
    struct index *index = world_open();
    struct rank_writer writers[THREADS];
    pthread_t threads[THREADS];
    for (uint16_t i = 0; i < THREADS; i++) {
        writers[i] = (struct rank_writer){index, i};
        cr_assert_eq(pthread_create(&threads[i], NULL, write_own_rank, &writers[i]), 0);
    }
    for (uint16_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(world_count_blobs(index, i, &bad), 15 * PER_ROUND);
    }
    index_close(index);
}

/* other processes */

/* A process that waits for a byte, then does its part and exits. */
struct helper {
    pid_t pid;
    int go, said; /* write a byte to the one; it writes one to the other */
};

/* 0 in the child, where ret_helper's ends are swapped. */
static pid_t helper_fork(struct helper *ret_helper) {
    int to[2], from[2];
    CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    ret_helper->pid = fork();
    CHECK(ret_helper->pid >= 0);
    bool parent = ret_helper->pid > 0;
    ret_helper->go = parent ? to[1] : from[1];
    ret_helper->said = parent ? from[0] : to[0];
    close(parent ? to[0] : to[1]);
    close(parent ? from[1] : from[0]);
    return ret_helper->pid;
}

static void helper_say(const struct helper *helper) {
    CHECK(write(helper->go, "", 1) == 1);
}

static void helper_hear(const struct helper *helper) {
    char byte;
    CHECK(read(helper->said, &byte, 1) == 1);
}

static bool helper_end(const struct helper *helper) {
    close(helper->go);
    close(helper->said);
    return world_wait(helper->pid);
}

Test(index_env, processes_write_different_ranks_of_one_file) {
    struct helper helpers[2];
    uint64_t bad;
    for (uint16_t i = 0; i < 2; i++) {
        if (helper_fork(&helpers[i]) == 0) {
            struct index *mine = world_open();
            helper_hear(&helpers[i]);
            for (uint32_t round = 0; round < 25; round++)
                world_fill(mine, i, true, round * PER_ROUND, PER_ROUND);
            CHECK(world_count_blobs(mine, i, &bad) == 25 * PER_ROUND && bad == 0);
            index_close(mine);
            _exit(0);
        }
    }
    struct index *index = world_open();
    helper_say(&helpers[0]);
    helper_say(&helpers[1]);
    cr_expect(helper_end(&helpers[0]));
    cr_expect(helper_end(&helpers[1]));
    for (uint16_t i = 0; i < 2; i++) {
        cr_expect_eq(world_count_blobs(index, i, &bad), 25 * PER_ROUND);
        cr_expect_eq(world_count_names(index, i, &bad), 25 * PER_ROUND);
    }
    index_close(index);
}

/* Opens, reads (which takes a slot), and dies without closing. */
static void die_with_a_slot(const struct helper *helper, const struct index_options *options) {
    struct index *mine;
    uint64_t value;
    helper_hear(helper);
    CHECK(index_open(world.path, options, &mine) == 0);
    CHECK(index_get_meta(mine, "format", &value) == 0);
    _exit(0);
}

Test(index_env, the_reader_slot_of_a_dead_process_is_freed) {
    struct index_options options = {.map_bytes = 1 << 20};
    struct helper helper;
    if (helper_fork(&helper) == 0)
        die_with_a_slot(&helper, &options);
    struct index *index = world_open();
    helper_say(&helper);
    cr_assert(helper_end(&helper));
    cr_expect_eq(index_check_readers(index), 1);
    cr_expect_eq(index_check_readers(index), 0);
    index_close(index);
}

Test(index_env, a_reader_table_full_of_the_dead_is_cleared_at_need) {
    struct index_options options = {.map_bytes = 1 << 20, .readers_max = 1};
    struct helper helper;
    struct index *index;
    uint64_t value;
    if (helper_fork(&helper) == 0)
        die_with_a_slot(&helper, &options);
    cr_assert_eq(index_open(world.path, &options, &index), 0);
    helper_say(&helper);
    cr_assert(helper_end(&helper));
    cr_expect_eq(index_get_meta(index, "format", &value), 0);
    cr_expect_eq(value, 1);
    index_close(index);
}

Test(index_env, a_writer_that_was_killed_in_a_transaction_leaves_the_last_commit) {
    struct helper helper;
    uint64_t bad;
    if (helper_fork(&helper) == 0) {
        helper_hear(&helper);
        struct index *mine = world_open();
        struct index_txn *txn = world_begin(mine);
        struct blob_key key = world_key(OTHER_RANK, false, 1);
        CHECK(world_put_blob(txn, &key) == 0);
        raise(SIGKILL);
    }
    struct index *index = world_open();
    world_fill(index, RANK, true, 0, 50);
    helper_say(&helper);
    cr_expect_not(helper_end(&helper));
    world_fill(index, RANK, true, 50, 50);
    cr_expect_eq(world_count_blobs(index, RANK, &bad), 100);
    cr_expect_eq(world_count_blobs(index, OTHER_RANK, &bad), 0);
    index_close(index);
}

Test(index_env, a_map_that_another_process_has_grown_is_adopted) {
    struct helper helper;
    uint64_t bad;
    enum { MANY = 2600 }; /* of 8 KiB: beyond the small map and its slack */
    if (helper_fork(&helper) == 0) {
        helper_hear(&helper);
        struct index *mine = world_open();
        struct index_txn *txn = world_begin(mine);
        for (uint32_t number = 0; number < MANY; number++)
            CHECK(put_payload(txn, number) == 0);
        CHECK(index_txn_commit(txn) == 0);
        world_fill(mine, RANK, true, 0, 50);
        index_close(mine);
        _exit(0);
    }
    struct index *index = world_open_sized(1 << 20);
    cr_expect_eq(world_count_blobs(index, RANK, &bad), 0);
    helper_say(&helper);
    cr_assert(helper_end(&helper));
    cr_expect_eq(world_count_blobs(index, RANK, &bad), 50);
    struct index_txn *txn = world_begin(index);
    cr_expect_eq(index_txn_delete_rank_blobs(txn, RANK, 5000), 50 + MANY);
    cr_expect_eq(index_txn_commit(txn), 0);
    index_close(index);
}

Test(index_env, a_write_transaction_adopts_a_grown_map_too) {
    struct helper helper;
    if (helper_fork(&helper) == 0) {
        helper_hear(&helper);
        struct index *mine = world_open();
        struct index_txn *txn = world_begin(mine);
        for (uint32_t number = 0; number < 2600; number++)
            CHECK(put_payload(txn, number) == 0);
        CHECK(index_txn_commit(txn) == 0);
        index_close(mine);
        _exit(0);
    }
    struct index *index = world_open_sized(1 << 20);
    helper_say(&helper);
    cr_assert(helper_end(&helper));
    struct blob_key key = world_key(RANK, false, 5);
    struct index_txn *txn = world_begin(index);
    cr_expect_eq(index_txn_delete_inline(txn, &key), 0);
    cr_expect_eq(index_txn_commit(txn), 0);
    index_close(index);
}

Test(index_env, files_in_use_are_not_removed_and_others_are) {
    struct helper helper;
    struct index_usage usage;
    if (helper_fork(&helper) == 0) {
        helper_hear(&helper);
        struct index *mine = world_open();
        world_fill(mine, RANK, false, 0, 10);
        helper_say(&helper);
        helper_hear(&helper);
        index_close(mine);
        _exit(0);
    }
    cr_expect_eq(index_remove_files(world.path), 0, "there is nothing yet");
    helper_say(&helper);
    helper_hear(&helper);
    cr_expect_eq(index_remove_files(world.path), -EBUSY);
    helper_say(&helper);
    cr_assert(helper_end(&helper));
    cr_expect_eq(index_remove_files(world.path), 0);
    struct index *index = world_open();
    cr_assert_eq(index_get_usage(index, &usage), 0);
    cr_expect_eq(usage.blobs, 0);
    index_close(index);
}
