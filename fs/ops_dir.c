/* SPDX-License-Identifier: Apache-2.0 */
/*
 * READDIR and READDIRPLUS, streamed from core in cookie order: `.` and `..` have the offsets 1 and
 * 2, what core lists has offsets of 2^58 and more. Staged files are left out (rule P5).
 */
#include "fs/attr.h"
#include "fs/control.h"
#include "fs/name.h"
#include "fs/op.h"
#include "fs/ops.h"
#include "fs/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    OFFSET_SELF = 1,
    OFFSET_PARENT = 2,
    BATCH_ENTRIES = 64,
};

/* One answer being filled. */
struct listing {
    struct fs *fs;
    fuse_req_t request;
    bool plus;
    char *bytes;
    size_t room, used;
};

static bool fits(const struct listing *listing, const char *name) {
    size_t need = listing->plus ? fuse_add_direntry_plus(listing->request, NULL, 0, name, NULL, 0)
                                : fuse_add_direntry(listing->request, NULL, 0, name, NULL, 0);
    return listing->used + need <= listing->room;
}

/* It fits. An entry with node 0 shows only number and type. */
static void add(struct listing *listing, const char *name, const struct fuse_entry_param *entry,
                off_t offset) {
    char *to = listing->bytes + listing->used;
    size_t room = listing->room - listing->used;
    listing->used +=
        listing->plus ? fuse_add_direntry_plus(listing->request, to, room, name, entry, offset)
                      : fuse_add_direntry(listing->request, to, room, name, &entry->attr, offset);
}

static bool add_bare(struct listing *listing, const char *name, uint64_t number, mode_t type,
                     off_t offset) {
    struct fuse_entry_param entry = {.attr = {.st_ino = number, .st_mode = type}};
    if (!fits(listing, name))
        return false;
    add(listing, name, &entry, offset);
    return true;
}

static bool add_dots(struct listing *listing, uint64_t number, uint64_t parent_number,
                     off_t offset) {
    if (offset < OFFSET_SELF && !add_bare(listing, ".", number, S_IFDIR, OFFSET_SELF))
        return false;
    return offset >= OFFSET_PARENT ||
           add_bare(listing, "..", parent_number, S_IFDIR, OFFSET_PARENT);
}

/* the mount's own directories */

/* An inode that is always there, at a small offset. False: no room. */
static bool add_fixed(struct listing *listing, const char *name, struct inode *inode,
                      off_t offset) {
    struct fuse_entry_param entry;
    if (!fits(listing, name))
        return false;
    if (listing->plus) {
        if (attr_make_entry(listing->fs, inode, KNOWN_SECONDS, &entry) < 0)
            return true;
    } else {
        entry = (struct fuse_entry_param){0};
        if (attr_get(listing->fs, inode, &entry.attr) < 0)
            return true;
    }
    add(listing, name, &entry, offset);
    return true;
}

static void list_root(struct listing *listing, const struct inode *root, off_t offset) {
    struct fs *fs = listing->fs;
    char name[NAME_BYTES_MAX + 1];
    if (!add_dots(listing, attr_own_number(root), attr_own_number(root), offset))
        return;
    off_t place = OFFSET_PARENT + 1;
    if (offset < place && !add_fixed(listing, ".cpl3", inode_find(fs, FUSE_ROOT_ID + 1), place))
        return;
    for (unsigned n = fs->config->rank_first; n <= fs->config->rank_last; n++) {
        struct directory *rank = inode_find_directory(fs, directory_root((uint16_t)n));
        name_format_rank((uint16_t)n, name);
        if (offset < ++place && !add_fixed(listing, name, rank->inode, place))
            return;
    }
}

static void list_control(struct listing *listing, const struct inode *directory, off_t offset) {
    if (!add_dots(listing, attr_own_number(directory), FUSE_ROOT_ID, offset))
        return;
    for (unsigned i = 0; i < control_count(); i++) {
        off_t place = OFFSET_PARENT + 1 + i;
        struct inode *inode = inode_find(listing->fs, FUSE_ROOT_ID + 2 + i);
        if (offset < place && !add_fixed(listing, control_name(i), inode, place))
            return;
    }
}

/* directories of a rank */

static const char *name_of(const struct fs *fs, const struct list_entry *listed,
                           char room[NAME_BYTES_MAX + 1]) {
    if (listed->name_bytes > 0)
        return listed->name;
    return name_format_hash(fs->config, &listed->key, room) > 0 ? room : NULL;
}

/*
 * A hot name, and what is being written, is listed without an inode: its LOOKUP decides. What was
 * listed is current: since fs->lock was taken only core's removals can have come, and those are
 * told to the kernel after this.
 */
static void look_up_file(struct listing *listing, struct rank *rank, const struct place *place,
                         const struct list_entry *listed, struct fuse_entry_param *entry) {
    struct fs *fs = listing->fs;
    double known_seconds;
    struct found found = {.kind = FOUND_FILE,
                          .file = file_find_attached(fs, place),
                          .published = true,
                          .key = listed->key,
                          .record = listed->record};
    if (file_place_is_hot(fs, place) ||
        (found.file &&
         (found.file->staged || !blob_key_equal(file_served_key(found.file), &listed->key))))
        return;
    struct file *file = file_of_found(fs, rank, place, &found);
    if (!file)
        return;
    file_ref(file);
    struct inode *inode = ops_choose_inode(fs, file, &found, &known_seconds);
    if (inode)
        attr_make_entry_of_record(fs, inode, &listed->record, known_seconds, entry);
    file_unref(fs, file);
}

static void look_up(struct listing *listing, const struct directory *directory, const char *name,
                    const struct list_entry *listed, struct fuse_entry_param *entry) {
    struct fs *fs = listing->fs;
    struct place place;
    if (listed->type == NAME_BLOB) {
        place_set(&place, directory->id, name);
        return look_up_file(listing, directory->rank, &place, listed, entry);
    }
    struct inode *inode =
        inode_get_directory(fs, directory->rank, directory->id, name, &listed->directory);
    if (inode)
        attr_make_entry(fs, inode, KNOWN_SECONDS, entry);
}

/* False: no room. */
static bool add_listed(struct listing *listing, const struct directory *directory,
                       const struct list_entry *listed) {
    char room[NAME_BYTES_MAX + 1];
    const char *name = name_of(listing->fs, listed, room);
    bool is_directory = listed->type == NAME_DIRECTORY;
    uint64_t number = is_directory ? attr_directory_number(listed->directory.directory)
                                   : name_file_number(&listed->key);
    struct fuse_entry_param entry = {
        .attr = {.st_ino = number, .st_mode = is_directory ? S_IFDIR : S_IFREG}};
    if (!name)
        return true;
    if (!fits(listing, name))
        return false;
    if (listing->plus)
        look_up(listing, directory, name, listed, &entry);
    add(listing, name, &entry, (off_t)listed->cookie);
    return true;
}

/*
 * Under fs->lock from rank_list to the entries: an eviction after the listing is told to the kernel
 * after this answer, so no entry outlives its file in the kernel's cache. False: that was all.
 */
static bool list_batch(struct listing *listing, uint64_t node, struct list_entry *entries,
                       uint64_t *cookie) {
    SCOPE_LOCK(&listing->fs->lock);
    const struct inode *inode = inode_find(listing->fs, node);
    size_t count;
    if (!inode || inode->kind != INODE_DIRECTORY || inode->directory->removed)
        return false;
    const struct directory *directory = inode->directory;
    if (rank_list(directory->rank, directory->id, *cookie, entries, BATCH_ENTRIES, &count) < 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!add_listed(listing, directory, &entries[i]))
            return false;
        *cookie = entries[i].cookie;
    }
    return count > 0;
}

static void list_directory(struct listing *listing, uint64_t node, off_t offset) {
    struct list_entry *entries = malloc(BATCH_ENTRIES * sizeof *entries);
    uint64_t cookie = offset > OFFSET_PARENT ? (uint64_t)offset : 0;
    if (!entries)
        return;
    while (list_batch(listing, node, entries, &cookie))
        ;
    free(entries);
}

/* 0, -ENOTDIR. Whether it goes on in a rank's directory. */
static int start(struct listing *listing, uint64_t node, off_t offset, bool *ret_in_rank) {
    SCOPE_LOCK(&listing->fs->lock);
    const struct inode *inode = inode_find(listing->fs, node);
    *ret_in_rank = false;
    if (inode && inode->kind == INODE_ROOT)
        list_root(listing, inode, offset);
    else if (inode && inode->kind == INODE_CONTROL_DIRECTORY)
        list_control(listing, inode, offset);
    else if (inode && inode->kind == INODE_DIRECTORY)
        *ret_in_rank =
            add_dots(listing, attr_directory_number(inode->directory->id),
                     inode->directory->parent ? attr_directory_number(inode->directory->parent)
                                              : FUSE_ROOT_ID,
                     offset);
    else
        return -ENOTDIR;
    return 0;
}

static void list(fuse_req_t request, uint64_t node, size_t bytes, off_t offset, bool plus) {
    AUTO_FREE char *memory = malloc(bytes);
    struct listing listing = {
        .fs = fs_of(request), .request = request, .plus = plus, .bytes = memory, .room = bytes};
    bool in_rank;
    if (!memory)
        return (void)fuse_reply_err(request, ENOMEM);
    int result = start(&listing, node, offset, &in_rank);
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
    if (in_rank)
        list_directory(&listing, node, offset);
    return (void)fuse_reply_buf(request, listing.bytes, listing.used);
}

void ops_readdir(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset,
                 struct fuse_file_info *info) {
    (void)info;
    list(request, node, bytes, offset, false);
}

void ops_readdirplus(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset,
                     struct fuse_file_info *info) {
    (void)info;
    list(request, node, bytes, offset, true);
}

void ops_fsyncdir(fuse_req_t request, fuse_ino_t node, int data_only, struct fuse_file_info *info) {
    (void)data_only, (void)info;
    struct fs *fs = fs_of(request);
    struct rank *rank = NULL;
    pthread_mutex_lock(&fs->lock);
    const struct inode *inode = inode_find(fs, node);
    if (inode && inode->kind == INODE_DIRECTORY)
        rank = inode->directory->rank;
    pthread_mutex_unlock(&fs->lock);
    if (!rank)
        return (void)fuse_reply_err(request, 0);
    op_reply_when_durable(fs, rank, NULL, request);
}
