/* SPDX-License-Identifier: Apache-2.0 */
/* Both clears, the one at a mount and the one while mounted: genuinely empty, also after a crash.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
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

TestSuite(clear, .init = set_up, .fini = tear_down, .timeout = 120);

enum { PAGE = 65536, PAGES = 200 };

static void put_pages(struct rank *rank, uint64_t version) {
    for (unsigned i = 0; i < PAGES; i++)
        cr_assert_eq(world_put(rank, i, i % 4 ? PAGE : 300, version), 0);
}

static unsigned count_pages(struct rank *rank, uint64_t version) {
    unsigned found = 0;
    for (unsigned i = 0; i < PAGES; i++)
        found += world_has(rank, i, i % 4 ? PAGE : 300, version);
    return found;
}

Test(clear, at_the_mount_starts_empty_and_load_after_it_too) {
    put_pages(world.rank, 1);
    store_world_reopen(&world, COLD_START_CLEAR);
    cr_expect_eq(count_pages(world.rank, 1), 0);
    struct rank_usage usage;
    rank_get_usage(world.rank, &usage);
    cr_expect_eq(usage.taken_bytes, 0);
    cr_expect_eq(usage.live_slots, 0);
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_eq(count_pages(world.rank, 1), 0, "old headers stay void");
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(clear, at_the_mount_drops_directories) {
    uint64_t directory;
    struct name_entry made = {.mode = 0755};
    cr_assert_eq(rank_make_directory(world.rank, directory_root(0), "d", 1, &made, &directory), 0);
    store_world_reopen(&world, COLD_START_CLEAR);
    struct name_entry entry;
    cr_expect_eq(rank_get_name(world.rank, directory_root(0), "d", 1, &entry), -ENOENT);
}

Test(clear, while_mounted_forgets_everything_but_directories) {
    uint64_t directory;
    struct blob_key key;
    struct name_entry made = {.mode = 0755}, entry;
    cr_assert_eq(rank_make_directory(world.rank, directory_root(0), "d", 1, &made, &directory), 0);
    cr_assert_eq(world_put_named(world.rank, directory, "f", 1, 100, 1, &key), 0);
    put_pages(world.rank, 1);
    cr_assert_eq(world_clear(world.rank), 0);
    cr_expect_eq(count_pages(world.rank, 1), 0);
    cr_expect_eq(rank_get_name(world.rank, directory_root(0), "d", 1, &entry), 0);
    cr_expect_eq(rank_get_name(world.rank, directory, "f", 1, &entry), -ENOENT);
    cr_expect_eq(world.cleared_events, 1);
    struct rank_usage usage;
    rank_get_usage(world.rank, &usage);
    cr_expect_eq(usage.taken_bytes, 0);
    cr_expect_eq(world_verify(world.rank), 0);
    put_pages(world.rank, 2);
    cr_expect_eq(count_pages(world.rank, 2), PAGES);
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_eq(count_pages(world.rank, 2), PAGES, "what came after the clear is back");
    cr_expect_eq(rank_get_name(world.rank, directory_root(0), "d", 1, &entry), 0);
}

Test(clear, while_a_reader_holds_a_page_leaves_it_its_bytes) {
    cr_assert_eq(world_put(world.rank, 1, PAGE, 1), 0);
    world_commit(world.rank);
    struct blob_key key = hash_key(0, 1);
    struct version *version;
    cr_assert_eq(rank_open_version(world.rank, &key, 0, &version, NULL), 0);
    version_table_drop_cache(world.rank->versions);
    cr_assert_eq(world_clear(world.rank), 0);
    for (unsigned i = 10; i < 400; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 3), 0);
    struct blocking_waiter waiter;
    blocking_waiter_init(&waiter);
    cr_assert_eq(blocking_waiter_result(&waiter, version_load(version, &waiter.waiter)), 0);
    struct iovec piece;
    uint8_t wanted[PAGE];
    fill_payload(wanted, PAGE, 1, 1);
    cr_assert_eq(version_pieces(version, 0, PAGE, &piece, 1), 1);
    cr_expect_eq(memcmp(piece.iov_base, wanted, PAGE), 0);
    version_drop_bytes(version);
    version_unref(version);
    world_commit(world.rank);
    cr_expect_eq(world_verify(world.rank), 0, "its slot is free again");
}

Test(clear, of_one_rank_leaves_the_other_alone) {
    store_world_close(&world);
    world.config.rank_last = 1;
    cr_assert_eq(store_world_open(&world), 0);
    struct rank *other = store_rank(world.store, 1);
    put_pages(world.rank, 1);
    put_pages(other, 2);
    cr_assert_eq(world_clear(world.rank), 0);
    cr_expect_eq(count_pages(world.rank, 1), 0);
    cr_expect_eq(count_pages(other, 2), PAGES);
    store_world_close(&world);
    world.config.rank_last = 0;
    world.config.cold_start = COLD_START_CLEAR;
    cr_assert_eq(store_world_open(&world), 0);
    store_world_close(&world);
    world.config.rank_first = world.config.rank_last = 1;
    world.config.cold_start = COLD_START_LOAD;
    cr_assert_eq(store_world_open(&world), 0);
    cr_expect_eq(count_pages(world.rank, 2), PAGES, "a clear at a mount is per rank too");
}
