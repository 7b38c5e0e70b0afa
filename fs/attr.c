/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling struct stat.
 */
#include "fs/attr.h"

#include "core/format.h"
#include "fs/control.h"
#include "fs/state.h"

#include <errno.h>
#include <string.h>

enum {
    PREFERRED_IO_BYTES = 1 << 20,
    DIRECTORY_BYTES = 4096,
    STAT_BLOCK_BYTES = 512,
};

/* Rank 0's root is directory 1, which is also the mount root's st_ino. */
static const uint64_t directory_number_bit = 1ull << 62;

static struct timespec timespec_of(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
}
static struct timespec timespec_of_signed(int64_t ns) {
    int64_t seconds = ns / 1000000000, rest = ns % 1000000000;
    if (rest < 0) {
        seconds--;
        rest += 1000000000;
    }
    return (struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)rest};
}

uint64_t attr_directory_number(uint64_t directory) {
    return directory | directory_number_bit;
}

uint64_t attr_own_number(const struct inode *inode) {
    return inode->node;
}

void attr_of_record(const struct blob_record *record, struct shown *ret_shown) {
    *ret_shown = (struct shown){
        .size_bytes = record->payload_bytes,
        .disk_bytes = record->slot_bytes ? record->slot_bytes : INLINE_COST_BYTES,
        .atime_ns = record->last_access_ns,
        .mtime_ns = record->mtime_ns,
        .ctime_ns = record->ctime_ns,
        .mode = record->mode,
        .uid = record->uid,
        .gid = record->gid,
    };
}

/* files */

static void fill_shown(const struct fs *fs, const struct file *file, const struct shown *shown,
                       struct stat *ret_stat) {
    *ret_stat = (struct stat){
        .st_ino = file->number,
        .st_mode = S_IFREG | shown->mode,
        .st_nlink = file->attached,
        .st_uid = fs->options.uid_given ? fs->options.uid : shown->uid,
        .st_gid = fs->options.gid_given ? fs->options.gid : shown->gid,
        .st_size = (off_t)shown->size_bytes,
        .st_blocks = (blkcnt_t)(shown->disk_bytes / STAT_BLOCK_BYTES),
        .st_blksize = PREFERRED_IO_BYTES,
        .st_atim = timespec_of(shown->atime_ns),
        .st_mtim = timespec_of_signed(shown->mtime_ns),
        .st_ctim = timespec_of_signed(shown->ctime_ns),
    };
}

static void fill_staged(const struct fs *fs, const struct handle *handle, struct stat *ret_stat) {
    const struct file *file = handle->file;
    struct blob_record record;
    struct shown shown = {.mode = file->mode, .uid = file->uid, .gid = file->gid};
    bool known = rank_get_blob(file->rank, &file->key, &record) == 0;
    if (known)
        attr_of_record(&record, &shown);
    uint64_t changed_ns = atomic_load(&handle->changed_ns);
    int64_t mtime_ns = atomic_load(&handle->mtime_ns);
    bool changed = !known || atomic_load(&handle->pending) != 0;
    shown.size_bytes = atomic_load(&handle->size_bytes);
    shown.disk_bytes = round_up_to_block(shown.size_bytes);
    if (changed)
        shown.mtime_ns = shown.ctime_ns = (int64_t)changed_ns;
    if (!known)
        shown.atime_ns = changed_ns;
    if (mtime_ns != 0)
        shown.mtime_ns = mtime_ns;
    fill_shown(fs, file, &shown, ret_stat);
}

static int get_file(struct fs *fs, struct inode *inode, struct stat *ret_stat) {
    struct file *file = inode->file;
    struct blob_record record;
    if (inode->writer) {
        fill_staged(fs, inode->writer, ret_stat);
        return 0;
    }
    if (inode->sequence != 0 && file_get_current(file, &record) &&
        record.sequence == inode->sequence)
        attr_of_record(&record, &inode->shown);
    else if (inode->opens == 0 && !(inode->private && inode->sequence != 0)) {
        if (!inode->private) {
            file_heat(fs, file);
            return -ESTALE;
        }
        if (!file->attached || !file->staged)
            return -ENOENT;
        fill_staged(fs, file->staged, ret_stat);
        return 0;
    }
    fill_shown(fs, file, &inode->shown, ret_stat);
    return 0;
}

/* the rest */

static void fill_own(const struct fs *fs, const struct inode *inode, uint32_t mode, unsigned links,
                     struct stat *ret_stat) {
    struct timespec created = timespec_of_signed(fs->created_ns);
    *ret_stat = (struct stat){
        .st_ino = attr_own_number(inode),
        .st_mode = mode & ~fs->options.umask_bits,
        .st_nlink = links,
        .st_uid = fs->options.uid,
        .st_gid = fs->options.gid,
        .st_blksize = DIRECTORY_BYTES,
        .st_atim = created,
        .st_mtim = created,
        .st_ctim = created,
    };
}

static void fill_directory(const struct fs *fs, const struct directory *directory,
                           struct stat *ret_stat) {
    *ret_stat = (struct stat){
        .st_ino = attr_directory_number(directory->id),
        .st_mode = S_IFDIR | directory->mode,
        .st_nlink = directory->removed ? 0 : 2,
        .st_uid = fs->options.uid_given ? fs->options.uid : directory->uid,
        .st_gid = fs->options.gid_given ? fs->options.gid : directory->gid,
        .st_size = DIRECTORY_BYTES,
        .st_blksize = DIRECTORY_BYTES,
        .st_atim = timespec_of_signed(directory->mtime_ns),
        .st_mtim = timespec_of_signed(directory->mtime_ns),
        .st_ctim = timespec_of_signed(directory->ctime_ns),
    };
}

int attr_get(struct fs *fs, struct inode *inode, struct stat *ret_stat) {
    switch (inode->kind) {
    case INODE_ROOT:
        fill_own(fs, inode, S_IFDIR | 0777, 2, ret_stat);
        return 0;
    case INODE_CONTROL_DIRECTORY:
        fill_own(fs, inode, S_IFDIR | 0555, 2, ret_stat);
        return 0;
    case INODE_CONTROL:
        fill_own(fs, inode, S_IFREG | control_mode(inode->control), 1, ret_stat);
        return 0;
    case INODE_DIRECTORY:
        fill_directory(fs, inode->directory, ret_stat);
        return 0;
    case INODE_FILE:
        return get_file(fs, inode, ret_stat);
    }
    return -EINVAL;
}

double attr_known_seconds(const struct inode *inode) {
    bool own = inode->kind == INODE_FILE && (inode->private || inode->writer);
    return own ? 0 : KNOWN_SECONDS;
}

int attr_make_entry(struct fs *fs, struct inode *inode, double known_seconds,
                    struct fuse_entry_param *ret_entry) {
    struct fuse_entry_param entry = {
        .ino = inode->node, .attr_timeout = known_seconds, .entry_timeout = known_seconds};
    int result = attr_get(fs, inode, &entry.attr);
    if (result < 0)
        return result;
    inode->lookups++;
    *ret_entry = entry;
    return 0;
}

void attr_make_entry_of_record(struct fs *fs, struct inode *inode, const struct blob_record *record,
                               double known_seconds, struct fuse_entry_param *ret_entry) {
    CHECK(inode->kind == INODE_FILE && inode->sequence == record->sequence);
    attr_of_record(record, &inode->shown);
    *ret_entry = (struct fuse_entry_param){
        .ino = inode->node, .attr_timeout = known_seconds, .entry_timeout = known_seconds};
    fill_shown(fs, inode->file, &inode->shown, &ret_entry->attr);
    inode->lookups++;
}
