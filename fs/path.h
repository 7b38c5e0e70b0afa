/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of the command line: absolute ones, and whether one lies inside another. */
#ifndef CPL3_FS_PATH_H
#define CPL3_FS_PATH_H

#include <stdbool.h>

/*
 * The path without symbolic links, dots and trailing slashes, absolute. The last component need not
 * exist. The caller frees it. Works on a dead mount too. -ENOENT (a directory on the way), -errno.
 */
int path_resolve(const char *path, char **ret_resolved);

/* Both resolved. Whether inner is outer or lies below it, by name or, through bind mounts, by inode
 * of any directory on the way. What cannot be asked (a dead mount) counts by name only. */
bool path_is_inside(const char *inner, const char *outer);

#endif
