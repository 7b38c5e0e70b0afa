/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is there: the overlay first, then the index. A record counts only under the rank's current
 * epoch, so a clear makes everything disappear in one step. Damaged records are misses.
 */
#include <errno.h>
#include <string.h>

#include "core/check.h"
#include "core/clock.h"
#include "core/rank.h"

enum { LOOKUP_TRIES_MAX = 100 };

uint64_t rank_next_access_ns(struct rank *rank) {
    uint64_t now = clock_real_ns();
    uint64_t last = atomic_load_explicit(&rank->last_access_ns, memory_order_relaxed);
    uint64_t next;
    do
        next = now > last ? now : last + 1;
    while (!atomic_compare_exchange_weak(&rank->last_access_ns, &last, next));
    return next;
}

static void note_bad_record(struct rank *rank, const char *what) {
    stats_add(&rank->stats, corrupt, 1);
    log_limited(&rank->bad_log,
                "rank %u: a record in the index (%s) fails its checksum; it counts as a miss",
                rank->number, what);
}

int rank_find_blob(struct rank *rank, const struct blob_key *key, struct blob_record *ret_record,
                   struct version **ret_version) {
    struct blob_record record;
    struct version *version = NULL;
    uint64_t stamp;
    int result;
    do {
        switch (overlay_get_blob(rank->overlay, key, &record, &version, &stamp)) {
        case OVERLAY_PRESENT:
            *ret_record = record;
            *ret_version = version;
            return 0;
        case OVERLAY_GONE:
            return -ENOENT;
        case OVERLAY_UNKNOWN:
            break;
        }
        result = index_get_blob(rank->store->index, key, &record);
    } while (!overlay_blob_unchanged(rank->overlay, key, stamp));

    if (result == -EBADMSG)
        note_bad_record(rank, "blob");
    if (result < 0)
        return -ENOENT;
    if (record.epoch != atomic_load(&rank->epoch))
        return -ENOENT;
    *ret_record = record;
    *ret_version = NULL;
    return 0;
}

int rank_get_blob(struct rank *rank, const struct blob_key *key, struct blob_record *ret_record) {
    struct blob_record record;
    struct version *version;
    int result = rank_find_blob(rank, key, &record, &version);
    if (result < 0)
        return result;
    version_unref(version);
    uint64_t touched = touches_latest_ns(rank->touches, record.sequence);
    if (touched > record.last_access_ns)
        record.last_access_ns = touched;
    *ret_record = record;
    return 0;
}

int rank_get_name(struct rank *rank, uint64_t directory, const char *name, size_t name_bytes,
                  struct name_entry *ret_entry) {
    struct name_entry entry;
    uint64_t stamp;
    int result;
    if (name_bytes == 0 || name_bytes > NAME_BYTES_MAX)
        return -ENOENT;
    do {
        switch (overlay_get_name(rank->overlay, directory, name, name_bytes, &entry, &stamp)) {
        case OVERLAY_PRESENT:
            *ret_entry = entry;
            return 0;
        case OVERLAY_GONE:
            return -ENOENT;
        case OVERLAY_UNKNOWN:
            break;
        }
        result = index_get_name(rank->store->index, directory, name, name_bytes, &entry);
    } while (!overlay_name_unchanged(rank->overlay, directory, name, name_bytes, stamp));

    if (result == -EBADMSG)
        note_bad_record(rank, "name");
    if (result < 0)
        return -ENOENT;
    *ret_entry = entry;
    return 0;
}

/* The committed version of a record; inline payloads are fetched for it. */
static int acquire(struct rank *rank, const struct blob_key *key, const struct blob_record *record,
                   struct version **ret_version) {
    struct pool *pool = budget_pool_by_slot_bytes(rank->budgets[key->kind], record->slot_bytes);
    if (!pool)
        return -EBADMSG;
    uint8_t payload[INLINE_BYTES_MAX];
    if (record->slot_bytes == 0) {
        if (record->payload_bytes > INLINE_BYTES_MAX)
            return -EBADMSG;
        int result = index_get_inline(rank->store->index, key, payload, record->payload_bytes);
        if (result < 0)
            return -EBADMSG;
    }
    return version_acquire(rank->versions, key, record, pool, payload, ret_version);
}

/*
 * The record may change between its lookup and the pin: then look again. A record that stays the
 * same and yet cannot be acquired is bad: nothing of ours leaves such a state behind.
 */
int rank_open_version(struct rank *rank, const struct blob_key *key, uint64_t sequence,
                      struct version **ret_version, struct blob_record *ret_record) {
    struct blob_record record;
    struct version *version = NULL;
    uint64_t failed_sequence = 0;
    unsigned failures = 0;
    for (unsigned tries = 0; tries < LOOKUP_TRIES_MAX; tries++) {
        int result = rank_find_blob(rank, key, &record, &version);
        if (result < 0)
            return result;
        if (sequence && record.sequence != sequence) {
            version_unref(version);
            return -ESTALE;
        }
        if (!version)
            result = acquire(rank, key, &record, &version);
        if (result == 0) {
            *ret_version = version;
            if (ret_record)
                *ret_record = record;
            return 0;
        }
        if (result != -ESTALE && result != -EBADMSG)
            return result;
        failures = failed_sequence == record.sequence ? failures + 1 : 1;
        failed_sequence = record.sequence;
        if (failures >= 8) {
            stats_add(&rank->stats, corrupt, 1);
            log_limited(&rank->bad_log, "rank %u: slot %u: %s; dropped, counted as a miss",
                        rank->number, record.slot,
                        result == -EBADMSG ? "the small payload in the index does not verify"
                                           : "the index names a slot that holds something else");
            rank_drop_blob(rank, key, record.sequence);
            return -ENOENT;
        }
    }
    return -ENOENT;
}

void rank_touch(struct rank *rank, const struct blob_key *key, uint64_t access_ns) {
    struct blob_record record;
    struct version *version;
    if (rank->store->config.read_only || rank_find_blob(rank, key, &record, &version) < 0)
        return;
    uint64_t now = rank_next_access_ns(rank);
    /* A time in the future would make the blob immortal. */
    if (access_ns == 0 || access_ns > now)
        access_ns = now;
    stats_add(&rank->stats, touches, 1);
    if (access_ns > record.last_access_ns) {
        struct touch touch = {
            .key = *key, .slot = record.slot, .sequence = record.sequence, .access_ns = access_ns};
        if (!version)
            touch.pool = budget_pool_by_slot_bytes(rank->budgets[key->kind], record.slot_bytes);
        touches_add(rank->touches, &touch);
    }
    version_unref(version);
}
