/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that put, get, unlink, rename, list, touch and clear on one small store, far past its
 * capacity. Whatever a reader gets must be one whole version of what it asked for. At the end the
 * whole state must agree with itself, and again after a `load`.
 *
 *   stress_store [SECONDS [SEED]]      an odd seed uses the pread/pwrite engine
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/clock.h"
#include "core/rank.h"
#include "tests/support/store_world.h"

enum { THREADS = 8, KEYS = 600, VERSIONS = 3, BYTES_MAX = 300000 };

static struct store_world world;
static uint64_t end_ns, seed;
static _Atomic uint64_t puts_done, hits, misses, refused;

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* Each key has one size: inline, grid, exact. */
static size_t bytes_of(uint64_t number) {
    static const size_t sizes[] = {0, 100, 4096, 4097, 20000, 65536, 100000, 300000};
    return sizes[number % 8];
}

static void check_bytes(const uint8_t *found, size_t size, uint64_t number) {
    static _Thread_local uint8_t wanted[BYTES_MAX + 8];
    CHECK(size == bytes_of(number));
    for (uint64_t version = 1; version <= VERSIONS; version++) {
        fill_payload(wanted, size, number, version);
        if (memcmp(found, wanted, size) == 0)
            return;
    }
    CHECK(!"wrong bytes");
}

static void get(uint64_t number, const struct blob_key *key) {
    uint8_t *found;
    size_t size;
    int result = world_get(world.rank, key, &found, &size);
    if (result == 0) {
        check_bytes(found, size, number);
        free(found);
        hits++;
    } else {
        CHECK(result == -ENOENT || result == -ETIMEDOUT);
        misses++;
    }
}

static void put(uint64_t number, uint64_t version) {
    int result = world_put(world.rank, number, bytes_of(number), version);
    CHECK(result == 0 || result == -ENOSPC);
    if (result == 0)
        puts_done++;
    else
        refused++;
}

static void name_of(uint64_t number, char *ret_name) {
    snprintf(ret_name, 32, "file-%lu", (unsigned long)number);
}

static void use_names(uint64_t number, uint64_t kind, uint64_t version) {
    char name[32], other[32];
    struct blob_key key;
    struct name_entry entry;
    uint64_t root = directory_root(0);
    name_of(number, name);
    name_of(number + 8, other); /* of the same size */
    if (kind == 0) {
        world_put_named(world.rank, root, name, number % 8, bytes_of(number), version, &key);
    } else if (kind == 1) {
        if (rank_get_name(world.rank, root, name, strlen(name), &entry) == 0)
            get(number % 8, &entry.blob);
    } else if (kind == 2) {
        struct rank_rename rename = {.from_directory = root,
                                     .to_directory = root,
                                     .from_name = name,
                                     .to_name = other,
                                     .from_bytes = strlen(name),
                                     .to_bytes = strlen(other)};
        rank_rename_name(world.rank, &rename);
    } else {
        rank_unlink_name(world.rank, root, name, strlen(name));
    }
}

static void list_some(uint64_t cookie) {
    struct list_entry *entries = calloc(100, sizeof(*entries));
    size_t count;
    int result = rank_list(world.rank, directory_root(0), cookie, entries, 100, &count);
    CHECK(result == 0);
    for (size_t i = 1; i < count; i++)
        CHECK(entries[i - 1].cookie <= entries[i].cookie);
    free(entries);
}

static void *work(void *argument) {
    uint64_t state = seed * 1000003 + (uintptr_t)argument + 1;
    while (clock_monotonic_ns() < end_ns) {
        uint64_t random = next_random(&state), number = random % KEYS;
        struct blob_key key = hash_key(0, number);
        switch (random >> 32 & 31) {
        case 0:
            rank_unlink_blob(world.rank, &key);
            break;
        case 1:
            list_some(random >> 1);
            break;
        case 2:
            rank_touch(world.rank, &key, 0);
            break;
        case 3:
            world_commit(world.rank);
            break;
        case 4:
            if ((random >> 40 & 63) == 0)
                CHECK(world_clear(world.rank) == 0);
            break;
        case 5 ... 12:
            use_names(number, random >> 50 & 3, 1 + (random >> 44) % VERSIONS);
            break;
        case 13 ... 21:
            put(number, 1 + (random >> 44) % VERSIONS);
            break;
        default:
            get(number, &key);
        }
    }
    return NULL;
}

static void check_everything(const char *when) {
    uint64_t disagreements = world_verify(world.rank);
    if (disagreements) {
        fprintf(stderr, "%s: %lu disagreements\n", when, (unsigned long)disagreements);
        abort();
    }
    for (uint64_t number = 0; number < KEYS; number++) {
        struct blob_key key = hash_key(0, number);
        get(number, &key);
    }
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 3;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : clock_real_ns() / 1000;
    printf("SEED=%lu\n", (unsigned long)seed);
    fflush(stdout);
    store_world_init(&world);
    world.config.size_bytes = 16 << 20;
    world.config.max_file_bytes = 1 << 20;
    world.config.memory_bytes = 16 << 20;
    world.config.engine = seed & 1 ? SLAB_ENGINE_POSIX : SLAB_ENGINE_AUTO;
    CHECK(store_world_open(&world) == 0);
    end_ns = clock_monotonic_ns() + (uint64_t)(seconds * 1e9);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check_everything("at the end");
    store_world_reopen(&world, COLD_START_LOAD);
    check_everything("after load");
    printf("%lu puts, %lu hits, %lu misses, %lu refused, %lu evicted, %lu clears\n",
           (unsigned long)puts_done, (unsigned long)hits, (unsigned long)misses,
           (unsigned long)refused, (unsigned long)world.gone_events,
           (unsigned long)world.cleared_events);
    store_world_destroy(&world);
    return 0;
}
