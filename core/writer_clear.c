/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime clear. The bump of the epoch is the moment: durable first, then in memory, where it
 * hides every record at once (rank_find_blob) and makes every header on disk void. What follows
 * only tidies up: the records go in bounded transactions, the slots are freed (W3 holds: an entry
 * of an old epoch leads nowhere). Directories stay. A crash at any point leaves a rank that `load`
 * finds empty.
 */
#include <errno.h>
#include <string.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/writer_internal.h"

enum { DELETES_PER_TXN = 4096 };

static bool has_puts(const struct change_list *list) {
    for (const struct change *change = list->first; change; change = change->next)
        if (change->put.version)
            return true;
    return false;
}

static void drop_names(const struct change_list *list) {
    for (struct change *change = list->first; change; change = change->next)
        change_drop_blob_names(change);
}

/*
 * False: something was published meanwhile and has to be committed under the old epoch first. No
 * publication begins during a clear, so that is soon over; the other changes never end under load,
 * but they may be committed after it, without the names of blobs that they would set.
 */
static bool switch_epoch(struct writer *writer, uint32_t epoch) {
    struct rank *rank = writer->rank;
    SCOPE_LOCK(&rank->change_lock);
    SCOPE_LOCK(&writer->inbox_lock);
    if (has_puts(&writer->inbox))
        return false;
    atomic_store(&rank->epoch, epoch);
    overlay_clear_blobs(rank->overlay);
    drop_names(&writer->inbox);
    drop_names(&writer->queue);
    drop_names(&writer->open->changes);
    drop_names(&writer->closing->changes);
    return true;
}

static int delete_some(struct writer *writer, bool names, size_t *ret_count) {
    struct index_txn *txn;
    int result = index_txn_begin(writer->rank->store->index, &txn);
    if (result < 0)
        return result;
    uint16_t number = writer->rank->number;
    int count = names ? index_txn_delete_rank_names(txn, number, true, DELETES_PER_TXN)
                      : index_txn_delete_rank_blobs(txn, number, DELETES_PER_TXN);
    if (count < 0) {
        index_txn_abort(txn);
        return count;
    }
    *ret_count = (size_t)count;
    return index_txn_commit(txn);
}

static int delete_records(struct writer *writer) {
    for (int names = 0; names < 2; names++)
        for (size_t count = 1; count > 0;) {
            int result = delete_some(writer, names, &count);
            if (result < 0)
                return result;
        }
    return 0;
}

static void free_slots(struct writer *writer) {
    struct rank *rank = writer->rank;
    for (unsigned kind = 0; kind < rank->budget_count; kind++) {
        struct retired_list list = {0};
        struct gc_victim victims[VICTIMS_PER_TURN];
        size_t count;
        while ((count = gc_pick_victims(rank->gcs[kind], UINT64_MAX, VICTIMS_PER_TURN, -1, NULL,
                                        NULL, victims)) > 0)
            for (size_t i = 0; i < count; i++)
                writer_retire_slot(writer, budget_pool_at(rank->budgets[kind], victims[i].pool),
                                   victims[i].slot, victims[i].sequence, &list);
        writer_free_retired(writer, &list);
        free(list.items);
    }
}

void writer_wake_clear_waiters(struct writer *writer, int result) {
    struct waiter *waiter;
    atomic_store(&writer->rank->clearing, false);
    while ((waiter = writer->clear_waiters)) {
        writer->clear_waiters = waiter->next;
        waiter->wake(waiter, result);
    }
}

static bool waits_for_puts(const struct writer *writer) {
    return has_puts(&writer->queue) || has_puts(&writer->open->changes) ||
           has_puts(&writer->closing->changes);
}

/* Once the new epoch is on disk there is no way back: blobs committed under the old one would be
 * lost by the next load. Then a commit that fails is only waited for. */
void writer_clear(struct writer *writer) {
    struct rank *rank = writer->rank;
    CHECK_ON(WRITER);
    if (writer_is_failing(writer) && !writer->clear_epoch) {
        writer_wake_clear_waiters(writer, -EIO);
        return;
    }
    atomic_store(&rank->clearing, true);
    if (waits_for_puts(writer))
        return; /* due at once: see writer_commit_due */
    uint32_t epoch = atomic_load(&rank->epoch) + 1;
    int result = writer->clear_epoch ? 0 : epoch_write(rank, epoch);
    if (result == 0) {
        writer->clear_epoch = epoch;
        if (!switch_epoch(writer, epoch))
            return;
        writer->clear_epoch = 0;
        stats_add(&rank->stats, clears, 1);
        result = delete_records(writer);
        free_slots(writer);
        if (rank->store->events.rank_cleared)
            rank->store->events.rank_cleared(rank->store->events.argument, rank);
    }
    if (result < 0)
        log_error("rank %u: clear: %s", rank->number, strerror(-result));
    writer_wake_clear_waiters(writer, result);
}
