/* SPDX-License-Identifier: Apache-2.0 */
/* Listings at the store's door: overlay and index merged, whatever is in which of them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rank.h"
#include "tests/support/same_order.h"
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

TestSuite(listing, .init = set_up, .fini = tear_down, .timeout = 120);

/* An empty blob under this hash. */
static void put_hash(const uint8_t hash[SAME_ORDER_BYTES]) {
    struct publication publication = {.key = {.hash_bytes = SAME_ORDER_BYTES}, .mode = 0644};
    struct reservation reservation = {0};
    struct version *version;
    struct blob_record record;
    memcpy(publication.key.hash, hash, SAME_ORDER_BYTES);
    publication.payload_checksum = publication_checksum(NULL, 0);
    cr_assert_eq(rank_reserve(world.rank, 0, 0, &reservation), 0);
    cr_assert_eq(rank_publish(world.rank, &reservation, &publication, &version, &record), 0);
    version_unref(version);
}

enum { SEEDS = 40, SAME_ORDER_TOTAL = SEEDS * SAME_ORDER_HASHES };

/* Of each seed some are committed and some are not. */
static void put_same_orders(void) {
    uint8_t hash[SAME_ORDER_BYTES];
    for (unsigned committed = 1; committed <= 2; committed++) {
        for (uint32_t seed = 0; seed < SEEDS; seed++) {
            for (unsigned i = 0; i < SAME_ORDER_HASHES; i++) {
                same_order_hash(seed * 1000 + 7, i, hash);
                if ((seed + i) % 2 + 1 == committed)
                    put_hash(hash);
            }
        }
        if (committed == 1)
            world_commit(world.rank);
    }
}

Test(listing, entries_of_one_cookie_are_not_split_over_two_answers) {
    struct list_entry *entries = calloc(SAME_ORDER_TOTAL + 1, sizeof *entries);
    put_same_orders();
    for (size_t most = SAME_ORDER_HASHES; most <= 100; most++) {
        size_t total = 0, count;
        uint64_t cookie = 0;
        while (rank_list(world.rank, root, cookie, entries, most, &count) == 0 && count) {
            cr_assert_eq(count % SAME_ORDER_HASHES, 0, "%zu of at most %zu", count, most);
            for (size_t i = 0; i < count; i++) {
                const struct list_entry *first = &entries[i - i % SAME_ORDER_HASHES];
                cr_assert_eq(entries[i].cookie, first->cookie);
                cr_assert(i % SAME_ORDER_HASHES == 0 ||
                          !blob_key_equal(&entries[i].key, &entries[i - 1].key));
            }
            cr_assert_gt(entries[0].cookie, cookie);
            cookie = entries[count - 1].cookie;
            total += count;
        }
        cr_assert_eq(total, SAME_ORDER_TOTAL, "in answers of at most %zu", most);
    }
    free(entries);
}

enum { MANY = 2000, IN_BOTH = 500 };

/* What stands where: below MANY committed, of those below IN_BOTH changed since, from MANY on only
 * in the overlay; each third one is unlinked, whatever it was. */
static bool is_there(unsigned number) {
    return number % 3 != 0;
}

static void fill_both(uint64_t directory) {
    struct blob_key key;
    char name[16];
    for (unsigned i = 0; i < 2 * MANY; i++) {
        if (i == MANY)
            world_commit(world.rank);
        snprintf(name, sizeof name, "%u", i);
        cr_assert_eq(world_put_named(world.rank, directory, name, i, 20, 1, &key), 0);
    }
    for (unsigned i = 0; i < IN_BOTH; i++) {
        snprintf(name, sizeof name, "%u", i);
        cr_assert_eq(world_put_named(world.rank, directory, name, i, 30, 2, &key), 0);
    }
    for (unsigned i = 0; i < 2 * MANY; i += 3) {
        snprintf(name, sizeof name, "%u", i);
        cr_assert_eq(rank_unlink_name(world.rank, directory, name, strlen(name)), 0);
    }
}

static void check_both(uint64_t directory, size_t most) {
    struct list_entry *entries = calloc(most, sizeof *entries);
    bool seen[2 * MANY] = {false};
    size_t count;
    uint64_t cookie = 0;
    while (rank_list(world.rank, directory, cookie, entries, most, &count) == 0 && count) {
        for (size_t i = 0; i < count; i++) {
            unsigned long number = strtoul(entries[i].name, NULL, 10);
            cr_assert(number < 2 * MANY && is_there((unsigned)number) && !seen[number]);
            cr_assert_eq(entries[i].record.payload_bytes, number < IN_BOTH ? 30 : 20);
            cr_assert_gt(entries[i].cookie, cookie);
            cookie = entries[i].cookie;
            seen[number] = true;
        }
    }
    for (unsigned i = 0; i < 2 * MANY; i++)
        cr_assert_eq(seen[i], is_there(i), "%u, in answers of at most %zu", i, most);
    free(entries);
}

Test(listing, the_overlay_wins_over_the_index_in_every_batch) {
    struct name_entry made = {.mode = 0755};
    uint64_t directory, beside;
    cr_assert_eq(rank_make_directory(world.rank, root, "d", 1, &made, &directory), 0);
    cr_assert_eq(rank_make_directory(world.rank, root, "beside", 6, &made, &beside), 0);
    fill_both(directory);
    for (size_t most = 1; most < 200; most = most * 3 + 1)
        check_both(directory, most);
    world_commit(world.rank);
    check_both(directory, 64);
    struct list_entry entry;
    size_t count;
    cr_assert_eq(rank_list(world.rank, beside, 0, &entry, 1, &count), 0);
    cr_expect_eq(count, 0, "the directory beside has none of them");
}

Test(listing, a_listed_blob_shows_the_last_use_that_is_known) {
    struct blob_record record;
    struct list_entry entry;
    size_t count;
    struct blob_key key = hash_key(0, 1);
    cr_assert_eq(world_put(world.rank, 1, 100, 1), 0);
    world_commit(world.rank);
    rank_touch(world.rank, &key, 0);
    cr_assert_eq(rank_get_blob(world.rank, &key, &record), 0);
    cr_assert_eq(rank_list(world.rank, root, 0, &entry, 1, &count), 0);
    cr_assert_eq(count, 1);
    cr_expect_eq(entry.record.last_access_ns, record.last_access_ns);
}
