/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit of a group: slabs made durable, then one index transaction (W1), then what it replaced
 * or removed is freed (W3), and only then the overlay lets go of the group's entries.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/writer_internal.h"

/* What a transaction found in place of what it wrote. */
struct replaced {
    struct blob_key key;
    struct blob_record record;
};
struct replaced_list {
    struct replaced *items;
    size_t count, capacity;
};

static int add_replaced(struct replaced_list *list, const struct blob_key *key,
                        const struct blob_record *record) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        struct replaced *items = realloc(list->items, capacity * sizeof(*items));
        if (!items)
            return -ENOMEM;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = (struct replaced){*key, *record};
    return 0;
}

/* What is published keeps its staging memory until it is committed; writers wait for that. */
static bool memory_is_short(const struct writer *writer) {
    const struct buffer_pool *buffers = writer->rank->store->buffers;
    return atomic_load(&writer->rank->pending_bytes) > 0 &&
           buffer_pool_used_bytes(buffers, BUFFER_STAGING) >=
               buffer_pool_share_bytes(buffers, BUFFER_STAGING) / 4;
}

bool writer_commit_due(const struct writer *writer, uint64_t now_ns) {
    if (writer_touches_due(writer, now_ns))
        return true;
    if (!writer->open->opened_ns)
        return false;
    return writer->commit_waiters || writer->clear_waiters || writer->space_waiters ||
           writer->queue.first || writer->stopping || writer->check_wanted ||
           writer->open->changes.count >= GROUP_CHANGES_DUE ||
           now_ns >= writer->open->opened_ns + writer->rank->store->config.commit_ns ||
           atomic_load(&writer->rank->pending_bytes) >= COMMIT_PENDING_BYTES ||
           memory_is_short(writer);
}

void writer_close_group(struct writer *writer) {
    CHECK(!writer->closing->changes.first && !writer->closing->puts_in_flight);
    struct group *group = writer->open;
    writer->open = writer->closing;
    writer->closing = group;
    if (!group->opened_ns)
        group->opened_ns = clock_monotonic_ns();
}

/* W1: slabs first */

static void withdraw_slab(struct writer *writer, struct group *group, const struct pool *pool,
                          int error) {
    for (struct change *change = group->changes.first; change; change = change->next) {
        struct put *put = &change->put;
        if (!put->version || put->withdrawn || put->pool != pool)
            continue;
        writer_give_slot_up(put, error);
        stats_add(&writer->rank->stats, write_errors, 1);
        writer_withdraw(writer, change, error);
    }
}

static void sync_slabs(struct writer *writer, struct group *group) {
    const struct pool *synced[GC_POOLS_MAX];
    size_t count = 0;
    for (struct change *change = group->changes.first; change; change = change->next) {
        struct put *put = &change->put;
        if (!put->version || put->withdrawn || put->pool->is_inline)
            continue;
        size_t i = 0;
        while (i < count && synced[i] != put->pool)
            i++;
        if (i < count)
            continue;
        if (count < GC_POOLS_MAX)
            synced[count++] = put->pool;
        int result = slab_sync(atomic_load(&put->pool->slab));
        if (result < 0)
            withdraw_slab(writer, group, put->pool, result);
    }
}

/* the transaction */

/* Deletes the entry of `key`; sequence 0: whatever it is. */
static int delete_blob(struct index_txn *txn, const struct blob_key *key, uint64_t sequence,
                       struct replaced_list *replaced) {
    struct blob_record old;
    int result = index_txn_get_blob(txn, key, &old);
    if (result == -ENOENT || (result == 0 && sequence && old.sequence != sequence))
        return 0;
    if (result == 0)
        result = add_replaced(replaced, key, &old);
    if (result < 0 && result != -EBADMSG)
        return result;
    result = index_txn_delete_blob(txn, key);
    return result == -ENOENT ? 0 : result;
}

static int put_blob(struct index_txn *txn, struct put *put, struct replaced_list *replaced) {
    if (put->withdrawn)
        return delete_blob(txn, &put->key, 0, replaced);
    int result = delete_blob(txn, &put->key, 0, replaced);
    put->record.slot = put->slot;
    if (result == 0)
        result = index_txn_put_blob(txn, &put->key, &put->record);
    if (result < 0 || !put->pool->is_inline)
        return result;
    struct iovec piece = {0};
    size_t pieces = version_pieces(put->version, 0, put->record.payload_bytes, &piece, 1);
    CHECK(pieces <= 1 && piece.iov_len == put->record.payload_bytes);
    return index_txn_put_inline(txn, &put->key, piece.iov_base, put->record.payload_bytes);
}

/* Attributes and name go into whatever version is there; its place and content stay. */
static int update_blob(struct index_txn *txn, const struct step *step) {
    struct blob_record record;
    int result = index_txn_get_blob(txn, &step->key, &record);
    if (result == -ENOENT || result == -EBADMSG)
        return 0;
    if (result < 0)
        return result;
    record.mode = step->record.mode;
    record.uid = step->record.uid;
    record.gid = step->record.gid;
    record.mtime_ns = step->record.mtime_ns;
    record.ctime_ns = step->record.ctime_ns;
    record.directory = step->record.directory;
    record.name_bytes = step->record.name_bytes;
    memcpy(record.name, step->record.name, sizeof(record.name));
    return index_txn_put_blob(txn, &step->key, &record);
}

static int delete_name(struct index_txn *txn, const struct step *step) {
    struct name_entry entry;
    if (step->key.hash_bytes) {
        int result = index_txn_get_name(txn, step->directory, step->name, step->name_bytes, &entry);
        if (result == -ENOENT ||
            (result == 0 && (entry.type != NAME_BLOB || !blob_key_equal(&entry.blob, &step->key))))
            return 0;
        if (result < 0 && result != -EBADMSG)
            return result;
    }
    int result = index_txn_delete_name(txn, step->directory, step->name, step->name_bytes);
    return result == -ENOENT ? 0 : result;
}

static int apply_step(struct index_txn *txn, struct change *change, struct step *step,
                      struct replaced_list *replaced) {
    switch (step->kind) {
    case STEP_PUT_BLOB:
        return put_blob(txn, &change->put, replaced);
    case STEP_UPDATE_BLOB:
        return update_blob(txn, step);
    case STEP_DELETE_BLOB:
        return delete_blob(txn, &step->key, step->sequence, replaced);
    case STEP_PUT_NAME:
        /* A withdrawn blob leaves no name behind. */
        if (change->put.withdrawn) {
            int result = index_txn_delete_name(txn, step->directory, step->name, step->name_bytes);
            return result == -ENOENT ? 0 : result;
        }
        return index_txn_put_name(txn, step->directory, step->name, step->name_bytes, &step->entry);
    case STEP_DELETE_NAME:
        return delete_name(txn, step);
    }
    return 0;
}

/* At its bound, the index takes no new record: that blob alone is withdrawn, and its steps are done
 * over, so that evictions in the same group still get through. */
static int apply_change(struct writer *writer, struct index_txn *txn, struct change *change,
                        struct replaced_list *replaced) {
    struct put *put = &change->put;
    for (unsigned i = 0; i < change->step_count; i++) {
        int result = apply_step(txn, change, &change->steps[i], replaced);
        if (result == -ENOSPC && index_txn_is_full(txn) && put->version && !put->withdrawn) {
            budget_free_slot(put->pool->budget, put->pool, put->slot);
            writer_withdraw(writer, change, result);
            i = UINT_MAX; /* begin again */
        } else if (result < 0) {
            return result;
        }
    }
    return 0;
}

static int apply_group(struct writer *writer, struct index_txn *txn, struct group *group,
                       struct replaced_list *replaced) {
    int result = 0;
    for (struct change *change = group->changes.first; change && result == 0; change = change->next)
        result = apply_change(writer, txn, change, replaced);
    return result;
}

/* after it */

void writer_retire_slot(struct writer *writer, struct pool *pool, uint32_t slot, uint64_t sequence,
                        struct retired_list *list) {
    struct gc *gc = writer_gc_of(writer, pool);
    struct gc_victim known;
    if (!gc_get(gc, pool->number, slot, &known) || known.sequence != sequence)
        return; /* evicted before its replacement was committed */
    gc_remove(gc, pool->number, slot);
    slot_pool_retire(pool->slots, slot);
    writer->retiring_bytes[pool->kind] += pool->slot_bytes;
    version_forget(writer->rank->versions, sequence);
    retired_list_add(list, pool, slot);
}

void writer_free_retired(struct writer *writer, struct retired_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        struct pool *pool = list->items[i].pool;
        uint32_t slot = list->items[i].slot;
        if (slot_pool_pins(pool->slots, slot) > 0) {
            retired_list_add(&writer->pinned, pool, slot);
            continue;
        }
        writer->retiring_bytes[pool->kind] -= pool->slot_bytes;
        budget_free_slot(pool->budget, pool, slot);
    }
    list->count = 0;
}

static void settle_put(struct writer *writer, struct put *put) {
    if (!put->version || put->withdrawn)
        return;
    struct rank *rank = writer->rank;
    uint64_t sequence = put->record.sequence;
    uint64_t access = touches_latest_ns(rank->touches, sequence);
    if (access < put->record.last_access_ns)
        access = put->record.last_access_ns;
    slot_pool_publish(put->pool->slots, put->slot, sequence);
    int result = gc_insert(writer_gc_of(writer, put->pool), put->pool->number, put->slot, &put->key,
                           sequence, access);
    CHECK(result == 0);
    version_settle(put->version, put->pool, put->slot);
    atomic_fetch_sub(&rank->pending_bytes, put->record.payload_bytes);
}

static void retire_replaced(struct writer *writer, const struct replaced_list *replaced,
                            struct retired_list *list) {
    for (size_t i = 0; i < replaced->count; i++) {
        const struct replaced *old = &replaced->items[i];
        struct pool *pool =
            budget_pool_by_slot_bytes(writer->rank->budgets[old->key.kind], old->record.slot_bytes);
        if (pool)
            writer_retire_slot(writer, pool, old->record.slot, old->record.sequence, list);
    }
}

void writer_wake_commit_waiters(struct writer *writer, uint64_t durable, int result) {
    struct waiter **link = &writer->commit_waiters;
    while (*link) {
        struct waiter *waiter = *link;
        if (waiter->value > durable) {
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        waiter->wake(waiter, result);
    }
}

/* Up to which change everything is durable with this group. */
static uint64_t last_change_of(const struct writer *writer, const struct group *group) {
    uint64_t last = atomic_load(&writer->durable_change);
    for (const struct change *change = group->changes.first; change; change = change->next)
        if (!change->from_gc && change->id > last)
            last = change->id;
    return last;
}

/*
 * Under the change lock: a change in the making may have read an entry whose record does not know
 * its slot yet, and puts it back changed; the version that makes up for it must still be there.
 */
static void settle_in_overlay(struct rank *rank, const struct change *change) {
    SCOPE_LOCK(&rank->change_lock);
    change_settle_in_overlay(change, rank->overlay);
}

/* The group is durable: slots become LIVE before the overlay forgets where the bytes were. */
static void settle_group(struct writer *writer, struct group *group,
                         const struct replaced_list *replaced) {
    struct rank *rank = writer->rank;
    uint64_t durable = last_change_of(writer, group);
    for (struct change *change = group->changes.first; change; change = change->next)
        settle_put(writer, &change->put);
    /* After the puts: one of them may have been replaced within the group. */
    retire_replaced(writer, replaced, &group->retired);
    writer_free_retired(writer, &group->retired);
    stats_add(&rank->stats, commits, 1);
    stats_add(&rank->stats, committed_changes, group->changes.count);
    struct change *change;
    while ((change = change_list_take(&group->changes))) {
        settle_in_overlay(rank, change);
        change_destroy(change);
    }
    atomic_store(&writer->durable_change, durable);
    writer_wake_commit_waiters(writer, durable, group->error);
    writer_tell_progress(writer);
    group->error = 0;
    group->opened_ns = 0;
    group->payload_bytes = 0;
}

/* A read-only mount only hides what is bad: the tombstones stay in the overlay. */
static int drop_group(struct writer *writer, struct group *group) {
    uint64_t durable = last_change_of(writer, group);
    struct change *change;
    while ((change = change_list_take(&group->changes)))
        change_destroy(change);
    atomic_store(&writer->durable_change, durable);
    group->opened_ns = 0;
    group->payload_bytes = 0;
    writer_wake_commit_waiters(writer, durable, 0);
    return 0;
}

static void note_failure(struct writer *writer, int error) {
    struct rank *rank = writer->rank;
    atomic_store(&writer->failing, true);
    log_limited(&rank->space_log,
                "rank %u: committing to the index: %s; nothing is accepted until it works again, "
                "reads go on",
                rank->number, strerror(-error));
    writer_wake_commit_waiters(writer, UINT64_MAX, error == -ENOSPC ? -ENOSPC : -EIO);
}

int writer_commit(struct writer *writer, struct group *group) {
    CHECK_ON(WRITER);
    CHECK(group->puts_in_flight == 0);
    if (writer->rank->store->config.read_only)
        return drop_group(writer, group);
    struct replaced_list replaced = {0};
    AUTO_FREE struct touch *touched = NULL;
    struct index_txn *txn;
    sync_slabs(writer, group);
    int result = index_txn_begin(writer->rank->store->index, &txn);
    if (result == 0) {
        result = apply_group(writer, txn, group, &replaced);
        size_t touch_count = 0;
        if (result == 0)
            touch_count = writer_write_touches(writer, txn, &touched, &result);
        if (result == 0)
            result = index_txn_commit(txn);
        else
            index_txn_abort(txn);
        if (result == 0 && touch_count)
            touches_settle(writer->rank->touches, touched, touch_count);
    }
    if (result == 0) {
        atomic_store(&writer->failing, false);
        settle_group(writer, group, &replaced);
    } else {
        note_failure(writer, result);
    }
    free(replaced.items);
    return result;
}
