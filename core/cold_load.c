/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `load` cold start: this rank's own slab headers, one aligned 4 KiB read each, many in flight;
 * no payload is read. A slot is LIVE iff its header parses under the epoch and the index maps that
 * hash back to exactly this slot and sequence (and a named blob's name back to it). Everything else
 * is free, and records that no slot confirms are pruned (W5: orphans of a crash end here).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/cold_start.h"

enum { HEADER_READS = 64, PROGRESS_SECONDS = 5 };

/* One confirmed blob. */
struct found {
    struct blob_key key;
    uint64_t last_access_ns;
};
struct found_list {
    struct slot_occupied *occupied; /* same order */
    struct found *found;
    size_t count, capacity;
};

static int add_found(struct found_list *list, const struct blob_key *key,
                     const struct blob_record *record) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 1024;
        void *occupied = realloc(list->occupied, capacity * sizeof(*list->occupied));
        if (occupied)
            list->occupied = occupied;
        void *found = occupied ? realloc(list->found, capacity * sizeof(*list->found)) : NULL;
        if (!found)
            return -ENOMEM;
        list->found = found;
        list->capacity = capacity;
    }
    list->occupied[list->count] =
        (struct slot_occupied){.slot = record->slot, .sequence = record->sequence};
    list->found[list->count++] =
        (struct found){.key = *key, .last_access_ns = record->last_access_ns};
    return 0;
}

static void free_found(struct found_list *list) {
    free(list->occupied);
    free(list->found);
}

static void note_sequence(struct rank *rank, uint64_t sequence) {
    if (rank->next_sequence <= sequence)
        rank->next_sequence = sequence + 1;
}

static void note_access(struct rank *rank, uint64_t access_ns) {
    if (atomic_load(&rank->last_access_ns) < access_ns && access_ns <= clock_real_ns())
        atomic_store(&rank->last_access_ns, access_ns);
}

/* does the index agree? */

static bool name_leads_back(struct rank *rank, const struct blob_key *key,
                            const struct blob_record *record) {
    struct name_entry entry;
    return !key->named || (index_get_name(rank->store->index, record->directory, record->name,
                                          record->name_bytes, &entry) == 0 &&
                           entry.type == NAME_BLOB && blob_key_equal(&entry.blob, key));
}

static bool is_live(struct rank *rank, const struct pool *pool, uint32_t slot,
                    const struct blob_header *header, struct blob_record *ret_record) {
    if (header->key.rank != rank->number || header->key.kind != pool->kind)
        return false;
    if (index_get_blob(rank->store->index, &header->key, ret_record) < 0)
        return false;
    return ret_record->slot_bytes == pool->slot_bytes && ret_record->slot == slot &&
           ret_record->sequence == header->sequence &&
           ret_record->epoch == atomic_load(&rank->epoch) &&
           ret_record->payload_bytes == header->payload_bytes &&
           ret_record->payload_checksum == header->payload_checksum &&
           slot_bytes_for_page(header->payload_bytes) <= pool->slot_bytes &&
           name_leads_back(rank, &header->key, ret_record);
}

/* headers */

struct header_read {
    struct slab_request request;
    struct iovec piece;
    uint32_t slot;
};

struct header_walk {
    struct rank *rank;
    struct pool *pool;
    struct slab_io *io;
    struct header_read *reads;
    void *blocks;
    struct found_list *list;
    uint64_t next_progress_ns;
};

static void submit_header_read(struct header_walk *walk, struct header_read *read, uint32_t slot) {
    uint32_t slot_bytes = walk->pool->slot_bytes;
    read->slot = slot;
    read->piece.iov_len = BLOCK_BYTES;
    read->request =
        (struct slab_request){.slab = atomic_load(&walk->pool->slab),
                              .offset = (uint64_t)(slot + 1ull) * slot_bytes - BLOCK_BYTES,
                              .pieces = &read->piece,
                              .piece_count = 1,
                              .context = read};
    slab_io_submit(walk->io, &read->request);
}

static int take_header(struct header_walk *walk, struct header_read *read) {
    struct rank *rank = walk->rank;
    struct blob_header header;
    struct blob_record record;
    if (read->request.result < 0) {
        stats_add(&rank->stats, read_errors, 1);
        return 0; /* what cannot be read is not there */
    }
    const struct slot_header *raw =
        (const void *)((char *)read->piece.iov_base + BLOCK_BYTES - HEADER_BYTES);
    if (blob_header_parse(raw, atomic_load(&rank->epoch), &header) < 0) {
        rank->cold_start.free_headers++;
        return 0;
    }
    note_sequence(rank, header.sequence);
    if (!is_live(rank, walk->pool, read->slot, &header, &record)) {
        rank->cold_start.free_headers++;
        return 0;
    }
    note_access(rank, record.last_access_ns);
    return add_found(walk->list, &header.key, &record);
}

static void show_progress(struct header_walk *walk, uint32_t slot, uint32_t slots) {
    uint64_t now = clock_monotonic_ns();
    if (now < walk->next_progress_ns)
        return;
    walk->next_progress_ns = now + PROGRESS_SECONDS * UINT64_C(1000000000);
    log_notice("rank %u: cold start load: %u of %u slots of %u bytes read", walk->rank->number,
               slot, slots, walk->pool->slot_bytes);
}

static int walk_slots(struct header_walk *walk, uint32_t slots) {
    uint32_t next = 0;
    int result = 0;
    for (unsigned i = 0; i < HEADER_READS && next < slots; i++)
        submit_header_read(walk, &walk->reads[i], next++);
    while (slab_io_in_flight(walk->io) > 0) {
        struct slab_request *done = slab_io_wait(walk->io, UINT64_MAX);
        if (!done)
            continue;
        struct header_read *read = done->context;
        if (result == 0)
            result = take_header(walk, read);
        if (result == 0 && next < slots)
            submit_header_read(walk, read, next++);
        if (next % 1024 == 0)
            show_progress(walk, next, slots);
    }
    return result;
}

static int walk_pool(struct header_walk *walk) {
    struct slab *slab = atomic_load(&walk->pool->slab);
    uint32_t slots = 0;
    int result = slab ? slab_slots_in_file(slab, &slots) : 0;
    if (result == 0 && slots > walk->pool->slots_max)
        slots = walk->pool->slots_max;
    return result < 0 ? result : walk_slots(walk, slots);
}

/* inline blobs */

struct inline_walk {
    struct rank *rank;
    struct pool *pool;
    uint8_t *taken; /* a bit a slot: what came from disk may name one twice */
    struct found_list *list;
};

static int take_inline(void *argument, const struct index_blob *blob) {
    struct inline_walk *walk = argument;
    struct rank *rank = walk->rank;
    const struct blob_record *record = &blob->record;
    note_sequence(rank, record->sequence);
    if (record->slot_bytes != 0 || blob->key.kind != 0 || record->slot >= walk->pool->slots_max ||
        record->epoch != atomic_load(&rank->epoch) || record->payload_bytes > INLINE_BYTES_MAX ||
        !name_leads_back(rank, &blob->key, record))
        return 0;
    uint8_t bit = (uint8_t)(1u << (record->slot & 7));
    if (walk->taken[record->slot / 8] & bit)
        return 0;
    walk->taken[record->slot / 8] |= bit;
    note_access(rank, record->last_access_ns);
    return add_found(walk->list, &blob->key, record);
}

static int walk_inline(struct rank *rank, struct pool *pool, struct found_list *list) {
    AUTO_FREE uint8_t *taken = calloc(pool->slots_max / 8 + 1, 1);
    if (!taken)
        return -ENOMEM;
    struct inline_walk walk = {.rank = rank, .pool = pool, .taken = taken, .list = list};
    uint64_t bad;
    return index_each_blob(rank->store->index, rank->number, take_inline, &walk, &bad);
}

/* pools and GC */

static int rebuild_pool(struct rank *rank, struct pool *pool, const struct found_list *list) {
    struct gc *gc = rank->gcs[pool->kind];
    int result = budget_rebuild_pool(pool->budget, pool, list->occupied, list->count);
    if (result == 0)
        result = gc_add_pool(gc, pool->number, pool->slots_max, pool->slot_bytes);
    for (size_t i = 0; i < list->count && result == 0; i++)
        result = gc_insert(gc, pool->number, list->occupied[i].slot, &list->found[i].key,
                           list->occupied[i].sequence, list->found[i].last_access_ns);
    if (pool->is_inline)
        rank->cold_start.live_inline += list->count;
    else
        rank->cold_start.live_slots += list->count;
    return result;
}

static int load_pool(struct header_walk *walk, struct pool *pool) {
    struct found_list list = {0};
    walk->pool = pool;
    walk->list = &list;
    int result = pool->is_inline ? walk_inline(walk->rank, pool, &list) : walk_pool(walk);
    if (result == 0 && list.count == 0 && pool->exact && !walk->rank->store->config.read_only)
        result = budget_drop_slab(pool->budget, pool);
    if (result == 0)
        result = rebuild_pool(walk->rank, pool, &list);
    free_found(&list);
    return result;
}

static int load_pools(struct rank *rank) {
    AUTO_FREE struct header_read *reads = calloc(HEADER_READS, sizeof(*reads));
    AUTO_FREE char *blocks = aligned_alloc(BLOCK_BYTES, (size_t)HEADER_READS * BLOCK_BYTES);
    if (!reads || !blocks)
        return -ENOMEM;
    for (unsigned i = 0; i < HEADER_READS; i++)
        reads[i].piece.iov_base = blocks + (size_t)i * BLOCK_BYTES;
    struct header_walk walk = {.rank = rank,
                               .reads = reads,
                               .next_progress_ns =
                                   clock_monotonic_ns() + PROGRESS_SECONDS * UINT64_C(1000000000)};
    int result = slab_io_open(rank->store->config.engine, HEADER_READS, &walk.io);
    struct pool *pool;
    for (unsigned kind = 0; kind < rank->budget_count; kind++)
        for (unsigned i = 0; result == 0 && (pool = budget_pool_at(rank->budgets[kind], i)); i++)
            result = load_pool(&walk, pool);
    slab_io_close(walk.io);
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

/* pruning */

struct key_list {
    struct rank *rank;
    struct blob_key *keys;
    size_t count, capacity;
};

static bool is_confirmed(struct rank *rank, const struct blob_key *key,
                         const struct blob_record *record) {
    if (key->kind >= rank->budget_count)
        return false;
    struct pool *pool = budget_pool_by_slot_bytes(rank->budgets[key->kind], record->slot_bytes);
    if (!pool || record->slot >= pool->slots_max ||
        !slot_pool_pin(pool->slots, record->slot, record->sequence))
        return false;
    slot_pool_unpin(pool->slots, record->slot);
    struct gc_victim known;
    return gc_get(rank->gcs[key->kind], pool->number, record->slot, &known) &&
           blob_key_equal(&known.key, key);
}

static int collect_unconfirmed(void *argument, const struct index_blob *blob) {
    struct key_list *list = argument;
    if (is_confirmed(list->rank, &blob->key, &blob->record))
        return 0;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 256;
        struct blob_key *keys = realloc(list->keys, capacity * sizeof(*keys));
        if (!keys)
            return -ENOMEM;
        list->keys = keys;
        list->capacity = capacity;
    }
    list->keys[list->count++] = blob->key;
    return 0;
}

static int prune_blobs(struct rank *rank) {
    struct key_list list = {.rank = rank};
    uint64_t bad;
    int result =
        index_each_blob(rank->store->index, rank->number, collect_unconfirmed, &list, &bad);
    if (result == 0 && !rank->store->config.read_only)
        result = cold_delete_blobs(rank, list.keys, list.count);
    rank->cold_start.pruned_records = list.count;
    free(list.keys);
    return result;
}

struct name_walk {
    struct rank *rank;
    struct index_txn *txn; /* opened at the first name to go */
};

static int take_name(void *argument, uint64_t directory, const struct index_name *name) {
    struct name_walk *walk = argument;
    struct rank *rank = walk->rank;
    struct blob_record record;
    if (name->entry.type == NAME_DIRECTORY) {
        uint64_t id = name->entry.directory & ((UINT64_C(1) << DIRECTORY_RANK_SHIFT) - 1);
        rank->cold_start.directories++;
        if (rank->next_directory <= id)
            rank->next_directory = id + 1;
        return 0;
    }
    if (index_get_blob(rank->store->index, &name->entry.blob, &record) == 0 &&
        record.directory == directory && record.name_bytes == name->name_bytes &&
        memcmp(record.name, name->name, name->name_bytes) == 0)
        return 0;
    rank->cold_start.pruned_names++;
    if (rank->store->config.read_only)
        return 0;
    int result = walk->txn ? 0 : index_txn_begin(rank->store->index, &walk->txn);
    if (result == 0)
        result = index_txn_delete_name(walk->txn, directory, name->name, name->name_bytes);
    return result == -ENOENT ? 0 : result;
}

static int prune_names(struct rank *rank) {
    struct name_walk walk = {.rank = rank};
    uint64_t bad;
    int result = index_each_name(rank->store->index, rank->number, take_name, &walk, &bad);
    if (walk.txn && result == 0)
        result = index_txn_commit(walk.txn);
    else
        index_txn_abort(walk.txn);
    atomic_store(&rank->directories, rank->cold_start.directories);
    return result;
}

int cold_load(struct rank *rank) {
    int result = load_pools(rank);
    if (result == 0)
        result = prune_blobs(rank);
    if (result == 0)
        result = prune_names(rank);
    if (result == 0 && !rank->store->config.read_only)
        result = fit_to_size(rank);
    return result;
}
