/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eviction: the coldest blobs of a budget, from above the high watermark down to the low one, a
 * bounded number a turn, ahead of the writes that will need the room. A victim first disappears for
 * lookups (a tombstone in the overlay), then nobody can pin it any more (RETIRING), then its index
 * entry goes with a commit, and only then its slot is free (W3). Blobs in use (pinned) and blobs
 * with a change under way are passed over.
 */
#include <errno.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/writer_internal.h"

struct keep_context {
    struct writer *writer;
    struct budget *budget;
    struct gc *gc;
};

static bool has_change_under_way(struct rank *rank, const struct blob_key *key) {
    struct blob_record record;
    uint64_t stamp;
    return overlay_get_blob(rank->overlay, key, &record, NULL, &stamp) != OVERLAY_UNKNOWN;
}

static bool keep(void *argument, unsigned pool_number, uint32_t slot) {
    struct keep_context *context = argument;
    struct pool *pool = budget_pool_at(context->budget, pool_number);
    struct gc_victim candidate;
    return slot_pool_pins(pool->slots, slot) > 0 ||
           !gc_get(context->gc, pool_number, slot, &candidate) ||
           has_change_under_way(context->writer->rank, &candidate.key);
}

/* Tombstones in the overlay, the steps in the group. False: it may not be evicted just now.
 * ret_record->sequence is 0 when no entry led to the slot. */
static bool hide_victim(struct writer *writer, struct group *group, const struct gc_victim *victim,
                        struct blob_record *ret_record) {
    struct rank *rank = writer->rank;
    SCOPE_LOCK(&rank->change_lock);
    if (has_change_under_way(rank, &victim->key))
        return false;
    if (index_get_blob(rank->store->index, &victim->key, ret_record) < 0 ||
        ret_record->sequence != victim->sequence) {
        ret_record->sequence = 0;
        return true;
    }
    struct change *change = change_create();
    if (!change)
        return false;
    change->from_gc = true;
    change_delete_blob(change, &victim->key, victim->sequence);
    struct name_entry entry;
    if (victim->key.named &&
        rank_get_name(rank, ret_record->directory, ret_record->name, ret_record->name_bytes,
                      &entry) == 0 &&
        entry.type == NAME_BLOB && blob_key_equal(&entry.blob, &victim->key))
        change_delete_name(change, ret_record->directory, ret_record->name, ret_record->name_bytes,
                           &victim->key);
    change->id = ++rank->next_change;
    change_apply_to_overlay(change, rank->overlay);
    change_list_add(&group->changes, change);
    return true;
}

static void evict_one(struct writer *writer, struct group *group, struct budget *budget,
                      const struct gc_victim *victim, uint64_t *bytes) {
    struct rank *rank = writer->rank;
    struct blob_record record;
    if (!hide_victim(writer, group, victim, &record))
        return;
    writer_retire_slot(writer, budget_pool_at(budget, victim->pool), victim->slot, victim->sequence,
                       &group->retired);
    if (!group->opened_ns)
        group->opened_ns = clock_monotonic_ns();
    *bytes += victim->slot_bytes;
    stats_add(&rank->stats, evictions, 1);
    stats_add(&rank->stats, evicted_bytes, victim->slot_bytes);
    if (record.sequence && rank->store->events.blob_gone)
        rank->store->events.blob_gone(rank->store->events.argument, rank, &victim->key, &record);
}

uint64_t writer_evict(struct writer *writer, struct group *group, struct budget *budget,
                      int only_pool, uint64_t bytes) {
    CHECK_ON(WRITER);
    struct gc *gc = writer_gc_of(writer, budget_pool_at(budget, 0));
    struct keep_context context = {writer, budget, gc};
    struct gc_victim victims[VICTIMS_PER_TURN];
    size_t count = gc_pick_victims(gc, bytes, VICTIMS_PER_TURN, only_pool, keep, &context, victims);
    uint64_t found = 0;
    for (size_t i = 0; i < count; i++)
        evict_one(writer, group, budget, &victims[i], &found);
    return found;
}

bool writer_evict_now(struct writer *writer, struct pool *pool, int only_pool) {
    struct group alone = {0};
    if (!writer_evict(writer, &alone, pool->budget, only_pool, pool->slot_bytes))
        return false;
    int result = writer_commit(writer, &alone);
    if (result < 0) {
        /* Hidden and retired already: their entries go with the open group. */
        struct change *change;
        while ((change = change_list_take(&alone.changes)))
            change_list_add(&writer->open->changes, change);
        for (size_t i = 0; i < alone.retired.count; i++)
            retired_list_add(&writer->open->retired, alone.retired.items[i].pool,
                             alone.retired.items[i].slot);
        if (!writer->open->opened_ns)
            writer->open->opened_ns = clock_monotonic_ns();
    }
    free(alone.retired.items);
    return result == 0;
}

void writer_collect(struct writer *writer) {
    CHECK_ON(WRITER);
    const struct config *config = &writer->rank->store->config;
    writer->gc_stalled = false;
    if (config->read_only)
        return;
    for (unsigned kind = 0; kind < writer->rank->budget_count; kind++) {
        struct budget *budget = writer->rank->budgets[kind];
        double limit = (double)budget_limit_bytes(budget);
        /* Retired slots are as good as free: their commit is on its way. */
        uint64_t used = budget_taken_bytes(budget) - writer->retiring_bytes[kind];
        if (!writer->collecting[kind]) {
            if ((double)used <= config->gc_start * limit)
                continue;
            writer->collecting[kind] = true;
            stats_add(&writer->rank->stats, gc_cycles, 1);
        }
        double low = config->gc_stop * limit;
        if ((double)used <= low) {
            writer->collecting[kind] = false;
            continue;
        }
        if (!writer_evict(writer, writer->open, budget, -1, used - (uint64_t)low))
            writer->gc_stalled = true;
    }
}

/* Something will free bytes or make blobs evictable without anybody's help. */
static bool is_in_motion(const struct writer *writer, unsigned kind) {
    return writer->retiring_bytes[kind] > 0 || writer->queue.first || writer->open->opened_ns ||
           writer->closing->opened_ns || atomic_load(&writer->rank->pending_bytes) > 0;
}

void writer_answer_space_waiter(struct writer *writer, struct waiter *waiter, int result) {
    atomic_fetch_sub(&writer->rank->space_waiting, 1);
    if (result == -ENOSPC)
        stats_add(&writer->rank->stats, no_space, 1);
    waiter->wake(waiter, result);
}

/* 0: it has its bytes; -EAGAIN: GC or a commit will bring them; -ENOSPC: nothing will. */
static int serve(struct writer *writer, struct reservation *reservation) {
    struct rank *rank = writer->rank;
    struct budget *budget = reservation->pool->budget;
    unsigned kind = reservation->pool->kind;
    if (rank_try_reserve(reservation))
        return 0;
    uint64_t used = budget_taken_bytes(budget) - writer->retiring_bytes[kind];
    bool short_of_bytes = used + reservation->pool->slot_bytes > budget_limit_bytes(budget);
    if (short_of_bytes &&
        writer_evict(writer, writer->open, budget, -1, reservation->pool->slot_bytes)) {
        stats_add(&rank->stats, gc_demand, 1);
        return -EAGAIN;
    }
    if (!short_of_bytes || atomic_load(&rank->clearing) || is_in_motion(writer, kind))
        return -EAGAIN;
    return -ENOSPC;
}

/* First come, first served, in each kind: one that is full does not hold up the others. */
void writer_serve_space_waiters(struct writer *writer) {
    CHECK_ON(WRITER);
    bool blocked[PAYLOAD_KINDS_MAX] = {0};
    struct waiter **link = &writer->space_waiters;
    while (*link) {
        struct waiter *waiter = *link;
        struct reservation *reservation = (struct reservation *)waiter->what;
        unsigned kind = reservation->pool->kind;
        int result = blocked[kind] ? -EAGAIN : serve(writer, reservation);
        if (result == -EAGAIN) {
            blocked[kind] = true;
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        writer_answer_space_waiter(writer, waiter, result);
    }
}
