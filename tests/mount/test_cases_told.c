/* SPDX-License-Identifier: Apache-2.0 */
/* What operators have to be told once, with what to do: names and files that do not fit, sizes that
 * the disk does not have. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum { MAX_FILE = 16 << 20, RANKS = 8 };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void open_stopped(void) {
    mount_open(&mount, &(struct mount_settings){.stopped = true});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(cases_told, .init = open_mount, .fini = close_mount, .timeout = 60);
TestSuite(cases_told_at_start, .init = open_stopped, .fini = close_mount, .timeout = 60);

static bool log_says(const char *words) {
    AUTO_FREE char *log = file_read(mount.log, NULL);
    return log && strstr(log, words);
}

/* The one line of the daemon's log that holds these words (free it); fails if there are more. */
static char *only_line_with(const char *words) {
    cr_assert(WAIT_UNTIL(log_says(words), 10), "the log does not say: %s", words);
    AUTO_FREE char *log = file_read(mount.log, NULL);
    const char *found = strstr(log, words);
    cr_expect_null(strstr(found + 1, words), "said more than once: %s", log);
    while (found > log && found[-1] != '\n')
        found--;
    return strndup(found, strcspn(found, "\n"));
}

Test(cases_told, a_name_of_256_bytes_is_told_once_with_a_hint) {
    char name[300];
    memset(name, 'n', sizeof name);
    for (unsigned bytes = 256; bytes < 260; bytes++) {
        const char *path = mount_path(&mount, "%.*s", (int)bytes, name);
        cr_expect_eq(file_put(path, 100, 1), -ENAMETOOLONG);
        cr_expect_eq(file_size(path), -ENAMETOOLONG);
    }
    AUTO_FREE char *line = only_line_with("ENAMETOOLONG");
    cr_expect(strstr(line, "256 bytes") && strstr(line, "at most 255"), "%s", line);
    cr_expect(strstr(line, "temporary suffix"), "what to do: %s", line);
}

static void write_too_much(const char *path) {
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_expect(pwrite(fd, "x", 1, MAX_FILE) < 0 && errno == EFBIG, "%s", strerror(errno));
    close(fd);
}

Test(cases_told, a_file_that_is_too_large_is_counted_each_time_and_told_once_with_its_size) {
    for (unsigned i = 0; i < 3; i++)
        write_too_much(mount_path(&mount, "large-%u", i));
    cr_expect_eq(mount_counter(&mount, "rank0.too_large"), 3);
    AUTO_FREE char *line = only_line_with("EFBIG");
    cr_expect(strstr(line, "at least 16777217 bytes"), "%s", line);
    cr_expect(strstr(line, "max_file="), "what to do: %s", line);
    mount_wait_released(&mount);
    cr_expect_eq(directory_count(mount.rank), 0);
}

Test(cases_told, a_page_that_the_disk_refused_is_told_with_the_reason) {
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};
    cr_assert_eq(prlimit(mount.daemon, RLIMIT_FSIZE, &limit, NULL), 0);
    cr_assert_eq(file_put(mount_path(&mount, "refused"), 2 << 20, 1), 0);
    cr_assert(WAIT_UNTIL(mount_counter(&mount, "rank0.withdrawn") == 1, 10));
    AUTO_FREE char *line = only_line_with("it is a miss now");
    cr_expect(strstr(line, "rank 0") && strstr(line, strerror(EFBIG)), "%s", line);
}

Test(cases_told, the_start_line_names_the_engine_in_use) {
    mount_stop(&mount);
    mount_start(&mount, "engine=posix");
    AUTO_FREE char *line = only_line_with("engine pread/pwrite");
    cr_expect(strstr(line, "cpl3: serving "), "%s", line);
}

Test(cases_told_at_start, sizes_of_ranks_that_the_disk_has_not_are_refused_with_both_figures) {
    struct statvfs disk;
    cr_assert_eq(statvfs(mount.base, &disk), 0);
    uint64_t size = (uint64_t)disk.f_bavail * disk.f_frsize / (RANKS / 2);
    AUTO_FREE char *output = NULL;
    int status = run_shell(20, &output, "'%s' '%s' '%s' -f -o rank=0-%d,size=%lu", mount_daemon(),
                           mount.store, mount.point, RANKS - 1, size);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) != 0, "0x%x: %s", (unsigned)status, output);
    cr_expect(strstr(output, "each of 8 ranks needs ") && strstr(output, " has "), "%s", output);
    cr_expect_eq(directory_count(mount.store), 0, "nothing was made");
}
