/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of an LMDB file, read without LMDB and without believing them: every number is checked
 * before it leads anywhere. LMDB itself checks next to nothing, and a page that it can still read
 * may kill it when it is written.
 *
 * What is known here is LMDB's data format 1 (all of 0.9), on a 64-bit little-endian host:
 *   page   number u64 | pad u16 | flags u16 | lower u16, upper u16, or for overflow pages count u32
 *          | offsets of nodes u16 ... lower | free | upper ... nodes
 *   node   low u16 | high u16 | flags u16 | key bytes u16 | key | value, or the number of its first
 *          overflow page; in a branch page low, high and flags are the child's number, and the key
 *          is the least one below it (that of the first node has no meaning)
 */
#ifndef CPL3_CORE_INDEX_PAGES_H
#define CPL3_CORE_INDEX_PAGES_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/index_record.h"

/* A database as a header page or a record of the main database describes it. */
struct index_tree {
    uint32_t pad;
    uint16_t flags;
    uint16_t depth;
    uint64_t branch_pages;
    uint64_t leaf_pages;
    uint64_t overflow_pages;
    uint64_t entries;
    uint64_t root;
};
static_assert(sizeof(struct index_tree) == 48);

/* One of the two header pages, behind its 16 bytes of page header. */
struct index_header {
    uint32_t magic;
    uint32_t version;
    uint64_t address;
    uint64_t map_bytes;
    struct index_tree free_list;
    struct index_tree main;
    uint64_t last_page;
    uint64_t transaction;
};
static_assert(sizeof(struct index_header) == 136);

enum {
    INDEX_HEADER_OFFSET = 16, /* in its page */
    INDEX_HEADER_PAGES = 2,
    INDEX_TREE_INTEGER_KEYS = 0x08, /* the free list's only flag; other databases have none */
};

struct index_pages {
    const uint8_t *bytes; /* the file */
    size_t page_bytes;
    uint64_t pages; /* up to the header's last one; the last free ones need not be in the file */
    uint64_t file_pages; /* whole ones in `bytes` */
    uint8_t *used;       /* one bit a page; grows as trees are walked */
    char *reason;        /* what was found; reason_bytes of it */
    size_t reason_bytes;
};

/* Writes the reason. -EUCLEAN. */
[[gnu::format(printf, 2, 3)]] int index_pages_damaged(struct index_pages *pages, const char *format,
                                                      ...);

/* Marks a page as being in one place, a tree or the free list: -EUCLEAN if it does not exist or is
 * in one already. */
int index_pages_use(struct index_pages *pages, uint64_t page);

/*
 * Walks a tree and calls back for each entry in order; the views lie within the file. 0, -EUCLEAN,
 * or the first non-zero answer. subtree: the value is a struct index_tree.
 */
int index_pages_walk(struct index_pages *pages, const char *name, const struct index_tree *tree,
                     int (*each)(void *argument, struct index_bytes key, struct index_bytes value,
                                 bool subtree),
                     void *argument);

#endif
