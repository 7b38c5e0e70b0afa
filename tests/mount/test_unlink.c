/* SPDX-License-Identifier: Apache-2.0 */
/* unlink: the name goes at once, the bytes when nobody has them open, then the space. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum { BYTES = 2 << 20 };
static const char *const names[] = {"page.bin", "00112233445566778899aabbccddeeff"};
enum { NAMES = sizeof names / sizeof names[0] };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 8, .size = "64M"});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(unlink, .init = open_mount, .fini = close_mount, .timeout = 60);

static uint64_t free_bytes(void) {
    struct statvfs v;
    cr_assert_eq(statvfs(mount.rank, &v), 0);
    return (uint64_t)v.f_bfree * v.f_frsize;
}

static int expect_absent_in_another_process(void *path) {
    return file_size(path) == -ENOENT && file_open_result(path, O_RDONLY) == -ENOENT
               ? 0
               : complain("%s is still there", (char *)path);
}

Test(unlink, takes_the_name_from_stat_open_and_listing_at_once) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, BYTES, 1), 0);
        cr_assert_eq(file_check(path, BYTES, 1), 0);
        cr_expect_eq(unlink(path), 0);
        cr_expect_eq(file_size(path), -ENOENT);
        cr_expect_eq(file_open_result(path, O_RDONLY), -ENOENT);
        cr_expect_eq(directory_count_name(mount.rank, names[i]), 0);
        cr_expect(child_succeeds(expect_absent_in_another_process, (void *)path, 20));
        cr_expect(unlink(path) != 0 && errno == ENOENT);
    }
    cr_expect_eq(mount_counter(&mount, "rank0.unlinks"), NAMES);
}

Test(unlink, an_open_file_keeps_its_bytes_until_it_is_closed) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, BYTES, 1), 0);
        mount_commit(&mount);
        AUTO_CLOSE int reader = open(path, O_RDONLY | O_CLOEXEC);
        char *mapped = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, reader, 0);
        cr_assert_neq(mapped, MAP_FAILED);
        cr_expect_eq(unlink(path), 0);
        mount_commit(&mount);
        /* Far more than the store holds: every free slot is written meanwhile. */
        for (uint64_t k = 0; k < 60; k++)
            cr_assert_eq(file_put(mount_path(&mount, "fill-%d-%lu", i, k), BYTES, k), 0);
        cr_expect_eq(file_check_fd(reader, BYTES, 1), 0);
        cr_expect(is_pattern(mapped, BYTES, 1, 0));
        munmap(mapped, BYTES);
    }
}

Test(unlink, gives_the_space_back_when_the_last_reader_closes) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        mount_commit(&mount);
        uint64_t before = free_bytes();
        cr_assert_eq(file_put(path, BYTES, 1), 0);
        mount_commit(&mount);
        cr_expect_leq(free_bytes(), before - BYTES);
        int reader = open(path, O_RDONLY | O_CLOEXEC);
        cr_expect_eq(unlink(path), 0);
        mount_commit(&mount);
        cr_expect_eq(file_check_fd(reader, BYTES, 1), 0);
        close(reader);
        cr_expect(WAIT_UNTIL((mount_commit(&mount), free_bytes() == before), 20),
                  "%lu bytes free, not %lu", free_bytes(), before);
    }
}

static int unlink_in_a_loop(void *argument) {
    uintptr_t me = (uintptr_t)argument;
    for (int i = 0; i < 300; i++) {
        const char *path =
            i % 2 ? mount_path(&mount, "loop-%lu", me) : mount_path(&mount, "%016lx", me);
        if (file_put(path, 9000, me) != 0)
            return complain("writing %s", path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || unlink(path) != 0 || file_check_fd(fd, 9000, me) != 0)
            return complain("%s", path);
        close(fd);
    }
    return 0;
}

Test(unlink, loops_of_eight_processes_leave_no_name_behind) {
    pid_t children[8];
    for (uintptr_t i = 0; i < 8; i++)
        children[i] = child_start(unlink_in_a_loop, (void *)(i + 1));
    for (int i = 0; i < 8; i++)
        cr_expect_eq(child_wait(children[i], 50), 0);
    cr_expect_eq(directory_count(mount.rank), 0);
}

static int read_until_killed(void *unused) {
    (void)unused;
    for (unsigned i = 0;; i++) {
        int result = file_check(mount_path(&mount, "shared-%u", i % 200), 9000, i % 200);
        if (result != 0 && result != -ENOENT)
            return complain("shared-%u: %s", i % 200, strerror(-result));
    }
}

Test(unlink, rm_with_eight_readers_ends_with_nothing) {
    for (unsigned i = 0; i < 200; i++)
        cr_assert_eq(file_put(mount_path(&mount, "shared-%u", i), 9000, i), 0);
    pid_t readers[8];
    for (int i = 0; i < 8; i++)
        readers[i] = child_start(read_until_killed, NULL);
    cr_expect_eq(run_shell(30, NULL, "rm -rf '%s'/*", mount.rank), 0);
    cr_expect_eq(directory_count(mount.rank), 0);
    for (int i = 0; i < 8; i++) {
        kill(readers[i], SIGTERM);
        cr_expect_eq(child_wait(readers[i], 20), SIGTERM, "a reader saw something wrong");
    }
}
