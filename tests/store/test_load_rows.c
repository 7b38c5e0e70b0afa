/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `load` cold start of small slots, whose headers are read a row of slots at a time: what is
 * wrong with one slot, or one sector, costs no other. Slots of 8 KiB: 64 of them make a row.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/rank.h"
#include "tests/support/store_world.h"

enum { PAGE = 8000, SLOT = 8192, PAGES = 200, NONE = -1 };

static struct store_world world;

/* A sector that cannot be read, by this program's preadv (engine=posix). 0: all can. */
static _Atomic off_t bad_sector;

ssize_t preadv(int fd, const struct iovec *pieces, int count, off_t offset) {
    off_t bytes = 0, bad = bad_sector;
    for (int i = 0; i < count; i++)
        bytes += (off_t)pieces[i].iov_len;
    if (bad && offset <= bad && bad < offset + bytes) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_preadv, fd, pieces, (long)count, (long)offset, 0L);
}

static void set_up(void) {
    store_world_init(&world);
    cr_assert_eq(store_world_open(&world), 0);
}

static void tear_down(void) {
    store_world_destroy(&world);
}

TestSuite(load_rows, .init = set_up, .fini = tear_down, .timeout = 120);

static void fill(void) {
    for (unsigned i = 0; i < PAGES; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    world_commit(world.rank);
}

static uint32_t slot_of(unsigned page) {
    struct blob_key key = hash_key(0, page);
    struct blob_record record;
    cr_assert_eq(rank_get_blob(world.rank, &key, &record), 0);
    cr_assert_eq(record.slot_bytes, SLOT);
    return record.slot;
}

static off_t header_block(uint32_t slot) {
    return (slot + 1) * (off_t)SLOT - BLOCK_BYTES;
}

static int open_slab_of(const char *kind) {
    char path[160];
    snprintf(path, sizeof(path), "%s/rank0/%s-%d.slab", world.path, kind, SLOT);
    int fd = open(path, O_RDWR);
    cr_assert_geq(fd, 0);
    return fd;
}

static int open_slab(void) {
    return open_slab_of("any");
}

static void close_slab(int fd) {
    cr_assert_eq(fsync(fd), 0);
    close(fd);
}

static uint32_t slots_of_file(const char *kind) {
    struct stat status;
    int fd = open_slab_of(kind);
    cr_assert_eq(fstat(fd, &status), 0);
    close(fd);
    return (uint32_t)(status.st_size / SLOT);
}

/* Slots beyond those of `fill`: they have blocks, and were never written. */
static uint32_t slots_ahead(void) {
    return slots_of_file("any") - PAGES;
}

static void flip_header(uint32_t slot) {
    uint8_t byte;
    off_t offset = header_block(slot) + BLOCK_BYTES - HEADER_BYTES + 10;
    int fd = open_slab();
    cr_assert_eq(pread(fd, &byte, 1, offset), 1);
    byte ^= 1;
    cr_assert_eq(pwrite(fd, &byte, 1, offset), 1);
    close_slab(fd);
}

/* The pages in slots of `lost` are gone, all others there; slots[i] was page i's. */
static void expect_only_lost(const uint32_t slots[PAGES], const int *lost, unsigned lost_count) {
    for (unsigned i = 0; i < PAGES; i++) {
        bool is_lost = false;
        for (unsigned j = 0; j < lost_count; j++)
            is_lost = is_lost || (int)slots[i] == lost[j];
        cr_expect_eq(world_has(world.rank, i, PAGE, 1), !is_lost, "page %u in slot %u", i,
                     slots[i]);
    }
    const struct cold_start_report *report = &world.rank->cold_start;
    cr_expect_eq(report->live_slots, PAGES - lost_count);
    cr_expect_eq(report->pruned_records, lost_count);
    cr_expect_eq(world_verify(world.rank), 0);
}

static void fill_and_find(uint32_t ret_slots[PAGES]) {
    fill();
    for (unsigned i = 0; i < PAGES; i++)
        ret_slots[i] = slot_of(i);
    store_world_close(&world);
}

static void check_rows(enum slab_engine engine) {
    static const int lost[] = {0, 1, 63, 64, 127, 128, PAGES - 1};
    enum { LOST = sizeof(lost) / sizeof(lost[0]) };
    uint32_t slots[PAGES];
    fill_and_find(slots);
    for (unsigned i = 0; i < LOST; i++)
        flip_header((uint32_t)lost[i]);
    uint32_t ahead = slots_ahead();
    world.config.engine = engine;
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_eq(world.rank->cold_start.free_headers, ahead + LOST);
    cr_expect_leq(slots_of_file("any"), PAGES, "what was ahead is given back");
    cr_expect_eq(stats_get(&world.rank->stats, read_errors), 0);
    expect_only_lost(slots, lost, LOST);
}

Test(load_rows, at_their_borders_a_torn_header_costs_its_own_slot_uring) {
    check_rows(SLAB_ENGINE_URING);
}

Test(load_rows, at_their_borders_a_torn_header_costs_its_own_slot_posix) {
    check_rows(SLAB_ENGINE_POSIX);
}

static void check_bad_sector(off_t sector, int lost) {
    uint32_t slots[PAGES];
    fill_and_find(slots);
    world.config.engine = SLAB_ENGINE_POSIX;
    bad_sector = sector;
    store_world_reopen(&world, COLD_START_LOAD);
    bad_sector = 0;
    cr_expect_eq(stats_get(&world.rank->stats, read_errors), lost == NONE ? 0 : 1);
    expect_only_lost(slots, &lost, lost == NONE ? 0 : 1);
}

Test(load_rows, a_header_that_cannot_be_read_costs_none_of_its_row) {
    check_bad_sector(header_block(70), 70);
}

Test(load_rows, a_header_that_cannot_be_read_may_be_the_first_of_a_row) {
    check_bad_sector(header_block(64), 64);
}

Test(load_rows, a_header_that_cannot_be_read_may_be_the_last_of_all) {
    check_bad_sector(header_block(PAGES - 1), PAGES - 1);
}

Test(load_rows, a_payload_that_cannot_be_read_is_not_looked_at) {
    check_bad_sector(header_block(70) - BLOCK_BYTES, NONE);
}

static void put_of_kind_1(unsigned page) {
    struct reservation reservation;
    struct publication publication = {.key = hash_key(0, page)};
    struct version *version;
    struct blob_record record;
    publication.key.kind = 1;
    cr_assert_eq(rank_reserve(world.rank, 1, PAGE, &reservation), 0);
    cr_assert_eq(
        buffer_create(store_buffers(world.store), BUFFER_STAGING, PAGE, &publication.buffer), 0);
    buffer_zero(publication.buffer, 0, PAGE);
    publication.payload_checksum = publication_checksum(publication.buffer, PAGE);
    cr_assert_eq(rank_publish(world.rank, &reservation, &publication, &version, &record), 0);
    version_unref(version);
}

/* The slab of kind 1 is read after that of kind 0, and ends before the sector. */
Test(load_rows, after_a_row_that_cannot_be_read_the_next_slab_is_read_as_ever) {
    enum { OF_KIND_1 = 150 };
    const int lost = 190;
    store_world_close(&world);
    world.config.kind_count = 1;
    world.config.kinds[0] =
        (struct config_kind){.name = "kv", .payload_bytes = PAGE, .slots = OF_KIND_1 + 50};
    cr_assert_eq(store_world_open(&world), 0);
    for (unsigned i = 0; i < OF_KIND_1; i++)
        put_of_kind_1(i);
    fill();
    store_world_close(&world);
    uint32_t ahead = slots_ahead() + slots_of_file("kv") - OF_KIND_1;
    world.config.engine = SLAB_ENGINE_POSIX;
    bad_sector = header_block(lost);
    store_world_reopen(&world, COLD_START_LOAD);
    bad_sector = 0;
    cr_expect_eq(world.rank->cold_start.live_slots, OF_KIND_1 + PAGES - 1);
    cr_expect_eq(world.rank->cold_start.free_headers, ahead, "none was read twice");
    cr_expect_eq(world.rank->cold_start.pruned_records, 1);
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(load_rows, of_a_file_that_ends_in_a_row_keep_what_is_before_its_end) {
    int lost[PAGES];
    unsigned lost_count = 0;
    uint32_t slots[PAGES];
    fill_and_find(slots);
    for (int slot = 100; slot < PAGES; slot++)
        lost[lost_count++] = slot;
    int fd = open_slab();
    cr_assert_eq(ftruncate(fd, 100 * SLOT + BLOCK_BYTES), 0);
    close_slab(fd);
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_eq(world.rank->cold_start.free_headers, 1, "slot 100 is cut in two");
    expect_only_lost(slots, lost, lost_count);
}

Test(load_rows, holes_among_them_are_free) {
    static const int lost[] = {60, 61, 62, 63, 64, 65};
    enum { LOST = sizeof(lost) / sizeof(lost[0]) };
    uint32_t slots[PAGES];
    fill_and_find(slots);
    int fd = open_slab();
    cr_assert_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 60 * SLOT, LOST * SLOT),
                 0);
    close_slab(fd);
    uint32_t ahead = slots_ahead();
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_eq(world.rank->cold_start.free_headers, ahead + LOST);
    expect_only_lost(slots, lost, LOST);
}

Test(load_rows, a_header_in_another_slot_is_not_believed) {
    static const int lost[] = {65};
    uint32_t slots[PAGES];
    uint8_t bytes[SLOT];
    fill_and_find(slots);
    int fd = open_slab();
    cr_assert_eq(pread(fd, bytes, SLOT, 3 * SLOT), SLOT);
    cr_assert_eq(pwrite(fd, bytes, SLOT, 65 * SLOT), SLOT);
    close_slab(fd);
    uint32_t ahead = slots_ahead();
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_eq(world.rank->cold_start.free_headers, ahead + 1);
    expect_only_lost(slots, lost, 1);
}

/* Both records are sound; the slot's header decides. */
Test(load_rows, a_slot_that_two_records_want_goes_to_the_one_of_its_header) {
    uint32_t slots[PAGES];
    struct blob_key key = hash_key(0, 7), other = hash_key(0, 1000);
    struct blob_record record;
    struct index_txn *txn;
    fill();
    cr_assert_eq(rank_get_blob(world.rank, &key, &record), 0);
    cr_assert_eq(index_txn_begin(world.store->index, &txn), 0);
    cr_assert_eq(index_txn_put_blob(txn, &other, &record), 0);
    cr_assert_eq(index_txn_commit(txn), 0);
    for (unsigned i = 0; i < PAGES; i++)
        slots[i] = slot_of(i);
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_eq(world.rank->cold_start.pruned_records, 1);
    world.rank->cold_start.pruned_records = 0;
    cr_expect_eq(rank_get_blob(world.rank, &other, &record), -ENOENT);
    expect_only_lost(slots, NULL, 0);
}

/* A crash between slot and record leaves such: its sequence must not be given again. */
Test(load_rows, an_orphan_header_raises_the_next_sequence) {
    struct blob_key key = hash_key(0, PAGES - 1);
    struct blob_record record;
    fill();
    cr_assert_eq(rank_get_blob(world.rank, &key, &record), 0);
    store_world_close(&world);
    world.config.cold_start = COLD_START_LOAD;
    cr_assert_eq(store_world_open(&world), 0);
    cr_assert_eq(rank_unlink_blob(world.rank, &key), 0);
    world_commit(world.rank);
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_eq(world.rank->cold_start.free_headers, 1);
    cr_expect_eq(world.rank->cold_start.live_slots, PAGES - 1);
    cr_expect_gt(world.rank->next_sequence, record.sequence);
}

/* From the smallest slots to ones of which only the header's block is read. */
Test(load_rows, of_every_small_class_come_back) {
    enum { EACH = 90, CLASSES = 9 };
    static const size_t sizes[CLASSES] = {5000,  12000, 16000, 20000, 24000,
                                          24500, 28000, 40000, 50000};
    for (unsigned i = 0; i < EACH * CLASSES; i++)
        cr_assert_eq(world_put(world.rank, i, sizes[i % CLASSES], 1), 0);
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_eq(world.rank->cold_start.live_slots, EACH * CLASSES);
    for (unsigned i = 0; i < EACH * CLASSES; i++)
        cr_expect(world_has(world.rank, i, sizes[i % CLASSES], 1), "page %u", i);
    cr_expect_eq(world_verify(world.rank), 0);
}
