/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two accounts of a budget, its slots, and how space moves between pools (see budget.h). The
 * rule backed <= limit is kept in two places: a slot gets its first blocks only in grow, after
 * make_room, and in grow_ahead, which stays below the limit.
 */
#include "core/budget_internal.h"

#include <errno.h>

#include "core/check.h"
#include "core/log.h"

enum {
    GROW_AHEAD_BYTES = 32 << 20,
    GROW_ALONE_SLOTS = 64, /* after it failed: a disk that is nearly full is not filled each time */
};

/* taken: any thread */

bool budget_take(struct pool *pool) {
    struct budget *budget = pool->budget;
    uint64_t bytes = pool->slot_bytes, taken = atomic_load(&budget->taken_bytes);
    do {
        /* Above the limit after `size` shrank: nothing is given until enough is evicted. */
        if (taken > budget->limit_bytes || bytes > budget->limit_bytes - taken)
            return false;
    } while (!atomic_compare_exchange_weak(&budget->taken_bytes, &taken, taken + bytes));
    atomic_fetch_add(&pool->taken_slots, 1);
    return true;
}

void budget_give(struct pool *pool) {
    uint64_t slots_before = atomic_fetch_sub(&pool->taken_slots, 1);
    uint64_t bytes_before = atomic_fetch_sub(&pool->budget->taken_bytes, pool->slot_bytes);
    CHECK(slots_before >= 1 && bytes_before >= pool->slot_bytes);
}

uint64_t budget_taken_bytes(const struct budget *budget) {
    return atomic_load(&budget->taken_bytes);
}

uint64_t budget_limit_bytes(const struct budget *budget) {
    return budget->limit_bytes;
}

uint64_t budget_backed_bytes(const struct budget *budget) {
    return atomic_load(&budget->backed_bytes);
}

uint64_t budget_excess_bytes(const struct budget *budget) {
    uint64_t taken = budget_taken_bytes(budget);
    return taken > budget->limit_bytes ? taken - budget->limit_bytes : 0;
}

bool budget_can_punch(const struct budget *budget) {
    return atomic_load(&budget->can_punch);
}

/* backed: write thread */

static void add_backed(struct budget *budget, uint64_t bytes) {
    atomic_fetch_add(&budget->backed_bytes, bytes);
}

static void drop_backed(struct budget *budget, uint64_t bytes) {
    uint64_t before = atomic_fetch_sub(&budget->backed_bytes, bytes);
    CHECK(before >= bytes);
}

/* The pool with the most bytes in free slots with blocks, or NULL: idle classes give first. */
static struct pool *find_richest(struct budget *budget) {
    struct pool *richest = NULL, *pool;
    uint64_t most = 0;
    for (unsigned i = 0; (pool = budget_pool_at(budget, i)); i++) {
        if (pool->is_inline)
            continue;
        uint64_t bytes = (uint64_t)slot_pool_backed_free_slots(pool->slots) * pool->slot_bytes;
        if (bytes > most) {
            most = bytes;
            richest = pool;
        }
    }
    return richest;
}

void budget_note_unpunchable(struct budget *budget) {
    if (atomic_exchange(&budget->can_punch, false) && budget->kind == 0)
        log_notice("the store's file system cannot punch holes: space that one size of pages has "
                   "used cannot move to another size");
}

/* Gives the blocks of one free slot back to the file system. -ENOSPC: no slot can give any. */
static int punch_one(struct budget *budget) {
    struct pool *pool = budget_can_punch(budget) ? find_richest(budget) : NULL;
    if (!pool)
        return -ENOSPC;
    struct slab *slab = atomic_load(&pool->slab);
    CHECK(slab);
    uint32_t slot;
    int r = slot_pool_take_backed(pool->slots, &slot);
    CHECK(r == 0);
    r = slab_punch(slab, slot);
    if (r) {
        slot_pool_free(pool->slots, slot);
        if (r != -EOPNOTSUPP)
            return r;
        budget_note_unpunchable(budget);
        return -ENOSPC;
    }
    slot_pool_free_bare(pool->slots, slot);
    drop_backed(budget, pool->slot_bytes);
    return 0;
}

static int make_room(struct budget *budget, uint64_t bytes) {
    while (budget_backed_bytes(budget) + bytes > budget->limit_bytes) {
        int r = punch_one(budget);
        if (r)
            return r;
    }
    return 0;
}

int budget_fit_to_limit(struct budget *budget) {
    return make_room(budget, 0);
}

/* slots */

/* At first use. */
static int open_slab(struct budget *budget, struct pool *pool) {
    if (atomic_load(&pool->slab))
        return 0;
    char name[SLAB_NAME_BYTES_MAX];
    slab_name_format(budget->kind_name, pool->slot_bytes, name);
    struct slab *slab;
    int r =
        slab_open(budget->rank_directory_fd, name, pool->slot_bytes, pool->slots_max, false, &slab);
    if (r == 0)
        atomic_store(&pool->slab, slab);
    return r;
}

/*
 * Gives blocks to many slots that were never used, ahead of their writes. A write that makes the
 * file longer or fills a hole holds up all others of that file; these do neither. Only what the
 * limit leaves anyway, so nothing is taken from another pool for it. True: there is one now.
 */
static bool grow_ahead(struct budget *budget, struct pool *pool) {
    uint64_t backed = budget_backed_bytes(budget);
    uint64_t room = backed < budget->limit_bytes ? budget->limit_bytes - backed : 0;
    uint64_t bytes = pool->slot_bytes > GROW_AHEAD_BYTES ? pool->slot_bytes : GROW_AHEAD_BYTES;
    if (bytes > room / 4) /* other sizes come, too */
        bytes = room / 4;
    uint32_t first, fresh = slot_pool_fresh_slots(pool->slots, &first);
    uint64_t count = bytes / pool->slot_bytes;
    if (count > fresh)
        count = fresh;
    if (budget->grow_alone_slots > 0) {
        budget->grow_alone_slots--;
        return false;
    }
    if (count == 0)
        return false;
    if (slab_allocate(atomic_load(&pool->slab), first, (uint32_t)count) != 0) {
        budget->grow_alone_slots = GROW_ALONE_SLOTS;
        return false;
    }
    slot_pool_back_fresh(pool->slots, (uint32_t)count);
    add_backed(budget, count * pool->slot_bytes);
    return true;
}

/* A slot without blocks; they exist from here on, though the write that makes them comes later. */
static int grow(struct budget *budget, struct pool *pool, uint32_t *ret_slot) {
    if (slot_pool_free_slots(pool->slots) == 0)
        return -ENOSPC;
    int r = make_room(budget, pool->slot_bytes);
    if (r)
        return r;
    r = slot_pool_allocate(pool->slots, ret_slot);
    CHECK(r == 0);
    if (!pool->is_inline)
        (void)slab_allocate(atomic_load(&pool->slab), *ret_slot, 1); /* else the write does */
    add_backed(budget, pool->slot_bytes);
    CHECK(budget_backed_bytes(budget) <= budget->limit_bytes);
    return 0;
}

int budget_allocate_slot(struct budget *budget, struct pool *pool, uint32_t *ret_slot) {
    CHECK_ON(WRITER);
    CHECK(pool->budget == budget && !budget->read_only);
    if (pool->is_inline)
        return grow(budget, pool, ret_slot);
    int r = open_slab(budget, pool);
    if (r)
        return r;
    if (slot_pool_backed_free_slots(pool->slots) > 0 || grow_ahead(budget, pool))
        return slot_pool_allocate(pool->slots, ret_slot);
    return grow(budget, pool, ret_slot);
}

void budget_free_slot(struct budget *budget, struct pool *pool, uint32_t slot) {
    CHECK_ON(WRITER);
    CHECK(pool->budget == budget);
    slot_pool_free(pool->slots, slot);
    if (pool->is_inline)
        drop_backed(budget, pool->slot_bytes);
    budget_give(pool);
}

void budget_return_bare_slot(struct budget *budget, struct pool *pool, uint32_t slot) {
    CHECK_ON(WRITER);
    CHECK(pool->budget == budget && !pool->is_inline);
    /* What the write got before the disk was full counts until it is known to be gone. */
    if (slab_punch(atomic_load(&pool->slab), slot) != 0) {
        slot_pool_free(pool->slots, slot);
        return;
    }
    slot_pool_free_bare(pool->slots, slot);
    drop_backed(budget, pool->slot_bytes);
}

bool budget_punch_free(struct budget *budget, uint64_t bytes) {
    CHECK_ON(WRITER);
    uint64_t backed = budget_backed_bytes(budget);
    uint64_t goal = backed > bytes ? backed - bytes : 0;
    while (budget_backed_bytes(budget) > goal)
        if (punch_one(budget) != 0)
            return false;
    return true;
}

void budget_quarantine_slot(struct budget *budget, struct pool *pool, uint32_t slot) {
    CHECK_ON(WRITER);
    CHECK(pool->budget == budget);
    slot_pool_quarantine(pool->slots, slot);
}

/* cold start */

/* Slots that the slab's file reaches once what is beyond slots_used is cut off. */
static int trim_slab(const struct budget *budget, struct pool *pool, uint32_t slots_used,
                     uint32_t *ret_slots) {
    struct slab *slab = atomic_load(&pool->slab);
    uint32_t slots = 0;
    int r = slab ? slab_slots_in_file(slab, &slots) : 0;
    if (r)
        return r;
    if (slots < slots_used) /* somebody cut the file meanwhile */
        return -EIO;
    if (slots > slots_used && !budget->read_only) {
        r = slab_truncate(slab, slots_used);
        if (r)
            return r;
        slots = slots_used;
    }
    *ret_slots = slots;
    return 0;
}

int budget_rebuild_pool(struct budget *budget, struct pool *pool,
                        const struct slot_occupied *occupied, size_t count) {
    CHECK(pool->budget == budget);
    uint32_t slots_used = 0;
    for (size_t i = 0; i < count; i++)
        if (slots_used <= occupied[i].slot)
            slots_used = occupied[i].slot + 1;
    uint32_t slots_backed = slots_used;
    int r = pool->is_inline ? 0 : trim_slab(budget, pool, slots_used, &slots_backed);
    if (r)
        return r;
    slot_pool_rebuild_from_allocated(pool->slots, occupied, count, slots_backed);
    atomic_fetch_add(&pool->taken_slots, count);
    atomic_fetch_add(&budget->taken_bytes, count * pool->slot_bytes);
    add_backed(budget, (pool->is_inline ? count : slots_backed) * pool->slot_bytes);
    return 0;
}

int budget_adopt_free_pool(struct budget *budget, struct pool *pool) {
    CHECK(pool->budget == budget);
    struct slab *slab = atomic_load(&pool->slab);
    uint32_t slots = 0;
    int r = slab ? slab_slots_in_file(slab, &slots) : 0;
    if (r)
        return r;
    if (slots > pool->slots_max)
        slots = pool->slots_max;
    slot_pool_rebuild_from_allocated(pool->slots, NULL, 0, slots);
    add_backed(budget, (uint64_t)slots * pool->slot_bytes);
    return 0;
}

/* checking */

void budget_verify(struct budget *budget) {
    uint64_t used_bytes = 0, backed_bytes = 0;
    struct pool *pool;
    for (unsigned i = 0; (pool = budget_pool_at(budget, i)); i++) {
        CHECK(pool->number == i && pool->budget == budget && pool->kind == budget->kind);
        slot_pool_verify(pool->slots);
        uint64_t used = pool->slots_max - slot_pool_free_slots(pool->slots);
        uint64_t backed = pool->is_inline ? used : slot_pool_backed_slots(pool->slots);
        CHECK(pool->is_inline || backed == 0 || atomic_load(&pool->slab));
        CHECK(used <= atomic_load(&pool->taken_slots));
        used_bytes += used * pool->slot_bytes;
        backed_bytes += backed * pool->slot_bytes;
    }
    /* More may be taken: for publications that have no slot yet. */
    CHECK(used_bytes <= budget_taken_bytes(budget));
    CHECK(backed_bytes == budget_backed_bytes(budget));
}
