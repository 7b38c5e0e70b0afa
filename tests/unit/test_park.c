/* SPDX-License-Identifier: Apache-2.0 */
/* What waiting WRITEs may keep, and who may grow into the reserve of the staging share. */
#include "fs/park.h"

#include <criterion/criterion.h>
#include <stdatomic.h>

#include "core/clock.h"
#include "fs/state.h"
#include "tests/support/store_world.h"

Test(park, payload_of_waiting_writes_is_bounded) {
    struct park park = {0};
    cr_assert(park_take_payload(&park, PARKED_PAYLOAD_BYTES_MAX - 10));
    cr_assert(!park_take_payload(&park, 11));
    cr_assert(park_take_payload(&park, 10), "a refusal takes nothing");
    cr_assert(!park_take_payload(&park, 1));
    park_give_payload(&park, 5);
    cr_assert(park_take_payload(&park, 5));
}

/* the reserve */

static struct store_world world;
static struct fs fs;
static uint64_t beyond_half;

static void open_store(void) {
    store_world_init(&world);
    cr_assert_eq(store_world_open(&world), 0);
    fs = (struct fs){.store = world.store, .config = store_config(world.store)};
    cr_assert_eq(park_init(&fs.park), 0);
    beyond_half = buffer_pool_share_bytes(store_buffers(fs.store), BUFFER_STAGING) / 2 + 1;
}
static void close_store(void) {
    park_destroy(&fs.park);
    store_world_destroy(&world);
}
TestSuite(park_reserve, .init = open_store, .fini = close_store, .timeout = 60);

Test(park_reserve, is_for_one_file_until_that_is_published) {
    struct handle first = {.fs = &fs}, second = {.fs = &fs};
    cr_expect(park_may_grow(&fs, &first, beyond_half, 1));
    cr_expect_not(park_may_grow(&fs, &second, beyond_half, 2));
    cr_expect(park_may_grow(&fs, &first, beyond_half, 1));
    park_end_growing(&fs, &first);
    cr_expect(park_may_grow(&fs, &second, beyond_half, 2));
    cr_expect_not(park_may_grow(&fs, &first, beyond_half, 1));
}

Test(park_reserve, goes_to_another_file_of_the_same_thread_at_once) {
    struct handle first = {.fs = &fs}, second = {.fs = &fs}, third = {.fs = &fs};
    cr_expect(park_may_grow(&fs, &first, beyond_half, 1));
    cr_expect(park_may_grow(&fs, &second, beyond_half, 1));
    cr_expect_not(park_may_grow(&fs, &first, beyond_half, 2), "another one's thread");
    cr_expect_not(park_may_grow(&fs, &third, beyond_half, 0), "one that is not known");
    cr_expect(park_may_grow(&fs, &third, beyond_half, 1));
}

static struct handle racers[2];
static _Atomic uint64_t refused;
static _Atomic bool lost;

static void *ask_for_more(void *argument) {
    unsigned number = *(unsigned *)argument;
    uint64_t end_ns = clock_monotonic_ns() + 300000000;
    while (clock_monotonic_ns() < end_ns && !lost) {
        bool may = park_may_grow(&fs, &racers[number], beyond_half, (pid_t)number + 1);
        if (may != (number == 0))
            lost = true;
        if (!may)
            refused++;
    }
    return NULL;
}

Test(park_reserve, stays_with_a_file_that_grows_while_others_ask) {
    pthread_t threads[2];
    unsigned numbers[2] = {0, 1};
    racers[0].fs = racers[1].fs = &fs;
    cr_assert(park_may_grow(&fs, &racers[0], beyond_half, 1));
    for (unsigned i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, ask_for_more, &numbers[i]);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    cr_expect_not(lost, "after %lu refusals", refused);
    cr_expect_gt(refused, 0);
}
