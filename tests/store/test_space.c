/* SPDX-License-Identifier: Apache-2.0 */
/* Disk blocks of a rank's directory, the file system's own for its slabs included. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/files.h"
#include "tests/support/store_world.h"

enum { ROUNDS = 240, PUTS = 40 };

static struct store_world world;

static void set_up(void) {
    store_world_init(&world);
    cr_assert_eq(store_world_open(&world), 0);
}

static void tear_down(void) {
    store_world_destroy(&world);
}

TestSuite(space, .init = set_up, .fini = tear_down, .timeout = 120);

/* Sizes that change all the time: space moves between slabs, which fall into many pieces. */
Test(space, slabs_in_pieces_stay_within_size) {
    static const size_t most[] = {12000, 70000, 24000, 300000, 40000};
    unsigned random = 1;
    uint64_t number = 0, worst = 0;
    char path[128];
    snprintf(path, sizeof path, "%s/rank0", world.path);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < PUTS; i++) {
            size_t bytes = 4097 + (size_t)rand_r(&random) % most[round / 8 % 5];
            cr_assert_eq(world_put(world.rank, number++, bytes, 1), 0);
        }
        world_commit(world.rank);
        uint64_t bytes = directory_disk_bytes(path, NULL);
        worst = bytes > worst ? bytes : worst;
    }
    cr_expect_leq(worst, world.config.size_bytes);
    cr_expect_gt(worst, world.config.size_bytes / 10 * 8, "it was full");
    cr_expect_eq(world_verify(world.rank), 0);
}
