/* SPDX-License-Identifier: Apache-2.0 */
/* The index on a real LMDB file: what is put, listed, walked and deleted, within one process. */
#include "core/index.h"

#include <criterion/criterion.h>

#include "core/index_internal.h"
#include "tests/support/index_world.h"

enum { RANK = 1, OTHER_RANK = 2 };

static struct index *indexed;

static void open_world(void) {
    world_make();
    indexed = world_open();
}

static void close_world(void) {
    index_close(indexed);
    world_remove();
}

TestSuite(index, .init = open_world, .fini = close_world);

static void reopen(void) {
    index_close(indexed);
    indexed = world_open();
}

static struct blob_key key_of_length(uint32_t hash_bytes) {
    struct blob_key key = {.rank = RANK, .kind = 5, .hash_bytes = hash_bytes};
    for (uint32_t i = 0; i < hash_bytes; i++)
        key.hash[i] = (uint8_t)(i + 1);
    return key;
}

static int look_up_name(uint16_t rank, uint32_t number, struct name_entry *ret_entry) {
    char name[NAME_BYTES_MAX + 1];
    size_t name_bytes = world_name(number, name);
    return index_get_name(indexed, directory_root(rank), name, name_bytes, ret_entry);
}

static void delete_blob(const struct blob_key *key) {
    struct index_txn *txn = world_begin(indexed);
    cr_assert_eq(index_txn_delete_blob(txn, key), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
}

/* by key */

Test(index, blobs_with_hashes_of_every_length_come_back_after_a_reopen) {
    struct index_txn *txn = world_begin(indexed);
    for (uint32_t bytes = HASH_BYTES_MIN; bytes <= HASH_BYTES_MAX; bytes++) {
        struct blob_key key = key_of_length(bytes);
        struct blob_record record = {.slot_bytes = 4096, .slot = bytes, .mode = 0600};
        cr_assert_eq(index_txn_put_blob(txn, &key, &record), 0);
    }
    cr_assert_eq(index_txn_commit(txn), 0);
    reopen();
    for (uint32_t bytes = HASH_BYTES_MIN; bytes <= HASH_BYTES_MAX; bytes++) {
        struct blob_key key = key_of_length(bytes);
        struct blob_record record;
        cr_assert_eq(index_get_blob(indexed, &key, &record), 0);
        cr_expect_eq(record.slot, bytes);
    }
}

Test(index, records_names_and_inline_payloads_come_back_whole) {
    uint64_t bad;
    world_fill(indexed, RANK, true, 1, 300);
    reopen();
    for (uint32_t number = 1; number <= 300; number++) {
        struct blob_key key = world_key(RANK, true, number);
        struct name_entry entry, expected = world_entry(RANK, number);
        cr_expect_eq(world_look_at_blob(indexed, &key), 0);
        cr_assert_eq(look_up_name(RANK, number, &entry), 0);
        cr_expect(world_entry_equal(&entry, &expected));
    }
    cr_expect_eq(world_count_blobs(indexed, RANK, &bad), 300);
    cr_expect_eq(world_count_names(indexed, RANK, &bad), 300);
}

Test(index, what_was_never_put_is_absent) {
    struct blob_key key = world_key(RANK, false, 1);
    struct blob_record record = {.slot = 99};
    struct name_entry entry;
    uint64_t value = 99;
    char longer[NAME_BYTES_MAX + 1];
    memset(longer, 'x', sizeof longer);
    cr_expect_eq(index_get_blob(indexed, &key, &record), -ENOENT);
    cr_expect_eq(record.slot, 99, "untouched on failure");
    cr_expect_eq(index_get_inline(indexed, &key, &record, 8), -ENOENT);
    cr_expect_eq(look_up_name(RANK, 1, &entry), -ENOENT);
    cr_expect_eq(index_get_name(indexed, directory_root(RANK), longer, sizeof longer, &entry),
                 -ENOENT);
    cr_expect_eq(index_get_name(indexed, directory_root(RANK), "", 0, &entry), -ENOENT);
    cr_expect_eq(index_get_meta(indexed, "rank 1 next-directory", &value), -ENOENT);
    cr_expect_eq(value, 99);
}

Test(index, a_name_of_255_bytes_of_any_value_comes_back) {
    char name[NAME_BYTES_MAX];
    struct name_entry entry = world_directory(RANK, 4), back;
    for (int i = 0; i < NAME_BYTES_MAX; i++)
        name[i] = (char)(i + 1 == '/' ? '_' : i + 1);
    struct index_txn *txn = world_begin(indexed);
    cr_assert_eq(index_txn_put_name(txn, directory_root(RANK), name, sizeof name, &entry), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    cr_assert_eq(index_get_name(indexed, directory_root(RANK), name, sizeof name, &back), 0);
    cr_expect(world_entry_equal(&entry, &back));
    cr_expect_eq(index_get_name(indexed, directory_root(RANK), name, sizeof name - 1, &back),
                 -ENOENT);
}

Test(index, an_inline_payload_of_another_length_is_a_bad_message) {
    uint8_t payload[INLINE_BYTES_MAX], back[INLINE_BYTES_MAX];
    struct blob_key key = world_key(RANK, true, 1), empty = world_key(RANK, false, 2);
    memset(payload, 7, sizeof payload);
    struct index_txn *txn = world_begin(indexed);
    cr_assert_eq(index_txn_put_inline(txn, &key, payload, INLINE_BYTES_MAX), 0);
    cr_assert_eq(index_txn_put_inline(txn, &empty, NULL, 0), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    cr_expect_eq(index_get_inline(indexed, &key, back, INLINE_BYTES_MAX - 1), -EBADMSG);
    cr_expect_eq(index_get_inline(indexed, &key, back, INLINE_BYTES_MAX + 1), -EBADMSG);
    cr_expect_eq(index_get_inline(indexed, &key, back, INLINE_BYTES_MAX), 0);
    cr_expect_arr_eq(payload, back, sizeof payload);
    cr_expect_eq(index_get_inline(indexed, &empty, back, 1), -EBADMSG);
    cr_expect_eq(index_get_inline(indexed, &empty, NULL, 0), 0);
}

Test(index, a_put_replaces_and_a_delete_takes_the_inline_payload_along) {
    struct blob_key key = world_key(RANK, false, 3);
    struct blob_record record = world_record(&key), back;
    uint8_t payload[INLINE_BYTES_MAX];
    world_fill(indexed, RANK, false, 3, 1);
    record.hits = 1234;
    struct index_txn *txn = world_begin(indexed);
    cr_assert_eq(index_txn_put_blob(txn, &key, &record), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    cr_assert_eq(index_get_blob(indexed, &key, &back), 0);
    cr_expect_eq(back.hits, 1234);
    delete_blob(&key);
    cr_expect_eq(index_get_blob(indexed, &key, &back), -ENOENT);
    cr_expect_eq(index_get_inline(indexed, &key, payload, record.payload_bytes), -ENOENT);
}

Test(index, meta_values_come_back_and_are_replaced) {
    uint64_t value;
    for (uint64_t i = 0; i < 3; i++) {
        struct index_txn *txn = world_begin(indexed);
        cr_assert_eq(index_txn_put_meta(txn, "rank 1 next-directory", i + 1), 0);
        cr_assert_eq(index_txn_put_meta(txn, "rank 2 next-directory", UINT64_MAX - i), 0);
        cr_assert_eq(index_txn_commit(txn), 0);
    }
    reopen();
    cr_expect_eq(index_get_meta(indexed, "rank 1 next-directory", &value), 0);
    cr_expect_eq(value, 3);
    cr_expect_eq(index_get_meta(indexed, "rank 2 next-directory", &value), 0);
    cr_expect_eq(value, UINT64_MAX - 2);
}

/* transactions */

Test(index, a_transaction_sees_its_own_changes_and_nobody_else_does) {
    struct blob_key key = world_key(RANK, true, 1);
    struct blob_record record = world_record(&key);
    struct name_entry entry = world_entry(RANK, 1), back;
    struct index_txn *txn = world_begin(indexed);
    cr_assert_eq(index_txn_put_blob(txn, &key, &record), 0);
    cr_assert_eq(index_txn_put_name(txn, directory_root(RANK), "n", 1, &entry), 0);
    cr_expect_eq(index_txn_get_blob(txn, &key, &record), 0);
    cr_expect_eq(index_txn_get_name(txn, directory_root(RANK), "n", 1, &back), 0);
    cr_expect_eq(index_get_blob(indexed, &key, &record), -ENOENT);
    cr_assert_eq(index_txn_delete_name(txn, directory_root(RANK), "n", 1), 0);
    cr_expect_eq(index_txn_get_name(txn, directory_root(RANK), "n", 1, &back), -ENOENT);
    cr_assert_eq(index_txn_commit(txn), 0);
    cr_expect_eq(index_get_blob(indexed, &key, &record), 0);
}

Test(index, an_abort_leaves_nothing_behind) {
    struct blob_key key = world_key(RANK, false, 1);
    struct blob_record record;
    struct index_txn *txn = world_begin(indexed);
    cr_assert_eq(world_put_blob(txn, &key), 0);
    index_txn_abort(txn);
    index_txn_abort(NULL);
    cr_expect_eq(index_get_blob(indexed, &key, &record), -ENOENT);
}

Test(index, deletes_of_what_is_absent_say_so_and_do_no_harm) {
    struct blob_key key = world_key(RANK, false, 1), other = world_key(RANK, false, 2);
    struct blob_record record;
    struct index_txn *txn = world_begin(indexed);
    cr_expect_eq(index_txn_delete_blob(txn, &key), -ENOENT);
    cr_expect_eq(index_txn_delete_inline(txn, &key), -ENOENT);
    cr_expect_eq(index_txn_delete_name(txn, directory_root(RANK), "x", 1), -ENOENT);
    cr_assert_eq(world_put_blob(txn, &other), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    cr_expect_eq(index_get_blob(indexed, &other, &record), 0);
}

/* listings */

enum { LISTED = 5000, BATCH = 64 };

Test(index, a_listing_of_names_gives_each_once_in_hash_order) {
    static struct index_name names[BATCH];
    static unsigned char seen[LISTED];
    uint64_t last = 0;
    size_t count, total = 0;
    world_fill(indexed, OTHER_RANK, true, 0, 100);
    world_fill(indexed, RANK, true, 0, LISTED);
    for (;;) {
        cr_assert_eq(
            index_list_names(indexed, directory_root(RANK), last, total == 0, names, BATCH, &count),
            0);
        if (count == 0)
            break;
        for (size_t i = 0; i < count; i++, total++) {
            struct name_entry expected;
            uint32_t number = (uint32_t)strtoul(names[i].name, NULL, 10);
            expected = world_entry(RANK, number);
            cr_assert(total == 0 || names[i].hash > last);
            cr_assert(world_entry_equal(&names[i].entry, &expected));
            cr_assert_eq(seen[number]++, 0);
            last = names[i].hash;
        }
    }
    cr_expect_eq(total, LISTED);
}

Test(index, a_listing_of_integer_hashes_resumes_at_any_order) {
    static struct index_blob blobs[BATCH];
    static unsigned char seen[LISTED];
    uint64_t last = 0;
    size_t count, total = 0;
    world_fill(indexed, OTHER_RANK, false, 0, 100);
    world_fill(indexed, RANK, true, 0, 100);
    world_fill(indexed, RANK, false, 0, LISTED);
    for (;;) {
        cr_assert_eq(
            index_list_blobs(indexed, RANK, 0, false, last, total == 0, blobs, BATCH, &count), 0);
        if (count == 0)
            break;
        for (size_t i = 0; i < count; i++, total++) {
            uint64_t order = blob_key_order64(&blobs[i].key);
            struct blob_record expected = world_record(&blobs[i].key);
            cr_assert(total == 0 || order > last);
            cr_assert(blobs[i].key.rank == RANK && !blobs[i].key.named);
            cr_assert(world_record_equal(&blobs[i].record, &expected));
            cr_assert_eq(seen[world_number(&blobs[i].key)]++, 0);
            last = order;
        }
        /* Unlinking while listing. */
        delete_blob(&blobs[count / 2].key);
    }
    cr_expect_eq(total, LISTED);
}

Test(index, a_listing_includes_or_leaves_out_the_place_it_starts_at) {
    struct index_blob blob, again;
    struct index_name name, same;
    size_t count;
    world_fill(indexed, RANK, true, 1, 20);
    cr_assert_eq(index_list_blobs(indexed, RANK, 0, true, 0, true, &blob, 1, &count), 0);
    uint64_t order = blob_key_order64(&blob.key);
    cr_assert_eq(index_list_blobs(indexed, RANK, 0, true, order, true, &again, 1, &count), 0);
    cr_expect(count == 1 && blob_key_equal(&again.key, &blob.key));
    cr_assert_eq(index_list_blobs(indexed, RANK, 0, true, order, false, &again, 1, &count), 0);
    cr_expect(count == 1 && !blob_key_equal(&again.key, &blob.key));
    cr_assert_eq(index_list_names(indexed, directory_root(RANK), 0, true, &name, 1, &count), 0);
    cr_assert_eq(
        index_list_names(indexed, directory_root(RANK), name.hash, false, &same, 1, &count), 0);
    cr_expect(count == 1 && same.hash > name.hash);
    cr_assert_eq(
        index_list_names(indexed, directory_root(RANK), UINT64_MAX, false, &same, 1, &count), 0);
    cr_expect_eq(count, 0);
}

/* Puts bytes that are no record under a raw key. */
static void put_raw(unsigned database, struct index_bytes key) {
    struct index_txn *txn = world_begin(indexed);
    cr_assert_eq(index_put(txn, database, key, (struct index_bytes){key.data, 1}), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
}

Test(index, names_of_one_hash_are_not_split_over_two_lists) {
    struct index_name names[4], last;
    size_t count;
    world_fill(indexed, RANK, true, 1, 20);
    cr_assert_eq(index_list_names(indexed, directory_root(RANK), 0, true, names, 4, &count), 0);
    cr_assert_eq(count, 4);
    last = names[3];
    uint8_t raw[NAME_KEY_BYTES_MAX];
    size_t size = index_record_pack_name_key(directory_root(RANK), last.name, last.name_bytes, raw);
    raw[size++] = 'x'; /* after it, with its hash */
    put_raw(indexed->names, (struct index_bytes){raw, size});
    cr_assert_eq(index_list_names(indexed, directory_root(RANK), 0, true, names, 4, &count), 0);
    cr_expect_eq(count, 3);
    cr_assert_eq(
        index_list_names(indexed, directory_root(RANK), names[2].hash, false, names, 4, &count), 0);
    cr_expect_eq(count, 4);
    cr_expect_eq(names[0].hash, last.hash);
    cr_assert_eq(index_list_names(indexed, directory_root(RANK), last.hash, true, names, 1, &count),
                 0);
    cr_expect_eq(count, 1, "a group larger than the list is cut");
}

Test(index, blobs_of_one_order_are_not_split_over_two_lists) {
    struct index_blob blobs[4], last;
    size_t count;
    world_fill(indexed, RANK, false, 1, 20);
    cr_assert_eq(index_list_blobs(indexed, RANK, 0, false, 0, true, blobs, 4, &count), 0);
    cr_assert_eq(count, 4);
    last = blobs[3];
    uint8_t raw[BLOB_KEY_BYTES_MAX];
    size_t size = index_record_pack_blob_key(&last.key, raw);
    raw[size++] = 'x';
    put_raw(indexed->blobs, (struct index_bytes){raw, size});
    cr_assert_eq(index_list_blobs(indexed, RANK, 0, false, 0, true, blobs, 4, &count), 0);
    cr_expect_eq(count, 3);
    uint64_t order = blob_key_order64(&blobs[2].key);
    cr_assert_eq(index_list_blobs(indexed, RANK, 0, false, order, false, blobs, 4, &count), 0);
    cr_expect_eq(count, 4);
    cr_expect(blob_key_equal(&blobs[0].key, &last.key));
    order = blob_key_order64(&last.key);
    cr_assert_eq(index_list_blobs(indexed, RANK, 0, false, order, true, blobs, 1, &count), 0);
    cr_expect_eq(count, 1, "a group larger than the list is cut");
}

/* all of a rank */

static int stop_at_third(void *argument, const struct index_blob *blob) {
    (void)blob;
    return ++*(int *)argument == 3 ? 33 : 0;
}

Test(index, a_walk_stops_at_a_non_zero_answer_and_returns_it) {
    int calls = 0;
    uint64_t bad = 99;
    world_fill(indexed, RANK, false, 0, 10);
    cr_expect_eq(index_each_blob(indexed, RANK, stop_at_third, &calls, &bad), 33);
    cr_expect_eq(calls, 3);
    cr_expect_eq(bad, 99);
}

/* Deletes what it is shown: neither a read transaction nor a lock may be held meanwhile. */
static int delete_it(void *argument, const struct index_blob *blob) {
    delete_blob(&blob->key);
    (*(unsigned *)argument)++;
    return 0;
}

Test(index, a_walk_allows_changes_and_meets_every_blob_of_every_kind) {
    uint64_t bad;
    unsigned seen = 0;
    world_fill(indexed, OTHER_RANK, false, 0, 10);
    world_fill(indexed, RANK, false, 0, 300);
    world_fill(indexed, RANK, true, 0, 300);
    struct index_txn *txn = world_begin(indexed);
    struct blob_key key = key_of_length(8);
    struct blob_record record = {.slot_bytes = 4096, .mode = 0600};
    cr_assert_eq(index_txn_put_blob(txn, &key, &record), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    cr_assert_eq(index_each_blob(indexed, RANK, delete_it, &seen, &bad), 0);
    cr_expect_eq(seen, 601);
    cr_expect_eq(bad, 0);
    cr_expect_eq(world_count_blobs(indexed, RANK, &bad), 0);
    cr_expect_eq(world_count_blobs(indexed, OTHER_RANK, &bad), 10);
}

Test(index, deleting_a_ranks_blobs_never_touches_another_rank) {
    uint64_t bad;
    int deleted, total = 0;
    for (uint16_t rank = RANK - 1; rank <= RANK + 1; rank++) {
        world_fill(indexed, rank, false, 0, 500);
        world_fill(indexed, rank, true, 0, 500);
    }
    struct index_txn *txn = world_begin(indexed);
    while ((deleted = index_txn_delete_rank_blobs(txn, RANK, 70)) > 0) {
        cr_assert_leq(deleted, 70);
        total += deleted;
    }
    cr_assert_eq(deleted, 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    cr_expect_eq(total, 1000);
    for (uint32_t number = 0; number < 500; number++) {
        struct blob_key gone = world_key(RANK, false, number);
        cr_assert_eq(world_look_at_blob(indexed, &gone), -ENOENT);
        for (uint16_t rank = RANK - 1; rank <= RANK + 1; rank += 2) {
            struct blob_key key = world_key(rank, number % 2, number);
            cr_assert_eq(world_look_at_blob(indexed, &key), 0);
        }
    }
    struct index_usage usage;
    cr_assert_eq(index_get_usage(indexed, &usage), 0);
    cr_expect_eq(usage.blobs, 2000);
    cr_expect_eq(usage.inlines, 4 * 167);
    cr_expect_eq(world_count_names(indexed, RANK, &bad), 500);
}

Test(index, deleting_a_ranks_blobs_takes_inline_payloads_without_a_record_too) {
    struct blob_key key = world_key(RANK, false, 3);
    uint8_t payload[4] = {0};
    struct index_txn *txn = world_begin(indexed);
    cr_assert_eq(index_txn_put_inline(txn, &key, payload, sizeof payload), 0);
    cr_expect_eq(index_txn_delete_rank_blobs(txn, RANK, 10), 1);
    cr_expect_eq(index_txn_delete_rank_blobs(txn, RANK, 10), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    cr_expect_eq(index_get_inline(indexed, &key, payload, sizeof payload), -ENOENT);
}

/* With an abort in between, after which the next calls must find again what it brought back. */
static int delete_all_names(bool keep_directories) {
    int deleted, total = 0;
    struct index_txn *txn = world_begin(indexed);
    cr_assert_eq(index_txn_delete_rank_names(txn, RANK, keep_directories, 100), 100);
    index_txn_abort(txn);
    txn = world_begin(indexed);
    while ((deleted = index_txn_delete_rank_names(txn, RANK, keep_directories, 33)) > 0)
        total += deleted;
    cr_assert_eq(deleted, 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    return total;
}

Test(index, deleting_a_ranks_names_can_keep_its_directories) {
    uint64_t bad;
    struct name_entry entry;
    world_fill(indexed, RANK - 1, true, 0, 50);
    world_fill(indexed, RANK, true, 0, 1000);
    world_fill(indexed, RANK + 1, true, 0, 50);
    cr_expect_eq(delete_all_names(true), 900);
    cr_expect_eq(world_count_names(indexed, RANK, &bad), 100);
    cr_expect_eq(look_up_name(RANK, 10, &entry), 0);
    cr_expect_eq(look_up_name(RANK, 11, &entry), -ENOENT);
    cr_expect_eq(world_count_names(indexed, RANK - 1, &bad), 50);
    cr_expect_eq(world_count_names(indexed, RANK + 1, &bad), 50);
}

Test(index, deleting_a_ranks_names_takes_its_directories_if_asked) {
    uint64_t bad;
    world_fill(indexed, RANK, true, 0, 1000);
    world_fill(indexed, RANK + 1, true, 0, 50);
    cr_expect_eq(delete_all_names(false), 1000);
    cr_expect_eq(world_count_names(indexed, RANK, &bad), 0);
    cr_expect_eq(world_count_names(indexed, RANK + 1, &bad), 50);
    cr_expect_eq(world_count_blobs(indexed, RANK, &bad), 1000);
}

/* rot */

Test(index, a_rotten_record_is_a_bad_message_and_left_out_of_lists_and_walks) {
    struct blob_key key = world_key(RANK, false, 7);
    struct blob_record record = world_record(&key), back = {.slot = 99};
    static struct index_blob blobs[64];
    uint64_t bad;
    size_t count;
    world_fill(indexed, RANK, false, 0, 40);
    index_close(indexed);
    cr_assert_geq(world_damage_number(record.sequence, 30), 1);
    indexed = world_open();
    cr_expect_eq(index_get_blob(indexed, &key, &back), -EBADMSG);
    cr_expect_eq(back.slot, 99);
    cr_expect_eq(world_count_blobs(indexed, RANK, &bad), 39);
    cr_expect_eq(bad, 1);
    cr_assert_eq(index_list_blobs(indexed, RANK, 0, false, 0, true, blobs, 64, &count), 0);
    cr_expect_eq(count, 39);
    struct index_txn *txn = world_begin(indexed);
    cr_expect_eq(index_txn_get_blob(txn, &key, &back), -EBADMSG);
    cr_expect_eq(index_txn_delete_blob(txn, &key), 0, "a bad record can be deleted");
    cr_expect_eq(index_txn_commit(txn), 0);
    cr_expect_eq(index_get_blob(indexed, &key, &back), -ENOENT);
}

Test(index, a_rotten_name_is_a_bad_message_and_left_out_of_lists_and_walks) {
    static struct index_name names[64];
    struct name_entry entry;
    uint64_t bad;
    size_t count;
    world_fill(indexed, RANK, true, 0, 40);
    index_close(indexed);
    /* The directory id in the value of a directory's name. */
    cr_assert_geq(world_damage_number(world_directory(RANK, 20).directory, 9), 1);
    indexed = world_open();
    cr_expect_eq(look_up_name(RANK, 20, &entry), -EBADMSG);
    cr_expect_eq(world_count_names(indexed, RANK, &bad), 39);
    cr_expect_eq(bad, 1);
    cr_assert_eq(index_list_names(indexed, directory_root(RANK), 0, true, names, 64, &count), 0);
    cr_expect_eq(count, 39);
}
