/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pool a payload goes to, and the making of pools. The fast path reads without a lock: pools
 * are only ever added, and the grid's are there from the start.
 */
#include "core/budget_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "core/check.h"
#include "core/cleanup.h"

uint32_t budget_slots_within_limit(const struct budget *budget, uint32_t slot_bytes) {
    uint64_t slots = budget->limit_bytes / slot_bytes;
    if (slots < 1)
        slots = 1;
    return slots < BUDGET_SLOTS_MAX ? (uint32_t)slots : BUDGET_SLOTS_MAX;
}

void budget_free_pool(struct pool *pool) {
    slab_close(atomic_load(&pool->slab));
    slot_pool_destroy(pool->slots);
    free(pool);
}

int budget_make_pool(struct budget *budget, uint32_t slot_bytes, uint32_t slots_max,
                     struct pool **ret_pool) {
    AUTO_FREE struct pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return -ENOMEM;
    pool->kind = budget->kind;
    pool->slot_bytes = slot_bytes;
    pool->slots_max = slots_max;
    pool->budget = budget;
    int r = slot_pool_create(slots_max, &pool->slots);
    if (r)
        return r;
    *ret_pool = pool;
    pool = NULL;
    return 0;
}

void budget_publish_pool(struct budget *budget, struct pool *pool) {
    unsigned number = atomic_load(&budget->pool_count);
    CHECK(number < GC_POOLS_MAX);
    pool->number = number;
    atomic_store(&budget->pools[number], pool);
    atomic_store(&budget->pool_count, number + 1);
    if (!pool->exact)
        return;
    unsigned exact = atomic_load(&budget->exact_count);
    CHECK(exact < BUDGET_EXACT_POOLS_MAX);
    atomic_store(&budget->exact_pools[exact], pool);
    atomic_store(&budget->exact_count, exact + 1);
}

/* exact classes */

static bool is_empty(const struct pool *pool) {
    return atomic_load(&pool->taken_slots) == 0;
}

static struct pool *find_exact(struct budget *budget, uint32_t slot_bytes) {
    unsigned count = atomic_load(&budget->exact_count);
    for (unsigned i = 0; i < count; i++) {
        struct pool *pool = atomic_load(&budget->exact_pools[i]);
        if (pool->slot_bytes == slot_bytes)
            return pool;
    }
    return NULL;
}

/* The one with the smallest slots of more than so many bytes among those that are in use, or NULL.
 * ret_places: how many are in use. Approximate while others publish: a ninth class does no harm. */
static struct pool *find_larger_exact(struct budget *budget, uint32_t slot_bytes,
                                      unsigned *ret_places) {
    struct pool *best = NULL;
    unsigned count = atomic_load(&budget->exact_count), places = 0;
    for (unsigned i = 0; i < count; i++) {
        struct pool *pool = atomic_load(&budget->exact_pools[i]);
        if (is_empty(pool))
            continue;
        places++;
        if (pool->slot_bytes > slot_bytes && (!best || pool->slot_bytes < best->slot_bytes))
            best = pool;
    }
    *ret_places = places;
    return best;
}

/* A class of its own for this size. NULL: no memory or no room in the table; the grid serves. */
static struct pool *add_exact(struct budget *budget, uint32_t slot_bytes) {
    SCOPE_LOCK(&budget->lock);
    struct pool *pool = find_exact(budget, slot_bytes);
    if (pool)
        return pool;
    if (atomic_load(&budget->exact_count) >= BUDGET_EXACT_POOLS_MAX ||
        budget_make_pool(budget, slot_bytes, budget_slots_within_limit(budget, slot_bytes), &pool))
        return NULL;
    pool->exact = true;
    budget_publish_pool(budget, pool);
    return pool;
}

/* For a size that is not on the grid. */
static struct pool *choose_class(struct budget *budget, uint32_t slot_bytes, struct pool *grid) {
    struct pool *exact = find_exact(budget, slot_bytes);
    if (exact && !is_empty(exact))
        return exact;
    unsigned places;
    struct pool *larger = find_larger_exact(budget, slot_bytes, &places);
    if (slot_bytes >= slot_bytes_for_page(BUDGET_EXACT_BYTES_MIN) &&
        places < BUDGET_EXACT_CLASSES) {
        if (!exact)
            exact = add_exact(budget, slot_bytes);
        if (exact)
            return exact;
    }
    return larger && larger->slot_bytes < grid->slot_bytes ? larger : grid;
}

struct pool *budget_pool_for(struct budget *budget, uint64_t payload_bytes) {
    if (payload_bytes > budget->payload_max)
        return NULL;
    if (budget->kind != 0)
        return atomic_load(&budget->pools[0]);
    if (payload_bytes <= INLINE_BYTES_MAX)
        return atomic_load(&budget->pools[BUDGET_INLINE_NUMBER]);
    uint32_t slot_bytes = (uint32_t)slot_bytes_for_page(payload_bytes);
    struct pool *grid = budget->grid_pools[size_grid_class_for(&budget->grid, slot_bytes)];
    return grid->slot_bytes == slot_bytes ? grid : choose_class(budget, slot_bytes, grid);
}

struct pool *budget_pool_by_slot_bytes(struct budget *budget, uint32_t slot_bytes) {
    struct pool *pool = NULL;
    if (budget->kind != 0)
        pool = atomic_load(&budget->pools[0]);
    else if (slot_bytes == 0)
        return atomic_load(&budget->pools[BUDGET_INLINE_NUMBER]);
    else if (size_grid_has(&budget->grid, slot_bytes))
        pool = budget->grid_pools[size_grid_class_for(&budget->grid, slot_bytes)];
    else
        pool = find_exact(budget, slot_bytes);
    return pool && pool->slot_bytes == slot_bytes ? pool : NULL;
}

struct pool *budget_pool_at(struct budget *budget, unsigned number) {
    return number < atomic_load(&budget->pool_count) ? atomic_load(&budget->pools[number]) : NULL;
}

uint64_t budget_payload_max(const struct budget *budget) {
    return budget->payload_max;
}
