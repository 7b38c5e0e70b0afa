/* SPDX-License-Identifier: Apache-2.0 */
/* What a store refuses to open, and what a damaged one opens as. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/rank.h"
#include "core/superblock.h"
#include "tests/support/store_world.h"

static struct store_world world;

static void set_up(void) {
    store_world_init(&world);
}

static void tear_down(void) {
    store_world_destroy(&world);
}

TestSuite(opening, .init = set_up, .fini = tear_down, .timeout = 120);

static void path_of(const char *name, char *ret_path) {
    snprintf(ret_path, 160, "%s/%s", world.path, name);
}

static void write_file(const char *name, const char *text) {
    char path[160];
    path_of(name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

Test(opening, a_foreign_directory_is_refused_and_left_alone) {
    char path[160];
    cr_assert_eq(mkdir(world.path, 0755), 0);
    write_file("precious.txt", "mine");
    cr_expect_eq(store_preflight(&world.config), -ENOTEMPTY);
    cr_expect_eq(store_world_open(&world), -ENOTEMPTY);
    path_of("superblock", path);
    cr_expect_eq(access(path, F_OK), -1);
}

/* A mount of rank 5 by this process that was promised so much. */
static void hold_rank5(pid_t holder, uint64_t size_bytes) {
    char path[160], text[64];
    path_of("rank5", path);
    mkdir(path, 0700);
    snprintf(text, sizeof text, "%d opening\nsize %lu\n", holder, size_bytes);
    write_file("rank5/holder", text);
}

Test(opening, what_other_mounts_of_the_store_may_still_take_is_not_available) {
    struct statvfs disk;
    cr_assert_eq(store_world_open(&world), 0);
    store_world_close(&world);
    cr_assert_eq(statvfs(world.path, &disk), 0);
    uint64_t free_bytes = disk.f_bavail * disk.f_frsize / BLOCK_BYTES * BLOCK_BYTES;
    world.config.size_bytes = free_bytes / 8 * 4 / BLOCK_BYTES * BLOCK_BYTES;
    hold_rank5(getpid(), free_bytes / 8 * 2);
    cr_expect_eq(store_preflight(&world.config), 0, "together they fit");
    hold_rank5(getpid(), free_bytes / 8 * 6);
    cr_expect_eq(store_preflight(&world.config), -ENOSPC);
    pid_t ended = fork();
    if (ended == 0)
        _exit(0);
    waitpid(ended, NULL, 0);
    hold_rank5(ended, free_bytes / 8 * 6);
    cr_expect_eq(store_preflight(&world.config), 0, "nobody holds it");
    world.config.rank_first = world.config.rank_last = 5;
    hold_rank5(getpid(), free_bytes / 8 * 6);
    cr_expect_eq(store_preflight(&world.config), 0, "its own promise does not count");
}

Test(opening, superblocks_that_are_not_understood_are_refused) {
    cr_assert_eq(store_world_open(&world), 0);
    cr_assert_eq(world_put(world.rank, 1, 65536, 1), 0);
    store_world_close(&world);
    char good[512];
    int directory = open(world.path, O_RDONLY | O_DIRECTORY);
    cr_assert_gt(text_file_read(directory, "superblock", good, sizeof(good)), 0);
    write_file("superblock", "");
    cr_expect_eq(store_world_open(&world), -EINVAL, "empty");
    write_file("superblock", "cpl3 store, format 2\nsomething else\n");
    cr_expect_eq(store_world_open(&world), -EPROTO, "another format");
    write_file("superblock", "cpl3 store, format 1\nuuid 1234\n");
    cr_expect_eq(store_world_open(&world), -EINVAL, "cut off");
    char longer[600];
    snprintf(longer, sizeof(longer), "%sextra\n", good);
    write_file("superblock", longer);
    cr_expect_eq(store_world_open(&world), -EINVAL, "something behind it");
    write_file("superblock", good);
    world.config.cold_start = COLD_START_LOAD;
    cr_expect_eq(store_world_open(&world), 0, "none of this changed anything");
    cr_expect(world_has(world.rank, 1, 65536, 1));
    close(directory);
}

Test(opening, a_rank_in_use_is_refused) {
    cr_assert_eq(store_world_open(&world), 0);
    cr_assert_eq(world_put(world.rank, 1, 65536, 1), 0);
    struct store *second;
    cr_expect_eq(store_preflight(&world.config), -EBUSY);
    cr_expect_eq(store_open(&world.config, NULL, &second), -EBUSY);
    cr_expect(world_has(world.rank, 1, 65536, 1));
}

Test(opening, sizes_that_do_not_fit_are_refused) {
    world.config.size_bytes = UINT64_C(1) << 50;
    cr_expect_eq(store_preflight(&world.config), -ENOSPC);
    world.config.size_bytes = 16 << 20;
    world.config.max_file_given = true;
    cr_expect_eq(store_preflight(&world.config), -EINVAL, "max_file over a quarter of size");
    world.config.max_file_bytes = 1 << 20;
    cr_expect_eq(store_preflight(&world.config), 0);
    world.config.kind_count = 1;
    strcpy(world.config.kinds[0].name, "kv");
    world.config.kinds[0].payload_bytes = 1 << 20;
    world.config.kinds[0].slots = 100;
    cr_expect_eq(store_preflight(&world.config), -EINVAL, "kinds larger than size");
    cr_expect_eq(access(world.path, F_OK), -1, "nothing was made");
}

Test(opening, the_size_of_the_first_mount_is_the_default_of_later_ones) {
    cr_assert_eq(store_world_open(&world), 0);
    store_world_close(&world);
    world.config.size_bytes = 0;
    cr_assert_eq(store_world_open(&world), 0);
    cr_expect_eq(store_config(world.store)->size_bytes, 64 << 20);
}

Test(opening, everything_in_a_store_is_private) {
    umask(0);
    cr_assert_eq(store_world_open(&world), 0);
    cr_assert_eq(world_put(world.rank, 1, 65536, 1), 0);
    world_commit(world.rank);
    static const char *const names[] = {"",           "superblock",     "index",
                                        "rank0",      "index/data.mdb", "rank0/any-69632.slab",
                                        "rank0/epoch"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[160];
        struct stat status;
        path_of(names[i], path);
        cr_assert_eq(stat(path, &status), 0, "%s", path);
        cr_expect_eq(status.st_mode & 077, 0, "%s is %o", path, status.st_mode);
    }
}

Test(opening, read_only_serves_and_changes_nothing) {
    cr_assert_eq(store_world_open(&world), 0);
    for (unsigned i = 0; i < 20; i++)
        cr_assert_eq(world_put(world.rank, i, i % 2 ? 65536 : 100, 1), 0);
    store_world_close(&world);
    world.config.read_only = true;
    world.config.cold_start = COLD_START_LOAD;
    cr_assert_eq(store_world_open(&world), 0);
    for (unsigned i = 0; i < 20; i++)
        cr_expect(world_has(world.rank, i, i % 2 ? 65536 : 100, 1));
    cr_expect_eq(world_put(world.rank, 99, 65536, 1), -EROFS);
    struct blob_key key = hash_key(0, 1);
    cr_expect_eq(rank_unlink_blob(world.rank, &key), -EROFS);
    cr_expect_eq(world_clear(world.rank), -EROFS);
}

/* xorshift, printed seed */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void damage_index(uint64_t *state) {
    char path[160];
    uint8_t garbage[64];
    path_of("index/data.mdb", path);
    struct stat status;
    cr_assert_eq(stat(path, &status), 0);
    int fd = open(path, O_RDWR);
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned k = 0; k < sizeof(garbage); k++)
            garbage[k] = (uint8_t)next_random(state);
        cr_assert_eq(pwrite(fd, garbage, sizeof(garbage),
                            (off_t)(next_random(state) % (uint64_t)status.st_size)),
                     sizeof(garbage));
    }
    close(fd);
}

Test(opening, a_damaged_index_never_takes_the_mount_down) {
    const char *given = getenv("SEED");
    uint64_t state = given ? strtoull(given, NULL, 0) : (uint64_t)getpid() * 2654435761u + 1;
    cr_log_info("SEED=%llu", (unsigned long long)state);
    for (unsigned round = 0; round < 12; round++) {
        world.config.cold_start = COLD_START_CLEAR;
        cr_assert_eq(store_world_open(&world), 0);
        for (unsigned i = 0; i < 60; i++)
            cr_assert_eq(world_put(world.rank, i, i % 3 ? 65536 : 100, round), 0);
        store_world_close(&world);
        damage_index(&state);
        world.config.cold_start = round % 4 ? COLD_START_LOAD : COLD_START_CLEAR;
        cr_assert_eq(store_world_open(&world), 0, "round %u", round);
        for (unsigned i = 0; i < 60; i++)
            world_has(world.rank, i, i % 3 ? 65536 : 100, round); /* aborts on wrong bytes */
        cr_assert_eq(world_put(world.rank, 1000, 65536, round), 0);
        cr_expect(world_has(world.rank, 1000, 65536, round));
        cr_expect_eq(world_verify(world.rank), 0);
        store_world_close(&world);
    }
}

/* A process that writes until it is killed, telling which pages a commit acknowledged. */
static void write_until_killed(int pipe_fd) {
    if (store_world_open(&world) < 0)
        _exit(1);
    for (uint32_t i = 0;; i++) {
        if (world_put(world.rank, i, i % 5 ? 65536 : 200, 1) < 0)
            _exit(2);
        if (i % 16 == 15) {
            world_commit(world.rank);
            if (write(pipe_fd, &i, sizeof(i)) != sizeof(i))
                _exit(3);
        }
    }
}

Test(opening, a_killed_process_loses_nothing_that_was_committed) {
    world.config.size_bytes = 256 << 20;
    for (unsigned round = 0; round < 4; round++) {
        int ends[2];
        world.config.cold_start = COLD_START_CLEAR;
        cr_assert_eq(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0)
            write_until_killed(ends[1]);
        close(ends[1]);
        uint32_t acknowledged = 0;
        for (unsigned i = 0; i < 10 + 17 * round; i++)
            cr_assert_eq(read(ends[0], &acknowledged, sizeof(acknowledged)), sizeof(acknowledged));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(ends[0], &acknowledged, sizeof(acknowledged)) == sizeof(acknowledged))
            continue;
        close(ends[0]);
        world.config.cold_start = COLD_START_LOAD;
        cr_assert_eq(store_world_open(&world), 0);
        for (uint32_t i = 0; i <= acknowledged; i++)
            cr_assert(world_has(world.rank, i, i % 5 ? 65536 : 200, 1), "page %u of %u", i,
                      acknowledged);
        cr_expect_eq(world_verify(world.rank), 0);
        store_world_close(&world);
    }
}
