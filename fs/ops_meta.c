/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LOOKUP, FORGET, GETATTR, STATFS. Each LOOKUP of a hot name gets an inode of its own (rule P7).
 */
#include "fs/attr.h"
#include "fs/control.h"
#include "fs/name.h"
#include "fs/ops.h"
#include "fs/state.h"

#include <errno.h>
#include <string.h>

static const char control_directory_name[] = ".cpl3";

/* for all */

int ops_check_name(struct fs *fs, const char *name) {
    if (strlen(name) <= NAME_BYTES_MAX)
        return 0;
    if (!atomic_flag_test_and_set(&fs->long_name_told))
        log_notice("a name of %zu bytes was refused (ENAMETOOLONG): at most %d, and a client's "
                   "temporary suffix counts; told once",
                   strlen(name), NAME_BYTES_MAX);
    return -ENAMETOOLONG;
}

int ops_place(struct fs *fs, uint64_t parent, const char *name, struct rank **ret_rank,
              struct place *ret_place) {
    const struct inode *inode = inode_find(fs, parent);
    if (!inode)
        return -ESTALE;
    if (inode->kind == INODE_ROOT || inode->kind == INODE_CONTROL_DIRECTORY)
        return -EPERM;
    if (inode->kind != INODE_DIRECTORY)
        return -ENOTDIR;
    int result = ops_check_name(fs, name);
    if (result < 0)
        return result;
    if (inode->directory->removed)
        return -ENOENT;
    *ret_rank = inode->directory->rank;
    place_set(ret_place, inode->directory->id, name);
    return 0;
}

uint32_t ops_uid(struct fs *fs, fuse_req_t request) {
    return fs->options.uid_given ? fs->options.uid : fuse_req_ctx(request)->uid;
}

uint32_t ops_gid(struct fs *fs, fuse_req_t request) {
    return fs->options.gid_given ? fs->options.gid : fuse_req_ctx(request)->gid;
}

static struct inode *choose_shared(struct fs *fs, struct file *file,
                                   const struct blob_record *record) {
    if (file->shared && file->shared->found && file->shared->sequence == record->sequence)
        return file->shared;
    struct inode *inode = inode_create_file(fs, file);
    if (!inode)
        return NULL;
    inode_set_version(inode, record);
    inode->found = true;
    file->shared = inode;
    return inode;
}

struct inode *ops_choose_inode(struct fs *fs, struct file *file, const struct found *found,
                               double *ret_known_seconds) {
    *ret_known_seconds = 0;
    if (file_place_is_hot(fs, file->place) || (found->published && file->staged))
        return inode_create_private(fs, file);
    if (!found->published)
        return file->staged->inode;
    *ret_known_seconds = KNOWN_SECONDS;
    return choose_shared(fs, file, &found->record);
}

/* LOOKUP */

static struct inode *find_in_root(struct fs *fs, const char *name) {
    uint16_t number;
    if (strcmp(name, control_directory_name) == 0)
        return inode_find(fs, FUSE_ROOT_ID + 1);
    if (!name_parse_rank(name, strlen(name), &number))
        return NULL;
    const struct directory *root = inode_find_directory(fs, directory_root(number));
    return root ? root->inode : NULL;
}

static struct inode *find_control(struct fs *fs, const char *name) {
    for (unsigned i = 0; i < control_count(); i++) {
        if (strcmp(name, control_name(i)) == 0)
            return inode_find(fs, FUSE_ROOT_ID + 2 + i);
    }
    return NULL;
}

static int find_file(struct fs *fs, struct rank *rank, const struct place *place,
                     const struct found *found, struct fuse_entry_param *ret_entry) {
    double known_seconds;
    struct file *file = file_of_found(fs, rank, place, found);
    if (!file)
        return -ENOMEM;
    file_ref(file);
    struct inode *inode = ops_choose_inode(fs, file, found, &known_seconds);
    int result = inode ? attr_make_entry(fs, inode, known_seconds, ret_entry) : -ENOMEM;
    if (result == 0)
        inode->told_bytes = (uint64_t)ret_entry->attr.st_size;
    if (inode && result < 0 && inode->lookups == 0 && inode->opens == 0)
        inode_discard(fs, inode);
    file_unref(fs, file);
    return result;
}

static int find_in_directory(struct fs *fs, const struct directory *directory, const char *name,
                             struct fuse_entry_param *ret_entry) {
    struct place place;
    struct found found;
    struct rank *rank = directory->rank;
    if (directory->removed)
        return -ENOENT;
    place_set(&place, directory->id, name);
    file_find(fs, rank, &place, &found);
    if (found.kind == FOUND_FILE)
        return find_file(fs, rank, &place, &found, ret_entry);
    if (found.kind == FOUND_NOTHING) {
        stats_add(rank_get_stats(rank), misses, 1);
        return -ENOENT;
    }
    struct inode *inode = inode_get_directory(fs, rank, directory->id, name, &found.entry);
    return inode ? attr_make_entry(fs, inode, KNOWN_SECONDS, ret_entry) : -ENOMEM;
}

static int find(struct fs *fs, uint64_t parent, const char *name,
                struct fuse_entry_param *ret_entry) {
    const struct inode *inode = inode_find(fs, parent);
    if (!inode)
        return -ESTALE;
    if (inode->kind == INODE_DIRECTORY)
        return find_in_directory(fs, inode->directory, name, ret_entry);
    if (inode->kind != INODE_ROOT && inode->kind != INODE_CONTROL_DIRECTORY)
        return -ENOTDIR;
    struct inode *found =
        inode->kind == INODE_ROOT ? find_in_root(fs, name) : find_control(fs, name);
    return found ? attr_make_entry(fs, found, KNOWN_SECONDS, ret_entry) : -ENOENT;
}

void ops_lookup(fuse_req_t request, fuse_ino_t parent, const char *name) {
    struct fs *fs = fs_of(request);
    struct fuse_entry_param entry;
    int result = ops_check_name(fs, name);
    if (result == 0) {
        SCOPE_LOCK(&fs->lock);
        result = find(fs, parent, name, &entry);
    }
    if (result == -ENOENT) {
        /* Nothing is published or staged: known to be absent until something is made here. */
        entry = (struct fuse_entry_param){.entry_timeout = KNOWN_SECONDS};
        return (void)fuse_reply_entry(request, &entry);
    }
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
    if (fuse_reply_entry(request, &entry) < 0) {
        SCOPE_LOCK(&fs->lock);
        struct inode *inode = inode_find(fs, entry.ino);
        if (inode)
            inode_forget(fs, inode, 1);
    }
}

/* FORGET, GETATTR */

void ops_forget_multi(fuse_req_t request, size_t count, struct fuse_forget_data *forgets) {
    struct fs *fs = fs_of(request);
    for (size_t i = 0; i < count; i++) {
        SCOPE_LOCK(&fs->lock);
        struct inode *inode = inode_find(fs, forgets[i].ino);
        if (inode)
            inode_forget(fs, inode, forgets[i].nlookup);
    }
    return (void)fuse_reply_none(request);
}

void ops_forget(fuse_req_t request, fuse_ino_t node, uint64_t lookups) {
    struct fuse_forget_data forget = {.ino = node, .nlookup = lookups};
    ops_forget_multi(request, 1, &forget);
}

void ops_getattr(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    (void)info; /* the kernel seldom says through which handle: the inode knows (P7) */
    struct fs *fs = fs_of(request);
    struct stat stat;
    double known_seconds = 0;
    int result = -ESTALE;
    pthread_mutex_lock(&fs->lock);
    struct inode *inode = inode_find(fs, node);
    if (inode) {
        result = attr_get(fs, inode, &stat);
        known_seconds = attr_known_seconds(inode);
    }
    pthread_mutex_unlock(&fs->lock);
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
    return (void)fuse_reply_attr(request, &stat, known_seconds);
}

/* STATFS */

/* Clients with cleaners of their own delete by the share in use; to them a store that is full by
 * design has to look empty (df=reclaimable). */
static void add_usage(const struct fs *fs, struct rank *rank, struct statvfs *total) {
    struct rank_usage usage;
    rank_get_usage(rank, &usage);
    uint64_t used_bytes = usage.taken_bytes;
    if (fs->options.df_reclaimable)
        used_bytes -= usage.evictable_bytes;
    uint64_t free_bytes = usage.size_bytes > used_bytes ? usage.size_bytes - used_bytes : 0;
    uint64_t files = usage.live_slots + usage.directories + usage.free_slots;
    uint64_t free_files = free_bytes / usage.common_slot_bytes;
    total->f_blocks += usage.size_bytes / BLOCK_BYTES;
    total->f_bfree += free_bytes / BLOCK_BYTES;
    total->f_files += files;
    total->f_ffree += free_files < files ? free_files : files;
}

void ops_statfs(fuse_req_t request, fuse_ino_t node) {
    struct fs *fs = fs_of(request);
    struct rank *only = NULL;
    /* Clients compute the alignment of O_DIRECT from f_bsize: never more than 4096. */
    struct statvfs total = {
        .f_bsize = BLOCK_BYTES, .f_frsize = BLOCK_BYTES, .f_namemax = NAME_BYTES_MAX};
    pthread_mutex_lock(&fs->lock);
    const struct inode *inode = inode_find(fs, node);
    if (inode && inode->kind == INODE_DIRECTORY)
        only = inode->directory->rank;
    if (inode && inode->kind == INODE_FILE)
        only = inode->file->rank;
    pthread_mutex_unlock(&fs->lock);
    for (unsigned n = fs->config->rank_first; n <= fs->config->rank_last; n++) {
        struct rank *rank = store_rank(fs->store, (uint16_t)n);
        if (!only || rank == only)
            add_usage(fs, rank, &total);
    }
    total.f_bavail = total.f_bfree;
    total.f_favail = total.f_ffree;
    if (total.f_files == 0)
        total.f_files = 1;
    return (void)fuse_reply_statfs(request, &total);
}
