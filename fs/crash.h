/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a crash (a CHECK, a wild pointer, SIGQUIT) still does before the process ends the usual way,
 * with a core file where the system wants one: the connection is aborted through the guardian,
 * since the kernel waits for all threads before it dumps a core and one of them may be waiting for
 * the connection's end; and the store keeps a line that the next mount tells.
 */
#ifndef CPL3_FS_CRASH_H
#define CPL3_FS_CRASH_H

#include "fs/guardian.h"

/* For this process and not for its children. The guardian stays the caller's, and where it is. */
void crash_install(const struct guardian *guardian);

#endif
