/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing: first the space, which may have to be waited for, then one step in which the new
 * version, its name and the end of what it replaces become visible together.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/rank.h"
#include "core/writer.h"

/* Whether a publication may go on now: see PENDING_BYTES_MAX. One is always let through. */
static bool has_room(struct rank *rank, uint64_t payload_bytes) {
    uint64_t pending = atomic_load(&rank->pending_bytes);
    return !atomic_load(&rank->clearing) &&
           (pending == 0 || pending + payload_bytes <= PENDING_BYTES_MAX) &&
           overlay_entries(rank->overlay) < OVERLAY_ENTRIES_MAX;
}

/* Also the write thread's way to serve those that wait, in order. */
bool rank_try_reserve(struct reservation *reservation) {
    struct rank *rank = reservation->rank;
    if (!has_room(rank, reservation->payload_bytes))
        return false;
    if (!budget_take(reservation->pool))
        return false;
    atomic_fetch_add(&rank->pending_bytes, reservation->payload_bytes);
    return true;
}

int rank_reserve(struct rank *rank, uint8_t kind, uint64_t payload_bytes,
                 struct reservation *reservation) {
    CHECK(kind < rank->budget_count);
    if (rank->store->config.read_only)
        return -EROFS;
    struct pool *pool = budget_pool_for(rank->budgets[kind], payload_bytes);
    if (!pool) {
        stats_add(&rank->stats, too_large, 1);
        return -EFBIG;
    }
    if (pool->slot_bytes > budget_limit_bytes(rank->budgets[kind])) {
        stats_add(&rank->stats, no_space, 1);
        return -ENOSPC;
    }
    reservation->rank = rank;
    reservation->pool = pool;
    reservation->payload_bytes = payload_bytes;
    if (writer_is_failing(rank->writer)) {
        stats_add(&rank->stats, no_space, 1);
        return -ENOSPC;
    }
    /* Nobody overtakes those that wait. */
    if (atomic_load(&rank->space_waiting) == 0 && rank_try_reserve(reservation))
        return 0;
    stats_add(&rank->stats, space_waits, 1);
    writer_wait_space(rank->writer, reservation);
    return -EINPROGRESS;
}

void rank_unreserve(struct reservation *reservation) {
    struct rank *rank = reservation->rank;
    atomic_fetch_sub(&rank->pending_bytes, reservation->payload_bytes);
    budget_give(reservation->pool);
    writer_wake(rank->writer);
}

void rank_new_blob_id(struct rank *rank, struct blob_key *ret_key) {
    uint64_t id[2] = {rank->id_prefix, atomic_fetch_add(&rank->next_id, 1)};
    memset(ret_key, 0, sizeof(*ret_key));
    ret_key->rank = rank->number;
    ret_key->named = 1;
    ret_key->hash_bytes = sizeof(id);
    /* The first half is what st_ino is made of: spread it. */
    id[0] += id[1] * 0x9e3779b97f4a7c15u;
    memcpy(ret_key->hash, id, sizeof(id));
}

static void fill_record(struct rank *rank, const struct reservation *reservation,
                        const struct publication *publication, struct blob_record *record) {
    int64_t now = (int64_t)clock_real_ns();
    memset(record, 0, sizeof(*record));
    record->slot_bytes = reservation->pool->is_inline ? 0 : reservation->pool->slot_bytes;
    record->payload_bytes = (uint32_t)reservation->payload_bytes;
    record->epoch = atomic_load(&rank->epoch);
    record->sequence = rank->next_sequence++;
    record->last_access_ns = rank_next_access_ns(rank);
    record->mtime_ns = publication->mtime_ns ? publication->mtime_ns : now;
    record->ctime_ns = now;
    record->mode = publication->mode & 07777;
    record->uid = publication->uid;
    record->gid = publication->gid;
    if (publication->key.named) {
        record->directory = publication->directory;
        record->name_bytes = (uint8_t)publication->name_bytes;
        memcpy(record->name, publication->name, publication->name_bytes);
    }
}

uint64_t publication_checksum(const struct buffer *buffer, uint64_t payload_bytes) {
    struct iovec few[16] = {0};
    size_t most = payload_bytes / BUFFER_SEGMENT_BYTES + 2;
    struct iovec *pieces = most <= 16 ? few : calloc(most, sizeof(*pieces));
    CHECK(pieces);
    size_t count = buffer ? buffer_pieces(buffer, 0, payload_bytes, pieces, most) : 0;
    uint64_t checksum = blob_checksum(pieces, count);
    if (pieces != few)
        free(pieces);
    return checksum;
}

/* The version that readers get from now on. Inline payloads are copied, the buffer goes back. */
static int make_version(struct rank *rank, const struct publication *publication,
                        const struct blob_record *record, struct version **ret_version) {
    if (record->slot_bytes != 0)
        return version_create_staged(rank->versions, &publication->key, record, publication->buffer,
                                     NULL, ret_version);
    uint8_t payload[INLINE_BYTES_MAX];
    if (record->payload_bytes)
        buffer_read(publication->buffer, 0, payload, record->payload_bytes);
    int result = version_create_staged(rank->versions, &publication->key, record, NULL, payload,
                                       ret_version);
    if (result == 0)
        buffer_destroy(publication->buffer);
    return result;
}

static void remove_blob(struct rank *rank, const struct blob_key *key, struct change *change) {
    struct blob_record old;
    struct version *version;
    if (rank_find_blob(rank, key, &old, &version) < 0)
        return;
    version_unref(version);
    change_delete_blob(change, key, old.sequence);
}

static bool is_removed(const struct publication *publication, const struct blob_key *key) {
    for (unsigned i = 0; i < publication->remove_count; i++)
        if (blob_key_equal(&publication->remove[i], key))
            return true;
    return false;
}

/* One name a blob and one blob a name, also if the caller's view was older than ours. */
static void keep_names_unique(struct rank *rank, const struct publication *publication,
                              const struct blob_record *old, struct change *change) {
    struct name_entry entry;
    if (old->sequence &&
        (old->directory != publication->directory || old->name_bytes != publication->name_bytes ||
         memcmp(old->name, publication->name, old->name_bytes) != 0))
        change_delete_name(change, old->directory, old->name, old->name_bytes, &publication->key);
    if (rank_get_name(rank, publication->directory, publication->name, publication->name_bytes,
                      &entry) == 0 &&
        !blob_key_equal(&entry.blob, &publication->key) && !is_removed(publication, &entry.blob))
        remove_blob(rank, &entry.blob, change);
}

static void add_steps(struct rank *rank, const struct publication *publication,
                      const struct blob_record *old, struct change *change) {
    if (publication->remove_name_bytes)
        change_delete_name(change, publication->remove_directory, publication->remove_name,
                           publication->remove_name_bytes, NULL);
    for (unsigned i = 0; i < publication->remove_count; i++)
        remove_blob(rank, &publication->remove[i], change);
    if (publication->key.named)
        keep_names_unique(rank, publication, old, change);
    change_put_blob(change, &publication->key);
    if (publication->key.named) {
        struct name_entry entry = {.type = NAME_BLOB, .blob = publication->key};
        change_put_name(change, publication->directory, publication->name, publication->name_bytes,
                        &entry);
    }
}

static bool is_directory(struct rank *rank, const struct publication *publication) {
    struct name_entry entry;
    return publication->key.named &&
           rank_get_name(rank, publication->directory, publication->name, publication->name_bytes,
                         &entry) == 0 &&
           entry.type == NAME_DIRECTORY;
}

/* Under change_lock. */
static int publish(struct rank *rank, struct reservation *reservation,
                   const struct publication *publication, struct change *change) {
    struct put *put = &change->put;
    if (is_directory(rank, publication))
        return -EISDIR;
    put->key = publication->key;
    put->pool = reservation->pool;
    fill_record(rank, reservation, publication, &put->record);
    put->record.payload_checksum = publication->payload_checksum;
    int result = make_version(rank, publication, &put->record, &put->version);
    if (result < 0)
        return result;
    struct blob_record old = {0};
    struct version *old_version;
    if (rank_find_blob(rank, &publication->key, &old, &old_version) == 0) {
        version_unref(old_version);
        stats_add(&rank->stats, replaces, 1);
    }
    add_steps(rank, publication, &old, change);
    return 0;
}

int rank_publish(struct rank *rank, struct reservation *reservation,
                 const struct publication *publication, struct version **ret_version,
                 struct blob_record *ret_record) {
    CHECK(publication->remove_count <= 2);
    CHECK(publication->buffer || reservation->payload_bytes == 0);
    struct change *change = change_create();
    if (!change)
        return -ENOMEM;
    SCOPE_LOCK(&rank->change_lock);
    int result = publish(rank, reservation, publication, change);
    if (result < 0) {
        change_destroy(change);
        return result;
    }
    *ret_version = version_ref(change->put.version);
    *ret_record = change->put.record;
    rank_submit_change(rank, change);
    stats_add(&rank->stats, publishes, 1);
    stats_add(&rank->stats, bytes_written, reservation->payload_bytes);
    return 0;
}
