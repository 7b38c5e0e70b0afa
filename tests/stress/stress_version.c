/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers acquire, load, hold, compare and drop versions of a few names, while the write thread
 * replaces them: stages, settles, retires the old slot, forgets it, and writes the freed slots
 * again with other bytes. Memory is far too small for all, some blobs are damaged on the way, and
 * one thread empties the cache. A reader gets the bytes of the sequence that it asked for, -ESTALE,
 * or for a damaged one -EBADMSG: never anything else.
 *
 *   stress_version [SECONDS [SEED]]
 */
#include <inttypes.h>

#include "tests/support/version_world.h"

enum {
    NAMES = 24,
    READERS = 4,
    SLOTS = 40,
    SLOT_BYTES = (1 << 20) + (512 << 10),
    PAYLOAD_BYTES_MAX = (1 << 20) + (256 << 10),
    READING_BYTES = 6 << 20,
};

static struct world world;
static atomic_bool stop;
static _Atomic uint64_t reads, stale, bad, staged_reads;

struct published {
    struct world_blob blob; /* without payload: world_fill tells it */
    bool damaged;
};

/* What a name stands for, as the overlay and the index would say, and what it stood for before: a
 * reader may come with an old record. */
struct name {
    pthread_mutex_t mutex;
    struct published current, previous;
    struct version *staged; /* a reference, until it is settled */
};
static struct name names[NAMES];

/* Slots whose last holder is gone, for the write thread. */
static pthread_mutex_t unpinned_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint32_t unpinned[SLOTS];
static unsigned unpinned_count;
static unsigned retiring; /* the write thread's: retired, still pinned then */

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void on_unpinned(void *argument, struct pool *pool, uint32_t slot) {
    CHECK(argument == &world && pool == &world.pool);
    SCOPE_LOCK(&unpinned_mutex);
    CHECK(unpinned_count < SLOTS);
    unpinned[unpinned_count++] = slot;
}

/* the write thread */

static void free_unpinned(void) {
    for (;;) {
        uint32_t slot;
        {
            SCOPE_LOCK(&unpinned_mutex);
            if (unpinned_count == 0)
                return;
            slot = unpinned[--unpinned_count];
        }
        CHECK(retiring > 0);
        retiring--;
        slot_pool_free(world.pool.slots, slot);
    }
}

static void retire(const struct world_blob *blob) {
    bool is_free = slot_pool_retire(world.pool.slots, blob->record.slot);
    version_forget(world.table, blob->record.sequence);
    if (is_free)
        slot_pool_free(world.pool.slots, blob->record.slot);
    else
        retiring++;
}

static void damage(const struct world_blob *blob) {
    uint8_t byte = 0;
    uint64_t offset = (uint64_t)blob->record.slot * SLOT_BYTES + blob->record.payload_bytes / 2;
    CHECK(pread(world.slab_fd, &byte, 1, (off_t)offset) == 1);
    byte ^= 0xff;
    world_pwrite(&world, &byte, 1, offset);
}

/* A slot is needed: wait until a reader gives one back. */
static void wait_for_slot(void) {
    free_unpinned();
    while (slot_pool_free_slots(world.pool.slots) == 0) {
        sched_yield();
        free_unpinned();
    }
}

/* The sequence of one put: visible while staged, then settled, then the old slot goes. */
static void replace(struct name *name, uint64_t *random) {
    uint32_t payload_bytes = 5000 + (uint32_t)(next_random(random) % (PAYLOAD_BYTES_MAX - 5000));
    struct world_blob fresh, old = name->current.blob;
    struct version *version = world_stage(&world, &fresh, payload_bytes);
    bool damaged = next_random(random) % 16 == 0;
    {
        SCOPE_LOCK(&name->mutex);
        name->previous = name->current;
        name->staged = version;
        name->current = (struct published){.blob = fresh, .damaged = damaged};
    }
    wait_for_slot();
    fresh.record.slot_bytes = SLOT_BYTES;
    CHECK(slot_pool_allocate(world.pool.slots, &fresh.record.slot) == 0);
    world_write_slot(&world, &fresh);
    if (damaged)
        damage(&fresh);
    slot_pool_publish(world.pool.slots, fresh.record.slot, fresh.record.sequence);
    version_settle(version, &world.pool, fresh.record.slot);
    {
        SCOPE_LOCK(&name->mutex);
        name->staged = NULL;
        name->current.blob = fresh;
    }
    version_unref(version);
    free(fresh.payload);
    if (old.record.sequence)
        retire(&old);
}

static void *write_thread(void *argument) {
    uint64_t random = *(uint64_t *)argument;
    thread_role = THREAD_WRITER;
    while (!atomic_load(&stop))
        replace(&names[next_random(&random) % NAMES], &random);
    return NULL;
}

/* readers */

static void check_bytes(const struct version *version) {
    struct iovec pieces[4];
    uint32_t payload_bytes = version_payload_bytes(version);
    size_t count = version_pieces(version, 0, payload_bytes, pieces, 4);
    uint64_t checksum = blob_checksum(pieces, count);
    CHECK(checksum == version_payload_checksum(version));
    /* The checksum could be of another version: the first bytes tell. */
    uint8_t expected[64];
    world_fill(expected, sizeof expected, version_sequence(version));
    CHECK(memcmp(pieces[0].iov_base, expected, sizeof expected) == 0);
}

/* A version of the name: the staged one, or by a record, one time in eight by the former one. */
static int find(struct name *name, uint64_t *random, struct version **ret_version,
                bool *ret_damaged) {
    struct published published;
    {
        SCOPE_LOCK(&name->mutex);
        bool want_previous = next_random(random) % 8 == 0;
        published = want_previous ? name->previous : name->current;
        *ret_damaged = published.damaged;
        if (name->staged && !want_previous) {
            *ret_version = version_ref(name->staged);
            atomic_fetch_add(&staged_reads, 1);
            return 0;
        }
    }
    if (!published.blob.record.sequence)
        return -ENOENT;
    int result = world_acquire(&world, &published.blob, ret_version);
    CHECK(result == 0 || result == -ESTALE);
    if (result == -ESTALE)
        atomic_fetch_add(&stale, 1);
    CHECK(result < 0 || version_sequence(*ret_version) == published.blob.record.sequence);
    return result;
}

static void read_version(struct version *version, uint64_t *random, bool damaged) {
    int result = version_hold_bytes(version) ? 0 : world_load(version);
    if (result < 0) {
        CHECK(result == -EBADMSG && damaged);
        atomic_fetch_add(&bad, 1);
        return;
    }
    check_bytes(version);
    if (next_random(random) % 2)
        version_done_reading(version);
    version_drop_bytes(version);
    atomic_fetch_add(&reads, 1);
}

static void read_once(struct name *name, uint64_t *random) {
    struct version *version;
    bool damaged;
    if (find(name, random, &version, &damaged) < 0)
        return;
    for (unsigned rounds = 1 + next_random(random) % 3; rounds > 0; rounds--)
        read_version(version, random, damaged);
    version_unref(version);
}

static void *reader(void *argument) {
    uint64_t random = *(uint64_t *)argument;
    while (!atomic_load(&stop))
        read_once(&names[next_random(&random) % NAMES], &random);
    return NULL;
}

static void *dropper(void *argument) {
    uint64_t random = *(uint64_t *)argument;
    while (!atomic_load(&stop)) {
        nanosleep(&(struct timespec){.tv_nsec = (long)(next_random(&random) % 10000000)}, NULL);
        version_table_drop_cache(world.table);
    }
    return NULL;
}

/* the run */

static void run(unsigned seconds, uint64_t seed) {
    pthread_t threads[READERS + 2];
    uint64_t seeds[READERS + 2];
    for (size_t i = 0; i < READERS + 2; i++) {
        seeds[i] = seed * 1000003u + i + 1;
        void *(*body)(void *) = i == 0 ? write_thread : i == 1 ? dropper : reader;
        CHECK(pthread_create(&threads[i], NULL, body, &seeds[i]) == 0);
    }
    nanosleep(&(struct timespec){.tv_sec = seconds}, NULL);
    atomic_store(&stop, true);
    for (size_t i = 0; i < READERS + 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv) {
    unsigned seconds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 3;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : clock_real_ns();
    printf("stress_version: SEED=%" PRIu64 "\n", seed);
    world_open(&world,
               &(struct world_options){.engine = seed % 2 ? SLAB_ENGINE_POSIX : SLAB_ENGINE_AUTO,
                                       .slot_bytes = SLOT_BYTES,
                                       .slots = SLOTS,
                                       .reading_bytes = READING_BYTES});
    world.table->options.on_unpinned = on_unpinned;
    for (size_t i = 0; i < NAMES; i++)
        pthread_mutex_init(&names[i].mutex, NULL);
    run(seconds, seed);
    free_unpinned();
    CHECK(retiring == 0);
    version_table_drop_cache(world.table);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        CHECK(slot_pool_pins(world.pool.slots, slot) == 0);
    world_close(&world);
    printf("stress_version: %" PRIu64 " puts, %" PRIu64 " reads, %" PRIu64
           " of staged bytes, %" PRIu64 " stale, %" PRIu64 " bad\n",
           world.last_sequence, atomic_load(&reads), atomic_load(&staged_reads),
           atomic_load(&stale), atomic_load(&bad));
    bool all_seen = atomic_load(&reads) && atomic_load(&staged_reads) && atomic_load(&stale) &&
                    atomic_load(&bad);
    return all_seen ? 0 : 1;
}
