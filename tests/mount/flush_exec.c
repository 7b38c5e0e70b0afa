/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of exec and exit with a descriptor that was written to. */
#include "tests/mount/flush_sequences.h"

#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <unistd.h>

static void start_other_thread(void) {
    pthread_t thread;
    sequence_require(pthread_create(&thread, NULL, sequence_pause, NULL) == 0, "pthread_create");
}

/* Another program writes the second block through the inherited descriptor. */
static void go_on_in_another_program(const char *path) {
    char script[100];
    int fd = sequence_create(path, O_WRONLY);
    sequence_write(fd, 1);
    snprintf(script, sizeof script, "exec head -c 4096 /dev/zero >&%d", fd);
    execl("/bin/bash", "bash", "-c", script, NULL);
    sequence_require(false, "exec");
}

static void exec_inherits(const char *path) {
    go_on_in_another_program(path);
}

static void exec_inherits_from_threads(const char *path) {
    start_other_thread();
    go_on_in_another_program(path);
}

static void close_by_exec(const char *path) {
    sequence_write(sequence_create(path, O_WRONLY | O_CLOEXEC), 2);
    execl("/bin/true", "true", NULL);
    sequence_require(false, "exec");
}

static void exec_closes(const char *path) {
    close_by_exec(path);
}

static void exec_closes_for_threads(const char *path) {
    start_other_thread();
    close_by_exec(path);
}

static void spawn_between_writes(const char *path) {
    int fd = sequence_create(path, O_WRONLY | O_CLOEXEC);
    sequence_write(fd, 1);
    pid_t child;
    char *arguments[] = {(char *)"true", NULL}, *environment[] = {NULL};
    sequence_require(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environment) == 0,
                     "posix_spawn");
    sequence_wait(child);
    sequence_write(fd, 1);
    close(fd);
}

static void exit_without_close(const char *path) {
    sequence_write(sequence_create(path, O_WRONLY), 2);
    _exit(0);
}

/* An exit status is no signal: what the process had written counts. */
static void exit_with_a_status(const char *path) {
    sequence_write(sequence_create(path, O_WRONLY), 1);
    _exit(3);
}

const struct sequence sequences_exec[] = {
    {"exec_inherits", exec_inherits, 0, 8192, 8192, 0},
    {"exec_inherits_from_threads", exec_inherits_from_threads, 0, 8192, 8192, 0},
    {"exec_closes", exec_closes, 0, 8192, 8192, 0},
    {"exec_closes_for_threads", exec_closes_for_threads, 0, 8192, 8192, 0},
    {"spawn_between_writes", spawn_between_writes, 0, 8192, 8192, 0},
    {"exit_without_close", exit_without_close, 0, 8192, 8192, 0},
    {"exit_with_a_status", exit_with_a_status, 3, 4096, 4096, 0},
    {0},
};
