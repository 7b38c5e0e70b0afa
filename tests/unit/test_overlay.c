/* SPDX-License-Identifier: Apache-2.0 */
/* Changes that are not committed yet (core/overlay.h): entries, settling, listings, races. */
#include "core/overlay.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/version.h"
#include "tests/support/version_world.h"

static struct world world; /* for its table: whoever has a reference keeps a version in it */
static struct overlay *overlay;

static void open_overlay(void) {
    world_open(&world, &(struct world_options){.slot_bytes = 8192, .slots = 1});
    cr_assert_eq(overlay_create(&overlay), 0);
}

static void close_overlay(void) {
    overlay_destroy(overlay);
    cr_assert_eq(version_table_count(world.table), 0, "all references are back");
    world_close(&world);
}

TestSuite(overlay, .init = open_overlay, .fini = close_overlay, .timeout = 60);

static struct blob_key make_key(uint64_t number) {
    struct blob_key key = {.rank = 1, .hash_bytes = 16};
    memcpy(key.hash, &number, sizeof(number));
    return key;
}

static struct blob_record make_record(uint64_t sequence) {
    return (struct blob_record){.slot_bytes = 8192, .sequence = sequence, .payload_bytes = 5};
}

static struct version *make_version(const struct blob_key *key, uint64_t sequence) {
    struct blob_record record = make_record(sequence);
    struct version *version;
    cr_assert_eq(version_create_staged(world.table, key, &record, NULL, "bytes", &version), 0);
    return version;
}

/* A publish: the overlay alone holds the version. */
static void publish(const struct blob_key *key, uint64_t change) {
    struct blob_record record = make_record(change);
    struct version *version = make_version(key, change);
    cr_assert_eq(overlay_put_blob(overlay, key, &record, version, change), 0);
    version_unref(version);
}

static enum overlay_found get_blob(const struct blob_key *key, uint64_t *ret_sequence) {
    struct blob_record record;
    uint64_t stamp;
    enum overlay_found found = overlay_get_blob(overlay, key, &record, NULL, &stamp);
    if (found == OVERLAY_PRESENT)
        *ret_sequence = record.sequence;
    return found;
}

static enum overlay_found get_name(uint64_t directory, const char *name,
                                   struct name_entry *ret_entry) {
    uint64_t stamp;
    return overlay_get_name(overlay, directory, name, strlen(name), ret_entry, &stamp);
}

static void put_name(uint64_t directory, const char *name, enum name_type type, uint64_t change) {
    struct name_entry entry = {.type = type, .directory = change};
    cr_assert_eq(overlay_put_name(overlay, directory, name, strlen(name), &entry, change), 0);
}

static void remove_name(uint64_t directory, const char *name, uint64_t change) {
    cr_assert_eq(overlay_remove_name(overlay, directory, name, strlen(name), change), 0);
}

/* blobs */

Test(overlay, what_did_not_change_is_asked_of_the_index) {
    struct blob_key key = make_key(1);
    struct blob_record record;
    struct name_entry entry;
    uint64_t stamp = 77;
    cr_assert_eq(overlay_get_blob(overlay, &key, &record, NULL, &stamp), OVERLAY_UNKNOWN);
    cr_assert(overlay_blob_unchanged(overlay, &key, stamp));
    cr_assert_eq(get_name(1, "name", &entry), OVERLAY_UNKNOWN);
    cr_assert_eq(overlay_entries(overlay), 0);
}

Test(overlay, a_published_blob_is_found_with_its_version) {
    struct blob_key key = make_key(1), other = make_key(2);
    struct blob_record record;
    struct version *version;
    uint64_t stamp, sequence;
    publish(&key, 10);
    cr_assert_eq(overlay_get_blob(overlay, &key, &record, &version, &stamp), OVERLAY_PRESENT);
    cr_assert_eq(record.sequence, 10);
    cr_assert_eq(version_sequence(version), 10);
    version_unref(version);
    cr_assert_eq(get_blob(&other, &sequence), OVERLAY_UNKNOWN);
    cr_assert_eq(overlay_entries(overlay), 1);
}

Test(overlay, keys_differ_by_rank_kind_and_name_flag) {
    struct blob_key key = make_key(1);
    uint64_t sequence;
    publish(&key, 10);
    struct blob_key others[3] = {key, key, key};
    others[0].rank = 2;
    others[1].kind = 1;
    others[2].named = 1;
    for (int i = 0; i < 3; i++)
        cr_assert_eq(get_blob(&others[i], &sequence), OVERLAY_UNKNOWN);
}

Test(overlay, a_later_publish_replaces_the_version) {
    struct blob_key key = make_key(1);
    uint64_t sequence;
    publish(&key, 10);
    publish(&key, 11);
    cr_assert_eq(get_blob(&key, &sequence), OVERLAY_PRESENT);
    cr_assert_eq(sequence, 11);
    cr_assert_eq(version_table_count(world.table), 1, "the old version's reference is dropped");
    cr_assert_eq(overlay_entries(overlay), 1);
}

Test(overlay, a_removed_blob_is_gone_and_lets_its_version_go) {
    struct blob_key key = make_key(1), committed = make_key(2);
    uint64_t sequence;
    publish(&key, 10);
    cr_assert_eq(overlay_remove_blob(overlay, &key, 11), 0);
    cr_assert_eq(overlay_remove_blob(overlay, &committed, 12), 0);
    cr_assert(get_blob(&key, &sequence) == OVERLAY_GONE);
    cr_assert(get_blob(&committed, &sequence) == OVERLAY_GONE);
    cr_assert_eq(version_table_count(world.table), 0);
}

Test(overlay, changed_attributes_keep_the_version) {
    struct blob_key key = make_key(1);
    struct blob_record record = make_record(10), found;
    struct version *version;
    uint64_t stamp;
    publish(&key, 10);
    record.mode = 0640;
    cr_assert_eq(overlay_put_blob(overlay, &key, &record, NULL, 11), 0);
    cr_assert_eq(overlay_get_blob(overlay, &key, &found, &version, &stamp), OVERLAY_PRESENT);
    cr_assert_eq(found.mode, 0640);
    cr_assert(version);
    version_unref(version);
}

Test(overlay, a_blob_changed_after_a_tombstone_has_no_version) {
    struct blob_key key = make_key(1);
    struct blob_record record = make_record(12), found;
    struct version *version;
    uint64_t stamp;
    publish(&key, 10);
    cr_assert_eq(overlay_remove_blob(overlay, &key, 11), 0);
    cr_assert_eq(overlay_put_blob(overlay, &key, &record, NULL, 12), 0);
    cr_assert_eq(overlay_get_blob(overlay, &key, &found, &version, &stamp), OVERLAY_PRESENT);
    cr_assert_null(version);
}

Test(overlay, settling_forgets_an_entry_unless_a_later_change_touched_it) {
    struct blob_key key = make_key(1);
    uint64_t sequence;
    publish(&key, 10);
    publish(&key, 12);
    overlay_settle_blob(overlay, &key, 10);
    cr_assert_eq(get_blob(&key, &sequence), OVERLAY_PRESENT);
    cr_assert_eq(sequence, 12);
    overlay_settle_blob(overlay, &key, 12);
    cr_assert_eq(get_blob(&key, &sequence), OVERLAY_UNKNOWN);
    cr_assert_eq(version_table_count(world.table), 0);
    cr_assert_eq(overlay_entries(overlay), 0);
    overlay_settle_blob(overlay, &key, 12);
}

Test(overlay, every_change_of_a_blob_moves_its_stamp) {
    struct blob_key key = make_key(1);
    struct blob_record record;
    uint64_t stamp;
    overlay_get_blob(overlay, &key, &record, NULL, &stamp);
    publish(&key, 10);
    cr_assert_not(overlay_blob_unchanged(overlay, &key, stamp));
    overlay_get_blob(overlay, &key, &record, NULL, &stamp);
    cr_assert(overlay_blob_unchanged(overlay, &key, stamp));
    cr_assert_eq(overlay_remove_blob(overlay, &key, 11), 0);
    cr_assert_not(overlay_blob_unchanged(overlay, &key, stamp));
    overlay_get_blob(overlay, &key, &record, NULL, &stamp);
    overlay_settle_blob(overlay, &key, 11);
    cr_assert_not(overlay_blob_unchanged(overlay, &key, stamp));
    overlay_get_blob(overlay, &key, &record, NULL, &stamp);
    overlay_clear_blobs(overlay);
    cr_assert_not(overlay_blob_unchanged(overlay, &key, stamp));
}

Test(overlay, a_change_that_is_older_than_the_entry_aborts, .signal = SIGABRT) {
    struct blob_key key = make_key(1);
    world_close(&world);
    cr_assert_eq(overlay_remove_blob(overlay, &key, 11), 0);
    overlay_remove_blob(overlay, &key, 10);
}

/* names */

Test(overlay, names_belong_to_their_directory_byte_for_byte) {
    struct name_entry entry;
    put_name(1, "name", NAME_DIRECTORY, 5);
    cr_assert_eq(get_name(1, "name", &entry), OVERLAY_PRESENT);
    cr_assert_eq(entry.directory, 5);
    cr_assert_eq(get_name(2, "name", &entry), OVERLAY_UNKNOWN);
    cr_assert_eq(get_name(1, "nam", &entry), OVERLAY_UNKNOWN);
    put_name(2, "name", NAME_DIRECTORY, 6);
    cr_assert_eq(get_name(1, "name", &entry), OVERLAY_PRESENT);
    cr_assert_eq(entry.directory, 5);
}

Test(overlay, a_name_of_255_bytes_is_kept) {
    char name[NAME_BYTES_MAX + 1];
    struct name_entry entry;
    memset(name, 'x', NAME_BYTES_MAX);
    name[NAME_BYTES_MAX] = 0;
    put_name(1, name, NAME_DIRECTORY, 5);
    cr_assert_eq(get_name(1, name, &entry), OVERLAY_PRESENT);
    name[NAME_BYTES_MAX - 1] = 'y';
    cr_assert_eq(get_name(1, name, &entry), OVERLAY_UNKNOWN);
}

Test(overlay, a_removed_name_is_gone_until_its_change_settles) {
    struct name_entry entry;
    put_name(1, "name", NAME_BLOB, 5);
    remove_name(1, "name", 6);
    remove_name(1, "committed", 7);
    cr_assert_eq(get_name(1, "name", &entry), OVERLAY_GONE);
    cr_assert_eq(get_name(1, "committed", &entry), OVERLAY_GONE);
    overlay_settle_name(overlay, 1, "name", 4, 5);
    cr_assert_eq(get_name(1, "name", &entry), OVERLAY_GONE);
    overlay_settle_name(overlay, 1, "name", 4, 6);
    cr_assert_eq(get_name(1, "name", &entry), OVERLAY_UNKNOWN);
    cr_assert_eq(overlay_entries(overlay), 1);
}

Test(overlay, every_change_of_a_name_moves_its_stamp) {
    struct name_entry entry;
    uint64_t stamp;
    overlay_get_name(overlay, 1, "name", 4, &entry, &stamp);
    cr_assert(overlay_name_unchanged(overlay, 1, "name", 4, stamp));
    put_name(1, "name", NAME_BLOB, 5);
    cr_assert_not(overlay_name_unchanged(overlay, 1, "name", 4, stamp));
    overlay_get_name(overlay, 1, "name", 4, &entry, &stamp);
    remove_name(1, "name", 6);
    cr_assert_not(overlay_name_unchanged(overlay, 1, "name", 4, stamp));
    overlay_get_name(overlay, 1, "name", 4, &entry, &stamp);
    overlay_settle_name(overlay, 1, "name", 4, 6);
    cr_assert_not(overlay_name_unchanged(overlay, 1, "name", 4, stamp));
}

/* clear and close */

Test(overlay, a_clear_forgets_blobs_and_their_names_but_no_directory) {
    struct blob_key key = make_key(1), removed = make_key(2);
    struct name_entry entry;
    uint64_t sequence;
    publish(&key, 1);
    cr_assert_eq(overlay_remove_blob(overlay, &removed, 2), 0);
    put_name(1, "blob", NAME_BLOB, 3);
    put_name(1, "directory", NAME_DIRECTORY, 4);
    remove_name(1, "removed directory", 5);
    overlay_clear_blobs(overlay);
    cr_assert_eq(get_blob(&key, &sequence), OVERLAY_UNKNOWN);
    cr_assert_eq(get_blob(&removed, &sequence), OVERLAY_UNKNOWN);
    cr_assert_eq(get_name(1, "blob", &entry), OVERLAY_GONE, "not what the index has for it");
    cr_assert_eq(get_name(1, "directory", &entry), OVERLAY_PRESENT);
    cr_assert_eq(get_name(1, "removed directory", &entry), OVERLAY_GONE);
    cr_assert_eq(version_table_count(world.table), 0);
    cr_assert_eq(overlay_entries(overlay), 3);
}

Test(overlay, closing_drops_what_is_left) {
    for (uint64_t i = 0; i < 100; i++) {
        struct blob_key key = make_key(i);
        publish(&key, i + 1);
        put_name(i, "name", NAME_BLOB, i + 1);
    }
    overlay_destroy(overlay);
    cr_assert_eq(version_table_count(world.table), 0);
    overlay = NULL;
}

/* at random, against a naive model */

enum { MODEL_KEYS = 3000 };

struct model_entry {
    enum overlay_found found;
    uint64_t change;
};

static unsigned seed_for_test(void) {
    const char *given = getenv("SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    fprintf(stderr, "SEED=%u\n", seed);
    return seed;
}

static void compare_all(const struct model_entry *model) {
    uint64_t known = 0, sequence;
    for (uint64_t i = 0; i < MODEL_KEYS; i++) {
        struct blob_key key = make_key(i);
        cr_assert_eq(get_blob(&key, &sequence), model[i].found, "key %lu", (unsigned long)i);
        cr_assert(model[i].found != OVERLAY_PRESENT || sequence == model[i].change);
        known += model[i].found != OVERLAY_UNKNOWN;
    }
    cr_assert_eq(overlay_entries(overlay), known);
}

Test(overlay, it_agrees_with_a_naive_model) {
    srand(seed_for_test());
    static struct model_entry model[MODEL_KEYS];
    for (uint64_t change = 1; change <= 30000; change++) {
        uint64_t number = (uint64_t)rand() % MODEL_KEYS;
        struct blob_key key = make_key(number);
        struct model_entry *entry = &model[number];
        switch (rand() % 4) {
        case 0:
        case 1:
            publish(&key, change);
            *entry = (struct model_entry){OVERLAY_PRESENT, change};
            break;
        case 2:
            cr_assert_eq(overlay_remove_blob(overlay, &key, change), 0);
            *entry = (struct model_entry){OVERLAY_GONE, change};
            break;
        case 3: {
            uint64_t settled = entry->change - (entry->change && rand() % 2);
            overlay_settle_blob(overlay, &key, settled);
            if (settled == entry->change)
                *entry = (struct model_entry){0};
        }
        }
        if (change % 3000 == 0)
            compare_all(model);
    }
}

/* races */

enum { RACE_KEYS = 8, RACE_CHANGES = 20000, RACE_READERS = 3 };

/* An index of one number a key, and what the changer has finished showing. */
static struct race {
    _Atomic uint64_t committed[RACE_KEYS], shown[RACE_KEYS];
    _Atomic bool done;
} race;

/* Like a lookup of the store: the overlay, else the index, again if the shard changed meanwhile. */
static uint64_t look_up(unsigned number, const char **ret_failure) {
    struct blob_key key = make_key(number);
    struct blob_record record;
    struct version *version;
    uint64_t stamp, sequence;
    do {
        if (overlay_get_blob(overlay, &key, &record, &version, &stamp) == OVERLAY_PRESENT) {
            if (!version || version_sequence(version) != record.sequence)
                *ret_failure = "record and version disagree";
            version_unref(version);
            return record.sequence;
        }
        sequence = atomic_load(&race.committed[number]);
    } while (!overlay_blob_unchanged(overlay, &key, stamp));
    return sequence;
}

static void *read_keys(void *argument) {
    unsigned number = *(const unsigned *)argument;
    const char *failure = NULL;
    while (!atomic_load(&race.done) && !failure) {
        number = (number + 1) % RACE_KEYS;
        uint64_t shown = atomic_load(&race.shown[number]);
        if (look_up(number, &failure) < shown)
            failure = "a lookup missed a change that was there before it";
    }
    return (void *)failure;
}

static void *list_keys(void *argument) {
    (void)argument;
    const char *failure = NULL;
    while (!atomic_load(&race.done) && !failure) {
        struct overlay_blob blobs[RACE_KEYS + 1];
        size_t count;
        if (overlay_list_blobs(overlay, 0, false, 0, blobs, RACE_KEYS + 1, &count) ||
            count > RACE_KEYS)
            return (void *)"a listing failed";
        for (size_t i = 1; i < count; i++)
            if (blob_key_order64(&blobs[i - 1].blob.key) >= blob_key_order64(&blobs[i].blob.key))
                failure = "a listing is out of order";
    }
    return (void *)failure;
}

Test(overlay, lookups_never_miss_a_change_that_was_there_before) {
    pthread_t threads[RACE_READERS + 1];
    unsigned first[RACE_READERS];
    for (unsigned i = 0; i < RACE_READERS; i++) {
        first[i] = i;
        pthread_create(&threads[i], NULL, read_keys, &first[i]);
    }
    pthread_create(&threads[RACE_READERS], NULL, list_keys, NULL);
    for (uint64_t change = 1; change <= RACE_CHANGES; change++) {
        unsigned number = (unsigned)(change * 5 % RACE_KEYS);
        struct blob_key key = make_key(number);
        publish(&key, change);
        atomic_store(&race.shown[number], change);
        if (change % 2) {
            atomic_store(&race.committed[number], change);
            overlay_settle_blob(overlay, &key, change);
        }
    }
    atomic_store(&race.done, true);
    for (unsigned i = 0; i <= RACE_READERS; i++) {
        void *failure;
        pthread_join(threads[i], &failure);
        cr_assert_null(failure, "%s", (const char *)failure);
    }
}
