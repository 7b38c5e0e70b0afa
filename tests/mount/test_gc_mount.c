/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound on a rank's size: writing far past it never fails and never takes more disk, the
 * coldest go first, and what is used stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum { SIZE_BYTES = 64 << 20, PAGE = 256 << 10, PAGES = 3 * SIZE_BYTES / PAGE };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 8, .size = "64M"});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(gc_mount, .init = open_mount, .fini = close_mount, .timeout = 120);

static const char *page(unsigned i) {
    return mount_path(&mount, i % 2 ? "%016x" : "page-%u", i);
}

static double used_share(void) {
    struct statvfs v;
    cr_assert_eq(statvfs(mount.rank, &v), 0);
    return (double)(v.f_blocks - v.f_bfree) / (double)v.f_blocks;
}

static void expect_within_bounds(void) {
    mount_commit(&mount);
    cr_expect(WAIT_UNTIL(used_share() <= 0.90, 20), "%.3f of the size is used", used_share());
    uint64_t disk = directory_disk_bytes(mount.store, ".slab");
    cr_expect_leq(disk, SIZE_BYTES, "%lu bytes in slabs", disk);
    cr_expect_eq(mount_counter(&mount, "rank0.no_space"), 0);
}

/* Every page is there whole or not at all; how many are there. */
static int count_present(unsigned pages, size_t bytes) {
    int present = 0;
    for (unsigned i = 0; i < pages; i++) {
        int result = file_check(page(i), bytes, i);
        cr_assert(result == 0 || result == -ENOENT, "%s: %s", page(i), strerror(-result));
        present += result == 0;
    }
    return present;
}

Test(gc_mount, three_times_the_capacity_is_written_without_an_error) {
    for (unsigned i = 0; i < PAGES; i++) {
        cr_assert_eq(file_put(page(i), PAGE, i), 0, "page %u", i);
        if (i % 100 == 0)
            cr_expect_leq(directory_disk_bytes(mount.store, ".slab"), SIZE_BYTES);
    }
    expect_within_bounds();
    cr_expect_gt(mount_counter(&mount, "rank0.evictions"), PAGES / 2);
    cr_expect_eq(file_open_result(page(0), O_RDONLY), -ENOENT, "the coldest is gone");
    cr_expect_eq(file_check(page(PAGES - 1), PAGE, PAGES - 1), 0, "the hottest is there");
    int listed = directory_count(mount.rank), present = count_present(PAGES, PAGE);
    cr_expect_eq(listed, present);
    cr_expect_geq(present, SIZE_BYTES / 100 * 75 / (PAGE + 8192), "%d pages are left", present);
}

Test(gc_mount, what_is_read_or_touched_stays) {
    static const struct timespec touch[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    cr_assert_eq(file_put(mount_path(&mount, "read"), PAGE, 1), 0);
    cr_assert_eq(file_put(mount_path(&mount, "touched"), PAGE, 2), 0);
    cr_assert_eq(file_put(mount_path(&mount, "left"), PAGE, 3), 0);
    struct stat st;
    for (unsigned i = 0; i < PAGES; i++) {
        cr_assert_eq(file_put(page(i), PAGE, i), 0, "page %u", i);
        if (i % 20 != 0)
            continue;
        cr_assert_eq(file_check(mount_path(&mount, "read"), PAGE, 1), 0, "after page %u", i);
        cr_assert_eq(utimensat(AT_FDCWD, mount_path(&mount, "touched"), touch, 0), 0,
                     "after page %u", i);
        stat(mount_path(&mount, "left"), &st);
    }
    cr_expect_eq(file_check(mount_path(&mount, "touched"), PAGE, 2), 0);
    cr_expect_eq(file_open_result(mount_path(&mount, "left"), O_RDONLY), -ENOENT, "stat is no use");
}

Test(gc_mount, an_evicted_name_is_gone_for_who_had_seen_it) {
    struct stat st;
    for (unsigned i = 0; i < 10; i++) {
        cr_assert_eq(file_put(page(i), PAGE, i), 0);
        cr_assert_eq(stat(page(i), &st), 0); /* it is in the kernel's cache */
    }
    for (unsigned i = 10; i < PAGES; i++)
        cr_assert_eq(file_put(page(i), PAGE, i), 0);
    for (unsigned i = 0; i < 10; i++) {
        cr_expect(WAIT_UNTIL(stat(page(i), &st) != 0 && errno == ENOENT, 5), "%s", page(i));
        cr_expect_eq(file_put(page(i), PAGE, i), 0, "and can be written again");
        cr_expect_eq(file_check(page(i), PAGE, i), 0);
    }
}

Test(gc_mount, small_and_changing_sizes_stay_within_the_bound_too) {
    static const size_t sizes[] = {100, 4000, 5000, 70272, 200000, 900000, 3000000};
    uint64_t written = 0;
    for (unsigned round = 0; round < 8; round++) {
        for (unsigned i = 0; i < 60; i++) {
            size_t bytes = sizes[round == 7 ? i % 7 : round];
            int result = file_put(mount_path(&mount, "r%u-%u", round, i), bytes, i);
            cr_assert_eq(result, 0, "round %u, %zu bytes: %s", round, bytes, strerror(-result));
            written += bytes;
        }
        expect_within_bounds();
    }
    cr_expect_gt(written, 3ull * SIZE_BYTES);
}

static int write_many(void *argument) {
    uintptr_t me = (uintptr_t)argument;
    uint64_t end = clock_monotonic_ns() + (uint64_t)(heavy_seconds() * 0.5e9);
    for (unsigned i = 0; i < PAGES / 4 || clock_monotonic_ns() < end; i++) {
        const char *path = mount_path(&mount, "%lu-%u", me, i);
        int result = file_put(path, PAGE, i);
        if (result == 0 && i % 8 == 0)
            result = file_check(path, PAGE, i);
        errno = -result;
        if (result != 0 && result != -ENOENT)
            return complain("%s", path);
    }
    return 0;
}

Test(gc_mount, four_writers_past_the_capacity_get_no_error) {
    pid_t children[4];
    for (uintptr_t i = 0; i < 4; i++)
        children[i] = child_start(write_many, (void *)i);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(child_wait(children[i], heavy_seconds() + 60), 0);
    expect_within_bounds();
}

Test(gc_mount, without_an_evictable_slot_a_write_is_ENOSPC) {
    int readers[400], count = 0, result = 0;
    while (count < 400 && result == 0) {
        result = file_put(page((unsigned)count), PAGE, (uint64_t)count);
        if (result != 0)
            break;
        readers[count] = open(page((unsigned)count), O_RDONLY | O_CLOEXEC);
        cr_assert_geq(readers[count], 0, "%s", strerror(errno));
        count++;
    }
    cr_expect_eq(result, -ENOSPC, "%d files are open: %s", count, strerror(-result));
    for (int i = 0; i < count; i++) {
        cr_expect_eq(file_check_fd(readers[i], PAGE, (uint64_t)i), 0,
                     "an open file keeps its bytes");
        close(readers[i]);
    }
    cr_expect(WAIT_UNTIL(file_put(mount_path(&mount, "next"), PAGE, 1) == 0, 20));
}
