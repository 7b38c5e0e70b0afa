/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes to blobs and names other than publications and renames. Each reads the current state and
 * submits one change, all under the change lock, so that changes of a rank have one order; lookups
 * do not take that lock.
 */
#include <errno.h>
#include <string.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/rank.h"
#include "core/writer.h"

void rank_submit_change(struct rank *rank, struct change *change) {
    change->id = ++rank->next_change;
    rank->last_asked = change->id;
    change_apply_to_overlay(change, rank->overlay);
    writer_enqueue(rank->writer, change);
}

/* The record without the reference that rank_find_blob may add. Under change_lock. */
static int current_record(struct rank *rank, const struct blob_key *key,
                          struct blob_record *ret_record) {
    struct version *version;
    int result = rank_find_blob(rank, key, ret_record, &version);
    if (result == 0)
        version_unref(version);
    return result;
}

/* Callers may hold locks of fs/: it is told by the write thread (writer_admit). */
bool rank_drop_blob(struct rank *rank, const struct blob_key *key, uint64_t sequence) {
    SCOPE_LOCK(&rank->change_lock);
    struct blob_record record;
    if (current_record(rank, key, &record) < 0 || record.sequence != sequence)
        return false;
    struct change *change = change_create();
    if (!change)
        return false;
    change_delete_blob(change, key, sequence);
    change->drops = true;
    change->steps[0].record = record;
    if (key->named)
        change_delete_name(change, record.directory, record.name, record.name_bytes, key);
    rank_submit_change(rank, change);
    return true;
}

static bool is_read_only(const struct rank *rank) {
    return rank->store->config.read_only;
}

int rank_unlink_blob(struct rank *rank, const struct blob_key *key) {
    if (is_read_only(rank))
        return -EROFS;
    SCOPE_LOCK(&rank->change_lock);
    struct blob_record record;
    int result = current_record(rank, key, &record);
    if (result < 0)
        return result;
    struct change *change = change_create();
    if (!change)
        return -ENOMEM;
    change_delete_blob(change, key, record.sequence);
    rank_submit_change(rank, change);
    stats_add(&rank->stats, unlinks, 1);
    return 0;
}

int rank_unlink_name(struct rank *rank, uint64_t directory, const char *name, size_t name_bytes) {
    if (is_read_only(rank))
        return -EROFS;
    SCOPE_LOCK(&rank->change_lock);
    struct name_entry entry;
    int result = rank_get_name(rank, directory, name, name_bytes, &entry);
    if (result < 0)
        return result;
    if (entry.type == NAME_DIRECTORY)
        return -EISDIR;
    struct blob_record record;
    bool published = current_record(rank, &entry.blob, &record) == 0;
    struct change *change = change_create();
    if (!change)
        return -ENOMEM;
    change_delete_name(change, directory, name, name_bytes, &entry.blob);
    if (published) {
        change_delete_blob(change, &entry.blob, record.sequence);
        stats_add(&rank->stats, unlinks, 1);
    }
    rank_submit_change(rank, change);
    return published ? 0 : -ENOENT;
}

int rank_make_directory(struct rank *rank, uint64_t directory, const char *name, size_t name_bytes,
                        const struct name_entry *entry, uint64_t *ret_directory) {
    if (is_read_only(rank))
        return -EROFS;
    SCOPE_LOCK(&rank->change_lock);
    struct name_entry made = *entry;
    if (rank_get_name(rank, directory, name, name_bytes, &made) == 0) {
        struct blob_record record;
        if (made.type == NAME_DIRECTORY || current_record(rank, &made.blob, &record) == 0)
            return -EEXIST;
        made = *entry;
    }
    if (atomic_load(&rank->directories) >= DIRECTORIES_MAX)
        return -ENOSPC;
    struct change *change = change_create();
    if (!change)
        return -ENOMEM;
    made.type = NAME_DIRECTORY;
    made.directory = (uint64_t)rank->number << DIRECTORY_RANK_SHIFT | rank->next_directory++;
    change_put_name(change, directory, name, name_bytes, &made);
    rank_submit_change(rank, change);
    atomic_fetch_add(&rank->directories, 1);
    *ret_directory = made.directory;
    return 0;
}

static bool directory_is_empty(struct rank *rank, uint64_t directory) {
    struct list_entry entry;
    size_t count = 0;
    return rank_list(rank, directory, 0, &entry, 1, &count) == 0 && count == 0;
}

int rank_remove_directory(struct rank *rank, uint64_t directory, const char *name,
                          size_t name_bytes) {
    if (is_read_only(rank))
        return -EROFS;
    SCOPE_LOCK(&rank->change_lock);
    struct name_entry entry;
    int result = rank_get_name(rank, directory, name, name_bytes, &entry);
    if (result < 0)
        return result;
    if (entry.type != NAME_DIRECTORY)
        return -ENOTDIR;
    if (!directory_is_empty(rank, entry.directory))
        return -ENOTEMPTY;
    struct change *change = change_create();
    if (!change)
        return -ENOMEM;
    change_delete_name(change, directory, name, name_bytes, NULL);
    rank_submit_change(rank, change);
    atomic_fetch_sub(&rank->directories, 1);
    return 0;
}

int rank_set_blob_attributes(struct rank *rank, const struct blob_key *key,
                             const struct attributes *attributes) {
    if (is_read_only(rank))
        return -EROFS;
    SCOPE_LOCK(&rank->change_lock);
    struct blob_record record;
    int result = current_record(rank, key, &record);
    if (result < 0)
        return result;
    struct change *change = change_create();
    if (!change)
        return -ENOMEM;
    if (attributes->set & ATTRIBUTE_MODE)
        record.mode = attributes->mode & 07777;
    if (attributes->set & ATTRIBUTE_UID)
        record.uid = attributes->uid;
    if (attributes->set & ATTRIBUTE_GID)
        record.gid = attributes->gid;
    if (attributes->set & ATTRIBUTE_MTIME)
        record.mtime_ns = attributes->mtime_ns;
    record.ctime_ns = (int64_t)clock_real_ns();
    change_update_blob(change, key, &record);
    rank_submit_change(rank, change);
    return 0;
}

int rank_set_directory_attributes(struct rank *rank, uint64_t directory, const char *name,
                                  size_t name_bytes, const struct attributes *attributes) {
    if (is_read_only(rank))
        return -EROFS;
    SCOPE_LOCK(&rank->change_lock);
    struct name_entry entry;
    int result = rank_get_name(rank, directory, name, name_bytes, &entry);
    if (result < 0)
        return result;
    if (entry.type != NAME_DIRECTORY)
        return -ENOTDIR;
    struct change *change = change_create();
    if (!change)
        return -ENOMEM;
    if (attributes->set & ATTRIBUTE_MODE)
        entry.mode = attributes->mode & 07777;
    if (attributes->set & ATTRIBUTE_UID)
        entry.uid = attributes->uid;
    if (attributes->set & ATTRIBUTE_GID)
        entry.gid = attributes->gid;
    if (attributes->set & ATTRIBUTE_MTIME)
        entry.mtime_ns = attributes->mtime_ns;
    entry.ctime_ns = (int64_t)clock_real_ns();
    change_put_name(change, directory, name, name_bytes, &entry);
    rank_submit_change(rank, change);
    return 0;
}
