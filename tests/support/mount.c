/* SPDX-License-Identifier: Apache-2.0 */
/* A real mount for one test: see mount.h. */
#include "tests/support/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount_janitor.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

const char *mount_daemon(void) {
    const char *given = getenv("CPL3_DAEMON");
    return given ? given : "./build/cpl3fs";
}

const char *mount_path(const struct mount *mount, const char *format, ...) {
    static _Thread_local char ring[16][MOUNT_PATH_MAX];
    static _Thread_local unsigned next;
    char *path = ring[next++ % 16];
    int n = snprintf(path, MOUNT_PATH_MAX, "%s/", mount->rank);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path + n, (size_t)(MOUNT_PATH_MAX - n), format, arguments);
    va_end(arguments);
    return path;
}

bool mount_is_mounted(const char *point) {
    AUTO_FCLOSE FILE *mounts = fopen("/proc/self/mountinfo", "re");
    char line[4096], found[1024];
    while (mounts && fgets(line, sizeof line, mounts))
        if (sscanf(line, "%*d %*d %*s %*s %1023s", found) == 1 && !strcmp(found, point))
            return true;
    return false;
}

/* starting */

static void make_option_text(const struct mount *mount, const char *more, char *ret_text,
                             size_t bytes) {
    const struct mount_settings *s = &mount->settings;
    int n = snprintf(ret_text, bytes, "rank=%s,size=%s,memory=64M,max_file=16M",
                     s->ranks ? s->ranks : "0", s->size ? s->size : "256M");
    if (s->threads)
        n += snprintf(ret_text + n, bytes - (size_t)n, ",threads=%u", s->threads);
    if (s->options)
        n += snprintf(ret_text + n, bytes - (size_t)n, ",%s", s->options);
    if (more)
        snprintf(ret_text + n, bytes - (size_t)n, ",%s", more);
}

/* LeakSanitizer looks for the process's threads in /proc, where they have other numbers. */
static void forbid_leak_check(void) {
    char options[1024];
    const char *given = getenv("ASAN_OPTIONS");
    snprintf(options, sizeof options, "%s:detect_leaks=0", given ? given : "");
    setenv("ASAN_OPTIONS", options, 1);
}

static void run_daemon(const struct mount *mount, const char *options) {
    int log = open(mount->log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log, 1);
    dup2(log, 2);
    if (mount->settings.own_pid_namespace)
        forbid_leak_check();
    syscall(SYS_close_range, 3, ~0u, 0);
    execl(mount_daemon(), mount_daemon(), mount->store, mount->point, "-f", "-o", options, NULL);
    fprintf(stderr, "%s: %s\n", mount_daemon(), strerror(errno));
    _exit(127);
}

static bool daemon_died(struct mount *mount) {
    int status;
    if (waitpid(mount->daemon, &status, WNOHANG) != mount->daemon)
        return false;
    mount->daemon = 0;
    return true;
}

void mount_launch(struct mount *mount, const char *options) {
    char text[1024];
    make_option_text(mount, options, text, sizeof text);
    fflush(NULL);
    unsigned long flags = SIGCHLD | (mount->settings.own_pid_namespace ? CLONE_NEWPID : 0);
    pid_t pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
    if (pid == 0)
        run_daemon(mount, text);
    cr_assert_gt(pid, 0, "cannot start a process: %s", strerror(errno));
    mount->daemon = pid;
    bool mounted =
        WAIT_UNTIL(mount_is_mounted(mount->point) || daemon_died(mount), MOUNT_DEADLINE_SECONDS);
    cr_assert(mounted && mount->daemon, "%s -o %s: not mounted", mount_daemon(), text);
}

void mount_start(struct mount *mount, const char *options) {
    struct statvfs usage;
    mount_launch(mount, options);
    /* Answered by the daemon, so it serves. */
    cr_assert_eq(statvfs(mount->point, &usage), 0, "%s: %s", mount->point, strerror(errno));
}

void mount_open(struct mount *mount, const struct mount_settings *settings) {
    *mount = (struct mount){.owner = getpid()};
    if (settings)
        mount->settings = *settings;
    if (mount->settings.own_pid_namespace && geteuid() != 0)
        cr_skip_test("a pid namespace of its own needs root");
    const char *directory = getenv("TMPDIR");
    snprintf(mount->base, sizeof mount->base, "%s/cpl3-test-XXXXXX",
             directory ? directory : "/tmp");
    AUTO_FREE char *real = mkdtemp(mount->base) ? realpath(mount->base, NULL) : NULL;
    cr_assert(real, "%s: %s", mount->base, strerror(errno));
    snprintf(mount->base, sizeof mount->base, "%s", real);
    snprintf(mount->store, sizeof mount->store, "%s/store", mount->base);
    snprintf(mount->point, sizeof mount->point, "%s/mnt", mount->base);
    snprintf(mount->rank, sizeof mount->rank, "%s/mnt/rank0", mount->base);
    snprintf(mount->log, sizeof mount->log, "%s/daemon.log", mount->base);
    mkdir(mount->store, 0700);
    mkdir(mount->point, 0700);
    mount->janitor = janitor_start(mount->base);
    if (!mount->settings.stopped)
        mount_start(mount, NULL);
}

/* ending */

static bool wait_daemon(struct mount *mount, double seconds, int *ret_status) {
    int status;
    if (!WAIT_UNTIL(waitpid(mount->daemon, &status, WNOHANG) == mount->daemon, seconds))
        return false;
    mount->daemon = 0;
    *ret_status = status;
    return true;
}

/* The kernel answers EBUSY while the last close of a file is still on its way. */
static bool unmount(const char *point) {
    if (umount2(point, 0) == 0 || errno == EINVAL)
        return true;
    if (errno != EPERM)
        return false;
    return run_shell(MOUNT_DEADLINE_SECONDS, NULL, "fusermount3 -u '%s'", point) == 0;
}

void mount_stop(struct mount *mount) {
    int status;
    cr_assert(WAIT_UNTIL(unmount(mount->point), MOUNT_DEADLINE_SECONDS), "umount %s: %s",
              mount->point, strerror(errno));
    cr_assert(wait_daemon(mount, MOUNT_DEADLINE_SECONDS, &status),
              "unmounted, but the daemon does not end");
    cr_assert_eq(status, 0, "unmounted: the daemon's wait status is 0x%x", (unsigned)status);
}

int mount_signal(struct mount *mount, int signal, unsigned seconds) {
    int status;
    kill(mount->daemon, signal);
    cr_assert(wait_daemon(mount, seconds, &status), "the daemon does not end within %u s", seconds);
    if (signal == SIGKILL)
        umount2(mount->point, MNT_DETACH);
    cr_assert_not(mount_is_mounted(mount->point), "the daemon ended, but is still mounted");
    return status;
}

void mount_kill(struct mount *mount) {
    mount_signal(mount, SIGKILL, MOUNT_DEADLINE_SECONDS);
}

/* Ends the daemon, if it runs: is it good? */
static bool end_daemon(struct mount *mount) {
    bool failed = janitor_saw_failure();
    int status;
    if (!mount->daemon)
        return true;
    if (!WAIT_UNTIL(unmount(mount->point), failed ? 0.2 : 5))
        umount2(mount->point, MNT_DETACH);
    if (!wait_daemon(mount, failed ? 1 : MOUNT_DEADLINE_SECONDS, &status)) {
        fprintf(stderr, "at the end of the test: the daemon does not end\n");
        kill(mount->daemon, SIGKILL);
        waitpid(mount->daemon, NULL, 0);
        mount->daemon = 0;
        return false;
    }
    if (status != 0)
        fprintf(stderr, "at the end of the test: the daemon's wait status is 0x%x\n",
                (unsigned)status);
    return status == 0;
}

void mount_close(struct mount *mount) {
    if (!mount->janitor || mount->owner != getpid())
        return;
    bool good = end_daemon(mount);
    if (janitor_saw_failure() || !good)
        janitor_keep_log(mount->base);
    janitor_remove(mount->base);
    janitor_stop(mount->janitor);
    mount->janitor = 0;
    /* The test has been counted by now, and an assertion would be printed and forgotten. */
    if (!good && !janitor_saw_failure())
        abort();
}

/* talking to it */

/* The sum of the counters of that name; with any_rank: of every rank. */
static bool read_counter(const struct mount *mount, const char *name, bool any_rank,
                         uint64_t *ret_value) {
    char path[400], key[128];
    snprintf(path, sizeof path, "%s/.cpl3/stats", mount->point);
    AUTO_FCLOSE FILE *stats = fopen(path, "re");
    unsigned long long value;
    uint64_t sum = 0;
    bool found = false;
    char line[512];
    while (stats && fgets(line, sizeof line, stats)) {
        if (sscanf(line, "%127s %llu", key, &value) != 2)
            continue;
        const char *dot = any_rank ? strchr(key, '.') : NULL;
        if (strcmp(dot ? dot + 1 : key, name) != 0)
            continue;
        sum += value;
        found = true;
    }
    if (found)
        *ret_value = sum;
    return found;
}

uint64_t mount_counter(const struct mount *mount, const char *name) {
    uint64_t value = 0;
    cr_assert(read_counter(mount, name, false, &value), "%s/.cpl3/stats has no %s", mount->point,
              name);
    return value;
}

int mount_control(const struct mount *mount, const char *command) {
    char path[400];
    snprintf(path, sizeof path, "%s/.cpl3/control", mount->point);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = write(fd, command, strlen(command));
    return n < 0 ? -errno : n == (ssize_t)strlen(command) ? 0 : -EIO;
}

void mount_commit(const struct mount *mount) {
    int result = mount_control(mount, "commit");
    cr_assert_eq(result, 0, "commit: %s", strerror(-result));
}

static bool nothing_open(const struct mount *mount) {
    uint64_t open_handles;
    return read_counter(mount, "open_handles", true, &open_handles) && open_handles == 0;
}

void mount_wait_released(const struct mount *mount) {
    cr_assert(WAIT_UNTIL(nothing_open(mount), MOUNT_DEADLINE_SECONDS),
              "open_handles of %s/.cpl3/stats does not become 0", mount->point);
}
