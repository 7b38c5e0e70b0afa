/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories as inodes: one for each that the kernel knows, found by core's directory id, so that
 * its files keep their place when it is renamed. The directories of the ranks are always known.
 */
#include "fs/inode.h"
#include "fs/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct directory *inode_find_directory(struct fs *fs, uint64_t id) {
    struct directory *directory;
    HASH_FIND(by_id, fs->directories, &id, sizeof id, directory);
    return directory;
}

static struct inode *create(struct fs *fs, struct rank *rank, uint64_t id) {
    struct directory *directory = calloc(1, sizeof *directory);
    struct inode *inode = directory ? inode_create(fs, INODE_DIRECTORY) : NULL;
    if (!inode) {
        free(directory);
        return NULL;
    }
    directory->inode = inode;
    directory->rank = rank;
    directory->id = id;
    inode->directory = directory;
    HASH_ADD(by_id, fs->directories, id, sizeof directory->id, directory);
    return inode;
}

struct inode *inode_get_directory(struct fs *fs, struct rank *rank, uint64_t parent,
                                  const char *name, const struct name_entry *entry) {
    struct directory *directory = inode_find_directory(fs, entry->directory);
    if (directory)
        return directory->inode;
    char *copy = strdup(name);
    struct inode *inode = copy ? create(fs, rank, entry->directory) : NULL;
    if (!inode) {
        free(copy);
        return NULL;
    }
    directory = inode->directory;
    directory->parent = parent;
    directory->name = copy;
    directory->mode = entry->mode;
    directory->uid = entry->uid;
    directory->gid = entry->gid;
    directory->mtime_ns = entry->mtime_ns;
    directory->ctime_ns = entry->ctime_ns;
    return inode;
}

int inode_create_rank_root(struct fs *fs, struct rank *rank) {
    struct inode *inode = create(fs, rank, directory_root(rank_number(rank)));
    if (!inode)
        return -ENOMEM;
    struct directory *directory = inode->directory;
    directory->mode = fs_mode(fs, 0777);
    directory->uid = fs->options.uid;
    directory->gid = fs->options.gid;
    directory->mtime_ns = directory->ctime_ns = (int64_t)clock_real_ns();
    return 0;
}

void inode_touch_directory(struct fs *fs, uint64_t id) {
    struct directory *directory = inode_find_directory(fs, id);
    if (directory)
        directory->mtime_ns = directory->ctime_ns = (int64_t)clock_real_ns();
}

int inode_move_directory(struct directory *directory, uint64_t parent, const char *name) {
    char *copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    free(directory->name);
    directory->name = copy;
    directory->parent = parent;
    return 0;
}

bool inode_is_below(struct fs *fs, uint64_t id, uint64_t above) {
    for (struct directory *d = inode_find_directory(fs, id); d;
         d = inode_find_directory(fs, d->parent)) {
        if (d->id == above)
            return true;
    }
    return false;
}

void inode_remove_directory(struct fs *fs, uint64_t id) {
    struct directory *directory = inode_find_directory(fs, id);
    if (!directory)
        return;
    HASH_DELETE(by_id, fs->directories, directory);
    directory->removed = true;
}
