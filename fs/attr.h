/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stat shows (rules P5, P7, P10): of a staged file, the size so far; of an inode whose version
 * is current, the record; of one that is held open or pinned, its own version; of anything else
 * ESTALE. Everything here is under fs->lock.
 */
#ifndef CPL3_FS_ATTR_H
#define CPL3_FS_ATTR_H

#include <stdint.h>
#include <sys/stat.h>

#include "core/store.h"
#include "fs/compat.h"
#include "fs/inode.h"

void attr_of_record(const struct blob_record *record, struct shown *ret_shown);

/* 0; -ESTALE, and then the name is hot; -ENOENT: a private inode of a file that is gone. */
int attr_get(struct fs *fs, struct inode *inode, struct stat *ret_stat);

/* An entry that leads to this inode; counts the lookup unless the attributes cannot be had. */
int attr_make_entry(struct fs *fs, struct inode *inode, double known_seconds,
                    struct fuse_entry_param *ret_entry);
/* The same for a file's inode whose version is this one, the current one: nothing is looked up. */
void attr_make_entry_of_record(struct fs *fs, struct inode *inode, const struct blob_record *record,
                               double known_seconds, struct fuse_entry_param *ret_entry);

/* How long the kernel may believe attributes of this inode. */
double attr_known_seconds(const struct inode *inode);

/* st_ino of a directory of core's. */
uint64_t attr_directory_number(uint64_t directory);
/* st_ino of the mount's own. */
uint64_t attr_own_number(const struct inode *inode);

#endif
