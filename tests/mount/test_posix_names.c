/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names are bytes: whatever the kernel lets through is kept, listed and renamed byte for byte, as a
 * file and as a directory. Dots mean what they mean everywhere. Paths go as deep as PATH_MAX, and
 * relative ones deeper.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

enum { BYTES = 5000, LEVELS_DEEP = 400 };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_names, .init = open_mount, .fini = close_mount, .timeout = 60);

static const char *path_of(const char *name) {
    return mount_path(&mount, "%s", name);
}

/* The name as a file, as a directory and as the target of both renames, always listed once. */
static void expect_usable(const char *name) {
    cr_expect_eq(file_put(path_of("a"), BYTES, 1), 0);
    cr_expect_eq(rename(path_of("a"), path_of(name)), 0, "'%s': %s", name, strerror(errno));
    cr_expect_eq(file_check(path_of(name), BYTES, 1), 0, "'%s'", name);
    cr_expect_eq(file_put(path_of(name), BYTES, 2), 0, "'%s'", name);
    cr_expect_eq(file_check(path_of(name), BYTES, 2), 0, "'%s'", name);
    cr_expect_eq(directory_count_name(mount.rank, name), 1, "'%s'", name);
    cr_expect_eq(rename(path_of(name), path_of("b")), 0, "'%s': %s", name, strerror(errno));
    cr_expect_eq(unlink(path_of("b")), 0);
    cr_expect_eq(mkdir(path_of(name), 0700), 0, "'%s': %s", name, strerror(errno));
    cr_expect_eq(file_put(mount_path(&mount, "%s/%s", name, name), BYTES, 3), 0, "'%s'", name);
    cr_expect_eq(rename(path_of(name), path_of("d")), 0, "'%s': %s", name, strerror(errno));
    cr_expect_eq(rename(path_of("d"), path_of(name)), 0, "'%s': %s", name, strerror(errno));
    cr_expect_eq(directory_count_name(path_of(name), name), 1, "'%s'", name);
    cr_expect_eq(unlink(mount_path(&mount, "%s/%s", name, name)), 0, "'%s'", name);
    cr_expect_eq(rmdir(path_of(name)), 0, "'%s': %s", name, strerror(errno));
    cr_expect_eq(directory_count(mount.rank), 0, "after '%s'", name);
}

Test(posix_names, every_byte_but_slash_and_zero_can_stand_in_a_name) {
    for (int byte = 1; byte < 256; byte++) {
        const char name[] = {'x', (char)byte, 'y', 0}, alone[] = {(char)byte, 0};
        if (byte == '/')
            continue;
        const char *path = path_of(byte % 2 || byte == '.' ? name : alone);
        cr_expect_eq(file_put(path, 100, (uint64_t)byte), 0, "byte %d", byte);
    }
    cr_expect_eq(directory_count(mount.rank), 254);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    for (int byte = 1; byte < 256; byte++) {
        const char name[] = {'x', (char)byte, 'y', 0}, alone[] = {(char)byte, 0};
        const char *stored = byte % 2 || byte == '.' ? name : alone;
        if (byte == '/')
            continue;
        cr_expect_eq(file_check(path_of(stored), 100, (uint64_t)byte), 0, "byte %d", byte);
        cr_expect_eq(directory_count_name(mount.rank, stored), 1, "byte %d", byte);
    }
}

Test(posix_names, odd_names_are_files_directories_and_targets) {
    const char *const names[] = {
        "...",
        "....",
        ".hidden",
        "x.",
        "x..",
        " ",
        " x ",
        "x ",
        "-rf",
        "~",
        "*",
        "a\\b",
        "\n",
        "\x01\x1f\x7f",
        "\xff\xff",
        "\xc0\x80",
        "\xed\xa0",
        "e\xcc\x81",
        "\xc3\xa9",
        "CON",
        "rank0",
        ".cpl3",
        "data.mdb",
        "0123456789abcdef.",
        "0123456789abcdef.kv",
        "%s%n",
        "\t",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        expect_usable(names[i]);
}

Test(posix_names, of_255_bytes_are_usable_and_of_256_are_nowhere) {
    char name[300];
    for (int kind = 0; kind < 2; kind++) {
        memset(name, kind ? 0xff : 'a', sizeof name);
        name[255] = 0;
        expect_usable(name);
        name[255] = name[254];
        name[256] = 0;
        const char *path = path_of(name);
        cr_expect(mkdir(path, 0700) < 0 && errno == ENAMETOOLONG);
        cr_expect(rmdir(path) < 0 && errno == ENAMETOOLONG);
        cr_expect(unlink(path) < 0 && errno == ENAMETOOLONG);
        cr_expect(rename(path, path_of("x")) < 0 && errno == ENAMETOOLONG);
        cr_expect(mknod(path, S_IFREG | 0600, 0) < 0 && errno == ENAMETOOLONG);
        cr_expect(truncate(path, 0) < 0 && errno == ENAMETOOLONG);
        cr_expect(access(path, F_OK) < 0 && errno == ENAMETOOLONG);
    }
}

Test(posix_names, dots_and_slashes_mean_what_they_mean) {
    cr_assert_eq(mkdir(path_of("d"), 0700), 0);
    cr_assert_eq(file_put(path_of("f"), BYTES, 1), 0);
    cr_expect_eq(file_check(path_of("./f"), BYTES, 1), 0);
    cr_expect_eq(file_check(path_of("d/../f"), BYTES, 1), 0);
    cr_expect_eq(file_check(path_of("d//.././/f"), BYTES, 1), 0);
    cr_expect_eq(file_check(path_of("../rank0/f"), BYTES, 1), 0);
    cr_expect_eq(file_open_result(path_of("absent/../f"), O_RDONLY), -ENOENT);
    cr_expect_eq(file_open_result(path_of("f/../f"), O_RDONLY), -ENOTDIR);
    cr_expect_eq(file_open_result(path_of("f/."), O_RDONLY), -ENOTDIR);
    cr_expect_eq(file_open_result(path_of("f/"), O_RDONLY), -ENOTDIR);
    cr_expect_eq(file_open_result("", O_CREAT | O_WRONLY), -ENOENT);
    cr_expect(unlink(path_of("f/")) < 0 && errno == ENOTDIR);
    cr_expect(rename(path_of("f"), path_of("g/")) < 0 && errno == ENOTDIR);
    cr_expect_eq(rename(path_of("d/"), path_of("e/")), 0, "%s", strerror(errno));
    cr_expect_eq(mkdir(path_of("e/x/"), 0700), 0);
    cr_expect_eq(rmdir(path_of("e/x/")), 0);
    cr_expect_eq(file_check(path_of("f"), BYTES, 1), 0);
}

Test(posix_names, the_dots_themselves_can_not_be_made_moved_or_removed) {
    cr_assert_eq(mkdir(path_of("d"), 0700), 0);
    cr_expect(mkdir(path_of("."), 0700) < 0 && errno == EEXIST);
    cr_expect(mkdir(path_of("d/.."), 0700) < 0 && errno == EEXIST);
    cr_expect(rmdir(path_of("d/.")) < 0 && errno == EINVAL);
    cr_expect(rmdir(path_of("d/..")) < 0 && errno == ENOTEMPTY);
    cr_expect(unlink(path_of("d/.")) < 0 && (errno == EISDIR || errno == EINVAL));
    cr_expect(rename(path_of("d/."), path_of("e")) < 0 && errno == EBUSY);
    cr_expect(rename(path_of("d"), path_of("d/..")) < 0);
    cr_expect_eq(file_open_result(path_of("d/."), O_CREAT | O_WRONLY), -EISDIR);
    cr_expect_eq(file_open_result(path_of("d/.."), O_CREAT | O_WRONLY), -EISDIR);
    cr_expect_eq(file_size(path_of("d")), 4096);
}

/* depth */

/* Directories below the path's end, until it is exactly so long; where the last component starts.
 */
static size_t deepen(char *path, size_t bytes) {
    size_t length = strlen(path), start = length;
    while (length < bytes) {
        size_t part = bytes - length - 1 > 202 ? 200 : bytes - length - 1;
        start = length;
        path[length++] = '/';
        memset(path + length, 'd', part);
        length += part;
        path[length] = 0;
        if (length < bytes)
            cr_assert_eq(mkdir(path, 0700), 0, "%zu bytes: %s", length, strerror(errno));
    }
    return start;
}

Test(posix_names, a_path_of_PATH_MAX_works_whole) {
    char path[PATH_MAX + 2];
    snprintf(path, sizeof path, "%s", mount.rank);
    size_t last = deepen(path, PATH_MAX - 1);
    cr_expect_eq(file_put(path, BYTES, 1), 0);
    cr_expect_eq(file_check(path, BYTES, 1), 0);
    strcpy(path + PATH_MAX - 1, "d");
    cr_expect_eq(file_open_result(path, O_RDONLY), -ENAMETOOLONG);
    path[PATH_MAX - 1] = 0;
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    cr_expect_eq(file_check(path, BYTES, 1), 0);
    path[last] = 0;
    cr_expect_eq(directory_count(path), 1);
    cr_expect_eq(run_shell(30, NULL, "rm -r '%s'/*", mount.rank), 0);
    cr_expect_eq(directory_count(mount.rank), 0);
}

Test(posix_names, directories_go_deeper_than_any_path) {
    static const char name[] = "a directory with a name of some length";
    int at = open(mount.rank, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int level = 0; level < LEVELS_DEEP; level++) {
        cr_assert_eq(mkdirat(at, name, 0700), 0, "level %d: %s", level, strerror(errno));
        int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        cr_assert_geq(next, 0, "level %d: %s", level, strerror(errno));
        close(at);
        at = next;
    }
    int fd = openat(at, "leaf", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_eq(write(fd, "deep", 4), 4);
    close(fd);
    struct stat st;
    cr_expect(fstatat(at, "leaf", &st, 0) == 0 && st.st_size == 4);
    cr_expect_eq(fchdir(at), 0);
    cr_expect(file_is_text("leaf", "deep"));
    for (int level = 0; level < LEVELS_DEEP; level++)
        cr_assert_eq(chdir(".."), 0, "level %d: %s", level, strerror(errno));
    cr_expect_eq(directory_count("."), 1);
    close(at);
    cr_expect_eq(chdir("/"), 0);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    cr_expect_eq(run_shell(30, NULL, "test \"$(find '%s' -name leaf | wc -l)\" = 1", mount.rank),
                 0);
    cr_expect_eq(run_shell(30, NULL, "rm -r '%s'/*", mount.rank), 0);
    cr_expect_eq(directory_count(mount.rank), 0);
}
