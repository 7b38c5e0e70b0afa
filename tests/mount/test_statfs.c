/* SPDX-License-Identifier: Apache-2.0 */
/* statfs and df: clients compute alignment from f_bsize and free shares from the rest. */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum { SIZE_BYTES = 64 << 20, BYTES = 4 << 20 };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.size = "64M"});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(statfs, .init = open_mount, .fini = close_mount, .timeout = 60);

static struct statvfs usage_of(const char *path) {
    struct statvfs v;
    cr_assert_eq(statvfs(path, &v), 0);
    return v;
}

Test(statfs, block_size_name_length_and_file_counts_are_what_clients_need) {
    struct statvfs v = usage_of(mount.rank);
    cr_expect_eq(v.f_bsize, 4096);
    cr_expect_eq(v.f_frsize, 4096);
    cr_expect_eq(v.f_namemax, 255);
    cr_expect_gt(v.f_files, 0);
    cr_expect_gt(v.f_ffree, 0);
    cr_expect_leq(v.f_ffree, v.f_files);
}

/* But for what is left to the blocks that the store's file system needs for slabs in pieces. */
Test(statfs, an_empty_rank_is_as_large_as_its_size_and_all_free) {
    struct statvfs v = usage_of(mount.rank);
    cr_expect_eq(v.f_blocks * v.f_frsize, SIZE_BYTES - SIZE_BYTES / 256);
    cr_expect_eq(v.f_bfree, v.f_blocks);
    cr_expect_eq(v.f_bavail, v.f_bfree);
}

Test(statfs, what_is_written_is_no_longer_free) {
    struct statvfs before = usage_of(mount.rank);
    cr_assert_eq(file_put(mount_path(&mount, "a"), BYTES, 1), 0);
    struct statvfs after = usage_of(mount.rank);
    uint64_t taken = (before.f_bfree - after.f_bfree) * 4096;
    cr_expect(taken >= BYTES && taken <= BYTES * 5 / 4 + 4096, "%lu bytes taken", taken);
    cr_expect_eq(after.f_blocks, before.f_blocks);
    cr_expect_leq(after.f_ffree, before.f_ffree);
}

Test(statfs, df_shows_the_store) {
    AUTO_FREE char *output = NULL;
    cr_expect_eq(run_shell(20, &output, "df --output=fstype,size '%s'", mount.rank), 0);
    cr_expect(strstr(output, "cpl3"), "%s", output);
}

static void mount_again(const char *options) {
    mount_stop(&mount);
    mount_start(&mount, options);
}

Test(statfs, what_can_be_evicted_counts_as_free_if_asked_for) {
    mount_again("df=reclaimable");
    struct statvfs before = usage_of(mount.rank);
    for (int i = 0; i < 40; i++) /* past the capacity */
        cr_assert_eq(file_put(mount_path(&mount, "page-%d", i), BYTES, i), 0);
    mount_commit(&mount);
    mount_wait_released(&mount);
    cr_expect(WAIT_UNTIL(usage_of(mount.rank).f_bfree == before.f_bfree, 10));
    struct statvfs after = usage_of(mount.rank);
    cr_expect_eq(after.f_blocks, before.f_blocks);
    cr_expect_eq(after.f_bavail, after.f_bfree);
    cr_expect_gt(after.f_ffree, 0);
    cr_expect_leq(after.f_ffree, after.f_files);
    cr_expect_gt(mount_counter(&mount, "rank0.used_bytes"), SIZE_BYTES / 2);
}

Test(statfs, what_somebody_holds_open_cannot_be_evicted_and_is_not_free) {
    mount_again("df=reclaimable");
    cr_assert_eq(file_put(mount_path(&mount, "page"), BYTES, 1), 0);
    mount_commit(&mount);
    int fd = open(mount_path(&mount, "page"), O_RDONLY);
    cr_assert_geq(fd, 0);
    struct statvfs v = usage_of(mount.rank);
    cr_expect_geq((v.f_blocks - v.f_bfree) * 4096, BYTES);
    close(fd);
    cr_expect(WAIT_UNTIL(usage_of(mount.rank).f_bfree == v.f_blocks, 10));
}
