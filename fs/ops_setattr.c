/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SETATTR: modes, owners and times of published and staged files and of directories (rule P10), and
 * sizes, with a handle or by name.
 */
#include "fs/attr.h"
#include "fs/op.h"
#include "fs/open.h"
#include "fs/ops.h"
#include "fs/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What the kernel asks for, in core's terms. */
struct wanted {
    struct attributes attributes;
    bool atime;
    uint64_t atime_ns; /* 0: now */
};

/* Before 1677 and after 2262 the nearest time that there is; 0 means something else to core. */
static int64_t ns_of(const struct timespec *time) {
    int64_t ns;
    if (__builtin_mul_overflow((int64_t)time->tv_sec, 1000000000, &ns) ||
        __builtin_add_overflow(ns, (int64_t)time->tv_nsec, &ns))
        ns = time->tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return ns == 0 ? 1 : ns;
}

/* An access before 1970 is older than all others. */
static uint64_t access_ns_of(const struct timespec *time) {
    int64_t ns = ns_of(time);
    return ns < 1 ? 1 : (uint64_t)ns;
}

static struct wanted wanted_of(struct fs *fs, const struct stat *attributes, int to_set) {
    struct wanted wanted = {.attributes = {.mode = fs_mode(fs, attributes->st_mode),
                                           .uid = attributes->st_uid,
                                           .gid = attributes->st_gid}};
    if (to_set & FUSE_SET_ATTR_MODE)
        wanted.attributes.set |= ATTRIBUTE_MODE;
    if (to_set & FUSE_SET_ATTR_UID)
        wanted.attributes.set |= ATTRIBUTE_UID;
    if (to_set & FUSE_SET_ATTR_GID)
        wanted.attributes.set |= ATTRIBUTE_GID;
    /* A truncation by name carries a time that nobody has set: the publish time will do. */
    if ((to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)) &&
        !(to_set & FUSE_SET_ATTR_SIZE)) {
        wanted.attributes.set |= ATTRIBUTE_MTIME;
        wanted.attributes.mtime_ns = to_set & FUSE_SET_ATTR_MTIME_NOW ? (int64_t)clock_real_ns()
                                                                      : ns_of(&attributes->st_mtim);
    }
    wanted.atime = to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW);
    if (wanted.atime && !(to_set & FUSE_SET_ATTR_ATIME_NOW))
        wanted.atime_ns = access_ns_of(&attributes->st_atim);
    return wanted;
}

/* Without default_permissions the kernel leaves it to us: only root gives files away. With uid= or
 * gid= there is one owner of all. */
static int check_owner(struct fs *fs, fuse_req_t request, const struct attributes *wanted,
                       const struct stat *now) {
    bool moves_uid = (wanted->set & ATTRIBUTE_UID) && wanted->uid != now->st_uid;
    bool moves_gid = (wanted->set & ATTRIBUTE_GID) && wanted->gid != now->st_gid;
    if (moves_uid && (fs->options.uid_given || fuse_req_ctx(request)->uid != 0))
        return -EPERM;
    return moves_gid && fs->options.gid_given ? -EPERM : 0;
}

/* files */

/* Where the next publish of what is staged takes its attributes from. A time set by name on
 * something published is not for what others are writing. */
static void set_staged(struct inode *inode, const struct attributes *wanted, bool published) {
    struct file *file = inode->file;
    if (wanted->set & ATTRIBUTE_MODE)
        file->mode = wanted->mode;
    if (wanted->set & ATTRIBUTE_UID)
        file->uid = wanted->uid;
    if (wanted->set & ATTRIBUTE_GID)
        file->gid = wanted->gid;
    if (!(wanted->set & ATTRIBUTE_MTIME) || (published && !inode->writer))
        return;
    for (struct handle *h = file->staged; h; h = h->next_staged) {
        if (!inode->writer || h == inode->writer)
            atomic_store(&h->mtime_ns, wanted->mtime_ns);
    }
}

static void set_shown(struct shown *shown, const struct attributes *wanted) {
    if (wanted->set & ATTRIBUTE_MODE)
        shown->mode = wanted->mode;
    if (wanted->set & ATTRIBUTE_UID)
        shown->uid = wanted->uid;
    if (wanted->set & ATTRIBUTE_GID)
        shown->gid = wanted->gid;
    if (wanted->set & ATTRIBUTE_MTIME)
        shown->mtime_ns = wanted->mtime_ns;
}

/* A time set on what is staged is for the version that it becomes, not for the one before it. */
static int set_published(struct inode *inode, struct attributes wanted, bool *ret_published) {
    struct file *file = inode->file;
    struct blob_record record;
    *ret_published = file->attached && rank_get_blob(file->rank, &file->key, &record) == 0;
    if (inode->writer && atomic_load(&inode->writer->pending) != 0)
        wanted.set &= ~(unsigned)ATTRIBUTE_MTIME;
    if (wanted.set == 0 || !*ret_published)
        return 0;
    int result = rank_set_blob_attributes(file->rank, &file->key, &wanted);
    return result == -ENOENT ? 0 : result;
}

static int set_file(struct fs *fs, fuse_req_t request, struct inode *inode,
                    const struct wanted *wanted) {
    struct stat now;
    bool published = false;
    int result = attr_get(fs, inode, &now);
    if (result == 0)
        result = check_owner(fs, request, &wanted->attributes, &now);
    if (result == 0)
        result = set_published(inode, wanted->attributes, &published);
    if (result < 0)
        return result;
    set_staged(inode, &wanted->attributes, published);
    set_shown(&inode->shown, &wanted->attributes);
    if (wanted->atime && inode->file->attached)
        rank_touch(inode->file->rank, file_served_key(inode->file), wanted->atime_ns);
    return 0;
}

/* directories */

/* The directories of the ranks have no record: times are kept for as long as the mount lasts. */
static int set_directory(struct fs *fs, fuse_req_t request, struct directory *directory,
                         const struct attributes *wanted) {
    struct stat now;
    int result = attr_get(fs, directory->inode, &now);
    if (result == 0)
        result = check_owner(fs, request, wanted, &now);
    if (result < 0)
        return result;
    bool changes_mode = (wanted->set & ATTRIBUTE_MODE) && wanted->mode != directory->mode;
    bool changes_owner = ((wanted->set & ATTRIBUTE_UID) && wanted->uid != now.st_uid) ||
                         ((wanted->set & ATTRIBUTE_GID) && wanted->gid != now.st_gid);
    if (directory->parent == 0 && (changes_mode || changes_owner))
        return -EPERM;
    if (directory->parent != 0 && !directory->removed && wanted->set != 0)
        result = rank_set_directory_attributes(directory->rank, directory->parent, directory->name,
                                               strlen(directory->name), wanted);
    if (result < 0)
        return result;
    if (wanted->set & ATTRIBUTE_MODE)
        directory->mode = wanted->mode;
    if (wanted->set & ATTRIBUTE_UID)
        directory->uid = wanted->uid;
    if (wanted->set & ATTRIBUTE_GID)
        directory->gid = wanted->gid;
    if (wanted->set & ATTRIBUTE_MTIME)
        directory->mtime_ns = wanted->mtime_ns;
    directory->ctime_ns = (int64_t)clock_real_ns();
    return 0;
}

/* Root, .cpl3 and its files: a truncation before a command is written is fine, the rest is not. */
static int set_own(int to_set) {
    const int allowed = FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW |
                        FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_CTIME;
    const int forbidden = FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID;
    return (to_set & allowed) && !(to_set & forbidden) ? 0 : -EPERM;
}

/* sizes */

/* By name, on an inode that one LOOKUP has to itself: the truncated copy is published. */
static int truncate_private(struct fs *fs, struct inode *inode, struct handle **ret_handle) {
    inode_adopt_newest(fs, inode);
    struct version *base = inode_take_pin(fs, inode);
    struct handle *handle = base ? handle_open(fs, inode, HANDLE_WRITE) : NULL;
    if (!handle) {
        version_unref(base);
        return base ? -ENOMEM : -ENOENT;
    }
    handle_become_writer(handle, 0);
    atomic_store(&handle->size_bytes, version_payload_bytes(base));
    handle->base = base;
    *ret_handle = handle;
    return 0;
}

static bool is_fresh(const struct inode *inode) {
    return inode->private && !inode->used;
}

/*
 * Which handle a size without one is for (P7): what is only staged is resized in place; of
 * something published the kernel has to bring an inode of its own. An empty hash-named file cannot
 * be: the old version stays, as it does after O_TRUNC (-EALREADY).
 */
static int choose_handle(struct fs *fs, struct inode *inode, uint64_t size_bytes,
                         struct handle **ret_handle, enum op_kind *ret_kind) {
    struct file *file = inode->file;
    struct blob_record record;
    bool published = file_get_current(file, &record);
    bool fresh = is_fresh(inode);
    if (published && fresh) {
        *ret_kind = OP_TRUNCATE;
        if (size_bytes == 0 && !file->key.named)
            return -EALREADY;
        return truncate_private(fs, inode, ret_handle);
    }
    struct handle *staged = inode->writer ? inode->writer : file->staged;
    if (!published && staged && (fresh || inode->writer)) {
        *ret_kind = OP_RESIZE;
        *ret_handle = staged;
        handle_ref(staged);
        return 0;
    }
    /* The kernel looks a name up again only once: its second inode must not be stale. */
    if (fresh)
        return -ENOENT;
    file_heat(fs, file);
    return -ESTALE;
}

static int start_resize(struct handle *handle, enum op_kind kind, fuse_req_t request, uint64_t node,
                        uint64_t size_bytes, void (*again)(struct op *op)) {
    struct op *op = op_create(handle, kind, request);
    if (!op)
        return -ENOMEM;
    op->size_bytes = size_bytes;
    op->node = node;
    op->wants_attributes = true;
    op->again = again;
    op_submit(op);
    return 0;
}

static void answer_size(struct fs *fs, fuse_req_t request, uint64_t node, uint64_t size_bytes,
                        struct handle *handle, void (*again)(struct op *op)) {
    enum op_kind kind = OP_RESIZE;
    int result = 0;
    if (handle) {
        handle_ref(handle);
    } else {
        SCOPE_LOCK(&fs->lock);
        struct inode *inode = inode_find(fs, node);
        result = inode ? choose_handle(fs, inode, size_bytes, &handle, &kind) : -ESTALE;
    }
    if (result == -EALREADY)
        return ops_getattr(request, node, NULL);
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
    result = start_resize(handle, kind, request, node, size_bytes, again);
    if (result < 0 && kind == OP_TRUNCATE)
        handle_close(handle);
    if (kind == OP_RESIZE)
        handle_unref(handle);
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
}

static void resize_gone(struct op *op) {
    struct fs *fs = op->handle->fs;
    pthread_mutex_lock(&fs->lock);
    const struct inode *inode = inode_find(fs, op->node);
    bool fresh = inode && is_fresh(inode);
    pthread_mutex_unlock(&fs->lock);
    fuse_reply_err(op->request, fresh ? ENOENT : ESTALE);
}

/* The handle that was chosen by name has gone meanwhile. What it published is to be cut now; if it
 * is still there, it published nothing. */
static void resize_again(struct op *op) {
    answer_size(op->handle->fs, op->request, op->node, op->size_bytes, NULL, resize_gone);
}

static void truncate_now(struct opening *opening) {
    answer_size(opening->task.fs, opening->request, opening->inode->node, opening->size_bytes, NULL,
                resize_again);
    free(opening);
}

/* What is cut has to be what was closed before (P3): waits for its RELEASE like an OPEN. */
static bool is_held_back(struct fs *fs, fuse_req_t request, uint64_t node, uint64_t size_bytes) {
    const struct fuse_file_info no_info = {0};
    SCOPE_LOCK(&fs->lock);
    struct inode *inode = inode_find(fs, node);
    if (!inode || !is_fresh(inode))
        return false;
    struct opening *opening = open_create(fs, request, inode, &no_info, 0);
    if (!opening)
        return false;
    opening->go_on = truncate_now;
    opening->size_bytes = size_bytes;
    if (!open_decide(fs, opening))
        return true;
    free(opening);
    return false;
}

static void set_size(struct fs *fs, fuse_req_t request, uint64_t node, uint64_t size_bytes,
                     struct handle *handle) {
    if (handle || !is_held_back(fs, request, node, size_bytes))
        answer_size(fs, request, node, size_bytes, handle, handle ? NULL : resize_again);
}

static int set_all_but_size(struct fs *fs, fuse_req_t request, uint64_t node,
                            const struct stat *attributes, int to_set) {
    struct wanted wanted = wanted_of(fs, attributes, to_set);
    SCOPE_LOCK(&fs->lock);
    struct inode *inode = inode_find(fs, node);
    if (!inode)
        return -ESTALE;
    if (inode->kind == INODE_DIRECTORY)
        return set_directory(fs, request, inode->directory, &wanted.attributes);
    if (inode->kind != INODE_FILE)
        return set_own(to_set);
    if (wanted.attributes.set == 0 && !wanted.atime)
        return 0;
    return set_file(fs, request, inode, &wanted);
}

void ops_setattr(fuse_req_t request, fuse_ino_t node, struct stat *attributes, int to_set,
                 struct fuse_file_info *info) {
    struct fs *fs = fs_of(request);
    struct handle *handle = info ? ops_handle(info) : NULL;
    int result = set_all_but_size(fs, request, node, attributes, to_set);
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
    bool is_file = handle ? handle->kind == HANDLE_WRITE : true;
    if (!handle) {
        SCOPE_LOCK(&fs->lock);
        const struct inode *inode = inode_find(fs, node);
        is_file = inode && inode->kind == INODE_FILE;
    }
    if ((to_set & FUSE_SET_ATTR_SIZE) && is_file)
        return set_size(fs, request, node, (uint64_t)attributes->st_size, handle);
    return ops_getattr(request, node, info);
}
