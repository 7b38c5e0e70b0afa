/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slots of one slab: which are free, and one atomic word a slot with its sequence, state and
 * pins. Allocation and freeing are O(1). Transitions belong to the rank's write thread; pins may be
 * taken and dropped by any thread.
 *
 *   FREE -allocate-> WRITING -publish-> LIVE -retire-> RETIRING -free, pins == 0-> FREE
 *                       '-free-> FREE     LIVE/WRITING/RETIRING -quarantine-> BAD (never reused)
 *
 * A free slot is backed (its disk blocks exist) or bare (a hole). Arrays are mapped lazily: a pool
 * of many slots costs memory only for those that were ever used.
 */
#ifndef CPL3_CORE_SLOT_POOL_H
#define CPL3_CORE_SLOT_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slot_pool;

enum slot_state { SLOT_FREE, SLOT_WRITING, SLOT_LIVE, SLOT_RETIRING, SLOT_BAD };

/* Fresh pool of slots_max bare free slots. -ENOMEM, -EINVAL for 0 slots. Freed by _destroy(NULL
 * ok). */
int slot_pool_create(uint32_t slots_max, struct slot_pool **ret_pool);
void slot_pool_destroy(struct slot_pool *pool);

/* FREE -> WRITING, backed. Prefers a backed slot, then a punched one, then the lowest that was
 * never used. -ENOSPC when none is free. */
int slot_pool_allocate(struct slot_pool *pool, uint32_t *ret_slot);
/* Of the slots that were never used: the first one and how many there are. */
uint32_t slot_pool_fresh_slots(const struct slot_pool *pool, uint32_t *ret_first);
/* The first so many of them have blocks now: backed, the lowest to be allocated first. */
void slot_pool_back_fresh(struct slot_pool *pool, uint32_t count);
/* WRITING or unpinned RETIRING -> FREE, backed. Aborts on double free, out of range, pinned. */
void slot_pool_free(struct slot_pool *pool, uint32_t slot);
/* WRITING -> LIVE under this sequence (unique in the rank; its low bits go into the word). */
void slot_pool_publish(struct slot_pool *pool, uint32_t slot, uint64_t sequence);
/* LIVE -> RETIRING: no further pin succeeds. True if nobody holds it: it may be freed at once
 * (after W3); else the last unpin answers true. */
bool slot_pool_retire(struct slot_pool *pool, uint32_t slot);
/* WRITING, LIVE or RETIRING -> BAD: a disk error; the slot is set aside for this mount. */
void slot_pool_quarantine(struct slot_pool *pool, uint32_t slot);

/* Any thread. True and pinned iff the slot is LIVE with this sequence. Never waits. */
bool slot_pool_pin(struct slot_pool *pool, uint32_t slot, uint64_t sequence);
/* Any thread. True if this was the last pin of a RETIRING slot: tell the write thread. */
bool slot_pool_unpin(struct slot_pool *pool, uint32_t slot);

/* One free backed slot for the caller to punch. The slot is WRITING and backed meanwhile; give it
 * back with slot_pool_free_bare, or with slot_pool_free if it could not be punched. -ENOENT when
 * there is none. */
int slot_pool_take_backed(struct slot_pool *pool, uint32_t *ret_slot);
void slot_pool_free_bare(struct slot_pool *pool, uint32_t slot);

/* All slots FREE, BAD ones too; those that had blocks stay backed. Aborts if any slot is pinned. */
void slot_pool_reset(struct slot_pool *pool);

/* One slot found LIVE by cold start. */
struct slot_occupied {
    uint32_t slot;
    uint64_t sequence;
};
/*
 * From a fresh or reset pool: occupies these (LIVE) and rebuilds the free list from the rest, in
 * O(slots_backed + count). Slots below slots_backed count as backed (a hole among them only makes
 * the account stricter), those above as bare; occupied ones lie below it. Aborts on duplicates and
 * out of range: what came from disk was checked.
 */
void slot_pool_rebuild_from_allocated(struct slot_pool *pool, const struct slot_occupied *occupied,
                                      size_t count, uint32_t slots_backed);

/* Any thread; approximate while others work. */
enum slot_state slot_pool_state(const struct slot_pool *pool, uint32_t slot);
uint32_t slot_pool_pins(const struct slot_pool *pool, uint32_t slot);
uint32_t slot_pool_slots_max(const struct slot_pool *pool);
uint32_t slot_pool_free_slots(const struct slot_pool *pool);        /* backed and bare */
uint32_t slot_pool_backed_free_slots(const struct slot_pool *pool); /* FREE with blocks */
uint32_t slot_pool_backed_slots(const struct slot_pool *pool);      /* all with blocks */

/* Recounts everything and CHECKs that lists, states and counters agree. Write thread or quiescent.
 */
void slot_pool_verify(const struct slot_pool *pool);

#endif
