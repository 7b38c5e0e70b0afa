/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where things are: a store and a mount that move, a rank bound to another place, as containers
 * have it, and temps that a killed client leaves behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum { BYTES = 300000, SMALL = 500, PAGE = 256 << 10, PAGES = 3 * (64 << 20) / PAGE };

static struct mount mount_;

static void open_mount(void) {
    mount_open(&mount_, &(struct mount_settings){.threads = 4, .size = "64M"});
}
static void close_mount(void) {
    mount_close(&mount_);
}
TestSuite(cases_places, .init = open_mount, .fini = close_mount, .timeout = 60);

static const char *const names[] = {"page.bin", "d/e/page.bin", "00112233445566778899aabbccddeeff"};
enum { NAMES = sizeof names / sizeof names[0] };

/* a store and a mount that move */

static void move(char *path, size_t bytes, const char *name) {
    char before[300];
    snprintf(before, sizeof before, "%s", path);
    snprintf(path, bytes, "%s/%s", mount_.base, name);
    cr_assert_eq(rename(before, path), 0, "%s: %s", path, strerror(errno));
}

Test(cases_places, a_store_serves_the_same_from_another_path_at_another_path) {
    cr_assert_eq(mkdir(mount_path(&mount_, "d"), 0700), 0);
    cr_assert_eq(mkdir(mount_path(&mount_, "d/e"), 0700), 0);
    for (unsigned i = 0; i < NAMES; i++)
        cr_assert_eq(file_put(mount_path(&mount_, "%s", names[i]), i ? BYTES : SMALL, i), 0);
    mount_stop(&mount_);
    move(mount_.store, sizeof mount_.store, "moved-store");
    move(mount_.point, sizeof mount_.point, "moved-mount");
    snprintf(mount_.rank, sizeof mount_.rank, "%s/moved-mount/rank0", mount_.base);
    mount_start(&mount_, "cold_start=load");
    for (unsigned i = 0; i < NAMES; i++)
        cr_expect_eq(file_check(mount_path(&mount_, "%s", names[i]), i ? BYTES : SMALL, i), 0);
    cr_expect_eq(directory_count(mount_.rank), 3);
}

/* bound to another place */

static char bound[300];

static void bind_rank(void) {
    snprintf(bound, sizeof bound, "%s/bound", mount_.base);
    cr_assert_eq(mkdir(bound, 0700), 0);
    if (mount(mount_.rank, bound, NULL, MS_BIND, NULL) != 0)
        cr_skip_test("a bind mount needs root: %s", strerror(errno));
}

static const char *bound_path(const char *name) {
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", bound, name);
    return path;
}

static void unbind_and_close(void) {
    if (*bound)
        umount2(bound, MNT_DETACH);
    mount_close(&mount_);
}
TestSuite(cases_bound, .init = open_mount, .fini = unbind_and_close, .timeout = 60);

Test(cases_bound, a_bound_rank_shows_what_the_mount_shows_at_once) {
    bind_rank();
    for (uint64_t i = 0; i < 50; i++) {
        cr_assert_eq(file_put(bound_path("page"), BYTES, i), 0);
        cr_assert_eq(file_check(mount_path(&mount_, "page"), BYTES, i), 0);
        cr_assert_eq(file_put(mount_path(&mount_, "page"), BYTES, i + 100), 0);
        cr_assert_eq(file_check(bound_path("page"), BYTES, i + 100), 0);
        cr_assert_eq(unlink(mount_path(&mount_, "page")), 0);
        cr_assert_eq(file_size(bound_path("page")), -ENOENT);
    }
}

static void expect_dead_not_hanging(void) {
    cr_expect_eq(file_size(bound_path("page")), -ENOTCONN);
    cr_expect_eq(file_open_result(bound_path("page"), O_RDONLY), -ENOTCONN);
    cr_expect_eq(umount2(bound, 0), 0, "and it can be unmounted: %s", strerror(errno));
}

Test(cases_bound, SIGTERM_ends_the_daemon_of_a_bound_rank_and_loses_nothing) {
    bind_rank();
    cr_assert_eq(file_put(bound_path("page"), BYTES, 1), 0);
    cr_expect_eq(mount_signal(&mount_, SIGTERM, 10), 0);
    expect_dead_not_hanging();
    mount_start(&mount_, "cold_start=load");
    cr_expect_eq(file_check(mount_path(&mount_, "page"), BYTES, 1), 0);
}

Test(cases_bound, a_bound_rank_of_a_killed_daemon_is_an_error_and_no_hang) {
    bind_rank();
    cr_assert_eq(file_put(bound_path("page"), BYTES, 1), 0);
    mount_commit(&mount_);
    mount_kill(&mount_);
    expect_dead_not_hanging();
    mount_start(&mount_, "cold_start=load");
    cr_expect_eq(file_check(mount_path(&mount_, "page"), BYTES, 1), 0);
}

/* what a killed client leaves behind */

static int write_a_temp_and_a_half_and_die(void *unused) {
    (void)unused;
    if (file_put(mount_path(&mount_, "page.bin.tmp.1"), PAGE, 7) != 0)
        return complain("page.bin.tmp.1");
    int fd = open(mount_path(&mount_, "page.bin.tmp.2"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, mount_.base, sizeof mount_.base) < 0)
        return complain("page.bin.tmp.2");
    return kill(getpid(), SIGKILL);
}

Test(cases_places, a_temp_of_a_killed_client_ages_out_and_a_half_written_one_is_dropped) {
    pid_t client = child_start(write_a_temp_and_a_half_and_die, NULL);
    cr_assert_eq(child_wait(client, 20), SIGKILL);
    mount_wait_released(&mount_);
    cr_expect_eq(directory_count(mount_.rank), 1, "the one that was closed");
    cr_expect_eq(file_check(mount_path(&mount_, "page.bin.tmp.1"), PAGE, 7), 0);
    for (unsigned i = 0; i < PAGES; i++)
        cr_assert_eq(file_put(mount_path(&mount_, "page-%u", i), PAGE, i), 0);
    cr_expect_eq(file_open_result(mount_path(&mount_, "page.bin.tmp.1"), O_RDONLY), -ENOENT);
    cr_expect_eq(directory_count_name(mount_.rank, "page.bin.tmp.1"), 0);
}
