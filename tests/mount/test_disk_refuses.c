/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that refuses what was already closed: whoever asks for durability is told, however late.
 */
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/wait.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}

static void close_mount(void) {
    mount_close(&mount);
}

TestSuite(disk_refuses, .init = open_mount, .fini = close_mount, .timeout = 60);

enum { BYTES = 4 << 20 };

/* Slots beyond the first one cannot be written; the index is far smaller. */
static void limit_files(rlim_t bytes) {
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    cr_assert_eq(prlimit(mount.daemon, RLIMIT_FSIZE, &limit, NULL), 0);
}

Test(disk_refuses, fsync_after_the_refusal_is_EIO_and_the_file_a_miss) {
    char *bytes = calloc(1, BYTES);
    const char *path = mount_path(&mount, "late");
    cr_assert_eq(file_put(mount_path(&mount, "first"), BYTES, 1), 0);
    mount_commit(&mount);
    limit_files(BYTES);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    cr_assert_eq(write(fd, bytes, BYTES), BYTES);
    cr_assert_eq(close(dup(fd)), 0, "published; the disk has not spoken yet");
    cr_assert(WAIT_UNTIL(mount_counter(&mount, "rank0.withdrawn") == 1, 10));
    mount_control(&mount, "commit"); /* EIO or not: afterwards nothing is under way */
    cr_expect(fsync(fd) != 0 && errno == EIO, "%m");
    close(fd);
    limit_files(RLIM_INFINITY);
    cr_expect(WAIT_UNTIL(file_open_result(path, O_RDONLY) == -ENOENT, 10));
    cr_expect_eq(file_check(mount_path(&mount, "first"), BYTES, 1), 0);
    free(bytes);
}
