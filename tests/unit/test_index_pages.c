/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk over LMDB pages, on a tree built by hand: a branch over two leaves, and a value in two
 * overflow pages. Each test breaks one thing that LMDB would believe.
 */
#include "core/index_pages.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    PAGE_BYTES = 4096,
    PAGES = 8,
    BRANCH = 2,
    LEFT = 3,
    RIGHT = 4,
    OVERFLOW = 5,
    KIND_BRANCH = 1,
    KIND_LEAF = 2,
    KIND_OVERFLOW = 4,
    NODE_BIG = 1,
    NODE_SUBTREE = 2,
    BIG_BYTES = 5000,
    PAGE_FLAGS_AT = 10,
    LOWER_AT = 12,
    UPPER_AT = 14,
    OFFSETS_AT = 16,
};

static uint8_t file[PAGES * PAGE_BYTES];
static uint8_t used[PAGES / 8 + 1];
static char reason[100];
static struct index_pages pages;
static struct index_tree tree;
static char seen[20];

static uint8_t *at(unsigned page, size_t offset) {
    return file + page * PAGE_BYTES + offset;
}

static uint16_t get16(unsigned page, size_t offset) {
    uint16_t value;
    memcpy(&value, at(page, offset), sizeof value);
    return value;
}

static void put16(unsigned page, size_t offset, unsigned value) {
    uint16_t low = (uint16_t)value;
    memcpy(at(page, offset), &low, sizeof low);
}

static void begin_page(uint64_t page, unsigned kind) {
    memset(at((unsigned)page, 0), 0, PAGE_BYTES);
    memcpy(at((unsigned)page, 0), &page, sizeof page);
    put16((unsigned)page, PAGE_FLAGS_AT, kind);
    put16((unsigned)page, LOWER_AT, OFFSETS_AT);
    put16((unsigned)page, UPPER_AT, PAGE_BYTES);
}

/* The number is a value's size, or a child. */
static size_t add_node(unsigned page, const char *key, size_t key_bytes, uint32_t number,
                       unsigned flags, const void *data, size_t data_bytes) {
    size_t bytes = (8 + key_bytes + data_bytes + 1) / 2 * 2;
    size_t lower = get16(page, LOWER_AT), upper = get16(page, UPPER_AT) - bytes;
    put16(page, lower, (unsigned)upper);
    put16(page, LOWER_AT, (unsigned)lower + 2);
    put16(page, UPPER_AT, (unsigned)upper);
    put16(page, upper, number & 0xffff);
    put16(page, upper + 2, number >> 16);
    put16(page, upper + 4, flags);
    put16(page, upper + 6, (unsigned)key_bytes);
    memcpy(at(page, upper + 8), key, key_bytes);
    memcpy(at(page, upper + 8 + key_bytes), data, data_bytes);
    return upper;
}

static void add_value(unsigned page, const char *key) {
    add_node(page, key, strlen(key), (uint32_t)strlen(key), 0, key, strlen(key));
}

static void add_child(unsigned page, const char *key, uint32_t child) {
    add_node(page, key, strlen(key), child, 0, "", 0);
}

static void set_overflow(uint32_t count) {
    memcpy(at(OVERFLOW, LOWER_AT), &count, sizeof count);
}

static void build(void) {
    uint64_t overflow = OVERFLOW;
    memset(file, 0xee, sizeof file);
    begin_page(BRANCH, KIND_BRANCH);
    add_child(BRANCH, "", LEFT);
    add_child(BRANCH, "m", RIGHT);
    begin_page(LEFT, KIND_LEAF);
    add_value(LEFT, "a");
    add_value(LEFT, "cc");
    begin_page(RIGHT, KIND_LEAF);
    add_value(RIGHT, "mm");
    add_node(RIGHT, "z", 1, BIG_BYTES, NODE_BIG, &overflow, sizeof overflow);
    begin_page(OVERFLOW, KIND_OVERFLOW);
    set_overflow(2);
    tree = (struct index_tree){.depth = 2, .entries = 4, .root = BRANCH};
    pages = (struct index_pages){.bytes = file,
                                 .page_bytes = PAGE_BYTES,
                                 .pages = PAGES,
                                 .file_pages = PAGES,
                                 .used = used,
                                 .reason = reason,
                                 .reason_bytes = sizeof reason};
}

TestSuite(index_pages, .init = build);

static int note(void *argument, struct index_bytes key, struct index_bytes value, bool subtree) {
    (void)argument;
    (void)subtree;
    strncat(seen, (const char *)key.data, key.size);
    if (value.size == BIG_BYTES)
        cr_expect_eq(value.data, at(OVERFLOW, OFFSETS_AT));
    else if (value.size == key.size)
        cr_expect_arr_eq(value.data, key.data, key.size);
    return 0;
}

static int walk(void) {
    memset(used, 0, sizeof used);
    seen[0] = '\0';
    return index_pages_walk(&pages, "test", &tree, note, NULL);
}

static void expect_damage(const char *what) {
    reason[0] = '\0';
    cr_expect_eq(walk(), -EUCLEAN);
    cr_expect(strstr(reason, what), "\"%s\" instead of \"%s\"", reason, what);
}

static int stop(void *argument, struct index_bytes key, struct index_bytes value, bool subtree) {
    (void)argument;
    (void)value;
    (void)subtree;
    return key.data[0] == 'c' ? 5 : 0;
}

Test(index_pages, a_sound_tree_is_seen_in_order) {
    cr_expect_eq(walk(), 0, "%s", reason);
    cr_expect_str_eq(seen, "accmmz");
    cr_expect_eq(used[0], 1 << BRANCH | 1 << LEFT | 1 << RIGHT | 1 << OVERFLOW | 1 << 6);
}

Test(index_pages, an_empty_tree_is_sound_and_half_empty_ones_are_not) {
    tree = (struct index_tree){.root = UINT64_MAX};
    cr_expect_eq(walk(), 0);
    tree.depth = 1;
    expect_damage("description is impossible");
    tree = (struct index_tree){.root = BRANCH};
    expect_damage("description is impossible");
}

Test(index_pages, a_walk_stops_at_a_non_zero_answer) {
    memset(used, 0, sizeof used);
    cr_expect_eq(index_pages_walk(&pages, "test", &tree, stop, NULL), 5);
}

Test(index_pages, a_wrong_number_of_entries_is_damage) {
    tree.entries = 3;
    expect_damage("it says 3 entries and has 4");
    tree.entries = 5;
    expect_damage("it says 5 entries and has 4");
}

Test(index_pages, a_wrong_depth_is_damage) {
    tree.depth = 1;
    expect_damage("is of another kind");
    tree.depth = 3;
    expect_damage("is of another kind");
    tree.depth = 40;
    expect_damage("description is impossible");
}

Test(index_pages, unknown_flags_of_a_tree_are_damage) {
    tree.flags = 0x04; /* duplicates */
    expect_damage("description is impossible");
}

Test(index_pages, a_page_with_another_number_is_damage) {
    *at(RIGHT, 0) = LEFT;
    expect_damage("carries another number");
}

Test(index_pages, a_page_of_another_or_unknown_kind_is_damage) {
    put16(RIGHT, PAGE_FLAGS_AT, KIND_LEAF | 0x4000);
    expect_damage("is of another kind");
    put16(RIGHT, PAGE_FLAGS_AT, KIND_LEAF);
    put16(OVERFLOW, PAGE_FLAGS_AT, KIND_LEAF);
    expect_damage("is of another kind");
}

Test(index_pages, a_page_that_is_used_twice_is_damage) {
    begin_page(BRANCH, KIND_BRANCH);
    add_child(BRANCH, "", LEFT);
    add_child(BRANCH, "m", LEFT);
    expect_damage("page 3 is used twice");
}

Test(index_pages, a_branch_below_itself_ends_the_walk) {
    begin_page(BRANCH, KIND_BRANCH);
    add_child(BRANCH, "", BRANCH);
    add_child(BRANCH, "m", RIGHT);
    tree.depth = 20;
    expect_damage("page 2 is used twice");
}

Test(index_pages, a_free_page_that_a_tree_uses_is_damage) {
    cr_assert_eq(walk(), 0);
    cr_expect_eq(index_pages_use(&pages, 7), 0);
    cr_expect_eq(index_pages_use(&pages, 7), -EUCLEAN);
    cr_expect_eq(index_pages_use(&pages, OVERFLOW + 1), -EUCLEAN);
    cr_expect_eq(index_pages_use(&pages, 1), -EUCLEAN);
    cr_expect_eq(index_pages_use(&pages, PAGES), -EUCLEAN);
}

Test(index_pages, a_tree_page_behind_the_files_end_is_damage_and_a_free_one_is_not) {
    pages.file_pages = 6;
    expect_damage("page 6: is not in the file");
    pages.file_pages = 3;
    expect_damage("page 3: is not in the file");
    cr_expect_eq(index_pages_use(&pages, 7), 0);
}

Test(index_pages, keys_out_of_order_in_a_leaf_are_damage) {
    unsigned first = get16(LEFT, OFFSETS_AT), second = get16(LEFT, OFFSETS_AT + 2);
    put16(LEFT, OFFSETS_AT, second);
    put16(LEFT, OFFSETS_AT + 2, first);
    expect_damage("page 3: its keys are not in order");
}

Test(index_pages, equal_keys_are_damage) {
    begin_page(LEFT, KIND_LEAF);
    add_value(LEFT, "a");
    add_value(LEFT, "a");
    expect_damage("page 3: its keys are not in order");
}

Test(index_pages, a_separator_that_does_not_part_its_leaves_is_damage) {
    begin_page(BRANCH, KIND_BRANCH);
    add_child(BRANCH, "", LEFT);
    size_t node = add_node(BRANCH, "m", 1, RIGHT, 0, "", 0);
    cr_expect_eq(walk(), 0, "%s", reason);
    *at(BRANCH, node + 8) = 'n';
    expect_damage("page 4: its keys are not those of its place");
    *at(BRANCH, node + 8) = 'b';
    expect_damage("page 2: its keys are not in order");
}

Test(index_pages, a_branch_with_one_child_is_only_for_the_free_list) {
    begin_page(BRANCH, KIND_BRANCH);
    add_child(BRANCH, "", LEFT);
    tree.entries = 2;
    expect_damage("impossible header");
    begin_page(LEFT, KIND_LEAF);
    add_value(LEFT, "12345678");
    add_value(LEFT, "12345679");
    tree.flags = INDEX_TREE_INTEGER_KEYS;
    cr_expect_eq(walk(), 0, "%s", reason);
}

Test(index_pages, integer_keys_have_eight_bytes_and_integer_order) {
    static const uint64_t small = 0x00ff, large = 0x0100; /* bytes compare the other way round */
    tree = (struct index_tree){
        .depth = 1, .entries = 2, .root = LEFT, .flags = INDEX_TREE_INTEGER_KEYS};
    begin_page(LEFT, KIND_LEAF);
    add_node(LEFT, (const char *)&small, 8, 1, 0, "v", 1);
    add_node(LEFT, (const char *)&large, 8, 1, 0, "v", 1);
    cr_expect_eq(walk(), 0, "%s", reason);
    tree.flags = 0;
    expect_damage("not in order");
    tree.flags = INDEX_TREE_INTEGER_KEYS;
    begin_page(LEFT, KIND_LEAF);
    add_value(LEFT, "1234567");
    expect_damage("not in order");
}

Test(index_pages, a_leaf_with_an_impossible_header_is_damage) {
    unsigned lower = get16(LEFT, LOWER_AT), upper = get16(LEFT, UPPER_AT);
    const unsigned wrong[][2] = {{14, upper},         {lower - 1, upper}, {upper + 2, upper},
                                 {OFFSETS_AT, upper}, {lower, 4098},      {lower, lower - 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put16(LEFT, LOWER_AT, wrong[i][0]);
        put16(LEFT, UPPER_AT, wrong[i][1]);
        expect_damage("page 3: has an impossible header");
    }
}

Test(index_pages, a_gap_between_nodes_is_damage) {
    put16(LEFT, UPPER_AT, get16(LEFT, UPPER_AT) - 2u);
    expect_damage("page 3: has a gap");
}

Test(index_pages, a_node_at_an_impossible_place_is_damage) {
    unsigned place = get16(LEFT, OFFSETS_AT);
    const unsigned wrong[] = {0, 20, place + 1, PAGE_BYTES - 2, PAGE_BYTES, 0xfffe};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put16(LEFT, OFFSETS_AT, wrong[i]);
        expect_damage("page 3: has a node at an impossible place");
    }
}

Test(index_pages, a_node_that_leaves_its_page_is_damage) {
    size_t node = get16(LEFT, OFFSETS_AT);
    put16(LEFT, node, 3000); /* its value's size */
    expect_damage("page 3: has a node of impossible size");
    put16(LEFT, node, 1);
    put16(LEFT, node + 2, 1); /* 64 KiB more */
    expect_damage("page 3: has a node of impossible size");
    put16(LEFT, node + 2, 0);
    put16(LEFT, node + 6, 512); /* its key's */
    expect_damage("page 3: has a node of impossible size");
}

Test(index_pages, a_node_of_unknown_kind_is_damage) {
    put16(LEFT, get16(LEFT, OFFSETS_AT) + 4u, 4);
    expect_damage("page 3: has a node of unknown kind");
}

Test(index_pages, a_tree_in_a_record_has_the_size_of_one) {
    tree = (struct index_tree){.depth = 1, .entries = 1, .root = LEFT};
    begin_page(LEFT, KIND_LEAF);
    add_node(LEFT, "names", 5, sizeof tree, NODE_SUBTREE, &tree, sizeof tree);
    cr_expect_eq(walk(), 0, "%s", reason);
    begin_page(LEFT, KIND_LEAF);
    add_node(LEFT, "names", 5, 46, NODE_SUBTREE, &tree, 46);
    expect_damage("page 3: has a tree of impossible size");
}

Test(index_pages, an_overflow_page_count_is_neither_too_small_nor_taken_on_trust) {
    set_overflow(1);
    expect_damage("page 5: is too small for its value");
    set_overflow(3); /* the value was longer once */
    cr_expect_eq(walk(), 0, "%s", reason);
    cr_expect(used[0] & 1 << 7);
    set_overflow(0x80000002);
    expect_damage("page 8: is not in the file");
}

Test(index_pages, a_value_without_bytes_may_end_its_page) {
    tree = (struct index_tree){.depth = 1, .entries = 1, .root = LEFT};
    begin_page(LEFT, KIND_LEAF);
    add_node(LEFT, "ab", 2, 0, 0, "", 0);
    memset(used, 0, sizeof used);
    cr_expect_eq(index_pages_walk(&pages, "test", &tree, stop, NULL), 0, "%s", reason);
}
