/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences in which somebody who holds the descriptor is killed by a signal (P4). */
#include "tests/mount/flush_sequences.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/wait.h"

static _Atomic unsigned writes_done;

static void half_then(const char *path, int signal) {
    sequence_write(sequence_create(path, O_WRONLY), 1);
    kill(getpid(), signal);
    sequence_pause(NULL);
}

static void half_then_sigkill(const char *path) {
    half_then(path, SIGKILL);
}

static void half_then_sigterm(const char *path) {
    half_then(path, SIGTERM);
}

static void half_then_abort(const char *path) {
    sequence_write(sequence_create(path, O_WRONLY), 1);
    abort();
}

static void killed_before_the_first_write(const char *path) {
    sequence_create(path, O_WRONLY);
    kill(getpid(), SIGKILL);
    sequence_pause(NULL);
}

static void killed_after_close(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    sequence_write(fd, 2);
    close(fd);
    kill(getpid(), SIGKILL);
}

static void killed_after_close_of_a_dup(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    sequence_write(fd, 2);
    close(dup(fd));
    kill(getpid(), SIGKILL);
}

static void writing_child_is_killed(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    sequence_write(fd, 1);
    int child = fork();
    if (child == 0) {
        sequence_write(fd, 1);
        kill(getpid(), SIGKILL);
    }
    sequence_wait(child);
    sequence_write(fd, 1);
    close(fd);
}

static void parent_is_killed_child_goes_on(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    sequence_write(fd, 1);
    int parent = getpid();
    if (fork() == 0) {
        /* It gets another parent only after the old one's descriptors are closed. */
        sequence_require(WAIT_UNTIL(getppid() != parent, 10), "parent");
        sequence_write(fd, 1);
        close(fd);
        _exit(0);
    }
    kill(getpid(), SIGKILL);
}

/* threads */

__attribute__((noreturn)) static void *write_forever(void *fd) {
    for (;;) {
        sequence_require(pwrite(*(int *)fd, sequence_bytes(), BLOCK, 0) == BLOCK, "pwrite");
        atomic_fetch_add(&writes_done, 1);
    }
}

static void start_threads(unsigned count, void *(*function)(void *), int *fd) {
    pthread_t thread;
    for (unsigned i = 0; i < count; i++)
        sequence_require(pthread_create(&thread, NULL, function, fd) == 0, "pthread_create");
}

static void killed_with_idle_threads(const char *path) {
    start_threads(8, sequence_pause, NULL);
    half_then(path, SIGKILL);
}

static void killed_with_busy_threads(const char *path) {
    static int fd;
    fd = sequence_create(path, O_WRONLY);
    start_threads(8, write_forever, &fd);
    sequence_require(WAIT_UNTIL(atomic_load(&writes_done) > 100, 10), "writes");
    kill(getpid(), SIGKILL);
    sequence_pause(NULL);
}

static bool main_thread_is_gone(int pid) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", pid, pid);
    FILE *status = fopen(path, "re");
    bool gone = false;
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "State:\tZ", 8))
            gone = true;
    if (status)
        fclose(status);
    return gone;
}

static void killed_when_only_other_threads_live(const char *path) {
    static int fd;
    fd = sequence_create(path, O_WRONLY);
    start_threads(4, write_forever, &fd);
    sequence_require(WAIT_UNTIL(atomic_load(&writes_done) > 100, 10), "writes");
    int writer = getpid();
    if (fork() == 0) {
        close(fd);
        sequence_require(WAIT_UNTIL(main_thread_is_gone(writer), 10), "main thread");
        kill(writer, SIGKILL);
        _exit(0);
    }
    pthread_exit(NULL);
}

const struct sequence sequences_killed[] = {
    {"half_then_sigkill", half_then_sigkill, -SIGKILL, ABSENT, 4096, 0},
    {"half_then_sigterm", half_then_sigterm, -SIGTERM, ABSENT, 4096, 0},
    {"half_then_abort", half_then_abort, -SIGABRT, ABSENT, 4096, 0},
    {"killed_before_the_first_write", killed_before_the_first_write, -SIGKILL, ABSENT, 0, 0},
    {"killed_after_close", killed_after_close, -SIGKILL, 8192, 8192, 0},
    {"killed_after_close_of_a_dup", killed_after_close_of_a_dup, -SIGKILL, 8192, 8192, 0},
    {"writing_child_is_killed", writing_child_is_killed, 0, ABSENT, 12288, 0},
    {"parent_is_killed_child_goes_on", parent_is_killed_child_goes_on, -SIGKILL, ABSENT, 8192, 0},
    {"killed_with_idle_threads", killed_with_idle_threads, -SIGKILL, ABSENT, 4096, 0},
    {"killed_with_busy_threads", killed_with_busy_threads, -SIGKILL, ABSENT, 4096, 0},
    {"killed_when_only_other_threads_live", killed_when_only_other_threads_live, -SIGKILL, ABSENT,
     4096, 0},
    {0},
};
