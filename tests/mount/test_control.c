/* SPDX-License-Identifier: Apache-2.0 */
/* The files of .cpl3/ and the root of the mount, where nothing can be made. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 8, .ranks = "0-1", .size = "64M"});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(control, .init = open_mount, .fini = close_mount, .timeout = 60);

static const char *control_path(const char *name) {
    return mount_path(&mount, "../.cpl3/%s", name);
}

static char *read_control(const char *name) {
    char *text = file_read(control_path(name), NULL);
    cr_assert(text, "%s: %s", name, strerror(errno));
    return text;
}

Test(control, the_root_holds_the_ranks_and_the_control_directory) {
    cr_expect_eq(directory_count(mount.point), 3);
    cr_expect_eq(directory_count_name(mount.point, "rank0"), 1);
    cr_expect_eq(directory_count_name(mount.point, "rank1"), 1);
    cr_expect_eq(directory_count_name(mount.point, ".cpl3"), 1);
    cr_expect_eq(directory_count(mount_path(&mount, "../.cpl3")), 4);
    struct stat st;
    cr_expect(stat(control_path("control"), &st) == 0 && (st.st_mode & 07777) == 0200);
    cr_expect(stat(mount.point, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0077) == 0,
              "the cache is private");
}

Test(control, other_users_are_kept_out) {
    if (geteuid() != 0)
        cr_skip_test("trying as another user needs root");
    cr_assert_eq(file_put(mount_path(&mount, "f"), 100000, 1), 0);
    mount_commit(&mount);
    cr_assert_eq(run_shell(20, NULL,
                           "umask 0; chmod 755 '%s'; cd '%s'; test -z \"$(find store "
                           "-perm /077)\"",
                           mount.base, mount.base),
                 0);
    AUTO_FREE char *output = NULL;
    cr_expect_neq(run_shell(20, &output,
                            "exec setpriv --reuid=65534 --regid=65534 --clear-groups "
                            "ls '%s'",
                            mount.point),
                  0, "%s", output);
    cr_expect(strstr(output, "Permission denied"), "%s", output);
}

Test(control, nothing_can_be_made_or_removed_at_the_root) {
    const char *at_root = mount_path(&mount, "../file");
    cr_expect_eq(file_open_result(at_root, O_CREAT | O_WRONLY), -EPERM);
    cr_expect(mkdir(at_root, 0700) != 0 && errno == EPERM, "%s", strerror(errno));
    cr_expect(rmdir(mount.rank) != 0 && errno == EPERM, "%s", strerror(errno));
    cr_expect(rmdir(mount_path(&mount, "../.cpl3")) != 0 && errno == EPERM);
    cr_expect(rename(mount.rank, at_root) != 0 && errno == EPERM, "%s", strerror(errno));
    cr_assert_eq(file_put(mount_path(&mount, "f"), 100, 1), 0);
    cr_expect(rename(mount_path(&mount, "f"), at_root) != 0 && (errno == EPERM || errno == EXDEV),
              "%s", strerror(errno));
    cr_expect_eq(file_open_result(control_path("file"), O_CREAT | O_WRONLY), -EPERM);
    cr_expect(unlink(control_path("stats")) != 0 && errno == EPERM, "%s", strerror(errno));
    cr_expect_eq(directory_count(mount.point), 3);
    cr_expect_eq(file_check(mount_path(&mount, "f"), 100, 1), 0);
}

Test(control, stats_are_names_and_numbers_that_follow_what_is_done) {
    uint64_t publishes = mount_counter(&mount, "rank0.publishes");
    uint64_t hits = mount_counter(&mount, "rank0.hits");
    uint64_t misses = mount_counter(&mount, "rank0.misses");
    cr_assert_eq(file_put(mount_path(&mount, "f"), 9000, 1), 0);
    cr_expect_eq(mount_counter(&mount, "rank0.publishes"), publishes + 1);
    cr_assert_eq(file_check(mount_path(&mount, "f"), 9000, 1), 0);
    cr_expect_eq(mount_counter(&mount, "rank0.hits"), hits + 1);
    cr_expect_eq(file_open_result(mount_path(&mount, "absent"), O_RDONLY), -ENOENT);
    cr_expect_gt(mount_counter(&mount, "rank0.misses"), misses);
    cr_expect_eq(mount_counter(&mount, "rank1.publishes"), 0);
    AUTO_FREE char *text = read_control("stats");
    int lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        char key[128], value[128];
        int fields = sscanf(line, "%127s %127s", key, value);
        cr_expect_eq(fields, 2, "stats: %s", line);
    }
    cr_expect_gt(lines, 50);
}

static void check_metric_line(const char *line) {
    char name[256], rest[256];
    double value;
    if (sscanf(line, "# HELP %255s %255s", name, rest) == 2)
        return;
    if (sscanf(line, "# TYPE %255s %255s", name, rest) == 2) {
        cr_expect(!strcmp(rest, "counter") || !strcmp(rest, "gauge"), "metrics: %s", line);
        return;
    }
    const char *space = strrchr(line, ' ');
    cr_expect(space && strncmp(line, "cpl3_", 5) == 0, "metrics: %s", line);
    cr_expect(space && sscanf(space, "%lf", &value) == 1, "metrics: %s", line);
}

Test(control, metrics_are_in_the_text_format_of_prometheus) {
    AUTO_FREE char *text = read_control("metrics");
    cr_expect(strstr(text, "rank=\"0\"") && strstr(text, "rank=\"1\""));
    cr_expect(strstr(text, "# TYPE ") && strstr(text, "# HELP "));
    cr_expect_eq(text[strlen(text) - 1], '\n');
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        check_metric_line(line);
}

Test(control, config_tells_what_is_in_force) {
    AUTO_FREE char *text = read_control("config");
    cr_expect(strstr(text, "rank=0-1"), "%s", text);
    cr_expect(strstr(text, "size="), "%s", text);
    cr_expect(strstr(text, "cold_start=clear"), "%s", text);
    cr_expect(strstr(text, mount.store), "%s", text);
    cr_expect(strstr(text, "\nthreads=8\ndf=used\numask=0077\nallow_other=0\n"), "%s", text);
    cr_expect_null(strstr(text, "\nuid="), "the creator owns a file: %s", text);
}

Test(control, reading_files_cannot_be_written_and_control_cannot_be_read) {
    cr_expect_neq(file_open_result(control_path("stats"), O_WRONLY), 0);
    cr_expect_neq(file_open_result(control_path("stats"), O_RDWR | O_TRUNC), 0);
    int result = file_open_result(control_path("control"), O_RDONLY);
    cr_expect(result == -EACCES || result == -EPERM, "%s", strerror(-result));
}

Test(control, unknown_commands_are_refused) {
    cr_expect_eq(mount_control(&mount, "nonsense"), -EINVAL);
    cr_expect_eq(mount_control(&mount, "clear 0 1"), -EINVAL);
    cr_expect_eq(mount_control(&mount, "clear x"), -EINVAL);
    cr_expect_eq(mount_control(&mount, "clear 7"), -ENOENT);
    char long_text[5000];
    memset(long_text, 'c', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    cr_expect_eq(mount_control(&mount, long_text), -EINVAL);
    cr_expect_eq(run_shell(20, NULL, "echo commit > '%s'", control_path("control")), 0);
}

Test(control, clear_empties_one_rank_or_all_and_keeps_directories) {
    const char *const places[] = {"f", "00112233445566778899aabbccddeeff", "d/f", "../rank1/f"};
    mkdir(mount_path(&mount, "d"), 0700);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(file_put(mount_path(&mount, "%s", places[i]), 9000, 1), 0);
    mount_commit(&mount);
    cr_assert_eq(mount_control(&mount, "clear 0\n"), 0);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(file_open_result(mount_path(&mount, "%s", places[i]), O_RDONLY), -ENOENT);
    cr_expect_eq(directory_count(mount.rank), 1, "d");
    cr_expect_eq(file_check(mount_path(&mount, "../rank1/f"), 9000, 1), 0);
    cr_assert_eq(mount_control(&mount, "clear"), 0);
    cr_expect_eq(file_size(mount_path(&mount, "../rank1/f")), -ENOENT);
    cr_assert_eq(file_put(mount_path(&mount, "d/f"), 9000, 2), 0);
    cr_expect_eq(file_check(mount_path(&mount, "d/f"), 9000, 2), 0);
}

Test(control, what_clear_forgot_is_gone_for_who_had_seen_it) {
    for (unsigned i = 0; i < 100; i++) {
        cr_assert_eq(file_put(mount_path(&mount, i % 2 ? "f-%u" : "%016x", i), 9000, i), 0);
        cr_assert_eq(file_size(mount_path(&mount, i % 2 ? "f-%u" : "%016x", i)), 9000);
    }
    cr_assert_eq(mount_control(&mount, "clear"), 0);
    /* At once, though the kernel would not ask by itself: clients skip the write of what exists. */
    for (unsigned i = 0; i < 100; i++)
        cr_expect_eq(file_size(mount_path(&mount, i % 2 ? "f-%u" : "%016x", i)), -ENOENT);
}

static int read_and_write_until_killed(void *argument) {
    uintptr_t me = (uintptr_t)argument;
    for (unsigned i = 0;; i++) {
        unsigned file = i % 50;
        const char *path = mount_path(&mount, file % 2 ? "f-%u" : "%016x", file);
        int result = me == 0 ? file_put(path, 9000, file) : file_check(path, 9000, file);
        if (result != 0 && (me == 0 || result != -ENOENT))
            return complain("process %lu: %s: %s", me, path, strerror(-result));
    }
}

Test(control, clear_under_readers_and_a_writer_gives_ENOENT_and_nothing_else) {
    pid_t children[8];
    for (uintptr_t i = 0; i < 8; i++)
        children[i] = child_start(read_and_write_until_killed, (void *)i);
    uint64_t end = clock_monotonic_ns() + (uint64_t)(heavy_seconds() * 0.5e9);
    int rounds = 0;
    for (; rounds < 5 || clock_monotonic_ns() < end; rounds++)
        cr_assert_eq(mount_control(&mount, "clear 0"), 0);
    for (int i = 0; i < 8; i++) {
        kill(children[i], SIGTERM);
        cr_expect_eq(child_wait(children[i], 20), SIGTERM, "process %d saw something wrong", i);
    }
    mount_wait_released(&mount);
    cr_assert_eq(mount_control(&mount, "clear 0"), 0);
    cr_expect_eq(directory_count(mount.rank), 0);
    cr_expect_geq(mount_counter(&mount, "rank0.clears"), (uint64_t)rounds);
}

Test(control, no_byte_from_before_a_clear_comes_back_with_a_load) {
    for (unsigned i = 0; i < 40; i++)
        cr_assert_eq(file_put(mount_path(&mount, i % 2 ? "f-%u" : "%016x", i), 100000, i), 0);
    mount_commit(&mount);
    cr_assert_eq(mount_control(&mount, "clear"), 0);
    mount_kill(&mount);
    mount_start(&mount, "cold_start=load");
    cr_expect_eq(directory_count(mount.rank), 0);
    for (unsigned i = 0; i < 40; i++)
        cr_expect_eq(file_open_result(mount_path(&mount, i % 2 ? "f-%u" : "%016x", i), O_RDONLY),
                     -ENOENT);
}

Test(control, config_tells_tag_and_commit_time) {
    mount_stop(&mount);
    mount_start(&mount, "tag=llama 8b,commit=2.5");
    AUTO_FREE char *text = read_control("config");
    cr_expect(strstr(text, "\ntag=llama 8b\n") && strstr(text, "\ncommit=2.5\n"), "%s", text);
}
