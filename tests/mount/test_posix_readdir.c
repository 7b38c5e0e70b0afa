/* SPDX-License-Identifier: Apache-2.0 */
/* Listings by getdents64 with any buffer, under eight threads of change, and their inode numbers.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"

enum { NAMES = 300, CHANGERS = 8, ROUNDS = 12, OFFSET_OF_NAME = 19, LONGEST_ENTRY = 280 };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 8});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_readdir, .init = open_mount, .fini = close_mount, .timeout = 60);

static void put_names(const char *format) {
    for (int i = 0; i < NAMES; i++) {
        char name[64];
        snprintf(name, sizeof name, format, i);
        cr_assert_eq(file_put(mount_path(&mount, "%s", name), 10, 1), 0, "%s", name);
    }
}

struct entry {
    uint64_t number;
    uint64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

static ssize_t get_entries(int fd, void *room, size_t bytes) {
    ssize_t n = syscall(SYS_getdents64, fd, room, bytes);
    return n < 0 ? -errno : n;
}

/* How often each of kept-0, kept-1 … is listed, with so large a buffer. */
static void count_kept(size_t room_bytes, unsigned seen[NAMES]) {
    AUTO_CLOSE int fd = open(mount.rank, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FREE char *room = malloc(room_bytes);
    ssize_t n;
    while ((n = get_entries(fd, room, room_bytes)) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct entry *entry = (const void *)(room + at);
            unsigned i;
            if (sscanf(entry->name, "kept-%u", &i) == 1 && i < NAMES)
                seen[i]++;
            at += entry->bytes;
        }
    }
    cr_expect_eq(n, 0, "getdents64 with %zu bytes: %s", room_bytes, strerror((int)-n));
}

Test(posix_readdir, a_buffer_of_any_size_gives_each_name_once) {
    const size_t rooms[] = {LONGEST_ENTRY, 300, 333, 512, 1000, 4096, 32768, 1 << 20};
    put_names("kept-%d");
    for (size_t k = 0; k < sizeof rooms / sizeof rooms[0]; k++) {
        unsigned seen[NAMES] = {0};
        count_kept(rooms[k], seen);
        for (int i = 0; i < NAMES; i++)
            cr_assert_eq(seen[i], 1, "%zu bytes: kept-%d %u times", rooms[k], i, seen[i]);
    }
}

Test(posix_readdir, a_buffer_that_holds_no_entry_is_EINVAL_and_loses_nothing) {
    put_names("kept-%d");
    AUTO_CLOSE int fd = open(mount.rank, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char room[LONGEST_ENTRY];
    cr_expect_eq(get_entries(fd, room, OFFSET_OF_NAME), -EINVAL);
    int count = 0;
    for (ssize_t n; (n = get_entries(fd, room, sizeof room)) > 0;)
        for (ssize_t at = 0; at < n; at += ((const struct entry *)(void *)(room + at))->bytes)
            count++;
    cr_expect_eq(count, NAMES + 2, "with . and ..");
}

static atomic_bool stop;

static void *change_names(void *argument) {
    unsigned me = (unsigned)(uintptr_t)argument;
    int wrong = 0;
    for (unsigned i = 0; !atomic_load(&stop) && !wrong; i++) {
        const char *path = mount_path(&mount, i % 2 ? "changing-%u-%u" : "%08x%08x", me, i % 40);
        const char *moved = mount_path(&mount, "moved-%u-%u", me, i % 40);
        wrong = file_put(path, 10, 1) != 0;
        if (i % 3 == 0)
            wrong |= rename(path, moved) != 0 || unlink(moved) != 0;
        else
            wrong |= unlink(path) != 0;
    }
    return (void *)(uintptr_t)wrong;
}

Test(posix_readdir, names_that_stay_are_listed_once_while_eight_threads_change_others) {
    pthread_t threads[CHANGERS];
    put_names("kept-%d");
    for (uintptr_t i = 0; i < CHANGERS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, change_names, (void *)i), 0);
    for (int round = 0; round < ROUNDS; round++) {
        unsigned seen[NAMES] = {0};
        count_kept(round % 2 ? 32768 : 512, seen);
        for (int i = 0; i < NAMES; i++)
            cr_expect_eq(seen[i], 1, "round %d: kept-%d %u times", round, i, seen[i]);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < CHANGERS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        cr_expect_null(wrong, "changer %d", i);
    }
    mount_wait_released(&mount);
    cr_expect_eq(directory_count(mount.rank), NAMES);
}

/* numbers */

static uint64_t number_in(const char *directory, const char *name) {
    AUTO_CLOSEDIR DIR *dir = opendir(directory);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (!strcmp(entry->d_name, name))
            return entry->d_ino;
    return 0;
}

static uint64_t number_of(const char *path) {
    struct stat st;
    cr_assert_eq(stat(path, &st), 0, "%s: %s", path, strerror(errno));
    return st.st_ino;
}

Test(posix_readdir, the_dots_have_the_numbers_of_what_they_name) {
    const char *outer = mount_path(&mount, "outer"), *inner = mount_path(&mount, "outer/inner");
    cr_assert_eq(mkdir(outer, 0700), 0);
    cr_assert_eq(mkdir(inner, 0700), 0);
    cr_expect_eq(number_in(inner, "."), number_of(inner));
    cr_expect_eq(number_in(inner, ".."), number_of(outer));
    cr_expect_eq(number_in(outer, ".."), number_of(mount.rank));
    cr_expect_eq(number_in(mount.rank, ".."), number_of(mount.point));
    cr_expect_eq(number_of(mount_path(&mount, "outer/..")), number_of(mount.rank));
    cr_expect_eq(rename(inner, mount_path(&mount, "moved")), 0);
    cr_expect_eq(number_in(mount_path(&mount, "moved"), ".."), number_of(mount.rank));
}

Test(posix_readdir, a_file_keeps_its_number_over_rename_overwrite_and_load) {
    const char *path = mount_path(&mount, "file"), *moved = mount_path(&mount, "moved");
    cr_assert_eq(file_put(path, 10, 1), 0);
    uint64_t number = number_of(path);
    cr_expect_eq(rename(path, moved), 0);
    cr_expect_eq(number_of(moved), number);
    cr_expect_eq(file_put(moved, 20, 2), 0);
    cr_expect_eq(number_of(moved), number);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    cr_expect_eq(number_of(moved), number);
    cr_expect_eq(number_in(mount.rank, "moved"), number);
}

static int compare_numbers(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

Test(posix_readdir, no_two_names_share_a_number) {
    uint64_t numbers[2 * NAMES];
    put_names("kept-%d");
    put_names("%016x");
    for (int i = 0; i < NAMES; i++) {
        numbers[2 * i] = number_of(mount_path(&mount, "kept-%d", i));
        numbers[2 * i + 1] = number_of(mount_path(&mount, "%016x", i));
    }
    qsort(numbers, 2 * NAMES, sizeof numbers[0], compare_numbers);
    for (int i = 1; i < 2 * NAMES; i++)
        cr_expect_neq(numbers[i], numbers[i - 1]);
}

Test(posix_readdir, find_and_ls_go_through_directories_whatever_their_link_count) {
    cr_assert_eq(
        run_shell(20, NULL, "cd '%s' && mkdir -p a/b/c d/e && touch a/b/c/1 a/2 d/e/3", mount.rank),
        0);
    cr_expect_eq(run_shell(20, NULL, "test \"$(find '%s' -type f | wc -l)\" = 3", mount.rank), 0);
    cr_expect_eq(
        run_shell(20, NULL, "test \"$(find '%s' -noleaf -type d | wc -l)\" = 6", mount.rank), 0);
    cr_expect_eq(run_shell(20, NULL, "test \"$(ls -R '%s' | grep -c '^[123]$')\" = 3", mount.rank),
                 0);
}
