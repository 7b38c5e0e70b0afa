/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever waits until something is durable is answered, however late the wait begins. */
#include <criterion/criterion.h>
#include <errno.h>

#include "core/rank.h"
#include "core/writer.h"
#include "tests/support/store_world.h"

enum { BYTES = 5000 };

static struct store_world world;

static void open_world(void) {
    store_world_init(&world);
    cr_assert_eq(store_world_open(&world), 0);
}
static void destroy(void) {
    store_world_destroy(&world);
}
TestSuite(commit, .init = open_world, .fini = destroy, .timeout = 60);

Test(commit, a_wait_that_begins_when_all_is_durable_already_is_answered) {
    cr_assert_eq(world_put(world.rank, 1, BYTES, 1), 0);
    world_commit(world.rank);
    uint64_t durable = writer_durable_change(world.rank->writer);
    cr_assert_eq(durable, world.rank->last_asked);
    struct blocking_waiter waiter;
    blocking_waiter_init(&waiter);
    writer_wait_commit(world.rank->writer, &waiter.waiter, durable);
    cr_expect_eq(blocking_waiter_result(&waiter, -EINPROGRESS), 0);
}

Test(commit, a_read_only_store_that_dropped_a_blob_answers_too) {
    cr_assert_eq(world_put(world.rank, 1, BYTES, 1), 0);
    store_world_close(&world);
    world.config.read_only = true;
    world.config.cold_start = COLD_START_LOAD;
    cr_assert_eq(store_world_open(&world), 0);
    struct blob_key key = hash_key(0, 1);
    struct blob_record record;
    cr_assert_eq(rank_get_blob(world.rank, &key, &record), 0);
    cr_assert(rank_drop_blob(world.rank, &key, record.sequence));
    world_commit(world.rank);
    cr_expect(!world_has(world.rank, 1, BYTES, 1));
    world_commit(world.rank);
}
