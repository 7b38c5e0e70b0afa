/* SPDX-License-Identifier: Apache-2.0 */
/* The buddy allocator: no block twice, aligned, merged again, large ones kept together. */
#include "core/buddy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_UNITS = 1 << BUDDY_CHUNK_ORDER, HALF_ORDER = BUDDY_CHUNK_ORDER - 1 };

static struct buddy *create(uint32_t chunks) {
    struct buddy *buddy;
    cr_assert_eq(buddy_create(chunks, &buddy), 0);
    return buddy;
}

static uint32_t allocate(struct buddy *buddy, unsigned order) {
    uint32_t unit;
    cr_assert(buddy_allocate(buddy, order, &unit));
    cr_assert_eq(unit % (1u << order), 0);
    return unit;
}

Test(buddy, impossible_arenas_are_refused) {
    struct buddy *buddy;
    cr_expect_eq(buddy_create(0, &buddy), -EINVAL);
    cr_expect_eq(buddy_create((1u << 20) + 1, &buddy), -EINVAL);
    buddy_destroy(NULL);
}

Test(buddy, every_chunk_is_given_out_once_from_the_low_end) {
    struct buddy *buddy = create(5); /* no power of two */
    for (uint32_t chunk = 0; chunk < 5; chunk++)
        cr_expect_eq(allocate(buddy, BUDDY_CHUNK_ORDER), chunk * CHUNK_UNITS);
    uint32_t unit = 99;
    cr_expect_not(buddy_allocate(buddy, 0, &unit));
    cr_expect_eq(unit, 99);
    buddy_destroy(buddy);
}

Test(buddy, small_blocks_stay_out_of_the_way_of_large_ones) {
    struct buddy *buddy = create(4);
    for (unsigned order = 0; order < HALF_ORDER; order++)
        allocate(buddy, order);
    for (int i = 0; i < 7; i++)
        allocate(buddy, HALF_ORDER);
    buddy_destroy(buddy);
}

Test(buddy, freed_blocks_merge_to_a_chunk_again) {
    struct buddy *buddy = create(1);
    static uint32_t units[CHUNK_UNITS];
    for (int i = 0; i < CHUNK_UNITS; i++)
        units[i] = allocate(buddy, 0);
    for (int i = 0; i < CHUNK_UNITS; i += 2)
        buddy_free(buddy, units[i], 0);
    uint32_t unit;
    cr_expect_not(buddy_allocate(buddy, 1, &unit), "every other unit is in use");
    for (int i = 1; i < CHUNK_UNITS; i += 2)
        buddy_free(buddy, units[i], 0);
    cr_expect_eq(allocate(buddy, BUDDY_CHUNK_ORDER), 0);
    buddy_destroy(buddy);
}

Test(buddy, neighbouring_chunks_do_not_merge) {
    struct buddy *buddy = create(2);
    buddy_free(buddy, allocate(buddy, BUDDY_CHUNK_ORDER), BUDDY_CHUNK_ORDER);
    allocate(buddy, BUDDY_CHUNK_ORDER);
    cr_expect_eq(allocate(buddy, BUDDY_CHUNK_ORDER), CHUNK_UNITS);
    buddy_destroy(buddy);
}

Test(buddy, a_claimed_block_is_not_given_out) {
    struct buddy *buddy = create(1);
    cr_expect(buddy_is_free(buddy, 8, 3));
    buddy_claim(buddy, 8, 3);
    cr_expect_not(buddy_is_free(buddy, 8, 3));
    cr_expect_not(buddy_is_free(buddy, 0, 4));
    cr_expect_not(buddy_is_free(buddy, 9, 0), "inside it");
    cr_expect(buddy_is_free(buddy, 0, 3));
    for (int i = 0; i < CHUNK_UNITS - 8; i++) {
        uint32_t unit = allocate(buddy, 0);
        cr_assert(unit < 8 || unit >= 16);
    }
    uint32_t unit;
    cr_expect_not(buddy_allocate(buddy, 0, &unit));
    buddy_free(buddy, 8, 3);
    cr_expect_eq(allocate(buddy, 3), 8);
    buddy_destroy(buddy);
}

Test(buddy, freeing_twice_aborts, .signal = SIGABRT) {
    struct buddy *buddy = create(1);
    uint32_t unit = allocate(buddy, 2);
    buddy_free(buddy, unit, 2);
    buddy_free(buddy, unit, 2);
}

Test(buddy, claiming_what_is_in_use_aborts, .signal = SIGABRT) {
    struct buddy *buddy = create(1);
    buddy_claim(buddy, 4, 2);
    buddy_claim(buddy, 5, 0);
}

Test(buddy, a_unit_out_of_the_arena_aborts, .signal = SIGABRT) {
    buddy_claim(create(3), 3 * CHUNK_UNITS, 0);
}

struct held {
    uint32_t unit;
    unsigned order;
};

/* No unit is given out twice, and when all is free again, all chunks are whole. */
Test(buddy, random_use_never_overlaps_and_always_merges) {
    enum { CHUNKS = 3, HELD_MAX = 400 };
    struct buddy *buddy = create(CHUNKS);
    static uint8_t used[CHUNKS * CHUNK_UNITS];
    static struct held held[HELD_MAX];
    size_t count = 0;
    const char *given = getenv("SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : 20252;
    cr_log_info("SEED=%u", seed);
    for (int step = 0; step < 30000; step++) {
        unsigned order = (unsigned)rand_r(&seed) % (BUDDY_CHUNK_ORDER + 1);
        uint32_t unit;
        if (count < HELD_MAX && rand_r(&seed) % 2 && buddy_allocate(buddy, order, &unit)) {
            for (uint32_t i = 0; i < 1u << order; i++)
                cr_assert_eq(used[unit + i]++, 0, "unit %u twice", unit + i);
            held[count++] = (struct held){unit, order};
        } else if (count > 0) {
            size_t i = (size_t)rand_r(&seed) % count;
            memset(used + held[i].unit, 0, 1u << held[i].order);
            buddy_free(buddy, held[i].unit, held[i].order);
            held[i] = held[--count];
        }
    }
    while (count-- > 0)
        buddy_free(buddy, held[count].unit, held[count].order);
    for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
        cr_expect_eq(allocate(buddy, BUDDY_CHUNK_ORDER), chunk * CHUNK_UNITS);
    buddy_destroy(buddy);
}
