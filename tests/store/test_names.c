/* SPDX-License-Identifier: Apache-2.0 */
/* Names, directories, renames and listings at the store's door. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/rank.h"
#include "tests/support/store_world.h"

static struct store_world world;
static uint64_t root;

static void set_up(void) {
    store_world_init(&world);
    cr_assert_eq(store_world_open(&world), 0);
    root = directory_root(0);
}

static void tear_down(void) {
    store_world_destroy(&world);
}

TestSuite(names, .init = set_up, .fini = tear_down, .timeout = 120);

static bool exists(uint64_t directory, const char *name, struct name_entry *ret_entry) {
    return rank_get_name(world.rank, directory, name, strlen(name), ret_entry) == 0;
}

static int rename_to(uint64_t from_directory, const char *from, uint64_t to_directory,
                     const char *to) {
    struct rank_rename rename = {.from_directory = from_directory,
                                 .to_directory = to_directory,
                                 .from_name = from,
                                 .to_name = to,
                                 .from_bytes = strlen(from),
                                 .to_bytes = strlen(to)};
    return rank_rename_name(world.rank, &rename);
}

static uint64_t make_directory(uint64_t in, const char *name) {
    struct name_entry made = {.mode = 0755};
    uint64_t directory;
    cr_assert_eq(rank_make_directory(world.rank, in, name, strlen(name), &made, &directory), 0);
    return directory;
}

static void check_content(const struct blob_key *key, uint64_t number, size_t bytes,
                          uint64_t version) {
    uint8_t *found, *wanted = malloc(bytes + 8);
    size_t size;
    cr_assert_eq(world_get(world.rank, key, &found, &size), 0);
    fill_payload(wanted, bytes, number, version);
    cr_expect(size == bytes && memcmp(found, wanted, bytes) == 0);
    free(found);
    free(wanted);
}

Test(names, rename_over_replaces_in_one_step_pending_or_committed) {
    for (int committed = 0; committed < 2; committed++) {
        struct blob_key temp, target;
        struct name_entry entry;
        cr_assert_eq(world_put_named(world.rank, root, "target", 1, 5000, 1, &target), 0);
        cr_assert_eq(world_put_named(world.rank, root, "temp", 2, 9000, 2, &temp), 0);
        if (committed)
            world_commit(world.rank);
        cr_assert_eq(rename_to(root, "temp", root, "target"), 0);
        cr_expect_not(exists(root, "temp", &entry));
        cr_assert(exists(root, "target", &entry));
        cr_expect(blob_key_equal(&entry.blob, &temp));
        check_content(&entry.blob, 2, 9000, 2);
        struct blob_record record;
        cr_expect_eq(rank_get_blob(world.rank, &target, &record), -ENOENT);
        cr_expect_eq(world_verify(world.rank), 0);
        check_content(&entry.blob, 2, 9000, 2);
        cr_assert_eq(rank_unlink_name(world.rank, root, "target", 6), 0);
    }
}

Test(names, a_renamed_file_survives_a_load_under_its_new_name) {
    struct blob_key key;
    struct name_entry entry;
    uint64_t directory = make_directory(root, "dir");
    cr_assert_eq(world_put_named(world.rank, root, "x.tmp", 3, 70000, 1, &key), 0);
    cr_assert_eq(rename_to(root, "x.tmp", directory, "x"), 0);
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_not(exists(root, "x.tmp", &entry));
    cr_assert(exists(directory, "x", &entry));
    check_content(&entry.blob, 3, 70000, 1);
}

Test(names, rename_of_and_over_directories_keeps_the_rules) {
    struct blob_key key;
    struct name_entry entry;
    uint64_t full = make_directory(root, "full"), empty = make_directory(root, "empty");
    cr_assert_eq(world_put_named(world.rank, full, "f", 1, 10, 1, &key), 0);
    cr_assert_eq(world_put_named(world.rank, root, "file", 2, 10, 1, &key), 0);
    cr_expect_eq(rename_to(root, "empty", root, "full"), -ENOTEMPTY);
    cr_expect_eq(rename_to(root, "file", root, "empty"), -EISDIR);
    cr_expect_eq(rename_to(root, "full", root, "file"), -ENOTDIR);
    cr_expect_eq(rename_to(root, "absent", root, "y"), -ENOENT);
    cr_expect_eq(rename_to(root, "full", root, "empty"), 0);
    cr_assert(exists(root, "empty", &entry));
    cr_expect_eq(entry.directory, full);
    cr_expect(exists(full, "f", &entry), "children move along");
    cr_expect_neq(empty, full);
    struct rank_usage usage;
    rank_get_usage(world.rank, &usage);
    cr_expect_eq(usage.directories, 1);
}

Test(names, rmdir_refuses_what_is_not_empty) {
    struct blob_key key;
    uint64_t directory = make_directory(root, "d");
    cr_assert_eq(world_put_named(world.rank, directory, "f", 1, 10, 1, &key), 0);
    cr_expect_eq(rank_remove_directory(world.rank, root, "d", 1), -ENOTEMPTY);
    world_commit(world.rank);
    cr_expect_eq(rank_remove_directory(world.rank, root, "d", 1), -ENOTEMPTY);
    cr_assert_eq(rank_unlink_name(world.rank, directory, "f", 1), 0);
    cr_expect_eq(rank_remove_directory(world.rank, root, "d", 1), 0);
    cr_expect_eq(rank_remove_directory(world.rank, root, "d", 1), -ENOENT);
}

/* Lists all in batches of `most`; each cookie rises. */
static size_t list_all(uint64_t directory, size_t most, struct list_entry *ret_entries,
                       size_t limit) {
    size_t total = 0, count;
    uint64_t cookie = 0;
    do {
        cr_assert_eq(rank_list(world.rank, directory, cookie, ret_entries + total, most, &count),
                     0);
        for (size_t i = 0; i < count; i++) {
            cr_assert_gt(ret_entries[total + i].cookie, cookie);
            cookie = ret_entries[total + i].cookie;
        }
        total += count;
        cr_assert_leq(total + most, limit);
    } while (count);
    return total;
}

Test(names, a_listing_holds_each_entry_once_whatever_the_batch) {
    enum { HASHES = 700, NAMES = 300 };
    struct blob_key key;
    char name[32];
    for (unsigned i = 0; i < HASHES; i++)
        cr_assert_eq(world_put(world.rank, i, 100, 1), 0);
    world_commit(world.rank);
    for (unsigned i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "name-%u", i);
        cr_assert_eq(world_put_named(world.rank, root, name, i, 100, 1, &key), 0);
    }
    struct list_entry *entries = calloc(4000, sizeof(*entries));
    for (size_t most = 1; most < 600; most += 97) {
        cr_assert_eq(list_all(root, most, entries, 4000), HASHES + NAMES);
        uint8_t seen[HASHES] = {0};
        for (size_t i = 0; i < HASHES + NAMES; i++)
            if (!entries[i].name_bytes)
                seen[entries[i].key.hash[14] * 256 + entries[i].key.hash[15]]++;
        for (unsigned i = 0; i < HASHES; i++)
            cr_assert_eq(seen[i], 1);
    }
    for (unsigned i = 0; i < HASHES; i += 2) {
        key = hash_key(0, i);
        cr_assert_eq(rank_unlink_blob(world.rank, &key), 0);
    }
    cr_expect_eq(list_all(root, 64, entries, 4000), HASHES / 2 + NAMES, "before the commit");
    world_commit(world.rank);
    cr_expect_eq(list_all(root, 64, entries, 4000), HASHES / 2 + NAMES, "and after it");
    free(entries);
}

Test(names, deleting_while_listing_skips_and_repeats_nothing) {
    enum { COUNT = 1000 };
    for (unsigned i = 0; i < COUNT; i++)
        cr_assert_eq(world_put(world.rank, i, 10, 1), 0);
    struct list_entry entries[7];
    size_t count, total = 0;
    uint64_t cookie = 0;
    while (rank_list(world.rank, root, cookie, entries, 7, &count) == 0 && count) {
        for (size_t i = 0; i < count; i++)
            cr_assert_eq(rank_unlink_blob(world.rank, &entries[i].key), 0);
        cookie = entries[count - 1].cookie;
        total += count;
        if (total % 5 == 0)
            world_commit(world.rank);
    }
    cr_expect_eq(total, COUNT);
}

Test(names, an_evicted_file_loses_its_name_too) {
    struct blob_key key;
    struct name_entry entry;
    char name[32];
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "n%u", i);
        cr_assert_eq(world_put_named(world.rank, root, name, i, 65536, 1, &key), 0);
    }
    cr_assert_eq(world_verify(world.rank), 0);
    cr_expect_not(exists(root, "n0", &entry));
    cr_expect(exists(root, "n2999", &entry));
    struct rank_usage usage;
    rank_get_usage(world.rank, &usage);
    struct list_entry *entries = calloc(4000, sizeof(*entries));
    cr_expect_eq(list_all(root, 500, entries, 4000), usage.live_slots);
    free(entries);
}

/* a change while its blob is being committed */

struct committing {
    _Atomic bool stop;
};

/* One commit after the other: each lets go of what others are just changing. */
static void *commit_all_the_time(void *argument) {
    struct committing *committing = argument;
    while (!atomic_load(&committing->stop))
        world_commit(world.rank);
    return NULL;
}

static void put_move_and_find(unsigned i) {
    struct blob_key key;
    struct version *version;
    struct attributes attributes = {.set = ATTRIBUTE_MODE, .mode = 0600};
    cr_assert_eq(world_put_named(world.rank, root, "temp", i, i % 2 ? 60 : 5000, 1, &key), 0);
    /* Any moment of its commit may be the one. */
    uint64_t until_ns = clock_monotonic_ns() + i * 7919 % 1500 * 1000;
    while (clock_monotonic_ns() < until_ns)
        continue;
    cr_assert_eq(rename_to(root, "temp", root, "final"), 0);
    cr_assert_eq(rank_open_version(world.rank, &key, 0, &version, NULL), 0, "round %u", i);
    version_unref(version);
    cr_assert_eq(rank_set_blob_attributes(world.rank, &key, &attributes), 0, "round %u", i);
    cr_assert_eq(rank_open_version(world.rank, &key, 0, &version, NULL), 0, "round %u", i);
    version_unref(version);
}

Test(names, a_blob_is_found_after_each_change_made_while_it_is_committed) {
    enum { ROUNDS = 2000 };
    struct committing committing = {.stop = false};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, commit_all_the_time, &committing), 0);
    for (unsigned i = 0; i < ROUNDS; i++)
        put_move_and_find(i);
    atomic_store(&committing.stop, true);
    pthread_join(thread, NULL);
    cr_expect_eq(stats_get(rank_get_stats(world.rank), corrupt), 0);
    cr_expect_eq(world_verify(world.rank), 0);
}
