/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utimensat in all its forms. mtime is kept as it is given, to the nanosecond; atime is the time of
 * the last access, so it moves forward only and never beyond the present (P10).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_times, .init = open_mount, .fini = close_mount, .timeout = 60);

static const struct timespec omitted = {.tv_nsec = UTIME_OMIT}, present = {.tv_nsec = UTIME_NOW};

static const char *published(const char *name) {
    const char *path = mount_path(&mount, "%s", name);
    cr_assert_eq(file_put(path, 5000, 1), 0);
    return path;
}

static struct stat stat_of(const char *path) {
    struct stat st;
    cr_assert_eq(stat(path, &st), 0, "%s: %s", path, strerror(errno));
    return st;
}

static bool same(struct timespec a, struct timespec b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool later(struct timespec a, struct timespec b) {
    return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

static int set_times(const char *path, struct timespec atime, struct timespec mtime) {
    const struct timespec times[2] = {atime, mtime};
    return utimensat(AT_FDCWD, path, times, 0) == 0 ? 0 : -errno;
}

static const struct timespec interesting[] = {
    {0, 1},
    {0, 999999999},
    {1, 0},
    {-1, 0},
    {-1, 999999999},
    {-2000000000, 123456789},
    {1600000000, 123456789},
    {INT32_MAX, 999999999},
    {(time_t)INT32_MAX + 1, 0},
    {(time_t)UINT32_MAX + 12345, 1},
    {9000000000, 987654321},
};
enum { TIMES = sizeof interesting / sizeof interesting[0] };

Test(posix_times, every_mtime_is_kept_to_the_nanosecond_also_by_a_load) {
    for (int i = 0; i < TIMES; i++) {
        char name[32];
        snprintf(name, sizeof name, i % 2 ? "file-%d" : "%016d", i);
        cr_expect_eq(set_times(published(name), omitted, interesting[i]), 0);
    }
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < TIMES; i++) {
            const char *path = mount_path(&mount, i % 2 ? "file-%d" : "%016d", i);
            cr_expect(same(stat_of(path).st_mtim, interesting[i]), "%ld.%09ld",
                      interesting[i].tv_sec, interesting[i].tv_nsec);
        }
        mount_stop(&mount);
        mount_start(&mount, "cold_start=load");
    }
}

Test(posix_times, directories_keep_theirs_too) {
    for (int i = 0; i < TIMES; i++) {
        const char *path = mount_path(&mount, "directory-%d", i);
        cr_assert_eq(mkdir(path, 0700), 0);
        cr_expect_eq(set_times(path, omitted, interesting[i]), 0);
    }
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < TIMES; i++)
            cr_expect(same(stat_of(mount_path(&mount, "directory-%d", i)).st_mtim, interesting[i]),
                      "%ld.%09ld", interesting[i].tv_sec, interesting[i].tv_nsec);
        mount_stop(&mount);
        mount_start(&mount, "cold_start=load");
    }
}

Test(posix_times, what_is_omitted_stays_as_it_was) {
    const char *path = published("file");
    cr_expect_eq(set_times(path, omitted, interesting[6]), 0);
    struct stat before = stat_of(path);
    cr_expect_eq(set_times(path, omitted, omitted), 0);
    struct stat after = stat_of(path);
    cr_expect(same(before.st_atim, after.st_atim) && same(before.st_mtim, after.st_mtim));
    cr_expect_eq(set_times(path, present, omitted), 0);
    after = stat_of(path);
    cr_expect(same(before.st_mtim, after.st_mtim) && later(after.st_atim, before.st_atim));
}

Test(posix_times, the_present_is_the_present) {
    const char *path = published("file");
    struct timespec before, after;
    cr_expect_eq(set_times(path, omitted, interesting[6]), 0);
    clock_gettime(CLOCK_REALTIME_COARSE, &before);
    cr_expect_eq(utimensat(AT_FDCWD, path, NULL, 0), 0);
    clock_gettime(CLOCK_REALTIME, &after);
    struct stat st = stat_of(path);
    cr_expect(!later(before, st.st_mtim) && !later(st.st_mtim, after));
    cr_expect(!later(before, st.st_atim) && !later(st.st_atim, after));
    cr_expect_eq(set_times(path, omitted, interesting[6]), 0);
    cr_expect_eq(set_times(path, omitted, present), 0);
    cr_expect(!later(after, stat_of(path).st_mtim));
}

Test(posix_times, an_atime_is_set_forward_and_to_the_present_at_most) {
    const char *path = published("file");
    struct stat before = stat_of(path);
    cr_expect_eq(set_times(path, interesting[0], omitted), 0);
    cr_expect(same(stat_of(path).st_atim, before.st_atim), "the past is not believed");
    struct timespec now;
    cr_expect_eq(set_times(path, (struct timespec){INT32_MAX, 0}, omitted), 0);
    clock_gettime(CLOCK_REALTIME, &now);
    struct stat after = stat_of(path);
    cr_expect(later(after.st_atim, before.st_atim) && !later(after.st_atim, now));
}

Test(posix_times, one_beyond_all_reckoning_becomes_the_last_or_the_first_that_there_is) {
    const char *path = published("file");
    cr_expect_eq(set_times(path, omitted, (struct timespec){20000000000, 5}), 0);
    cr_expect_eq(stat_of(path).st_mtim.tv_sec, 9223372036);
    cr_expect_eq(set_times(path, omitted, (struct timespec){-20000000000, 5}), 0);
    cr_expect_eq(stat_of(path).st_mtim.tv_sec, -9223372037);
}

Test(posix_times, an_access_before_1970_makes_nothing_warm) {
    const char *path = published("file");
    struct stat before = stat_of(path);
    cr_expect_eq(set_times(path, (struct timespec){-1, 0}, omitted), 0);
    cr_expect(same(stat_of(path).st_atim, before.st_atim));
}

Test(posix_times, impossible_ones_are_EINVAL) {
    const char *path = published("file");
    cr_expect_eq(set_times(path, omitted, (struct timespec){0, 1000000000}), -EINVAL);
    cr_expect_eq(set_times(path, (struct timespec){0, -1}, omitted), -EINVAL);
    cr_expect_eq(set_times(mount_path(&mount, "absent"), omitted, present), -ENOENT);
}

Test(posix_times, through_a_reader_and_without_following_links) {
    const char *path = published("file");
    const struct timespec times[2] = {omitted, interesting[6]},
                          other[2] = {omitted, interesting[9]};
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_expect_eq(futimens(fd, times), 0, "%s", strerror(errno));
    cr_expect(same(stat_of(path).st_mtim, times[1]));
    struct stat st;
    cr_expect(fstat(fd, &st) == 0 && same(st.st_mtim, times[1]));
    cr_expect_eq(utimensat(AT_FDCWD, path, other, AT_SYMLINK_NOFOLLOW), 0);
    cr_expect(same(stat_of(path).st_mtim, other[1]));
    cr_expect_eq(file_check_fd(fd, 5000, 1), 0);
}

Test(posix_times, through_a_writer_they_are_those_of_the_published_file) {
    const char *path = mount_path(&mount, "file");
    const struct timespec times[2] = {omitted, interesting[6]};
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_expect_eq(write(fd, "x", 1), 1);
    cr_expect_eq(futimens(fd, times), 0);
    struct stat st;
    cr_expect(fstat(fd, &st) == 0 && same(st.st_mtim, times[1]));
    close(fd);
    mount_wait_released(&mount);
    cr_expect(same(stat_of(path).st_mtim, times[1]));
}

Test(posix_times, the_older_calls_set_them_as_well) {
    const char *path = published("file");
    const struct timeval micro[2] = {{1, 0}, {1500000000, 654321}};
    cr_expect_eq(utimes(path, micro), 0);
    cr_expect(same(stat_of(path).st_mtim, (struct timespec){1500000000, 654321000}));
    cr_expect_eq(utime(path, &(struct utimbuf){.modtime = 1400000000}), 0);
    cr_expect(same(stat_of(path).st_mtim, (struct timespec){1400000000, 0}));
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_expect_eq(futimes(fd, micro), 0);
    cr_expect_eq(stat_of(path).st_mtim.tv_sec, 1500000000);
}

Test(posix_times, what_changes_a_directory_changes_its_mtime) {
    const char *directory = mount_path(&mount, "directory");
    cr_assert_eq(mkdir(directory, 0700), 0);
    const char *file = mount_path(&mount, "directory/file");
    for (int change = 0; change < 4; change++) {
        cr_expect_eq(set_times(directory, omitted, interesting[6]), 0);
        if (change == 0)
            cr_expect_eq(file_put(file, 10, 1), 0);
        if (change == 1)
            cr_expect_eq(rename(file, mount_path(&mount, "directory/moved")), 0);
        if (change == 2)
            cr_expect_eq(unlink(mount_path(&mount, "directory/moved")), 0);
        if (change == 3)
            cr_expect_eq(mkdir(mount_path(&mount, "directory/below"), 0700), 0);
        cr_expect(later(stat_of(directory).st_mtim, interesting[6]), "change %d", change);
    }
}
