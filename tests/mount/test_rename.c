/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename moves the file (P9): its published version and whoever writes it, between hash names,
 * named files and directories; what the target held is unlinked.
 */
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

#define HASH_A "00112233445566778899aabbccddeeff"
#define HASH_B "ffeeddccbbaa99887766554433221100"

enum { OLD = 1, NEW = 2, BYTES = 100000 };

/* From, to: of every kind. */
static const char *const pairs[][2] = {
    {"from.bin", "to.bin"},
    {"from.bin", HASH_B},
    {HASH_A, "to.bin"},
    {HASH_A, HASH_B},
};
enum { PAIRS = sizeof pairs / sizeof pairs[0] };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(rename, .init = open_mount, .fini = close_mount, .timeout = 60);

struct paths {
    const char *from, *to;
};

/* The pair's paths, in an empty directory. */
static struct paths pair_of(int i) {
    for (int k = 0; k < PAIRS; k++) {
        unlink(mount_path(&mount, "%s", pairs[k][0]));
        unlink(mount_path(&mount, "%s", pairs[k][1]));
    }
    return (struct paths){mount_path(&mount, "%s", pairs[i][0]),
                          mount_path(&mount, "%s", pairs[i][1])};
}

static int open_new(const char *path) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    return fd;
}

static void write_all(int fd, size_t bytes, uint64_t seed) {
    AUTO_FREE char *buffer = malloc(bytes);
    fill_pattern(buffer, bytes, seed, 0);
    cr_assert_eq(write(fd, buffer, bytes), (ssize_t)bytes, "%s", strerror(errno));
}

static void expect_only(const struct paths *p, size_t bytes, uint64_t seed) {
    cr_expect_eq(file_check(p->to, bytes, seed), 0, "%s -> %s", p->from, p->to);
    cr_expect_eq(file_size(p->from), -ENOENT, "%s", p->from);
    cr_expect_eq(file_open_result(p->from, O_RDONLY), -ENOENT, "%s", p->from);
    cr_expect_eq(directory_count(mount.rank), 1);
    cr_expect_eq(directory_count_name(mount.rank, strrchr(p->to, '/') + 1), 1);
}

Test(rename, moves_a_published_file) {
    for (int i = 0; i < PAIRS; i++) {
        struct paths p = pair_of(i);
        cr_assert_eq(file_put(p.from, BYTES, NEW), 0);
        cr_expect_eq(rename(p.from, p.to), 0, "%s", strerror(errno));
        expect_only(&p, BYTES, NEW);
    }
}

Test(rename, replaces_what_the_target_held) {
    for (int i = 0; i < PAIRS; i++) {
        struct paths p = pair_of(i);
        cr_assert_eq(file_put(p.to, 300000, OLD), 0);
        cr_assert_eq(file_put(p.from, BYTES, NEW), 0);
        AUTO_CLOSE int reader = open(p.to, O_RDONLY | O_CLOEXEC);
        cr_expect_eq(rename(p.from, p.to), 0, "%s", strerror(errno));
        expect_only(&p, BYTES, NEW);
        cr_expect_eq(file_check_fd(reader, 300000, OLD), 0, "its reader keeps it");
    }
}

Test(rename, a_moved_file_is_found_again_after_a_load) {
    struct paths p = pair_of(1);
    cr_assert_eq(file_put(p.to, 300000, OLD), 0);
    cr_assert_eq(file_put(p.from, BYTES, NEW), 0);
    cr_assert_eq(rename(p.from, p.to), 0);
    cr_assert_eq(file_put(mount_path(&mount, HASH_A), BYTES, 3), 0);
    cr_assert_eq(rename(mount_path(&mount, HASH_A), mount_path(&mount, "moved")), 0);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    cr_expect_eq(file_check(p.to, BYTES, NEW), 0);
    cr_expect_eq(file_check(mount_path(&mount, "moved"), BYTES, 3), 0);
    cr_expect_eq(directory_count(mount.rank), 2);
}

Test(rename, before_close_publishes_under_the_final_name) {
    for (int i = 0; i < PAIRS; i++) {
        struct paths p = pair_of(i);
        int fd = open_new(p.from);
        write_all(fd, BYTES, NEW);
        cr_expect_eq(rename(p.from, p.to), 0, "%s", strerror(errno));
        cr_expect_eq(file_open_result(p.to, O_RDONLY), -ENOENT, "not before it is closed");
        cr_expect_eq(file_size(p.to), BYTES, "but its writer can stat it there");
        cr_expect_eq(file_size(p.from), -ENOENT);
        cr_expect_eq(close(fd), 0);
        expect_only(&p, BYTES, NEW);
    }
}

Test(rename, before_close_serves_the_targets_old_version_until_then) {
    for (int i = 0; i < PAIRS; i++) {
        struct paths p = pair_of(i);
        cr_assert_eq(file_put(p.to, 300000, OLD), 0);
        int fd = open_new(p.from);
        write_all(fd, BYTES, NEW);
        cr_expect_eq(rename(p.from, p.to), 0, "%s", strerror(errno));
        cr_expect_eq(file_check(p.to, 300000, OLD), 0, "%s", p.to);
        cr_expect_eq(close(fd), 0);
        expect_only(&p, BYTES, NEW);
    }
}

static int rename_and_die(void *argument) {
    struct paths *p = argument;
    int fd = open(p->from, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, "half", 4) != 4 || rename(p->from, p->to) != 0)
        return complain("rename");
    kill(getpid(), SIGKILL);
    return 1;
}

Test(rename, a_writer_killed_after_it_leaves_the_targets_old_version) {
    for (int i = 0; i < PAIRS; i++) {
        struct paths p = pair_of(i);
        cr_assert_eq(file_put(p.to, 300000, OLD), 0);
        child_wait(child_start(rename_and_die, &p), 20);
        mount_wait_released(&mount);
        expect_only(&p, 300000, OLD);
    }
}

Test(rename, over_a_file_that_is_being_written_cancels_its_writer) {
    for (int i = 0; i < PAIRS; i++) {
        struct paths p = pair_of(i);
        int fd = open_new(p.to);
        write_all(fd, 300000, OLD);
        cr_assert_eq(file_put(p.from, BYTES, NEW), 0);
        cr_expect_eq(rename(p.from, p.to), 0, "%s", strerror(errno));
        expect_only(&p, BYTES, NEW);
        cr_expect_eq(close(fd), 0, "its close succeeds");
        mount_wait_released(&mount);
        expect_only(&p, BYTES, NEW);
    }
}

Test(rename, takes_the_open_writer_of_a_published_file_along) {
    for (int i = 0; i < PAIRS; i++) {
        struct paths p = pair_of(i);
        cr_assert_eq(file_put(p.from, 300000, OLD), 0);
        int fd = open_new(p.from);
        write_all(fd, BYTES, NEW);
        cr_expect_eq(rename(p.from, p.to), 0, "%s", strerror(errno));
        expect_only(&p, 300000, OLD);
        cr_expect_eq(close(fd), 0);
        expect_only(&p, BYTES, NEW);
    }
}

Test(rename, onto_itself_changes_nothing) {
    for (int i = 0; i < PAIRS; i += 3) {
        struct paths p = pair_of(i);
        cr_assert_eq(file_put(p.to, BYTES, NEW), 0);
        cr_expect_eq(rename(p.to, p.to), 0);
        expect_only(&p, BYTES, NEW);
    }
}

Test(rename, of_an_absent_file_is_ENOENT) {
    for (int i = 0; i < PAIRS; i++) {
        struct paths p = pair_of(i);
        cr_assert_eq(file_put(p.to, BYTES, OLD), 0);
        cr_expect(rename(p.from, p.to) != 0 && errno == ENOENT);
        expect_only(&p, BYTES, OLD);
    }
}

Test(rename, without_replacing_refuses_an_existing_target) {
    for (int i = 0; i < PAIRS; i++) {
        struct paths p = pair_of(i);
        cr_assert_eq(file_put(p.from, BYTES, NEW), 0);
        cr_assert_eq(file_put(p.to, 300000, OLD), 0);
        cr_expect(renameat2(AT_FDCWD, p.from, AT_FDCWD, p.to, RENAME_NOREPLACE) != 0 &&
                  errno == EEXIST);
        cr_expect_eq(file_check(p.from, BYTES, NEW), 0);
        cr_expect_eq(file_check(p.to, 300000, OLD), 0);
        unlink(p.to);
        cr_expect_eq(renameat2(AT_FDCWD, p.from, AT_FDCWD, p.to, RENAME_NOREPLACE), 0, "%s",
                     strerror(errno));
        expect_only(&p, BYTES, NEW);
    }
}

Test(rename, exchange_is_EINVAL) {
    struct paths p = pair_of(0);
    cr_assert_eq(file_put(p.from, BYTES, NEW), 0);
    cr_assert_eq(file_put(p.to, 300000, OLD), 0);
    cr_expect(renameat2(AT_FDCWD, p.from, AT_FDCWD, p.to, RENAME_EXCHANGE) != 0 && errno == EINVAL,
              "%s", strerror(errno));
    cr_expect_eq(file_check(p.from, BYTES, NEW), 0);
    cr_expect_eq(file_check(p.to, 300000, OLD), 0);
}

Test(rename_ranks, from_one_to_another_is_EXDEV, .fini = close_mount, .timeout = 60) {
    mount_open(&mount, &(struct mount_settings){.ranks = "0-1", .size = "128M"});
    for (int i = 0; i < PAIRS; i++) {
        const char *from = mount_path(&mount, "%s", pairs[i][0]);
        const char *to = mount_path(&mount, "../rank1/%s", pairs[i][1]);
        cr_assert_eq(file_put(from, BYTES, NEW), 0);
        cr_expect(rename(from, to) != 0 && errno == EXDEV, "%s", strerror(errno));
        cr_expect_eq(file_check(from, BYTES, NEW), 0);
        cr_expect_eq(run_shell(20, NULL, "mv '%s' '%s'", from, to), 0, "mv copies instead");
        cr_expect_eq(file_check(to, BYTES, NEW), 0);
        cr_expect_eq(file_size(from), -ENOENT);
    }
}

/* directories */

static void make_directory(const char *name) {
    cr_assert_eq(mkdir(mount_path(&mount, "%s", name), 0700), 0, "%s", strerror(errno));
}

static int rename_names(const char *from, const char *to) {
    return rename(mount_path(&mount, "%s", from), mount_path(&mount, "%s", to)) == 0 ? 0 : -errno;
}

Test(rename, a_directory_moves_with_all_it_holds) {
    make_directory("a");
    make_directory("a/b");
    make_directory("other");
    cr_assert_eq(file_put(mount_path(&mount, "a/b/f"), BYTES, NEW), 0);
    int fd = open_new(mount_path(&mount, "a/staged"));
    write_all(fd, BYTES, 3);
    cr_expect_eq(rename_names("a", "other/moved"), 0);
    cr_expect_eq(file_check(mount_path(&mount, "other/moved/b/f"), BYTES, NEW), 0);
    cr_expect_eq(file_size(mount_path(&mount, "a")), -ENOENT);
    close(fd);
    cr_expect_eq(file_check(mount_path(&mount, "other/moved/staged"), BYTES, 3), 0);
}

Test(rename, a_directory_replaces_only_an_empty_directory) {
    make_directory("a");
    make_directory("empty");
    make_directory("full");
    make_directory("full/x");
    cr_assert_eq(file_put(mount_path(&mount, "a/f"), BYTES, NEW), 0);
    cr_assert_eq(file_put(mount_path(&mount, "file"), BYTES, OLD), 0);
    cr_expect_eq(rename_names("a", "full"), -ENOTEMPTY);
    cr_expect_eq(rename_names("a", "file"), -ENOTDIR);
    cr_expect_eq(rename_names("file", "empty"), -EISDIR);
    cr_expect_eq(rename_names("a", "a/inside"), -EINVAL);
    cr_expect_eq(rename_names("a", "empty"), 0);
    cr_expect_eq(file_check(mount_path(&mount, "empty/f"), BYTES, NEW), 0);
    cr_expect_eq(file_check(mount_path(&mount, "file"), BYTES, OLD), 0);
}

Test(rename, a_file_moves_between_directories_and_the_root) {
    make_directory("a");
    make_directory("b");
    cr_assert_eq(file_put(mount_path(&mount, HASH_A), BYTES, NEW), 0);
    cr_expect_eq(rename_names(HASH_A, "a/" HASH_A), 0);
    cr_expect_eq(rename_names("a/" HASH_A, "b/f"), 0);
    cr_expect_eq(file_check(mount_path(&mount, "b/f"), BYTES, NEW), 0);
    cr_expect_eq(rename_names("b/f", HASH_B), 0);
    cr_expect_eq(file_check(mount_path(&mount, HASH_B), BYTES, NEW), 0);
    cr_expect_eq(directory_count(mount_path(&mount, "a")), 0);
    cr_expect_eq(directory_count(mount_path(&mount, "b")), 0);
}

Test(rename, a_directory_can_have_a_hex_name) {
    make_directory("a");
    cr_assert_eq(file_put(mount_path(&mount, "a/f"), BYTES, NEW), 0);
    cr_expect_eq(rename_names("a", HASH_A), 0);
    cr_expect_eq(file_check(mount_path(&mount, HASH_A "/f"), BYTES, NEW), 0);
    cr_assert_eq(file_put(mount_path(&mount, HASH_B), BYTES, OLD), 0);
    cr_expect_eq(rename_names(HASH_A, HASH_B), -ENOTDIR);
    cr_expect_eq(rename_names(HASH_B, HASH_A), -EISDIR);
}
