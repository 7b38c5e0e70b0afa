/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that refuses: writes that fail, a host file system that fills up, blocks that rot. A real
 * tmpfs, a real file size limit, real bytes flipped.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/rank.h"
#include "tests/support/store_world.h"

static struct store_world world;

static void set_up(void) {
    store_world_init(&world);
}

static void tear_down(void) {
    store_world_close(&world);
    umount2(world.directory, MNT_DETACH); /* the tmpfs of one test */
    store_world_destroy(&world);
}

TestSuite(disk_errors, .init = set_up, .fini = tear_down, .timeout = 120);

enum { PAGE = 65536, SLOT = 69632 };

static int commit_result(void) {
    struct blocking_waiter waiter;
    blocking_waiter_init(&waiter);
    return blocking_waiter_result(&waiter, rank_commit(world.rank, &waiter.waiter));
}

static void limit_file_size(rlim_t bytes) {
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void check_failing_writes(enum slab_engine engine) {
    signal(SIGXFSZ, SIG_IGN);
    world.config.engine = engine;
    cr_assert_eq(store_world_open(&world), 0);
    for (unsigned i = 0; i < 50; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    world_commit(world.rank);
    limit_file_size(60 * SLOT);
    for (unsigned i = 50; i < 80; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0, "close has answered by then");
    cr_expect_eq(commit_result(), -EIO, "fsync tells");
    unsigned found = 0;
    for (unsigned i = 0; i < 80; i++)
        found += world_has(world.rank, i, PAGE, 1);
    cr_expect_eq(found, 60, "what could not be written is a miss");
    cr_expect_eq(stats_get(&world.rank->stats, withdrawn), 20);
    cr_expect_eq(stats_get(&world.rank->stats, write_errors), 20);
    cr_expect_eq(world.gone_events, 20);
    limit_file_size(RLIM_INFINITY);
    cr_assert_eq(world_put(world.rank, 100, PAGE, 1), 0);
    cr_expect_eq(commit_result(), 0);
    cr_expect(world_has(world.rank, 100, PAGE, 1));
    cr_expect_eq(world_verify(world.rank), 0);
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect(world_has(world.rank, 59, PAGE, 1));
    cr_expect_not(world_has(world.rank, 60, PAGE, 1));
}

Test(disk_errors, a_failed_write_is_a_miss_and_fsync_reports_it_uring) {
    check_failing_writes(SLAB_ENGINE_AUTO);
}

Test(disk_errors, a_failed_write_is_a_miss_and_fsync_reports_it_posix) {
    check_failing_writes(SLAB_ENGINE_POSIX);
}

Test(disk_errors, a_withdrawn_file_takes_its_name_along) {
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(store_world_open(&world), 0);
    struct blob_key key;
    struct name_entry entry;
    cr_assert_eq(world_put(world.rank, 1, PAGE, 1), 0);
    world_commit(world.rank);
    limit_file_size(SLOT);
    uint64_t root = directory_root(0);
    cr_assert_eq(world_put_named(world.rank, root, "name", 2, PAGE, 1, &key), 0);
    cr_expect_eq(commit_result(), -EIO);
    limit_file_size(RLIM_INFINITY);
    world_commit(world.rank);
    cr_expect_eq(rank_get_name(world.rank, root, "name", 4, &entry), -ENOENT);
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_eq(rank_get_name(world.rank, root, "name", 4, &entry), -ENOENT);
}

/* Fills what is left of the file system that holds the store. */
static int fill_host(void) {
    char path[160];
    snprintf(path, sizeof(path), "%s/ballast", world.directory);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    cr_assert_geq(fd, 0);
    static char block[1 << 16];
    while (write(fd, block, sizeof(block)) > 0)
        continue;
    while (write(fd, block, 4096) > 0)
        continue;
    return fd;
}

static void free_host(int ballast) {
    char path[160];
    close(ballast);
    snprintf(path, sizeof(path), "%s/ballast", world.directory);
    unlink(path);
}

Test(disk_errors, a_full_host_reuses_the_slots_that_have_their_blocks) {
    if (mount("tmpfs", world.directory, "tmpfs", 0, "size=96m") < 0)
        cr_skip_test("a tmpfs cannot be mounted here: %s", strerror(errno));
    cr_assert_eq(store_world_open(&world), 0);
    for (unsigned i = 0; i < 200; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    world_commit(world.rank);
    int ballast = fill_host();
    unsigned stored = 0;
    for (unsigned i = 200; i < 300; i++)
        if (world_put(world.rank, i, PAGE, 1) == 0) {
            world_commit(world.rank);
            stored += world_has(world.rank, i, PAGE, 1);
        }
    cr_expect_geq(stored, 90, "%u of 100 new pages stored", stored);
    free_host(ballast);
    for (unsigned i = 400; i < 420; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    cr_expect(world_has(world.rank, 410, PAGE, 1));
    cr_expect_eq(world_verify(world.rank), 0);
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect(world_has(world.rank, 410, PAGE, 1));
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(disk_errors, what_a_full_host_refused_can_be_stored_when_it_has_space_again) {
    if (mount("tmpfs", world.directory, "tmpfs", 0, "size=96m") < 0)
        cr_skip_test("a tmpfs cannot be mounted here: %s", strerror(errno));
    cr_assert_eq(store_world_open(&world), 0);
    int ballast = fill_host();
    unsigned puts = 2 * 64 * 1024 * 1024 / SLOT;
    for (unsigned i = 0; i < puts; i++) {
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0, "put %u", i);
        cr_assert_eq(commit_result(), -ENOSPC, "the host is full, not broken");
    }
    struct rank_usage usage;
    rank_get_usage(world.rank, &usage);
    cr_expect_eq(usage.taken_bytes, 0);
    free_host(ballast);
    for (unsigned i = 0; i < 500; i++) {
        cr_assert_eq(world_put(world.rank, i, PAGE, 2), 0);
        cr_assert_eq(commit_result(), 0);
    }
    for (unsigned i = 0; i < 500; i++)
        cr_expect(world_has(world.rank, i, PAGE, 2));
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(disk_errors, a_full_host_gives_the_blocks_of_one_size_to_another) {
    if (mount("tmpfs", world.directory, "tmpfs", 0, "size=96m") < 0)
        cr_skip_test("a tmpfs cannot be mounted here: %s", strerror(errno));
    cr_assert_eq(store_world_open(&world), 0);
    for (unsigned i = 0; i < 200; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    world_commit(world.rank);
    int ballast = fill_host();
    unsigned stored = 0;
    for (unsigned i = 1000; i < 1020; i++)
        if (world_put(world.rank, i, 5 * PAGE, 1) == 0) {
            world_commit(world.rank);
            stored += world_has(world.rank, i, 5 * PAGE, 1);
        }
    cr_expect_geq(stored, 18, "%u of 20 pages of another size stored", stored);
    cr_expect_eq(world_verify(world.rank), 0);
    close(ballast);
}

static void flip(off_t offset) {
    char path[160];
    uint8_t byte;
    snprintf(path, sizeof(path), "%s/rank0/any-69632.slab", world.path);
    int fd = open(path, O_RDWR);
    cr_assert_eq(pread(fd, &byte, 1, offset), 1);
    byte ^= 0x40;
    cr_assert_eq(pwrite(fd, &byte, 1, offset), 1);
    cr_assert_eq(fsync(fd), 0);
    close(fd);
}

Test(disk_errors, every_flipped_header_byte_and_any_payload_byte_is_a_miss) {
    cr_assert_eq(store_world_open(&world), 0);
    for (unsigned i = 0; i < 80; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    world_commit(world.rank);
    version_table_drop_cache(world.rank->versions);
    for (unsigned i = 0; i < 64; i++)
        flip((off_t)i * SLOT + SLOT - 64 + i);
    for (unsigned i = 64; i < 72; i++)
        flip((off_t)i * SLOT + (i - 64) * 9362);
    unsigned found = 0;
    for (unsigned i = 0; i < 80; i++)
        found += world_has(world.rank, i, PAGE, 1);
    cr_expect_eq(found, 8);
    cr_expect_eq(stats_get(&world.rank->stats, corrupt), 72);
    world_commit(world.rank); /* the write thread tells */
    cr_expect_eq(world.gone_events, 72);
    for (unsigned i = 0; i < 80; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 2), 0);
    for (unsigned i = 0; i < 80; i++)
        cr_expect(world_has(world.rank, i, PAGE, 2));
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(disk_errors, flipped_headers_are_free_after_a_load) {
    cr_assert_eq(store_world_open(&world), 0);
    for (unsigned i = 0; i < 80; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    store_world_close(&world);
    for (unsigned i = 0; i < 64; i++)
        flip((off_t)i * SLOT + SLOT - 64 + i);
    world.config.cold_start = COLD_START_LOAD;
    cr_assert_eq(store_world_open(&world), 0);
    cr_expect_eq(world.rank->cold_start.live_slots, 16);
    cr_expect_eq(world.rank->cold_start.pruned_records, 64);
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(disk_errors, a_slab_that_cannot_be_opened_costs_its_pages_only_while_it_cannot) {
    char slab[160];
    cr_assert_eq(store_world_open(&world), 0);
    snprintf(slab, sizeof(slab), "%s/rank0/any-%lu.slab", world.path, slot_bytes_for_page(100000));
    cr_assert_eq(mkdir(slab, 0700), 0);
    cr_assert_eq(world_put(world.rank, 1, 100000, 1), 0);
    cr_assert_eq(world_put(world.rank, 2, 5000, 1), 0);
    world_commit(world.rank);
    cr_expect_not(world_has(world.rank, 1, 100000, 1));
    cr_expect(world_has(world.rank, 2, 5000, 1), "other sizes go on");
    cr_expect_eq(stats_get(rank_get_stats(world.rank), withdrawn), 1);
    cr_assert_eq(rmdir(slab), 0);
    cr_assert_eq(world_put(world.rank, 1, 100000, 2), 0);
    world_commit(world.rank);
    cr_expect(world_has(world.rank, 1, 100000, 2));
    cr_expect_eq(world_verify(world.rank), 0);
}
