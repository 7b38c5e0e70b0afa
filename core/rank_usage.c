/* SPDX-License-Identifier: Apache-2.0 */
/* How full a rank is, and whether its whole state agrees with itself. */
#include <errno.h>
#include <inttypes.h>

#include "core/check.h"
#include "core/rank.h"
#include "core/writer.h"

static uint64_t commonest_slot_bytes(struct rank *rank) {
    uint64_t slot_bytes = INLINE_COST_BYTES, most = 0;
    struct pool *pool;
    for (unsigned kind = 0; kind < rank->budget_count; kind++)
        for (unsigned i = 0; (pool = budget_pool_at(rank->budgets[kind], i)); i++) {
            uint64_t used = slot_pool_slots_max(pool->slots) - slot_pool_free_slots(pool->slots);
            if (used > most) {
                most = used;
                slot_bytes = pool->slot_bytes;
            }
        }
    return slot_bytes;
}

void rank_get_usage(struct rank *rank, struct rank_usage *ret_usage) {
    struct rank_usage usage = {.pending_bytes = atomic_load(&rank->pending_bytes),
                               .directories = atomic_load(&rank->directories)};
    struct pool *pool;
    for (unsigned kind = 0; kind < rank->budget_count; kind++) {
        struct budget *budget = rank->budgets[kind];
        usage.size_bytes += budget_limit_bytes(budget);
        usage.taken_bytes += budget_taken_bytes(budget);
        usage.backed_bytes += budget_backed_bytes(budget);
        for (unsigned i = 0; (pool = budget_pool_at(budget, i)); i++)
            usage.live_slots +=
                slot_pool_slots_max(pool->slots) - slot_pool_free_slots(pool->slots);
    }
    uint64_t free_bytes =
        usage.size_bytes > usage.taken_bytes ? usage.size_bytes - usage.taken_bytes : 0;
    usage.common_slot_bytes = commonest_slot_bytes(rank);
    usage.free_slots = free_bytes / usage.common_slot_bytes;
    uint64_t held_bytes = usage.pending_bytes + version_table_pinned_bytes(rank->versions);
    usage.evictable_bytes = usage.taken_bytes > held_bytes ? usage.taken_bytes - held_bytes : 0;
    *ret_usage = usage;
}

/* the whole state */

struct verification {
    struct rank *rank;
    FILE *out;
    uint64_t disagreements, records;
};

static void disagree(struct verification *verification, const struct index_blob *blob,
                     const char *what) {
    verification->disagreements++;
    fprintf(verification->out,
            "rank %u: record of sequence %" PRIu64 " (slot %u of %u bytes): %s\n",
            verification->rank->number, blob->record.sequence, blob->record.slot,
            blob->record.slot_bytes, what);
}

/* What a read-only mount has dropped stays in the index. */
static bool is_hidden(struct rank *rank, const struct blob_key *key) {
    struct blob_record record;
    uint64_t stamp;
    return rank->store->config.read_only &&
           overlay_get_blob(rank->overlay, key, &record, NULL, &stamp) == OVERLAY_GONE;
}

static int check_record(void *argument, const struct index_blob *blob) {
    struct verification *verification = argument;
    struct rank *rank = verification->rank;
    const struct blob_record *record = &blob->record;
    struct gc_victim known;
    struct name_entry entry;
    if (is_hidden(rank, &blob->key))
        return 0;
    verification->records++;
    struct pool *pool =
        blob->key.kind < rank->budget_count
            ? budget_pool_by_slot_bytes(rank->budgets[blob->key.kind], record->slot_bytes)
            : NULL;
    if (record->epoch != atomic_load(&rank->epoch))
        disagree(verification, blob, "of another epoch");
    else if (!pool || record->slot >= pool->slots_max)
        disagree(verification, blob, "no such slot");
    else if (slot_pool_state(pool->slots, record->slot) != SLOT_LIVE)
        disagree(verification, blob, "its slot is not live");
    else if (!gc_get(rank->gcs[blob->key.kind], pool->number, record->slot, &known) ||
             known.sequence != record->sequence || !blob_key_equal(&known.key, &blob->key))
        disagree(verification, blob, "GC does not know it");
    else if (blob->key.named &&
             (index_get_name(rank->store->index, record->directory, record->name,
                             record->name_bytes, &entry) < 0 ||
              entry.type != NAME_BLOB || !blob_key_equal(&entry.blob, &blob->key)))
        disagree(verification, blob, "its name does not lead to it");
    return 0;
}

static void verify_between_turns(void *argument) {
    struct verification *verification = argument;
    struct rank *rank = verification->rank;
    uint64_t bad = 0, live = 0;
    for (unsigned kind = 0; kind < rank->budget_count; kind++) {
        budget_verify(rank->budgets[kind]);
        gc_verify(rank->gcs[kind]);
        live += gc_live_slots(rank->gcs[kind]);
    }
    int result =
        index_each_blob(rank->store->index, rank->number, check_record, verification, &bad);
    if (result < 0 || bad) {
        verification->disagreements += bad + (result < 0);
        fprintf(verification->out, "rank %u: %" PRIu64 " damaged records\n", rank->number, bad);
    }
    if (live != verification->records) {
        verification->disagreements++;
        fprintf(verification->out, "rank %u: %" PRIu64 " live slots, %" PRIu64 " records\n",
                rank->number, live, verification->records);
    }
}

uint64_t rank_verify(struct rank *rank, FILE *out) {
    struct verification verification = {.rank = rank, .out = out};
    writer_run_between_turns(rank->writer, verify_between_turns, &verification);
    return verification.disagreements;
}
