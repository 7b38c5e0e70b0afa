/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading all headers of a slab. A disk answers so many reads a second, whatever their size, up to
 * its bandwidth: slots that are small are read whole, many in one read (a million of 8 KiB: 3 s
 * against 13 s on a disk with 3 GB/s and 90,000 reads/s); of larger ones only the header's block.
 * A row of slots that cannot be read is read again slot by slot: a bad sector costs its own slot.
 */
#include "core/cold_headers.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/check.h"
#include "core/clock.h"

enum {
    READS_MAX = 256,
    ROW_BYTES = 512 << 10,
    MEMORY_BYTES = 4 << 20,
    HUGE_PAGE_BYTES = 2 << 20,
    MAP_BYTES = MEMORY_BYTES + HUGE_PAGE_BYTES,
    /* Where a block of each takes as long as all of it: 3 GB/s / 90,000 reads/s is 33 KiB here,
     * less on disks that read more blocks a second. */
    WHOLE_SLOT_BYTES_MAX = 24 << 10,
    PROGRESS_SECONDS = 5,
};
#define PROGRESS_NS (PROGRESS_SECONDS * UINT64_C(1000000000))

/* A row of slots, from the header's block of the first to the end of the last. */
struct header_read {
    struct slab_request request;
    struct iovec piece;
    uint32_t slot, count;
    uint32_t alone_until; /* the row failed: its slots up to here are read one by one; else 0 */
};

struct header_reader {
    /* fixed after open */
    struct rank *rank;
    struct slab_io *io;
    uint8_t *map, *memory; /* MEMORY_BYTES of it, on huge pages if there are some */
    uint64_t next_progress_ns;
    /* of the pool being read */
    struct pool *pool;
    struct header_table table;
    uint32_t next_slot;
    struct header_read reads[READS_MAX];
};

/* Zeros. Not malloc's: it would keep what was freed, some bytes a slot, for the life of the mount.
 */
static void *map_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int header_reader_open(struct rank *rank, struct header_reader **ret_reader) {
    struct header_reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return -ENOMEM;
    reader->rank = rank;
    reader->next_progress_ns = clock_monotonic_ns() + PROGRESS_NS;
    reader->map = map_memory(MAP_BYTES);
    int result =
        reader->map ? slab_io_open(rank->store->config.engine, READS_MAX, &reader->io) : -ENOMEM;
    if (result < 0) {
        header_reader_close(reader);
        return result;
    }
    reader->memory = reader->map + -(uintptr_t)reader->map % HUGE_PAGE_BYTES;
    madvise(reader->memory, MEMORY_BYTES, MADV_HUGEPAGE); /* a wish */
    *ret_reader = reader;
    return 0;
}

void header_reader_close(struct header_reader *reader) {
    if (!reader)
        return;
    slab_io_close(reader->io);
    if (reader->map)
        munmap(reader->map, MAP_BYTES);
    free(reader);
}

/* what was read */

static void take_header(struct header_reader *reader, uint32_t slot,
                        const struct slot_header *raw) {
    struct rank *rank = reader->rank;
    struct blob_header header;
    rank->cold_start.free_headers++; /* until the index wants it */
    if (blob_header_parse(raw, atomic_load(&rank->epoch), &header) < 0)
        return;
    if (rank->next_sequence <= header.sequence)
        rank->next_sequence = header.sequence + 1;
    reader->table.fingerprints[slot] = blob_header_fingerprint(raw);
}

static void take_row(struct header_reader *reader, const struct header_read *read) {
    const uint8_t *block = read->piece.iov_base;
    for (uint32_t i = 0; i < read->count; i++, block += reader->pool->slot_bytes)
        take_header(reader, read->slot + i, (const void *)(block + BLOCK_BYTES - HEADER_BYTES));
}

bool header_table_take(struct header_table *table, uint32_t slot,
                       const struct blob_header *expected, uint32_t epoch) {
    struct slot_header raw;
    if (slot >= table->slots || !table->fingerprints[slot])
        return false;
    blob_header_seal(&raw, expected, epoch);
    if (table->fingerprints[slot] != blob_header_fingerprint(&raw))
        return false;
    table->fingerprints[slot] = 0;
    return true;
}

void header_table_free(struct header_table *table) {
    if (table->fingerprints)
        munmap(table->fingerprints, table->slots * sizeof(uint64_t));
    *table = (struct header_table){0};
}

/* reading */

static uint64_t row_bytes(const struct header_reader *reader, uint32_t count) {
    return (uint64_t)(count - 1) * reader->pool->slot_bytes + BLOCK_BYTES;
}

static void submit(struct header_reader *reader, struct header_read *read, uint32_t slot,
                   uint32_t count) {
    read->slot = slot;
    read->count = count;
    read->piece.iov_len = row_bytes(reader, count);
    read->request = (struct slab_request){
        .slab = atomic_load(&reader->pool->slab),
        .offset = (uint64_t)(slot + 1ull) * reader->pool->slot_bytes - BLOCK_BYTES,
        .pieces = &read->piece,
        .piece_count = 1,
        .context = read,
    };
    slab_io_submit(reader->io, &read->request);
}

static uint32_t slots_of_row(const struct header_reader *reader) {
    uint32_t slot_bytes = reader->pool->slot_bytes;
    return slot_bytes <= WHOLE_SLOT_BYTES_MAX ? ROW_BYTES / slot_bytes : 1;
}

/* False: there is no further row. */
static bool submit_next_row(struct header_reader *reader, struct header_read *read) {
    uint32_t left = reader->table.slots - reader->next_slot, count = slots_of_row(reader);
    if (left == 0)
        return false;
    if (count > left)
        count = left;
    read->alone_until = 0;
    submit(reader, read, reader->next_slot, count);
    reader->next_slot += count;
    return true;
}

static void row_done(struct header_reader *reader, struct header_read *read) {
    bool failed = read->request.result < 0;
    if (failed && read->count > 1) {
        read->alone_until = read->slot + read->count;
        submit(reader, read, read->slot, 1);
        return;
    }
    if (failed)
        stats_add(&reader->rank->stats, read_errors, 1);
    else
        take_row(reader, read);
    if (read->slot + 1 < read->alone_until)
        submit(reader, read, read->slot + 1, 1);
    else
        submit_next_row(reader, read);
}

static void show_progress(struct header_reader *reader) {
    uint64_t now = clock_monotonic_ns();
    if (now < reader->next_progress_ns)
        return;
    reader->next_progress_ns = now + PROGRESS_NS;
    log_notice("rank %u: cold start load: %u of %u slots of %u bytes read", reader->rank->number,
               reader->next_slot, reader->table.slots, reader->pool->slot_bytes);
}

static void read_all(struct header_reader *reader) {
    uint64_t bytes = row_bytes(reader, slots_of_row(reader));
    CHECK(bytes <= MEMORY_BYTES);
    for (uint64_t i = 0; i < READS_MAX && (i + 1) * bytes <= MEMORY_BYTES; i++) {
        reader->reads[i].piece.iov_base = reader->memory + i * bytes;
        if (!submit_next_row(reader, &reader->reads[i]))
            break;
    }
    while (slab_io_in_flight(reader->io) > 0) {
        struct slab_request *done = slab_io_wait(reader->io, UINT64_MAX);
        if (!done)
            continue;
        row_done(reader, done->context);
        show_progress(reader);
    }
}

int header_reader_read(struct header_reader *reader, struct pool *pool,
                       struct header_table *ret_table) {
    struct slab *slab = atomic_load(&pool->slab);
    uint32_t slots = 0;
    int result = slab ? slab_slots_in_file(slab, &slots) : 0;
    if (result < 0)
        return result;
    if (slots > pool->slots_max)
        slots = pool->slots_max;
    reader->pool = pool;
    reader->next_slot = 0;
    reader->table = (struct header_table){.slots = slots};
    if (slots > 0)
        reader->table.fingerprints = map_memory(slots * sizeof(uint64_t));
    if (slots > 0 && !reader->table.fingerprints)
        return -ENOMEM;
    read_all(reader);
    *ret_table = reader->table;
    return 0;
}
