/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shapes of reads and writes that clients use: offsets, holes, appends, O_DIRECT with any
 * alignment, fallocate, SEEK_END, vectors, mappings, and files that are too large.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/random.h"

enum { MIB = 1 << 20, MAX_FILE = 16 * MIB /* of mount_open */ };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(data, .init = open_mount, .fini = close_mount, .timeout = 60);

static int open_new(const char *path, int flags) {
    int fd = open(path, O_CREAT | O_TRUNC | O_CLOEXEC | flags, 0600);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    return fd;
}

static void expect_zeros(const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(bytes[i], 0, "byte %zu", i);
}

Test(data, files_of_every_interesting_size_come_back_whole) {
    const size_t sizes[] = {1,     63,    64,    278,    4032,     4033,    4095,    4096,    4097,
                            65536, 70272, 99999, 262144, 4497408u, MIB - 1, MIB + 1, MAX_FILE};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *named = mount_path(&mount, "size %zu", sizes[i]);
        const char *hash = mount_path(&mount, "%032zx", sizes[i]);
        cr_expect_eq(file_put(named, sizes[i], i), 0, "%zu", sizes[i]);
        cr_expect_eq(file_put(hash, sizes[i], i + 100), 0, "%zu", sizes[i]);
        cr_expect_eq(file_check(named, sizes[i], i), 0, "%zu", sizes[i]);
        cr_expect_eq(file_check(hash, sizes[i], i + 100), 0, "%zu", sizes[i]);
    }
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        cr_expect_eq(file_check(mount_path(&mount, "size %zu", sizes[i]), sizes[i], i), 0);
        cr_expect_eq(file_check(mount_path(&mount, "%032zx", sizes[i]), sizes[i], i + 100), 0);
    }
}

/* whole segments, which are kept where they were received, among other writes and cuts */

enum { REWRITTEN_MAX = 6 * MIB, REWRITES = 60 };

struct rewritten {
    const char *path;
    uint64_t seed;
};

static int rewrite_some(int fd, char *content, size_t *size, uint64_t *state) {
    static const size_t counts[] = {MIB, MIB, 3 * MIB, 4096, 5000, 1};
    size_t count = counts[random_next(state) % 6];
    size_t offset = random_next(state) % (REWRITTEN_MAX - count + 1);
    if (random_next(state) % 4)
        offset = offset / MIB * MIB;
    if (random_next(state) % 8 == 0) {
        if (ftruncate(fd, (off_t)offset) != 0)
            return complain("ftruncate");
        memset(content + offset, 0, *size > offset ? *size - offset : 0);
        *size = offset;
        return 0;
    }
    fill_pattern(content + offset, count, random_next(state), offset);
    if (pwrite(fd, content + offset, count, (off_t)offset) != (ssize_t)count)
        return complain("pwrite");
    *size = offset + count > *size ? offset + count : *size;
    return 0;
}

static int rewrite_a_large_file(void *argument) {
    const struct rewritten *file = argument;
    uint64_t state = file->seed;
    AUTO_FREE char *content = calloc(1, REWRITTEN_MAX), *read_back = malloc(REWRITTEN_MAX);
    size_t size = 0;
    AUTO_CLOSE int fd = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; i < REWRITES; i++) {
        if (rewrite_some(fd, content, &size, &state) != 0)
            return 1;
        if (pread(fd, read_back, REWRITTEN_MAX, 0) != (ssize_t)size ||
            memcmp(read_back, content, size) != 0)
            return complain("seed %lu, change %d: other bytes", file->seed, i);
        if (i % 10 == 9 && fsync(fd) != 0)
            return complain("fsync");
    }
    size_t published;
    AUTO_FREE char *bytes = file_read(file->path, &published);
    if (!bytes || published != size || memcmp(bytes, content, size) != 0)
        return complain("seed %lu: other bytes were published", file->seed);
    return 0;
}

Test(data, large_files_that_are_rewritten_before_their_close_are_what_was_written) {
    enum { FILES = 3 };
    uint64_t seed = random_seed();
    struct rewritten files[FILES];
    pid_t children[FILES];
    fprintf(stderr, "SEED=%lu\n", seed);
    for (int i = 0; i < FILES; i++) {
        char *path = strdup(mount_path(&mount, "large %d", i));
        files[i] = (struct rewritten){path, seed + (uint64_t)i};
        children[i] = child_start(rewrite_a_large_file, &files[i]);
    }
    for (int i = 0; i < FILES; i++)
        cr_expect_eq(child_wait(children[i], 50), 0);
    /* And from the disk they verify. */
    for (int i = 0; i < FILES; i++) {
        size_t before_bytes, after_bytes;
        AUTO_FREE char *before = file_read(files[i].path, &before_bytes);
        mount_stop(&mount);
        mount_start(&mount, "cold_start=load");
        AUTO_FREE char *after = file_read(files[i].path, &after_bytes);
        cr_expect(before && after && before_bytes == after_bytes &&
                  memcmp(before, after, after_bytes) == 0);
        free((char *)files[i].path);
    }
}

Test(data, a_file_that_is_too_large_fails_at_the_write_and_is_not_published) {
    const char *path = mount_path(&mount, "large");
    cr_assert_eq(file_put(path, 1000, 1), 0);
    int fd = open_new(path, O_WRONLY);
    cr_expect(pwrite(fd, "xx", 2, MAX_FILE - 1) < 0 && errno == EFBIG, "%s", strerror(errno));
    cr_expect(close(fd) != 0 && errno == EFBIG, "a failed write kills the handle");
    mount_wait_released(&mount);
    cr_expect_eq(file_check(path, 1000, 1), 0);
    cr_expect_geq(mount_counter(&mount, "rank0.too_large"), 1);
}

Test(data, writes_in_any_order_leave_zeros_between) {
    const char *path = mount_path(&mount, "holes");
    int fd = open_new(path, O_RDWR);
    cr_expect_eq(pwrite(fd, "end", 3, 3 * MIB), 3);
    cr_expect_eq(pwrite(fd, "start", 5, 0), 5);
    cr_expect_eq(pwrite(fd, "middle", 6, MIB + 5), 6);
    cr_expect_eq(lseek(fd, 0, SEEK_END), 3 * MIB + 3);
    close(fd);
    size_t bytes = 0;
    AUTO_FREE char *now = file_read(path, &bytes);
    cr_assert_eq(bytes, 3 * MIB + 3);
    cr_expect(!memcmp(now, "start", 5) && !memcmp(now + MIB + 5, "middle", 6) &&
              !memcmp(now + 3 * MIB, "end", 3));
    expect_zeros(now + 5, MIB);
    expect_zeros(now + MIB + 11, 2 * MIB - 11);
}

Test(data, ftruncate_first_and_writing_a_part_leaves_zeros) {
    const char *path = mount_path(&mount, "sized");
    int fd = open_new(path, O_RDWR);
    cr_expect_eq(ftruncate(fd, 200000), 0);
    cr_expect_eq(write(fd, "x", 1), 1);
    cr_expect_eq(ftruncate(fd, 100), 0);
    cr_expect_eq(ftruncate(fd, 150000), 0);
    close(fd);
    size_t bytes = 0;
    AUTO_FREE char *now = file_read(path, &bytes);
    cr_assert_eq(bytes, 150000);
    cr_expect_eq(now[0], 'x');
    expect_zeros(now + 1, bytes - 1);
}

Test(data, a_shrunk_and_grown_file_shows_no_old_bytes) {
    const char *path = mount_path(&mount, "shrunk");
    int fd = open_new(path, O_RDWR);
    AUTO_FREE char *bytes = malloc(300000);
    fill_pattern(bytes, 300000, 1, 0);
    cr_expect_eq(write(fd, bytes, 300000), 300000);
    cr_expect_eq(ftruncate(fd, 1000), 0);
    cr_expect_eq(pwrite(fd, "y", 1, 250000), 1);
    close(fd);
    size_t count = 0;
    AUTO_FREE char *now = file_read(path, &count);
    cr_assert_eq(count, 250001);
    cr_expect(is_pattern(now, 1000, 1, 0));
    expect_zeros(now + 1000, 249000);
}

Test(data, fallocate_grows_or_keeps_the_size) {
    int fd = open_new(mount_path(&mount, "allocated"), O_RDWR);
    cr_expect_eq(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 50000), 0, "%s", strerror(errno));
    struct stat st;
    cr_expect(fstat(fd, &st) == 0 && st.st_size == 0);
    cr_expect_eq(fallocate(fd, 0, 0, 50000), 0);
    cr_expect(fstat(fd, &st) == 0 && st.st_size == 50000);
    cr_expect(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
    cr_expect(fallocate(fd, 0, 0, MAX_FILE + 1) != 0 && errno == EFBIG, "%s", strerror(errno));
    close(fd);
}

Test(data, direct_io_takes_every_size_offset_and_address) {
    const char *path = mount_path(&mount, "direct");
    AUTO_FREE char *bytes = malloc(300000);
    int fd = open_new(path, O_RDWR | O_DIRECT);
    const size_t steps[] = {4096, 1000, 3, 65536, 131072 + 7, 512};
    size_t at = 0;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; at += steps[i++]) {
        fill_pattern(bytes + i, steps[i], 1, at); /* addresses of every alignment */
        cr_expect_eq(write(fd, bytes + i, steps[i]), (ssize_t)steps[i], "%s", strerror(errno));
    }
    close(fd);
    cr_expect_eq(file_check(path, at, 1), 0);
    AUTO_CLOSE int reader = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    cr_expect_eq(pread(reader, bytes + 64, 1001, 4099), 1001);
    cr_expect(is_pattern(bytes + 64, 1001, 1, 4099));
    cr_expect_eq(pread(reader, bytes + 1, at + 100, 0), (ssize_t)at);
    cr_expect(is_pattern(bytes + 1, at, 1, 0));
}

/* The size comes from a LOOKUP: only then the kernel sends the READs of one read at once. */
static void expect_direct_reads(const char *path, size_t size, uint64_t seed) {
    AUTO_FREE char *bytes = malloc(size + 2 * MIB);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    cr_expect_eq(read(fd, bytes + 1, size + MIB), (ssize_t)size);
    cr_expect(is_pattern(bytes + 1, size, seed, 0), "%zu bytes at once", size);
    cr_expect_eq(read(fd, bytes, MIB), 0);
    cr_expect_eq(pread(fd, bytes, MIB, (off_t)size + 4096), 0);
    for (size_t offset = size / 3, step = size / 2 + 3; step > 0; step /= 5) {
        size_t count = step < size - offset ? step : size - offset;
        cr_expect_eq(pread(fd, bytes + 7, step, (off_t)offset), (ssize_t)count);
        cr_expect(is_pattern(bytes + 7, count, seed, offset), "%zu bytes at %zu", step, offset);
    }
    char *mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    cr_expect(mapped != MAP_FAILED && is_pattern(mapped, size, seed, 0), "mapped");
    munmap(mapped, size);
    cr_expect_eq(fcntl(fd, F_SETFL, 0), 0);
    cr_expect_eq(file_check_fd(fd, size, seed), 0, "switched off later");
}

Test(data, direct_reads_of_what_was_found_are_whole_and_end_at_its_end) {
    const size_t sizes[] = {1, 278, 4096, 65537, MIB, 3 * MIB + 777, 9 * MIB + 1, MAX_FILE};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    for (size_t i = 0; i < SIZES; i++)
        cr_expect_eq(file_put(mount_path(&mount, "%032zx", sizes[i]), sizes[i], i), 0);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    for (size_t i = 0; i < SIZES; i++)
        expect_direct_reads(mount_path(&mount, "%032zx", sizes[i]), sizes[i], i);
    /* Written in this mount, and then found. */
    for (size_t i = 0; i < SIZES; i++) {
        const char *path = mount_path(&mount, "%032zx", sizes[i]);
        cr_expect_eq(file_put(path, sizes[i] - i, 100 + i), 0);
        expect_direct_reads(path, sizes[i] - i, 100 + i);
        expect_direct_reads(path, sizes[i] - i, 100 + i);
    }
}

Test(data, direct_io_can_be_switched_on_later) {
    const char *path = mount_path(&mount, "fcntl");
    int fd = open_new(path, O_RDWR);
    cr_expect_eq(write(fd, "ab", 2), 2);
    cr_expect_eq(fcntl(fd, F_SETFL, O_DIRECT), 0, "%s", strerror(errno));
    cr_expect_eq(write(fd, "cd", 2), 2);
    close(fd);
    cr_expect(file_is_text(path, "abcd"));
}

Test(data, vectors_and_single_large_reads_are_never_short) {
    const char *path = mount_path(&mount, "vectors");
    enum { BYTES = 9 * MIB + 123 };
    AUTO_FREE char *bytes = malloc(BYTES);
    fill_pattern(bytes, BYTES, 1, 0);
    struct iovec vector[] = {{bytes, 28}, {bytes + 28, 3 * MIB}, {bytes + 28 + 3 * MIB, 0}};
    vector[2].iov_len = BYTES - 28 - 3 * MIB;
    int fd = open_new(path, O_WRONLY);
    cr_expect_eq(writev(fd, vector, 3), BYTES);
    close(fd);
    memset(bytes, 0, BYTES);
    AUTO_CLOSE int reader = open(path, O_RDONLY | O_CLOEXEC);
    cr_expect_eq(read(reader, bytes, BYTES), BYTES);
    cr_expect(is_pattern(bytes, BYTES, 1, 0));
    memset(bytes, 0, BYTES);
    cr_expect_eq(preadv(reader, vector, 3, 0), BYTES);
    cr_expect(is_pattern(bytes, BYTES, 1, 0));
    cr_expect_eq(pread(reader, bytes, 100, BYTES - 50), 50);
    cr_expect_eq(pread(reader, bytes, 100, BYTES + 50), 0);
}

Test(data, appenders_share_one_handle_in_order) {
    const char *path = mount_path(&mount, "append");
    int fd = open(path, O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600);
    cr_expect_eq(write(fd, "ab", 2), 2);
    cr_expect_eq(pwrite(fd, "cd", 2, 0), 2, "O_APPEND wins over the offset");
    close(fd);
    fd = open(path, O_APPEND | O_WRONLY | O_CLOEXEC);
    cr_expect_eq(write(fd, "ef", 2), 2);
    close(fd);
    cr_expect(file_is_text(path, "abcdef"));
}

Test(data, mappings_read_the_file_shared_and_private) {
    const char *path = mount_path(&mount, "mapped");
    cr_assert_eq(file_put(path, 2 * MIB + 77, 1), 0);
    AUTO_CLOSE int reader = open(path, O_RDONLY | O_CLOEXEC);
    const int kinds[] = {MAP_PRIVATE, MAP_SHARED, MAP_PRIVATE | MAP_POPULATE};
    for (int i = 0; i < 3; i++) {
        char *bytes = mmap(NULL, 2 * MIB + 77, PROT_READ, kinds[i], reader, 0);
        cr_assert_neq(bytes, MAP_FAILED, "kind %d: %s", i, strerror(errno));
        cr_expect(is_pattern(bytes, 2 * MIB + 77, 1, 0));
        munmap(bytes, 2 * MIB + 77);
    }
}

Test(data, msync_publishes_what_was_written_through_a_mapping) {
    const char *path = mount_path(&mount, "synced");
    int fd = open_new(path, O_RDWR);
    cr_expect_eq(ftruncate(fd, 100000), 0);
    char *bytes = mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(bytes, MAP_FAILED, "%s", strerror(errno));
    fill_pattern(bytes, 100000, 1, 0);
    cr_expect_eq(file_open_result(path, O_RDONLY), -ENOENT);
    cr_expect_eq(msync(bytes, 100000, MS_SYNC), 0, "%s", strerror(errno));
    cr_expect_eq(file_check(path, 100000, 1), 0);
    munmap(bytes, 100000);
    close(fd);
    mount_wait_released(&mount);
    cr_expect_eq(file_check(path, 100000, 1), 0);
}

Test(data, things_that_are_not_files_are_refused) {
    const char *path = mount_path(&mount, "file"), *other = mount_path(&mount, "other");
    cr_assert_eq(file_put(path, 10, 1), 0);
    cr_expect(link(path, other) != 0 && errno == EPERM, "link: %s", strerror(errno));
    cr_expect(symlink(path, other) != 0 && errno == EPERM, "symlink: %s", strerror(errno));
    cr_expect(mkfifo(other, 0600) != 0 && errno == EPERM, "mkfifo: %s", strerror(errno));
    cr_expect_eq(file_size(other), -ENOENT);
}
