/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other processes that hold the descriptor of a half-written file (P2, P4): their exit and their
 * exec publish nothing, and a writer that is killed by a signal takes its file with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum { HALF = 100000 };
static const char *const names[] = {"page.bin", "00112233445566778899aabbccddeeff"};
enum { NAMES = sizeof names / sizeof names[0] };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(publish_killed, .init = open_mount, .fini = close_mount, .timeout = 60);

static int open_new(const char *path) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    return fd;
}

/* The next HALF bytes of the pattern; also for children. 0 or -errno. */
static int write_half(int fd, uint64_t seed) {
    static char bytes[HALF];
    fill_pattern(bytes, HALF, seed, (uint64_t)lseek(fd, 0, SEEK_CUR));
    ssize_t n = write(fd, bytes, HALF);
    return n == HALF ? 0 : n < 0 ? -errno : -EIO;
}

static pid_t fork_child_that(int fd, int write_seed, int signal) {
    fflush(NULL);
    pid_t child = fork();
    if (child != 0)
        return child;
    if (write_seed && write_half(fd, (uint64_t)write_seed) != 0)
        _exit(1);
    if (signal)
        kill(getpid(), signal);
    _exit(0);
}

Test(publish_killed, a_child_that_exits_does_not_publish_its_parents_half) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int fd = open_new(path);
        cr_assert_eq(write_half(fd, 1), 0);
        cr_expect_eq(child_wait(fork_child_that(fd, 0, 0), 20), 0);
        cr_expect_eq(file_open_result(path, O_RDONLY), -ENOENT);
        cr_assert_eq(write_half(fd, 1), 0);
        cr_expect_eq(close(fd), 0);
        cr_expect_eq(file_check(path, 2 * HALF, 1), 0);
    }
}

Test(publish_killed, a_program_that_is_started_does_not_publish_its_parents_half) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int fd = open_new(path);
        cr_assert_eq(write_half(fd, 1), 0);
        cr_expect_eq(run_shell(20, NULL, "/bin/true; /bin/true"), 0);
        cr_expect_eq(file_open_result(path, O_RDONLY), -ENOENT);
        cr_assert_eq(write_half(fd, 1), 0);
        cr_expect_eq(close(fd), 0);
        cr_expect_eq(file_check(path, 2 * HALF, 1), 0);
    }
}

Test(publish_killed, a_killed_child_that_did_not_write_changes_nothing) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int fd = open_new(path);
        cr_assert_eq(write_half(fd, 1), 0);
        cr_expect_eq(WTERMSIG(child_wait(fork_child_that(fd, 0, SIGKILL), 20)), SIGKILL);
        cr_expect_eq(file_open_result(path, O_RDONLY), -ENOENT);
        cr_assert_eq(write_half(fd, 1), 0);
        cr_expect_eq(close(fd), 0);
        cr_expect_eq(file_check(path, 2 * HALF, 1), 0);
    }
}

Test(publish_killed, the_handle_of_a_killed_writer_is_dead_for_everybody) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        uint64_t dead = mount_counter(&mount, "rank0.dead_writers");
        int fd = open_new(path);
        cr_assert_eq(write_half(fd, 1), 0);
        cr_expect_eq(WTERMSIG(child_wait(fork_child_that(fd, 1, SIGKILL), 20)), SIGKILL);
        cr_expect_eq(write_half(fd, 1), -EIO);
        cr_expect(close(fd) != 0 && errno == EIO, "close of a dead handle");
        mount_wait_released(&mount);
        cr_expect_eq(file_open_result(path, O_RDONLY), -ENOENT);
        cr_expect_eq(directory_count_name(mount.rank, names[i]), 0);
        cr_expect_eq(mount_counter(&mount, "rank0.dead_writers"), dead + 1);
    }
}

static int die_half_way(void *path) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0 || write_half(fd, 2) != 0)
        return complain("%s", (char *)path);
    kill(getpid(), SIGKILL);
    return 1;
}

Test(publish_killed, a_killed_writer_leaves_the_old_version) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, HALF, 1), 0);
        pid_t child = child_start(die_half_way, (void *)path);
        cr_expect_eq(WTERMSIG(child_wait(child, 20)), SIGKILL);
        mount_wait_released(&mount);
        cr_expect_eq(file_check(path, HALF, 1), 0);
        cr_expect_eq(file_put(path, HALF, 3), 0, "and the name can be written again");
        cr_expect_eq(file_check(path, HALF, 3), 0);
    }
}

Test(publish_killed, a_shell_that_is_killed_leaves_nothing) {
    const char *path = mount_path(&mount, "log.txt");
    AUTO_FREE char *output = NULL;
    cr_expect_neq(run_shell(20, &output, "exec > '%s'; echo half; kill -9 $$", path), 0);
    mount_wait_released(&mount);
    cr_expect_eq(file_open_result(path, O_RDONLY), -ENOENT);
}

/* exec closes a written descriptor while everybody's /proc files are read */

static int run_ps(void *stop) {
    while (access(stop, F_OK) != 0)
        if (run_shell(30, NULL, "ps -efww >/dev/null") != 0)
            return complain("ps");
    return 0;
}

static int exec_with_written_file(void *argument) {
    const char *path = argument;
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0 || write_half(fd, 1) != 0)
        return complain("%s", path);
    execl("/bin/true", "true", NULL);
    return complain("exec");
}

Test(publish_killed, exec_with_a_written_file_does_not_hang_ps) {
    char stop[400];
    snprintf(stop, sizeof stop, "%s/stop", mount.base);
    pid_t ps[2];
    for (int i = 0; i < 2; i++)
        ps[i] = child_start(run_ps, stop);
    uint64_t end = clock_monotonic_ns() + (uint64_t)(heavy_seconds() * 0.5e9);
    bool good = true;
    for (int i = 0; good && (i < 20 || clock_monotonic_ns() < end); i++) {
        const char *path = mount_path(&mount, "exec-%d", i);
        good = child_succeeds(exec_with_written_file, (void *)path, 20) &&
               file_check(path, HALF, 1) == 0 && unlink(path) == 0;
        cr_expect(good, "%s", path);
    }
    close(open(stop, O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < 2; i++)
        cr_expect_eq(child_wait(ps[i], 20), 0);
}
