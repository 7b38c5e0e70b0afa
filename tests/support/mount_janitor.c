/* SPDX-License-Identifier: Apache-2.0 */
/* Cleaning up after mount tests: see mount_janitor.h. */
#include "tests/support/mount_janitor.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/event.h>

#include "core/cleanup.h"
#include "tests/support/wait.h"

enum { LOG_TAIL_BYTES = 8000 };

static bool saw_failure;

bool janitor_saw_failure(void) {
    return saw_failure;
}

/* Criterion tells nobody in the test's own process that an assertion failed, but each one reports
 * through this function of its library, which is found here first. */
void criterion_send_assert(struct criterion_assert_stats *stats) {
    static void (*next)(struct criterion_assert_stats *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "criterion_send_assert");
    if (!stats->passed)
        saw_failure = true;
    next(stats);
}

void janitor_keep_log(const char *base) {
    char from[512], to[768], command[2400];
    const char *directory = getenv("CPL3_TEST_LOGS");
    if (!directory)
        directory = getenv("TMPDIR");
    snprintf(from, sizeof from, "%s/daemon.log", base);
    snprintf(to, sizeof to, "%s/%s.log", directory ? directory : "/tmp", strrchr(base, '/') + 1);
    fprintf(stderr, "---- %s::%s: the daemon's log, kept as %s\n", criterion_current_test->category,
            criterion_current_test->name, to);
    snprintf(command, sizeof command, "cp '%s' '%s' && tail -c %d '%s' >&2", from, to,
             LOG_TAIL_BYTES, to);
    if (system(command) != 0)
        fprintf(stderr, "(no log)\n");
    fprintf(stderr, "----\n");
}

/* Processes of ours: the store's path, which no other test has, stands in their command line. */
static void kill_daemons(const char *base) {
    AUTO_CLOSEDIR DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        char path[300], line[4096];
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line);
        if (fd >= 0)
            close(fd);
        pid_t pid = atoi(entry->d_name);
        if (n > 0 && pid != getpid() && memmem(line, (size_t)n, base, strlen(base)))
            kill(pid, SIGKILL);
    }
}

static void detach_mounts(const char *base) {
    AUTO_FCLOSE FILE *mounts = fopen("/proc/self/mountinfo", "re");
    char line[4096], point[1024];
    while (mounts && fgets(line, sizeof line, mounts))
        if (sscanf(line, "%*d %*d %*s %*s %1023s", point) == 1 &&
            !strncmp(point, base, strlen(base)))
            umount2(point, MNT_DETACH);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    remove(path);
    return 0;
}

static bool remove_tree(const char *base) {
    nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    return access(base, F_OK) != 0;
}

void janitor_remove(const char *base) {
    detach_mounts(base);
    /* A daemon in the background goes on after its unmount, and may make files for a moment. */
    if (!WAIT_UNTIL(remove_tree(base), 20))
        fprintf(stderr, "%s cannot be removed\n", base);
}

/* A killed process that waits for an answer of the daemon dies only when the daemon does. */
static bool is_being_killed(pid_t pid) {
    char path[64], line[256];
    unsigned long long pending;
    bool killed = false;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    AUTO_FCLOSE FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status))
        if ((sscanf(line, "SigPnd: %llx", &pending) == 1 ||
             sscanf(line, "ShdPnd: %llx", &pending) == 1) &&
            (pending & 1 << (SIGKILL - 1)))
            killed = true;
    return killed;
}

static void janitor_run(const char *base, pid_t pid, int test) {
    /* Criterion's sockets and the pipe that `make` reads must not be held open by this process. */
    dup2(test, 3);
    syscall(SYS_close_range, 4, ~0u, 0);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    while (poll(&(struct pollfd){.fd = 3, .events = POLLIN}, 1, 500) == 0 && !is_being_killed(pid))
        continue;
    kill_daemons(base);
    janitor_keep_log(base);
    janitor_remove(base);
}

pid_t janitor_start(const char *base) {
    pid_t pid = getpid();
    int test = (int)syscall(SYS_pidfd_open, pid, 0);
    fflush(NULL);
    pid_t janitor = fork();
    if (janitor == 0) {
        janitor_run(base, pid, test);
        _exit(0);
    }
    close(test);
    return janitor;
}

void janitor_stop(pid_t janitor) {
    kill(janitor, SIGKILL);
    waitpid(janitor, NULL, 0);
}
