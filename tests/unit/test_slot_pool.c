/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: every transition, every misuse, the free lists, and pins that race with retiring. */
#include "core/slot_pool.h"

#include "core/clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

static struct slot_pool *create(uint32_t slots_max) {
    struct slot_pool *pool;
    cr_assert_eq(slot_pool_create(slots_max, &pool), 0);
    return pool;
}

static uint32_t allocate(struct slot_pool *pool) {
    uint32_t slot;
    cr_assert_eq(slot_pool_allocate(pool, &slot), 0);
    return slot;
}

static uint32_t allocate_live(struct slot_pool *pool, uint64_t sequence) {
    uint32_t slot = allocate(pool);
    slot_pool_publish(pool, slot, sequence);
    return slot;
}

static void expect_counts(const struct slot_pool *pool, uint32_t free_slots,
                          uint32_t backed_free_slots, uint32_t backed_slots) {
    slot_pool_verify(pool);
    cr_expect_eq(slot_pool_free_slots(pool), free_slots);
    cr_expect_eq(slot_pool_backed_free_slots(pool), backed_free_slots);
    cr_expect_eq(slot_pool_backed_slots(pool), backed_slots);
}

Test(slot_pool, no_slots_are_refused) {
    struct slot_pool *pool;
    cr_expect_eq(slot_pool_create(0, &pool), -EINVAL);
    slot_pool_destroy(NULL);
}

Test(slot_pool, the_largest_pool_costs_nothing_until_it_is_used) {
    struct slot_pool *pool = create(UINT32_MAX);
    cr_expect_eq(allocate(pool), 0);
    expect_counts(pool, UINT32_MAX - 1, 0, 1);
    slot_pool_destroy(pool);
}

Test(slot_pool, each_slot_is_given_out_once_and_then_none) {
    struct slot_pool *pool = create(100);
    bool seen[100] = {0};
    expect_counts(pool, 100, 0, 0);
    for (int i = 0; i < 100; i++) {
        uint32_t slot = allocate(pool);
        cr_assert_lt(slot, 100);
        cr_expect_not(seen[slot]);
        seen[slot] = true;
    }
    uint32_t slot = 77;
    cr_expect_eq(slot_pool_allocate(pool, &slot), -ENOSPC);
    cr_expect_eq(slot, 77);
    expect_counts(pool, 0, 0, 100);
    slot_pool_destroy(pool);
}

Test(slot_pool, a_slot_with_blocks_is_preferred_to_growing) {
    struct slot_pool *pool = create(10);
    allocate(pool);
    uint32_t second = allocate(pool);
    slot_pool_free(pool, second);
    expect_counts(pool, 9, 1, 2);
    cr_expect_eq(allocate(pool), second);
    cr_expect_eq(allocate(pool), 2);
    slot_pool_destroy(pool);
}

Test(slot_pool, fresh_slots_that_got_blocks_come_lowest_first) {
    struct slot_pool *pool = create(10);
    uint32_t first;
    allocate(pool);
    cr_expect_eq(slot_pool_fresh_slots(pool, &first), 9);
    cr_expect_eq(first, 1);
    slot_pool_back_fresh(pool, 3);
    expect_counts(pool, 9, 3, 4);
    for (uint32_t slot = 1; slot < 4; slot++)
        cr_expect_eq(allocate(pool), slot);
    slot_pool_back_fresh(pool, 6);
    expect_counts(pool, 6, 6, 10);
    cr_expect_eq(slot_pool_fresh_slots(pool, &first), 0);
    for (uint32_t slot = 4; slot < 10; slot++)
        cr_expect_eq(allocate(pool), slot);
    expect_counts(pool, 0, 0, 10);
    slot_pool_destroy(pool);
}

Test(slot_pool, a_punched_slot_is_preferred_to_a_longer_file) {
    struct slot_pool *pool = create(10);
    for (int i = 0; i < 3; i++)
        allocate(pool);
    slot_pool_free(pool, 1);
    uint32_t taken;
    cr_assert_eq(slot_pool_take_backed(pool, &taken), 0);
    cr_expect_eq(taken, 1);
    cr_expect_eq(slot_pool_state(pool, 1), SLOT_WRITING);
    expect_counts(pool, 7, 0, 3);
    slot_pool_free_bare(pool, 1);
    expect_counts(pool, 8, 0, 2);
    cr_expect_eq(slot_pool_take_backed(pool, &taken), -ENOENT);
    cr_expect_eq(allocate(pool), 1);
    expect_counts(pool, 7, 0, 3);
    slot_pool_destroy(pool);
}

Test(slot_pool, a_slot_that_could_not_be_punched_stays_backed) {
    struct slot_pool *pool = create(4);
    slot_pool_free(pool, allocate(pool));
    uint32_t taken;
    cr_assert_eq(slot_pool_take_backed(pool, &taken), 0);
    slot_pool_free(pool, taken);
    expect_counts(pool, 4, 1, 1);
    slot_pool_destroy(pool);
}

Test(slot_pool, only_a_live_slot_of_that_sequence_can_be_pinned) {
    struct slot_pool *pool = create(4);
    uint32_t slot = allocate(pool);
    cr_expect_not(slot_pool_pin(pool, slot, 0), "writing");
    cr_expect_not(slot_pool_pin(pool, slot + 1, 0), "free");
    slot_pool_publish(pool, slot, 41);
    cr_expect_not(slot_pool_pin(pool, slot, 40));
    cr_expect_not(slot_pool_pin(pool, slot, 42));
    cr_expect(slot_pool_pin(pool, slot, 41));
    cr_expect_eq(slot_pool_pins(pool, slot), 1);
    cr_expect_not(slot_pool_unpin(pool, slot));
    cr_expect(slot_pool_retire(pool, slot));
    cr_expect_not(slot_pool_pin(pool, slot, 41), "retiring");
    slot_pool_free(pool, slot);
    cr_expect_not(slot_pool_pin(pool, slot, 41), "free");
    slot_pool_destroy(pool);
}

Test(slot_pool, a_reused_slot_is_not_pinned_by_its_old_sequence) {
    struct slot_pool *pool = create(1);
    uint32_t slot = allocate_live(pool, 1);
    slot_pool_retire(pool, slot);
    slot_pool_free(pool, slot);
    cr_expect_eq(allocate_live(pool, 2), slot);
    cr_expect_not(slot_pool_pin(pool, slot, 1));
    cr_expect(slot_pool_pin(pool, slot, 2));
    slot_pool_destroy(pool);
}

Test(slot_pool, sequences_above_40_bits_work) {
    struct slot_pool *pool = create(1);
    uint64_t sequence = (UINT64_C(1) << 40) + 3;
    uint32_t slot = allocate_live(pool, sequence);
    cr_expect(slot_pool_pin(pool, slot, sequence));
    cr_expect_eq(slot_pool_state(pool, slot), SLOT_LIVE);
    slot_pool_verify(pool);
    slot_pool_destroy(pool);
}

Test(slot_pool, the_last_unpin_of_a_retiring_slot_says_so) {
    struct slot_pool *pool = create(1);
    uint32_t slot = allocate_live(pool, 9);
    cr_assert(slot_pool_pin(pool, slot, 9));
    cr_assert(slot_pool_pin(pool, slot, 9));
    cr_expect_not(slot_pool_retire(pool, slot));
    cr_expect_not(slot_pool_unpin(pool, slot));
    cr_expect(slot_pool_unpin(pool, slot));
    slot_pool_free(pool, slot);
    expect_counts(pool, 1, 1, 1);
    slot_pool_destroy(pool);
}

Test(slot_pool, pins_are_refused_when_their_counter_is_full) {
    struct slot_pool *pool = create(1);
    uint32_t slot = allocate_live(pool, 9);
    uint32_t pins = 0;
    while (pins < 1u << 21 && slot_pool_pin(pool, slot, 9))
        pins++;
    cr_expect_eq(pins, (1u << 20) - 1);
    cr_expect_eq(slot_pool_state(pool, slot), SLOT_LIVE);
    cr_expect_not(slot_pool_unpin(pool, slot));
    cr_expect(slot_pool_pin(pool, slot, 9));
    slot_pool_destroy(pool);
}

Test(slot_pool, a_quarantined_slot_never_comes_back) {
    struct slot_pool *pool = create(3);
    uint32_t writing = allocate(pool), live = allocate_live(pool, 1);
    slot_pool_quarantine(pool, writing);
    cr_assert(slot_pool_pin(pool, live, 1));
    slot_pool_quarantine(pool, live);
    cr_expect_not(slot_pool_pin(pool, live, 1));
    cr_expect_not(slot_pool_unpin(pool, live), "nothing to free");
    cr_expect_eq(slot_pool_state(pool, live), SLOT_BAD);
    cr_expect_eq(allocate(pool), 2);
    uint32_t slot;
    cr_expect_eq(slot_pool_allocate(pool, &slot), -ENOSPC);
    expect_counts(pool, 0, 0, 3);
    slot_pool_destroy(pool);
}

Test(slot_pool, reset_frees_all_and_keeps_what_is_backed) {
    struct slot_pool *pool = create(10);
    for (int i = 0; i < 5; i++)
        allocate(pool);
    slot_pool_publish(pool, 0, 1);
    slot_pool_quarantine(pool, 1);
    slot_pool_free(pool, 2);
    slot_pool_free_bare(pool, 3);
    slot_pool_reset(pool);
    expect_counts(pool, 10, 4, 4);
    for (uint32_t slot = 0; slot < 10; slot++)
        cr_expect_eq(slot_pool_state(pool, slot), SLOT_FREE);
    cr_expect_eq(allocate(pool), 0);
    slot_pool_destroy(pool);
}

Test(slot_pool, rebuild_occupies_exactly_what_is_given) {
    struct slot_pool *pool = create(100);
    const struct slot_occupied occupied[] = {{7, 70}, {3, 30}, {9, 90}};
    slot_pool_rebuild_from_allocated(pool, occupied, 3, 10);
    expect_counts(pool, 97, 7, 10);
    cr_expect(slot_pool_pin(pool, 7, 70));
    cr_expect_not(slot_pool_pin(pool, 3, 70));
    static const uint32_t expected[] = {0, 1, 2, 4, 5, 6, 8, 10, 11};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        cr_expect_eq(allocate(pool), expected[i]);
    slot_pool_verify(pool);
    slot_pool_destroy(pool);
}

Test(slot_pool, rebuild_after_reset_forgets_blocks_that_the_file_lost) {
    struct slot_pool *pool = create(100);
    for (int i = 0; i < 20; i++)
        allocate(pool);
    slot_pool_reset(pool);
    const struct slot_occupied occupied = {4, 1};
    slot_pool_rebuild_from_allocated(pool, &occupied, 1, 5);
    expect_counts(pool, 99, 4, 5);
    slot_pool_destroy(pool);
}

Test(slot_pool, rebuild_of_nothing_is_an_empty_pool) {
    struct slot_pool *pool = create(5);
    slot_pool_rebuild_from_allocated(pool, NULL, 0, 0);
    expect_counts(pool, 5, 0, 0);
    slot_pool_rebuild_from_allocated(pool, NULL, 0, 5);
    expect_counts(pool, 5, 5, 5);
    slot_pool_destroy(pool);
}

/* misuse */

Test(slot_pool, freeing_a_free_slot_aborts, .signal = SIGABRT) {
    struct slot_pool *pool = create(4);
    uint32_t slot = allocate(pool);
    slot_pool_free(pool, slot);
    slot_pool_free(pool, slot);
}

Test(slot_pool, freeing_a_never_used_slot_aborts, .signal = SIGABRT) {
    slot_pool_free(create(4), 2);
}

Test(slot_pool, freeing_out_of_range_aborts, .signal = SIGABRT) {
    slot_pool_free(create(4), 4);
}

Test(slot_pool, freeing_a_live_slot_aborts, .signal = SIGABRT) {
    struct slot_pool *pool = create(4);
    slot_pool_free(pool, allocate_live(pool, 1));
}

Test(slot_pool, freeing_a_pinned_slot_aborts, .signal = SIGABRT) {
    struct slot_pool *pool = create(4);
    uint32_t slot = allocate_live(pool, 1);
    slot_pool_pin(pool, slot, 1);
    slot_pool_retire(pool, slot);
    slot_pool_free(pool, slot);
}

Test(slot_pool, freeing_a_quarantined_slot_aborts, .signal = SIGABRT) {
    struct slot_pool *pool = create(4);
    uint32_t slot = allocate(pool);
    slot_pool_quarantine(pool, slot);
    slot_pool_free(pool, slot);
}

Test(slot_pool, publishing_twice_aborts, .signal = SIGABRT) {
    struct slot_pool *pool = create(4);
    slot_pool_publish(pool, allocate_live(pool, 1), 2);
}

Test(slot_pool, retiring_twice_aborts, .signal = SIGABRT) {
    struct slot_pool *pool = create(4);
    uint32_t slot = allocate_live(pool, 1);
    slot_pool_retire(pool, slot);
    slot_pool_retire(pool, slot);
}

Test(slot_pool, unpinning_what_is_not_pinned_aborts, .signal = SIGABRT) {
    struct slot_pool *pool = create(4);
    slot_pool_unpin(pool, allocate_live(pool, 1));
}

Test(slot_pool, resetting_a_pinned_pool_aborts, .signal = SIGABRT) {
    struct slot_pool *pool = create(4);
    slot_pool_pin(pool, allocate_live(pool, 1), 1);
    slot_pool_reset(pool);
}

Test(slot_pool, rebuilding_with_a_duplicate_aborts, .signal = SIGABRT) {
    const struct slot_occupied occupied[] = {{2, 1}, {2, 5}};
    slot_pool_rebuild_from_allocated(create(4), occupied, 2, 4);
}

Test(slot_pool, rebuilding_out_of_range_aborts, .signal = SIGABRT) {
    const struct slot_occupied occupied = {3, 1};
    slot_pool_rebuild_from_allocated(create(4), &occupied, 1, 3);
}

Test(slot_pool, rebuilding_a_pool_in_use_aborts, .signal = SIGABRT) {
    struct slot_pool *pool = create(4);
    allocate(pool);
    slot_pool_rebuild_from_allocated(pool, NULL, 0, 0);
}

/* against a model, and against other threads */

/* One random step on a small pool; the model is the array of expected states. */
static void random_step(struct slot_pool *pool, enum slot_state *model, unsigned *seed,
                        uint64_t sequence) {
    uint32_t slot = (uint32_t)rand_r(seed) % slot_pool_slots_max(pool);
    bool coin = rand_r(seed) % 2;
    switch (model[slot]) {
    case SLOT_FREE:
        slot = allocate(pool);
        cr_assert_eq(model[slot], SLOT_FREE);
        model[slot] = SLOT_WRITING;
        break;
    case SLOT_WRITING:
        if (coin) {
            slot_pool_publish(pool, slot, sequence);
            model[slot] = SLOT_LIVE;
        } else {
            rand_r(seed) % 2 ? slot_pool_free(pool, slot) : slot_pool_free_bare(pool, slot);
            model[slot] = SLOT_FREE;
        }
        break;
    case SLOT_LIVE:
        cr_assert(slot_pool_retire(pool, slot));
        model[slot] = SLOT_RETIRING;
        break;
    default:
        slot_pool_free(pool, slot);
        model[slot] = SLOT_FREE;
    }
}

Test(slot_pool, random_steps_agree_with_a_model) {
    enum { SLOTS = 24 };
    struct slot_pool *pool = create(SLOTS);
    enum slot_state model[SLOTS] = {SLOT_FREE};
    const char *given = getenv("SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : 20251;
    cr_log_info("SEED=%u", seed);
    for (uint64_t step = 1; step <= 20000; step++) {
        random_step(pool, model, &seed, step);
        slot_pool_verify(pool);
        uint32_t free_slots = 0;
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            cr_assert_eq(slot_pool_state(pool, slot), model[slot]);
            free_slots += model[slot] == SLOT_FREE;
        }
        cr_assert_eq(slot_pool_free_slots(pool), free_slots);
    }
    slot_pool_destroy(pool);
}

struct race {
    struct slot_pool *pool;
    _Atomic uint64_t sequence; /* of slot 0; 0: end */
    _Atomic uint64_t last_unpins;
};

static void *pin_and_unpin(void *argument) {
    struct race *race = argument;
    uint64_t sequence;
    while ((sequence = atomic_load(&race->sequence)))
        if (slot_pool_pin(race->pool, 0, sequence) && slot_pool_unpin(race->pool, 0))
            atomic_fetch_add(&race->last_unpins, 1);
    return NULL;
}

/* Retires while the slot is pinned, as often as that can be caught. Each round ends in exactly one
 * "true": from retire, or from the last unpin. */
Test(slot_pool, retire_and_the_last_unpin_agree_on_who_frees) {
    enum { ROUNDS = 3000, LAST_UNPINS = 500 };
    struct race race = {.pool = create(1), .sequence = 1};
    pthread_t thread;
    cr_assert_eq(allocate_live(race.pool, 1), 0);
    pthread_create(&thread, NULL, pin_and_unpin, &race);
    uint64_t rounds = 0, answers = 0;
    uint64_t end_ns = clock_monotonic_ns() + 20 * UINT64_C(1000000000);
    while (rounds < ROUNDS || atomic_load(&race.last_unpins) < LAST_UNPINS) {
        cr_assert_lt(clock_monotonic_ns(), end_ns, "the race did not come about");
        for (int look = 0; look < 1000 && slot_pool_pins(race.pool, 0) == 0; look++)
            continue;
        answers += slot_pool_retire(race.pool, 0);
        while (slot_pool_pins(race.pool, 0) > 0)
            sched_yield();
        slot_pool_free(race.pool, 0);
        rounds++;
        atomic_store(&race.sequence, rounds + 1);
        allocate_live(race.pool, rounds + 1);
    }
    atomic_store(&race.sequence, 0);
    pthread_join(thread, NULL);
    cr_expect_eq(answers + atomic_load(&race.last_unpins), rounds);
    slot_pool_verify(race.pool);
    slot_pool_destroy(race.pool);
}
