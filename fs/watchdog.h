/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound on stopping: a disk that does not answer must not keep the process, its rank and its
 * clients for ever. What is lost then is what was not committed (W5). A disk that answers slowly is
 * waited for, a minute at most: nothing that was closed is lost as long as writes and commits come.
 */
#ifndef CPL3_FS_WATCHDOG_H
#define CPL3_FS_WATCHDOG_H

#include "fs/guardian.h"

enum {
    WATCHDOG_MS = 4500,      /* without progress; within the 5 s that are promised */
    WATCHDOG_MOST_MS = 60000 /* in all */
};

/* From here on the process ends in time, with EXIT_CODE_STOPPED_LATE if not by itself. */
void watchdog_start(const struct guardian *guardian, const char *mountpoint);
/* Any thread: the disk has taken something. */
void watchdog_note_progress(void);
/* Everything is committed: what is left is the process's own. */
void watchdog_stop(void);

#endif
