/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buddy allocator as a binary tree in an array: node 1 is the whole arena, the children of node
 * i are 2i and 2i + 1, the leaves are units. A node holds the order of the largest free block below
 * it, plus one; 0 means none. So a free block of a wanted order is found on one way down, from the
 * low or the high end, and merging is what happens on the way up. Below a node that is free as a
 * whole nothing is kept up to date: its children are filled in when it is split, which is why a new
 * arena needs no initialisation beyond its chunks, and its array no memory.
 */
#include "core/buddy.h"

#include "core/check.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { CHUNKS_MAX = 1 << 20 };

struct buddy {
    unsigned height; /* order of node 1; fixed, as chunks */
    uint32_t chunks;
    uint8_t *largest; /* 2 << height nodes, mapped lazily */
    uint64_t map_bytes;
};

/* At or below the order of chunks, a node can be free as a whole. */
static bool is_whole(const struct buddy *buddy, uint64_t node, unsigned order) {
    return order <= BUDDY_CHUNK_ORDER && buddy->largest[node] == order + 1;
}

static uint64_t node_of(const struct buddy *buddy, uint32_t unit, unsigned order) {
    CHECK(order <= BUDDY_CHUNK_ORDER);
    CHECK((unit & ((1u << order) - 1)) == 0);
    CHECK(unit >> BUDDY_CHUNK_ORDER < buddy->chunks);
    return (UINT64_C(1) << (buddy->height - order)) + (unit >> order);
}

static uint8_t larger(uint8_t a, uint8_t b) {
    return a > b ? a : b;
}

/* Makes everything above a node agree with it. */
static void update_above(struct buddy *buddy, uint64_t node, unsigned order) {
    while (node > 1) {
        node /= 2;
        order++;
        uint8_t low = buddy->largest[2 * node], high = buddy->largest[2 * node + 1];
        bool merges = order <= BUDDY_CHUNK_ORDER && low == order && high == order;
        buddy->largest[node] = merges ? (uint8_t)(order + 1) : larger(low, high);
    }
}

int buddy_create(uint32_t chunks, struct buddy **ret_buddy) {
    if (chunks == 0 || chunks > CHUNKS_MAX)
        return -EINVAL;
    struct buddy *buddy = calloc(1, sizeof(*buddy));
    if (!buddy)
        return -ENOMEM;
    buddy->chunks = chunks;
    buddy->height = BUDDY_CHUNK_ORDER;
    while (UINT64_C(1) << (buddy->height - BUDDY_CHUNK_ORDER) < chunks)
        buddy->height++;
    buddy->map_bytes = UINT64_C(2) << buddy->height;
    buddy->largest = mmap(NULL, buddy->map_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (buddy->largest == MAP_FAILED) {
        free(buddy);
        return -ENOMEM;
    }
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        uint64_t node = node_of(buddy, chunk << BUDDY_CHUNK_ORDER, BUDDY_CHUNK_ORDER);
        buddy->largest[node] = BUDDY_CHUNK_ORDER + 1;
        update_above(buddy, node, BUDDY_CHUNK_ORDER);
    }
    *ret_buddy = buddy;
    return 0;
}

void buddy_destroy(struct buddy *buddy) {
    if (!buddy)
        return;
    munmap(buddy->largest, buddy->map_bytes);
    free(buddy);
}

/* The order of the free block that holds this node, from the root down; false if it is not inside
 * one. A node below a whole one, or below one that was given out, says nothing by itself. */
static bool find_whole_above(const struct buddy *buddy, uint64_t node, unsigned order,
                             unsigned *ret_order) {
    for (unsigned above = buddy->height + 1; above-- > order;) {
        if (is_whole(buddy, node >> (above - order), above)) {
            *ret_order = above;
            return true;
        }
        if (buddy->largest[node >> (above - order)] == 0)
            return false;
    }
    return false;
}

bool buddy_is_free(const struct buddy *buddy, uint32_t unit, unsigned order) {
    unsigned whole;
    return find_whole_above(buddy, node_of(buddy, unit, order), order, &whole);
}

void buddy_claim(struct buddy *buddy, uint32_t unit, unsigned order) {
    uint64_t node = node_of(buddy, unit, order);
    unsigned whole = 0;
    CHECK(find_whole_above(buddy, node, order, &whole));
    for (; whole > order; whole--) { /* split */
        uint64_t above = node >> (whole - order);
        buddy->largest[2 * above] = buddy->largest[2 * above + 1] = (uint8_t)whole;
    }
    buddy->largest[node] = 0;
    update_above(buddy, node, order);
}

bool buddy_allocate(struct buddy *buddy, unsigned order, uint32_t *ret_unit) {
    CHECK(order <= BUDDY_CHUNK_ORDER);
    if (buddy->largest[1] < order + 1)
        return false;
    bool from_high_end = order + 1 < BUDDY_CHUNK_ORDER;
    uint64_t node = 1;
    unsigned at = buddy->height;
    while (at > order && !is_whole(buddy, node, at)) {
        uint64_t preferred = 2 * node + from_high_end;
        node = buddy->largest[preferred] >= order + 1 ? preferred : preferred ^ 1;
        at--;
    }
    uint64_t first_unit = (node - (UINT64_C(1) << (buddy->height - at))) << at;
    if (from_high_end)
        first_unit += (UINT64_C(1) << at) - (UINT64_C(1) << order);
    buddy_claim(buddy, (uint32_t)first_unit, order);
    *ret_unit = (uint32_t)first_unit;
    return true;
}

void buddy_free(struct buddy *buddy, uint32_t unit, unsigned order) {
    uint64_t node = node_of(buddy, unit, order);
    unsigned whole;
    CHECK(buddy->largest[node] == 0);
    CHECK(!find_whole_above(buddy, node, order, &whole));
    buddy->largest[node] = (uint8_t)(order + 1);
    update_above(buddy, node, order);
}
