/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of an index file before anybody trusts it, in a child that may die of it: its death is
 * the finding. Rule W8 holds: the child opens the file itself, after the fork, and the parent has
 * no thread yet. What makes a file sound is in index_inspect.c.
 */
#include "core/index_internal.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    REASON_BYTES = 160,
    TIMEOUT_SECONDS = 30,
    TIMEOUT_BYTES_PER_SECOND = 20 << 20,
    READ_AHEAD_BYTES = 1 << 20,
};

/* What the child sends through its pipe, in one write. */
struct verdict {
    int result; /* 0, -EUCLEAN or why it could not be tried */
    char reason[REASON_BYTES];
};

/* the child */

/* Once in order, into the page cache: the walk would fault it in page by page. */
static int read_ahead(int fd, struct verdict *verdict) {
    static char buffer[READ_AHEAD_BYTES];
    ssize_t bytes;
    while ((bytes = read(fd, buffer, sizeof buffer)) > 0)
        ;
    if (bytes == 0)
        return 0;
    snprintf(verdict->reason, REASON_BYTES, "reading it: %s", strerror(errno));
    return -EUCLEAN;
}

/* What makes a wild reader die stays deadly; what people send to the process group does not reach
 * the verdict. The parent's handlers and the core dumps are not wanted. */
static void settle_signals(uint64_t file_bytes) {
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    sigset_t none;
    for (int signal_number = 1; signal_number < NSIG; signal_number++)
        signal(signal_number, SIG_DFL);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm((unsigned)(TIMEOUT_SECONDS + file_bytes / TIMEOUT_BYTES_PER_SECOND));
}

[[gnu::noreturn]] static void run_child(const char *path, uint16_t rank, int data_fd,
                                        uint64_t file_bytes, int pipe_fd) {
    struct verdict verdict = {0};
    settle_signals(file_bytes);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0)
        dup2(null, STDERR_FILENO); /* LMDB's assertions print */
    verdict.result = read_ahead(data_fd, &verdict);
    if (verdict.result == 0)
        verdict.result = index_inspect(path, rank, verdict.reason, REASON_BYTES);
    ssize_t written = write(pipe_fd, &verdict, sizeof verdict);
    _exit(written == (ssize_t)sizeof verdict ? 0 : 1);
}

/* the parent */

/* False: the child ended without one. */
static bool read_verdict(int fd, struct verdict *ret_verdict) {
    ssize_t bytes;
    do
        bytes = read(fd, ret_verdict, sizeof *ret_verdict);
    while (bytes < 0 && errno == EINTR);
    return bytes == (ssize_t)sizeof *ret_verdict;
}

static void describe_death(int status, struct verdict *verdict) {
    verdict->result = -EUCLEAN;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(verdict->reason, REASON_BYTES, "the check took longer than its time-out");
    else if (WIFSIGNALED(status))
        snprintf(verdict->reason, REASON_BYTES, "the index file crashes its reader (signal %d)",
                 WTERMSIG(status));
    else
        snprintf(verdict->reason, REASON_BYTES, "the index file crashes its reader");
}

static void wait_for_child(pid_t child, int pipe_fd, struct verdict *ret_verdict) {
    int status = 0;
    pid_t waited;
    bool has_verdict = read_verdict(pipe_fd, ret_verdict);
    do
        waited = waitpid(child, &status, 0);
    while (waited < 0 && errno == EINTR);
    if (!has_verdict)
        describe_death(waited == child ? status : 0, ret_verdict);
    ret_verdict->reason[REASON_BYTES - 1] = '\0';
}

int index_check_in_child(const char *path, uint16_t rank, char *ret_reason, size_t size) {
    char file[PATH_MAX];
    struct stat status;
    if (snprintf(file, sizeof file, "%s/" INDEX_DATA_FILE, path) >= (int)sizeof file)
        return -ENAMETOOLONG;
    AUTO_CLOSE int data_fd = open(file, O_RDONLY | O_CLOEXEC);
    if (data_fd < 0 && errno == ENOENT)
        return 0;
    if (data_fd < 0 || fstat(data_fd, &status) < 0)
        return -errno;
    if (status.st_size == 0)
        return 0;

    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    AUTO_CLOSE int read_end = ends[0];
    pid_t child = fork();
    if (child == 0)
        run_child(path, rank, data_fd, (uint64_t)status.st_size, ends[1]);
    int fork_error = errno;
    close(ends[1]);
    if (child < 0)
        return -fork_error;
    struct verdict verdict;
    wait_for_child(child, read_end, &verdict);
    if (verdict.result && size)
        snprintf(ret_reason, size, "%s", verdict.reason);
    return verdict.result;
}
