/* SPDX-License-Identifier: Apache-2.0 */
/* Loads: right bytes or an error for every shape of blob and every kind of damage (W4). */
#include "core/loader.h"

#include <criterion/criterion.h>

#include "core/slab_io.h"
#include "tests/support/version_world.h"

enum { MIB = 1 << 20, SLOT_BYTES = 2 * MIB + BLOCK_BYTES, PAYLOAD_BYTES = 2 * MIB };

static struct world world;

static void open_world(void) {
    world_open(&world, &(struct world_options){.slot_bytes = SLOT_BYTES, .slots = 8});
}

static void close_world(void) {
    world_close(&world);
}

TestSuite(loader, .init = open_world, .fini = close_world, .timeout = 60);
TestSuite(loader_own, .fini = close_world, .timeout = 60);

/* The result of a fresh load; right bytes when it succeeds. */
static int load_once(const struct world_blob *blob) {
    struct version *version = world_must_acquire(&world, blob);
    int result = world_load(version);
    if (result == 0) {
        cr_expect(world_same_bytes(version, blob));
        version_drop_bytes(version);
    }
    version_unref(version);
    version_table_drop_cache(world.table);
    return result;
}

/* shapes */

static void check_shape(enum slab_engine engine, uint32_t slot_bytes, uint32_t payload_bytes) {
    world_open(&world,
               &(struct world_options){.slot_bytes = slot_bytes, .slots = 3, .engine = engine});
    struct world_blob first = world_put(&world, payload_bytes);
    struct world_blob second = world_put(&world, payload_bytes);
    cr_expect_eq(load_once(&second), 0, "%u in %u", payload_bytes, slot_bytes);
    cr_expect_eq(load_once(&first), 0, "%u in %u", payload_bytes, slot_bytes);

    /* The payload's last byte, wherever it is in its piece, is under the checksum. */
    if (payload_bytes > 0) {
        uint8_t wrong = first.payload[payload_bytes - 1] ^ 0x80;
        world_pwrite(&world, &wrong, 1,
                     (uint64_t)first.record.slot * slot_bytes + payload_bytes - 1);
        cr_expect_eq(load_once(&first), -EBADMSG, "%u in %u", payload_bytes, slot_bytes);
    }
    free(first.payload);
    free(second.payload);
}

static void check_shapes(enum slab_engine engine) {
    static const struct {
        uint32_t slot_bytes, payload_bytes;
    } shapes[] = {
        {8192, 0},
        {4096, 0},
        {8192, 1},
        {8192, 4095},
        {8192, 4096},                /* the header's block comes next */
        {8192, 4097},                /* the header in the payload's last block */
        {8192, 8192 - HEADER_BYTES}, /* no padding */
        {64 << 10, 20000},           /* blocks of padding between */
        {MIB, MIB - HEADER_BYTES},   /* one piece with the header in it */
        {MIB + 4096, MIB},           /* one piece and the header's block */
        {MIB + 4096, MIB + 1},       /* a second piece of one block with the header */
        {MIB + 8192, MIB + 1},       /* and its block next */
        {11 * MIB, 9 * MIB + 123},   /* more pieces than fit the window */
        {9 * MIB, 9 * MIB - HEADER_BYTES},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_shape(engine, shapes[i].slot_bytes, shapes[i].payload_bytes);
        if (i + 1 < sizeof shapes / sizeof *shapes)
            close_world();
    }
}

Test(loader_own, every_shape_of_blob_comes_back_whole) {
    check_shapes(SLAB_ENGINE_AUTO);
}

Test(loader_own, every_shape_of_blob_comes_back_whole_without_io_uring) {
    check_shapes(SLAB_ENGINE_POSIX);
}

Test(loader_own, many_loads_at_once_all_succeed) {
    enum { BLOBS = 100 };
    world_open(&world, &(struct world_options){.slot_bytes = 72 << 10, .slots = BLOBS});
    static struct world_blob blobs[BLOBS];
    static struct version *versions[BLOBS];
    static struct world_waiter waiters[BLOBS];
    for (size_t i = 0; i < BLOBS; i++) {
        blobs[i] = world_put(&world, 60000 + (uint32_t)i);
        versions[i] = world_must_acquire(&world, &blobs[i]);
        world_waiter_init(&waiters[i]);
    }
    for (size_t i = 0; i < BLOBS; i++)
        cr_assert_eq(version_load(versions[i], &waiters[i].waiter), -EINPROGRESS);
    for (size_t i = 0; i < BLOBS; i++) {
        cr_expect_eq(world_wait(&waiters[i]), 0);
        cr_expect(world_same_bytes(versions[i], &blobs[i]));
        version_drop_bytes(versions[i]);
        version_unref(versions[i]);
        free(blobs[i].payload);
    }
    cr_expect_eq(stats_get(&world.stats, loads), BLOBS);
}

/* damage */

static void flip(uint64_t offset) {
    uint8_t byte;
    cr_assert_eq(pread(world.slab_fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x01;
    world_pwrite(&world, &byte, 1, offset);
}

/* The load answers -EBADMSG, now and later, is reported once, and leaves no memory in use. */
static void expect_bad(const struct world_blob *blob) {
    unsigned bad = atomic_load(&world.bad);
    uint64_t corrupt = stats_get(&world.stats, corrupt);
    struct version *version = world_must_acquire(&world, blob);
    cr_expect_eq(world_load(version), -EBADMSG);
    cr_expect_eq(world_load(version), -EBADMSG);
    cr_expect_not(version_hold_bytes(version));
    version_unref(version);
    cr_expect_eq(atomic_load(&world.bad), bad + 1);
    cr_expect_eq(atomic_load(&world.bad_sequence), blob->record.sequence);
    cr_expect_eq(stats_get(&world.stats, corrupt), corrupt + 1);
    cr_expect_eq(version_table_count(world.table), 0);
    cr_expect_eq(buffer_pool_used_bytes(world.buffers, BUFFER_READING), 0);
    cr_expect_eq(slot_pool_pins(world.pool.slots, blob->record.slot), 0);
}

Test(loader, a_flipped_byte_of_the_payload_is_found) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    uint64_t slot_offset = (uint64_t)blob.record.slot * SLOT_BYTES;
    static const uint64_t places[] = {0, MIB - 1, MIB, MIB + 777, PAYLOAD_BYTES - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        flip(slot_offset + places[i]);
        expect_bad(&blob);
        flip(slot_offset + places[i]);
        cr_expect_eq(load_once(&blob), 0);
    }
    free(blob.payload);
}

Test(loader, a_flipped_byte_of_any_header_field_is_found) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    uint64_t header = world_header_offset(&world, blob.record.slot);
    for (uint64_t place = 0; place < HEADER_BYTES; place++) {
        flip(header + place);
        expect_bad(&blob);
        flip(header + place);
    }
    cr_expect_eq(load_once(&blob), 0);
    free(blob.payload);
}

/* Well-formed headers that belong to something else: `written` is in the slot, `record` asks. */
static void expect_bad_record(struct world_blob *blob, const struct world_blob *written) {
    world_write_slot(&world, written);
    expect_bad(blob);
    world_write_slot(&world, blob);
    cr_expect_eq(load_once(blob), 0);
}

Test(loader, a_slot_that_another_version_wrote_is_not_believed) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES), written = blob;
    written.record.epoch++;
    expect_bad_record(&blob, &written);
    written = blob;
    written.record.sequence--;
    expect_bad_record(&blob, &written);
    written = blob;
    written.key.hash[3] ^= 1;
    expect_bad_record(&blob, &written);
    written = blob;
    written.key.rank++;
    expect_bad_record(&blob, &written);
    written = blob;
    written.key.kind++;
    expect_bad_record(&blob, &written);
    written = blob;
    written.record.payload_bytes--;
    expect_bad_record(&blob, &written);
    written = blob;
    written.record.payload_checksum++;
    expect_bad_record(&blob, &written);
    free(blob.payload);
}

Test(loader, a_slot_never_written_is_not_believed) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    uint8_t *zeros = calloc(1, SLOT_BYTES);
    world_pwrite(&world, zeros, SLOT_BYTES, (uint64_t)blob.record.slot * SLOT_BYTES);
    expect_bad(&blob);
    free(zeros);
    free(blob.payload);
}

Test(loader, a_torn_write_is_not_believed) {
    struct world_blob old = world_put(&world, PAYLOAD_BYTES);
    struct world_blob torn = world_describe(&world, PAYLOAD_BYTES);
    torn.record.slot = old.record.slot;
    world_write_slot(&world, &torn);
    world_pwrite(&world, old.payload + MIB, MIB, (uint64_t)old.record.slot * SLOT_BYTES + MIB);
    cr_assert(slot_pool_retire(world.pool.slots, old.record.slot));
    slot_pool_free(world.pool.slots, old.record.slot);
    uint32_t slot;
    cr_assert_eq(slot_pool_allocate(world.pool.slots, &slot), 0);
    cr_assert_eq(slot, old.record.slot);
    slot_pool_publish(world.pool.slots, slot, torn.record.sequence);
    torn.record.slot_bytes = SLOT_BYTES;
    expect_bad(&torn);
    free(old.payload);
    free(torn.payload);
}

/* Reads of the slab fail from now on: its descriptor is a directory's. The true one is kept. */
static int break_disk(void) {
    int fd = slab_fd(atomic_load(&world.pool.slab));
    int kept = dup(fd);
    cr_assert_geq(kept, 0);
    cr_assert_eq(dup2(world.directory_fd, fd), fd);
    return kept;
}

static void mend_disk(int kept) {
    int fd = slab_fd(atomic_load(&world.pool.slab));
    cr_assert_eq(dup2(kept, fd), fd);
    close(kept);
}

Test(loader, a_disk_error_is_a_miss_and_the_second_one_drops_the_blob) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    int kept = break_disk();
    cr_expect_eq(load_once(&blob), -EIO);
    cr_expect_eq(atomic_load(&world.bad), 0);
    expect_bad(&blob);
    cr_expect_eq(stats_get(&world.stats, read_errors), 2);
    mend_disk(kept);
    free(blob.payload);
}

Test(loader, a_disk_error_that_goes_away_costs_one_miss) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    struct version *version = world_must_acquire(&world, &blob);
    int kept = break_disk();
    cr_expect_eq(world_load(version), -EIO);
    mend_disk(kept);
    cr_expect_eq(world_load(version), 0);
    cr_expect(world_same_bytes(version, &blob));
    cr_expect_eq(atomic_load(&world.bad), 0);
    version_drop_bytes(version);
    version_unref(version);
    free(blob.payload);
}

Test(loader, a_slot_cut_off_the_file_is_not_believed) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    cr_assert_eq(ftruncate(world.slab_fd, MIB), 0);
    expect_bad(&blob);
    free(blob.payload);
}

/* sharing */

Test(loader, all_who_ask_at_once_share_one_read) {
    enum { READERS = 20 };
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    struct world_waiter waiters[READERS];
    struct version *version = world_must_acquire(&world, &blob);
    for (size_t i = 0; i < READERS; i++) {
        world_waiter_init(&waiters[i]);
        int result = version_load(version, &waiters[i].waiter);
        if (result == 0)
            world_wake(&waiters[i].waiter, 0); /* it was faster than we are */
        else
            cr_assert_eq(result, -EINPROGRESS);
    }
    for (size_t i = 0; i < READERS; i++)
        cr_expect_eq(world_wait(&waiters[i]), 0);
    cr_expect_eq(stats_get(&world.stats, loads), 1);
    /* Each of them has a hold of its own. */
    for (size_t i = 0; i < READERS; i++) {
        version_table_drop_cache(world.table);
        cr_expect(world_same_bytes(version, &blob));
        version_drop_bytes(version);
    }
    version_table_drop_cache(world.table);
    cr_expect_not(version_hold_bytes(version));
    version_unref(version);
    free(blob.payload);
}

Test(loader, all_who_ask_at_once_hear_of_damage_and_it_is_reported_once) {
    enum { READERS = 20 };
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    flip((uint64_t)blob.record.slot * SLOT_BYTES);
    struct world_waiter waiters[READERS];
    struct version *version = world_must_acquire(&world, &blob);
    for (size_t i = 0; i < READERS; i++) {
        world_waiter_init(&waiters[i]);
        int result = version_load(version, &waiters[i].waiter);
        if (result != -EINPROGRESS)
            world_wake(&waiters[i].waiter, result);
    }
    for (size_t i = 0; i < READERS; i++)
        cr_expect_eq(world_wait(&waiters[i]), -EBADMSG);
    cr_expect_eq(atomic_load(&world.bad), 1);
    version_unref(version);
    free(blob.payload);
}

/* memory and time */

static void open_short_of_memory(uint64_t wait_ns, struct buffer **ret_full) {
    world_open(&world, &(struct world_options){.slot_bytes = SLOT_BYTES,
                                               .slots = 8,
                                               .reading_bytes = 4 * MIB,
                                               .no_wait = true,
                                               .times = {.wait_ns = wait_ns,
                                                         .idle_ns = 30000000000u,
                                                         .sweep_ns = 3600000000000u,
                                                         .retry_ns = 1000000}});
    cr_assert_eq(buffer_create(world.buffers, BUFFER_READING, 3 * MIB, ret_full), 0);
}

Test(loader_own, a_load_without_memory_waits_for_some) {
    struct buffer *full;
    open_short_of_memory(10000000000u, &full);
    struct world_blob blobs[2] = {world_put(&world, PAYLOAD_BYTES),
                                  world_put(&world, PAYLOAD_BYTES)};
    struct version *versions[2];
    struct world_waiter waiters[2];
    for (size_t i = 0; i < 2; i++) {
        versions[i] = world_must_acquire(&world, &blobs[i]);
        world_waiter_init(&waiters[i]);
        cr_assert_eq(version_load(versions[i], &waiters[i].waiter), -EINPROGRESS);
    }
    cr_expect(WORLD_EVENTUALLY(atomic_load(&world.table->memory_wanted)));
    buffer_destroy(full); /* by another rank: nobody tells the loader */
    for (size_t i = 0; i < 2; i++) {
        cr_expect_eq(world_wait(&waiters[i]), 0);
        cr_expect(world_same_bytes(versions[i], &blobs[i]));
    }
    for (size_t i = 0; i < 2; i++) {
        version_drop_bytes(versions[i]);
        version_unref(versions[i]);
        free(blobs[i].payload);
    }
}

Test(loader_own, a_load_goes_on_when_a_hold_ends) {
    struct buffer *full;
    open_short_of_memory(10000000000u, &full);
    buffer_destroy(full);
    struct world_blob blobs[3];
    struct version *versions[3];
    for (size_t i = 0; i < 3; i++) {
        blobs[i] = world_put(&world, PAYLOAD_BYTES);
        versions[i] = world_must_acquire(&world, &blobs[i]);
    }
    cr_assert_eq(world_load(versions[0]), 0);
    cr_assert_eq(world_load(versions[1]), 0);
    struct world_waiter waiter;
    world_waiter_init(&waiter);
    cr_assert_eq(version_load(versions[2], &waiter.waiter), -EINPROGRESS);
    cr_expect(WORLD_EVENTUALLY(atomic_load(&world.table->memory_wanted)));
    cr_expect(world_same_bytes(versions[1], &blobs[1]));
    version_drop_bytes(versions[1]);
    cr_expect_eq(world_wait(&waiter), 0);
    cr_expect(world_same_bytes(versions[0], &blobs[0]));
    cr_expect(world_same_bytes(versions[2], &blobs[2]));
    cr_expect_not(version_hold_bytes(versions[1]));
    version_drop_bytes(versions[0]);
    version_drop_bytes(versions[2]);
    for (size_t i = 0; i < 3; i++) {
        version_unref(versions[i]);
        free(blobs[i].payload);
    }
}

Test(loader_own, waiting_for_memory_ends_in_time) {
    struct buffer *full;
    open_short_of_memory(20000000, &full);
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    struct version *version = world_must_acquire(&world, &blob);
    cr_expect_eq(world_load(version), -ETIMEDOUT);
    cr_expect_eq(world_load(version), -ETIMEDOUT);
    buffer_destroy(full);
    cr_expect(WORLD_EVENTUALLY(!atomic_load(&world.table->memory_wanted)));
    version_unref(version);
    cr_expect(WORLD_EVENTUALLY(version_table_count(world.table) == 0));
    free(blob.payload);
}

Test(loader_own, a_load_that_its_waiter_gave_up_is_cached) {
    struct buffer *full;
    open_short_of_memory(0, &full);
    buffer_destroy(full);
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    struct version *version = world_must_acquire(&world, &blob);
    cr_expect_eq(world_load(version), -ETIMEDOUT);
    cr_expect(WORLD_EVENTUALLY(version_hold_bytes(version)));
    cr_expect(world_same_bytes(version, &blob));
    version_drop_bytes(version);
    version_table_drop_cache(world.table); /* no further hold was left behind */
    cr_expect_not(version_hold_bytes(version));
    version_unref(version);
    free(blob.payload);
}

Test(loader_own, a_blob_larger_than_the_reading_share_is_refused_at_once) {
    world_open(&world,
               &(struct world_options){.slot_bytes = SLOT_BYTES, .slots = 2, .reading_bytes = MIB});
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    struct version *version = world_must_acquire(&world, &blob);
    cr_expect_eq(world_load(version), -ENOMEM);
    cr_expect_eq(stats_get(&world.stats, loads), 0);
    version_unref(version);
    free(blob.payload);
}

Test(loader_own, closing_waits_for_a_load_that_nobody_waits_for) {
    struct buffer *full;
    open_short_of_memory(0, &full);
    buffer_destroy(full);
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    struct version *version = world_must_acquire(&world, &blob);
    cr_expect_eq(world_load(version), -ETIMEDOUT);
    version_unref(version);
    free(blob.payload); /* the suite closes the table now, with the load in work */
}
