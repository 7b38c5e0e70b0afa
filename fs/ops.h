/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handlers of fs_operations, by file. Each path ends in exactly one reply; none waits.
 */
#ifndef CPL3_FS_OPS_H
#define CPL3_FS_OPS_H

#include "fs/compat.h"
#include "fs/file.h"

/* fs/ops_meta.c */
void ops_lookup(fuse_req_t request, fuse_ino_t parent, const char *name);
void ops_forget(fuse_req_t request, fuse_ino_t node, uint64_t lookups);
void ops_forget_multi(fuse_req_t request, size_t count, struct fuse_forget_data *forgets);
void ops_getattr(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info);
void ops_statfs(fuse_req_t request, fuse_ino_t node);

/* fs/ops_setattr.c */
void ops_setattr(fuse_req_t request, fuse_ino_t node, struct stat *attributes, int to_set,
                 struct fuse_file_info *info);

/* fs/ops_open.c */
void ops_open(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info);
void ops_create(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                struct fuse_file_info *info);
void ops_mknod(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode, dev_t device);
void ops_release(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info);

/* fs/ops_data.c */
void ops_read(fuse_req_t request, fuse_ino_t node, size_t count, off_t offset,
              struct fuse_file_info *info);
void ops_write(fuse_req_t request, fuse_ino_t node, const char *bytes, size_t count, off_t offset,
               struct fuse_file_info *info);
void ops_flush(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info);
void ops_fsync(fuse_req_t request, fuse_ino_t node, int data_only, struct fuse_file_info *info);
void ops_fallocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t length,
                   struct fuse_file_info *info);
void ops_ioctl(fuse_req_t request, fuse_ino_t node, unsigned int command, void *argument,
               struct fuse_file_info *info, unsigned flags, const void *in, size_t in_bytes,
               size_t out_bytes);

/* fs/ops_dir.c */
void ops_readdir(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset,
                 struct fuse_file_info *info);
void ops_readdirplus(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset,
                     struct fuse_file_info *info);
void ops_fsyncdir(fuse_req_t request, fuse_ino_t node, int data_only, struct fuse_file_info *info);

/* fs/ops_name.c */
void ops_mkdir(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode);
void ops_rmdir(fuse_req_t request, fuse_ino_t parent, const char *name);
void ops_unlink(fuse_req_t request, fuse_ino_t parent, const char *name);
void ops_symlink(fuse_req_t request, const char *target, fuse_ino_t parent, const char *name);
void ops_link(fuse_req_t request, fuse_ino_t node, fuse_ino_t parent, const char *name);

/* fs/rename.c */
void ops_rename(fuse_req_t request, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                const char *new_name, unsigned flags);

/* fs/ops_control.c: the files in .cpl3. */
void control_open(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info);
void control_read(fuse_req_t request, struct handle *handle, size_t count, off_t offset);
void control_run(fuse_req_t request, const struct handle *handle, const char *text, size_t count);

/* for several of them */

/* Under fs->lock: a name to be made or taken away in a directory of a rank. 0; -EPERM in the root
 * and .cpl3; -ENAMETOOLONG, -ENOTDIR, -ESTALE. */
int ops_place(struct fs *fs, uint64_t parent, const char *name, struct rank **ret_rank,
              struct place *ret_place);
/* -ENAMETOOLONG, told once. */
int ops_check_name(struct fs *fs, const char *name);
/* Under fs->lock: the inode that a file's name leads to now, and for how long (P7). NULL: no
 * memory. */
struct inode *ops_choose_inode(struct fs *fs, struct file *file, const struct found *found,
                               double *ret_known_seconds);
static inline struct handle *ops_handle(const struct fuse_file_info *info) {
    return (struct handle *)(uintptr_t)info->fh;
}
/* The owner of what a request creates. */
uint32_t ops_uid(struct fs *fs, fuse_req_t request);
uint32_t ops_gid(struct fs *fs, fuse_req_t request);

#endif
