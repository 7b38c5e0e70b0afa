/* SPDX-License-Identifier: Apache-2.0 */
/* More half-written files than the memory for staging can hold: each still gets done. And how soon
 * the memory of whole ones comes back. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/support/files.h"
#include "tests/support/freeze.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"

enum { WRITERS = 4, FILES = 3, MAX_FILE = 16 << 20, PIECE = 64 << 10 };

static struct mount mount_;

static void open_mount(void) {
    mount_open(&mount_, &(struct mount_settings){.options = "memory=32M,max_file=16M"});
}
static void close_mount(void) {
    mount_close(&mount_);
}
TestSuite(memory_starved, .init = open_mount, .fini = close_mount, .timeout = 120);

/* 0 or the errno. */
static int write_file(unsigned writer, unsigned number, size_t bytes) {
    char piece[PIECE];
    memset(piece, (int)(writer * FILES + number), sizeof piece);
    int fd = open(mount_path(&mount_, "file-%u-%u", writer, number), O_WRONLY | O_CREAT, 0600);
    if (fd < 0)
        return errno;
    for (size_t done = 0; done < bytes; done += PIECE)
        if (write(fd, piece, PIECE) != PIECE)
            return errno;
    return close(fd) < 0 ? errno : 0;
}

static int write_files(void *argument) {
    const unsigned *job = argument; /* the writer's number, bytes of a file */
    for (unsigned i = 0; i < FILES; i++) {
        int error = write_file(job[0], i, job[1]);
        if (error)
            return complain("writer %u, file %u: %s", job[0], i, strerror(error));
    }
    return 0;
}

static void check_all_get_done(unsigned bytes) {
    pid_t writers[WRITERS];
    for (unsigned i = 0; i < WRITERS; i++)
        writers[i] = child_start(write_files, (unsigned[]){i, bytes});
    for (unsigned i = 0; i < WRITERS; i++)
        cr_expect_eq(child_wait(writers[i], 100), 0);
    cr_expect_eq(mount_counter(&mount_, "rank0.dead_writers"), 0);
}

Test(memory_starved, files_beyond_half_of_the_share_get_done_one_after_the_other) {
    check_all_get_done(MAX_FILE / 16 * 13);
}

Test(memory_starved, files_of_a_third_of_the_share_get_done_too) {
    check_all_get_done(MAX_FILE / 3 / PIECE * PIECE);
}

enum { HELD = 8, HELD_BYTES = 1400 << 10 };

/* As clients do that write all pages of a request before they close any. */
static int write_before_any_close(void *unused) {
    static char bytes[HELD_BYTES];
    int fds[HELD];
    (void)unused;
    for (unsigned i = 0; i < HELD; i++) {
        fds[i] = open(mount_path(&mount_, "held-%u", i), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        fill_pattern(bytes, HELD_BYTES, i, 0);
        if (fds[i] < 0 || write(fds[i], bytes, HELD_BYTES) != HELD_BYTES)
            return complain("file %u: %s", i, strerror(errno));
    }
    for (unsigned i = 0; i < HELD; i++)
        if (close(fds[i]) != 0)
            return complain("closing file %u: %s", i, strerror(errno));
    return 0;
}

Test(memory_starved, files_that_fit_together_can_all_be_written_before_any_is_closed) {
    for (int round = 0; round < 2; round++) {
        cr_expect_eq(child_wait(child_start(write_before_any_close, NULL), 60), 0);
        for (unsigned i = 0; i < HELD; i++)
            cr_expect_eq(file_check(mount_path(&mount_, "held-%u", i), HELD_BYTES, i), 0);
    }
}

/* Staging memory comes back with a commit: a backlog is no single group that has to be on the disk
 * before anybody goes on. */
TestSuite(memory_backlog, .fini = close_mount, .timeout = 60);

Test(memory_backlog, many_puts_at_once_are_committed_in_several_groups) {
    enum { PUTS = 50, PUT_BYTES = 4 << 20, GROUP_BYTES = 64 << 20 };
    struct freeze writer = {.count = 0};
    mount_open(&mount_, &(struct mount_settings){.options = "memory=512M", .size = "512M"});
    cr_assert_eq(file_put(mount_path(&mount_, "first"), PUT_BYTES, 0), 0);
    mount_commit(&mount_);
    uint64_t commits = mount_counter(&mount_, "rank0.commits");
    cr_assert_eq(freeze_threads(mount_.daemon, "cpl3-write", &writer), 1, "%s", strerror(errno));
    for (uint64_t i = 1; i <= PUTS; i++)
        cr_assert_eq(file_put(mount_path(&mount_, "page-%lu", i), PUT_BYTES, i), 0);
    freeze_end(&writer);
    mount_commit(&mount_);
    cr_expect_geq(mount_counter(&mount_, "rank0.commits") - commits,
                  (uint64_t)PUTS * PUT_BYTES / GROUP_BYTES);
    for (uint64_t i = 1; i <= PUTS; i++)
        cr_expect_eq(file_check(mount_path(&mount_, "page-%lu", i), PUT_BYTES, i), 0);
}
