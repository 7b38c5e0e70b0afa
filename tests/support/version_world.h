/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's disk for tests of versions, without the rank: a real slab in a temporary directory, its
 * slot pool, an inline pool, payload memory and a version table. Blobs are put into slots by plain
 * writes, as they would be found after a restart, and can be damaged in place.
 */
#ifndef CPL3_TESTS_SUPPORT_VERSION_WORLD_H
#define CPL3_TESTS_SUPPORT_VERSION_WORLD_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "core/clock.h"
#include "core/version.h"
#include "core/version_internal.h"

enum { WORLD_EPOCH = 7, WORLD_KIND = 1, WORLD_SLOTS_INLINE = 16, WORLD_WAIT_SECONDS = 20 };

struct world_options {
    uint32_t slot_bytes;
    uint32_t slots;
    uint64_t staging_bytes; /* 0: 4 MiB */
    uint64_t reading_bytes; /* 0: 16 MiB */
    enum slab_engine engine;
    struct version_times times;  /* wait_ns 0 and no_wait unset: the default ones */
    bool no_wait;                /* waiters expire at once */
    struct buffer_pool *buffers; /* NULL: its own */
};

struct world {
    int directory_fd; /* removed already, so that a test that aborts leaves nothing behind */
    int slab_fd;      /* a second, plain descriptor of the slab */
    struct buffer_pool *buffers;
    bool owns_buffers;
    struct pool pool, inline_pool;
    struct rank_stats stats;
    struct version_table *table;
    _Atomic unsigned bad, unpinned;
    _Atomic uint64_t bad_sequence;
    _Atomic uint32_t unpinned_slot;
    uint64_t last_sequence;
};

/* opening */

static inline void world_on_bad(void *argument, const struct blob_key *key, uint64_t sequence,
                                const char *reason) {
    struct world *world = argument;
    CHECK(thread_role == THREAD_LOADER && key->kind == WORLD_KIND && reason);
    atomic_store(&world->bad_sequence, sequence);
    atomic_fetch_add(&world->bad, 1);
}

static inline void world_on_unpinned(void *argument, struct pool *pool, uint32_t slot) {
    struct world *world = argument;
    CHECK(pool == &world->pool || pool == &world->inline_pool);
    atomic_store(&world->unpinned_slot, slot);
    atomic_fetch_add(&world->unpinned, 1);
}

static inline void world_open_files(struct world *world, const struct world_options *options) {
    const char *base = getenv("TMPDIR");
    char path[256];
    snprintf(path, sizeof path, "%s/cpl3-version-XXXXXX", base ? base : "/tmp");
    CHECK(mkdtemp(path));
    world->directory_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(world->directory_fd >= 0);
    struct slab *slab;
    CHECK(slab_open(world->directory_fd, "test.slab", options->slot_bytes, options->slots, false,
                    &slab) == 0);
    atomic_store(&world->pool.slab, slab);
    world->slab_fd = openat(world->directory_fd, "test.slab", O_RDWR | O_CLOEXEC);
    CHECK(world->slab_fd >= 0);
    CHECK(unlinkat(world->directory_fd, "test.slab", 0) == 0 && rmdir(path) == 0);
}

static inline void world_make_pools(struct world *world, const struct world_options *options) {
    world->pool.kind = WORLD_KIND;
    world->pool.number = 1;
    world->pool.slot_bytes = options->slot_bytes;
    world->pool.slots_max = options->slots;
    world->inline_pool.is_inline = true;
    world->inline_pool.slot_bytes = INLINE_COST_BYTES;
    world->inline_pool.slots_max = WORLD_SLOTS_INLINE;
    CHECK(slot_pool_create(options->slots, &world->pool.slots) == 0);
    CHECK(slot_pool_create(WORLD_SLOTS_INLINE, &world->inline_pool.slots) == 0);
}

static inline void world_open(struct world *world, const struct world_options *options) {
    memset(world, 0, sizeof *world);
    world_open_files(world, options);
    world_make_pools(world, options);
    world->buffers = options->buffers;
    world->owns_buffers = !options->buffers;
    uint64_t shares[BUFFER_SHARES] = {
        [BUFFER_STAGING] = options->staging_bytes ? options->staging_bytes : 4 << 20,
        [BUFFER_READING] = options->reading_bytes ? options->reading_bytes : 16 << 20,
    };
    if (world->owns_buffers)
        CHECK(buffer_pool_open(shares[0] + shares[1], shares, false, &world->buffers) == 0);
    struct version_table_options table = {
        .buffers = world->buffers,
        .engine = options->engine,
        .stats = &world->stats,
        .on_bad = world_on_bad,
        .on_unpinned = world_on_unpinned,
        .argument = world,
    };
    struct version_times times = options->times;
    if (times.wait_ns == 0 && !options->no_wait)
        times = version_times_default;
    CHECK(version_table_open_timed(&table, &times, &world->table) == 0);
}

static inline void world_close(struct world *world) {
    version_table_close(world->table);
    if (world->owns_buffers)
        buffer_pool_close(world->buffers);
    slot_pool_verify(world->pool.slots);
    slot_pool_destroy(world->pool.slots);
    slot_pool_destroy(world->inline_pool.slots);
    slab_close(atomic_load(&world->pool.slab));
    close(world->slab_fd);
    close(world->directory_fd);
}

/* blobs */

struct world_blob {
    struct blob_key key;
    struct blob_record record;
    uint8_t *payload; /* freed by the caller */
};

/* Bytes that tell one sequence from another at every place. */
static inline void world_fill(uint8_t *bytes, uint64_t count, uint64_t sequence) {
    uint64_t state = sequence * 0x9e3779b97f4a7c15u + 1;
    for (uint64_t done = 0; done < count; done += sizeof state) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t left = count - done;
        memcpy(bytes + done, &state, left < sizeof state ? left : sizeof state);
    }
}

static inline struct world_blob world_describe(struct world *world, uint32_t payload_bytes) {
    struct world_blob blob = {.record = {.epoch = WORLD_EPOCH, .payload_bytes = payload_bytes}};
    blob.record.sequence = ++world->last_sequence;
    blob.key.kind = WORLD_KIND;
    blob.key.hash_bytes = 16;
    memcpy(blob.key.hash, &blob.record.sequence, sizeof blob.record.sequence);
    blob.payload = malloc(payload_bytes + 1);
    CHECK(blob.payload);
    world_fill(blob.payload, payload_bytes, blob.record.sequence);
    struct iovec piece = {.iov_base = blob.payload, .iov_len = payload_bytes};
    blob.record.payload_checksum = blob_checksum(&piece, 1);
    return blob;
}

static inline void world_pwrite(struct world *world, const void *bytes, size_t count,
                                uint64_t offset) {
    CHECK(pwrite(world->slab_fd, bytes, count, (off_t)offset) == (ssize_t)count);
}

static inline uint64_t world_header_offset(const struct world *world, uint32_t slot) {
    return (uint64_t)(slot + 1) * world->pool.slot_bytes - HEADER_BYTES;
}

/* Payload and sealed header into the record's slot, without any change of the slot's state. */
static inline void world_write_slot(struct world *world, const struct world_blob *blob) {
    const struct blob_record *record = &blob->record;
    struct slot_header raw;
    struct blob_header header = {
        .key = blob->key,
        .payload_checksum = record->payload_checksum,
        .sequence = record->sequence,
        .payload_bytes = record->payload_bytes,
    };
    blob_header_seal(&raw, &header, record->epoch);
    world_pwrite(world, blob->payload, record->payload_bytes,
                 (uint64_t)record->slot * world->pool.slot_bytes);
    world_pwrite(world, &raw, sizeof raw, world_header_offset(world, record->slot));
}

/* A blob that is LIVE in a slot on disk. */
static inline struct world_blob world_put(struct world *world, uint32_t payload_bytes) {
    struct world_blob blob = world_describe(world, payload_bytes);
    blob.record.slot_bytes = world->pool.slot_bytes;
    CHECK(slot_pool_allocate(world->pool.slots, &blob.record.slot) == 0);
    world_write_slot(world, &blob);
    slot_pool_publish(world->pool.slots, blob.record.slot, blob.record.sequence);
    return blob;
}

static inline struct world_blob world_put_inline(struct world *world, uint32_t payload_bytes) {
    struct world_blob blob = world_describe(world, payload_bytes);
    CHECK(slot_pool_allocate(world->inline_pool.slots, &blob.record.slot) == 0);
    slot_pool_publish(world->inline_pool.slots, blob.record.slot, blob.record.sequence);
    return blob;
}

/* A published blob that is in memory only. */
static inline struct version *world_stage(struct world *world, struct world_blob *ret_blob,
                                          uint32_t payload_bytes) {
    struct buffer *buffer;
    struct version *version;
    *ret_blob = world_describe(world, payload_bytes);
    CHECK(buffer_create(world->buffers, BUFFER_STAGING, payload_bytes, &buffer) == 0);
    buffer_write(buffer, 0, ret_blob->payload, payload_bytes);
    CHECK(version_create_staged(world->table, &ret_blob->key, &ret_blob->record, buffer, NULL,
                                &version) == 0);
    return version;
}

/* What the write thread does with a staged blob: slot, bytes, publish, settle. */
static inline void world_settle(struct world *world, struct world_blob *blob,
                                struct version *version) {
    enum thread_role before = thread_role;
    thread_role = THREAD_WRITER;
    blob->record.slot_bytes = world->pool.slot_bytes;
    CHECK(slot_pool_allocate(world->pool.slots, &blob->record.slot) == 0);
    world_write_slot(world, blob);
    slot_pool_publish(world->pool.slots, blob->record.slot, blob->record.sequence);
    version_settle(version, &world->pool, blob->record.slot);
    thread_role = before;
}

static inline void world_forget(struct world *world, uint64_t sequence) {
    enum thread_role before = thread_role;
    thread_role = THREAD_WRITER;
    version_forget(world->table, sequence);
    thread_role = before;
}

static inline int world_acquire(struct world *world, const struct world_blob *blob,
                                struct version **ret_version) {
    bool is_inline = blob->record.slot_bytes == 0;
    return version_acquire(world->table, &blob->key, &blob->record,
                           is_inline ? &world->inline_pool : &world->pool,
                           is_inline ? blob->payload : NULL, ret_version);
}

/* loading */

struct world_waiter {
    struct waiter waiter; /* first */
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    unsigned calls;
    int result;
};

static inline void world_wake(struct waiter *waiter, int result) {
    struct world_waiter *self = (struct world_waiter *)waiter;
    pthread_mutex_lock(&self->mutex);
    self->calls++;
    self->result = result;
    pthread_cond_signal(&self->woken);
    pthread_mutex_unlock(&self->mutex);
}

static inline void world_waiter_init(struct world_waiter *waiter) {
    *waiter = (struct world_waiter){.waiter.wake = world_wake};
    pthread_mutex_init(&waiter->mutex, NULL);
    pthread_cond_init(&waiter->woken, NULL);
}

static inline int world_wait(struct world_waiter *waiter) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += WORLD_WAIT_SECONDS;
    pthread_mutex_lock(&waiter->mutex);
    while (waiter->calls == 0)
        CHECK(pthread_cond_timedwait(&waiter->woken, &waiter->mutex, &deadline) == 0);
    CHECK(waiter->calls == 1);
    int result = waiter->result;
    pthread_mutex_unlock(&waiter->mutex);
    return result;
}

/* Waits for the answer; on 0 the caller has a hold. */
static inline int world_load(struct version *version) {
    struct world_waiter waiter;
    world_waiter_init(&waiter);
    int result = version_load(version, &waiter.waiter);
    return result == -EINPROGRESS ? world_wait(&waiter) : result;
}

/* With a hold: the version's bytes are those of the blob. */
static inline bool world_same_bytes(const struct version *version, const struct world_blob *blob) {
    struct iovec pieces[64];
    uint64_t total = blob->record.payload_bytes, done = 0;
    size_t count = version_pieces(version, 0, total, pieces, 64);
    for (size_t i = 0; i < count; i++) {
        if (done + pieces[i].iov_len > total ||
            memcmp(pieces[i].iov_base, blob->payload + done, pieces[i].iov_len) != 0)
            return false;
        done += pieces[i].iov_len;
    }
    return done == total;
}

static inline struct version *world_must_acquire(struct world *world,
                                                 const struct world_blob *blob) {
    struct version *version;
    CHECK(world_acquire(world, blob, &version) == 0);
    return version;
}

/* A new reference to the blob, its bytes loaded and held. */
static inline struct version *world_open_blob(struct world *world, const struct world_blob *blob) {
    struct version *version = world_must_acquire(world, blob);
    CHECK(world_load(version) == 0);
    return version;
}

/* Leaves the blob's bytes idle in the cache, without a reference. */
static inline void world_cache(struct world *world, const struct world_blob *blob) {
    struct version *version = world_open_blob(world, blob);
    version_drop_bytes(version);
    version_unref(version);
}

static inline bool world_is_cached(struct version *version) {
    if (!version_hold_bytes(version))
        return false;
    version_drop_bytes(version);
    return true;
}

/* Waits until a condition holds; false when it takes too long. */
#define WORLD_EVENTUALLY(condition)                                                                \
    ({                                                                                             \
        uint64_t until_ns_ = clock_monotonic_ns() + WORLD_WAIT_SECONDS * 1000000000ull;            \
        bool holds_;                                                                               \
        while (!(holds_ = (condition)) && clock_monotonic_ns() < until_ns_)                        \
            sched_yield();                                                                         \
        holds_;                                                                                    \
    })

#endif
