/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes of a test. A child never asserts (Criterion's channel belongs to the test's own
 * process): it says what is wrong on stderr and in its exit status.
 */
#ifndef CPL3_TESTS_SUPPORT_PROCESS_H
#define CPL3_TESTS_SUPPORT_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* A child that runs the function and exits with its result. It dies with its parent. */
pid_t child_start(int (*function)(void *), void *argument);
/* Waits, at most so long: the wait status, or -1 when the time is over (the child is killed). */
int child_wait(pid_t pid, double seconds);
/* Runs it in a child and waits: did it exit 0? */
bool child_succeeds(int (*function)(void *), void *argument, double seconds);

/*
 * Runs a bash command line, at most so long. The wait status, or -1. *ret_output (NULL: not wanted;
 * free it): what it wrote to stdout and stderr.
 */
int run_shell(double seconds, char **ret_output, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What a child says before it exits non-zero. */
int complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
