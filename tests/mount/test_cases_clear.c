/* SPDX-License-Identifier: Apache-2.0 */
/* Clearing a mount that is being read: all of it goes and all space is free again, while readers
 * see whole pages or ENOENT. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum { READERS = 8, PAGES = 200 };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 8, .size = "64M"});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(cases_clear, .init = open_mount, .fini = close_mount, .timeout = 60);

/* Every other one is small enough for the index. */
static size_t bytes_of(unsigned i) {
    return i % 2 ? 100000 : 1000;
}

static const char *page(unsigned i) {
    return mount_path(&mount, i % 4 < 2 ? "%032x" : "page-%u", i);
}

static int read_until_killed(void *unused) {
    (void)unused;
    for (unsigned i = 0;; i++) {
        int result = file_check(page(i % PAGES), bytes_of(i % PAGES), i % PAGES);
        if (result != 0 && result != -ENOENT)
            return complain("%s: %s", page(i % PAGES), strerror(-result));
    }
}

static bool all_is_free(void) {
    struct statvfs usage;
    mount_commit(&mount);
    return statvfs(mount.rank, &usage) == 0 && usage.f_bfree == usage.f_blocks;
}

Test(cases_clear, with_eight_readers_ends_with_no_file_and_all_space_free) {
    pid_t readers[READERS];
    for (unsigned i = 0; i < PAGES; i++)
        cr_assert_eq(file_put(page(i), bytes_of(i), i), 0);
    uint64_t hits = mount_counter(&mount, "rank0.hits");
    for (unsigned i = 0; i < READERS; i++)
        readers[i] = child_start(read_until_killed, NULL);
    cr_assert(WAIT_UNTIL(mount_counter(&mount, "rank0.hits") > hits + PAGES, 20));
    cr_assert_eq(mount_control(&mount, "clear"), 0);
    cr_expect_eq(directory_count(mount.rank), 0);
    for (unsigned i = 0; i < READERS; i++) {
        kill(readers[i], SIGTERM);
        cr_expect_eq(child_wait(readers[i], 20), SIGTERM, "reader %u saw something wrong", i);
    }
    cr_expect(WAIT_UNTIL(all_is_free(), 20), "space is still taken");
    cr_expect_eq(directory_count(mount.rank), 0);
}
