/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename between all kinds of names and states of its two ends: what is open stays what it was, the
 * new name holds the file, the old one is gone; at once, after all is closed, and after a load.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"

#define HASH "00112233445566778899aabbccddeeff"
#define OTHER_HASH "ffeeddccbbaa99887766554433221100"

enum state {
    NOT_THERE, /* only a target */
    CLOSED,    /* published */
    READ,      /* published, and open for reading */
    STAGED,    /* never published, open and written */
    REPLACED,  /* published, open and written again */
    STATES
};
enum {
    BYTES = 9000,
    SEED_OLD = 1,
    SEED_NEW = 2,
    TARGET = 10 /* added to the seeds of the target */
};

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_rename, .init = open_mount, .fini = close_mount, .timeout = 60);

static int move(const char *from, const char *to) {
    return rename(mount_path(&mount, "%s", from), mount_path(&mount, "%s", to)) == 0 ? 0 : -errno;
}

static int write_bytes(int fd, uint64_t seed) {
    char bytes[BYTES];
    fill_pattern(bytes, BYTES, seed, 0);
    return pwrite(fd, bytes, BYTES, 0) == BYTES ? 0 : -errno;
}

/* The open descriptor, or -1. */
static int prepare(const char *path, enum state state, uint64_t seed) {
    int fd = -1;
    if (state == CLOSED || state == READ || state == REPLACED)
        cr_assert_eq(file_put(path, BYTES, seed + SEED_OLD), 0, "%s", path);
    if (state == READ)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (state == STAGED || state == REPLACED) {
        fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        cr_assert_eq(write_bytes(fd, seed + SEED_NEW), 0, "%s", path);
    }
    cr_assert(fd >= 0 || state == NOT_THERE || state == CLOSED, "%s: %s", path, strerror(errno));
    return fd;
}

static bool has_old(enum state state) {
    return state == CLOSED || state == READ || state == REPLACED;
}

static bool has_new(enum state state) {
    return state == STAGED || state == REPLACED;
}

/* What a reader of the new name gets while everything is still open (P9). */
static int check_now(const char *to, enum state source, enum state target) {
    if (has_old(source))
        return file_check(to, BYTES, SEED_OLD);
    if (has_old(target))
        return file_check(to, BYTES, TARGET + SEED_OLD);
    return file_open_result(to, O_RDONLY) == -ENOENT ? 0 : -EEXIST;
}

static int check_open(int fd, enum state state, uint64_t seed) {
    if (fd < 0)
        return 0;
    return file_check_fd(fd, BYTES, seed + (has_new(state) ? SEED_NEW : SEED_OLD));
}

static void try_states(const char *from_name, const char *to_name, enum state source,
                       enum state target, int round) {
    char what[256];
    const char *from = mount_path(&mount, "%d/%s", round, from_name);
    const char *to = mount_path(&mount, "%d/%s", round, to_name);
    snprintf(what, sizeof what, "%s (state %d) to %s (state %d)", from_name, source, to_name,
             target);
    cr_assert_eq(mkdir(mount_path(&mount, "%d", round), 0700), 0);
    cr_assert_eq(mkdir(mount_path(&mount, "%d/below", round), 0700), 0);
    int source_fd = prepare(from, source, 0), target_fd = prepare(to, target, TARGET);
    cr_expect_eq(rename(from, to), 0, "%s: %s", what, strerror(errno));
    cr_expect_eq(file_size(from), -ENOENT, "%s: the old name is there", what);
    cr_expect_eq(check_now(to, source, target), 0, "%s: at once", what);
    cr_expect_eq(check_open(source_fd, source, 0), 0, "%s: the open source", what);
    cr_expect_eq(check_open(target_fd, target, TARGET), 0, "%s: the open target", what);
    cr_expect(target_fd < 0 || close(target_fd) == 0, "%s: closing the target", what);
    cr_expect(source_fd < 0 || close(source_fd) == 0, "%s: closing the source", what);
    int last = file_check(to, BYTES, has_new(source) ? SEED_NEW : SEED_OLD);
    cr_expect_eq(last, 0, "%s: closed: %s", what, strerror(-last));
    cr_expect_eq(file_size(from), -ENOENT, "%s: closed, the old name is there", what);
}

struct ends {
    char from[64], to[64];
};
static struct ends ends[] = {
    {"source", "target"},   {"source", HASH},   {HASH, "target"},     {HASH, OTHER_HASH},
    {"source", "below/to"}, {HASH, "below/to"}, {"below/from", HASH}, {"below/from", "target"},
};

ParameterizedTestParameters(posix_rename, all_states_of_both_ends) {
    return cr_make_param_array(struct ends, ends, sizeof ends / sizeof ends[0]);
}

ParameterizedTest(struct ends *e, posix_rename, all_states_of_both_ends) {
    for (int i = 0; i < (STATES - 1) * STATES; i++)
        try_states(e->from, e->to, 1 + (enum state)(i / STATES), i % STATES, i);
    mount_wait_released(&mount);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    for (int i = 0; i < (STATES - 1) * STATES; i++) {
        enum state source = 1 + (enum state)(i / STATES);
        const char *to = mount_path(&mount, "%d/%s", i, e->to);
        cr_expect_eq(file_check(to, BYTES, has_new(source) ? SEED_NEW : SEED_OLD), 0,
                     "%s (state %d) to %s (state %d): after a load", e->from, source, e->to,
                     i % STATES);
        cr_expect_eq(file_size(mount_path(&mount, "%d/%s", i, e->from)), -ENOENT);
    }
}

/* In the rank's own directory, where hash names are content hashes. */
Test(posix_rename, all_states_of_content_hashes) {
    const struct ends at_top[] = {{HASH, OTHER_HASH}, {HASH, "target"}, {"source", HASH}};
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < (STATES - 1) * STATES; i++) {
            enum state source = 1 + (enum state)(i / STATES), target = i % STATES;
            const char *from = mount_path(&mount, "%s", at_top[k].from);
            const char *to = mount_path(&mount, "%s", at_top[k].to);
            int source_fd = prepare(from, source, 0), target_fd = prepare(to, target, TARGET);
            cr_expect_eq(rename(from, to), 0, "%d %d: %s", k, i, strerror(errno));
            cr_expect_eq(file_size(from), -ENOENT, "%d %d", k, i);
            cr_expect_eq(check_now(to, source, target), 0, "%d %d", k, i);
            cr_expect_eq(check_open(source_fd, source, 0), 0, "%d %d", k, i);
            cr_expect_eq(check_open(target_fd, target, TARGET), 0, "%d %d", k, i);
            cr_expect(target_fd < 0 || close(target_fd) == 0, "%d %d", k, i);
            cr_expect(source_fd < 0 || close(source_fd) == 0, "%d %d", k, i);
            cr_expect_eq(file_check(to, BYTES, has_new(source) ? SEED_NEW : SEED_OLD), 0, "%d %d",
                         k, i);
            cr_expect_eq(directory_count(mount.rank), 1, "%d %d", k, i);
            cr_expect_eq(unlink(to), 0);
        }
    }
}

/* refusals */

Test(posix_rename, what_it_refuses) {
    cr_assert_eq(mkdir(mount_path(&mount, "d"), 0700), 0);
    cr_assert_eq(mkdir(mount_path(&mount, "d/e"), 0700), 0);
    cr_assert_eq(mkdir(mount_path(&mount, "full"), 0700), 0);
    cr_assert_eq(file_put(mount_path(&mount, "full/f"), BYTES, 1), 0);
    cr_assert_eq(file_put(mount_path(&mount, "f"), BYTES, 2), 0);
    cr_expect_eq(move("d", "d/e/x"), -EINVAL);
    cr_expect_eq(move("d", "d/x"), -EINVAL);
    cr_expect_eq(move("d/e", "d"), -ENOTEMPTY);
    cr_expect_eq(move("d", "full"), -ENOTEMPTY);
    cr_expect_eq(move("f", "d"), -EISDIR);
    cr_expect_eq(move("d", "f"), -ENOTDIR);
    cr_expect_eq(move("absent", "f"), -ENOENT);
    cr_expect_eq(move("f", "absent/x"), -ENOENT);
    cr_expect_eq(move("f", "f/x"), -ENOTDIR);
    cr_expect_eq(move("f", "../x"), -EPERM);
    cr_expect_eq(move("../rank0", "../rank1"), -EPERM);
    cr_expect_eq(move("../.cpl3/stats", "f"), -EPERM);
    cr_expect_eq(rename(mount_path(&mount, "f"), "/dev/shm/x") == 0 ? 0 : -errno, -EXDEV);
    cr_expect_eq(file_check(mount_path(&mount, "f"), BYTES, 2), 0);
    cr_expect_eq(file_check(mount_path(&mount, "full/f"), BYTES, 1), 0);
}

Test(posix_rename, NOREPLACE_of_directories_and_of_staged_files) {
    const char *a = mount_path(&mount, "a"), *b = mount_path(&mount, "b");
    cr_assert_eq(mkdir(a, 0700), 0);
    cr_assert_eq(mkdir(b, 0700), 0);
    cr_expect(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_NOREPLACE) < 0 && errno == EEXIST);
    cr_expect_eq(rmdir(b), 0);
    cr_expect_eq(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_NOREPLACE), 0, "%s", strerror(errno));
    AUTO_CLOSE int fd = open(a, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_eq(write_bytes(fd, 1), 0);
    cr_assert_eq(file_put(mount_path(&mount, "f"), BYTES, 2), 0);
    cr_expect(renameat2(AT_FDCWD, mount_path(&mount, "f"), AT_FDCWD, a, RENAME_NOREPLACE) < 0 &&
                  errno == EEXIST,
              "a staged name is taken");
    close(fd);
    fd = -1;
    cr_expect_eq(file_check(a, BYTES, 1), 0);
    cr_expect_eq(file_check(mount_path(&mount, "f"), BYTES, 2), 0);
}

Test(posix_rename, a_chain_of_renames_carries_the_open_writer_along) {
    int fd = open(mount_path(&mount, "0"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_eq(write_bytes(fd, 5), 0);
    for (int i = 0; i < 60; i++) {
        const char *from = mount_path(&mount, i % 3 == 1 ? "%032d" : "%d", i);
        const char *to = mount_path(&mount, (i + 1) % 3 == 1 ? "%032d" : "%d", i + 1);
        cr_assert_eq(rename(from, to), 0, "%d: %s", i, strerror(errno));
    }
    cr_expect_eq(close(fd), 0);
    cr_expect_eq(file_check(mount_path(&mount, "60"), BYTES, 5), 0);
    mount_wait_released(&mount);
    cr_expect_eq(directory_count(mount.rank), 1);
}
