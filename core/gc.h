/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blob goes next: least recently used first, per budget. A lazy-deletion min-heap of
 * (last_access, sequence, pool, slot), 24 bytes an entry; the authoritative record is an array by
 * slot (key, sequence, last_access). A popped entry that disagrees with its record is stale and is
 * skipped, or pushed again with the record's access time when the slot was only touched since; the
 * heap is rebuilt when it is twice the live slots. Plain LRU is a decision: on public
 * traces fancier policies measured no better; this interface hides the order.
 *
 * Owner: the rank's write thread, all functions. It takes no locks and does no I/O.
 */
#ifndef CPL3_CORE_GC_H
#define CPL3_CORE_GC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/blob.h"

enum { GC_POOLS_MAX = 256 };

struct gc;

int gc_create(struct gc **ret_gc);
void gc_destroy(struct gc *gc); /* NULL is fine */
/* Announces a pool by a small number that the caller chooses; arrays are mapped lazily.
 * A known one again: nothing happens. -ENOMEM. */
int gc_add_pool(struct gc *gc, unsigned pool, uint32_t slots_max, uint32_t slot_bytes);

/* The slot became LIVE. CHECKs that it was unknown. */
int gc_insert(struct gc *gc, unsigned pool, uint32_t slot, const struct blob_key *key,
              uint64_t sequence, uint64_t last_access_ns);
/* Moves it later, never earlier; ignored (false) if the slot is unknown or of another sequence. */
bool gc_touch(struct gc *gc, unsigned pool, uint32_t slot, uint64_t sequence,
              uint64_t last_access_ns);
/* The slot left LIVE for any reason (replaced, unlinked, evicted). CHECKs that it was known. */
void gc_remove(struct gc *gc, unsigned pool, uint32_t slot);
void gc_reset(struct gc *gc);

struct gc_victim {
    unsigned pool;
    uint32_t slot;
    uint32_t slot_bytes;
    struct blob_key key;
    uint64_t sequence;
    uint64_t last_access_ns;
};

/*
 * The coldest slots, coldest first, until their slot_bytes reach want_bytes or `most` are found.
 * keep(argument, pool, slot) is asked for each candidate: true (pinned) passes over it this time.
 * only_pool >= 0 restricts to one pool. Victims stay known: the caller removes those that it
 * evicts. The number found.
 */
size_t gc_pick_victims(struct gc *gc, uint64_t want_bytes, size_t most, int only_pool,
                       bool (*keep)(void *argument, unsigned pool, uint32_t slot), void *argument,
                       struct gc_victim *ret_victims);

/* What is known of a slot; false if nothing. */
bool gc_get(const struct gc *gc, unsigned pool, uint32_t slot, struct gc_victim *ret_slot);
uint64_t gc_live_slots(const struct gc *gc);
uint64_t gc_live_bytes(const struct gc *gc); /* sum of slot_bytes */
uint64_t gc_heap_entries(const struct gc *gc);
/* Recounts everything: every live slot has a heap entry not later than its record. CHECKs. */
void gc_verify(const struct gc *gc);

#endif
