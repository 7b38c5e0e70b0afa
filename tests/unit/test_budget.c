/* SPDX-License-Identifier: Apache-2.0 */
/* Space (core/budget.h): which class, both accounts, moving space; on real files. */
#include "core/budget.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>

#include "tests/support/budget_world.h"

TestSuite(budget, .init = make_directory, .fini = remove_directory);

/* classes */

Test(budget, payloads_up_to_4096_bytes_are_inline) {
    struct budget *budget = open_any(64 * MIB);
    static const uint64_t small[] = {0, 1, INLINE_BYTES_MAX};
    for (size_t i = 0; i < 3; i++) {
        struct pool *pool = budget_pool_for(budget, small[i]);
        cr_assert(pool->is_inline);
        cr_assert_eq(pool->number, 0);
        cr_assert_eq(pool->slot_bytes, INLINE_COST_BYTES);
    }
    struct pool *first = budget_pool_for(budget, INLINE_BYTES_MAX + 1);
    cr_assert_not(first->is_inline);
    cr_assert_eq(first->slot_bytes, 8192);
    cr_assert_eq(budget_pool_by_slot_bytes(budget, 8192), first);
    cr_assert(budget_pool_by_slot_bytes(budget, 0)->is_inline);
    budget_close(budget);
}

Test(budget, every_size_up_to_max_file_has_a_class_that_wastes_at_most_a_fifth) {
    struct budget *budget = open_any(64 * MIB);
    for (uint64_t bytes = INLINE_BYTES_MAX + 1; bytes <= MAX_FILE; bytes += 1013) {
        struct pool *pool = budget_pool_for(budget, bytes);
        cr_assert(pool);
        cr_assert_geq(pool->slot_bytes, slot_bytes_for_page(bytes));
        cr_assert_leq(pool->slot_bytes, slot_bytes_for_page(bytes) * 1.25 + 2 * BLOCK_BYTES);
        cr_assert_eq(budget_pool_by_slot_bytes(budget, pool->slot_bytes), pool);
    }
    cr_assert(budget_pool_for(budget, MAX_FILE));
    cr_assert_null(budget_pool_for(budget, MAX_FILE + 1));
    cr_assert_eq(budget_payload_max(budget), MAX_FILE);
    budget_close(budget);
}

/* The eight places, each with a blob. */
static void use_all_places(struct budget *budget, uint64_t first_bytes, uint64_t step_bytes,
                           struct pool *ret_pools[BUDGET_EXACT_CLASSES],
                           uint32_t ret_slots[BUDGET_EXACT_CLASSES]) {
    for (unsigned i = 0; i < BUDGET_EXACT_CLASSES; i++) {
        uint64_t bytes = first_bytes + i * step_bytes;
        ret_pools[i] = budget_pool_for(budget, bytes);
        cr_assert(ret_pools[i]->exact);
        cr_assert_eq(ret_pools[i]->slot_bytes, slot_bytes_for_page(bytes));
        ret_slots[i] = take_slot(budget, ret_pools[i]);
        cr_assert_eq(budget_pool_for(budget, bytes), ret_pools[i]);
        cr_assert_eq(budget_pool_by_slot_bytes(budget, ret_pools[i]->slot_bytes), ret_pools[i]);
    }
}

Test(budget, the_first_eight_large_sizes_get_exact_classes) {
    struct budget *budget = open_any(64 * MIB);
    struct pool *exact[BUDGET_EXACT_CLASSES];
    uint32_t slots[BUDGET_EXACT_CLASSES];
    use_all_places(budget, 2 * MIB, 3 * BLOCK_BYTES, exact, slots);
    cr_assert_not(budget_pool_for(budget, 1 * MIB)->exact);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget, an_exact_class_that_is_empty_gives_its_place_away_and_gets_one_again) {
    struct budget *budget = open_any(64 * MIB);
    struct pool *exact[BUDGET_EXACT_CLASSES];
    uint32_t slots[BUDGET_EXACT_CLASSES], slot;
    use_all_places(budget, 2 * MIB, 3 * BLOCK_BYTES, exact, slots);
    budget_free_slot(budget, exact[3], slots[3]);
    struct pool *next = budget_pool_for(budget, MIB);
    cr_assert(next->exact);
    slot = take_slot(budget, next);
    uint64_t bytes = exact[3]->slot_bytes - HEADER_BYTES;
    cr_assert_neq(budget_pool_for(budget, bytes), exact[3], "its place is another's");
    cr_assert_geq(budget_pool_for(budget, bytes)->slot_bytes, exact[3]->slot_bytes);
    cr_assert_eq(budget_pool_by_slot_bytes(budget, exact[3]->slot_bytes), exact[3]);
    budget_free_slot(budget, next, slot);
    cr_assert_eq(budget_pool_for(budget, bytes), exact[3]);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget, a_class_is_in_use_from_the_promise_of_its_first_slot) {
    struct budget *budget = open_any(64 * MIB);
    struct pool *exact[BUDGET_EXACT_CLASSES];
    uint32_t slots[BUDGET_EXACT_CLASSES];
    use_all_places(budget, 2 * MIB, 3 * BLOCK_BYTES, exact, slots);
    budget_free_slot(budget, exact[0], slots[0]);
    cr_assert(budget_take(exact[0]));
    cr_assert_not(budget_pool_for(budget, MIB)->exact);
    budget_give(exact[0]);
    cr_assert(budget_pool_for(budget, MIB)->exact);
    budget_close(budget);
}

Test(budget, a_thousand_sizes_that_come_and_go_always_find_a_class) {
    struct budget *budget = open_any(64 * MIB);
    unsigned exact = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t bytes = BUDGET_EXACT_BYTES_MIN + i * 2 * BLOCK_BYTES;
        struct pool *pool = budget_pool_for(budget, bytes < MAX_FILE ? bytes : MAX_FILE);
        exact += pool->exact;
        budget_free_slot(budget, pool, take_slot(budget, pool));
    }
    cr_assert_gt(exact, 100, "%u of them had a class of their own", exact);
    cr_assert_leq(budget_backed_bytes(budget), 64 * MIB);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget, a_small_size_or_one_of_the_grid_uses_up_no_exact_class) {
    struct budget *budget = open_any(64 * MIB);
    struct pool *grid = budget_pool_for(budget, 77824 - HEADER_BYTES);
    struct pool *exact[BUDGET_EXACT_CLASSES];
    uint32_t slots[BUDGET_EXACT_CLASSES];
    cr_assert_eq(grid->slot_bytes, 77824);
    cr_assert_not(grid->exact);
    take_slot(budget, grid);
    cr_assert_not(budget_pool_for(budget, 50000)->exact);
    take_slot(budget, budget_pool_for(budget, 50000));
    use_all_places(budget, 2 * MIB, BLOCK_BYTES, exact, slots);
    budget_close(budget);
}

Test(budget, a_size_just_below_an_exact_class_goes_there_once_exact_classes_are_used_up) {
    struct budget *budget = open_any(64 * MIB);
    struct pool *exact[BUDGET_EXACT_CLASSES];
    uint32_t slots[BUDGET_EXACT_CLASSES];
    use_all_places(budget, MIB, 128 * 1024, exact, slots);
    cr_assert_eq(budget_pool_for(budget, MIB - BLOCK_BYTES), exact[0]);
    /* the grid's 1388544 is tighter than the exact class of 1.375 MiB */
    cr_assert_eq(budget_pool_for(budget, 1388544 - HEADER_BYTES - BLOCK_BYTES)->slot_bytes,
                 1388544);
    budget_close(budget);
}

struct asking {
    struct budget *budget;
    pthread_barrier_t start;
};

static void *ask_for_pools(void *argument) {
    struct asking *asking = argument;
    pthread_barrier_wait(&asking->start);
    for (uint64_t bytes = 100000; bytes <= MAX_FILE; bytes += 100000) {
        struct pool *pool = budget_pool_for(asking->budget, bytes);
        if (!pool || pool->slot_bytes < bytes ||
            budget_pool_at(asking->budget, pool->number) != pool)
            return (void *)"wrong pool";
    }
    return NULL;
}

static void check_pools_differ(struct budget *budget) {
    struct pool *pool;
    for (unsigned i = 0; (pool = budget_pool_at(budget, i)); i++)
        for (unsigned j = 1; j < i; j++)
            cr_assert_neq(pool->slot_bytes, budget_pool_at(budget, j)->slot_bytes);
}

Test(budget, threads_that_ask_at_once_make_each_exact_class_once) {
    for (int round = 0; round < 200; round++) {
        struct asking asking = {.budget = open_any(64 * MIB)};
        pthread_barrier_init(&asking.start, NULL, 4);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, ask_for_pools, &asking);
        for (int i = 0; i < 4; i++) {
            void *failure;
            pthread_join(threads[i], &failure);
            cr_assert_null(failure);
        }
        check_pools_differ(asking.budget);
        pthread_barrier_destroy(&asking.start);
        budget_close(asking.budget);
    }
}

/* accounts */

Test(budget, no_more_than_the_limit_can_be_taken) {
    struct budget *budget = open_any(MIB + 8191);
    struct pool *small = budget_pool_for(budget, 5000);
    struct pool *large = budget_pool_for(budget, MIB - BLOCK_BYTES);
    cr_assert_eq(budget_limit_bytes(budget), MIB + 8191);
    cr_assert(budget_take(large));
    cr_assert_not(budget_take(large));
    while (budget_taken_bytes(budget) + small->slot_bytes <= MIB + 8191)
        cr_assert(budget_take(small));
    cr_assert_not(budget_take(small));
    budget_give(large);
    cr_assert(budget_take(large));
    cr_assert_eq(budget_taken_bytes(budget),
                 large->slot_bytes + atomic_load(&small->taken_slots) * small->slot_bytes);
    cr_assert_eq(budget_excess_bytes(budget), 0);
    budget_close(budget);
}

Test(budget, giving_more_than_was_taken_aborts, .signal = SIGABRT) {
    struct budget *budget = open_any(MIB);
    cr_assert(budget_take(budget_pool_for(budget, 5000)));
    remove_directory();
    budget_give(budget_pool_for(budget, 10000));
}

static void *take_and_give(void *argument) {
    struct budget *budget = argument;
    struct pool *pool = budget_pool_for(budget, 5000);
    unsigned held = 0;
    for (int i = 0; i < 100000; i++) {
        held += budget_take(pool);
        if (budget_taken_bytes(budget) > budget_limit_bytes(budget))
            return (void *)"above the limit";
        for (; held && i % 3 == 0; held--)
            budget_give(pool);
    }
    for (; held; held--)
        budget_give(pool);
    return NULL;
}

Test(budget, threads_that_take_at_once_stay_within_the_limit) {
    struct budget *budget = open_any(3 * 8192 + 100);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, take_and_give, budget);
    for (int i = 0; i < 4; i++) {
        void *failure;
        pthread_join(threads[i], &failure);
        cr_assert_null(failure);
    }
    cr_assert_eq(budget_taken_bytes(budget), 0);
    budget_close(budget);
}

Test(budget, inline_blobs_count_in_both_accounts_while_they_are_there) {
    struct budget *budget = open_any(MIB);
    struct pool *pool = budget_pool_for(budget, 100);
    uint32_t slot = take_slot(budget, pool);
    cr_assert_eq(budget_taken_bytes(budget), INLINE_COST_BYTES);
    cr_assert_eq(budget_backed_bytes(budget), INLINE_COST_BYTES);
    budget_verify(budget);
    budget_free_slot(budget, pool, slot);
    cr_assert_eq(budget_taken_bytes(budget), 0);
    cr_assert_eq(budget_backed_bytes(budget), 0);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget, a_slab_file_is_made_at_first_use) {
    struct budget *budget = open_any(MIB);
    struct pool *pool = budget_pool_for(budget, 5000);
    cr_assert_null(atomic_load(&pool->slab));
    cr_assert_eq(file_bytes("any-8192.slab"), -1);
    take_slot(budget, pool);
    cr_assert(atomic_load(&pool->slab));
    cr_assert_eq(file_bytes("any-8192.slab"), (int64_t)budget_backed_bytes(budget));
    budget_close(budget);
}

Test(budget, space_freed_in_one_class_moves_to_another) {
    struct budget *budget = open_any(MIB);
    struct pool *small = budget_pool_for(budget, 5000);
    struct pool *large = budget_pool_for(budget, MIB - BLOCK_BYTES);
    uint32_t slots[MIB / 8192];
    for (unsigned i = 0; i < MIB / 8192; i++) {
        slots[i] = take_slot(budget, small);
        fill_slot(small, slots[i]);
    }
    cr_assert_not(budget_take(large));
    for (unsigned i = 0; i < MIB / 8192; i++)
        budget_free_slot(budget, small, slots[i]);
    fill_slot(large, take_slot(budget, large));
    cr_assert_leq(budget_backed_bytes(budget), MIB);
    uint64_t disk_bytes;
    cr_assert_eq(slab_disk_bytes(atomic_load(&small->slab), &disk_bytes), 0);
    cr_assert_leq(disk_bytes, MIB - large->slot_bytes + 64 * 1024);
    cr_assert(budget_can_punch(budget));
    budget_verify(budget);
    budget_close(budget);
}

Test(budget, inline_blobs_take_the_space_of_free_slots) {
    struct budget *budget = open_any(MIB);
    struct pool *large = budget_pool_for(budget, MIB - BLOCK_BYTES);
    budget_free_slot(budget, large, take_slot(budget, large));
    struct pool *pool = budget_pool_for(budget, 100);
    for (unsigned i = 0; i < MIB / INLINE_COST_BYTES; i++)
        take_slot(budget, pool);
    cr_assert_eq(budget_backed_bytes(budget), MIB);
    cr_assert_eq(slot_pool_backed_slots(large->slots), 0);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget, a_quarantined_slot_stays_taken_and_is_never_given_again) {
    struct budget *budget = open_any(4 * 8192);
    struct pool *pool = budget_pool_for(budget, 5000);
    uint32_t bad = take_slot(budget, pool);
    budget_quarantine_slot(budget, pool, bad);
    cr_assert_eq(budget_taken_bytes(budget), 8192);
    for (int i = 0; i < 3; i++)
        cr_assert_neq(take_slot(budget, pool), bad);
    cr_assert_not(budget_take(pool));
    budget_verify(budget);
    budget_close(budget);
}

Test(budget, slots_are_given_to_the_write_thread_only, .signal = SIGABRT) {
    struct budget *budget = open_any(MIB);
    thread_role = THREAD_ANY;
    uint32_t slot;
    remove_directory();
    budget_allocate_slot(budget, budget_pool_for(budget, 1), &slot);
}

/* In a mount namespace of this test's own process: it goes with it. */
static bool mount_without_holes(void) {
    if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return false;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", directory_path, "ramfs", 0, NULL) < 0)
        return false;
    close(directory_fd);
    directory_fd = open(directory_path, O_RDONLY | O_DIRECTORY);
    return directory_fd >= 0;
}

Test(budget, without_holes_space_does_not_move_and_the_limit_holds) {
    if (!mount_without_holes())
        cr_skip_test("cannot mount a file system without holes: %s", strerror(errno));
    struct budget *budget = open_any(MIB);
    struct pool *small = budget_pool_for(budget, 5000);
    struct pool *large = budget_pool_for(budget, MIB - BLOCK_BYTES);
    uint32_t slots[4], slot;
    for (int i = 0; i < 4; i++)
        slots[i] = take_slot(budget, small);
    for (int i = 0; i < 4; i++)
        budget_free_slot(budget, small, slots[i]);
    cr_assert(budget_take(large));
    cr_assert_eq(budget_allocate_slot(budget, large, &slot), -ENOSPC);
    cr_assert_not(budget_can_punch(budget));
    cr_assert_eq(budget_backed_bytes(budget), 4 * 8192);
    budget_verify(budget);
    budget_give(large);
    take_slot(budget, small);
    cr_assert_eq(budget_backed_bytes(budget), 4 * 8192);
    budget_close(budget);
    umount2(directory_path, MNT_DETACH);
}

/* at random */

enum { HELD_MAX = 400, RANDOM_LIMIT = 8 * MIB };

struct held {
    struct pool *pool;
    uint32_t slot;
};

static unsigned seed_for_test(void) {
    const char *given = getenv("SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    fprintf(stderr, "SEED=%u\n", seed);
    return seed;
}

static void check_disk(struct budget *budget) {
    uint64_t disk_bytes = 0, bytes;
    struct pool *pool;
    for (unsigned i = 0; (pool = budget_pool_at(budget, i)); i++)
        if (atomic_load(&pool->slab)) {
            cr_assert_eq(slab_disk_bytes(atomic_load(&pool->slab), &bytes), 0);
            disk_bytes += bytes;
        }
    /* The file system's own blocks for the maps of the files come on top. */
    cr_assert_leq(disk_bytes, RANDOM_LIMIT + 256 * 1024);
    cr_assert_leq(budget_backed_bytes(budget), RANDOM_LIMIT);
    cr_assert_leq(budget_taken_bytes(budget), RANDOM_LIMIT);
}

/* Sizes from tiny to max_file, small ones more often. */
static uint64_t random_payload(void) {
    return (uint64_t)rand() % MAX_FILE >> rand() % 12;
}

Test(budget, at_random_the_limit_holds_on_the_disk_too) {
    srand(seed_for_test());
    struct budget *budget = open_any(RANDOM_LIMIT);
    struct held held[HELD_MAX];
    size_t count = 0;
    for (int step = 0; step < 2500; step++) {
        struct pool *pool = budget_pool_for(budget, random_payload());
        if (count < HELD_MAX && budget_take(pool)) {
            held[count].pool = pool;
            cr_assert_eq(budget_allocate_slot(budget, pool, &held[count].slot), 0,
                         "what was taken can be had");
            fill_slot(pool, held[count++].slot);
        } else if (count > 0) {
            size_t freed = (size_t)rand() % count;
            slot_pool_publish(held[freed].pool->slots, held[freed].slot, (uint64_t)step);
            slot_pool_retire(held[freed].pool->slots, held[freed].slot);
            budget_free_slot(budget, held[freed].pool, held[freed].slot);
            held[freed] = held[--count];
        }
        if (step % 16 == 0) {
            check_disk(budget);
            budget_verify(budget);
        }
    }
    while (count > 0) {
        count--;
        budget_free_slot(budget, held[count].pool, held[count].slot);
    }
    cr_assert_eq(budget_taken_bytes(budget), 0);
    check_disk(budget);
    budget_verify(budget);
    budget_close(budget);
}
