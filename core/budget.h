/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disk space of one budget: a declared payload kind (one pool, fixed slots) or kind 0 (one byte
 * budget shared by inline blobs and size classes on a fixed grid, 8 KiB x 1.25^n rounded to 4 KiB,
 * up to max_file; the first 8 distinct sizes of >= 64 KiB get exact classes). A class for any size
 * up to max_file always exists. An exact class that holds nothing gives its place to the next size.
 *
 * Two accounts, and the rule that keeps `size`:
 *   taken   atomic, any thread: slot bytes promised to published or being-published blobs, from
 *           budget_take (at FLUSH) until the slot is FREE again. taken <= limit always. Each pool
 *           counts its own share: a pool without any is empty.
 *   backed  write thread: bytes of slots whose disk blocks exist (plus inline blobs).
 *           backed <= limit always: before a class grows into a bare slot, free backed slots of
 *           other classes are punched.
 *
 * Pools are created by any thread under the budget's lock and live until close; their slab files
 * are opened by the write thread at first use.
 */
#ifndef CPL3_CORE_BUDGET_H
#define CPL3_CORE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/slab.h"
#include "core/slot_pool.h"

enum { BUDGET_EXACT_CLASSES = 8, BUDGET_EXACT_BYTES_MIN = 64 << 10 };

struct budget;

struct pool {
    /* fixed after creation */
    unsigned number; /* in the budget; gc's pool number; 0 is inline in kind 0's budget */
    uint8_t kind;
    bool is_inline;      /* no slab: payloads live in the index; slot_bytes = INLINE_COST_BYTES */
    bool exact;          /* for one payload size; occupies one of the places while not empty */
    uint32_t slot_bytes; /* of each slot; unique among the slab pools of a kind */
    uint32_t slots_max;
    struct slot_pool *slots;
    struct budget *budget;
    /* atomic: set once by the write thread, before any record names the pool */
    struct slab *_Atomic slab;
    _Atomic uint64_t taken_slots; /* any thread */
};

struct budget_options {
    int rank_directory_fd; /* where the slabs are; stays the caller's */
    uint8_t kind;
    const char *kind_name;   /* for slab file names: <kind_name>-<slot_bytes>.slab; kind 0: "any" */
    uint64_t limit_bytes;    /* kind 0 */
    uint32_t payload_bytes;  /* declared kinds: the one page size */
    uint32_t slots;          /* declared kinds: fixed; limit = slots * slot_bytes */
    uint64_t max_file_bytes; /* kind 0 */
    bool read_only;
};

/*
 * Opens the slabs that the rank's directory already has for this kind (exact classes come back as
 * such; slabs of a declared kind with another slot size are -EINVAL: the caller decides by cold
 * start). -errno after one log line that names the file or the option. All pools start reset: cold
 * start rebuilds each of them, so that the blocks that the files have are accounted.
 *
 * The pools of the grid exist from the start, so that a publication never fails for want of one;
 * their memory is mapped lazily. A pool whose file is longer than the limit allows has as many
 * slots as the file, so that cold start finds all of them. Strange slab files are left alone.
 */
int budget_open(const struct budget_options *options, struct budget **ret_budget);
void budget_close(struct budget *budget); /* NULL is fine */

/* Any thread. The pool for a payload of so many bytes (0..max_file): inline up to 4096 in kind 0.
 * NULL: too large (EFBIG). May create an exact class. */
struct pool *budget_pool_for(struct budget *budget, uint64_t payload_bytes);
/* Any thread. The pool that a record names: slot_bytes, or 0 for inline. NULL: there is none. */
struct pool *budget_pool_by_slot_bytes(struct budget *budget, uint32_t slot_bytes);
/* Any thread: pools in order of number, for walks; NULL past the last. */
struct pool *budget_pool_at(struct budget *budget, unsigned number);
uint64_t budget_payload_max(const struct budget *budget);

/* Any thread, atomic: the bytes of one slot. False: so many are not left now (ask GC, wait). */
bool budget_take(struct pool *pool);
void budget_give(struct pool *pool);
uint64_t budget_taken_bytes(const struct budget *budget);
uint64_t budget_limit_bytes(const struct budget *budget);
uint64_t budget_backed_bytes(const struct budget *budget);

/*
 * Write thread. A WRITING slot for bytes already taken; opens the slab at first use and punches
 * other classes' free slots when the class has to grow. -ENOSPC: nothing to punch (pinned or
 * unpunchable slots hold the space: evict in this pool and try again); other -errno of the slab.
 */
int budget_allocate_slot(struct budget *budget, struct pool *pool, uint32_t *ret_slot);
/* Write thread. WRITING/RETIRING -> FREE and the bytes are given back. */
void budget_free_slot(struct budget *budget, struct pool *pool, uint32_t slot);
/*
 * Write thread, after a write that found the file system full: WRITING -> FREE without blocks. The
 * bytes stay taken: for another try, once a victim of the same pool has left a backed slot.
 */
void budget_return_bare_slot(struct budget *budget, struct pool *pool, uint32_t slot);
/* Write thread. Gives blocks of free slots back to the file system, at least so many bytes. False:
 * there are not so many, or they cannot be punched. */
bool budget_punch_free(struct budget *budget, uint64_t bytes);
/* Write thread, after a failed write: the slot is BAD and its bytes stay taken. */
void budget_quarantine_slot(struct budget *budget, struct pool *pool, uint32_t slot);

/*
 * Cold start, per pool: occupies these LIVE slots and takes their bytes (may exceed the limit when
 * `size` shrank: budget_excess_bytes says by how much the caller must evict). What lies beyond the
 * last occupied slot is cut off the file; free slots below it count as backed.
 */
int budget_rebuild_pool(struct budget *budget, struct pool *pool,
                        const struct slot_occupied *occupied, size_t count);
/* Cold start `clear`, per pool: all slots are free; those that the file has keep their blocks (the
 * bytes are void by the epoch), which reuse is glad of. */
int budget_adopt_free_pool(struct budget *budget, struct pool *pool);
/* Cold start, before the pool is rebuilt or adopted: removes the slab file of an exact class in
 * which nothing lives, so that sizes of long ago do not pile up. -errno. */
int budget_drop_slab(struct budget *budget, struct pool *pool);
/* Cold start `clear`, before pools are adopted: as above for exact classes beyond the number of
 * places, those with the shortest files. -errno. */
int budget_drop_surplus_slabs(struct budget *budget);
uint64_t budget_excess_bytes(const struct budget *budget); /* taken above the limit */
/* Cold start, after the rebuilds and any eviction: punches free slots until backed <= limit.
 * -ENOSPC: there are not enough free slots, or they cannot be punched. */
int budget_fit_to_limit(struct budget *budget);
/* False when the file system cannot punch holes: space cannot move between classes. */
bool budget_can_punch(const struct budget *budget);

/* Runs slot_pool_verify on all pools and recounts both accounts. CHECKs. Quiescent. */
void budget_verify(struct budget *budget);

#endif
