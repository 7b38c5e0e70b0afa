/* SPDX-License-Identifier: Apache-2.0 */
/* Which slots go next (core/gc.h): order, touches, pinned slots, and a naive model at random. */
#include "core/gc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLOT_BYTES = 8192, SLOTS = 1000, MOST = 64 };

static struct gc *make_gc(void) {
    struct gc *gc;
    cr_assert_eq(gc_create(&gc), 0);
    cr_assert_eq(gc_add_pool(gc, 3, SLOTS, SLOT_BYTES), 0);
    cr_assert_eq(gc_add_pool(gc, GC_POOLS_MAX - 1, SLOTS, 2 * SLOT_BYTES), 0);
    return gc;
}

static struct blob_key make_key(uint64_t number) {
    struct blob_key key = {.rank = 5, .kind = 2, .named = 1, .hash_bytes = 16};
    memcpy(key.hash, &number, sizeof(number));
    return key;
}

static void insert(struct gc *gc, unsigned pool, uint32_t slot, uint64_t sequence,
                   uint64_t last_access_ns) {
    struct blob_key key = make_key(sequence);
    cr_assert_eq(gc_insert(gc, pool, slot, &key, sequence, last_access_ns), 0);
}

static size_t pick(struct gc *gc, size_t most, struct gc_victim *ret_victims) {
    return gc_pick_victims(gc, UINT64_MAX, most, -1, NULL, NULL, ret_victims);
}

static bool keep_listed(void *argument, unsigned pool, uint32_t slot) {
    (void)pool;
    for (const uint32_t *kept = argument; *kept != UINT32_MAX; kept++)
        if (*kept == slot)
            return true;
    return false;
}

Test(gc, the_coldest_slot_is_picked_first) {
    struct gc *gc = make_gc();
    insert(gc, 3, 7, 100, 30);
    insert(gc, 3, 2, 101, 10);
    insert(gc, GC_POOLS_MAX - 1, 2, 102, 20);
    struct gc_victim victims[MOST];
    cr_assert_eq(pick(gc, MOST, victims), 3);
    cr_assert_eq(victims[0].sequence, 101);
    cr_assert_eq(victims[1].sequence, 102);
    cr_assert_eq(victims[1].slot_bytes, 2 * SLOT_BYTES);
    cr_assert_eq(victims[2].sequence, 100);
    gc_destroy(gc);
}

Test(gc, a_victim_tells_all_that_was_said_of_it) {
    struct gc *gc = make_gc();
    insert(gc, 3, 7, 100, 30);
    struct gc_victim victims[1], known;
    cr_assert_eq(pick(gc, 1, victims), 1);
    struct blob_key key = make_key(100);
    cr_assert(blob_key_equal(&victims[0].key, &key));
    cr_assert_eq(victims[0].pool, 3);
    cr_assert_eq(victims[0].slot, 7);
    cr_assert_eq(victims[0].slot_bytes, SLOT_BYTES);
    cr_assert_eq(victims[0].last_access_ns, 30);
    cr_assert(gc_get(gc, 3, 7, &known));
    cr_assert(blob_key_equal(&known.key, &key));
    cr_assert_eq(known.sequence, 100);
    gc_destroy(gc);
}

Test(gc, equal_access_times_go_by_sequence) {
    struct gc *gc = make_gc();
    for (uint32_t i = 0; i < 10; i++)
        insert(gc, 3, i, 100 - i, 30);
    struct gc_victim victims[10];
    cr_assert_eq(pick(gc, 10, victims), 10);
    for (uint32_t i = 0; i < 10; i++)
        cr_assert_eq(victims[i].sequence, 91 + i);
    gc_destroy(gc);
}

Test(gc, picking_stops_when_enough_bytes_are_found) {
    struct gc *gc = make_gc();
    for (uint32_t i = 0; i < 10; i++)
        insert(gc, 3, i, 100 + i, i);
    struct gc_victim victims[MOST];
    cr_assert_eq(gc_pick_victims(gc, 0, MOST, -1, NULL, NULL, victims), 0);
    cr_assert_eq(gc_pick_victims(gc, 1, MOST, -1, NULL, NULL, victims), 1);
    cr_assert_eq(gc_pick_victims(gc, 3 * SLOT_BYTES, MOST, -1, NULL, NULL, victims), 3);
    cr_assert_eq(gc_pick_victims(gc, 3 * SLOT_BYTES + 1, MOST, -1, NULL, NULL, victims), 4);
    cr_assert_eq(gc_pick_victims(gc, UINT64_MAX, 2, -1, NULL, NULL, victims), 2);
    gc_destroy(gc);
}

Test(gc, a_touched_slot_goes_later) {
    struct gc *gc = make_gc();
    insert(gc, 3, 1, 100, 10);
    insert(gc, 3, 2, 101, 20);
    cr_assert(gc_touch(gc, 3, 1, 100, 30));
    struct gc_victim victims[2];
    cr_assert_eq(pick(gc, 2, victims), 2);
    cr_assert_eq(victims[0].slot, 2);
    cr_assert_eq(victims[1].slot, 1);
    cr_assert_eq(victims[1].last_access_ns, 30);
    gc_verify(gc);
    gc_destroy(gc);
}

Test(gc, the_order_is_right_after_all_slots_were_touched) {
    struct gc *gc = make_gc();
    for (uint32_t i = 0; i < SLOTS; i++)
        insert(gc, 3, i, 100 + i, i);
    for (uint32_t i = 5; i < SLOTS; i++)
        cr_assert(gc_touch(gc, 3, i, 100 + i, 10000 - i));
    struct gc_victim victims[MOST];
    uint32_t kept[] = {3, 997, UINT32_MAX};
    cr_assert_eq(gc_pick_victims(gc, UINT64_MAX, MOST, -1, keep_listed, kept, victims), MOST);
    static const uint32_t expected[] = {0, 1, 2, 4, 999, 998, 996, 995};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        cr_assert_eq(victims[i].slot, expected[i]);
    gc_verify(gc);
    cr_assert_eq(gc_heap_entries(gc), SLOTS);
    gc_destroy(gc);
}

Test(gc, a_touch_never_moves_a_slot_earlier) {
    struct gc *gc = make_gc();
    insert(gc, 3, 1, 100, 10);
    insert(gc, 3, 2, 101, 20);
    cr_assert(gc_touch(gc, 3, 2, 101, 5));
    struct gc_victim victims[2];
    cr_assert_eq(pick(gc, 2, victims), 2);
    cr_assert_eq(victims[1].last_access_ns, 20);
    gc_destroy(gc);
}

Test(gc, a_touch_of_another_sequence_or_an_unknown_slot_is_ignored) {
    struct gc *gc = make_gc();
    insert(gc, 3, 1, 100, 10);
    cr_assert_not(gc_touch(gc, 3, 1, 99, 50));
    cr_assert_not(gc_touch(gc, 3, 2, 100, 50));
    cr_assert_not(gc_touch(gc, 3, SLOTS, 100, 50));
    cr_assert_not(gc_touch(gc, 4, 1, 100, 50));
    struct gc_victim known;
    cr_assert(gc_get(gc, 3, 1, &known));
    cr_assert_eq(known.last_access_ns, 10);
    cr_assert_not(gc_get(gc, 3, 2, &known));
    cr_assert_not(gc_get(gc, 4, 1, &known));
    gc_destroy(gc);
}

Test(gc, victims_stay_known_until_they_are_removed) {
    struct gc *gc = make_gc();
    for (uint32_t i = 0; i < 10; i++)
        insert(gc, 3, i, 100 + i, i);
    struct gc_victim first[4], again[4];
    cr_assert_eq(pick(gc, 4, first), 4);
    gc_verify(gc);
    cr_assert_eq(pick(gc, 4, again), 4);
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(first[i].sequence, again[i].sequence);
    for (size_t i = 0; i < 4; i++)
        gc_remove(gc, first[i].pool, first[i].slot);
    cr_assert_eq(pick(gc, 1, again), 1);
    cr_assert_eq(again[0].slot, 4);
    cr_assert_eq(gc_live_slots(gc), 6);
    cr_assert_eq(gc_live_bytes(gc), 6 * SLOT_BYTES);
    gc_destroy(gc);
}

Test(gc, kept_slots_are_passed_over_this_time_only) {
    struct gc *gc = make_gc();
    for (uint32_t i = 0; i < 10; i++)
        insert(gc, 3, i, 100 + i, i);
    uint32_t kept[] = {0, 2, UINT32_MAX};
    struct gc_victim victims[MOST];
    for (int only_pool = -1; only_pool <= 3; only_pool += 4) {
        cr_assert_eq(gc_pick_victims(gc, UINT64_MAX, 3, only_pool, keep_listed, kept, victims), 3);
        cr_assert_eq(victims[0].slot, 1);
        cr_assert_eq(victims[1].slot, 3);
        cr_assert_eq(victims[2].slot, 4);
        gc_verify(gc);
    }
    cr_assert_eq(pick(gc, MOST, victims), 10);
    cr_assert_eq(victims[0].slot, 0);
    gc_destroy(gc);
}

Test(gc, one_pool_alone_can_be_asked) {
    struct gc *gc = make_gc();
    for (uint32_t i = 0; i < 20; i++)
        insert(gc, i % 2 ? 3 : GC_POOLS_MAX - 1, i, 100 + i, 1000 - i);
    struct gc_victim victims[MOST];
    cr_assert_eq(gc_pick_victims(gc, 3 * SLOT_BYTES, MOST, 3, NULL, NULL, victims), 3);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(victims[i].pool, 3);
        cr_assert_eq(victims[i].slot, 19 - 2 * i);
    }
    gc_verify(gc);
    gc_destroy(gc);
}

Test(gc, a_slot_removed_and_inserted_under_the_same_sequence_is_picked_once) {
    struct gc *gc = make_gc();
    insert(gc, 3, 9, 50, 1);
    for (int i = 0; i < 3; i++) {
        insert(gc, 3, 1, 100, 10);
        gc_remove(gc, 3, 1);
    }
    insert(gc, 3, 1, 100, 10);
    struct gc_victim victims[MOST];
    cr_assert_eq(pick(gc, MOST, victims), 2);
    gc_verify(gc);
    gc_destroy(gc);
}

Test(gc, the_heap_stays_within_twice_the_live_slots) {
    struct gc *gc = make_gc();
    insert(gc, 3, 0, 1, 0); /* coldest: stale entries do not come to the top */
    for (uint64_t i = 0; i < 20000; i++) {
        insert(gc, 3, 1 + (uint32_t)(i % 10), 100 + i, 1000 + i);
        cr_assert_leq(gc_heap_entries(gc), 2 * gc_live_slots(gc) + 64);
        gc_remove(gc, 3, 1 + (uint32_t)(i % 10));
        cr_assert_leq(gc_heap_entries(gc), 2 * gc_live_slots(gc) + 64);
    }
    gc_verify(gc);
    gc_destroy(gc);
}

Test(gc, evicted_victims_leave_no_entry_behind) {
    struct gc *gc = make_gc();
    for (uint32_t i = 0; i < SLOTS; i++)
        insert(gc, 3, i, 100 + i, (i * 7919) % SLOTS);
    struct gc_victim victims[MOST];
    size_t found = pick(gc, MOST, victims);
    for (size_t i = 0; i < found; i++)
        gc_remove(gc, victims[i].pool, victims[i].slot);
    cr_assert_eq(gc_heap_entries(gc), gc_live_slots(gc));
    gc_destroy(gc);
}

Test(gc, a_reset_forgets_all_slots_and_keeps_the_pools) {
    struct gc *gc = make_gc();
    for (uint32_t i = 0; i < SLOTS; i++)
        insert(gc, 3, i, 100 + i, i);
    gc_reset(gc);
    gc_verify(gc);
    struct gc_victim victims[1];
    cr_assert_eq(gc_live_slots(gc), 0);
    cr_assert_eq(gc_live_bytes(gc), 0);
    cr_assert_eq(pick(gc, 1, victims), 0);
    insert(gc, 3, 5, 100, 50);
    cr_assert_eq(pick(gc, 1, victims), 1);
    gc_verify(gc);
    gc_destroy(gc);
}

Test(gc, a_pool_of_a_thousand_million_slots_is_announced_at_once) {
    struct gc *gc = make_gc();
    cr_assert_eq(gc_add_pool(gc, 0, 1000000000, SLOT_BYTES), 0);
    insert(gc, 0, 999999999, 1, 1);
    gc_remove(gc, 0, 999999999);
    gc_destroy(gc);
}

Test(gc, inserting_a_known_slot_aborts, .signal = SIGABRT) {
    struct gc *gc = make_gc();
    insert(gc, 3, 1, 100, 10);
    insert(gc, 3, 1, 101, 10);
}

Test(gc, removing_an_unknown_slot_aborts, .signal = SIGABRT) {
    struct gc *gc = make_gc();
    insert(gc, 3, 1, 100, 10);
    gc_remove(gc, 3, 2);
}

Test(gc, inserting_out_of_range_aborts, .signal = SIGABRT) {
    struct gc *gc = make_gc();
    insert(gc, 3, SLOTS, 100, 10);
}

/* against a naive model */

enum { MODEL_POOLS = 2, MODEL_SLOTS = 40 };

struct model_slot {
    bool live, pinned;
    uint64_t sequence, last_access_ns;
};

struct model {
    struct model_slot slots[MODEL_POOLS][MODEL_SLOTS];
    uint64_t sequence, clock;
};

static unsigned seed_for_test(void) {
    const char *given = getenv("SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    fprintf(stderr, "SEED=%u\n", seed);
    return seed;
}

static bool keep_pinned(void *argument, unsigned pool, uint32_t slot) {
    return ((struct model *)argument)->slots[pool][slot].pinned;
}

/* The coldest unpinned live slot that is not taken yet; false: none. */
static bool model_coldest(const struct model *model, int only_pool,
                          bool taken[MODEL_POOLS][MODEL_SLOTS], unsigned *ret_pool,
                          uint32_t *ret_slot) {
    const struct model_slot *best = NULL;
    for (unsigned pool = 0; pool < MODEL_POOLS; pool++)
        for (uint32_t slot = 0; slot < MODEL_SLOTS; slot++) {
            const struct model_slot *seen = &model->slots[pool][slot];
            if (!seen->live || seen->pinned || taken[pool][slot] ||
                (only_pool >= 0 && pool != (unsigned)only_pool))
                continue;
            if (best &&
                (best->last_access_ns < seen->last_access_ns ||
                 (best->last_access_ns == seen->last_access_ns && best->sequence < seen->sequence)))
                continue;
            best = seen;
            *ret_pool = pool;
            *ret_slot = slot;
        }
    return best != NULL;
}

static void compare_victims(struct model *model, struct gc *gc) {
    bool taken[MODEL_POOLS][MODEL_SLOTS] = {0};
    struct gc_victim victims[MOST];
    int only_pool = rand() % 3 == 0 ? rand() % MODEL_POOLS : -1;
    uint64_t want = (uint64_t)(rand() % 20) * SLOT_BYTES, bytes = 0;
    size_t most = (size_t)(rand() % 12), expected = 0;
    size_t found = gc_pick_victims(gc, want, most, only_pool, keep_pinned, model, victims);
    unsigned pool = 0;
    uint32_t slot = 0;
    for (; expected < most && bytes < want && model_coldest(model, only_pool, taken, &pool, &slot);
         expected++) {
        cr_assert_lt(expected, found);
        cr_assert_eq(victims[expected].pool, pool);
        cr_assert_eq(victims[expected].slot, slot);
        cr_assert_eq(victims[expected].sequence, model->slots[pool][slot].sequence);
        taken[pool][slot] = true;
        bytes += victims[expected].slot_bytes;
    }
    cr_assert_eq(found, expected);
    for (size_t i = 0; i < found && rand() % 2; i++) {
        gc_remove(gc, victims[i].pool, victims[i].slot);
        model->slots[victims[i].pool][victims[i].slot].live = false;
    }
}

static void change_slot(struct model *model, struct gc *gc) {
    unsigned pool = (unsigned)rand() % MODEL_POOLS;
    uint32_t slot = (uint32_t)rand() % MODEL_SLOTS;
    struct model_slot *changed = &model->slots[pool][slot];
    changed->pinned = rand() % 4 == 0;
    if (!changed->live) {
        *changed = (struct model_slot){.live = true,
                                       .pinned = changed->pinned,
                                       .sequence = ++model->sequence,
                                       .last_access_ns = model->clock += (uint64_t)(rand() % 2)};
        insert(gc, pool, slot, changed->sequence, changed->last_access_ns);
    } else if (rand() % 3) {
        uint64_t access = model->clock + (uint64_t)(rand() % 20) - 10;
        cr_assert(gc_touch(gc, pool, slot, changed->sequence, access));
        if (changed->last_access_ns < access)
            changed->last_access_ns = access;
    } else {
        gc_remove(gc, pool, slot);
        changed->live = false;
    }
}

Test(gc, it_agrees_with_a_naive_model) {
    srand(seed_for_test());
    struct gc *gc;
    cr_assert_eq(gc_create(&gc), 0);
    for (unsigned pool = 0; pool < MODEL_POOLS; pool++)
        cr_assert_eq(gc_add_pool(gc, pool, MODEL_SLOTS, (pool + 1) * SLOT_BYTES), 0);
    struct model model = {.clock = 1000};
    for (int step = 0; step < 20000; step++) {
        if (rand() % 5 == 0)
            compare_victims(&model, gc);
        else
            change_slot(&model, gc);
        gc_verify(gc);
    }
    gc_destroy(gc);
}
