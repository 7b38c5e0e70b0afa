/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of damaged index files. Whatever is done to the file, the caller lives; and where the
 * check says "sound", everything that is then read must be right.
 */
#include "core/index.h"

#include <criterion/criterion.h>

#include "core/index_pages.h"
#include "tests/support/index_world.h"

enum { RANK = 1, OTHER_RANK = 2, PAGE_BYTES = 4096 };

TestSuite(index_check, .init = world_make, .fini = world_remove, .timeout = 120);

static char reason[200];

static int check(uint16_t rank) {
    snprintf(reason, sizeof reason, "(none)");
    return index_check_in_child(world.path, rank, reason, sizeof reason);
}

static uint64_t seed;

static uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void start_random(void) {
    const char *given = getenv("SEED");
    seed = given ? strtoull(given, NULL, 10) : 20240607;
    cr_log_info("SEED=%" PRIu64, seed);
}

/* A small file with all kinds of records, a tree of two levels, and free pages. */
static void make_index(void) {
    struct index *index = world_open();
    world_fill(index, RANK, true, 0, 60);
    world_fill(index, OTHER_RANK, false, 0, 20);
    struct index_txn *txn = world_begin(index);
    for (uint32_t number = 0; number < 60; number += 2) {
        struct blob_key key = world_key(RANK, true, number);
        cr_assert_eq(index_txn_delete_blob(txn, &key), 0);
    }
    cr_assert_eq(index_txn_commit(txn), 0);
    world_fill(index, RANK, false, 100, 10);
    index_close(index);
}

static int put_some(struct index_txn *txn) {
    int error = 0;
    for (uint32_t number = 200; number < 220 && !error; number++) {
        struct blob_key key = world_key(RANK, true, number);
        error = world_put_blob(txn, &key);
        if (!error)
            error = world_put_name(txn, RANK, number);
    }
    return error;
}

static int delete_all(struct index_txn *txn) {
    int deleted = index_txn_delete_rank_blobs(txn, RANK, 1000);
    return deleted < 0 ? deleted : 0;
}

/* Writing may fail (a header can claim a file that leaves no room), but not kill. */
static void change(struct index *index, int (*change_in)(struct index_txn *txn)) {
    struct index_txn *txn;
    if (index_txn_begin(index, &txn) != 0)
        return;
    if (change_in(txn) == 0)
        index_txn_commit(txn);
    else
        index_txn_abort(txn);
}

/* Reads and changes the rank in a sound file: each value is right (CHECK) or honestly missing. */
static void use_everything(void) {
    struct index_options options = {.map_bytes = 1 << 20};
    struct index *index;
    uint64_t bad = 0;
    if (index_open(world.path, &options, &index) != 0)
        return;
    world_count_blobs(index, RANK, &bad);
    cr_expect_eq(bad, 0);
    world_count_names(index, RANK, &bad);
    cr_expect_eq(bad, 0);
    for (uint32_t number = 0; number < 110; number++) {
        struct blob_key named = world_key(RANK, true, number);
        struct blob_key plain = world_key(RANK, false, number);
        world_look_at_blob(index, &named);
        world_look_at_blob(index, &plain);
    }
    change(index, put_some);
    change(index, delete_all);
    index_close(index);
}

/* Puts a file in place, has it checked, and holds the check to its word. */
static bool judge(const uint8_t *bytes, size_t size) {
    world_write_file(bytes, size);
    int result = check(RANK);
    cr_expect(result == 0 || result == -EUCLEAN, "%d: %s", result, reason);
    if (result == 0)
        use_everything();
    return result == 0;
}

/* sound files */

Test(index_check, an_absent_or_empty_file_is_sound) {
    cr_expect_eq(check(RANK), 0);
    cr_assert_eq(mkdir(world.path, 0700), 0);
    cr_expect_eq(check(RANK), 0);
    world_write_file(NULL, 0);
    cr_expect_eq(check(RANK), 0);
}

Test(index_check, a_fresh_index_and_a_used_one_are_sound) {
    index_close(world_open());
    cr_expect_eq(check(RANK), 0, "%s", reason);
    make_index();
    cr_expect_eq(check(RANK), 0, "%s", reason);
    cr_expect_eq(check(OTHER_RANK), 0, "%s", reason);
    cr_expect_eq(check(900), 0, "%s", reason);
}

/* Puts and deletes at random: pages are split, merged, freed and used again. */
static void change_at_random(struct index *index) {
    struct index_txn *txn = world_begin(index);
    unsigned changes = (unsigned)(next_random() % 200);
    for (unsigned i = 0; i < changes; i++) {
        uint32_t number = (uint32_t)(next_random() % 500);
        struct blob_key key = world_key(RANK, next_random() % 2, number);
        if (next_random() % 2)
            cr_assert_eq(world_put_blob(txn, &key), 0);
        else
            index_txn_delete_blob(txn, &key);
        if (next_random() % 4 == 0)
            cr_assert_eq(world_put_name(txn, RANK, number), 0);
    }
    if (next_random() % 3 == 0) {
        cr_assert_geq(index_txn_delete_rank_blobs(txn, RANK, 10000), 0);
        cr_assert_geq(index_txn_delete_rank_names(txn, RANK, true, 10000), 0);
    }
    cr_assert_eq(index_txn_commit(txn), 0);
}

Test(index_check, an_index_with_any_history_is_sound) {
    start_random();
    struct index *index = world_open();
    for (int round = 0; round < 40; round++) {
        change_at_random(index);
        cr_expect_eq(check(RANK), 0, "round %d: %s", round, reason);
    }
    cr_expect_eq(index_check_readers(index), 0, "the child leaves no reader slot");
    index_close(index);
}

Test(index_check, a_child_process_is_reaped_and_signals_are_left_alone) {
    make_index();
    struct sigaction before, after;
    cr_assert_eq(sigaction(SIGSEGV, NULL, &before), 0);
    cr_expect_eq(check(RANK), 0);
    cr_assert_eq(sigaction(SIGSEGV, NULL, &after), 0);
    cr_expect_eq(before.sa_handler, after.sa_handler);
    cr_expect_eq(waitpid(-1, NULL, WNOHANG), -1);
    cr_expect_eq(errno, ECHILD);
}

/* damaged ones */

Test(index_check, a_rotten_record_is_damage_to_its_own_rank_only) {
    make_index();
    struct blob_key key = world_key(OTHER_RANK, false, 7);
    cr_assert_geq(world_damage_number(world_record(&key).sequence, 30), 1);
    cr_expect_eq(check(OTHER_RANK), -EUCLEAN);
    cr_expect(strstr(reason, "blob record of rank 2"), "%s", reason);
    cr_expect_eq(check(RANK), 0, "%s", reason);
}

Test(index_check, a_rotten_name_is_damage) {
    make_index();
    cr_assert_geq(world_damage_number(world_directory(RANK, 20).directory, 9), 1);
    cr_expect_eq(check(RANK), -EUCLEAN);
    cr_expect(strstr(reason, "name record of rank 1"), "%s", reason);
    cr_expect_eq(check(OTHER_RANK), 0, "%s", reason);
}

Test(index_check, a_file_that_is_no_index_is_damage) {
    static uint8_t garbage[5 * PAGE_BYTES];
    cr_assert_eq(mkdir(world.path, 0700), 0);
    start_random();
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (uint8_t)next_random();
    world_write_file(garbage, sizeof garbage);
    cr_expect_eq(check(RANK), -EUCLEAN);
    cr_expect_neq(reason[0], '(');
}

Test(index_check, a_file_cut_at_any_page_never_harms_the_caller) {
    size_t size;
    unsigned damaged = 0, cuts = 0;
    make_index();
    AUTO_FREE uint8_t *bytes = world_read_file(&size);
    for (size_t cut = PAGE_BYTES; cut < size; cut += PAGE_BYTES, cuts++)
        damaged += !judge(bytes, cut);
    cr_expect_gt(damaged, cuts / 2, "%u of %u", damaged, cuts);
    cr_expect(judge(bytes, size));
}

Test(index_check, a_file_cut_within_a_page_never_harms_the_caller) {
    size_t size;
    make_index();
    AUTO_FREE uint8_t *bytes = world_read_file(&size);
    for (size_t cut = 100; cut < size; cut += 3 * PAGE_BYTES + 77)
        judge(bytes, cut);
}

Test(index_check, flipped_bytes_never_harm_the_caller) {
    size_t size;
    unsigned damaged = 0;
    make_index();
    start_random();
    AUTO_FREE uint8_t *original = world_read_file(&size);
    AUTO_FREE uint8_t *bytes = malloc(size);
    for (int copy = 0; copy < 100; copy++) {
        memcpy(bytes, original, size);
        for (uint64_t flips = 1 + next_random() % 20; flips > 0; flips--)
            bytes[next_random() % size] ^= (uint8_t)(1 + next_random() % 255);
        damaged += !judge(bytes, size);
    }
    cr_expect_gt(damaged, 30);
}

Test(index_check, flipped_bytes_of_the_two_headers_never_harm_the_caller) {
    size_t size;
    make_index();
    start_random();
    AUTO_FREE uint8_t *original = world_read_file(&size);
    AUTO_FREE uint8_t *bytes = malloc(size);
    for (int copy = 0; copy < 60; copy++) {
        memcpy(bytes, original, size);
        size_t header = next_random() % 2 * PAGE_BYTES;
        bytes[header + next_random() % 160] ^= (uint8_t)(1 + next_random() % 255);
        judge(bytes, size);
    }
}

/* Such as a free list with duplicates: it is read as ever, and kills LMDB at the next commit. */
Test(index_check, impossible_flags_in_a_header_are_damage) {
    const size_t flags[] = {offsetof(struct index_header, free_list.flags),
                            offsetof(struct index_header, main.flags)};
    size_t size;
    make_index();
    AUTO_FREE uint8_t *original = world_read_file(&size);
    AUTO_FREE uint8_t *bytes = malloc(size);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        for (uint8_t flag = 2; flag <= 64; flag *= 2) {
            memcpy(bytes, original, size);
            for (size_t header = 0; header < INDEX_HEADER_PAGES; header++)
                bytes[header * PAGE_BYTES + INDEX_HEADER_OFFSET + flags[i]] ^= flag;
            world_write_file(bytes, size);
            cr_expect_eq(check(RANK), -EUCLEAN, "flag %u", flag);
        }
    }
    cr_expect(judge(original, size));
}

struct free_record {
    size_t offset; /* in the file, of a record of two pages or more */
    const uint8_t *file;
};

static int find_free_record(void *argument, struct index_bytes key, struct index_bytes value,
                            bool subtree) {
    struct free_record *record = argument;
    uint64_t count;
    (void)key;
    (void)subtree;
    memcpy(&count, value.data, sizeof count);
    if (count < 2)
        return 0;
    record->offset = (size_t)(value.data - record->file);
    return 1;
}

/* The header in force, and where its free list has a record to spoil. */
static struct index_header open_free_list(const uint8_t *bytes, size_t size, size_t *ret_offset) {
    struct index_header headers[INDEX_HEADER_PAGES];
    uint8_t used[64] = {0};
    struct free_record record = {.file = bytes};
    for (size_t i = 0; i < INDEX_HEADER_PAGES; i++)
        memcpy(&headers[i], bytes + i * PAGE_BYTES + INDEX_HEADER_OFFSET, sizeof headers[i]);
    struct index_header *header = &headers[headers[1].transaction > headers[0].transaction];
    struct index_pages pages = {.bytes = bytes,
                                .page_bytes = PAGE_BYTES,
                                .pages = header->last_page + 1,
                                .file_pages = size / PAGE_BYTES,
                                .used = used,
                                .reason = reason,
                                .reason_bytes = sizeof reason};
    cr_assert_lt(header->last_page, sizeof used * 8);
    cr_assert_eq(
        index_pages_walk(&pages, "free list", &header->free_list, find_free_record, &record), 1);
    *ret_offset = record.offset;
    return *header;
}

Test(index_check, a_free_page_that_is_in_use_is_damage) {
    size_t size, offset;
    uint64_t list[3]; /* the count, the two highest pages */
    make_index();
    AUTO_FREE uint8_t *bytes = world_read_file(&size);
    struct index_header header = open_free_list(bytes, size, &offset);
    memcpy(list, bytes + offset, sizeof list);
    /* Every page has one place: another one than this. */
    uint64_t in_use = list[2] + 1 == list[1] ? list[1] + 1 : list[2] + 1;
    cr_assert_leq(in_use, header.last_page);
    memcpy(bytes + offset + sizeof list[0], &in_use, sizeof in_use);
    world_write_file(bytes, size);
    cr_expect_eq(check(RANK), -EUCLEAN);
    cr_expect(strstr(reason, "is used twice"), "%s", reason);
}

Test(index_check, a_free_list_out_of_order_is_damage) {
    size_t size, offset;
    uint64_t list[3];
    make_index();
    AUTO_FREE uint8_t *bytes = world_read_file(&size);
    open_free_list(bytes, size, &offset);
    memcpy(list, bytes + offset, sizeof list);
    memcpy(bytes + offset + 8, &list[2], sizeof list[2]);
    memcpy(bytes + offset + 16, &list[1], sizeof list[1]);
    world_write_file(bytes, size);
    cr_expect_eq(check(RANK), -EUCLEAN);
    cr_expect(strstr(reason, "free list is not in order"), "%s", reason);
}

Test(index_check, a_free_list_that_counts_more_than_it_has_is_damage) {
    size_t size, offset;
    make_index();
    AUTO_FREE uint8_t *bytes = world_read_file(&size);
    open_free_list(bytes, size, &offset);
    bytes[offset + 3] = 0x7f;
    world_write_file(bytes, size);
    cr_expect_eq(check(RANK), -EUCLEAN);
    cr_expect(strstr(reason, "free list has an impossible record"), "%s", reason);
}

/* LMDB reads many a page with a wrong header, and dies when it changes it. */
Test(index_check, flipped_bits_of_page_headers_never_harm_the_caller) {
    size_t size;
    unsigned damaged = 0;
    make_index();
    start_random();
    AUTO_FREE uint8_t *original = world_read_file(&size);
    AUTO_FREE uint8_t *bytes = malloc(size);
    for (size_t page = 2; page < size / PAGE_BYTES; page++) {
        for (size_t byte = 8; byte < 16; byte += 1 + next_random() % 2) {
            memcpy(bytes, original, size);
            bytes[page * PAGE_BYTES + byte] ^= (uint8_t)(1 << next_random() % 8);
            damaged += !judge(bytes, size);
        }
    }
    cr_expect_gt(damaged, 30);
}

/* LMDB trusts a page's place: a copy of another page there is whole, and wrong. */
Test(index_check, pages_in_the_place_of_others_never_harm_the_caller) {
    size_t size;
    make_index();
    AUTO_FREE uint8_t *original = world_read_file(&size);
    AUTO_FREE uint8_t *bytes = malloc(size);
    for (uint64_t page = 2; page + 1 < size / PAGE_BYTES; page += 2) {
        uint64_t next = page + 1;
        memcpy(bytes, original, size);
        memcpy(bytes + next * PAGE_BYTES, original + page * PAGE_BYTES, PAGE_BYTES);
        judge(bytes, size);
        memcpy(bytes + next * PAGE_BYTES, &next, sizeof next); /* with the right number */
        judge(bytes, size);
    }
}
