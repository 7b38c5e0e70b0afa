/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One budget for pages of any size: when a workload changes its page size, the whole of `size` is
 * useful to the new one within one turnover, and the disk is never fuller than `size`.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"

enum { MIB = 1 << 20, SIZE_BYTES = 128 * MIB };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.size = "128M", .options = "memory=128M"});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(any_size, .init = open_mount, .fini = close_mount, .timeout = 120);

/* Writes `share` times the size in pages of so many bytes. */
static unsigned write_pages(const char *prefix, size_t bytes, double share) {
    unsigned count = (unsigned)(share * SIZE_BYTES / (double)bytes);
    for (unsigned i = 0; i < count; i++) {
        int result = file_put(mount_path(&mount, "%s-%u", prefix, i), bytes, i);
        cr_assert_eq(result, 0, "%s-%u: %s", prefix, i, strerror(-result));
    }
    uint64_t disk = directory_disk_bytes(mount.store, ".slab");
    cr_expect_leq(disk, SIZE_BYTES, "%lu bytes in slabs", disk);
    return count;
}

static double present_share(const char *prefix, unsigned count, size_t bytes) {
    double present = 0;
    for (unsigned i = 0; i < count; i++) {
        int result = file_check(mount_path(&mount, "%s-%u", prefix, i), bytes, i);
        cr_assert(result == 0 || result == -ENOENT, "%s-%u: %s", prefix, i, strerror(-result));
        present += result == 0;
    }
    return present * (double)bytes / SIZE_BYTES;
}

static void expect_turnover(const char *prefix, size_t bytes) {
    unsigned count = write_pages(prefix, bytes, 1.05);
    mount_commit(&mount);
    double share = present_share(prefix, count, bytes);
    cr_expect_geq(share, 0.80, "%s: pages on %.2f of the size", prefix, share);
}

Test(any_size, the_whole_size_serves_each_page_size_after_one_turnover) {
    expect_turnover("large", 8 * MIB);
    expect_turnover("small", 256 << 10);
    expect_turnover("large-again", 8 * MIB);
    expect_turnover("odd", 4497408);
    expect_turnover("odder", 70272);
    cr_expect_eq(mount_counter(&mount, "rank0.no_space"), 0);
}

Test(any_size, sizes_that_come_and_go_leave_no_slabs_behind) {
    for (unsigned i = 1; i <= 24; i++) {
        const char *path = mount_path(&mount, "page");
        cr_assert_eq(file_put(path, MIB + i * 12288, i), 0);
        mount_commit(&mount);
        cr_assert_eq(file_check(path, MIB + i * 12288, i), 0);
    }
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    cr_expect_eq(file_check(mount_path(&mount, "page"), MIB + 24 * 12288, 24), 0);
    AUTO_FREE char *output = NULL;
    cr_expect_eq(run_shell(20, &output, "ls '%s'/rank0/*.slab | wc -l", mount.store), 0);
    cr_expect_leq(atoi(output), 3, "%s slabs", output);
}

/* From here on no process of this test can punch holes. */
static void forbid_holes(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fallocate, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FALLOC_FL_PUNCH_HOLE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

Test(any_size_without_holes, the_mount_says_so_and_stays_within_its_size, .fini = close_mount,
     .timeout = 60) {
    forbid_holes();
    open_mount();
    AUTO_FREE char *log = file_read(mount.log, NULL);
    cr_expect(log && strstr(log, "cannot punch holes"), "%s", log);
    write_pages("large", 8 * MIB, 1.5);
    write_pages("small", 256 << 10, 0.25);
    cr_expect_gt(present_share("small", SIZE_BYTES / 4 / (256 << 10), 256 << 10), 0);
}
