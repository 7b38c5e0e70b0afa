/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mounted FUSE session: from mounting to letting the kernel go, in two steps, so that
 * everything that was promised can be answered in between.
 */
#ifndef CPL3_FS_SESSION_H
#define CPL3_FS_SESSION_H

#include "fs/compat.h"
#include "fs/fs.h"
#include "fs/mount_table.h"
#include "fs/options.h"

struct session {
    struct fuse_session *fuse;
    struct mount_entry mount; /* ours in the mount table; no type: it was gone at once */
    char *path;               /* owned */
};

/* Mounts on the path (resolved). 0, or -errno after one log line. */
int session_mount(const struct options *options, const char *path, const char *store_path,
                  struct fs *fs, struct session *ret_session);

/* Takes the mount out of the tree, if it is still there: no new lookups; open files go on. */
void session_detach(struct session *session);

/* Closes the device: whatever is still open gets ENOTCONN. No thread uses the session any more.
 * Also for one that was never mounted (all zero). */
void session_close(struct session *session);

#endif
