/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of versions stay in memory, and which go when another load needs it. */
#include <criterion/criterion.h>

#include "tests/support/version_world.h"

enum { MIB = 1 << 20 };

static struct world world;

static void open_big_world(uint64_t reading_bytes) {
    world_open(&world, &(struct world_options){.slot_bytes = MIB + BLOCK_BYTES,
                                               .slots = 64,
                                               .reading_bytes = reading_bytes});
}

static void close_world(void) {
    world_close(&world);
}

TestSuite(version_cache, .fini = close_world, .timeout = 60);

Test(version_cache, settling_without_room_frees_the_bytes_when_nobody_reads_them) {
    open_big_world(MIB);
    struct buffer *full;
    cr_assert_eq(buffer_create(world.buffers, BUFFER_READING, MIB, &full), 0);
    struct world_blob blob;
    struct version *version = world_stage(&world, &blob, MIB);
    world_settle(&world, &blob, version);
    cr_expect_not(version_hold_bytes(version));
    cr_expect_eq(buffer_pool_used_bytes(world.buffers, BUFFER_STAGING), 0);
    buffer_destroy(full);
    cr_expect_eq(world_load(version), 0);
    cr_expect(world_same_bytes(version, &blob));
    version_drop_bytes(version);
    version_unref(version);
    free(blob.payload);
}

Test(version_cache, settling_without_room_keeps_the_bytes_for_the_last_reader) {
    open_big_world(MIB);
    struct buffer *full;
    cr_assert_eq(buffer_create(world.buffers, BUFFER_READING, MIB, &full), 0);
    struct world_blob blob;
    struct version *version = world_stage(&world, &blob, MIB);
    cr_assert(version_hold_bytes(version));
    cr_assert(version_hold_bytes(version));
    world_settle(&world, &blob, version);
    cr_expect(world_same_bytes(version, &blob));
    version_drop_bytes(version);
    version_table_drop_cache(world.table);
    cr_expect(world_same_bytes(version, &blob));
    version_drop_bytes(version);
    cr_expect_eq(buffer_pool_used_bytes(world.buffers, BUFFER_STAGING), 0);
    cr_expect_not(version_hold_bytes(version));
    version_unref(version);
    buffer_destroy(full);
    free(blob.payload);
}

/* which bytes go */

enum { MANY = 10 };

static void free_blobs(struct world_blob *blobs, size_t count) {
    for (size_t i = 0; i < count; i++)
        free(blobs[i].payload);
}

static void put_many(struct world_blob *ret_blobs, size_t count) {
    for (size_t i = 0; i < count; i++)
        ret_blobs[i] = world_put(&world, MIB);
}

Test(version_cache, a_small_cache_serves_many_blobs_and_keeps_the_latest) {
    open_big_world(4 * MIB);
    struct world_blob blobs[MANY];
    put_many(blobs, MANY);
    for (size_t i = 0; i < MANY; i++) {
        struct version *version = world_must_acquire(&world, &blobs[i]);
        cr_expect_eq(world_load(version), 0);
        cr_expect(world_same_bytes(version, &blobs[i]));
        version_drop_bytes(version);
        version_unref(version);
        cr_expect_leq(version_table_cached_bytes(world.table), 4 * MIB);
    }
    cr_expect_eq(version_table_count(world.table), 4);
    cr_expect_eq(stats_get(&world.stats, loads), MANY);
    for (size_t i = MANY - 4; i < MANY; i++)
        world_cache(&world, &blobs[i]);
    cr_expect_eq(stats_get(&world.stats, loads), MANY);
    free_blobs(blobs, MANY);
}

Test(version_cache, bytes_with_a_hold_never_go) {
    open_big_world(4 * MIB);
    struct world_blob blobs[MANY];
    put_many(blobs, MANY);
    struct version *held[3];
    for (size_t i = 0; i < 3; i++) {
        held[i] = world_must_acquire(&world, &blobs[i]);
        cr_expect_eq(world_load(held[i]), 0);
        version_done_reading(held[i]);
    }
    for (size_t i = 3; i < MANY; i++)
        world_cache(&world, &blobs[i]);
    version_table_drop_cache(world.table);
    cr_expect_eq(version_table_cached_bytes(world.table), 3 * MIB);
    for (size_t i = 0; i < 3; i++) {
        cr_expect(world_same_bytes(held[i], &blobs[i]));
        version_drop_bytes(held[i]);
        version_unref(held[i]);
    }
    free_blobs(blobs, MANY);
}

Test(version_cache, what_nobody_references_goes_before_what_was_read_before_what_is_open) {
    open_big_world(3 * MIB);
    struct world_blob blobs[5];
    put_many(blobs, 5);
    struct version *open = world_must_acquire(&world, &blobs[0]),
                   *finished = world_must_acquire(&world, &blobs[1]);
    cr_expect_eq(world_load(open), 0);
    version_drop_bytes(open);
    cr_expect_eq(world_load(finished), 0);
    version_drop_bytes(finished);
    version_done_reading(finished);
    world_cache(&world, &blobs[2]); /* the youngest, and the first to go */

    world_cache(&world, &blobs[3]);
    cr_expect(world_is_cached(open));
    cr_expect(version_hold_bytes(finished));
    version_done_reading(finished);
    version_drop_bytes(finished);

    struct version *fourth = world_must_acquire(&world, &blobs[3]),
                   *fifth = world_must_acquire(&world, &blobs[4]);
    cr_expect(version_hold_bytes(fourth)); /* nothing is unreferenced now */
    cr_expect_eq(world_load(fifth), 0);
    cr_expect_not(world_is_cached(finished));
    cr_expect(world_is_cached(open));
    version_drop_bytes(fifth);
    version_drop_bytes(fourth);

    version_unref(fourth);
    version_unref(fifth);
    version_unref(finished);
    version_unref(open);
    free_blobs(blobs, 5);
}

Test(version_cache, a_new_hold_ends_having_been_read) {
    open_big_world(2 * MIB);
    struct world_blob blobs[3];
    put_many(blobs, 3);
    struct version *versions[3];
    for (size_t i = 0; i < 3; i++)
        versions[i] = world_must_acquire(&world, &blobs[i]);
    cr_expect_eq(world_load(versions[0]), 0);
    version_done_reading(versions[0]);
    cr_assert(version_hold_bytes(versions[0])); /* a second reader starts */
    version_drop_bytes(versions[0]);
    version_drop_bytes(versions[0]);
    cr_expect_eq(world_load(versions[1]), 0);
    version_done_reading(versions[1]);
    version_drop_bytes(versions[1]);
    cr_expect_eq(world_load(versions[2]), 0);
    cr_expect(world_is_cached(versions[0]));
    cr_expect_not(world_is_cached(versions[1]));
    version_drop_bytes(versions[2]);
    for (size_t i = 0; i < 3; i++)
        version_unref(versions[i]);
    free_blobs(blobs, 3);
}

static void open_other(struct world *other) {
    world_open(other, &(struct world_options){
                          .slot_bytes = MIB + BLOCK_BYTES, .slots = 8, .buffers = world.buffers});
}

static struct version *load_from(struct world *from, const struct world_blob *blob) {
    struct version *version;
    cr_assert_eq(world_acquire(from, blob, &version), 0);
    cr_assert_eq(world_load(version), 0);
    cr_expect(world_same_bytes(version, blob));
    version_drop_bytes(version);
    return version;
}

Test(version_cache, a_rank_takes_idle_memory_of_another_that_shares_it) {
    open_big_world(2 * MIB);
    struct world other;
    open_other(&other);
    struct world_blob ours[2], theirs[2] = {world_put(&other, MIB), world_put(&other, MIB)};
    put_many(ours, 2);
    world_cache(&world, &ours[0]);
    struct version *open = load_from(&world, &ours[1]);
    struct version *first = load_from(&other, &theirs[0]);
    cr_expect(version_hold_bytes(first));
    cr_expect(world_is_cached(open));
    struct version *second = load_from(&other, &theirs[1]);
    cr_expect_not(world_is_cached(open));
    cr_expect(world_same_bytes(first, &theirs[0]));
    version_drop_bytes(first);
    version_unref(first);
    version_unref(second);
    version_unref(open);
    world_close(&other);
    free_blobs(theirs, 2);
    free_blobs(ours, 2);
}

Test(version_cache, what_nobody_references_in_another_rank_goes_before_what_is_open_here) {
    open_big_world(2 * MIB);
    struct world other;
    open_other(&other);
    struct world_blob ours = world_put(&world, MIB);
    struct world_blob theirs[2] = {world_put(&other, MIB), world_put(&other, MIB)};
    struct version *first = load_from(&other, &theirs[0]);
    world_cache(&world, &ours);
    struct version *second = load_from(&other, &theirs[1]);
    cr_expect(world_is_cached(first));
    cr_expect_eq(version_table_cached_bytes(world.table), 0);
    version_unref(second);
    version_unref(first);
    world_close(&other);
    free(ours.payload);
    free_blobs(theirs, 2);
}

Test(version_cache, bytes_idle_for_long_are_freed) {
    world_open(&world, &(struct world_options){.slot_bytes = 68 << 10,
                                               .slots = 8,
                                               .times = {.wait_ns = 5000000000u,
                                                         .idle_ns = 1000000,
                                                         .sweep_ns = 1000000,
                                                         .retry_ns = 1000000}});
    struct world_blob blobs[2] = {world_put(&world, 64 << 10), world_put(&world, 5000)};
    struct version *open = world_must_acquire(&world, &blobs[1]);
    cr_expect_eq(world_load(open), 0);
    world_cache(&world, &blobs[0]);
    cr_expect(WORLD_EVENTUALLY(version_table_count(world.table) == 1));
    cr_expect(world_same_bytes(open, &blobs[1])); /* held, not idle */
    version_drop_bytes(open);
    cr_expect(WORLD_EVENTUALLY(version_table_cached_bytes(world.table) == 0));
    cr_expect_eq(world_load(open), 0);
    cr_expect(world_same_bytes(open, &blobs[1]));
    version_drop_bytes(open);
    version_unref(open);
    free_blobs(blobs, 2);
}
