/* SPDX-License-Identifier: Apache-2.0 */
/* Listings of what is not committed yet (core/overlay.h): order, tombstones, batches. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/overlay.h"
#include "tests/support/same_order.h"

static struct overlay *overlay;

static void open_overlay(void) {
    cr_assert_eq(overlay_create(&overlay), 0);
}

static void close_overlay(void) {
    overlay_destroy(overlay);
}

TestSuite(overlay_list, .init = open_overlay, .fini = close_overlay, .timeout = 60);

static void put_name(uint64_t directory, const char *name, uint64_t change) {
    struct name_entry entry = {.type = NAME_DIRECTORY, .directory = change};
    cr_assert_eq(overlay_put_name(overlay, directory, name, strlen(name), &entry, change), 0);
}

static void remove_name(uint64_t directory, const char *name, uint64_t change) {
    cr_assert_eq(overlay_remove_name(overlay, directory, name, strlen(name), change), 0);
}

static void put_blob(const struct blob_key *key, uint64_t change) {
    struct blob_record record = {.slot_bytes = 8192, .sequence = change, .payload_bytes = 5};
    cr_assert_eq(overlay_put_blob(overlay, key, &record, NULL, change), 0);
}

static size_t list_names(uint64_t directory, uint64_t hash, struct overlay_name *ret_names,
                         size_t most) {
    size_t count;
    cr_assert_eq(overlay_list_names(overlay, directory, hash, ret_names, most, &count), 0);
    return count;
}

static size_t list_blobs(uint8_t kind, uint64_t order, struct overlay_blob *ret_blobs,
                         size_t most) {
    size_t count;
    cr_assert_eq(overlay_list_blobs(overlay, kind, false, order, ret_blobs, most, &count), 0);
    return count;
}

Test(overlay_list, a_directory_is_listed_in_the_order_of_hashes_with_tombstones) {
    static struct overlay_name names[300];
    size_t gone = 0;
    char name[16];
    for (uint64_t i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "name %lu", (unsigned long)i);
        put_name(1 + i % 2, name, 2 * i + 1);
        if (i % 10 == 0)
            remove_name(1, name, 2 * i + 2);
    }
    size_t count = list_names(1, 0, names, 300);
    cr_assert_eq(count, 150);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(names[i].name.hash, name_hash64(names[i].name.name, names[i].name.name_bytes));
        cr_assert(i == 0 || names[i - 1].name.hash < names[i].name.hash);
        cr_assert_eq(names[i].name.name[names[i].name.name_bytes], 0);
        gone += names[i].gone;
        cr_assert(names[i].gone || names[i].name.entry.directory % 4 == 1);
    }
    cr_assert_eq(gone, 30);
    uint64_t middle = names[70].name.hash;
    cr_assert_eq(list_names(1, middle, names, 300), 80);
    cr_assert_eq(names[0].name.hash, middle);
    cr_assert_eq(list_names(1, middle + 1, names, 300), 79);
}

Test(overlay_list, a_kind_is_listed_in_the_order_of_its_keys_with_tombstones) {
    static struct overlay_blob blobs[300];
    for (uint64_t i = 0; i < 300; i++) {
        struct blob_key key = {
            .rank = 1, .hash_bytes = 16, .kind = (uint8_t)(i % 3), .named = i % 2};
        memcpy(key.hash, &i, sizeof(i));
        put_blob(&key, 2 * i + 1);
        if (i == 4)
            cr_assert_eq(overlay_remove_blob(overlay, &key, 2 * i + 2), 0);
    }
    size_t gone = 0, count = list_blobs(1, 0, blobs, 300);
    cr_assert_eq(count, 50);
    for (size_t i = 0; i < count; i++) {
        const struct blob_key *key = &blobs[i].blob.key;
        cr_assert(key->kind == 1 && !key->named);
        cr_assert(i == 0 || blob_key_order64(&blobs[i - 1].blob.key) < blob_key_order64(key));
        gone += blobs[i].gone;
        uint64_t number;
        memcpy(&number, key->hash, sizeof(number));
        cr_assert_eq(blobs[i].blob.record.sequence, 2 * number + 1);
    }
    cr_assert_eq(gone, 1);
    uint64_t middle = blob_key_order64(&blobs[20].blob.key);
    cr_assert_eq(list_blobs(1, middle, blobs, 300), 30);
    cr_assert_eq(list_blobs(1, middle + 1, blobs, 300), 29);
}

Test(overlay_list, a_listing_stops_at_what_was_asked_for) {
    static struct overlay_name names[8];
    char name[16];
    for (uint64_t i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "n%lu", (unsigned long)i);
        put_name(7, name, i + 1);
    }
    names[7].name.hash = 99;
    cr_expect_eq(list_names(7, 0, names, 7), 7);
    cr_expect_eq(names[7].name.hash, 99, "nothing is written behind it");
    cr_expect_eq(list_names(8, 0, names, 7), 0, "another directory");
}

Test(overlay_list, blobs_of_one_order_are_listed_in_the_order_of_their_bytes) {
    struct overlay_blob blobs[SAME_ORDER_HASHES + 1];
    uint64_t change = 0;
    for (uint32_t seed = 0; seed < 50; seed++) {
        uint64_t order = 0;
        for (unsigned i = 0; i < SAME_ORDER_HASHES; i++) {
            struct blob_key key = {.rank = 1, .hash_bytes = SAME_ORDER_BYTES};
            same_order_hash(seed * 77 + 5, (i + seed) % SAME_ORDER_HASHES, key.hash);
            cr_assert(i == 0 || blob_key_order64(&key) == order);
            order = blob_key_order64(&key);
            put_blob(&key, ++change);
        }
        size_t count = list_blobs(0, order, blobs, SAME_ORDER_HASHES + 1);
        cr_assert_geq(count, SAME_ORDER_HASHES);
        for (unsigned i = 1; i < SAME_ORDER_HASHES; i++)
            cr_assert_lt(memcmp(blobs[i - 1].blob.key.hash, blobs[i].blob.key.hash, 16), 0);
    }
}

/* at random, against a naive model */

enum { DIRECTORIES = 3, NAMES = 700, MODEL_BATCH = 13 };

struct model_name {
    bool listed, gone;
    uint64_t change;
};

static unsigned seed_for_test(void) {
    const char *given = getenv("SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    fprintf(stderr, "SEED=%u\n", seed);
    return seed;
}

/* Lists all of a directory in batches: each name of the model once. */
static void compare_listing(uint64_t directory, const struct model_name model[NAMES]) {
    struct overlay_name names[MODEL_BATCH];
    bool seen[NAMES] = {false};
    size_t count, total = 0, expected = 0;
    uint64_t hash = 0;
    do {
        count = list_names(directory, hash, names, MODEL_BATCH);
        for (size_t i = 0; i < count; i++) {
            unsigned long number = strtoul(names[i].name.name, NULL, 10);
            cr_assert(number < NAMES && model[number].listed && !seen[number]);
            cr_assert_eq(names[i].gone, model[number].gone);
            cr_assert_geq(names[i].name.hash, hash);
            seen[number] = true;
            hash = names[i].name.hash + 1;
        }
        total += count;
    } while (count == MODEL_BATCH);
    for (size_t i = 0; i < NAMES; i++)
        expected += model[i].listed;
    cr_assert_eq(total, expected);
}

Test(overlay_list, it_agrees_with_a_naive_model) {
    static struct model_name model[DIRECTORIES][NAMES];
    char name[16];
    srand(seed_for_test());
    for (uint64_t change = 1; change <= 30000; change++) {
        uint64_t directory = (uint64_t)rand() % DIRECTORIES, number = (uint64_t)rand() % NAMES;
        struct model_name *entry = &model[directory][number];
        snprintf(name, sizeof name, "%lu", (unsigned long)number);
        int choice = rand() % 5;
        if (choice < 2) {
            put_name(directory, name, change);
            *entry = (struct model_name){true, false, change};
        } else if (choice == 2) {
            remove_name(directory, name, change);
            *entry = (struct model_name){true, true, change};
        } else {
            overlay_settle_name(overlay, directory, name, strlen(name), entry->change);
            *entry = (struct model_name){0};
        }
        for (uint64_t i = 0; change % 3000 == 0 && i < DIRECTORIES; i++)
            compare_listing(i, model[i]);
    }
}
