/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's table of mounts, as this process sees it (/proc/self/mountinfo): what is mounted on
 * a path, and taking a mount of ours away from it without ever taking somebody else's.
 */
#ifndef CPL3_FS_MOUNT_TABLE_H
#define CPL3_FS_MOUNT_TABLE_H

#include <stdbool.h>
#include <sys/types.h>

#define MOUNT_TYPE "fuse.cpl3"

struct mount_entry {
    unsigned major, minor; /* of the mounted file system: unique while it exists */
    char type[64];
    char source[256]; /* for messages; cut if longer */
};

/* What is mounted on the path (absolute, resolved), the topmost if several. -ENOENT: nothing. */
int mount_table_find(const char *path, struct mount_entry *ret_entry);

/* A mount of this file system, by st_dev of anything on it. -ENOENT. */
int mount_table_find_device(dev_t device, struct mount_entry *ret_entry);

/*
 * Detaches the mount from the path: no new lookups reach it, open files keep it alive. Only if the
 * topmost mount there still is this very one; -ENOENT if not. Without the right to do it, through
 * fusermount3. -errno.
 */
int mount_table_detach(const char *path, const struct mount_entry *entry);

/* One line of mountinfo, which is taken apart: ret_path points into it. False: not such a line. */
bool mount_table_parse_line(char *line, const char **ret_path, struct mount_entry *ret_entry);

#endif
