/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One budget from the inside, for the files that make it up: budget_pools.c (which pool),
 * budget_open.c (what the directory has), budget.c (accounts and slots).
 */
#ifndef CPL3_CORE_BUDGET_INTERNAL_H
#define CPL3_CORE_BUDGET_INTERNAL_H

#include <pthread.h>

#include "core/budget.h"
#include "core/gc.h"
#include "core/size_class.h"

enum {
    BUDGET_INLINE_NUMBER = 0,
    BUDGET_KIND_NAME_BYTES = 32,
    BUDGET_SLOTS_MAX = INT32_MAX, /* of a pool */
    BUDGET_EXACT_POOLS_MAX = GC_POOLS_MAX - 1 - SIZE_CLASSES_MAX,
};
static_assert((int)BUDGET_EXACT_POOLS_MAX >= (int)BUDGET_EXACT_CLASSES);

struct budget {
    /* fixed after open */
    int rank_directory_fd; /* the caller's */
    uint8_t kind;
    bool read_only;
    char kind_name[BUDGET_KIND_NAME_BYTES];
    uint64_t limit_bytes;
    uint64_t payload_max;
    struct size_grid grid;
    struct pool *grid_pools[SIZE_CLASSES_MAX]; /* NULL: above max_file and without a file */

    /* atomic */
    _Atomic uint64_t taken_bytes;
    _Atomic uint64_t backed_bytes; /* changed by the write thread only */
    _Atomic bool can_punch;

    unsigned grow_alone_slots; /* the write thread's: so many get their blocks one by one */

    pthread_mutex_t lock; /* held to add a pool; reading needs none */
    /* atomic: an element is set before the count that covers it, and never changes. Pools of exact
     * classes that gave up their place stay: their size may come back */
    _Atomic unsigned pool_count, exact_count;
    struct pool *_Atomic pools[GC_POOLS_MAX];
    struct pool *_Atomic exact_pools[BUDGET_EXACT_POOLS_MAX];
};

/* Slots of a class that fit the limit, at least 1. */
uint32_t budget_slots_within_limit(const struct budget *budget, uint32_t slot_bytes);
/* A pool that nobody sees before budget_publish_pool gives it its number. -ENOMEM. */
int budget_make_pool(struct budget *budget, uint32_t slot_bytes, uint32_t slots_max,
                     struct pool **ret_pool);
void budget_free_pool(struct pool *pool);
/* Says once that space cannot move. */
void budget_note_unpunchable(struct budget *budget);
/* Under lock, or during open. */
void budget_publish_pool(struct budget *budget, struct pool *pool);

#endif
