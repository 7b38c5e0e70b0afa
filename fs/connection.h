/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Aborting a FUSE connection from outside: every request that waits, and every later one, fails at
 * once. For connections whose process is gone or about to be: a dying process that has a thread
 * inside the kernel, waiting for a lock whose holder waits for that very process, never finishes
 * dying and never lets go of its connection by itself (see fs/guardian.h).
 */
#ifndef CPL3_FS_CONNECTION_H
#define CPL3_FS_CONNECTION_H

#include "fs/mount_table.h"

/*
 * A descriptor to give to connection_abort_by. It stands for this very connection, also when the
 * mount is not in the tree any more and when its device number is used again. Needs the fusectl
 * file system: mounted in its place, or the right to mount. -errno.
 */
int connection_open_abort(const struct mount_entry *mount, int *ret_fd);
void connection_abort_by(int fd);

/* Of the mount on the path, if the topmost one still is this very one; -ENOENT if not. It stays in
 * the tree, dead. Never waits for its process. -errno. */
int connection_abort(const char *path, const struct mount_entry *mount);

#endif
