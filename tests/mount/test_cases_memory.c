/* SPDX-License-Identifier: Apache-2.0 */
/* RAM that is not ours to take: the page cache stays as it is, and page faults of many threads on
 * large mapped pages never wait for each other for good. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 8});
}
static void open_small_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 8, .size = "64M"});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(cases_memory, .init = open_mount, .fini = close_mount, .timeout = 100);
TestSuite(cases_page_cache, .init = open_small_mount, .fini = close_mount, .timeout = 60);

/* the page cache */

enum { SYS_CACHESTAT = 451, PAGE = 1 << 20, PAGES = 192, OLDEST_KEPT = 160 };

/* Pages of the file that the kernel holds, as cachestat(2) of Linux 6.5 tells. */
static uint64_t cached_pages(const char *path) {
    struct {
        uint64_t offset, bytes;
    } whole = {0, 0};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } found;
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    if (syscall(SYS_CACHESTAT, fd, &whole, &found, 0) != 0 && errno == ENOSYS)
        cr_skip_test("this kernel has no cachestat");
    return found.cached;
}

static uint64_t cached_pages_of_slabs(void) {
    char pattern[400];
    uint64_t pages = 0;
    glob_t slabs;
    snprintf(pattern, sizeof pattern, "%s/rank0/*.slab", mount.store);
    cr_assert_eq(glob(pattern, 0, NULL, &slabs), 0);
    for (size_t i = 0; i < slabs.gl_pathc; i++)
        pages += cached_pages(slabs.gl_pathv[i]);
    globfree(&slabs);
    return pages;
}

static bool takes_direct_io(void) {
    char path[400];
    snprintf(path, sizeof path, "%s/probe", mount.base);
    char *block = aligned_alloc(4096, 4096);
    AUTO_CLOSE int fd = open(path, O_CREAT | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    bool taken =
        fd >= 0 && write(fd, memset(block, 1, 4096), 4096) == 4096 && cached_pages(path) == 0;
    unlink(path);
    free(block);
    return taken;
}

Test(cases_page_cache, holds_nothing_of_three_times_the_capacity) {
    char buffered[400];
    snprintf(buffered, sizeof buffered, "%s/buffered", mount.base);
    cr_assert_eq(file_put(buffered, PAGE, 1), 0);
    cr_assert_gt(cached_pages(buffered), 0, "what would be seen");
    if (!takes_direct_io())
        cr_skip_test("the store's file system caches what is written directly");
    for (unsigned i = 0; i < PAGES; i++)
        cr_assert_eq(file_put(mount_path(&mount, "page-%u", i), PAGE, i), 0);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    for (unsigned i = OLDEST_KEPT; i < PAGES; i++) {
        const char *path = mount_path(&mount, "page-%u", i);
        cr_assert_eq(file_check(path, PAGE, i), 0);
        cr_expect_eq(cached_pages(path), 0, "%s", path);
    }
    cr_expect_eq(cached_pages_of_slabs(), 0);
}

/* mapped by many */

enum { LARGE = 15 << 20, LARGE_FILES = 3, FAULTING = 64, WRITING = 4, STEP = 256 << 10 };

static atomic_bool over;
static atomic_uint rounds;
static atomic_uint wrong;

static const char *large(unsigned i) {
    return mount_path(&mount, "large-%u", i);
}

/* Maps a file that the kernel does not hold any more and looks at some of its pages. */
static bool fault_once(unsigned i, unsigned first) {
    int fd = open(large(i), O_RDONLY | O_CLOEXEC);
    char *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, LARGE, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return false;
    bool right = true;
    for (size_t at = first * 4096; right && at + 64 <= LARGE; at += STEP)
        right = is_pattern(mapped + at, 64, i, at);
    munmap(mapped, LARGE);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return right;
}

static void *fault(void *argument) {
    unsigned me = (unsigned)(uintptr_t)argument;
    for (unsigned i = me; i == me || !over; i++) {
        wrong += !fault_once(i % LARGE_FILES, i % 64);
        rounds++;
    }
    return NULL;
}

static void *write_meanwhile(void *argument) {
    uintptr_t me = (uintptr_t)argument;
    for (unsigned i = 0; i == 0 || !over; i++)
        wrong += file_put(mount_path(&mount, "%lu-%u", me, i % 50), STEP, i) != 0;
    return NULL;
}

Test(cases_memory, many_threads_that_fault_large_mappings_and_writers_all_get_on) {
    pthread_t threads[FAULTING + WRITING];
    for (unsigned i = 0; i < LARGE_FILES; i++)
        cr_assert_eq(file_put(large(i), LARGE, i), 0);
    mount_commit(&mount);
    for (uintptr_t i = 0; i < FAULTING + WRITING; i++)
        cr_assert_eq(
            pthread_create(&threads[i], NULL, i < FAULTING ? fault : write_meanwhile, (void *)i),
            0);
    cr_expect(WAIT_UNTIL(rounds >= 2 * FAULTING, 60), "%u rounds", rounds);
    over = true;
    for (unsigned i = 0; i < FAULTING + WRITING; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(wrong, 0, "%u errors or wrong bytes", wrong);
}
