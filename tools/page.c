/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and contents of test pages. Contents are a Weyl sequence of 64-bit words, each folded once:
 * no multiplication per word, so that making and checking a page runs near memory speed. All words
 * of a page differ, hence a page that is shifted or stitched together is wrong almost everywhere.
 */
#include "tools/page.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LANES = 8, HUGE_PAGE_BYTES = 2 << 20 };

#define WEYL_STEP UINT64_C(0x9e3779b97f4a7c15)
#define MIX_1 UINT64_C(0xbf58476d1ce4e5b9)
#define MIX_2 UINT64_C(0x94d049bb133111eb)
/* Inverses modulo 2^64. */
#define UNMIX_1 UINT64_C(0x96de1b173f119089)
#define UNMIX_2 UINT64_C(0x319642b2d24d8ec3)

static_assert(MIX_1 * UNMIX_1 == 1 && MIX_2 * UNMIX_2 == 1);

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * MIX_1;
    x = (x ^ x >> 27) * MIX_2;
    return x ^ x >> 31;
}

static uint64_t unmix(uint64_t x) {
    x = (x ^ x >> 31 ^ x >> 62) * UNMIX_2;
    x = (x ^ x >> 27 ^ x >> 54) * UNMIX_1;
    return x ^ x >> 30 ^ x >> 60;
}

void page_make_name(uint64_t id, char ret_name[PAGE_NAME_BYTES + 1]) {
    uint64_t mixed = mix(id + WEYL_STEP);
    snprintf(ret_name, PAGE_NAME_BYTES + 1, "%016" PRIx64 "%016" PRIx64, mixed, mix(mixed));
}

bool page_parse_name(const char *name, uint64_t *ret_id) {
    if (strlen(name) != PAGE_NAME_BYTES || strspn(name, "0123456789abcdef") != PAGE_NAME_BYTES)
        return false;
    char digits[17];
    memcpy(digits, name, 16);
    digits[16] = '\0';
    uint64_t mixed = strtoull(digits, NULL, 16);
    if (strtoull(name + 16, NULL, 16) != mix(mixed))
        return false;
    *ret_id = unmix(mixed) - WEYL_STEP;
    return true;
}

static uint64_t page_seed(uint64_t id, uint64_t page_bytes) {
    return mix(mix(id) + page_bytes);
}

/*
 * Walks over the page in chunks: `words` is the next one, `weyl` the state behind it. Vectors, so
 * that the compiler needs no luck to use them.
 */
typedef uint64_t lanes __attribute__((vector_size(LANES * sizeof(uint64_t))));

struct walk {
    lanes weyl, words;
};

static inline void walk_next(struct walk *walk) {
    walk->words = walk->weyl ^ walk->weyl >> 32;
    walk->weyl += LANES * WEYL_STEP;
}

static struct walk walk_start(uint64_t id, uint64_t page_bytes) {
    struct walk walk;
    for (unsigned lane = 0; lane < LANES; lane++)
        walk.weyl[lane] = page_seed(id, page_bytes) + lane * WEYL_STEP;
    walk_next(&walk);
    return walk;
}

void page_fill(uint64_t id, uint64_t page_bytes, void *ret_bytes, size_t count) {
    struct walk walk = walk_start(id, page_bytes);
    char *to = ret_bytes;
    for (; count >= sizeof(lanes); to += sizeof(lanes), count -= sizeof(lanes)) {
        memcpy(to, &walk.words, sizeof(lanes));
        walk_next(&walk);
    }
    memcpy(to, &walk.words, count);
}

static uint64_t count_different(const char *bytes, const char *expected, size_t count) {
    uint64_t different = 0;
    for (size_t i = 0; i < count; i++)
        different += bytes[i] != expected[i];
    return different;
}

uint64_t page_count_wrong(uint64_t id, uint64_t page_bytes, const void *bytes, size_t count) {
    struct walk walk = walk_start(id, page_bytes);
    const char *from = bytes;
    uint64_t wrong = 0;
    for (; count >= sizeof(lanes); from += sizeof(lanes), count -= sizeof(lanes)) {
        if (memcmp(from, &walk.words, sizeof(lanes)) != 0)
            wrong += count_different(from, (const char *)&walk.words, sizeof(lanes));
        walk_next(&walk);
    }
    return wrong + count_different(from, (const char *)&walk.words, count);
}

void *page_allocate(uint64_t page_bytes) {
    size_t bytes = (page_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    void *memory = aligned_alloc(HUGE_PAGE_BYTES, bytes ? bytes : HUGE_PAGE_BYTES);
    if (memory)
        madvise(memory, bytes, MADV_HUGEPAGE); /* a hint: fine without */
    return memory;
}
