/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `load` cold start: first this rank's own slab headers (cold_headers.c), then one walk over
 * its names and one over its records in the index; no payload is looked at. A slot is LIVE iff its
 * header parses under the epoch and is the one that the index's record of that hash wants in
 * exactly this slot under this sequence (and a named blob's name leads back to it). Everything else
 * is free; names without a record and records that no slot confirms are pruned (W5: orphans of a
 * crash end here; a read-only mount hides them in the overlay). Named blobs are confirmed by the
 * walk over the names, which looks each record up, the others by that over the records, which looks
 * nothing up.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/cold_headers.h"
#include "core/cold_start.h"

/* What is known of one pool. */
struct found_pool {
    struct pool *pool;
    struct header_table headers; /* of slots */
    uint8_t *taken;              /* inline: a bit a slot, what came from disk may name one twice */
    struct slot_occupied *occupied; /* confirmed */
    size_t count, capacity;
};

struct found_kind {
    struct found_pool *pools; /* by number */
    unsigned pool_count;
};

struct load_walk {
    struct rank *rank;
    struct found_kind kinds[PAYLOAD_KINDS_MAX];
    struct blob_key *stale; /* no slot confirms them */
    size_t stale_count, stale_capacity;
    struct index_txn *names_txn; /* opened at the first name to go */
};

/* Room for one more in a row of `count`. */
static int grow(void **row, size_t count, size_t *capacity, size_t element_bytes) {
    if (count < *capacity)
        return 0;
    size_t larger = *capacity ? *capacity * 2 : 256;
    void *moved = realloc(*row, larger * element_bytes);
    if (!moved)
        return -ENOMEM;
    *row = moved;
    *capacity = larger;
    return 0;
}

static void note_access(struct rank *rank, uint64_t access_ns) {
    if (atomic_load(&rank->last_access_ns) < access_ns && access_ns <= clock_real_ns())
        atomic_store(&rank->last_access_ns, access_ns);
}

/* does the disk agree? */

static bool is_confirmed_by_header(struct found_pool *found, const struct index_blob *blob) {
    const struct blob_record *record = &blob->record;
    struct blob_header wanted = {.key = blob->key,
                                 .payload_checksum = record->payload_checksum,
                                 .sequence = record->sequence,
                                 .payload_bytes = record->payload_bytes};
    return slot_bytes_for_page(record->payload_bytes) <= found->pool->slot_bytes &&
           header_table_take(&found->headers, record->slot, &wanted, record->epoch);
}

static bool is_sound_inline(struct found_pool *found, const struct index_blob *blob) {
    const struct blob_record *record = &blob->record;
    if (record->slot >= found->pool->slots_max || record->payload_bytes > INLINE_BYTES_MAX)
        return false;
    uint8_t bit = (uint8_t)(1u << (record->slot & 7)), *taken = &found->taken[record->slot / 8];
    if (*taken & bit)
        return false;
    *taken |= bit;
    return true;
}

/* NULL: none has slots of this size. */
static struct found_pool *pool_of_record(struct load_walk *walk, uint8_t kind,
                                         const struct blob_record *record) {
    if (kind >= walk->rank->budget_count)
        return NULL;
    const struct pool *pool =
        budget_pool_by_slot_bytes(walk->rank->budgets[kind], record->slot_bytes);
    return pool ? &walk->kinds[kind].pools[pool->number] : NULL;
}

static int add_live(struct rank *rank, struct found_pool *found, const struct index_blob *blob) {
    const struct blob_record *record = &blob->record;
    int result =
        grow((void **)&found->occupied, found->count, &found->capacity, sizeof(*found->occupied));
    if (result < 0)
        return result;
    found->occupied[found->count++] =
        (struct slot_occupied){.slot = record->slot, .sequence = record->sequence};
    note_access(rank, record->last_access_ns);
    return gc_insert(rank->gcs[blob->key.kind], found->pool->number, record->slot, &blob->key,
                     record->sequence, record->last_access_ns);
}

/* A blob whose name, if it has one, leads back to it. */
static int take_if_confirmed(struct load_walk *walk, const struct index_blob *blob) {
    struct found_pool *found = pool_of_record(walk, blob->key.kind, &blob->record);
    if (!found || blob->record.epoch != atomic_load(&walk->rank->epoch))
        return 0;
    bool live =
        found->pool->is_inline ? is_sound_inline(found, blob) : is_confirmed_by_header(found, blob);
    return live ? add_live(walk->rank, found, blob) : 0;
}

static bool is_live(struct load_walk *walk, const struct index_blob *blob) {
    const struct found_pool *found = pool_of_record(walk, blob->key.kind, &blob->record);
    struct gc_victim known;
    return found &&
           gc_get(walk->rank->gcs[blob->key.kind], found->pool->number, blob->record.slot,
                  &known) &&
           blob_key_equal(&known.key, &blob->key);
}

static int take_blob(void *argument, const struct index_blob *blob) {
    struct load_walk *walk = argument;
    struct rank *rank = walk->rank;
    if (blob->record.slot_bytes == 0 && rank->next_sequence <= blob->record.sequence)
        rank->next_sequence = blob->record.sequence + 1; /* no header tells it */
    int result = blob->key.named ? 0 : take_if_confirmed(walk, blob);
    if (result < 0 || is_live(walk, blob))
        return result;
    result =
        grow((void **)&walk->stale, walk->stale_count, &walk->stale_capacity, sizeof(*walk->stale));
    if (result == 0)
        walk->stale[walk->stale_count++] = blob->key;
    return result;
}

/* names */

static void take_directory(struct rank *rank, uint64_t directory) {
    uint64_t id = directory & ((UINT64_C(1) << DIRECTORY_RANK_SHIFT) - 1);
    rank->cold_start.directories++;
    if (rank->next_directory <= id)
        rank->next_directory = id + 1;
}

static bool leads_to(uint64_t directory, const struct index_name *name,
                     const struct blob_record *record) {
    return record->directory == directory && record->name_bytes == name->name_bytes &&
           memcmp(record->name, name->name, name->name_bytes) == 0;
}

static int take_name(void *argument, uint64_t directory, const struct index_name *name) {
    struct load_walk *walk = argument;
    struct rank *rank = walk->rank;
    if (name->entry.type == NAME_DIRECTORY) {
        take_directory(rank, name->entry.directory);
        return 0;
    }
    struct index_blob blob;
    blob.key = name->entry.blob;
    if (index_get_blob(rank->store->index, &blob.key, &blob.record) == 0 &&
        leads_to(directory, name, &blob.record))
        return take_if_confirmed(walk, &blob); /* a named one: others have no name in the record */
    rank->cold_start.pruned_names++;
    if (rank->store->config.read_only)
        return overlay_remove_name(rank->overlay, directory, name->name, name->name_bytes,
                                   ++rank->next_change);
    int result = walk->names_txn ? 0 : index_txn_begin(rank->store->index, &walk->names_txn);
    if (result == 0)
        result = index_txn_delete_name(walk->names_txn, directory, name->name, name->name_bytes);
    return result == -ENOENT ? 0 : result;
}

static int walk_names(struct load_walk *walk) {
    struct rank *rank = walk->rank;
    uint64_t bad;
    int result = index_each_name(rank->store->index, rank->number, take_name, walk, &bad);
    if (walk->names_txn && result == 0)
        result = index_txn_commit(walk->names_txn);
    else
        index_txn_abort(walk->names_txn);
    atomic_store(&rank->directories, rank->cold_start.directories);
    return result;
}

/* pools */

static int find_in_pool(struct rank *rank, struct header_reader *reader, struct found_pool *found) {
    struct pool *pool = found->pool;
    int result =
        gc_add_pool(rank->gcs[pool->kind], pool->number, pool->slots_max, pool->slot_bytes);
    if (result < 0 || !pool->is_inline)
        return result < 0 ? result : header_reader_read(reader, pool, &found->headers);
    found->taken = calloc(pool->slots_max / 8 + 1, 1);
    return found->taken ? 0 : -ENOMEM;
}

static int find_in_kind(struct load_walk *walk, struct header_reader *reader, unsigned kind) {
    struct budget *budget = walk->rank->budgets[kind];
    struct found_kind *found = &walk->kinds[kind];
    found->pools = calloc(GC_POOLS_MAX, sizeof(*found->pools));
    int result = found->pools ? 0 : -ENOMEM;
    struct pool *pool;
    for (unsigned i = 0; result == 0 && (pool = budget_pool_at(budget, i)); i++) {
        found->pools[i].pool = pool;
        found->pool_count++;
        result = find_in_pool(walk->rank, reader, &found->pools[i]);
    }
    return result;
}

static int rebuild_pool(struct rank *rank, struct found_pool *found) {
    struct pool *pool = found->pool;
    int result = 0;
    if (found->count == 0 && pool->exact && !rank->store->config.read_only)
        result = budget_drop_slab(pool->budget, pool);
    if (result == 0)
        result = budget_rebuild_pool(pool->budget, pool, found->occupied, found->count);
    if (pool->is_inline) {
        rank->cold_start.live_inline += found->count;
    } else {
        rank->cold_start.live_slots += found->count;
        rank->cold_start.free_headers -= found->count;
    }
    return result;
}

static int rebuild_pools(struct load_walk *walk) {
    int result = 0;
    for (unsigned kind = 0; kind < walk->rank->budget_count; kind++)
        for (unsigned i = 0; i < walk->kinds[kind].pool_count && result == 0; i++)
            result = rebuild_pool(walk->rank, &walk->kinds[kind].pools[i]);
    return result;
}

static void free_walk(struct load_walk *walk) {
    for (unsigned kind = 0; kind < walk->rank->budget_count; kind++) {
        struct found_kind *found = &walk->kinds[kind];
        for (unsigned i = 0; i < found->pool_count; i++) {
            header_table_free(&found->pools[i].headers);
            free(found->pools[i].taken);
            free(found->pools[i].occupied);
        }
        free(found->pools);
    }
    free(walk->stale);
}

static int read_headers(struct load_walk *walk) {
    struct header_reader *reader;
    int result = header_reader_open(walk->rank, &reader);
    if (result < 0)
        return result;
    for (unsigned kind = 0; kind < walk->rank->budget_count && result == 0; kind++)
        result = find_in_kind(walk, reader, kind);
    header_reader_close(reader);
    return result;
}

/* What no slot confirms is neither listed nor found; a read-only mount can only hide it. */
static int hide_blob(struct rank *rank, const struct blob_key *key) {
    struct blob_record record;
    struct name_entry entry;
    uint64_t change = ++rank->next_change;
    int result = 0;
    if (key->named && index_get_blob(rank->store->index, key, &record) == 0 &&
        index_get_name(rank->store->index, record.directory, record.name, record.name_bytes,
                       &entry) == 0 &&
        entry.type == NAME_BLOB && blob_key_equal(&entry.blob, key))
        result = overlay_remove_name(rank->overlay, record.directory, record.name,
                                     record.name_bytes, change);
    return result < 0 ? result : overlay_remove_blob(rank->overlay, key, change);
}

static int prune_blobs(struct rank *rank, const struct blob_key *keys, size_t count) {
    if (!rank->store->config.read_only)
        return cold_delete_blobs(rank, keys, count);
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i++)
        result = hide_blob(rank, &keys[i]);
    return result;
}

static int load_blobs(struct rank *rank) {
    struct load_walk walk = {.rank = rank};
    uint64_t bad;
    int result = read_headers(&walk);
    if (result == 0)
        result = walk_names(&walk);
    if (result == 0)
        result = index_each_blob(rank->store->index, rank->number, take_blob, &walk, &bad);
    if (result == 0)
        result = rebuild_pools(&walk);
    if (result == 0)
        result = prune_blobs(rank, walk.stale, walk.stale_count);
    rank->cold_start.pruned_records = walk.stale_count;
    free_walk(&walk);
    return result;
}

/* a smaller size */

static int evict_batch(struct rank *rank, unsigned kind, uint64_t bytes) {
    struct gc_victim victims[64];
    struct blob_key keys[64];
    size_t count = gc_pick_victims(rank->gcs[kind], bytes, 64, -1, NULL, NULL, victims);
    for (size_t i = 0; i < count; i++)
        keys[i] = victims[i].key;
    int result = cold_delete_blobs(rank, keys, count); /* W3: first the entries */
    for (size_t i = 0; i < count && result == 0; i++) {
        struct pool *pool = budget_pool_at(rank->budgets[kind], victims[i].pool);
        gc_remove(rank->gcs[kind], pool->number, victims[i].slot);
        slot_pool_retire(pool->slots, victims[i].slot);
        budget_free_slot(pool->budget, pool, victims[i].slot);
        rank->cold_start.evicted++;
    }
    return result < 0 ? result : (int)count;
}

static int fit_to_size(struct rank *rank) {
    for (unsigned kind = 0; kind < rank->budget_count; kind++) {
        struct budget *budget = rank->budgets[kind];
        uint64_t low = (uint64_t)(rank->store->config.gc_stop * (double)budget_limit_bytes(budget));
        int result = budget_excess_bytes(budget) ? 1 : 0;
        while (result > 0 && budget_taken_bytes(budget) > low)
            result = evict_batch(rank, kind, budget_taken_bytes(budget) - low);
        if (result >= 0)
            result = budget_fit_to_limit(budget);
        if (result < 0 && result != -ENOSPC) /* -ENOSPC: holes cannot be punched here */
            return result;
    }
    return 0;
}

int cold_load(struct rank *rank) {
    int result = load_blobs(rank);
    if (result == 0 && !rank->store->config.read_only)
        result = fit_to_size(rank);
    return result;
}
