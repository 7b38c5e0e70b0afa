/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction as a store does it: order, watermarks, pins, and no slot lost. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "core/rank.h"
#include "tests/support/store_world.h"

static struct store_world world;

static void set_up(void) {
    store_world_init(&world);
    cr_assert_eq(store_world_open(&world), 0);
}

static void tear_down(void) {
    store_world_destroy(&world);
}

TestSuite(gc_order, .init = set_up, .fini = tear_down, .timeout = 120);

enum { PAGE = 65536, SLOT = 69632 };

static double used_share(void) {
    struct rank_usage usage;
    rank_get_usage(world.rank, &usage);
    return (double)usage.taken_bytes / (double)usage.size_bytes;
}

Test(gc_order, three_times_the_capacity_stays_within_size_and_loses_no_slot) {
    unsigned pages = 3 * (unsigned)(world.config.size_bytes / SLOT);
    for (unsigned i = 0; i < pages; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0, "page %u", i);
    cr_expect_eq(world_verify(world.rank), 0);
    cr_expect_leq(used_share(), 0.90);
    cr_expect_geq(used_share(), 0.80);
    struct rank_usage usage;
    rank_get_usage(world.rank, &usage);
    cr_expect_leq(usage.backed_bytes, usage.size_bytes);
    cr_expect_eq(usage.taken_bytes, usage.live_slots * SLOT, "every slot is accounted for");
    cr_expect_eq(stats_get(&world.rank->stats, no_space), 0);
    cr_expect_eq(world.gone_events, stats_get(&world.rank->stats, evictions));
}

Test(gc_order, collects_the_coldest_down_to_the_low_watermark) {
    unsigned capacity = (unsigned)(world.config.size_bytes / SLOT);
    unsigned fill = (unsigned)(capacity * 0.89);
    for (unsigned i = 0; i < fill; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    cr_assert_eq(world_verify(world.rank), 0);
    cr_assert_eq(stats_get(&world.rank->stats, evictions), 0, "below the mark nothing goes");
    for (unsigned i = fill; i < fill + capacity / 50; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    cr_assert_eq(world_verify(world.rank), 0);
    uint64_t evicted = stats_get(&world.rank->stats, evictions);
    cr_expect_gt(evicted, 0);
    cr_expect_leq(used_share(), 0.90);
    for (unsigned i = 0; i < fill; i++)
        cr_expect_eq(world_has(world.rank, i, PAGE, 1), i >= evicted, "page %u of %lu evicted", i,
                     (unsigned long)evicted);
}

Test(gc_order, a_touch_keeps_a_page_warm) {
    unsigned capacity = (unsigned)(world.config.size_bytes / SLOT);
    struct blob_key kept = hash_key(0, 0);
    for (unsigned i = 0; i < 3 * capacity; i++) {
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
        if (i % 16 == 0)
            rank_touch(world.rank, &kept, 0);
    }
    cr_expect(world_has(world.rank, 0, PAGE, 1));
    cr_expect_not(world_has(world.rank, 1, PAGE, 1));
}

Test(gc_order, a_page_in_use_is_passed_over) {
    unsigned capacity = (unsigned)(world.config.size_bytes / SLOT);
    cr_assert_eq(world_put(world.rank, 0, PAGE, 1), 0);
    world_commit(world.rank);
    struct version *held;
    struct blob_key key = hash_key(0, 0);
    cr_assert_eq(rank_open_version(world.rank, &key, 0, &held, NULL), 0);
    for (unsigned i = 1; i < 2 * capacity; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    cr_expect(world_has(world.rank, 0, PAGE, 1));
    version_unref(held);
}

Test(gc_order, a_store_full_of_pages_in_use_refuses_and_recovers) {
    unsigned capacity = (unsigned)(world.config.size_bytes / SLOT), held_count = 0;
    struct version *held[1200];
    int result = 0;
    for (unsigned i = 0; i < capacity + 10 && result == 0; i++) {
        result = world_put(world.rank, i, PAGE, 1);
        struct blob_key key = hash_key(0, i);
        if (result == 0 && rank_open_version(world.rank, &key, 0, &held[held_count], NULL) == 0)
            held_count++;
    }
    cr_expect_eq(result, -ENOSPC);
    cr_expect_geq(held_count, capacity * 9 / 10);
    for (unsigned i = 0; i < held_count; i++)
        version_unref(held[i]);
    cr_expect_eq(world_put(world.rank, 5000, PAGE, 1), 0, "nothing is wedged");
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(gc_order, mixed_sizes_are_accounted_by_slots) {
    static const size_t sizes[] = {1, 4096, 8128, 8129, 65472, 65536, 65537, 1000000};
    for (unsigned i = 0; i < 6000; i++)
        cr_assert_eq(world_put(world.rank, i, sizes[i % 8], 1), 0, "blob %u", i);
    cr_expect_eq(world_verify(world.rank), 0);
    struct rank_usage usage;
    rank_get_usage(world.rank, &usage);
    cr_expect_leq(usage.taken_bytes, usage.size_bytes);
    cr_expect_leq(usage.backed_bytes, usage.size_bytes);
}

Test(gc_order, a_store_that_changes_its_page_size_moves_the_space) {
    for (unsigned i = 0; i < 60; i++)
        cr_assert_eq(world_put(world.rank, i, 2 << 20, 1), 0);
    for (unsigned i = 1000; i < 2000; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    cr_assert_eq(world_verify(world.rank), 0);
    unsigned found = 0;
    for (unsigned i = 1000; i < 2000; i++)
        found += world_has(world.rank, i, PAGE, 1);
    cr_expect_geq(found, world.config.size_bytes / SLOT * 8 / 10, "%u small pages", found);
    struct rank_usage usage;
    rank_get_usage(world.rank, &usage);
    cr_expect_leq(usage.backed_bytes, usage.size_bytes);
}

Test(gc_order, a_page_larger_than_max_file_is_refused) {
    struct reservation reservation;
    cr_expect_eq(rank_reserve(world.rank, 0, world.config.max_file_bytes + 1, &reservation),
                 -EFBIG);
    cr_expect_eq(world_put(world.rank, 1, world.config.max_file_bytes, 1), 0);
    cr_expect(world_has(world.rank, 1, world.config.max_file_bytes, 1));
}
