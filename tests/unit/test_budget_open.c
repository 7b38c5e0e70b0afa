/* SPDX-License-Identifier: Apache-2.0 */
/* Opening budgets (core/budget_open.c) and rebuilding their pools at cold start; on real files. */
#include "core/budget.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "tests/support/budget_world.h"

TestSuite(budget_open, .init = make_directory, .fini = remove_directory);

static int try_open_kind(uint32_t payload_bytes, uint32_t slots, struct budget **ret_budget) {
    struct budget_options options = {.rank_directory_fd = directory_fd,
                                     .kind = 3,
                                     .kind_name = "kv",
                                     .payload_bytes = payload_bytes,
                                     .slots = slots};
    return budget_open(&options, ret_budget);
}

/* declared kinds */

Test(budget_open, a_declared_kind_has_one_pool_of_fixed_slots) {
    struct budget *budget;
    cr_assert_eq(try_open_kind(100000, 3, &budget), 0);
    struct pool *pool = budget_pool_for(budget, 100000);
    cr_assert_eq(pool->slot_bytes, slot_bytes_for_page(100000));
    cr_assert_eq(pool->kind, 3);
    cr_assert_eq(budget_limit_bytes(budget), 3 * slot_bytes_for_page(100000));
    cr_assert_eq(budget_pool_for(budget, 0), pool, "a smaller payload is allowed");
    cr_assert_null(budget_pool_for(budget, 100001));
    cr_assert_null(budget_pool_at(budget, 1));
    cr_assert_null(budget_pool_by_slot_bytes(budget, 0), "nothing is inline");
    for (int i = 0; i < 3; i++)
        take_slot(budget, pool);
    cr_assert_not(budget_take(pool));
    cr_assert_geq(file_bytes("kv-102400.slab"), 0);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget_open, a_declared_kind_with_a_slab_of_another_slot_size_is_refused) {
    make_file("kv-8192.slab", 8192);
    struct budget *budget = NULL;
    cr_assert_eq(try_open_kind(100000, 3, &budget), -EINVAL);
    cr_assert_null(budget);
    cr_assert_eq(try_open_kind(8000, 3, &budget), 0);
    budget_close(budget);
}

Test(budget_open, impossible_sizes_are_refused) {
    struct budget *budget = NULL;
    cr_assert_eq(try_open_kind(0, 3, &budget), -EINVAL);
    cr_assert_eq(try_open_kind(UINT32_MAX, 3, &budget), -EINVAL);
    cr_assert_eq(try_open_kind(100000, 0, &budget), -EINVAL);
    struct budget_options options = {.rank_directory_fd = directory_fd,
                                     .kind_name = "any",
                                     .limit_bytes = MIB,
                                     .max_file_bytes = UINT64_C(5) << 30};
    cr_assert_eq(budget_open(&options, &budget), -EINVAL);
    cr_assert_null(budget);
}

/* reopening */

Test(budget_open, exact_classes_come_back_as_such) {
    struct budget *budget = open_any(64 * MIB);
    take_slot(budget, budget_pool_for(budget, 3 * MIB + 5));
    budget_close(budget);
    budget = open_any(64 * MIB);
    uint32_t slot_bytes = (uint32_t)slot_bytes_for_page(3 * MIB + 5);
    struct pool *pool = budget_pool_by_slot_bytes(budget, slot_bytes);
    cr_assert(pool && pool->exact && atomic_load(&pool->slab));
    struct slot_occupied one = {.slot = 0, .sequence = 1};
    fill_slot(pool, 0);
    cr_assert_eq(budget_rebuild_pool(budget, pool, &one, 1), 0);
    cr_assert_eq(budget_pool_for(budget, 3 * MIB + 5), pool);
    unsigned added = 0;
    for (unsigned i = 0; i < BUDGET_EXACT_CLASSES; i++) {
        struct pool *next = budget_pool_for(budget, 2 * MIB + i * BLOCK_BYTES);
        added += next->exact;
        take_slot(budget, next);
    }
    cr_assert_eq(added, BUDGET_EXACT_CLASSES - 1, "it counts among the eight");
    budget_close(budget);
}

Test(budget_open, the_slab_of_an_empty_exact_class_can_be_dropped) {
    make_file("any-106496.slab", 106496 * 3);
    struct budget *budget = open_any(64 * MIB);
    struct pool *pool = budget_pool_by_slot_bytes(budget, 106496);
    cr_assert(pool && pool->exact);
    cr_assert_eq(budget_drop_slab(budget, pool), 0);
    cr_assert_eq(file_bytes("any-106496.slab"), -1);
    cr_assert_eq(budget_rebuild_pool(budget, pool, NULL, 0), 0);
    budget_verify(budget);
    cr_assert_eq(budget_pool_for(budget, 106496 - HEADER_BYTES), pool);
    take_slot(budget, pool);
    cr_assert_geq(file_bytes("any-106496.slab"), 0, "made again at its first use");
    budget_verify(budget);
    budget_close(budget);
}

Test(budget_open, of_many_exact_slabs_the_shortest_are_surplus) {
    char name[64];
    for (unsigned i = 0; i < 16; i++) {
        snprintf(name, sizeof(name), "any-%u.slab", 2 * MIB + (i + 1) * BLOCK_BYTES);
        make_file(name, (off_t)(2 * MIB + (i + 1) * BLOCK_BYTES) * (i % 2 ? 4 : 1));
    }
    make_file("any-8192.slab", 8192); /* of the grid: stays */
    struct budget *budget = open_any(64 * MIB);
    cr_assert_eq(budget_drop_surplus_slabs(budget), 0);
    unsigned left = 0;
    for (unsigned i = 0; i < 16; i++) {
        snprintf(name, sizeof(name), "any-%u.slab", 2 * MIB + (i + 1) * BLOCK_BYTES);
        left += file_bytes(name) >= 0;
        cr_expect(i % 2 || file_bytes(name) == -1, "%s is short", name);
    }
    cr_assert_eq(left, BUDGET_EXACT_CLASSES);
    cr_assert_eq(file_bytes("any-8192.slab"), 8192);
    budget_close(budget);
}

Test(budget_open, slabs_above_max_file_come_back) {
    make_file("any-8273920.slab", 8273920);
    struct budget *budget = open_any(64 * MIB);
    struct pool *pool = budget_pool_by_slot_bytes(budget, 8273920);
    cr_assert(pool && !pool->exact);
    cr_assert_null(budget_pool_by_slot_bytes(budget, 6619136), "a class that nobody needs");
    budget_close(budget);
}

Test(budget_open, strange_files_are_left_alone) {
    static const char *names[] = {"any-4096.slab",  "any-24576.slab",      "any-123.slab",
                                  "any-x.slab",     "other.slab",          "kv-8192.slab",
                                  "any-8192.slab~", "any-99999999999.slab"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        make_file(names[i], 12345);
    struct budget *budget = open_any(64 * MIB);
    struct pool *pool;
    for (unsigned i = 0; (pool = budget_pool_at(budget, i)); i++) {
        cr_assert_null(atomic_load(&pool->slab));
        cr_assert_eq(budget_rebuild_pool(budget, pool, NULL, 0), 0);
    }
    budget_close(budget);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cr_assert_eq(file_bytes(names[i]), 12345, "%s", names[i]);
}

Test(budget_open, a_rebuilt_pool_is_occupied_and_its_file_cut_off) {
    make_file("any-8192.slab", 10 * 8192);
    struct budget *budget = open_any(MIB);
    struct pool *pool = budget_pool_by_slot_bytes(budget, 8192);
    struct slot_occupied occupied[] = {{.slot = 5, .sequence = 70}, {.slot = 2, .sequence = 71}};
    cr_assert_eq(budget_rebuild_pool(budget, pool, occupied, 2), 0);
    cr_assert_eq(file_bytes("any-8192.slab"), 6 * 8192);
    cr_assert_eq(budget_taken_bytes(budget), 2 * 8192);
    cr_assert_eq(budget_backed_bytes(budget), 6 * 8192);
    cr_assert_eq(slot_pool_state(pool->slots, 5), SLOT_LIVE);
    cr_assert(slot_pool_pin(pool->slots, 2, 71));
    slot_pool_unpin(pool->slots, 2);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget_open, a_pool_rebuilt_empty_keeps_nothing_on_the_disk) {
    make_file("any-8192.slab", 10 * 8192);
    struct budget *budget = open_any(MIB);
    struct pool *pool = budget_pool_by_slot_bytes(budget, 8192);
    cr_assert_eq(budget_rebuild_pool(budget, pool, NULL, 0), 0);
    cr_assert_eq(file_bytes("any-8192.slab"), 0);
    cr_assert_eq(budget_backed_bytes(budget), 0);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget_open, an_adopted_pool_is_free_and_keeps_the_blocks_of_its_file) {
    make_file("any-8192.slab", 10 * 8192);
    struct budget *budget = open_any(6 * 8192);
    struct pool *pool;
    for (unsigned i = 0; (pool = budget_pool_at(budget, i)); i++)
        cr_assert_eq(budget_adopt_free_pool(budget, pool), 0);
    pool = budget_pool_by_slot_bytes(budget, 8192);
    cr_assert_eq(file_bytes("any-8192.slab"), 10 * 8192);
    cr_assert_eq(budget_taken_bytes(budget), 0);
    cr_assert_eq(budget_backed_bytes(budget), 10 * 8192);
    cr_assert_eq(budget_fit_to_limit(budget), 0);
    cr_assert_eq(budget_backed_bytes(budget), 6 * 8192);
    take_slot(budget, pool);
    cr_assert_eq(budget_backed_bytes(budget), 6 * 8192, "a slot with blocks is taken first");
    budget_verify(budget);
    budget_close(budget);
}

Test(budget_open, a_read_only_rebuild_leaves_the_file_as_it_is) {
    make_file("any-8192.slab", 10 * 8192);
    struct budget_options options = {.rank_directory_fd = directory_fd,
                                     .kind_name = "any",
                                     .limit_bytes = MIB,
                                     .max_file_bytes = MAX_FILE,
                                     .read_only = true};
    struct budget *budget;
    cr_assert_eq(budget_open(&options, &budget), 0);
    struct pool *pool = budget_pool_by_slot_bytes(budget, 8192);
    struct slot_occupied occupied = {.slot = 2, .sequence = 71};
    cr_assert_eq(budget_rebuild_pool(budget, pool, &occupied, 1), 0);
    cr_assert_eq(file_bytes("any-8192.slab"), 10 * 8192);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget_open, inline_blobs_are_rebuilt_without_a_file) {
    struct budget *budget = open_any(MIB);
    struct pool *pool = budget_pool_by_slot_bytes(budget, 0);
    struct slot_occupied occupied[] = {{.slot = 700, .sequence = 1}, {.slot = 3, .sequence = 2}};
    cr_assert_eq(budget_rebuild_pool(budget, pool, occupied, 2), 0);
    cr_assert_eq(budget_taken_bytes(budget), 2 * INLINE_COST_BYTES);
    cr_assert_eq(budget_backed_bytes(budget), 2 * INLINE_COST_BYTES);
    budget_verify(budget);
    budget_free_slot(budget, pool, (slot_pool_retire(pool->slots, 700), 700));
    cr_assert_eq(budget_backed_bytes(budget), INLINE_COST_BYTES);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget_open, a_smaller_size_says_how_much_is_to_be_evicted_and_then_fits) {
    struct budget *budget = open_any(100 * 8192);
    struct pool *pool = budget_pool_for(budget, 5000);
    struct slot_occupied occupied[100];
    for (uint32_t i = 0; i < 100; i++) {
        occupied[i] = (struct slot_occupied){.slot = take_slot(budget, pool), .sequence = i + 1};
        fill_slot(pool, occupied[i].slot);
    }
    budget_close(budget);

    budget = open_any(30 * 8192);
    pool = budget_pool_by_slot_bytes(budget, 8192);
    cr_assert_geq(pool->slots_max, 100, "all that the file has can be found");
    cr_assert_eq(budget_rebuild_pool(budget, pool, occupied, 100), 0);
    cr_assert_eq(budget_excess_bytes(budget), 70 * 8192);
    cr_assert_not(budget_take(pool));
    cr_assert_eq(budget_fit_to_limit(budget), -ENOSPC, "nothing is free yet");
    for (uint32_t slot = 0; slot < 70; slot++) {
        slot_pool_retire(pool->slots, slot);
        budget_free_slot(budget, pool, slot);
    }
    cr_assert_eq(budget_excess_bytes(budget), 0);
    cr_assert_eq(budget_fit_to_limit(budget), 0);
    cr_assert_eq(budget_backed_bytes(budget), 30 * 8192);
    uint64_t disk_bytes;
    cr_assert_eq(slab_disk_bytes(atomic_load(&pool->slab), &disk_bytes), 0);
    cr_assert_leq(disk_bytes, 30 * 8192 + 64 * 1024);
    budget_verify(budget);
    budget_close(budget);
}
