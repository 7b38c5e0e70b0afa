/* SPDX-License-Identifier: Apache-2.0 */
/* Tags: pages of one model or layout are never loaded under the tag of another (core/tag.h). */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/rank.h"
#include "core/tag.h"
#include "tests/support/files.h"
#include "tests/support/store_world.h"

static struct store_world world;

enum { PAGE = 65536, PAGES = 20 };

static void set_up(void) {
    store_world_init(&world);
    strcpy(world.config.tag, "llama-8b bf16");
    cr_assert_eq(store_world_open(&world), 0);
    for (unsigned i = 0; i < PAGES; i++)
        cr_assert_eq(world_put(world.rank, i, i % 2 ? PAGE : 100, 1), 0);
}

static void tear_down(void) {
    store_world_destroy(&world);
}

TestSuite(tag, .init = set_up, .fini = tear_down, .timeout = 60);

static void reload_as(const char *tag) {
    strcpy(world.config.tag, tag);
    store_world_reopen(&world, COLD_START_LOAD);
}

static unsigned pages_left(void) {
    unsigned left = 0;
    for (unsigned i = 0; i < PAGES; i++)
        left += world_has(world.rank, i, i % 2 ? PAGE : 100, 1);
    return left;
}

static const char *tag_path(void) {
    static char path[160];
    snprintf(path, sizeof path, "%s/rank0/tag", world.path);
    return path;
}

static const char *reason(void) {
    return world.rank->cold_start.empty_because;
}

Test(tag, a_load_under_the_same_tag_brings_everything_back) {
    reload_as("llama-8b bf16");
    cr_expect_eq(pages_left(), PAGES);
    cr_expect_str_empty(reason());
}

Test(tag, a_load_under_another_tag_starts_empty_and_says_why) {
    reload_as("llama-8b fp8");
    cr_expect_eq(pages_left(), 0);
    cr_expect(strstr(reason(), "llama-8b bf16") && strstr(reason(), "llama-8b fp8"), "%s",
              reason());
}

Test(tag, what_was_left_behind_does_not_come_back_under_its_old_tag) {
    reload_as("other");
    reload_as("llama-8b bf16");
    cr_expect_eq(pages_left(), 0);
}

Test(tag, a_load_without_a_tag_is_another_tag) {
    reload_as("");
    cr_expect_eq(pages_left(), 0);
    cr_expect(strstr(reason(), "(none)"), "%s", reason());
    cr_expect_eq(access(tag_path(), F_OK), -1);
    reload_as("");
    cr_expect_str_empty(reason());
}

Test(tag, clear_takes_the_tag_of_the_mount) {
    strcpy(world.config.tag, "new");
    store_world_reopen(&world, COLD_START_CLEAR);
    cr_expect(file_is_text(tag_path(), "cpl3 tag new\n"));
    cr_assert_eq(world_put(world.rank, 1, PAGE, 2), 0);
    reload_as("new");
    cr_expect(world_has(world.rank, 1, PAGE, 2));
}

Test(tag, a_clear_at_run_time_keeps_it) {
    cr_assert_eq(world_clear(world.rank), 0);
    cr_assert_eq(world_put(world.rank, 1, PAGE, 2), 0);
    reload_as("llama-8b bf16");
    cr_expect(world_has(world.rank, 1, PAGE, 2));
}

Test(tag, a_damaged_file_is_another_tag) {
    static const char *const damaged[] = {
        "", "cpl3 tag \n", "cpl3 tag x", "cpl3 tag a\nb\n", "llama-8b bf16\n",
    };
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        cr_assert_eq(file_put_text(tag_path(), damaged[i]), 0);
        reload_as("llama-8b bf16");
        cr_expect_eq(pages_left(), 0);
        cr_expect(strstr(reason(), "(unreadable)"), "%s: %s", damaged[i], reason());
        cr_expect(file_is_text(tag_path(), "cpl3 tag llama-8b bf16\n"), "and is mended");
        for (unsigned page = 0; page < PAGES; page++)
            cr_assert_eq(world_put(world.rank, page, page % 2 ? PAGE : 100, 1), 0);
    }
}

/* Another layout has pages of another size: under the same tag that is a mistake. */
Test(tag, another_tag_may_come_with_other_payload_kinds) {
    store_world_close(&world);
    world.config.kind_count = 1;
    strcpy(world.config.kinds[0].name, "kv");
    world.config.kinds[0].payload_bytes = 100000;
    world.config.kinds[0].slots = 50;
    world.config.cold_start = COLD_START_LOAD;
    char slab[160];
    cr_assert_eq(store_world_open(&world), 0);
    store_world_close(&world);
    snprintf(slab, sizeof slab, "%s/rank0/kv-102400.slab", world.path);
    cr_assert_eq(file_put_text(slab, "a page"), 0);
    world.config.kinds[0].payload_bytes = 200000;
    cr_expect_eq(store_world_open(&world), -EINVAL);
    strcpy(world.config.tag, "llama-8b, pages of 200000 bytes");
    cr_assert_eq(store_world_open(&world), 0);
    cr_expect_eq(pages_left(), 0);
    store_world_close(&world);
    world.config.kind_count = 0;
    strcpy(world.config.tag, "no kinds");
    cr_assert_eq(store_world_open(&world), 0);
}

Test(tag, read_only_refuses_another_tag_and_changes_nothing) {
    store_world_close(&world);
    world.config.read_only = true;
    world.config.cold_start = COLD_START_LOAD;
    strcpy(world.config.tag, "other");
    cr_expect_lt(store_world_open(&world), 0);
    strcpy(world.config.tag, "llama-8b bf16");
    cr_assert_eq(store_world_open(&world), 0);
    cr_expect_eq(pages_left(), PAGES);
}

Test(tag, is_kept_per_rank) {
    store_world_close(&world);
    world.config.rank_first = world.config.rank_last = 1;
    strcpy(world.config.tag, "draft model");
    cr_assert_eq(store_world_open(&world), 0);
    store_world_close(&world);
    world.config.rank_first = world.config.rank_last = 0;
    reload_as("llama-8b bf16");
    cr_expect_eq(pages_left(), PAGES);
}

Test(tag, the_longest_one_is_read_back) {
    char longest[TAG_BYTES_MAX + 1];
    memset(longest, 'x', TAG_BYTES_MAX);
    longest[TAG_BYTES_MAX] = '\0';
    reload_as(longest);
    cr_assert_eq(world_put(world.rank, 1, PAGE, 2), 0);
    reload_as(longest);
    cr_expect(world_has(world.rank, 1, PAGE, 2));
}
