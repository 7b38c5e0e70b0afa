/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `load` cold start of named files whose name, record and slot do not agree: whatever is left
 * of such a file goes, and nothing else. Each with a payload in the index and one in a slot.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/rank.h"
#include "tests/support/store_world.h"

enum { INLINE = 500, PAGE = 5000, SLOT = 8192, FILES = 8 };

static struct store_world world;
static struct blob_key keys[FILES]; /* even ones inline, odd ones in slots */

static size_t bytes_of(unsigned file) {
    return file % 2 ? PAGE : INLINE;
}

static void name_of(unsigned file, char ret_name[16]) {
    snprintf(ret_name, 16, "file-%u.bin", file);
}

static void set_up(void) {
    store_world_init(&world);
    cr_assert_eq(store_world_open(&world), 0);
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        name_of(i, name);
        cr_assert_eq(
            world_put_named(world.rank, directory_root(0), name, i, bytes_of(i), 1, &keys[i]), 0);
    }
    world_commit(world.rank);
}

static void tear_down(void) {
    store_world_destroy(&world);
}

TestSuite(load_names, .init = set_up, .fini = tear_down, .timeout = 120);

static struct index_txn *begin(void) {
    struct index_txn *txn;
    cr_assert_eq(index_txn_begin(world.store->index, &txn), 0);
    return txn;
}

static bool has_name(const char *name, const struct blob_key *key) {
    struct name_entry entry;
    int result = rank_get_name(world.rank, directory_root(0), name, strlen(name), &entry);
    cr_assert(result == 0 || result == -ENOENT);
    return result == 0 && blob_key_equal(&entry.blob, key);
}

/* File by file: its name, its record and its bytes are all there, or none. */
static void expect_files(unsigned first_lost, unsigned lost_count) {
    for (unsigned i = 0; i < FILES; i++) {
        bool is_lost = i >= first_lost && i < first_lost + lost_count;
        struct blob_record record;
        uint8_t *bytes, wanted[PAGE + 8];
        size_t size;
        char name[16];
        name_of(i, name);
        cr_expect_eq(has_name(name, &keys[i]), !is_lost, "%s", name);
        cr_expect_eq(rank_get_blob(world.rank, &keys[i], &record), is_lost ? -ENOENT : 0, "%s",
                     name);
        int result = world_get(world.rank, &keys[i], &bytes, &size);
        cr_expect_eq(result, is_lost ? -ENOENT : 0, "%s", name);
        if (result < 0)
            continue;
        fill_payload(wanted, bytes_of(i), i, 1);
        cr_expect(size == bytes_of(i) && memcmp(bytes, wanted, size) == 0, "%s", name);
        free(bytes);
    }
    cr_expect_eq(world_verify(world.rank), 0);
}

static void expect_pruned(uint64_t records, uint64_t names) {
    cr_expect_eq(world.rank->cold_start.pruned_records, records);
    cr_expect_eq(world.rank->cold_start.pruned_names, names);
}

Test(load_names, all_that_agree_come_back) {
    store_world_reopen(&world, COLD_START_LOAD);
    expect_pruned(0, 0);
    expect_files(0, 0);
    cr_expect_eq(world.rank->cold_start.live_slots, FILES / 2);
    cr_expect_eq(world.rank->cold_start.live_inline, FILES / 2);
}

Test(load_names, a_record_without_its_name_goes) {
    struct index_txn *txn = begin();
    for (unsigned i = 2; i < 4; i++) {
        char name[16];
        name_of(i, name);
        cr_assert_eq(index_txn_delete_name(txn, directory_root(0), name, strlen(name)), 0);
    }
    cr_assert_eq(index_txn_commit(txn), 0);
    store_world_reopen(&world, COLD_START_LOAD);
    expect_pruned(2, 0);
    expect_files(2, 2);
}

Test(load_names, a_name_without_its_record_goes) {
    struct index_txn *txn = begin();
    for (unsigned i = 2; i < 4; i++)
        cr_assert_eq(index_txn_delete_blob(txn, &keys[i]), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    store_world_reopen(&world, COLD_START_LOAD);
    expect_pruned(0, 2);
    expect_files(2, 2);
}

Test(load_names, a_name_that_the_record_does_not_know_goes_alone) {
    struct index_txn *txn = begin();
    static const char *const second[] = {"other0.bin", "other1.bin"}; /* as long as the first */
    for (unsigned i = 0; i < 2; i++) {
        struct name_entry entry = {.type = NAME_BLOB, .blob = keys[2 + i]};
        cr_assert_eq(index_txn_put_name(txn, directory_root(0), second[i], 10, &entry), 0);
    }
    cr_assert_eq(index_txn_commit(txn), 0);
    store_world_reopen(&world, COLD_START_LOAD);
    expect_pruned(0, 2);
    for (unsigned i = 0; i < 2; i++)
        cr_expect_not(has_name(second[i], &keys[2 + i]));
    expect_files(0, 0);
}

/* The header of file `file`'s slot becomes zeros; the store is closed. */
static void tear_slot(unsigned file) {
    struct blob_record record;
    char path[160], zeros[HEADER_BYTES] = {0};
    cr_assert_eq(rank_get_blob(world.rank, &keys[file], &record), 0);
    cr_assert_eq(record.slot_bytes, SLOT);
    store_world_close(&world);
    snprintf(path, sizeof(path), "%s/rank0/any-%d.slab", world.path, SLOT);
    int fd = open(path, O_RDWR);
    cr_assert_eq(pwrite(fd, zeros, HEADER_BYTES, (record.slot + 1) * (off_t)SLOT - HEADER_BYTES),
                 HEADER_BYTES);
    cr_assert_eq(fsync(fd), 0);
    close(fd);
}

Test(load_names, a_name_whose_slot_is_torn_goes_with_its_record) {
    tear_slot(3);
    store_world_reopen(&world, COLD_START_LOAD);
    expect_pruned(1, 0);
    expect_files(3, 1);
}

static size_t listed(void) {
    struct list_entry entry = {.cookie = 0};
    size_t total = 0, count;
    while (rank_list(world.rank, directory_root(0), entry.cookie, &entry, 1, &count) == 0 && count)
        total++;
    return total;
}

Test(load_names, a_read_only_mount_neither_lists_nor_finds_what_is_torn) {
    cr_assert_eq(world_put(world.rank, 100, PAGE, 1), 0);
    cr_assert_eq(world_put(world.rank, 101, PAGE, 1), 0);
    world_commit(world.rank);
    struct blob_record record;
    struct blob_key hash = hash_key(0, 100);
    cr_assert_eq(rank_get_blob(world.rank, &hash, &record), 0);
    cr_assert_eq(listed(), FILES + 2);
    char path[160];
    tear_slot(3);
    snprintf(path, sizeof(path), "%s/rank0/any-%d.slab", world.path, SLOT);
    cr_assert_eq(truncate(path, record.slot * (off_t)SLOT), 0);

    world.config.read_only = true;
    store_world_reopen(&world, COLD_START_LOAD);
    expect_pruned(3, 0);
    cr_expect_eq(listed(), FILES - 1);
    cr_expect_eq(rank_get_blob(world.rank, &hash, &record), -ENOENT);
    expect_files(3, 1);

    world.config.read_only = false; /* and nothing was taken from the disk */
    store_world_reopen(&world, COLD_START_LOAD);
    expect_pruned(3, 0);
}

Test(load_names, what_does_not_agree_stays_on_disk_when_read_only) {
    struct index_txn *txn = begin();
    cr_assert_eq(index_txn_delete_blob(txn, &keys[3]), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    world.config.read_only = true;
    store_world_reopen(&world, COLD_START_LOAD);
    expect_pruned(0, 1);
    expect_files(3, 1);
    cr_expect_eq(listed(), FILES - 1);
    world.config.read_only = false;
    store_world_reopen(&world, COLD_START_LOAD);
    expect_pruned(0, 1);
    store_world_reopen(&world, COLD_START_LOAD);
    expect_pruned(0, 0);
}
