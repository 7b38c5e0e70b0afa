/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk over an LMDB tree that believes nothing (see index_pages.h). It ends on any input: each
 * page may be used once. What it proves of a tree: each page carries its own number and kind, its
 * nodes fill it without a gap, all leaves stand at the depth that the tree claims, keys rise
 * strictly and agree with the branch pages above them, and there are as many as the tree claims.
 */
#include "core/index_pages.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    PAGE_HEADER_BYTES = 16,
    NODE_HEADER_BYTES = 8,
    KEY_BYTES_MAX = 511,
    DEPTH_MAX = 32,
    PAGE_BRANCH = 1,
    PAGE_LEAF = 2,
    PAGE_OVERFLOW = 4,
    NODE_BIG = 1, /* the value stands in overflow pages */
    NODE_SUBTREE = 2,
};
#define NO_PAGE UINT64_MAX /* the root of an empty tree */

struct page_header {
    uint64_t number;
    uint16_t pad;
    uint16_t flags;
    union {
        struct {
            uint16_t lower, upper;
        };
        uint32_t overflow_pages;
    };
};
static_assert(sizeof(struct page_header) == PAGE_HEADER_BYTES);

struct node {
    uint16_t low, high, flags, key_bytes;
};
static_assert(sizeof(struct node) == NODE_HEADER_BYTES);

struct walk {
    struct index_pages *pages;
    const char *name;
    const struct index_tree *tree;
    int (*each)(void *argument, struct index_bytes key, struct index_bytes value, bool subtree);
    void *argument;
    uint64_t entries;
    struct index_bytes last_key; /* data NULL: none yet */
};

int index_pages_damaged(struct index_pages *pages, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(pages->reason, pages->reason_bytes, format, arguments);
    va_end(arguments);
    return -EUCLEAN;
}

int index_pages_use(struct index_pages *pages, uint64_t page) {
    if (page < INDEX_HEADER_PAGES || page >= pages->pages)
        return index_pages_damaged(pages, "page %llu does not exist", (unsigned long long)page);
    uint8_t bit = (uint8_t)(1u << (page % 8));
    if (pages->used[page / 8] & bit)
        return index_pages_damaged(pages, "page %llu is used twice", (unsigned long long)page);
    pages->used[page / 8] |= bit;
    return 0;
}

static int bad_page(struct walk *walk, uint64_t page, const char *what) {
    return index_pages_damaged(walk->pages, "database %s: page %llu: %s", walk->name,
                               (unsigned long long)page, what);
}

/* A page of a tree has been written, so the file reaches beyond it. */
static int use_written(struct walk *walk, uint64_t page) {
    return page < walk->pages->file_pages ? index_pages_use(walk->pages, page)
                                          : bad_page(walk, page, "is not in the file");
}

/* Takes the page; its bytes and header. */
static int open_page(struct walk *walk, uint64_t page, unsigned flags, const uint8_t **ret_bytes,
                     struct page_header *ret_header) {
    int error = use_written(walk, page);
    if (error)
        return error;
    const uint8_t *bytes = walk->pages->bytes + page * walk->pages->page_bytes;
    memcpy(ret_header, bytes, sizeof *ret_header);
    if (ret_header->number != page)
        return bad_page(walk, page, "carries another number");
    if (ret_header->flags != flags)
        return bad_page(walk, page, "is of another kind");
    *ret_bytes = bytes;
    return 0;
}

/* nodes */

static size_t node_count(const struct page_header *header) {
    return (size_t)(header->lower - PAGE_HEADER_BYTES) / sizeof(uint16_t);
}

static struct node read_node(const uint8_t *bytes, size_t i, size_t *ret_offset) {
    uint16_t offset;
    struct node node;
    memcpy(&offset, bytes + PAGE_HEADER_BYTES + i * sizeof offset, sizeof offset);
    memcpy(&node, bytes + offset, sizeof node);
    *ret_offset = offset;
    return node;
}

/* Nodes begin at even offsets; that is the only padding. */
static size_t node_bytes(const struct node *node, bool branch) {
    size_t bytes = NODE_HEADER_BYTES + (size_t)node->key_bytes;
    if (!branch)
        bytes += node->flags & NODE_BIG ? sizeof(uint64_t) : node->low | (size_t)node->high << 16;
    return bytes + bytes % 2;
}

/* All nodes lie between upper and the page's end and together are as long as that. */
static int check_nodes(struct walk *walk, uint64_t page, const uint8_t *bytes,
                       const struct page_header *header) {
    size_t page_bytes = walk->pages->page_bytes, sum = 0;
    bool branch = header->flags == PAGE_BRANCH;
    /* LMDB lets a branch of the free list shrink to one child while it saves the list. */
    size_t least = branch && !(walk->tree->flags & INDEX_TREE_INTEGER_KEYS) ? 2 : 1;
    if (header->lower < PAGE_HEADER_BYTES || header->lower % 2 || header->lower > header->upper ||
        header->upper > page_bytes || node_count(header) < least)
        return bad_page(walk, page, "has an impossible header");
    for (size_t i = 0; i < node_count(header); i++) {
        uint16_t offset;
        struct node node;
        memcpy(&offset, bytes + PAGE_HEADER_BYTES + i * sizeof offset, sizeof offset);
        if (offset < header->upper || offset % 2 || offset + sizeof node > page_bytes)
            return bad_page(walk, page, "has a node at an impossible place");
        memcpy(&node, bytes + offset, sizeof node);
        if (node.key_bytes > KEY_BYTES_MAX || node_bytes(&node, branch) > page_bytes - offset)
            return bad_page(walk, page, "has a node of impossible size");
        sum += node_bytes(&node, branch);
    }
    return sum == page_bytes - header->upper ? 0 : bad_page(walk, page, "has a gap");
}

/* keys */

static int compare(const struct walk *walk, struct index_bytes a, struct index_bytes b) {
    uint64_t x, y;
    if (walk->tree->flags & INDEX_TREE_INTEGER_KEYS) {
        memcpy(&x, a.data, sizeof x);
        memcpy(&y, b.data, sizeof y);
        return x < y ? -1 : x > y;
    }
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order ? order : a.size < b.size ? -1 : a.size > b.size;
}

static struct index_bytes key_at(const uint8_t *bytes, size_t offset, const struct node *node) {
    return (struct index_bytes){bytes + offset + NODE_HEADER_BYTES, node->key_bytes};
}

static bool key_possible(const struct walk *walk, struct index_bytes key) {
    return walk->tree->flags & INDEX_TREE_INTEGER_KEYS ? key.size == sizeof(uint64_t)
                                                       : key.size > 0;
}

/* Greater than every key so far. */
static bool rises(const struct walk *walk, struct index_bytes key) {
    return key_possible(walk, key) &&
           (!walk->last_key.data || compare(walk, key, walk->last_key) > 0);
}

/* pages */

/* A value in pages of its own, which follow each other; it may have been longer once. */
static int open_overflow(struct walk *walk, const uint8_t *number, size_t size,
                         struct index_bytes *ret_value) {
    const uint8_t *bytes;
    struct page_header header;
    uint64_t page;
    memcpy(&page, number, sizeof page);
    int error = open_page(walk, page, PAGE_OVERFLOW, &bytes, &header);
    if (error)
        return error;
    uint64_t needed = (PAGE_HEADER_BYTES + size - 1) / walk->pages->page_bytes + 1;
    if (header.overflow_pages < needed)
        return bad_page(walk, page, "is too small for its value");
    for (uint32_t i = 1; i < header.overflow_pages; i++) {
        error = use_written(walk, page + i);
        if (error)
            return error;
    }
    *ret_value = (struct index_bytes){bytes + PAGE_HEADER_BYTES, size};
    return 0;
}

static int walk_leaf(struct walk *walk, uint64_t page, const uint8_t *bytes,
                     const struct page_header *header) {
    for (size_t i = 0; i < node_count(header); i++) {
        size_t offset;
        struct node node = read_node(bytes, i, &offset);
        struct index_bytes key = key_at(bytes, offset, &node);
        struct index_bytes value = {key.data + key.size, node.low | (size_t)node.high << 16};
        int error = 0;
        if (node.flags != 0 && node.flags != NODE_BIG && node.flags != NODE_SUBTREE)
            return bad_page(walk, page, "has a node of unknown kind");
        if (!rises(walk, key))
            return bad_page(walk, page, "its keys are not in order");
        if (node.flags == NODE_BIG)
            error = open_overflow(walk, value.data, value.size, &value);
        if (!error && node.flags == NODE_SUBTREE && value.size != sizeof(struct index_tree))
            error = bad_page(walk, page, "has a tree of impossible size");
        if (!error)
            error = walk->each(walk->argument, key, value, node.flags == NODE_SUBTREE);
        if (error)
            return error;
        walk->last_key = key;
        walk->entries++;
    }
    return 0;
}

static int walk_page(struct walk *walk, uint64_t page, unsigned level, struct index_bytes least);

static int walk_branch(struct walk *walk, uint64_t page, const uint8_t *bytes,
                       const struct page_header *header, unsigned level, struct index_bytes least) {
    for (size_t i = 0; i < node_count(header); i++) {
        size_t offset;
        struct node node = read_node(bytes, i, &offset);
        struct index_bytes key = i == 0 ? least : key_at(bytes, offset, &node);
        uint64_t child = node.low | (uint64_t)node.high << 16 | (uint64_t)node.flags << 32;
        if (i > 0 && !rises(walk, key))
            return bad_page(walk, page, "its keys are not in order");
        int error = walk_page(walk, child, level + 1, key);
        if (error)
            return error;
    }
    return 0;
}

/* least: no key of the page is smaller (data NULL: no bound). */
static int walk_page(struct walk *walk, uint64_t page, unsigned level, struct index_bytes least) {
    const uint8_t *bytes;
    struct page_header header;
    bool leaf = level == walk->tree->depth;
    int error = open_page(walk, page, leaf ? PAGE_LEAF : PAGE_BRANCH, &bytes, &header);
    if (!error)
        error = check_nodes(walk, page, bytes, &header);
    if (error)
        return error;
    if (!leaf)
        return walk_branch(walk, page, bytes, &header, level, least);
    size_t offset;
    struct node first = read_node(bytes, 0, &offset);
    struct index_bytes key = key_at(bytes, offset, &first);
    if (least.data && (!key_possible(walk, key) || compare(walk, key, least) < 0))
        return bad_page(walk, page, "its keys are not those of its place");
    return walk_leaf(walk, page, bytes, &header);
}

int index_pages_walk(struct index_pages *pages, const char *name, const struct index_tree *tree,
                     int (*each)(void *argument, struct index_bytes key, struct index_bytes value,
                                 bool subtree),
                     void *argument) {
    struct walk walk = {
        .pages = pages, .name = name, .tree = tree, .each = each, .argument = argument};
    if ((tree->root == NO_PAGE) != (tree->depth == 0) || tree->depth > DEPTH_MAX ||
        tree->flags & ~INDEX_TREE_INTEGER_KEYS)
        return index_pages_damaged(pages, "database %s: its description is impossible", name);
    int error = 0;
    if (tree->depth)
        error = walk_page(&walk, tree->root, 1, (struct index_bytes){0});
    if (!error && walk.entries != tree->entries)
        error = index_pages_damaged(pages, "database %s: it says %llu entries and has %llu", name,
                                    (unsigned long long)tree->entries,
                                    (unsigned long long)walk.entries);
    return error;
}
