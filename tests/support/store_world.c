/* SPDX-License-Identifier: Apache-2.0 */
/* See store_world.h. */
#include "tests/support/store_world.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/check.h"
#include "core/rank.h"

static void count_gone(void *argument, struct rank *rank, const struct blob_key *key,
                       const struct blob_record *record) {
    struct store_world *world = argument;
    (void)rank;
    (void)key;
    (void)record;
    world->gone_events++;
}

static void count_cleared(void *argument, struct rank *rank) {
    struct store_world *world = argument;
    (void)rank;
    world->cleared_events++;
}

void store_world_init(struct store_world *world) {
    const char *temp = getenv("TMPDIR");
    memset(world, 0, sizeof(*world));
    snprintf(world->directory, sizeof(world->directory), "%s/cpl3-store-XXXXXX",
             temp ? temp : "/tmp");
    CHECK(mkdtemp(world->directory));
    snprintf(world->path, sizeof(world->path), "%s/store", world->directory);
    world->config = (struct config){.store_path = world->path,
                                    .size_bytes = 64 << 20,
                                    .commit_ns = CONFIG_COMMIT_NS_DEFAULT,
                                    .gc_start = 0.90,
                                    .gc_stop = 0.85,
                                    .memory_bytes = 64 << 20,
                                    .max_file_bytes = 8 << 20};
}

int store_world_open(struct store_world *world) {
    struct store_events events = {
        .blob_gone = count_gone, .rank_cleared = count_cleared, .argument = world};
    int result = store_open(&world->config, &events, &world->store);
    if (result == 0)
        world->rank = store_rank(world->store, world->config.rank_first);
    return result;
}

void store_world_close(struct store_world *world) {
    store_close(world->store);
    world->store = NULL;
    world->rank = NULL;
}

void store_world_reopen(struct store_world *world, enum cold_start cold_start) {
    store_world_close(world);
    world->config.cold_start = cold_start;
    int result = store_world_open(world);
    CHECK(result == 0);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk) {
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

void store_world_destroy(struct store_world *world) {
    store_world_close(world);
    nftw(world->directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void wake(struct waiter *waiter, int result) {
    struct blocking_waiter *blocking = (struct blocking_waiter *)waiter;
    pthread_mutex_lock(&blocking->lock);
    blocking->result = result;
    blocking->is_done = true;
    pthread_cond_signal(&blocking->done);
    pthread_mutex_unlock(&blocking->lock);
}

void blocking_waiter_init(struct blocking_waiter *waiter) {
    memset(waiter, 0, sizeof(*waiter));
    waiter->waiter.wake = wake;
    pthread_mutex_init(&waiter->lock, NULL);
    pthread_cond_init(&waiter->done, NULL);
}

int blocking_waiter_result(struct blocking_waiter *waiter, int answered) {
    if (answered != -EINPROGRESS)
        return answered;
    pthread_mutex_lock(&waiter->lock);
    while (!waiter->is_done)
        pthread_cond_wait(&waiter->done, &waiter->lock);
    pthread_mutex_unlock(&waiter->lock);
    return waiter->result;
}

struct blob_key hash_key(uint16_t rank, uint64_t number) {
    struct blob_key key = {.rank = rank, .hash_bytes = 16};
    for (int i = 0; i < 8; i++)
        key.hash[15 - i] = (uint8_t)(number >> (8 * i));
    return key;
}

void fill_payload(uint8_t *ret_bytes, size_t bytes, uint64_t number, uint64_t version) {
    uint64_t state = number * 0x9e3779b97f4a7c15u + version * 0xbf58476d1ce4e5b9u + 1;
    for (size_t i = 0; i < bytes; i += 8) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        memcpy(ret_bytes + i, &state, bytes - i < 8 ? bytes - i : 8);
    }
}

/* A reservation whose waiter a thread can wait on. */
struct blocking_reservation {
    struct reservation reservation;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
    int result;
};

static void wake_reservation(struct waiter *waiter, int result) {
    struct blocking_reservation *blocking = (struct blocking_reservation *)waiter;
    pthread_mutex_lock(&blocking->lock);
    blocking->result = result;
    blocking->is_done = true;
    pthread_cond_signal(&blocking->done);
    pthread_mutex_unlock(&blocking->lock);
}

static int reserve(struct rank *rank, size_t bytes, struct blocking_reservation *blocking) {
    memset(blocking, 0, sizeof(*blocking));
    pthread_mutex_init(&blocking->lock, NULL);
    pthread_cond_init(&blocking->done, NULL);
    blocking->reservation.waiter.wake = wake_reservation;
    int result = rank_reserve(rank, 0, bytes, &blocking->reservation);
    if (result != -EINPROGRESS)
        return result;
    pthread_mutex_lock(&blocking->lock);
    while (!blocking->is_done)
        pthread_cond_wait(&blocking->done, &blocking->lock);
    pthread_mutex_unlock(&blocking->lock);
    return blocking->result;
}

/* Staging memory comes back with commits. */
static struct buffer *staging_buffer(struct rank *rank, struct buffer_pool *pool, size_t bytes) {
    struct buffer *buffer;
    while (buffer_create(pool, BUFFER_STAGING, bytes, &buffer) < 0)
        world_commit(rank);
    return buffer;
}

static int publish(struct rank *rank, struct publication *publication, uint64_t number,
                   size_t bytes, uint64_t version) {
    struct blocking_reservation blocking;
    int result = reserve(rank, bytes, &blocking);
    if (result < 0)
        return result;
    uint8_t *payload = malloc(bytes + 8);
    fill_payload(payload, bytes, number, version);
    publication->buffer = staging_buffer(rank, store_buffers(rank->store), bytes);
    buffer_write(publication->buffer, 0, payload, bytes);
    free(payload);
    publication->payload_checksum = publication_checksum(publication->buffer, bytes);
    struct version *published;
    struct blob_record record;
    result = rank_publish(rank, &blocking.reservation, publication, &published, &record);
    if (result == 0) {
        version_unref(published);
    } else {
        buffer_destroy(publication->buffer);
        rank_unreserve(&blocking.reservation);
    }
    return result;
}

int world_put(struct rank *rank, uint64_t number, size_t bytes, uint64_t version) {
    struct publication publication = {.key = hash_key(rank_number(rank), number), .mode = 0644};
    return publish(rank, &publication, number, bytes, version);
}

int world_put_named(struct rank *rank, uint64_t directory, const char *name, uint64_t number,
                    size_t bytes, uint64_t version, struct blob_key *ret_key) {
    struct publication publication = {
        .mode = 0644, .directory = directory, .name = name, .name_bytes = strlen(name)};
    struct name_entry entry;
    if (rank_get_name(rank, directory, name, strlen(name), &entry) == 0)
        publication.key = entry.blob;
    else
        rank_new_blob_id(rank, &publication.key);
    *ret_key = publication.key;
    return publish(rank, &publication, number, bytes, version);
}

int world_get(struct rank *rank, const struct blob_key *key, uint8_t **ret_bytes,
              size_t *ret_size) {
    struct version *version;
    int result = rank_open_version(rank, key, 0, &version, NULL);
    if (result < 0)
        return result;
    struct blocking_waiter waiter;
    blocking_waiter_init(&waiter);
    result = blocking_waiter_result(&waiter, version_load(version, &waiter.waiter));
    if (result == 0) {
        size_t size = version_payload_bytes(version), done = 0;
        size_t most = size / BUFFER_SEGMENT_BYTES + 2;
        struct iovec *pieces = calloc(most, sizeof(*pieces));
        size_t count = version_pieces(version, 0, size, pieces, most);
        *ret_bytes = malloc(size + 1);
        for (size_t i = 0; i < count; i++) {
            memcpy(*ret_bytes + done, pieces[i].iov_base, pieces[i].iov_len);
            done += pieces[i].iov_len;
        }
        CHECK(done == size);
        *ret_size = size;
        free(pieces);
        version_drop_bytes(version);
        rank_touch(rank, key, 0);
    }
    version_unref(version);
    return result;
}

bool world_has(struct rank *rank, uint64_t number, size_t bytes, uint64_t version) {
    struct blob_key key = hash_key(rank_number(rank), number);
    uint8_t *found, *wanted = malloc(bytes + 8);
    size_t size;
    int result = world_get(rank, &key, &found, &size);
    if (result == 0) {
        fill_payload(wanted, bytes, number, version);
        CHECK(size == bytes && memcmp(found, wanted, bytes) == 0);
        free(found);
    }
    free(wanted);
    return result == 0;
}

void world_commit(struct rank *rank) {
    struct blocking_waiter waiter;
    blocking_waiter_init(&waiter);
    blocking_waiter_result(&waiter, rank_commit(rank, &waiter.waiter));
}

int world_clear(struct rank *rank) {
    struct blocking_waiter waiter;
    blocking_waiter_init(&waiter);
    return blocking_waiter_result(&waiter, rank_clear(rank, &waiter.waiter));
}

uint64_t world_verify(struct rank *rank) {
    world_commit(rank);
    return rank_verify(rank, stderr);
}
