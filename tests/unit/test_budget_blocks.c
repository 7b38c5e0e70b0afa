/* SPDX-License-Identifier: Apache-2.0 */
/* When slots have disk blocks (core/budget.h): ahead of their writes, and what if that fails. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/budget_world.h"

/* What this program's fallocate answers instead of giving blocks; 0: it gives them. */
static int refusal;
static unsigned refused;

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
    if (refusal && mode == 0) {
        refused++;
        /* As file systems do that find out half way. */
        if (refusal == ENOSPC)
            syscall(SYS_fallocate, fd, mode, offset, bytes / 2);
        errno = refusal;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

TestSuite(budget_blocks, .init = make_directory, .fini = remove_directory);

static uint64_t disk_bytes_of(struct pool *pool) {
    uint64_t bytes;
    cr_assert_eq(slab_disk_bytes(atomic_load(&pool->slab), &bytes), 0);
    return bytes;
}

Test(budget_blocks, a_freed_slot_keeps_its_blocks_and_is_used_again) {
    struct budget *budget = open_any(MIB);
    struct pool *pool = budget_pool_for(budget, 5000);
    uint32_t slot = take_slot(budget, pool), again;
    uint64_t backed = budget_backed_bytes(budget);
    budget_free_slot(budget, pool, slot);
    cr_assert_eq(budget_taken_bytes(budget), 0);
    cr_assert_eq(budget_backed_bytes(budget), backed);
    again = take_slot(budget, pool);
    cr_assert_eq(again, slot);
    cr_assert_eq(budget_backed_bytes(budget), backed);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget_blocks, slots_get_their_blocks_many_at_a_time_within_a_quarter_of_what_is_left) {
    struct budget *budget = open_any(MIB);
    struct pool *pool = budget_pool_for(budget, 5000);
    uint64_t left = MIB;
    for (uint32_t slot = 0; slot < MIB / 8192; slot++) {
        uint64_t before = budget_backed_bytes(budget);
        cr_assert_eq(take_slot(budget, pool), slot, "the lowest first");
        uint64_t more = budget_backed_bytes(budget) - before;
        if (more == 0)
            continue;
        cr_assert(more <= left / 4 || more == 8192, "%lu of %lu", more, left);
        left -= more;
        cr_assert_eq(file_bytes("any-8192.slab"), (int64_t)budget_backed_bytes(budget));
        cr_assert_geq(disk_bytes_of(pool), budget_backed_bytes(budget));
        budget_verify(budget);
    }
    cr_assert_eq(left, 0);
    cr_assert_not(budget_take(pool));
    budget_close(budget);
}

Test(budget_blocks, a_punched_slot_has_blocks_again_before_it_is_written) {
    struct budget *budget = open_any(MIB);
    struct pool *pool = budget_pool_for(budget, 5000);
    uint32_t slot = 0;
    for (unsigned i = 0; i < MIB / 8192; i++)
        slot = take_slot(budget, pool);
    uint64_t full = disk_bytes_of(pool);
    budget_free_slot(budget, pool, slot);
    cr_assert(budget_punch_free(budget, 8192));
    cr_assert_eq(disk_bytes_of(pool), full - 8192);
    cr_assert_eq(take_slot(budget, pool), slot);
    cr_assert_eq(disk_bytes_of(pool), full);
    budget_verify(budget);
    budget_close(budget);
}

Test(budget_blocks, a_slot_found_without_room_on_the_disk_goes_back_bare) {
    struct budget *budget = open_any(MIB);
    struct pool *pool = budget_pool_for(budget, 5000);
    uint32_t slot = take_slot(budget, pool);
    uint64_t backed = budget_backed_bytes(budget);
    fill_slot(pool, slot);
    uint64_t before = disk_bytes_of(pool);
    budget_return_bare_slot(budget, pool, slot);
    cr_assert_eq(budget_taken_bytes(budget), 8192, "the publication still has its bytes");
    cr_assert_eq(budget_backed_bytes(budget), backed - 8192);
    cr_assert_eq(disk_bytes_of(pool), before - 8192);
    budget_verify(budget);
    budget_close(budget);
}

static void expect_slots_without(int error) {
    struct budget *budget = open_any(MIB);
    struct pool *pool = budget_pool_for(budget, 5000);
    refusal = error;
    for (uint32_t slot = 0; slot < 3; slot++) {
        cr_assert_eq(take_slot(budget, pool), slot);
        cr_assert_eq(budget_backed_bytes(budget), (slot + 1) * 8192u, "by its write");
    }
    cr_assert_gt(refused, 0);
    cr_assert_eq(disk_bytes_of(pool), 0, "nothing is left of what was refused");
    fill_slot(pool, 2);
    unsigned asked = refused;
    refusal = 0;
    budget_verify(budget);
    uint32_t slots = 3;
    while (budget_backed_bytes(budget) == slots * 8192u) {
        cr_assert_lt(slots, 100, "never ahead again");
        take_slot(budget, pool);
        slots++;
    }
    cr_assert_gt(slots, 50, "not at once");
    cr_assert_leq(asked, 1 + 3, "one row of slots, and each slot");
    budget_verify(budget);
    budget_close(budget);
}

Test(budget_blocks, on_a_full_disk_the_write_gets_them) {
    expect_slots_without(ENOSPC);
}

Test(budget_blocks, where_the_file_system_cannot_the_write_gets_them) {
    expect_slots_without(EOPNOTSUPP);
}
