/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OPEN, CREATE, MKNOD and RELEASE. The decisions about existing files are in fs/open.c.
 */
#include "fs/attr.h"
#include "fs/exited.h"
#include "fs/op.h"
#include "fs/open.h"
#include "fs/ops.h"
#include "fs/state.h"

#include <errno.h>
#include <fcntl.h>

/* What mmap writes back comes without a pid: the opener's process is remembered (P4). */
static pid_t opener_of(fuse_req_t request, int flags) {
    return (flags & O_ACCMODE) == O_RDWR ? exited_process_of(fuse_req_ctx(request)->pid) : 0;
}

/* OPEN */

static int prepare_open(struct fs *fs, fuse_req_t request, uint64_t node,
                        const struct fuse_file_info *info, pid_t opener,
                        struct opening **ret_opening) {
    struct inode *inode = inode_find(fs, node);
    if (!inode)
        return -ESTALE;
    if (inode->kind != INODE_FILE)
        return -EISDIR;
    struct opening *opening = open_create(fs, request, inode, info, opener);
    if (!opening)
        return -ENOMEM;
    *ret_opening = open_decide(fs, opening) ? opening : NULL;
    return 0;
}

void ops_open(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    struct fs *fs = fs_of(request);
    pid_t opener = opener_of(request, info->flags);
    struct opening *opening = NULL;
    pthread_mutex_lock(&fs->lock);
    const struct inode *inode = inode_find(fs, node);
    bool is_control = inode && inode->kind == INODE_CONTROL;
    int result = is_control ? 0 : prepare_open(fs, request, node, info, opener, &opening);
    pthread_mutex_unlock(&fs->lock);
    if (is_control)
        return control_open(request, node, info);
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
    if (opening)
        open_proceed(opening);
}

/* CREATE, MKNOD */

/* A file and the handle that will publish it. */
static int make_file(struct fs *fs, fuse_req_t request, struct rank *rank,
                     const struct place *place, struct file *reuse, mode_t mode, pid_t opener,
                     struct handle **ret_handle) {
    if (fs->config->read_only)
        return -EROFS;
    struct file *file = file_create(fs, rank, place, reuse, fs_mode(fs, mode), ops_uid(fs, request),
                                    ops_gid(fs, request));
    struct inode *inode = file ? inode_create_file(fs, file) : NULL;
    if (!inode) {
        if (file)
            file_discard_unused(fs, file);
        return -ENOMEM;
    }
    inode->created = true;
    struct handle *handle = handle_open(fs, inode, HANDLE_WRITE);
    if (!handle) {
        inode_discard(fs, inode);
        return -ENOMEM;
    }
    handle_become_writer(handle, opener);
    atomic_store(&handle->pending, PENDING_BARE);
    *ret_handle = handle;
    return 0;
}

/* Somebody else made the name meanwhile: an open of what there is, on an inode of its own. Where
 * the kernel checks permissions it has to look at the file first. */
static int open_existing(struct fs *fs, fuse_req_t request, struct rank *rank,
                         const struct place *place, const struct found *found,
                         const struct fuse_file_info *info, pid_t opener,
                         struct opening **ret_opening) {
    if (found->kind == FOUND_DIRECTORY)
        return -EISDIR;
    if (info->flags & O_EXCL)
        return -EEXIST;
    struct file *file = file_of_found(fs, rank, place, found);
    if (!file)
        return -ENOMEM;
    if (fs->options.allow_other) {
        file_heat(fs, file);
        file_discard_unused(fs, file);
        return -ESTALE;
    }
    file_ref(file);
    struct inode *inode = inode_create_private(fs, file);
    file_unref(fs, file);
    struct opening *opening = inode ? open_create(fs, request, inode, info, opener) : NULL;
    if (!opening) {
        if (inode)
            inode_discard(fs, inode);
        return -ENOMEM;
    }
    opening->create = true;
    *ret_opening = open_decide(fs, opening) ? opening : NULL;
    return 0;
}

/* Either of the two comes back, or an error. */
static int create(struct fs *fs, fuse_req_t request, uint64_t parent, const char *name, mode_t mode,
                  const struct fuse_file_info *info, pid_t opener, struct opening **ret_opening,
                  struct handle **ret_handle) {
    struct rank *rank;
    struct place place;
    struct found found;
    int result = ops_place(fs, parent, name, &rank, &place);
    if (result < 0)
        return result;
    file_find(fs, rank, &place, &found);
    if (found.kind != FOUND_NOTHING)
        return open_existing(fs, request, rank, &place, &found, info, opener, ret_opening);
    return make_file(fs, request, rank, &place, found.file, mode, opener, ret_handle);
}

void ops_create(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                struct fuse_file_info *info) {
    struct fs *fs = fs_of(request);
    pid_t opener = opener_of(request, info->flags);
    struct opening *opening = NULL;
    struct handle *handle = NULL;
    struct fuse_entry_param entry;
    pthread_mutex_lock(&fs->lock);
    int result = create(fs, request, parent, name, mode, info, opener, &opening, &handle);
    if (result == 0 && handle)
        result = attr_make_entry(fs, handle->inode, KNOWN_SECONDS, &entry);
    pthread_mutex_unlock(&fs->lock);
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
    if (opening)
        return open_proceed(opening);
    if (!handle)
        return; /* held back; answered later */
    info->fh = (uint64_t)(uintptr_t)handle;
    info->direct_io = 1;
    if (fuse_reply_create(request, &entry, info) < 0)
        open_abandon(handle, true);
}

static int make_node(struct fs *fs, fuse_req_t request, uint64_t parent, const char *name,
                     mode_t mode, struct handle **ret_handle) {
    struct rank *rank;
    struct place place;
    struct found found;
    SCOPE_LOCK(&fs->lock);
    int result = ops_place(fs, parent, name, &rank, &place);
    if (result < 0)
        return result;
    file_find(fs, rank, &place, &found);
    if (found.kind != FOUND_NOTHING)
        return -EEXIST;
    return make_file(fs, request, rank, &place, found.file, mode, 0, ret_handle);
}

void ops_mknod(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode, dev_t device) {
    (void)device;
    struct fs *fs = fs_of(request);
    struct handle *handle = NULL;
    if (!S_ISREG(mode))
        return (void)fuse_reply_err(request, EPERM);
    int result = make_node(fs, request, parent, name, mode, &handle);
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
    /* An empty content hash is never published, so there would be nothing afterwards. */
    struct op *op = handle->file->key.named ? op_create(handle, OP_MAKE, request) : NULL;
    if (!op) {
        result = handle->file->key.named ? ENOMEM : EPERM;
        open_abandon(handle, false);
        return (void)fuse_reply_err(request, result);
    }
    op_submit(op);
}

/* RELEASE */

void ops_release(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    (void)node;
    struct handle *handle = ops_handle(info);
    if (handle->kind != HANDLE_WRITE) {
        handle_close(handle);
        return (void)fuse_reply_err(request, 0);
    }
    bool mapped = atomic_load(&handle->pending) & PENDING_MMAP;
    bool killed = mapped && exited_by_signal(handle->opener);
    struct op *op = op_create(handle, OP_RELEASE, request);
    if (!op) {
        open_abandon(handle, false);
        return (void)fuse_reply_err(request, ENOMEM);
    }
    op->killed = killed;
    op_submit(op);
}
