/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guardian: a tiny process that outlives the daemon for a moment, to abort its connection.
 *
 * A daemon that is killed, or aborts, while its notifier is inside a notification (W6) cannot
 * finish dying: the notification waits for the lock of a directory, the lock's holder waits for an
 * answer of the daemon, and the connection, which would end that wait, is open as long as any
 * thread of the daemon lives. So the daemon's main thread forks a child, before any other thread
 * and before the store is opened (W8), which holds no descriptor of the daemon's. The kernel
 * signals the child when the main thread ends (PR_SET_PDEATHSIG), whatever the other threads do;
 * before a core is dumped, for which the kernel waits for all threads, the daemon says so itself
 * (fs/crash.h).
 *
 * It is in a session of its own, blocks every signal, and its name is cpl3-guard, in its command
 * line too: what kills the daemon by name does not kill it.
 */
#ifndef CPL3_FS_GUARDIAN_H
#define CPL3_FS_GUARDIAN_H

#include <stdbool.h>
#include <sys/types.h>

#include "fs/mount_table.h"

struct guardian {
    pid_t pid; /* 0: there is none */
    int fd;    /* orders to it; readable when it is gone; -1: there is none */
};

/*
 * On the main thread, which is the only one. mountpoint: resolved. argv: the program's; its memory
 * becomes the guardian's name there. Without one (after a line that says why) the daemon can do.
 */
void guardian_start(const char *mountpoint, char **argv, struct guardian *ret_guardian);

/* Mounted: this is the connection to abort. False: it will not be able to; the reason is logged. */
bool guardian_watch(const struct guardian *guardian, const struct mount_entry *mount);

/* Aborts the connection now. Any thread, any signal handler; does not wait. */
void guardian_abort(const struct guardian *guardian);

/* It ended by itself (fd is readable): reaps it. */
void guardian_bury(struct guardian *guardian);

/* The connection is closed, or never was. Sends it away and reaps it. None: nothing to do. */
void guardian_stop(struct guardian *guardian);

#endif
