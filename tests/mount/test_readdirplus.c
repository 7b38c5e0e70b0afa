/* SPDX-License-Identifier: Apache-2.0 */
/* What a listing tells the kernel of each file beside its name, so that `ls -l` asks no more. */
#include <dirent.h>
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

/* What one READDIRPLUS tells: 32 KiB. */
enum { FILES = 60, MODIFIED = 1000000000 };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(readdirplus, .init = open_mount, .fini = close_mount, .timeout = 60);

static size_t bytes_of(unsigned number) {
    return 10 + number * 131;
}

/* Hash names and others, each with a size, a mode and a time of its own. */
static const char *path_of(unsigned number) {
    return mount_path(&mount, number % 2 ? "%016x" : "page %u", number);
}

static void put(unsigned number) {
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = MODIFIED + number}};
    cr_assert_eq(file_put(path_of(number), bytes_of(number), number), 0);
    cr_assert_eq(chmod(path_of(number), 0400 + number % 4 * 0100), 0);
    cr_assert_eq(utimensat(AT_FDCWD, path_of(number), times, 0), 0);
}

static bool is_right(unsigned number) {
    struct stat st;
    return stat(path_of(number), &st) == 0 && st.st_size == (off_t)bytes_of(number) &&
           st.st_mode == (S_IFREG | (0400 + number % 4 * 0100)) && st.st_nlink == 1 &&
           st.st_mtime == MODIFIED + number && st.st_blocks > 0;
}

static int stat_all(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < FILES; i++)
        if (!is_right(i))
            return complain("%s is not as it was put", path_of(i));
    return 0;
}

/* The kernel knows nothing yet of what there is. */
static void put_all_and_mount_again(void) {
    for (unsigned i = 0; i < FILES; i++)
        put(i);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
}

Test(readdirplus, after_a_listing_stat_asks_the_daemon_nothing) {
    put_all_and_mount_again();
    cr_assert_eq(directory_count(mount.rank), FILES);
    cr_assert_eq(kill(mount.daemon, SIGSTOP), 0);
    int status = child_wait(child_start(stat_all, NULL), 20);
    cr_assert_eq(kill(mount.daemon, SIGCONT), 0);
    cr_expect_eq(status, 0);
}

Test(readdirplus, a_file_listed_again_shows_what_it_is_by_then) {
    put_all_and_mount_again();
    cr_assert_eq(directory_count(mount.rank), FILES);
    for (unsigned i = 0; i < FILES; i += 3) {
        cr_assert_eq(unlink(path_of(i)), 0);
        put(i);
    }
    cr_assert_eq(directory_count(mount.rank), FILES);
    cr_expect_eq(stat_all(NULL), 0);
}

Test(readdirplus, a_file_that_is_being_overwritten_is_looked_up_by_itself) {
    put(0);
    AUTO_CLOSE int writer = open(path_of(0), O_WRONLY | O_TRUNC);
    cr_assert_eq(write(writer, "half", 4), 4);
    cr_assert_eq(directory_count(mount.rank), 1);
    cr_expect_eq(file_check(path_of(0), bytes_of(0), 0), 0, "readers get the published version");
    cr_assert_eq(write(writer, "+all", 4), 4);
    cr_assert_eq(directory_count(mount.rank), 1);
    cr_assert_eq(close(writer), 0);
    writer = -1;
    cr_expect(file_is_text(path_of(0), "half+all"));
}
