/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Renaming moves the file: what is published of it and all its staged handles (rule P9). What the
 * target name held goes, except that its old version is served while the moved file has none.
 */
#include "fs/rename.h"

#include "fs/name.h"
#include "fs/ops.h"
#include "fs/state.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>

int rename_find_ends(struct fs *fs, const struct rename_request *request,
                     struct rename_ends *ret_ends) {
    struct rank *to_rank;
    int result =
        ops_place(fs, request->from_parent, request->from_name, &ret_ends->rank, &ret_ends->from);
    if (result == 0)
        result = ops_place(fs, request->to_parent, request->to_name, &to_rank, &ret_ends->to);
    if (result < 0)
        return result;
    if (to_rank != ret_ends->rank)
        return -EXDEV;
    file_find(fs, to_rank, &ret_ends->from, &ret_ends->source);
    file_find(fs, to_rank, &ret_ends->to, &ret_ends->target);
    enum found_kind source = ret_ends->source.kind, target = ret_ends->target.kind;
    if (source == FOUND_NOTHING)
        return -ENOENT;
    if (request->from_parent == request->to_parent &&
        strcmp(request->from_name, request->to_name) == 0)
        return -EALREADY;
    if ((request->flags & RENAME_NOREPLACE) && target != FOUND_NOTHING)
        return -EEXIST;
    if (source == FOUND_DIRECTORY && target == FOUND_FILE)
        return -ENOTDIR;
    return source == FOUND_FILE && target == FOUND_DIRECTORY ? -EISDIR : 0;
}

void rename_target_key(struct fs *fs, const struct rename_ends *ends, const struct blob_key *old,
                       struct blob_key *ret_key) {
    bool stands_in_names = ends->target.published && ends->target.key.named;
    if (!stands_in_names && place_may_be_hash(ends->rank, &ends->to) &&
        name_parse_hash(fs->config, rank_number(ends->rank), ends->to.name, strlen(ends->to.name),
                        ret_key))
        return;
    if (old->named)
        *ret_key = *old;
    else
        rank_new_blob_id(ends->rank, ret_key);
}

static int rename_in_core(const struct rename_ends *ends) {
    struct rank_rename rename = {
        .from_directory = ends->from.directory,
        .to_directory = ends->to.directory,
        .from_name = ends->from.name,
        .to_name = ends->to.name,
        .from_bytes = strlen(ends->from.name),
        .to_bytes = strlen(ends->to.name),
        .remove_hash = ends->target.published && !ends->target.key.named,
    };
    if (rename.remove_hash)
        rename.hash = ends->target.key;
    return rank_rename_name(ends->rank, &rename);
}

static int rename_directory(struct fs *fs, const struct rename_ends *ends) {
    uint64_t id = ends->source.entry.directory;
    if (inode_is_below(fs, ends->to.directory, id))
        return -EINVAL;
    bool replaces = ends->target.kind == FOUND_DIRECTORY;
    if (replaces && file_any_staged_in(fs, ends->target.entry.directory))
        return -ENOTEMPTY;
    int result = rename_in_core(ends);
    if (result < 0)
        return result;
    if (replaces)
        inode_remove_directory(fs, ends->target.entry.directory);
    file_vacate(fs, &ends->to);
    struct directory *directory = inode_find_directory(fs, id);
    return directory ? inode_move_directory(directory, ends->to.directory, ends->to.name) : 0;
}

/* Its name in core moves, and the file object with it, if there is one. */
static int rename_published(struct fs *fs, const struct rename_ends *ends) {
    struct file *file = ends->source.file;
    int result = rename_in_core(ends);
    if (result < 0)
        return result;
    if (!file) {
        file_vacate(fs, &ends->to);
        return 0;
    }
    result = file_move(fs, file, &ends->to);
    if (result == 0)
        file_set_key(file, &ends->source.key);
    return result;
}

static int rename_staged(struct fs *fs, const struct rename_ends *ends) {
    struct file *file = ends->source.file;
    struct blob_key key;
    rename_target_key(fs, ends, &file->key, &key);
    int result = file_move(fs, file, &ends->to);
    if (result < 0)
        return result;
    file_set_key(file, &key);
    if (ends->target.published)
        file_set_served(file, &ends->target.key);
    return 0;
}

int rename_now(struct fs *fs, const struct rename_request *request) {
    struct rename_ends ends;
    int result = rename_find_ends(fs, request, &ends);
    if (result < 0)
        return result == -EALREADY ? 0 : result;
    if (ends.source.kind == FOUND_DIRECTORY)
        result = rename_directory(fs, &ends);
    else if (!ends.source.published)
        result = rename_staged(fs, &ends);
    else if (!ends.source.key.named)
        result = -EAGAIN;
    else
        result = rename_published(fs, &ends);
    if (result < 0)
        return result;
    inode_touch_directory(fs, ends.from.directory);
    inode_touch_directory(fs, ends.to.directory);
    return 0;
}

void ops_rename(fuse_req_t request, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                const char *new_name, unsigned flags) {
    struct fs *fs = fs_of(request);
    struct rename_request asked = {.from_parent = parent,
                                   .to_parent = new_parent,
                                   .from_name = name,
                                   .to_name = new_name,
                                   .flags = flags};
    if (flags & ~(unsigned)RENAME_NOREPLACE)
        return (void)fuse_reply_err(request, EINVAL);
    pthread_mutex_lock(&fs->lock);
    int result = rename_now(fs, &asked);
    pthread_mutex_unlock(&fs->lock);
    if (result == -EAGAIN)
        return rename_start_copy(fs, request, &asked);
    return (void)fuse_reply_err(request, -result);
}
