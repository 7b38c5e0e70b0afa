/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LRU by a lazy-deletion heap (see gc.h). Every live slot has exactly one entry that agrees with
 * its record in sequence and generation; it may be earlier than the record, never later, so the top
 * of the heap bounds what is coldest. A touch changes only the record. Entries of removed slots
 * stay until they come to the top or the heap is compacted.
 */
#include "core/gc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/check.h"

/* All zero (as mapped): never used. */
struct record {
    uint8_t hash[HASH_BYTES_MAX];
    uint64_t sequence;
    uint64_t last_access_ns;
    uint16_t rank;
    uint8_t kind;
    uint8_t hash_bytes; /* 0: the slot is not live; keys have 8..32 */
    uint16_t named;
    uint16_t generation; /* counts inserts: tells entries of one (slot, sequence) apart */
};
static_assert(sizeof(struct record) == 56);

struct entry {
    uint64_t last_access_ns;
    uint64_t sequence;
    uint32_t slot;
    uint16_t pool;
    uint16_t generation;
};
static_assert(sizeof(struct entry) == 24);

struct gc_pool {
    struct record *records; /* by slot; NULL: not announced */
    uint32_t slots_max;
    uint32_t slot_bytes;
    uint32_t slots_used; /* no slot from here on was ever live */
};

struct gc {
    struct gc_pool pools[GC_POOLS_MAX];
    struct entry *heap; /* heap[0] is the earliest */
    size_t heap_count, heap_capacity;
    uint64_t live_slots;
    uint64_t live_bytes;
};

enum { HEAP_SLACK = 64 };

/* records */

static struct gc_pool *pool_of(struct gc *gc, unsigned pool, uint32_t slot) {
    CHECK(pool < GC_POOLS_MAX);
    CHECK(slot < gc->pools[pool].slots_max);
    return &gc->pools[pool];
}

/* NULL: not live, or there is no such slot. */
static struct record *find_live(const struct gc *gc, unsigned pool, uint32_t slot) {
    if (pool >= GC_POOLS_MAX || slot >= gc->pools[pool].slots_used)
        return NULL;
    struct record *record = &gc->pools[pool].records[slot];
    return record->hash_bytes ? record : NULL;
}

static void describe(const struct gc *gc, unsigned pool, uint32_t slot,
                     struct gc_victim *ret_slot) {
    const struct record *record = &gc->pools[pool].records[slot];
    *ret_slot = (struct gc_victim){
        .pool = pool,
        .slot = slot,
        .slot_bytes = gc->pools[pool].slot_bytes,
        .key = {.rank = record->rank,
                .kind = record->kind,
                .named = (uint8_t)record->named,
                .hash_bytes = record->hash_bytes},
        .sequence = record->sequence,
        .last_access_ns = record->last_access_ns,
    };
    memcpy(ret_slot->key.hash, record->hash, HASH_BYTES_MAX);
}

/* heap */

static bool entry_before(const struct entry *a, const struct entry *b) {
    if (a->last_access_ns != b->last_access_ns)
        return a->last_access_ns < b->last_access_ns;
    if (a->sequence != b->sequence)
        return a->sequence < b->sequence;
    if (a->pool != b->pool)
        return a->pool < b->pool;
    return a->slot < b->slot;
}

static void sift_up(struct entry *heap, size_t at) {
    struct entry moving = heap[at];
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (!entry_before(&moving, &heap[parent]))
            break;
        heap[at] = heap[parent];
        at = parent;
    }
    heap[at] = moving;
}

static void sift_down(struct entry *heap, size_t count, size_t at) {
    struct entry moving = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && entry_before(&heap[child + 1], &heap[child]))
            child++;
        if (!entry_before(&heap[child], &moving))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static const struct record *record_of_entry(const struct gc *gc, const struct entry *entry) {
    const struct record *record = find_live(gc, entry->pool, entry->slot);
    if (!record || record->sequence != entry->sequence || record->generation != entry->generation)
        return NULL;
    return record;
}

static void drop_top(struct gc *gc) {
    CHECK(gc->heap_count > 0);
    gc->heap[0] = gc->heap[--gc->heap_count];
    if (gc->heap_count > 0)
        sift_down(gc->heap, gc->heap_count, 0);
}

/* Gives memory back after a large shrink; a failure keeps it. */
static void shrink_heap(struct gc *gc) {
    size_t capacity = gc->heap_count * 2 + HEAP_SLACK;
    if (gc->heap_capacity <= 2 * capacity)
        return;
    struct entry *heap = realloc(gc->heap, capacity * sizeof(*heap));
    if (!heap)
        return;
    gc->heap = heap;
    gc->heap_capacity = capacity;
}

/* Drops all stale entries and brings the others up to their records, in O(entries). */
static void compact_heap(struct gc *gc) {
    size_t kept = 0;
    for (size_t i = 0; i < gc->heap_count; i++) {
        struct entry entry = gc->heap[i];
        const struct record *record = record_of_entry(gc, &entry);
        if (!record)
            continue;
        entry.last_access_ns = record->last_access_ns;
        gc->heap[kept++] = entry;
    }
    CHECK(kept == gc->live_slots);
    gc->heap_count = kept;
    for (size_t at = kept / 2; at-- > 0;)
        sift_down(gc->heap, kept, at);
    shrink_heap(gc);
}

/* Grows by a quarter: with at most 2 entries a slot, heap and record stay below 128 bytes a slot.
 */
static int reserve_entry(struct gc *gc) {
    if (gc->heap_count < gc->heap_capacity)
        return 0;
    size_t capacity = gc->heap_capacity + gc->heap_capacity / 4 + HEAP_SLACK;
    struct entry *heap = realloc(gc->heap, capacity * sizeof(*heap));
    if (!heap)
        return -ENOMEM;
    gc->heap = heap;
    gc->heap_capacity = capacity;
    return 0;
}

/* interface */

int gc_create(struct gc **ret_gc) {
    struct gc *gc = calloc(1, sizeof(*gc));
    if (!gc)
        return -ENOMEM;
    *ret_gc = gc;
    return 0;
}

static size_t records_bytes(const struct gc_pool *pool) {
    return (size_t)pool->slots_max * sizeof(struct record);
}

void gc_destroy(struct gc *gc) {
    if (!gc)
        return;
    for (unsigned i = 0; i < GC_POOLS_MAX; i++)
        if (gc->pools[i].records)
            munmap(gc->pools[i].records, records_bytes(&gc->pools[i]));
    free(gc->heap);
    free(gc);
}

int gc_add_pool(struct gc *gc, unsigned pool, uint32_t slots_max, uint32_t slot_bytes) {
    CHECK(pool < GC_POOLS_MAX);
    CHECK(slots_max > 0 && slot_bytes > 0);
    if (gc->pools[pool].records) {
        CHECK(gc->pools[pool].slots_max == slots_max && gc->pools[pool].slot_bytes == slot_bytes);
        return 0;
    }
    struct gc_pool added = {.slots_max = slots_max, .slot_bytes = slot_bytes};
    void *records = mmap(NULL, records_bytes(&added), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (records == MAP_FAILED)
        return -ENOMEM;
    /* A pool of few used slots must not cost a huge page. */
    madvise(records, records_bytes(&added), MADV_NOHUGEPAGE);
    added.records = records;
    gc->pools[pool] = added;
    return 0;
}

int gc_insert(struct gc *gc, unsigned pool, uint32_t slot, const struct blob_key *key,
              uint64_t sequence, uint64_t last_access_ns) {
    struct gc_pool *in = pool_of(gc, pool, slot);
    struct record *record = &in->records[slot];
    CHECK(record->hash_bytes == 0);
    CHECK(key->hash_bytes >= HASH_BYTES_MIN && key->hash_bytes <= HASH_BYTES_MAX);
    int r = reserve_entry(gc);
    if (r)
        return r;

    memcpy(record->hash, key->hash, HASH_BYTES_MAX);
    record->sequence = sequence;
    record->last_access_ns = last_access_ns;
    record->rank = key->rank;
    record->kind = key->kind;
    record->hash_bytes = (uint8_t)key->hash_bytes;
    record->named = key->named;
    record->generation++;
    if (in->slots_used <= slot)
        in->slots_used = slot + 1;
    gc->live_slots++;
    gc->live_bytes += in->slot_bytes;

    gc->heap[gc->heap_count] = (struct entry){.last_access_ns = last_access_ns,
                                              .sequence = sequence,
                                              .slot = slot,
                                              .pool = (uint16_t)pool,
                                              .generation = record->generation};
    sift_up(gc->heap, gc->heap_count++);
    return 0;
}

bool gc_touch(struct gc *gc, unsigned pool, uint32_t slot, uint64_t sequence,
              uint64_t last_access_ns) {
    struct record *record = find_live(gc, pool, slot);
    if (!record || record->sequence != sequence)
        return false;
    if (record->last_access_ns < last_access_ns)
        record->last_access_ns = last_access_ns;
    return true;
}

void gc_remove(struct gc *gc, unsigned pool, uint32_t slot) {
    struct gc_pool *in = pool_of(gc, pool, slot);
    struct record *record = &in->records[slot];
    CHECK(record->hash_bytes != 0);
    record->hash_bytes = 0;
    CHECK(gc->live_slots > 0 && gc->live_bytes >= in->slot_bytes);
    gc->live_slots--;
    gc->live_bytes -= in->slot_bytes;
    /* Victims are removed coldest first: their entries leave at once. */
    while (gc->heap_count > 0 && !record_of_entry(gc, &gc->heap[0]))
        drop_top(gc);
    if (gc->heap_count > 2 * gc->live_slots + HEAP_SLACK)
        compact_heap(gc);
}

void gc_reset(struct gc *gc) {
    for (unsigned i = 0; i < GC_POOLS_MAX; i++) {
        struct gc_pool *pool = &gc->pools[i];
        if (pool->slots_used > 0)
            madvise(pool->records, (size_t)pool->slots_used * sizeof(struct record), MADV_DONTNEED);
        pool->slots_used = 0;
    }
    gc->heap_count = 0;
    gc->live_slots = 0;
    gc->live_bytes = 0;
    shrink_heap(gc);
}

bool gc_get(const struct gc *gc, unsigned pool, uint32_t slot, struct gc_victim *ret_slot) {
    if (!find_live(gc, pool, slot))
        return false;
    describe(gc, pool, slot, ret_slot);
    return true;
}

uint64_t gc_live_slots(const struct gc *gc) {
    return gc->live_slots;
}

uint64_t gc_live_bytes(const struct gc *gc) {
    return gc->live_bytes;
}

uint64_t gc_heap_entries(const struct gc *gc) {
    return gc->heap_count;
}

/* picking */

static bool victim_before(const struct gc_victim *a, const struct gc_victim *b) {
    if (a->last_access_ns != b->last_access_ns)
        return a->last_access_ns < b->last_access_ns;
    if (a->sequence != b->sequence)
        return a->sequence < b->sequence;
    return a->slot < b->slot;
}

/* One pool: a walk over its records that keeps the coldest in order. Rare (space cannot move). */
static size_t pick_in_pool(const struct gc *gc, uint64_t want_bytes, size_t most, unsigned pool,
                           bool (*keep)(void *argument, unsigned pool, uint32_t slot),
                           void *argument, struct gc_victim *ret_victims) {
    CHECK(pool < GC_POOLS_MAX && gc->pools[pool].records);
    const struct gc_pool *in = &gc->pools[pool];
    uint64_t wanted = want_bytes / in->slot_bytes + (want_bytes % in->slot_bytes != 0);
    if (most > wanted)
        most = wanted;
    size_t found = 0;
    for (uint32_t slot = 0; slot < in->slots_used && most > 0; slot++) {
        struct gc_victim candidate;
        if (!gc_get(gc, pool, slot, &candidate))
            continue;
        if (found == most && !victim_before(&candidate, &ret_victims[found - 1]))
            continue;
        if (keep && keep(argument, pool, slot))
            continue;
        size_t at = found < most ? found++ : found - 1;
        for (; at > 0 && victim_before(&candidate, &ret_victims[at - 1]); at--)
            ret_victims[at] = ret_victims[at - 1];
        ret_victims[at] = candidate;
    }
    return found;
}

/*
 * Candidates that were seen, chosen or kept, are set aside behind the shrinking heap, in the room
 * of the entries that left it: [heap_count, heap_count + aside). So picking needs no memory.
 */
static void set_top_aside(struct gc *gc, size_t *aside) {
    struct entry top = gc->heap[0];
    drop_top(gc);
    gc->heap[gc->heap_count] = top;
    (*aside)++;
}

/* A stale entry leaves for good: the place that it empties goes behind what was set aside. */
static void forget_top(struct gc *gc, size_t aside) {
    drop_top(gc);
    gc->heap[gc->heap_count] = gc->heap[gc->heap_count + aside];
}

static void put_back(struct gc *gc, size_t aside) {
    for (; aside > 0; aside--)
        sift_up(gc->heap, gc->heap_count++);
}

/*
 * The entry of a slot that was touched moves to the record's time. When many were, moving each
 * through the heap would take longer than to rebuild it once: then false.
 */
static bool catch_up_top(struct gc *gc, uint64_t last_access_ns, size_t *caught_up) {
    if ((*caught_up)++ > HEAP_SLACK + gc->heap_count / 16)
        return false;
    gc->heap[0].last_access_ns = last_access_ns;
    sift_down(gc->heap, gc->heap_count, 0);
    return true;
}

size_t gc_pick_victims(struct gc *gc, uint64_t want_bytes, size_t most, int only_pool,
                       bool (*keep)(void *argument, unsigned pool, uint32_t slot), void *argument,
                       struct gc_victim *ret_victims) {
    if (only_pool >= 0)
        return pick_in_pool(gc, want_bytes, most, (unsigned)only_pool, keep, argument, ret_victims);
    size_t found = 0, aside = 0, caught_up = 0;
    uint64_t bytes = 0;
    while (found < most && bytes < want_bytes && gc->heap_count > 0) {
        const struct entry *top = &gc->heap[0];
        const struct record *record = record_of_entry(gc, top);
        if (!record) {
            forget_top(gc, aside);
        } else if (record->last_access_ns > top->last_access_ns) {
            if (catch_up_top(gc, record->last_access_ns, &caught_up))
                continue;
            /* From the start; after it no entry is behind its record. */
            put_back(gc, aside);
            compact_heap(gc);
            found = aside = 0;
            bytes = 0;
        } else {
            if (!keep || !keep(argument, top->pool, top->slot)) {
                describe(gc, top->pool, top->slot, &ret_victims[found]);
                bytes += ret_victims[found++].slot_bytes;
            }
            set_top_aside(gc, &aside);
        }
    }
    put_back(gc, aside);
    return found;
}

/* checking */

static void verify_records(const struct gc *gc) {
    uint64_t slots = 0, bytes = 0;
    for (unsigned i = 0; i < GC_POOLS_MAX; i++) {
        const struct gc_pool *pool = &gc->pools[i];
        CHECK(pool->slots_used <= pool->slots_max);
        for (uint32_t slot = 0; slot < pool->slots_used; slot++) {
            if (!find_live(gc, i, slot))
                continue;
            slots++;
            bytes += pool->slot_bytes;
        }
    }
    CHECK(slots == gc->live_slots);
    CHECK(bytes == gc->live_bytes);
}

/* The entries that agree with a record of this pool are all different, and none is later. */
static uint64_t verify_entries_of_pool(const struct gc *gc, unsigned pool) {
    uint32_t slots = gc->pools[pool].slots_used;
    if (slots == 0)
        return 0;
    bool *seen = calloc(slots, sizeof(*seen));
    CHECK(seen);
    uint64_t agreeing = 0;
    for (size_t i = 0; i < gc->heap_count; i++) {
        const struct entry *entry = &gc->heap[i];
        const struct record *record = entry->pool == pool ? record_of_entry(gc, entry) : NULL;
        if (!record)
            continue;
        CHECK(entry->last_access_ns <= record->last_access_ns);
        CHECK(!seen[entry->slot]);
        seen[entry->slot] = true;
        agreeing++;
    }
    free(seen);
    return agreeing;
}

void gc_verify(const struct gc *gc) {
    verify_records(gc);
    CHECK(gc->heap_count <= gc->heap_capacity);
    CHECK(gc->heap_count <= 2 * gc->live_slots + HEAP_SLACK);
    for (size_t i = 1; i < gc->heap_count; i++)
        CHECK(!entry_before(&gc->heap[i], &gc->heap[(i - 1) / 2]));
    uint64_t agreeing = 0;
    for (unsigned i = 0; i < GC_POOLS_MAX; i++)
        agreeing += verify_entries_of_pool(gc, i);
    CHECK(agreeing == gc->live_slots);
}
