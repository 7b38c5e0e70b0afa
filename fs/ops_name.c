/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making and taking away names: mkdir, rmdir, unlink; symlinks and hard links are refused.
 */
#include "fs/attr.h"
#include "fs/ops.h"
#include "fs/state.h"

#include <errno.h>
#include <string.h>

static int make_directory(struct fs *fs, fuse_req_t request, uint64_t parent, const char *name,
                          mode_t mode, struct fuse_entry_param *ret_entry) {
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
    int64_t now_ns = (int64_t)clock_real_ns();
    struct name_entry entry = {
        .type = NAME_DIRECTORY,
        .mode = fs_mode(fs, mode),
        .uid = ops_uid(fs, request),
        .gid = ops_gid(fs, request),
        .mtime_ns = now_ns,
        .ctime_ns = now_ns,
    };
    result =
        rank_make_directory(rank, place.directory, name, strlen(name), &entry, &entry.directory);
    if (result < 0)
        return result;
    file_vacate(fs, &place);
    inode_touch_directory(fs, place.directory);
    struct inode *inode = inode_get_directory(fs, rank, place.directory, name, &entry);
    return inode ? attr_make_entry(fs, inode, KNOWN_SECONDS, ret_entry) : -ENOMEM;
}

void ops_mkdir(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode) {
    struct fs *fs = fs_of(request);
    struct fuse_entry_param entry;
    int result = make_directory(fs, request, parent, name, mode, &entry);
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
    if (fuse_reply_entry(request, &entry) < 0) {
        SCOPE_LOCK(&fs->lock);
        inode_forget(fs, inode_find(fs, entry.ino), 1);
    }
}

static int remove_directory(struct fs *fs, uint64_t parent, const char *name) {
    struct rank *rank;
    struct place place;
    struct found found;
    SCOPE_LOCK(&fs->lock);
    int result = ops_place(fs, parent, name, &rank, &place);
    if (result < 0)
        return result;
    file_find(fs, rank, &place, &found);
    if (found.kind != FOUND_DIRECTORY)
        return found.kind == FOUND_FILE ? -ENOTDIR : -ENOENT;
    if (file_any_staged_in(fs, found.entry.directory))
        return -ENOTEMPTY;
    result = rank_remove_directory(rank, place.directory, name, strlen(name));
    if (result < 0)
        return result;
    inode_remove_directory(fs, found.entry.directory);
    inode_touch_directory(fs, place.directory);
    return 0;
}

void ops_rmdir(fuse_req_t request, fuse_ino_t parent, const char *name) {
    return (void)fuse_reply_err(request, -remove_directory(fs_of(request), parent, name));
}

static int unlink_published(struct rank *rank, const struct place *place,
                            const struct found *found) {
    if (!found->key.named)
        return rank_unlink_blob(rank, &found->key);
    return rank_unlink_name(rank, place->directory, place->name, strlen(place->name));
}

static int unlink_file(struct fs *fs, uint64_t parent, const char *name) {
    struct rank *rank;
    struct place place;
    struct found found;
    SCOPE_LOCK(&fs->lock);
    int result = ops_place(fs, parent, name, &rank, &place);
    if (result < 0)
        return result;
    file_find(fs, rank, &place, &found);
    if (found.kind != FOUND_FILE)
        return found.kind == FOUND_DIRECTORY ? -EISDIR : -ENOENT;
    result = found.published ? unlink_published(rank, &place, &found) : 0;
    /* Evicted in this moment: gone all the same. */
    if (result < 0 && result != -ENOENT)
        return result;
    file_vacate(fs, &place);
    inode_touch_directory(fs, place.directory);
    return 0;
}

void ops_unlink(fuse_req_t request, fuse_ino_t parent, const char *name) {
    return (void)fuse_reply_err(request, -unlink_file(fs_of(request), parent, name));
}

void ops_symlink(fuse_req_t request, const char *target, fuse_ino_t parent, const char *name) {
    (void)target, (void)parent, (void)name;
    return (void)fuse_reply_err(request, EPERM);
}

void ops_link(fuse_req_t request, fuse_ino_t node, fuse_ino_t parent, const char *name) {
    (void)node, (void)parent, (void)name;
    return (void)fuse_reply_err(request, EPERM);
}
