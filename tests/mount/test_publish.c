/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other processes see of a file while it is written (P1–P3, P5), for named files and for hash
 * names: the old version or nothing until a close or an fsync, then the whole new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"

enum { PAGE = 300000, HALF = 150000 };
static const char *const names[] = {"page.bin", "00112233445566778899aabbccddeeff"};
enum { NAMES = sizeof names / sizeof names[0] };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 8});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(publish, .init = open_mount, .fini = close_mount, .timeout = 60);

static int open_new(const char *path) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    return fd;
}

static void write_part(int fd, size_t from, size_t to, uint64_t seed) {
    AUTO_FREE char *bytes = malloc(to - from);
    fill_pattern(bytes, to - from, seed, from);
    cr_assert_eq(pwrite(fd, bytes, to - from, (off_t)from), (ssize_t)(to - from));
}

static int check_in_other_process(void *path) {
    return file_check(path, PAGE, 2) == 0 ? 0 : complain("%s is not whole", (char *)path);
}

Test(publish, a_half_written_file_is_absent_until_it_is_closed) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int fd = open_new(path);
        write_part(fd, 0, HALF, 2);
        cr_expect_eq(file_open_result(path, O_RDONLY), -ENOENT);
        cr_expect_eq(file_size(path), HALF, "a staged file answers stat");
        cr_expect_eq(directory_count_name(mount.rank, names[i]), 0, "and is not listed");
        write_part(fd, HALF, PAGE, 2);
        cr_expect_eq(file_open_result(path, O_RDONLY), -ENOENT);
        cr_expect_eq(close(fd), 0);
        cr_expect_eq(file_check(path, PAGE, 2), 0);
        cr_expect(child_succeeds(check_in_other_process, (void *)path, 20));
        cr_expect_eq(directory_count_name(mount.rank, names[i]), 1);
    }
}

Test(publish, the_old_version_is_served_until_the_new_one_is_closed) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, 5000, 1), 0);
        int fd = open_new(path);
        cr_expect_eq(file_check(path, 5000, 1), 0, "after O_TRUNC");
        write_part(fd, 0, HALF, 2);
        cr_expect_eq(file_check(path, 5000, 1), 0, "half-way");
        cr_expect_eq(directory_count_name(mount.rank, names[i]), 1);
        write_part(fd, HALF, PAGE, 2);
        close(fd);
        cr_expect_eq(file_check(path, PAGE, 2), 0);
    }
}

Test(publish, a_reader_keeps_the_version_that_it_opened) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, PAGE, 1), 0);
        AUTO_CLOSE int reader = open(path, O_RDONLY | O_CLOEXEC);
        char *mapped = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, reader, 0);
        cr_assert_neq(mapped, MAP_FAILED, "%s", strerror(errno));
        for (uint64_t seed = 2; seed < 6; seed++)
            cr_assert_eq(file_put(path, HALF, seed), 0);
        cr_expect_eq(file_check_fd(reader, PAGE, 1), 0);
        cr_expect(is_pattern(mapped, PAGE, 1, 0));
        struct stat st;
        cr_expect(fstat(reader, &st) == 0 && st.st_size == PAGE);
        munmap(mapped, PAGE);
        cr_expect_eq(file_check(path, HALF, 5), 0);
    }
}

Test(publish, of_two_writers_the_last_to_close_wins_whole) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int first = open_new(path), second = open_new(path);
        write_part(first, 0, HALF, 1);
        write_part(second, 0, PAGE, 2);
        write_part(first, HALF, PAGE, 1);
        close(second);
        cr_expect_eq(file_check(path, PAGE, 2), 0);
        close(first);
        cr_expect_eq(file_check(path, PAGE, 1), 0);
    }
}

Test(publish, without_truncation_a_writer_starts_from_the_old_version) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, PAGE, 1), 0);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        cr_assert_geq(fd, 0, "%s", strerror(errno));
        cr_expect_eq(file_check_fd(fd, PAGE, 1), 0, "it is also a get");
        char before = 0, after = 0;
        cr_expect_eq(pwrite(fd, "#", 1, HALF), 1);
        cr_expect_eq(pread(fd, &after, 1, HALF), 1);
        cr_expect_eq(after, '#', "it reads what it wrote");
        cr_expect_eq(file_check(path, PAGE, 1), 0, "others do not yet");
        close(fd);
        AUTO_CLOSE int reader = open(path, O_RDONLY | O_CLOEXEC);
        cr_expect_eq(pread(reader, &after, 1, HALF), 1);
        cr_expect_eq(after, '#');
        fill_pattern(&before, 1, 1, HALF - 1);
        cr_expect_eq(pread(reader, &after, 1, HALF - 1), 1);
        cr_expect_eq(after, before);
    }
}

Test(publish, opening_for_writing_and_not_writing_publishes_nothing) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, PAGE, 1), 0);
        uint64_t publishes = mount_counter(&mount, "rank0.publishes");
        int fd = open(path, O_RDWR | O_CLOEXEC);
        cr_expect_eq(file_check_fd(fd, PAGE, 1), 0);
        cr_expect_eq(close(fd), 0);
        mount_wait_released(&mount);
        cr_expect_eq(mount_counter(&mount, "rank0.publishes"), publishes);
        cr_expect_eq(file_check(path, PAGE, 1), 0);
    }
}

Test(publish, fsync_publishes_what_is_written_so_far) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int fd = open_new(path);
        write_part(fd, 0, HALF, 2);
        cr_expect_eq(fsync(fd), 0);
        cr_expect_eq(file_check(path, HALF, 2), 0);
        write_part(fd, HALF, PAGE, 2);
        cr_expect_eq(file_check(path, HALF, 2), 0);
        close(fd);
        cr_expect_eq(file_check(path, PAGE, 2), 0);
    }
}

Test(publish, unlink_cancels_the_writer_whose_close_succeeds) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int fd = open_new(path);
        write_part(fd, 0, PAGE, 2);
        cr_expect_eq(unlink(path), 0);
        cr_expect_eq(file_size(path), -ENOENT);
        cr_expect_eq(close(fd), 0);
        mount_wait_released(&mount);
        cr_expect_eq(file_open_result(path, O_RDONLY), -ENOENT);
        cr_expect_eq(directory_count_name(mount.rank, names[i]), 0);
    }
}

Test(publish, a_cancelled_writer_does_not_disturb_the_next_file_of_that_name) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int fd = open_new(path);
        write_part(fd, 0, PAGE, 1);
        cr_expect_eq(unlink(path), 0);
        cr_expect_eq(file_put(path, HALF, 2), 0);
        close(fd);
        mount_wait_released(&mount);
        cr_expect_eq(file_check(path, HALF, 2), 0);
    }
}

/* 5000 bytes, shared. */
static char *map_new(const char *path, int *ret_fd) {
    *ret_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_geq(*ret_fd, 0);
    cr_assert_eq(ftruncate(*ret_fd, 5000), 0);
    char *map = mmap(NULL, 5000, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
    cr_assert_neq(map, MAP_FAILED);
    return map;
}

/* RELEASE comes when the mapping goes: long after the close, and after what others wrote since. */
Test(publish, what_was_written_after_a_close_is_not_undone_by_its_release) {
    const char *path = mount_path(&mount, "file");
    for (int mapped = 0; mapped < 2; mapped++) {
        int fd;
        char *map = map_new(path, &fd);
        if (mapped)
            memset(map, 'm', 5000);
        cr_assert_eq(close(fd), 0);
        cr_assert_eq(file_put(path, 3000, 7), 0);
        cr_assert_eq(munmap(map, 5000), 0);
        mount_wait_released(&mount);
        cr_expect_eq(file_check(path, 3000, 7), 0, "%s", mapped ? "written map" : "size only");
    }
}

/* The old version that the new name has until then is no newer one. */
Test(publish, a_release_after_a_rename_publishes_under_the_new_name) {
    const char *path = mount_path(&mount, "target"), *temp = mount_path(&mount, "target.tmp");
    for (uint64_t round = 1; round < 4; round++) {
        int fd;
        char *map = map_new(temp, &fd);
        fill_pattern(map, 5000, round, 0);
        cr_assert_eq(close(fd), 0);
        cr_assert_eq(rename(temp, path), 0);
        if (round > 1)
            cr_expect_eq(file_check(path, 5000, round - 1), 0);
        cr_assert_eq(munmap(map, 5000), 0);
        mount_wait_released(&mount);
        cr_expect_eq(file_check(path, 5000, round), 0);
    }
}

Test(publish, an_exclusive_create_fails_for_a_staged_and_for_a_published_name) {
    const int flags = O_CREAT | O_EXCL | O_WRONLY;
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        int fd = open(path, flags | O_CLOEXEC, 0600);
        cr_assert_geq(fd, 0, "%s", strerror(errno));
        write_part(fd, 0, PAGE, 1);
        cr_expect_eq(file_open_result(path, flags), -EEXIST);
        close(fd);
        cr_expect_eq(file_open_result(path, flags), -EEXIST);
        cr_expect_eq(file_check(path, PAGE, 1), 0);
    }
}

/* a file that is opened right after its creation */

struct loop {
    unsigned threads, processes, rounds;
};

static int create_close_and_open(void *argument) {
    const struct loop *loop = argument;
    for (unsigned i = 0; i < loop->rounds; i++) {
        const char *path = mount_path(&mount, "bare-%d-%u", getpid(), i);
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0)
            return complain("creating %s", path);
        if (i % 3 == 1 && ftruncate(fd, 100) != 0)
            return complain("ftruncate");
        if (i % 3 == 2 && write(fd, "w", 1) != 1)
            return complain("write");
        close(fd);
        off_t expected = i % 3 == 1 ? 100 : i % 3 == 2 ? 1 : 0;
        int reader = open(path, O_RDONLY | O_CLOEXEC);
        struct stat st;
        if (reader < 0 || fstat(reader, &st) != 0 || st.st_size != expected)
            return complain("round %u: opening %s", i, path);
        close(reader);
        if (unlink(path) != 0)
            return complain("unlink");
    }
    return 0;
}

ParameterizedTestParameters(publish_bare, create_close_open_never_misses) {
    static struct loop loops[] = {{1, 1, 1500}, {1, 4, 400}, {8, 1, 1500}, {8, 4, 750}};
    return cr_make_param_array(struct loop, loops, sizeof loops / sizeof loops[0]);
}

ParameterizedTest(struct loop *loop, publish_bare, create_close_open_never_misses,
                  .fini = close_mount, .timeout = 60) {
    mount_open(&mount, &(struct mount_settings){.threads = loop->threads});
    pid_t children[8];
    for (unsigned i = 0; i < loop->processes; i++)
        children[i] = child_start(create_close_and_open, loop);
    for (unsigned i = 0; i < loop->processes; i++)
        cr_expect_eq(child_wait(children[i], 50), 0, "%u workers, %u processes", loop->threads,
                     loop->processes);
}
