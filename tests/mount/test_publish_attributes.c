/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modes, owners and times (P10), bare creations and truncations (P3), as shells and tools make
 * them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

#define HASH "00112233445566778899aabbccddeeff"
static const char *const names[] = {"page.bin", HASH};
enum { NAMES = sizeof names / sizeof names[0] };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(publish_attributes, .init = open_mount, .fini = close_mount, .timeout = 60);

static struct stat stat_of(const char *path) {
    struct stat st = {0};
    cr_assert_eq(stat(path, &st), 0, "%s: %s", path, strerror(errno));
    return st;
}

static uint64_t ns_of(struct timespec t) {
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int open_new(const char *path) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    return fd;
}

/* Runs in the rank's directory. */
#define SHELL(command)                                                                             \
    cr_expect_eq(run_shell(20, NULL, "cd '%s' && { %s; }", mount.rank, (command)), 0, "%s",        \
                 (command))

/* shells */

Test(publish_attributes, a_bare_creation_by_a_shell_is_an_empty_file) {
    SHELL(": > colon && test -f colon && ! test -s colon && cat colon");
    SHELL("touch touched && test -f touched && cat touched && ls | grep -qx touched");
    SHELL("true >> appended && cat appended");
    SHELL(
        "truncate -s 5000 sized && test $(stat -c %s sized) = 5000 && cmp -n 5000 sized /dev/zero");
}

Test(publish_attributes, a_redirected_file_is_whole_after_the_command) {
    SHELL("echo one > f && test \"$(cat f)\" = one");
    SHELL("{ echo one; /bin/echo two; echo three; } > g && test \"$(wc -l < g)\" = 3");
    SHELL("(echo one; (echo two); echo three) > h && test \"$(wc -l < h)\" = 3");
    SHELL("seq 20000 | cat > i && test \"$(md5sum < i)\" = \"$(seq 20000 | md5sum)\"");
    SHELL("exec 5> j; echo one >&5; echo two >&5; exec 5>&-; test \"$(wc -l < j)\" = 2");
}

Test(publish_attributes, appending_keeps_what_was_there) {
    SHELL("echo one > f && echo two >> f && echo three >> f");
    cr_expect(file_is_text(mount_path(&mount, "f"), "one\ntwo\nthree\n"));
    SHELL("echo four | tee -a f > /dev/null && printf five | dd of=f oflag=append conv=notrunc "
          "status=none");
    cr_expect(file_is_text(mount_path(&mount, "f"), "one\ntwo\nthree\nfour\nfive"));
}

Test(publish_attributes, truncating_a_named_file_by_redirection_empties_it) {
    SHELL("echo one > f && : > f && test -f f && ! test -s f");
}

Test(publish_attributes, an_empty_hash_named_file_is_never_published) {
    SHELL(": > " HASH);
    mount_wait_released(&mount);
    cr_expect_eq(file_open_result(mount_path(&mount, HASH), O_RDONLY), -ENOENT);
    /* The notifier tells the kernel, which remembers the name from the creation, a moment later. */
    cr_expect(WAIT_UNTIL(file_size(mount_path(&mount, HASH)) == -ENOENT, 5));
    cr_expect_eq(directory_count(mount.rank), 0);
}

Test(publish_attributes, a_hash_name_that_is_truncated_and_not_written_keeps_its_version) {
    cr_assert_eq(file_put(mount_path(&mount, HASH), 50000, 1), 0);
    SHELL(": > " HASH);
    mount_wait_released(&mount);
    cr_expect_eq(file_check(mount_path(&mount, HASH), 50000, 1), 0);
}

/* sizes */

Test(publish_attributes, truncate_by_name_publishes_the_changed_copy) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, 100000, 1), 0);
        AUTO_CLOSE int reader = open(path, O_RDONLY | O_CLOEXEC);
        cr_expect_eq(truncate(path, 30000), 0, "%s", strerror(errno));
        cr_expect_eq(file_check(path, 30000, 1), 0);
        cr_expect_eq(truncate(path, 60000), 0);
        size_t bytes = 0;
        AUTO_FREE char *now = file_read(path, &bytes);
        cr_assert_eq(bytes, 60000);
        cr_expect(is_pattern(now, 30000, 1, 0));
        for (size_t at = 30000; at < bytes; at++)
            cr_assert_eq(now[at], 0, "byte %zu", at);
        cr_expect_eq(file_check_fd(reader, 100000, 1), 0, "who had it open keeps the old version");
        cr_expect_eq(file_size(path), 60000);
    }
}

Test(publish_attributes, truncate_of_an_absent_name_is_ENOENT) {
    for (int i = 0; i < NAMES; i++)
        cr_expect(truncate(mount_path(&mount, "%s", names[i]), 10) != 0 && errno == ENOENT);
}

/* modes and owners */

Test(publish_attributes, mode_and_owner_set_while_staged_are_kept_over_close) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int fd = open_new(path);
        cr_expect_eq(fchmod(fd, 0400), 0);
        cr_expect_eq(write(fd, "x", 1), 1);
        if (geteuid() == 0)
            cr_expect_eq(fchown(fd, 1234, 2345), 0);
        cr_expect_eq(close(fd), 0);
        struct stat st = stat_of(path);
        cr_expect_eq(st.st_mode & 0700, 0400);
        if (geteuid() == 0)
            cr_expect(st.st_uid == 1234 && st.st_gid == 2345, "owner %u:%u", st.st_uid, st.st_gid);
    }
}

Test(publish_attributes, mode_and_owner_of_a_published_file_change_its_record) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, 20000, 1), 0);
        uint64_t publishes = mount_counter(&mount, "rank0.publishes");
        cr_expect_eq(chmod(path, 0400), 0);
        if (geteuid() == 0)
            cr_expect_eq(chown(path, 1234, 2345), 0);
        cr_expect_eq(stat_of(path).st_mode & 0700, 0400);
        cr_expect_eq(mount_counter(&mount, "rank0.publishes"), publishes);
        cr_expect_eq(file_check(path, 20000, 1), 0);
    }
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    for (int i = 0; i < NAMES; i++) {
        struct stat st = stat_of(mount_path(&mount, "%s", names[i]));
        cr_expect_eq(st.st_mode & 0700, 0400, "after a load");
        if (geteuid() == 0)
            cr_expect(st.st_uid == 1234 && st.st_gid == 2345);
    }
}

/* times */

static const struct timespec old_times[2] = {{1000000000, 5000}, {1100000000, 7000}};

Test(publish_attributes, mtime_is_the_time_of_publishing) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int fd = open_new(path);
        cr_expect_eq(write(fd, "x", 1), 1);
        uint64_t before = clock_real_ns();
        wait_briefly();
        close(fd);
        uint64_t after = clock_real_ns();
        uint64_t mtime = ns_of(stat_of(path).st_mtim);
        cr_expect(before < mtime && mtime <= after, "%lu < %lu <= %lu", before, mtime, after);
    }
}

Test(publish_attributes, times_set_after_the_last_write_are_kept_over_close) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int fd = open_new(path);
        cr_expect_eq(write(fd, "x", 1), 1);
        cr_expect_eq(futimens(fd, old_times), 0);
        close(fd);
        cr_expect_eq(ns_of(stat_of(path).st_mtim), ns_of(old_times[1]));
    }
}

Test(publish_attributes, times_set_before_the_last_write_are_not_kept) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        uint64_t before = clock_real_ns();
        int fd = open_new(path);
        cr_expect_eq(write(fd, "x", 1), 1);
        cr_expect_eq(futimens(fd, old_times), 0);
        cr_expect_eq(write(fd, "y", 1), 1);
        close(fd);
        cr_expect_geq(ns_of(stat_of(path).st_mtim), before);
    }
}

Test(publish_attributes, utimensat_of_a_published_file_sets_its_mtime) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, 20000, 1), 0);
        cr_expect_eq(utimensat(AT_FDCWD, path, old_times, 0), 0);
        cr_expect_eq(ns_of(stat_of(path).st_mtim), ns_of(old_times[1]));
        cr_expect_eq(file_check(path, 20000, 1), 0);
    }
}

Test(publish_attributes, a_touch_of_the_atime_leaves_the_mtime_alone) {
    const struct timespec touch[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, 20000, 1), 0);
        struct stat before = stat_of(path);
        wait_briefly();
        cr_expect_eq(utimensat(AT_FDCWD, path, touch, 0), 0);
        struct stat after = stat_of(path);
        cr_expect_gt(ns_of(after.st_atim), ns_of(before.st_atim));
        cr_expect_eq(ns_of(after.st_mtim), ns_of(before.st_mtim));
    }
}

static bool atime_moves(const char *path, uint64_t before) {
    struct stat st;
    /* Not from the kernel's attribute cache. */
    struct statx fresh;
    return stat(path, &st) == 0 &&
           statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_ATIME, &fresh) == 0 &&
           (uint64_t)fresh.stx_atime.tv_sec * 1000000000u + fresh.stx_atime.tv_nsec > before;
}

Test(publish_attributes, reading_moves_the_atime_and_stat_does_not) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, 20000, 1), 0);
        uint64_t before = ns_of(stat_of(path).st_atim);
        for (int k = 0; k < 5; k++)
            cr_expect_not(atime_moves(path, before), "stat moved it");
        wait_briefly();
        cr_expect_eq(file_check(path, 20000, 1), 0);
        cr_expect(WAIT_UNTIL(atime_moves(path, before), 10), "reading did not");
    }
}

Test(publish_attributes, cp_keeps_mode_and_times) {
    char source[400];
    snprintf(source, sizeof source, "%s/source", mount.base);
    cr_assert_eq(file_put(source, 70000, 1), 0);
    chmod(source, 0600);
    utimensat(AT_FDCWD, source, old_times, 0);
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_expect_eq(run_shell(20, NULL, "cp -p '%s' '%s'", source, path), 0);
        struct stat st = stat_of(path);
        cr_expect_eq(ns_of(st.st_mtim), ns_of(old_times[1]));
        cr_expect_eq(st.st_mode & 0777, 0600);
        cr_expect_eq(file_check(path, 70000, 1), 0);
    }
}
