/* SPDX-License-Identifier: Apache-2.0 */
/* The `load` cold start on a real slab and a real index. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/store_world.h"

static struct store_world world;

static void set_up(void) {
    store_world_init(&world);
    cr_assert_eq(store_world_open(&world), 0);
}

static void tear_down(void) {
    store_world_destroy(&world);
}

TestSuite(load, .init = set_up, .fini = tear_down, .timeout = 120);

enum { PAGE = 65536 };

/* Every size of interest: inline, the edges of a block, grid classes, exact classes, several MiB.
 */
static const size_t sizes[] = {0,     1,     4095,  4096,   4097,   8128,    8129,   65535,
                               65536, 65537, 70272, 262144, 300000, 1048576, 4497408};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

Test(load, brings_back_every_size_with_its_bytes) {
    for (unsigned i = 0; i < SIZES; i++)
        cr_assert_eq(world_put(world.rank, i, sizes[i], 1), 0);
    store_world_reopen(&world, COLD_START_LOAD);
    for (unsigned i = 0; i < SIZES; i++)
        cr_expect(world_has(world.rank, i, sizes[i], 1), "%zu bytes", sizes[i]);
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(load, rebuilds_the_floor_and_a_fresh_spill_never_takes_a_live_slot) {
    for (unsigned i = 0; i < 300; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    store_world_reopen(&world, COLD_START_LOAD);
    for (unsigned i = 300; i < 600; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    world_commit(world.rank);
    for (unsigned i = 0; i < 600; i++)
        cr_expect(world_has(world.rank, i, PAGE, 1), "page %u", i);
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(load, serves_the_newest_version_of_a_replaced_blob) {
    for (unsigned version = 1; version <= 3; version++) {
        cr_assert_eq(world_put(world.rank, 7, PAGE, version), 0);
        world_commit(world.rank);
    }
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect(world_has(world.rank, 7, PAGE, 3));
}

Test(load, rebuilds_the_order_of_gc) {
    /* Read in reverse, so that the order of use is not the order of writing. */
    for (unsigned i = 0; i < 400; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    world_commit(world.rank);
    for (unsigned i = 400; i-- > 0;)
        cr_assert(world_has(world.rank, i, PAGE, 1));
    store_world_reopen(&world, COLD_START_LOAD);
    for (unsigned i = 1000; i < 1700; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    world_commit(world.rank);
    unsigned first_lost = 400;
    for (unsigned i = 0; i < 400; i++)
        if (!world_has(world.rank, i, PAGE, 1) && first_lost == 400)
            first_lost = i;
    cr_expect_gt(first_lost, 0, "page 0 was the last one used");
    cr_expect_lt(first_lost, 400, "GC had to evict some");
    for (unsigned i = first_lost; i < 400; i++)
        cr_expect_not(world_has(world.rank, i, PAGE, 1), "page %u was colder than %u", i,
                      first_lost);
}

Test(load, keeps_names_directories_and_attributes) {
    struct blob_key key;
    uint64_t directory, inner;
    uint64_t root = directory_root(0);
    struct name_entry made = {.mode = 0750, .uid = 3, .gid = 4, .mtime_ns = 5, .ctime_ns = 6};
    cr_assert_eq(rank_make_directory(world.rank, root, "a", 1, &made, &directory), 0);
    cr_assert_eq(rank_make_directory(world.rank, directory, "b", 1, &made, &inner), 0);
    cr_assert_eq(world_put_named(world.rank, inner, "page.bin", 9, 5000, 1, &key), 0);
    struct attributes attributes = {.set = ATTRIBUTE_MODE | ATTRIBUTE_UID | ATTRIBUTE_GID |
                                           ATTRIBUTE_MTIME,
                                    .mode = 0600,
                                    .uid = 11,
                                    .gid = 12,
                                    .mtime_ns = 1234567890123456789};
    cr_assert_eq(rank_set_blob_attributes(world.rank, &key, &attributes), 0);
    store_world_reopen(&world, COLD_START_LOAD);

    struct name_entry entry;
    struct blob_record record;
    cr_assert_eq(rank_get_name(world.rank, directory, "b", 1, &entry), 0);
    cr_expect_eq(entry.type, NAME_DIRECTORY);
    cr_expect_eq(entry.directory, inner);
    cr_expect_eq(entry.mode, 0750);
    cr_assert_eq(rank_get_name(world.rank, inner, "page.bin", 8, &entry), 0);
    cr_assert(blob_key_equal(&entry.blob, &key));
    cr_assert_eq(rank_get_blob(world.rank, &key, &record), 0);
    cr_expect_eq(record.mode, 0600);
    cr_expect_eq(record.uid, 11);
    cr_expect_eq(record.gid, 12);
    cr_expect_eq(record.mtime_ns, 1234567890123456789);
    uint64_t next;
    cr_assert_eq(rank_make_directory(world.rank, root, "c", 1, &made, &next), 0);
    cr_expect_neq(next, directory);
    cr_expect_neq(next, inner);
}

Test(load, after_a_lost_index_starts_empty_and_says_so) {
    for (unsigned i = 0; i < 50; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    store_world_close(&world);
    char path[160];
    snprintf(path, sizeof(path), "%s/index/data.mdb", world.path);
    cr_assert_eq(unlink(path), 0);
    store_world_reopen(&world, COLD_START_LOAD);
    for (unsigned i = 0; i < 50; i++)
        cr_expect_not(world_has(world.rank, i, PAGE, 1));
    for (unsigned i = 0; i < 50; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 2), 0);
    cr_expect(world_has(world.rank, 3, PAGE, 2));
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(load, after_a_lost_epoch_file_starts_empty) {
    cr_assert_eq(world_put(world.rank, 1, PAGE, 1), 0);
    store_world_close(&world);
    char path[160];
    snprintf(path, sizeof(path), "%s/rank0/epoch", world.path);
    int fd = open(path, O_WRONLY | O_TRUNC);
    cr_assert_eq(write(fd, "garbage", 7), 7);
    close(fd);
    store_world_reopen(&world, COLD_START_LOAD);
    cr_expect_not(world_has(world.rank, 1, PAGE, 1));
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(load, with_a_smaller_size_keeps_the_warmest_and_fits) {
    for (unsigned i = 0; i < 700; i++)
        cr_assert_eq(world_put(world.rank, i, PAGE, 1), 0);
    store_world_close(&world);
    world.config.size_bytes = 24 << 20;
    world.config.max_file_bytes = 4 << 20;
    store_world_reopen(&world, COLD_START_LOAD);
    struct rank_usage usage;
    rank_get_usage(world.rank, &usage);
    cr_expect_leq(usage.taken_bytes, usage.size_bytes);
    cr_expect_leq(usage.backed_bytes, usage.size_bytes);
    struct stat status;
    char path[160];
    snprintf(path, sizeof(path), "%s/rank0/any-69632.slab", world.path);
    cr_assert_eq(stat(path, &status), 0);
    cr_expect_leq((uint64_t)status.st_blocks * 512, usage.size_bytes + 65536);
    cr_expect(world_has(world.rank, 699, PAGE, 1), "the warmest stays");
    cr_expect_not(world_has(world.rank, 0, PAGE, 1), "the coldest goes");
    cr_expect_eq(world_verify(world.rank), 0);
}

Test(load, with_another_page_size_of_a_kind_is_refused_with_both_sizes) {
    store_world_close(&world);
    world.config.kind_count = 1;
    strcpy(world.config.kinds[0].name, "kv");
    world.config.kinds[0].payload_bytes = 100000;
    world.config.kinds[0].slots = 50;
    cr_assert_eq(store_world_open(&world), 0);
    struct reservation reservation;
    cr_assert_eq(rank_reserve(world.rank, 1, 100000, &reservation), 0);
    struct publication publication = {.key = hash_key(0, 1)};
    publication.key.kind = 1;
    struct version *version;
    struct blob_record record;
    cr_assert_eq(
        buffer_create(store_buffers(world.store), BUFFER_STAGING, 100000, &publication.buffer), 0);
    buffer_zero(publication.buffer, 0, 100000);
    publication.payload_checksum = publication_checksum(publication.buffer, 100000);
    cr_assert_eq(rank_publish(world.rank, &reservation, &publication, &version, &record), 0);
    version_unref(version);
    world_commit(world.rank);
    store_world_close(&world);
    world.config.cold_start = COLD_START_LOAD;
    world.config.kinds[0].payload_bytes = 200000;
    cr_expect_eq(store_world_open(&world), -EINVAL);
    world.config.kinds[0].payload_bytes = 100000;
    cr_assert_eq(store_world_open(&world), 0);
    cr_expect_eq(rank_get_blob(world.rank, &publication.key, &record), 0);
    store_world_close(&world);
    world.config.cold_start = COLD_START_CLEAR;
    world.config.kinds[0].payload_bytes = 200000;
    cr_expect_eq(store_world_open(&world), 0, "clear takes the other size");
}
