/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is published after each of 51 ways to write and close (flush_*.c), with one worker and with
 * many, for named files and for hash names, and where the daemon sees every caller as pid 0. Each
 * sequence has a mount and a process of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "core/cleanup.h"
#include "tests/mount/flush_sequences.h"
#include "tests/support/mount.h"
#include "tests/support/wait.h"

enum { HASH_NAMED = 1, OWN_PID_NAMESPACE = 2 };

static const struct variant {
    const char *what;
    unsigned threads;
    unsigned flags;
} variants[] = {
    {"1 worker", 1, 0},
    {"8 workers", 8, 0},
    {"8 workers, hash name", 8, HASH_NAMED},
    {"8 workers, in another pid namespace", 8, OWN_PID_NAMESPACE},
    {"1 worker, in another pid namespace, hash name", 1, OWN_PID_NAMESPACE | HASH_NAMED},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

static const struct sequence *const groups[] = {
    sequences_processes, sequences_exec, sequences_killed, sequences_requests, sequences_mmap,
};
enum { GROUPS = sizeof groups / sizeof groups[0], ROWS_MAX = 16 };

/* No pointers: it travels to the process of the test. */
struct row {
    unsigned group, sequence, variant;
};

static struct mount mount;

static void run_writer(const struct sequence *sequence, const char *path) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    sequence->run(path);
    _exit(0);
}

/* The writer's end; its own children (it may die before them) are waited for as well. */
static int wait_for_all(pid_t writer) {
    int status, end = SEQUENCE_BROKEN;
    pid_t pid;
    while ((pid = wait(&status)) > 0 || errno == EINTR)
        if (pid == writer)
            end = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
        else if (pid == mount.daemon)
            mount.daemon = 0;
        else if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) >= SEQUENCE_BROKEN)
            return WEXITSTATUS(status);
    return end;
}

/* In a process between: only the sequence's own processes are its descendants. */
static int run_sequence(const struct sequence *sequence, const char *path) {
    fflush(NULL);
    pid_t keeper = fork();
    if (keeper == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        pid_t writer = fork();
        if (writer == 0)
            run_writer(sequence, path);
        _exit(wait_for_all(writer) & 0xff);
    }
    int status;
    waitpid(keeper, &status, 0);
    return (signed char)WEXITSTATUS(status);
}

/* Bytes of what a reader gets; ABSENT; -errno - 100 for anything else. */
static long read_published(const char *path) {
    AUTO_CLOSE int fd = open(path, O_RDONLY);
    if (fd < 0)
        return errno == ENOENT ? ABSENT : -100 - errno;
    char bytes[16 * BLOCK];
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0)
        return -100 - errno;
    for (ssize_t i = 0; i < n && i < BLOCK; i++)
        if (bytes[i] != 'x' && bytes[i] != 'm')
            return -100 - EBADMSG;
    return n;
}

static long stat_bytes(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : ABSENT;
}

static long expected_bytes(const struct sequence *sequence, const struct variant *variant) {
    bool pid0 = variant->flags & OWN_PID_NAMESPACE;
    long bytes = pid0 ? sequence->published_pid0 : sequence->published;
    /* An empty hash-named file is never published. */
    return bytes == 0 && (variant->flags & HASH_NAMED) ? ABSENT : bytes;
}

static bool ring_is_missing(const struct sequence *sequence) {
    if (strncmp(sequence->name, "uring", 5) != 0)
        return false;
    struct io_uring ring;
    if (io_uring_queue_init(2, &ring, 0) != 0)
        return true;
    io_uring_queue_exit(&ring);
    return false;
}

static void check_sequence(const struct sequence *sequence, const struct variant *variant) {
    bool hash = variant->flags & HASH_NAMED;
    const char *path =
        mount_path(&mount, "%s", hash ? "00112233445566778899aabbccddeeff" : "page.bin");
    long expected = expected_bytes(sequence, variant);
    int end = run_sequence(sequence, path);
    cr_expect_eq(end, sequence->end, "%s (%s): the writer ended with %d, not %d", sequence->name,
                 variant->what, end, sequence->end);
    mount_wait_released(&mount);
    long found = read_published(path);
    bool right = found == expected || (sequence->may_be_absent && found == ABSENT);
    cr_expect(right, "%s (%s): %ld bytes are published, not %ld (-1: absent)", sequence->name,
              variant->what, found, expected);
    /* The kernel is told of a dropped name a moment later, and else asks again after 10 s. */
    cr_expect(WAIT_UNTIL(stat_bytes(path) == found, 5), "%s (%s): stat says %ld, reading %ld",
              sequence->name, variant->what, stat_bytes(path), found);
}

ParameterizedTestParameters(flush_sequences, what_is_published_is_what_a_writer_closed) {
    static struct row rows[GROUPS * ROWS_MAX * VARIANTS];
    size_t count = 0;
    for (unsigned g = 0; g < GROUPS; g++)
        for (unsigned s = 0; groups[g][s].name; s++)
            for (unsigned v = 0; v < VARIANTS; v++)
                rows[count++] = (struct row){g, s, v};
    return cr_make_param_array(struct row, rows, count);
}

static void close_mount(void) {
    mount_close(&mount);
}

ParameterizedTest(struct row *row, flush_sequences, what_is_published_is_what_a_writer_closed,
                  .fini = close_mount, .timeout = 60) {
    const struct sequence *sequence = &groups[row->group][row->sequence];
    const struct variant *variant = &variants[row->variant];
    if (ring_is_missing(sequence))
        cr_skip_test("%s: io_uring is not allowed here", sequence->name);
    mount_open(&mount, &(struct mount_settings){
                           .threads = variant->threads,
                           .own_pid_namespace = variant->flags & OWN_PID_NAMESPACE,
                       });
    check_sequence(sequence, variant);
}
