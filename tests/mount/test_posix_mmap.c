/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings: kinds, ends of files, and what happens to a mapped file by name meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"

#define HASH "00112233445566778899aabbccddeeff"
enum { PAGE = 4096, BYTES = 100 * PAGE + 123 };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_mmap, .init = open_mount, .fini = close_mount, .timeout = 60);

static const char *published(const char *name) {
    const char *path = mount_path(&mount, "%s", name);
    cr_assert_eq(file_put(path, BYTES, 1), 0);
    return path;
}

static char *map(const char *path, int open_flags, int protection, int flags, size_t bytes) {
    AUTO_CLOSE int fd = open(path, open_flags | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    char *mapped = mmap(NULL, bytes, protection, flags, fd, 0);
    cr_assert_neq(mapped, MAP_FAILED, "%s: %s", path, strerror(errno));
    return mapped;
}

static sigjmp_buf escape;

static void on_bus_error(int signal) {
    siglongjmp(escape, signal);
}

/* The signal that reading there raises; 0: none. */
static int read_raises(const volatile char *address) {
    struct sigaction action = {.sa_handler = on_bus_error}, before;
    sigaction(SIGBUS, &action, &before);
    int raised = sigsetjmp(escape, 1);
    if (raised == 0)
        (void)*address;
    sigaction(SIGBUS, &before, NULL);
    return raised;
}

Test(posix_mmap, the_last_page_ends_in_zeros_and_beyond_it_is_SIGBUS) {
    const char *path = published("file");
    const int kinds[] = {MAP_PRIVATE, MAP_SHARED};
    for (int i = 0; i < 2; i++) {
        char *mapped = map(path, O_RDONLY, PROT_READ, kinds[i], 110 * PAGE);
        cr_expect(is_pattern(mapped, BYTES, 1, 0));
        for (size_t at = BYTES; at < 101 * PAGE; at++)
            cr_assert_eq(mapped[at], 0, "byte %zu", at);
        cr_expect_eq(read_raises(mapped + 102 * PAGE), SIGBUS);
        munmap(mapped, 110 * PAGE);
    }
}

Test(posix_mmap, protections_follow_the_way_it_was_opened) {
    const char *path = published("file");
    AUTO_CLOSE int reader = open(path, O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int writer = open(path, O_WRONLY | O_CLOEXEC);
    const int both = PROT_READ | PROT_WRITE;
    cr_expect(mmap(NULL, BYTES, both, MAP_SHARED, reader, 0) == MAP_FAILED && errno == EACCES);
    cr_expect(mmap(NULL, BYTES, PROT_READ, MAP_SHARED, writer, 0) == MAP_FAILED && errno == EACCES);
    cr_expect(mmap(NULL, BYTES, both, MAP_SHARED, reader, 1) == MAP_FAILED && errno == EINVAL);
    cr_expect(mmap(NULL, 0, PROT_READ, MAP_SHARED, reader, 0) == MAP_FAILED && errno == EINVAL);
    char *mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, reader, 0);
    cr_assert_neq(mapped, MAP_FAILED);
    cr_expect(mprotect(mapped, BYTES, both) < 0 && errno == EACCES);
    munmap(mapped, BYTES);
}

Test(posix_mmap, a_private_one_can_be_written_and_the_file_does_not_change) {
    const char *path = published("file");
    char *mapped = map(path, O_RDONLY, PROT_READ | PROT_WRITE, MAP_PRIVATE, BYTES);
    memset(mapped, 'x', BYTES);
    munmap(mapped, BYTES);
    cr_expect_eq(file_check(path, BYTES, 1), 0);
}

Test(posix_mmap, shared_writes_are_published_when_the_last_of_map_and_descriptor_is_gone) {
    for (int close_first = 0; close_first < 2; close_first++) {
        const char *path = mount_path(&mount, "file-%d", close_first);
        int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        cr_assert_eq(ftruncate(fd, BYTES), 0);
        char *mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        cr_assert_neq(mapped, MAP_FAILED, "%s", strerror(errno));
        if (close_first)
            close(fd);
        fill_pattern(mapped, BYTES, 7, 0);
        munmap(mapped, BYTES);
        if (!close_first)
            close(fd);
        mount_wait_released(&mount);
        cr_expect_eq(file_check(path, BYTES, 7), 0, "%d", close_first);
    }
}

/* RELEASE publishes what was written through a mapping, and comes a moment after close (P3). */
Test(posix_mmap, an_open_right_after_the_close_gets_what_was_written) {
    const int ways[] = {O_RDONLY, O_RDWR};
    for (int i = 0; i < 200; i++) {
        const char *path = published("file");
        char *mapped = map(path, O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED, BYTES);
        memset(mapped, 'm', 1);
        munmap(mapped, BYTES);
        AUTO_CLOSE int fd = open(path, ways[i % 2] | O_CLOEXEC);
        char first = 0;
        cr_assert_eq(pread(fd, &first, 1, 0), 1);
        cr_assert_eq(first, 'm', "round %d", i);
    }
}

Test(posix_mmap, a_truncation_by_name_right_after_the_close_cuts_what_was_written) {
    for (int i = 0; i < 200; i++) {
        const char *path = published("file");
        char *mapped = map(path, O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED, BYTES);
        memset(mapped, 'm', BYTES);
        munmap(mapped, BYTES);
        cr_assert_eq(truncate(path, BYTES / 2), 0, "%s", strerror(errno));
        size_t bytes;
        AUTO_FREE char *content = file_read(path, &bytes);
        cr_assert(content && bytes == BYTES / 2, "round %d", i);
        size_t right = 0;
        while (right < bytes && content[right] == 'm')
            right++;
        cr_assert_eq(right, bytes, "round %d", i);
    }
}

Test(posix_mmap, two_of_one_descriptor_and_its_reads_and_writes_see_each_other) {
    int fd = open(mount_path(&mount, "file"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    cr_assert_eq(ftruncate(fd, 2 * PAGE), 0);
    char *one = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *two = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert(one != MAP_FAILED && two != MAP_FAILED);
    memcpy(one + PAGE, "mapped", 6);
    cr_expect_eq(memcmp(two + PAGE, "mapped", 6), 0);
    cr_expect_eq(msync(one, 2 * PAGE, MS_SYNC), 0);
    char room[8] = "";
    cr_expect_eq(pread(fd, room, 6, PAGE), 6);
    cr_expect_str_eq(room, "mapped");
    cr_expect_eq(pwrite(fd, "written", 7, PAGE), 7);
    cr_expect_eq(memcmp(two + PAGE, "written", 7), 0, "a write shows in the mapping");
    munmap(one, 2 * PAGE);
    munmap(two, 2 * PAGE);
    close(fd);
}

Test(posix_mmap, advice_populate_remap_and_msync_change_no_byte) {
    const char *path = published("file");
    char *mapped = map(path, O_RDONLY, PROT_READ, MAP_SHARED | MAP_POPULATE, 101 * PAGE);
    const int advice[] = {MADV_SEQUENTIAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED, MADV_NORMAL};
    for (size_t i = 0; i < sizeof advice / sizeof advice[0]; i++) {
        cr_expect_eq(madvise(mapped, 101 * PAGE, advice[i]), 0, "advice %d", advice[i]);
        cr_expect(is_pattern(mapped, BYTES, 1, 0), "advice %d", advice[i]);
    }
    cr_expect_eq(msync(mapped, 101 * PAGE, MS_ASYNC), 0);
    cr_expect_eq(msync(mapped, 101 * PAGE, MS_SYNC | MS_INVALIDATE), 0);
    mapped = mremap(mapped, 101 * PAGE, 50 * PAGE, MREMAP_MAYMOVE);
    cr_assert_neq(mapped, MAP_FAILED);
    mapped = mremap(mapped, 50 * PAGE, 101 * PAGE, MREMAP_MAYMOVE);
    cr_assert_neq(mapped, MAP_FAILED);
    cr_expect(is_pattern(mapped, BYTES, 1, 0));
    munmap(mapped, 101 * PAGE);
}

Test(posix_mmap, a_mapped_file_keeps_its_bytes_when_its_name_goes_or_changes) {
    const char *const names[] = {"file", HASH};
    for (int i = 0; i < 2; i++) {
        const char *path = published(names[i]), *other = mount_path(&mount, "other");
        char *mapped[3];
        mapped[0] = map(path, O_RDONLY, PROT_READ, MAP_SHARED, BYTES);
        cr_expect_eq(file_put(path, BYTES, 2), 0);
        mapped[1] = map(path, O_RDONLY, PROT_READ, MAP_PRIVATE, BYTES);
        cr_expect_eq(file_put(other, BYTES, 3), 0);
        cr_expect_eq(rename(other, path), 0);
        mapped[2] = map(path, O_RDONLY, PROT_READ, MAP_SHARED, BYTES);
        cr_expect_eq(unlink(path), 0);
        mount_commit(&mount);
        for (uint64_t seed = 1; seed <= 3; seed++) {
            madvise(mapped[seed - 1], BYTES, MADV_DONTNEED); /* faulted in again */
            cr_expect(is_pattern(mapped[seed - 1], BYTES, seed, 0), "version %lu", seed);
            munmap(mapped[seed - 1], BYTES);
        }
    }
}

static int read_mapping(void *mapped) {
    return is_pattern(mapped, BYTES, 1, 0) ? 0 : complain("the mapping is something else");
}

Test(posix_mmap, a_child_reads_its_parents_mapping) {
    char *mapped = map(published("file"), O_RDONLY, PROT_READ, MAP_SHARED, BYTES);
    cr_expect(child_succeeds(read_mapping, mapped, 20));
    munmap(mapped, BYTES);
}

Test(posix_mmap, a_copy_from_one_mapping_to_another_by_write_is_whole) {
    const char *path = published("file"), *to = mount_path(&mount, "copy");
    char *mapped = map(path, O_RDONLY, PROT_READ, MAP_SHARED, BYTES);
    int fd = open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_expect_eq(write(fd, mapped, BYTES), BYTES, "%s", strerror(errno));
    close(fd);
    munmap(mapped, BYTES);
    cr_expect_eq(file_check(to, BYTES, 1), 0);
}
