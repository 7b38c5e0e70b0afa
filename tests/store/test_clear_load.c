/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime clear while other changes come without a pause. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/rank.h"
#include "tests/support/store_world.h"

static struct store_world world;
static _Atomic bool stop;
static _Atomic unsigned commits;

enum { MAKERS = 4 };

static void set_up(void) {
    store_world_init(&world);
    cr_assert_eq(store_world_open(&world), 0);
}

static void tear_down(void) {
    store_world_destroy(&world);
}

TestSuite(clear_load, .init = set_up, .fini = tear_down, .timeout = 60);

static void *make_and_remove_directories(void *argument) {
    uint64_t root = directory_root(0), directory;
    struct name_entry made = {.mode = 0755};
    while (!atomic_load(&stop)) {
        for (unsigned i = 0; i < 32; i++) {
            cr_assert_eq(rank_make_directory(world.rank, root, argument, 1, &made, &directory), 0);
            cr_assert_eq(rank_remove_directory(world.rank, root, argument, 1), 0);
        }
        atomic_fetch_add(&commits, 1);
        world_commit(world.rank);
    }
    return NULL;
}

static void *rename_forth_and_back(void *argument) {
    uint64_t root = directory_root(0);
    struct rank_rename forth = {root, root, argument, "there", 4, 5, .remove_hash = false};
    struct rank_rename back = {root, root, "there", argument, 5, 4, .remove_hash = false};
    while (!atomic_load(&stop)) {
        for (unsigned i = 0; i < 32; i++) {
            rank_rename_name(world.rank, &forth);
            rank_rename_name(world.rank, &back);
        }
        world_commit(world.rank);
    }
    return NULL;
}

/* Each change that is committed leaves a newer one behind: none of them may be waited for. */
Test(clear_load, it_ends_though_other_changes_never_do) {
    pthread_t makers[MAKERS];
    const char *names[MAKERS] = {"a", "b", "c", "d"};
    for (unsigned i = 0; i < MAKERS; i++)
        pthread_create(&makers[i], NULL, make_and_remove_directories, (void *)names[i]);
    for (unsigned round = 0; round < 20; round++) {
        unsigned before = atomic_load(&commits);
        cr_assert_eq(world_put(world.rank, round, 65536, 1), 0);
        cr_assert_eq(world_clear(world.rank), 0);
        cr_expect_not(world_has(world.rank, round, 65536, 1));
        cr_expect_lt(atomic_load(&commits) - before, 50, "round %u", round);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < MAKERS; i++)
        pthread_join(makers[i], NULL);
    world_commit(world.rank);
    cr_expect_eq(world_verify(world.rank), 0);
}

/* A rename that is under way when the epoch changes must not bring its name back. */
Test(clear_load, no_name_of_before_outlives_it) {
    uint64_t root = directory_root(0);
    struct blob_key key;
    struct name_entry entry;
    pthread_t renamer;
    pthread_create(&renamer, NULL, rename_forth_and_back, "here");
    for (unsigned round = 0; round < 50; round++) {
        rank_unlink_name(world.rank, root, "there", 5);
        cr_assert_eq(world_put_named(world.rank, root, "here", round, 9000, 1, &key), 0);
        cr_assert_eq(world_clear(world.rank), 0);
        cr_expect_eq(rank_get_name(world.rank, root, "here", 4, &entry), -ENOENT);
        cr_expect_eq(rank_get_name(world.rank, root, "there", 5, &entry), -ENOENT);
    }
    atomic_store(&stop, true);
    pthread_join(renamer, NULL);
    world_commit(world.rank);
    cr_expect_eq(rank_get_name(world.rank, root, "here", 4, &entry), -ENOENT);
    cr_expect_eq(rank_get_name(world.rank, root, "there", 5, &entry), -ENOENT);
    cr_expect_eq(world_verify(world.rank), 0);
}
