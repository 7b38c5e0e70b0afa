/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes: truncate, fallocate, offsets, appends and the limits of each, staged and published. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"

#define HASH "00112233445566778899aabbccddeeff"
enum { MIB = 1 << 20, MAX_FILE = 16 * MIB /* of mount_open */, BYTES = 50000 };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_sizes, .init = open_mount, .fini = close_mount, .timeout = 60);

static const char *published(const char *name) {
    const char *path = mount_path(&mount, "%s", name);
    cr_assert_eq(file_put(path, BYTES, 1), 0);
    return path;
}

static int open_it(const char *path, int flags) {
    int fd = open(path, O_CREAT | O_CLOEXEC | flags, 0600);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    return fd;
}

static off_t size_of(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_size : -errno;
}

static int result_of(long returned) {
    return returned < 0 ? -errno : 0;
}

/* The pattern up to `kept`, zeros after it. */
static void expect_content(const char *path, size_t kept, size_t bytes) {
    size_t count = 0;
    AUTO_FREE char *now = file_read(path, &count);
    cr_assert(now, "%s: %s", path, strerror(errno));
    cr_assert_eq(count, bytes, "%zu bytes, not %zu", count, bytes);
    cr_expect(is_pattern(now, kept, 1, 0));
    for (size_t i = kept; i < bytes; i++)
        cr_assert_eq(now[i], 0, "byte %zu", i);
}

/* truncate */

Test(posix_sizes, truncate_by_name_up_and_down_and_again) {
    const char *const names[] = {"file", HASH};
    for (int i = 0; i < 2; i++) {
        const char *path = published(names[i]);
        cr_expect_eq(truncate(path, 70000), 0);
        expect_content(path, BYTES, 70000);
        cr_expect_eq(truncate(path, 1000), 0);
        expect_content(path, 1000, 1000);
        cr_expect_eq(truncate(path, 1000), 0);
        cr_expect_eq(truncate(path, 5 * MIB), 0);
        expect_content(path, 1000, 5 * MIB);
        mount_stop(&mount);
        mount_start(&mount, "cold_start=load");
        expect_content(path, 1000, 5 * MIB);
    }
}

Test(posix_sizes, an_empty_named_file_grows_from_zero_and_back) {
    const char *path = published("file");
    cr_expect_eq(truncate(path, 0), 0);
    expect_content(path, 0, 0);
    cr_expect_eq(truncate(path, 4097), 0);
    expect_content(path, 0, 4097);
    cr_expect_eq(truncate(path, 0), 0);
    expect_content(path, 0, 0);
}

Test(posix_sizes, ftruncate_of_a_published_file_starts_from_its_bytes) {
    const char *path = published("file");
    int fd = open_it(path, O_RDWR);
    cr_expect_eq(ftruncate(fd, 10000), 0);
    cr_expect_eq(size_of(fd), 10000);
    cr_expect_eq(ftruncate(fd, 60000), 0);
    cr_expect_eq(file_size(path), BYTES, "by name it is the published one until close");
    close(fd);
    mount_wait_released(&mount);
    expect_content(path, 10000, 60000);
}

Test(posix_sizes, what_truncate_refuses) {
    const char *path = published("file");
    AUTO_CLOSE int reader = open(path, O_RDONLY | O_CLOEXEC);
    cr_expect_eq(result_of(ftruncate(reader, 0)), -EINVAL);
    cr_expect_eq(result_of(truncate(path, -1)), -EINVAL);
    cr_expect_eq(result_of(truncate(mount_path(&mount, "absent"), 0)), -ENOENT);
    cr_expect_eq(result_of(truncate(mount_path(&mount, "file/x"), 0)), -ENOTDIR);
    cr_expect_eq(result_of(truncate(mount.rank, 0)), -EISDIR);
    cr_expect_eq(result_of(truncate(path, MAX_FILE + 1)), -EFBIG);
    cr_expect_eq(result_of(truncate(path, LLONG_MAX)), -EFBIG);
    cr_expect_eq(file_check(path, BYTES, 1), 0);
}

Test(posix_sizes, a_staged_file_survives_a_truncation_that_is_too_large) {
    const char *path = mount_path(&mount, "file");
    int fd = open_it(path, O_RDWR);
    cr_expect_eq(write(fd, "abc", 3), 3);
    cr_expect_eq(result_of(ftruncate(fd, MAX_FILE + 1)), -EFBIG);
    cr_expect_eq(result_of(fallocate(fd, 0, 0, MAX_FILE + 1)), -EFBIG);
    cr_expect_eq(write(fd, "def", 3), 3);
    cr_expect_eq(close(fd), 0, "%s", strerror(errno));
    cr_expect(file_is_text(path, "abcdef"));
}

Test(posix_sizes, the_largest_file_can_be_made_by_size_alone) {
    const char *path = mount_path(&mount, "file");
    int fd = open_it(path, O_RDWR);
    cr_expect_eq(ftruncate(fd, MAX_FILE), 0, "%s", strerror(errno));
    cr_expect_eq(pwrite(fd, "end", 3, MAX_FILE - 3), 3);
    cr_expect_eq(result_of(close(fd)), 0);
    cr_expect_eq(file_size(path), MAX_FILE);
    AUTO_CLOSE int reader = open(path, O_RDONLY | O_CLOEXEC);
    char room[4] = "";
    cr_expect_eq(pread(reader, room, 4, MAX_FILE - 3), 3);
    cr_expect_str_eq(room, "end");
}

/* fallocate */

Test(posix_sizes, fallocate_keeps_the_bytes_that_are_there) {
    const char *path = published("file");
    int fd = open_it(path, O_RDWR);
    cr_expect_eq(fallocate(fd, 0, 0, BYTES / 2), 0, "inside");
    cr_expect_eq(size_of(fd), BYTES);
    cr_expect_eq(fallocate(fd, 0, BYTES + 1000, 1000), 0, "beyond the end");
    cr_expect_eq(size_of(fd), BYTES + 2000);
    cr_expect_eq(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 2 * MIB), 0);
    cr_expect_eq(size_of(fd), BYTES + 2000);
    cr_expect_eq(posix_fallocate(fd, 0, BYTES + 3000), 0);
    close(fd);
    mount_wait_released(&mount);
    expect_content(path, BYTES, BYTES + 3000);
}

Test(posix_sizes, what_fallocate_refuses) {
    int fd = open_it(mount_path(&mount, "file"), O_RDWR);
    cr_expect_eq(result_of(fallocate(fd, 0, 0, 0)), -EINVAL);
    cr_expect_eq(result_of(fallocate(fd, 0, -1, 10)), -EINVAL);
    cr_expect_eq(result_of(fallocate(fd, 0, 0, -1)), -EINVAL);
    cr_expect_eq(result_of(fallocate(fd, 0, LLONG_MAX - 5, 10)), -EFBIG);
    cr_expect_eq(result_of(fallocate(fd, FALLOC_FL_KEEP_SIZE, MAX_FILE, 1)), -EFBIG);
    cr_expect_eq(result_of(fallocate(fd, 1 << 20, 0, 10)), -EOPNOTSUPP);
    cr_expect_eq(size_of(fd), 0);
    close(fd);
}

/* offsets */

Test(posix_sizes, lseek_knows_the_ends) {
    AUTO_CLOSE int fd = open(published("file"), O_RDONLY | O_CLOEXEC);
    cr_expect_eq(lseek(fd, -10, SEEK_END), BYTES - 10);
    cr_expect_eq(lseek(fd, 20, SEEK_CUR), BYTES + 10);
    char byte;
    cr_expect_eq(read(fd, &byte, 1), 0);
    cr_expect_eq(result_of(lseek(fd, -1, SEEK_SET)), -EINVAL);
    cr_expect_eq(result_of(lseek(fd, -BYTES - 1, SEEK_END)), -EINVAL);
    cr_expect_eq(result_of(lseek(fd, 0, 99)), -EINVAL);
    cr_expect_eq(lseek(fd, 0, SEEK_CUR), BYTES + 10, "the refused ones did not move it");
}

Test(posix_sizes, a_write_far_beyond_the_end_leaves_zeros_and_reads_back_before_close) {
    const char *path = published("file");
    int fd = open_it(path, O_RDWR);
    cr_expect_eq(pwrite(fd, "", 0, 3 * MIB), 0);
    cr_expect_eq(size_of(fd), BYTES, "nothing written, nothing grown");
    cr_expect_eq(pwrite(fd, "\0", 1, 3 * MIB), 1);
    char room[16];
    cr_expect_eq(pread(fd, room, 16, 3 * MIB - 10), 11);
    for (int i = 0; i < 11; i++)
        cr_expect_eq(room[i], 0);
    cr_expect_eq(result_of(pwrite(fd, "x", 1, -1)), -EINVAL);
    close(fd);
    expect_content(path, BYTES, 3 * MIB + 1);
}

Test(posix_sizes, vectors_with_flags_of_their_own) {
    const char *path = mount_path(&mount, "file");
    int fd = open_it(path, O_RDWR);
    struct iovec pieces[] = {{"ab", 2}, {"", 0}, {"cd", 2}};
    cr_expect_eq(pwritev2(fd, pieces, 3, 0, 0), 4);
    cr_expect_eq(pwritev2(fd, pieces, 1, 0, RWF_APPEND), 2, "%s", strerror(errno));
    cr_expect_eq(pwritev2(fd, pieces, 3, 6, RWF_DSYNC), 4, "%s", strerror(errno));
    cr_expect_eq(pwritev2(fd, pieces, 3, -1, 0), 4, "at the descriptor's offset");
    close(fd);
    cr_expect(file_is_text(path, "abcdababcd"));
}

/* appends */

Test(posix_sizes, an_append_goes_to_the_end_after_every_change_of_size) {
    const char *path = published("file");
    int fd = open_it(path, O_RDWR | O_APPEND);
    cr_expect_eq(ftruncate(fd, 3), 0);
    cr_expect_eq(write(fd, "x", 1), 1);
    cr_expect_eq(lseek(fd, 0, SEEK_CUR), 4);
    cr_expect_eq(ftruncate(fd, 6), 0);
    cr_expect_eq(lseek(fd, 0, SEEK_SET), 0);
    cr_expect_eq(write(fd, "y", 1), 1);
    char expected[7] = {0}, room[8];
    fill_pattern(expected, 3, 1, 0);
    expected[3] = 'x';
    expected[6] = 'y';
    cr_expect_eq(pread(fd, room, 8, 0), 7);
    cr_expect_eq(memcmp(room, expected, 7), 0);
    close(fd);
    AUTO_FREE char *now = file_read(path, NULL);
    cr_expect_eq(memcmp(now, expected, 7), 0);
}

Test(posix_sizes, appenders_with_opens_of_their_own_replace_each_other_whole) {
    const char *path = mount_path(&mount, "file");
    cr_assert_eq(file_put_text(path, "base"), 0);
    int one = open_it(path, O_WRONLY | O_APPEND), two = open_it(path, O_WRONLY | O_APPEND);
    cr_expect_eq(write(one, " one", 4), 4);
    cr_expect_eq(write(two, " two", 4), 4);
    close(one);
    cr_expect(file_is_text(path, "base one"));
    close(two);
    cr_expect(file_is_text(path, "base two"), "files are replaced, never merged");
}

Test(posix_sizes, an_appender_to_a_name_that_another_one_stages_starts_with_nothing) {
    const char *path = mount_path(&mount, "file");
    int one = open_it(path, O_WRONLY | O_APPEND), two;
    cr_expect_eq(write(one, "12345", 5), 5);
    two = open_it(path, O_WRONLY | O_APPEND);
    cr_expect_eq(write(two, "a", 1), 1);
    cr_expect_eq(write(two, "bc", 2), 2);
    cr_expect_eq(size_of(two), 3);
    cr_expect_eq(write(two, "d", 1), 1);
    close(two);
    cr_expect(file_is_text(path, "abcd"), "no zeros where the other's bytes are");
    close(one);
    cr_expect(file_is_text(path, "12345"));
}
