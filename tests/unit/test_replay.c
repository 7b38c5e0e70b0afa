/* SPDX-License-Identifier: Apache-2.0 */
/* Replay on plain directories: hits, puts and touches by hand-counted traces, and damage is seen.
 */
#include "tools/replay.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "tools/commands.h"
#include "tools/mount_stats.h"
#include "tools/page.h"

enum { BLOCK_BYTES = 5000, DIRECTORIES = 2 };

struct world {
    char base[200];
    char trace[220];
    char rank[DIRECTORIES][220];
    char *directories[DIRECTORIES];
    struct replay_options options;
    struct replay_result *result;
};

static void write_text(const char *path, const char *text) {
    AUTO_FCLOSE FILE *file = fopen(path, "we");
    cr_assert(file && fputs(text, file) >= 0);
}

static struct world *open_world(unsigned directory_count, const char *trace) {
    struct world *world = calloc(1, sizeof(*world));
    world->result = calloc(1, sizeof(*world->result));
    const char *tmp = getenv("TMPDIR");
    snprintf(world->base, sizeof(world->base), "%s/cpl3-replay-XXXXXX", tmp ? tmp : "/tmp");
    cr_assert(mkdtemp(world->base));
    snprintf(world->trace, sizeof(world->trace), "%s/trace", world->base);
    write_text(world->trace, trace);
    for (unsigned i = 0; i < DIRECTORIES; i++) {
        snprintf(world->rank[i], sizeof(world->rank[i]), "%s/rank%u", world->base, i);
        cr_assert_eq(mkdir(world->rank[i], 0700), 0);
        world->directories[i] = world->rank[i];
    }
    world->options = (struct replay_options){.trace_path = world->trace,
                                             .directories = world->directories,
                                             .directory_count = directory_count,
                                             .block_bytes = BLOCK_BYTES,
                                             .threads = 1,
                                             .requests_max = UINT64_MAX};
    cr_redirect_stderr();
    return world;
}

static void close_world(struct world *world) {
    AUTO_FREE char *command = NULL;
    cr_assert(asprintf(&command, "rm -rf '%s'", world->base) > 0);
    cr_expect_eq(system(command), 0);
    free(world->result);
    free(world);
}

static const struct replay_counts *replay(struct world *world) {
    memset(world->result, 0, sizeof(*world->result));
    cr_assert_eq(replay_run(&world->options, world->result), 0);
    return &world->result->counts;
}

static const char *block_path(const struct world *world, unsigned directory, uint64_t id) {
    static char path[300];
    char name[PAGE_NAME_BYTES + 1];
    page_make_name(id, name);
    snprintf(path, sizeof(path), "%s/%s", world->rank[directory], name);
    return path;
}

static bool block_exists(const struct world *world, unsigned directory, uint64_t id) {
    return access(block_path(world, directory, id), F_OK) == 0;
}

Test(replay, hits_end_at_the_first_miss_and_the_rest_is_touched_or_written) {
    struct world *world = open_world(1, "{\"timestamp\": 0, \"hash_ids\": [1, 2, 3, 4]}\n"
                                        "{\"timestamp\": 0, \"hash_ids\": [1, 2, 9, 4, 10]}\n"
                                        "{\"timestamp\": 0, \"hash_ids\": [1, 2, 9, 4, 10]}\n");
    const struct replay_counts *counts = replay(world);
    cr_expect_eq(counts->requests, 3);
    cr_expect_eq(counts->blocks, 14);
    cr_expect_eq(counts->hits, 2 + 5);
    cr_expect_eq(counts->puts, 4 + 2);
    cr_expect_eq(counts->touches, 1);
    cr_expect_eq(counts->bytes_read, 7 * BLOCK_BYTES);
    cr_expect_eq(counts->bytes_written, 6 * BLOCK_BYTES);
    cr_expect_eq(counts->wrong_bytes, 0);
    cr_expect_eq(counts->errors, 0);
    cr_expect_eq(world->result->get.count, 7);
    cr_expect_eq(world->result->put.count, 6);
    cr_expect_not(world->result->evictions_known);
    close_world(world);
}

Test(replay, a_touch_moves_the_access_time_only) {
    struct world *world = open_world(1, "{\"timestamp\": 0, \"hash_ids\": [1, 2]}\n");
    replay(world);
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    cr_assert_eq(utimensat(AT_FDCWD, block_path(world, 0, 2), old, 0), 0);
    cr_assert_eq(unlink(block_path(world, 0, 1)), 0);
    cr_expect_eq(replay(world)->touches, 1);
    struct stat st;
    cr_assert_eq(stat(block_path(world, 0, 2), &st), 0);
    cr_expect_gt(st.st_atim.tv_sec, 2000);
    cr_expect_eq(st.st_mtim.tv_sec, 2000);
    close_world(world);
}

Test(replay, block_i_belongs_to_directory_i_mod_their_number) {
    struct world *world = open_world(2, "{\"timestamp\": 0, \"hash_ids\": [1, 2, 3]}\n");
    replay(world);
    cr_expect(block_exists(world, 0, 1) && block_exists(world, 0, 3));
    cr_expect(block_exists(world, 1, 2));
    cr_expect_not(block_exists(world, 0, 2) || block_exists(world, 1, 1));
    close_world(world);
}

Test(replay, wrong_missing_and_surplus_bytes_are_counted) {
    struct world *world = open_world(1, "{\"timestamp\": 0, \"hash_ids\": [1, 2, 3]}\n");
    replay(world);
    AUTO_CLOSE int fd = open(block_path(world, 0, 1), O_RDWR | O_CLOEXEC);
    char byte;
    cr_assert_eq(pread(fd, &byte, 1, 4321), 1);
    byte = (char)~byte;
    cr_assert_eq(pwrite(fd, &byte, 1, 4321), 1);
    cr_assert_eq(truncate(block_path(world, 0, 2), BLOCK_BYTES - 10), 0);
    cr_assert_eq(truncate(block_path(world, 0, 3), BLOCK_BYTES + 100), 0);
    const struct replay_counts *counts = replay(world);
    cr_expect_eq(counts->hits, 3);
    cr_expect_eq(counts->wrong_bytes, 1 + 10 + 100);
    close_world(world);
}

Test(replay, several_threads_replay_every_request_once) {
    char trace[200 * 60];
    size_t used = 0;
    for (unsigned i = 0; i < 200; i++)
        used += (size_t)snprintf(trace + used, sizeof(trace) - used,
                                 "{\"timestamp\": 0, \"hash_ids\": [%u, %u]}\n", 2 * i, 2 * i + 1);
    struct world *world = open_world(1, trace);
    world->options.threads = 4;
    const struct replay_counts *counts = replay(world);
    cr_expect_eq(counts->requests, 200);
    cr_expect_eq(counts->puts, 400);
    counts = replay(world);
    cr_expect_eq(counts->hits, 400);
    cr_expect_eq(counts->wrong_bytes, 0);
    cr_expect_eq(world->result->get.count, 400);
    close_world(world);
}

Test(replay, the_limit_counts_requests) {
    struct world *world = open_world(1, "{\"timestamp\": 0, \"hash_ids\": [1]}\n"
                                        "{\"timestamp\": 0, \"hash_ids\": [2]}\n"
                                        "{\"timestamp\": 0, \"hash_ids\": [3]}\n");
    world->options.requests_max = 2;
    cr_expect_eq(replay(world)->requests, 2);
    cr_expect_not(block_exists(world, 0, 3));
    close_world(world);
}

Test(replay, speed_keeps_the_distance_of_the_timestamps) {
    struct world *world = open_world(1, "{\"timestamp\": 5000, \"hash_ids\": [1]}\n"
                                        "{\"timestamp\": 5200, \"hash_ids\": [2]}\n");
    world->options.speed = 2;
    replay(world);
    cr_expect_geq(world->result->elapsed_ns, 100 * 1000 * 1000);
    close_world(world);
}

Test(replay, acknowledged_names_are_appended_a_line_each) {
    struct world *world = open_world(1, "{\"timestamp\": 0, \"hash_ids\": [1, 2]}\n");
    char path[300];
    snprintf(path, sizeof(path), "%s/acknowledged", world->base);
    write_text(path, "earlier\n");
    world->options.acknowledged_path = path;
    world->options.fsync = true;
    replay(world);
    char name[2][PAGE_NAME_BYTES + 1], expected[100], found[100] = "";
    page_make_name(1, name[0]);
    page_make_name(2, name[1]);
    snprintf(expected, sizeof(expected), "earlier\n%s\n%s\n", name[0], name[1]);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert(read(fd, found, sizeof(found) - 1) > 0);
    cr_expect_str_eq(found, expected);
    close_world(world);
}

Test(replay, a_bad_line_is_an_error_after_what_came_before) {
    struct world *world = open_world(1, "{\"timestamp\": 0, \"hash_ids\": [1]}\nnonsense\n");
    const struct replay_counts *counts = replay(world);
    cr_expect_eq(counts->puts, 1);
    cr_expect_eq(counts->errors, 1);
    close_world(world);
}

Test(replay, a_missing_directory_or_trace_is_refused) {
    struct world *world = open_world(1, "");
    cr_assert_eq(rmdir(world->rank[0]), 0);
    cr_expect_eq(replay_run(&world->options, world->result), -ENOENT);
    world->options.trace_path = "/nowhere/trace";
    cr_expect_eq(replay_run(&world->options, world->result), -ENOENT);
    close_world(world);
}

Test(replay, evictions_are_the_growth_of_the_ranks_counters) {
    struct world *world = open_world(2, "");
    char path[300];
    snprintf(path, sizeof(path), "%s/.cpl3", world->base);
    cr_assert_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/.cpl3/stats", world->base);
    write_text(path, "rank0.hits 1\nrank0.evictions 5\nrank0.evictions_more 7\n"
                     "rank1.evictions 30\nrank10.evictions 900\n");
    uint64_t evictions;
    cr_expect_eq(mount_stats_read(world->rank[0], "evictions", &evictions), 0);
    cr_expect_eq(evictions, 5);
    cr_expect_eq(mount_stats_read(world->rank[1], "evictions", &evictions), 0);
    cr_expect_eq(evictions, 30);
    cr_expect_eq(mount_stats_read(world->rank[1], "hits", &evictions), -ENOENT);
    replay(world);
    cr_expect(world->result->evictions_known);
    cr_expect_eq(world->result->evictions, 0);
    close_world(world);
}

static int verify(const struct world *world) {
    char *argv[] = {"verify", world->directories[0], NULL};
    cr_redirect_stdout();
    return command_verify(2, argv);
}

Test(replay, verify_accepts_its_pages_and_sees_one_that_was_cut) {
    struct world *world = open_world(1, "{\"timestamp\": 0, \"hash_ids\": [1, 2, 3]}\n");
    replay(world);
    cr_expect_eq(verify(world), EXIT_GOOD);
    cr_assert_eq(truncate(block_path(world, 0, 2), BLOCK_BYTES - 1), 0);
    cr_expect_eq(verify(world), EXIT_BAD);
    cr_assert_eq(unlink(block_path(world, 0, 2)), 0);
    cr_expect_eq(verify(world), EXIT_GOOD, "an evicted page is not an error");
    close_world(world);
}

Test(replay, verify_sees_an_empty_page) {
    struct world *world = open_world(1, "{\"timestamp\": 0, \"hash_ids\": [1]}\n");
    replay(world);
    cr_assert_eq(truncate(block_path(world, 0, 1), 0), 0);
    cr_expect_eq(verify(world), EXIT_BAD);
    close_world(world);
}

Test(replay, verify_misses_an_acknowledged_name) {
    struct world *world = open_world(1, "{\"timestamp\": 0, \"hash_ids\": [1, 2]}\n");
    char path[300];
    snprintf(path, sizeof(path), "%s/acknowledged", world->base);
    world->options.acknowledged_path = path;
    world->options.fsync = true;
    replay(world);
    char *argv[] = {"verify", "--acknowledged", path, world->directories[0], NULL};
    cr_redirect_stdout();
    cr_expect_eq(command_verify(4, argv), EXIT_GOOD);
    cr_assert_eq(unlink(block_path(world, 0, 2)), 0);
    cr_expect_eq(command_verify(4, argv), EXIT_BAD);
    close_world(world);
}
