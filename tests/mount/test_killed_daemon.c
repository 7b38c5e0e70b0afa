/* SPDX-License-Identifier: Apache-2.0 */
/*
 * However the daemon ends, its clients get an answer at once, nothing of it is left behind, and the
 * next mount comes up on the same path: also when its notifier is inside a notification that waits
 * for a client that waits for the daemon (fs/guardian.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "core/clock.h"
#include "fs/connection.h"
#include "fs/exit_code.h"
#include "fs/mount_table.h"
#include "tests/support/files.h"
#include "tests/support/freeze.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum {
    BYTES = 50000,
    FREE_SECONDS = 2, /* "at once": milliseconds, but for a busy machine */
    AGAIN_SECONDS = 5,
    OVERWRITERS = 6,
    ROUNDS = 4,
};

static struct mount mount_;

static void open_mount(void) {
    mount_open(&mount_, NULL);
}
static void close_mount(void) {
    mount_close(&mount_);
}
TestSuite(killed_daemon, .init = open_mount, .fini = close_mount, .timeout = 60);

static bool log_says(const char *words) {
    AUTO_FREE char *text = file_read(mount_.log, NULL);
    return text && strstr(text, words);
}

static pid_t guardian(void) {
    return child_named(mount_.daemon, "cpl3-guard");
}

static bool is_gone(pid_t process) {
    return kill(process, 0) != 0 && errno == ESRCH;
}

/* For an orphan: when it is reaped is up to the machine's first process. */
static bool has_ended(pid_t process) {
    return is_gone(process) || process_state(process) == 'Z';
}

/* The daemon was killed: takes note. Its wait status. */
static int reap_daemon(double seconds) {
    int status = -1;
    cr_assert(WAIT_UNTIL(waitpid(mount_.daemon, &status, WNOHANG) == mount_.daemon, seconds),
              "the killed daemon does not finish: state %c", process_state(mount_.daemon));
    mount_.daemon = 0;
    return status;
}

/* A mount in the background, over whatever lies there. The wait status; its output if wanted. */
static int mount_over(const char *options, char **ret_output) {
    return run_shell(20, ret_output,
                     "exec '%s' '%s' '%s' -o rank=0,size=256M,memory=64M,max_file=16M,%s",
                     mount_daemon(), mount_.store, mount_.point, options);
}

static bool is_rank_free(void) {
    char path[400];
    snprintf(path, sizeof path, "%s/rank0/holder", mount_.store);
    return access(path, F_OK) != 0;
}

static void expect_mount_again(const char *name) {
    uint64_t start_ns = clock_monotonic_ns();
    cr_assert_eq(mount_over("cold_start=load", NULL), 0);
    double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    cr_expect_lt(seconds, AGAIN_SECONDS, "mounting again took %.1f s", seconds);
    if (name)
        cr_expect_eq(file_check(mount_path(&mount_, "%s", name), BYTES, 1), 0);
    cr_expect_eq(umount2(mount_.point, 0), 0, "%s", strerror(errno));
    cr_expect(WAIT_UNTIL(is_rank_free(), MOUNT_DEADLINE_SECONDS));
}

/* stuck in the kernel */

/* Holds the directory's lock and waits for the daemon. 0: it was told that the mount is dead. */
static int create_file(void *unused) {
    (void)unused;
    int fd = open(mount_path(&mount_, "waits"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    return fd < 0 && (errno == ENOTCONN || errno == ECONNABORTED) ? 0 : complain("open: %d", fd);
}

/* No worker answers, a client waits for them with the directory locked, and the notifier waits for
 * that lock inside the kernel. The client. */
static pid_t get_stuck(struct freeze *workers) {
    struct freeze notifier_only = {.count = 0};
    const char *path = mount_path(&mount_, "durable");
    cr_assert_eq(file_put(path, BYTES, 2), 0);
    mount_wait_released(&mount_);
    pid_t notifier = thread_named(mount_.daemon, "cpl3-notify");
    cr_assert_eq(freeze_threads(mount_.daemon, "cpl3-notify", &notifier_only), 1,
                 "cannot trace the daemon: %s", strerror(errno));
    cr_assert_eq(file_put(path, BYTES, 1), 0); /* queues a notification */
    mount_wait_released(&mount_);
    mount_commit(&mount_);
    cr_assert_gt(freeze_threads(mount_.daemon, "cpl3-fuse", workers), 0);
    pid_t client = child_start(create_file, NULL);
    cr_assert(WAIT_UNTIL(is_inside_syscall(client, SYS_openat), MOUNT_DEADLINE_SECONDS));
    freeze_end(&notifier_only);
    cr_assert(WAIT_UNTIL(process_state(notifier) == 'D', MOUNT_DEADLINE_SECONDS));
    return client;
}

static void expect_free(pid_t client, struct freeze *workers, int signal) {
    cr_expect_eq(child_wait(client, FREE_SECONDS), 0, "the client");
    freeze_reap(workers);
    int status = reap_daemon(FREE_SECONDS);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == signal, "wait status 0x%x", status);
    cr_expect(mount_is_mounted(mount_.point), "a dead mount keeps clients out of the directory");
    struct stat st;
    cr_expect(stat(mount_.rank, &st) != 0 && errno == ENOTCONN, "%s", strerror(errno));
}

Test(killed_daemon, a_kill_while_the_notifier_is_stuck_frees_everybody) {
    struct freeze workers = {.count = 0};
    pid_t client = get_stuck(&workers), guard = guardian();
    kill(mount_.daemon, SIGKILL);
    expect_free(client, &workers, SIGKILL);
    cr_expect(WAIT_UNTIL(has_ended(guard), FREE_SECONDS), "the guardian is still there");
    expect_mount_again("durable");
}

Test(killed_daemon, a_crash_while_the_notifier_is_stuck_frees_everybody_and_is_told_later) {
    char path[400];
    struct freeze workers = {.count = 0};
    pid_t client = get_stuck(&workers), guard = guardian();
    kill(mount_.daemon, SIGABRT);
    expect_free(client, &workers, SIGABRT);
    cr_expect(WAIT_UNTIL(has_ended(guard), FREE_SECONDS), "the guardian is still there");
    AUTO_FREE char *output = NULL;
    cr_assert_eq(mount_over("cold_start=load", &output), 0, "%s", output);
    cr_expect(strstr(output, "SIGABRT"), "%s", output);
    snprintf(path, sizeof path, "%s/last-fatal", mount_.store);
    cr_expect_eq(access(path, F_OK), -1, "it is told once");
    cr_expect_eq(umount2(mount_.point, 0), 0, "%s", strerror(errno));
}

Test(killed_daemon, the_next_mount_frees_them_when_the_guardian_was_killed_too) {
    struct freeze workers = {.count = 0};
    pid_t client = get_stuck(&workers), notifier = thread_named(mount_.daemon, "cpl3-notify");
    kill(guardian(), SIGKILL);
    cr_assert(WAIT_UNTIL(!guardian(), MOUNT_DEADLINE_SECONDS), "the daemon does not reap it");
    kill(mount_.daemon, SIGKILL);
    freeze_reap(&workers);
    cr_assert(WAIT_UNTIL(process_state(mount_.daemon) == 'Z', MOUNT_DEADLINE_SECONDS));
    cr_assert_eq(process_state(notifier), 'D', "the trap that this is about");
    expect_mount_again("durable");
    cr_expect_eq(child_wait(client, FREE_SECONDS), 0, "the client");
    reap_daemon(FREE_SECONDS);
}

/* at any moment */

/* Files that replace each other, with evictions, until the mount is dead. */
static int overwrite(void *number) {
    for (unsigned i = 0;; i++) {
        const char *path =
            mount_path(&mount_, i % 8 ? "hot" : "%016x", *(unsigned *)number << 16 | i);
        int result = file_put(path, 1 + i * 7919 % 60000, i);
        if (result == -ENOTCONN || result == -ECONNABORTED)
            return 0;
        if (i % 4 == 0)
            unlink(path);
        else
            file_open_result(path, O_RDONLY);
    }
}

Test(killed_daemon, kills_at_any_moment_under_overwriters_hang_nobody) {
    cr_assert_eq(file_put(mount_path(&mount_, "durable"), BYTES, 1), 0);
    mount_commit(&mount_);
    for (unsigned round = 0; round < ROUNDS; round++) {
        pid_t writers[OVERWRITERS];
        for (unsigned i = 0; i < OVERWRITERS; i++)
            writers[i] = child_start(overwrite, &i);
        uint64_t publishes = mount_counter(&mount_, "rank0.publishes") + 100 + 37 * round;
        cr_assert(WAIT_UNTIL(mount_counter(&mount_, "rank0.publishes") > publishes, 20));
        kill(mount_.daemon, SIGKILL);
        for (unsigned i = 0; i < OVERWRITERS; i++)
            cr_assert_eq(child_wait(writers[i], FREE_SECONDS), 0, "round %u", round);
        reap_daemon(FREE_SECONDS);
        umount2(mount_.point, MNT_DETACH);
        mount_start(&mount_, "cold_start=load");
        cr_assert_eq(file_check(mount_path(&mount_, "durable"), BYTES, 1), 0);
    }
}

/* one after the other */

Test(killed_daemon, a_mount_right_after_an_unmount_waits_for_the_last_commit) {
    for (unsigned i = 0; i < 5; i++) {
        pid_t before = mount_.daemon;
        for (unsigned k = 0; k < 20; k++)
            cr_assert_eq(file_put(mount_path(&mount_, "f%u-%u", i, k), BYTES, 1), 0);
        mount_wait_released(&mount_);
        cr_assert_eq(umount2(mount_.point, 0), 0, "%s", strerror(errno));
        mount_start(&mount_, "cold_start=load");
        int status = child_wait(before, MOUNT_DEADLINE_SECONDS);
        cr_expect_eq(status, 0, "wait status 0x%x", (unsigned)status);
        for (unsigned k = 0; k < 20; k++)
            cr_assert_eq(file_check(mount_path(&mount_, "f%u-%u", i, k), BYTES, 1), 0);
    }
}

Test(killed_daemon, a_mount_right_after_a_kill_waits_for_the_end) {
    cr_assert_eq(file_put(mount_path(&mount_, "durable"), BYTES, 1), 0);
    mount_commit(&mount_);
    kill(mount_.daemon, SIGKILL);
    expect_mount_again("durable");
    reap_daemon(FREE_SECONDS);
}

static int mount_from_child(void *unused) {
    (void)unused;
    return mount_over("cold_start=load", NULL) == 0 ? 0 : complain("mounting");
}

/* As after umount -f: the connection is gone, and its process has not noticed yet. */
Test(killed_daemon, a_mount_over_an_aborted_one_waits_for_its_process) {
    struct mount_entry entry;
    cr_assert_eq(file_put(mount_path(&mount_, "f"), BYTES, 1), 0);
    mount_wait_released(&mount_);
    kill(mount_.daemon, SIGSTOP);
    cr_assert_eq(mount_table_find(mount_.point, &entry), 0);
    cr_assert_eq(connection_abort(mount_.point, &entry), 0);
    pid_t next = child_start(mount_from_child, NULL);
    cr_expect_not(WAIT_UNTIL(process_state(next) == 'Z', 0.3), "it does not wait");
    kill(mount_.daemon, SIGCONT);
    cr_assert_eq(child_wait(next, MOUNT_DEADLINE_SECONDS), 0);
    cr_expect_eq(reap_daemon(FREE_SECONDS), 0);
    cr_expect_eq(file_check(mount_path(&mount_, "f"), BYTES, 1), 0);
    cr_expect_eq(umount2(mount_.point, 0), 0, "%s", strerror(errno));
}

Test(killed_daemon, a_living_mount_is_refused_at_once_and_named) {
    char words[64];
    AUTO_FREE char *output = NULL;
    int status = mount_over("cold_start=load", &output);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_MOUNT, "0x%x %s", status,
              output);
    snprintf(words, sizeof words, "by process %d;", mount_.daemon);
    cr_expect(strstr(output, words), "%s", output);
    cr_expect_eq(file_put(mount_path(&mount_, "f"), BYTES, 1), 0);
}

Test(killed_daemon, a_mount_that_does_not_answer_is_refused_in_time_and_left_alone) {
    char words[64];
    AUTO_FREE char *output = NULL;
    cr_assert_eq(file_put(mount_path(&mount_, "f"), BYTES, 1), 0);
    kill(mount_.daemon, SIGSTOP);
    uint64_t start_ns = clock_monotonic_ns();
    int status = mount_over("cold_start=load", &output);
    double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    kill(mount_.daemon, SIGCONT);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_MOUNT, "0x%x %s", status,
              output);
    cr_expect_lt(seconds, 5);
    snprintf(words, sizeof words, "process %d, which does not answer", mount_.daemon);
    cr_expect(strstr(output, words), "%s", output);
    cr_expect_eq(file_check(mount_path(&mount_, "f"), BYTES, 1), 0);
}

/* the guardian itself */

Test(killed_daemon, the_guardian_ends_with_the_daemon_and_not_by_signals_before) {
    pid_t guard = guardian();
    cr_assert_gt(guard, 0);
    cr_expect_neq(getsid(guard), getsid(mount_.daemon), "it is in the terminal's session");
    kill(guard, SIGTERM), kill(guard, SIGINT), kill(guard, SIGHUP), kill(guard, SIGUSR2);
    cr_expect_eq(file_put(mount_path(&mount_, "f"), BYTES, 1), 0);
    cr_expect_eq(guardian(), guard);
    cr_expect_neq(process_state(guard), 'Z');
    mount_stop(&mount_);
    cr_expect(is_gone(guard), "the daemon reaps it before it ends");
}

/* Descriptors of a process, of files whose path begins so. */
static int count_descriptors(pid_t process, const char *path) {
    AUTO_FREE char *output = NULL;
    run_shell(20, &output, "find /proc/%d/fd -type l -lname '%s*' | wc -l", process, path);
    return atoi(output);
}

Test(killed_daemon, the_guardian_holds_nothing_of_the_daemon) {
    pid_t guard = guardian();
    cr_expect_gt(count_descriptors(mount_.daemon, mount_.store), 0);
    cr_expect_eq(count_descriptors(guard, mount_.store), 0);
    cr_expect_gt(count_descriptors(mount_.daemon, "/dev/fuse"), 0);
    cr_expect_eq(count_descriptors(guard, "/dev/fuse"), 0);
    cr_expect_eq(count_descriptors(guard, mount_.base), 0, "the log");
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", guard);
    AUTO_FREE char *line = file_read(path, NULL);
    cr_expect_str_eq(line, "cpl3-guard");
}

Test(killed_daemon, without_its_guardian_the_daemon_goes_on_and_says_so_once) {
    pid_t guard = guardian();
    kill(guard, SIGKILL);
    cr_expect(WAIT_UNTIL(is_gone(guard), FREE_SECONDS), "it is not reaped");
    cr_expect(WAIT_UNTIL(log_says("guardian process"), FREE_SECONDS));
    cr_expect_eq(file_put(mount_path(&mount_, "f"), BYTES, 1), 0);
    cr_expect_eq(file_check(mount_path(&mount_, "f"), BYTES, 1), 0);
    cr_expect_eq(mount_signal(&mount_, SIGTERM, 5), 0);
    AUTO_FREE char *text = file_read(mount_.log, NULL);
    const char *first = strstr(text, "guardian process");
    cr_expect_not(strstr(first + 1, "guardian process"), "%s", text);
}

/* the watchdog */

Test(killed_daemon, a_stop_that_hangs_ends_in_time_and_says_so) {
    struct freeze all = {.count = 0};
    pid_t guard = guardian();
    cr_assert_gt(freeze_threads(mount_.daemon, "", &all), 0);
    uint64_t start_ns = clock_monotonic_ns();
    kill(mount_.daemon, SIGTERM);
    cr_assert(WAIT_UNTIL(process_state(mount_.daemon) == 'Z', 6), "state %c",
              process_state(mount_.daemon));
    double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    cr_expect_lt(seconds, 5.5);
    freeze_reap(&all);
    int status = reap_daemon(FREE_SECONDS);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_STOPPED_LATE, "0x%x", status);
    cr_expect(log_says("giving up"));
    cr_expect(WAIT_UNTIL(has_ended(guard), FREE_SECONDS), "the guardian is still there");
    expect_mount_again(NULL);
}
