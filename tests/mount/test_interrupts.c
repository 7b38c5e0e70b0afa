/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process with a 50 Hz timer: each caught signal sends FUSE_INTERRUPT for whatever request it
 * waits for, and regular files know no EINTR. Cold opens are slow enough to be hit.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

/* Together more than the payload memory, so that most opens have to load. */
enum { FILES = 14, FILE_BYTES = 8 << 20 };

static struct mount mount;
static volatile sig_atomic_t signals;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(interrupts, .init = open_mount, .fini = close_mount, .timeout = 120);

static void count_signal(int signal) {
    (void)signal;
    signals++;
}

static void start_timer(void) {
    struct sigaction action = {.sa_handler = count_signal}; /* without SA_RESTART */
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static int read_under_timer(void *unused) {
    (void)unused;
    start_timer();
    uint64_t end = clock_monotonic_ns() + (uint64_t)(heavy_seconds() * 1e9);
    for (unsigned i = 0; clock_monotonic_ns() < end || signals < 10; i++) {
        int result = file_check(mount_path(&mount, "cold-%u", i % FILES), FILE_BYTES, i % FILES);
        errno = -result;
        if (result != 0)
            return complain("reading file %u", i % FILES);
    }
    return 0;
}

static int write_under_timer(void *unused) {
    (void)unused;
    start_timer();
    uint64_t end = clock_monotonic_ns() + (uint64_t)(heavy_seconds() * 1e9);
    for (unsigned i = 0; clock_monotonic_ns() < end || signals < 10; i++) {
        const char *path = mount_path(&mount, "w-%u", i % 4), *to = mount_path(&mount, "moved");
        if (file_put(path, 1 << 20, i) != 0)
            return complain("writing %s", path);
        AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 || pwrite(fd, "x", 1, 5) != 1 || fsync(fd) != 0)
            return complain("fsync of %s", path);
        if (rename(path, to) != 0 || unlink(to) != 0)
            return complain("rename and unlink of %s", path);
    }
    return 0;
}

Test(interrupts, opens_and_reads_of_cold_files_do_not_fail_under_a_timer) {
    for (unsigned i = 0; i < FILES; i++)
        cr_assert_eq(file_put(mount_path(&mount, "cold-%u", i), FILE_BYTES, i), 0);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    cr_expect(child_succeeds(read_under_timer, NULL, heavy_seconds() + 60));
}

Test(interrupts, writes_and_name_changes_do_not_fail_under_a_timer) {
    cr_expect(child_succeeds(write_under_timer, NULL, heavy_seconds() + 60));
}
