/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory to mount on: is it fit, is a dead mount of ours in the way, and do mountpoint and
 * store stay out of each other (a store below its own mountpoint would wait for itself for ever)?
 */
#ifndef CPL3_FS_MOUNTPOINT_H
#define CPL3_FS_MOUNTPOINT_H

#include <stdbool.h>

struct mountpoint {
    char *path; /* resolved, owned */
    bool dead;  /* a mount of ours lies on it whose process is gone */
};

/*
 * Looks, and changes nothing that anybody could still use: a mount of ours whose process is dying
 * but cannot finish has its connection aborted, which lets that process and its clients go. Never
 * waits long for a mount that does not answer. store_path: resolved. Before any other thread
 * exists. 0, or -errno after one log line.
 */
int mountpoint_check(const char *path, const char *store_path, struct mountpoint *ret_mountpoint);

/* Detaches what is dead and checks again, until a fit directory is left. 0, or -errno after one
 * log line. */
int mountpoint_clear(struct mountpoint *mountpoint, const char *store_path);

void mountpoint_free(struct mountpoint *mountpoint);

#endif
