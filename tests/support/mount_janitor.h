/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeps a failed or crashed mount test from leaving anything behind, and its log from getting
 * lost.
 */
#ifndef CPL3_TESTS_SUPPORT_MOUNT_JANITOR_H
#define CPL3_TESTS_SUPPORT_MOUNT_JANITOR_H

#include <stdbool.h>
#include <sys/types.h>

/* Has an assertion of this process failed so far? */
bool janitor_saw_failure(void);
/* A process that waits for this one to end and then cleans up. */
pid_t janitor_start(const char *base);
/* Cleaned up in the ordinary way: ends it. */
void janitor_stop(pid_t janitor);

/* Detaches every mount below the directory and removes it. */
void janitor_remove(const char *base);
/* Prints the end of base/daemon.log and keeps the whole. */
void janitor_keep_log(const char *base);

#endif
