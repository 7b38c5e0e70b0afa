/* SPDX-License-Identifier: Apache-2.0 */
/* Moving a name: the entry, the blob's own note of it, and what stood at the target, in one step.
 */
#include <errno.h>
#include <string.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/rank.h"

static bool blob_record_of(struct rank *rank, const struct blob_key *key,
                           struct blob_record *ret_record) {
    struct version *version;
    if (rank_find_blob(rank, key, ret_record, &version) < 0)
        return false;
    version_unref(version);
    return true;
}

static bool is_empty(struct rank *rank, uint64_t directory) {
    struct list_entry entry;
    size_t count = 0;
    return rank_list(rank, directory, 0, &entry, 1, &count) == 0 && count == 0;
}

/* May `from` replace what stands at the target? Blobs that are gone do not stand in the way. */
static int check_target(struct rank *rank, const struct name_entry *from,
                        const struct name_entry *to) {
    struct blob_record record;
    if (to->type == NAME_BLOB)
        return from->type == NAME_BLOB || !blob_record_of(rank, &to->blob, &record) ? 0 : -ENOTDIR;
    if (from->type == NAME_BLOB)
        return -EISDIR;
    return is_empty(rank, to->directory) ? 0 : -ENOTEMPTY;
}

/* The steps that end the target. */
static void end_target(struct rank *rank, const struct rank_rename *rename,
                       const struct name_entry *to, struct change *change) {
    struct blob_record record;
    if (to && to->type == NAME_BLOB && blob_record_of(rank, &to->blob, &record))
        change_delete_blob(change, &to->blob, record.sequence);
    if (to && to->type == NAME_DIRECTORY)
        atomic_fetch_sub(&rank->directories, 1);
    if (rename->remove_hash && blob_record_of(rank, &rename->hash, &record))
        change_delete_blob(change, &rename->hash, record.sequence);
}

int rank_rename_name(struct rank *rank, const struct rank_rename *rename) {
    if (rank->store->config.read_only)
        return -EROFS;
    SCOPE_LOCK(&rank->change_lock);
    struct name_entry from, to;
    int result =
        rank_get_name(rank, rename->from_directory, rename->from_name, rename->from_bytes, &from);
    if (result < 0)
        return result;
    struct blob_record record;
    if (from.type == NAME_BLOB && !blob_record_of(rank, &from.blob, &record))
        return -ENOENT;
    bool has_target =
        rank_get_name(rank, rename->to_directory, rename->to_name, rename->to_bytes, &to) == 0;
    if (has_target && (result = check_target(rank, &from, &to)) < 0)
        return result;
    if (has_target && from.type == NAME_BLOB && to.type == NAME_BLOB &&
        blob_key_equal(&from.blob, &to.blob))
        return 0;

    struct change *change = change_create();
    if (!change)
        return -ENOMEM;
    end_target(rank, rename, has_target ? &to : NULL, change);
    change_delete_name(change, rename->from_directory, rename->from_name, rename->from_bytes,
                       from.type == NAME_BLOB ? &from.blob : NULL);
    if (from.type == NAME_DIRECTORY)
        from.ctime_ns = (int64_t)clock_real_ns();
    change_put_name(change, rename->to_directory, rename->to_name, rename->to_bytes, &from);
    if (from.type == NAME_BLOB) {
        record.directory = rename->to_directory;
        record.name_bytes = (uint8_t)rename->to_bytes;
        memset(record.name, 0, sizeof(record.name));
        memcpy(record.name, rename->to_name, rename->to_bytes);
        record.ctime_ns = (int64_t)clock_real_ns();
        change_update_blob(change, &from.blob, &record);
    }
    rank_submit_change(rank, change);
    return 0;
}
