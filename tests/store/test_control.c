/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of .cpl3/control on a store of two ranks, without a mount: who is touched, who is woken.
 */
#include "fs/control.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/store_world.h"

static struct store_world world;

static void open_two_ranks(void) {
    store_world_init(&world);
    world.config.rank_first = 3;
    world.config.rank_last = 4;
    cr_assert_eq(store_world_open(&world), 0);
}
static void destroy(void) {
    store_world_destroy(&world);
}
TestSuite(control, .init = open_two_ranks, .fini = destroy, .timeout = 60);

/* The answer, waited for. */
static int run(const char *command, size_t bytes) {
    struct blocking_waiter waiter;
    blocking_waiter_init(&waiter);
    int answered = control_write(world.store, command, bytes, &waiter.waiter);
    return blocking_waiter_result(&waiter, answered);
}

static int run_text(const char *command) {
    return run(command, strlen(command));
}

static bool has(uint16_t rank) {
    return world_has(store_rank(world.store, rank), 1, 5000, 1);
}

static void put_in_both(void) {
    for (uint16_t rank = 3; rank <= 4; rank++)
        cr_assert_eq(world_put(store_rank(world.store, rank), 1, 5000, 1), 0);
}

Test(control, clear_with_a_rank_touches_that_rank_only) {
    put_in_both();
    cr_assert_eq(run_text("clear 4\n"), 0);
    cr_expect(has(3) && !has(4));
}

Test(control, clear_without_a_rank_answers_when_all_ranks_are_empty) {
    put_in_both();
    cr_assert_eq(run_text("clear"), 0);
    cr_expect(!has(3) && !has(4));
    cr_expect_eq(world.cleared_events, 2);
}

Test(control, commit_leaves_nothing_pending_in_any_rank) {
    put_in_both();
    cr_assert_eq(run_text("commit\n"), 0);
    for (uint16_t rank = 3; rank <= 4; rank++) {
        struct rank_usage usage;
        rank_get_usage(store_rank(world.store, rank), &usage);
        cr_expect_eq(usage.pending_bytes, 0);
    }
    cr_expect_eq(run_text("commit"), 0, "with nothing to commit");
    cr_expect(has(3) && has(4));
}

Test(control, what_is_not_a_command_is_refused_and_does_nothing) {
    static const char *const wrong[] = {
        "",         "\n",       "clear\n\n", "clear ", "clear x",  "clear 3 4",
        "clear 3x", "clear -3", "clear all", "Clear",  "commit 3", "clear 99999",
    };
    put_in_both();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cr_expect_eq(run_text(wrong[i]), -EINVAL, "\"%s\"", wrong[i]);
    cr_expect_eq(run("clear\0", 6), -EINVAL);
    char long_text[CONTROL_COMMAND_BYTES_MAX + 1];
    memset(long_text, ' ', sizeof long_text);
    memcpy(long_text, "clear", 5);
    cr_expect_eq(run(long_text, sizeof long_text), -EINVAL);
    cr_expect_eq(run_text("clear 2"), -ENOENT);
    cr_expect_eq(run_text("clear 1023"), -ENOENT);
    cr_expect(has(3) && has(4));
}

Test(control, the_files_are_whole_texts_and_control_cannot_be_read) {
    static const struct fs_options mount_options = {.threads = 3, .umask_bits = 077};
    unsigned readable = 0;
    for (unsigned i = 0; i < control_count(); i++) {
        char *text = NULL;
        size_t bytes = 0;
        int error = control_read_all(world.store, &mount_options, i, &text, &bytes);
        if (strcmp(control_name(i), "control") == 0) {
            cr_expect(error == -EACCES && control_mode(i) == 0200);
            continue;
        }
        cr_assert(error == 0 && control_mode(i) == 0444);
        cr_expect(bytes > 0 && text[bytes - 1] == '\n', "%s", control_name(i));
        free(text);
        readable++;
    }
    cr_expect_eq(readable, 3);
}
