/* SPDX-License-Identifier: Apache-2.0 */
/* unlink and rmdir of what is open: the descriptor goes on, the name is free at once. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"

#define HASH "00112233445566778899aabbccddeeff"
enum { BYTES = 50000, NAMES = 2 };
static const char *const names[NAMES] = {"file", HASH};

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_unlink, .init = open_mount, .fini = close_mount, .timeout = 60);

static int create(const char *path) {
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    return fd;
}

Test(posix_unlink, an_unlinked_file_that_is_written_is_a_scratch_file) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        AUTO_CLOSE int fd = create(path);
        cr_expect_eq(write(fd, "before ", 7), 7);
        cr_expect_eq(unlink(path), 0);
        struct stat st;
        cr_expect(fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == 7);
        cr_expect_eq(write(fd, "after", 5), 5);
        cr_expect_eq(ftruncate(fd, 11), 0, "%s", strerror(errno));
        cr_expect_eq(fchmod(fd, 0640), 0, "%s", strerror(errno));
        cr_expect_eq(futimens(fd, NULL), 0, "%s", strerror(errno));
        char room[16] = "";
        cr_expect_eq(pread(fd, room, 16, 0), 11);
        cr_expect_str_eq(room, "before afte");
        cr_expect_eq(fsync(fd), 0, "%s", strerror(errno));
        cr_expect_eq(file_size(path), -ENOENT);
    }
    mount_commit(&mount);
    cr_expect_eq(directory_count(mount.rank), 0);
}

Test(posix_unlink, an_unlinked_file_that_is_read_can_be_asked_about) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, BYTES, 1), 0);
        AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
        cr_expect_eq(unlink(path), 0);
        struct stat st;
        cr_expect(fstat(fd, &st) == 0 && st.st_size == BYTES && st.st_nlink == 0, "links %ld",
                  (long)st.st_nlink);
        cr_expect_eq(file_check_fd(fd, BYTES, 1), 0);
        cr_expect_eq(fsync(fd), 0, "%s", strerror(errno));
    }
}

Test(posix_unlink, the_name_is_free_for_another_file_and_both_are_right) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_assert_eq(file_put(path, BYTES, 1), 0);
        AUTO_CLOSE int reader = open(path, O_RDONLY | O_CLOEXEC);
        AUTO_CLOSE int writer = open(path, O_RDWR | O_CLOEXEC);
        cr_expect_eq(pwrite(writer, "x", 1, 0), 1);
        cr_expect_eq(unlink(path), 0);
        cr_expect_eq(file_put(path, BYTES + 1, 2), 0);
        cr_expect_eq(file_check_fd(reader, BYTES, 1), 0);
        char first;
        cr_expect(pread(writer, &first, 1, 0) == 1 && first == 'x');
        close(writer);
        writer = -1;
        mount_commit(&mount);
        cr_expect_eq(file_check(path, BYTES + 1, 2), 0);
    }
}

Test(posix_unlink, what_unlink_and_rmdir_refuse) {
    const char *file = mount_path(&mount, "file"), *directory = mount_path(&mount, "directory");
    cr_assert_eq(file_put(file, 10, 1), 0);
    cr_assert_eq(mkdir(directory, 0700), 0);
    cr_expect(unlink(directory) < 0 && errno == EISDIR);
    cr_expect(unlinkat(AT_FDCWD, file, AT_REMOVEDIR) < 0 && errno == ENOTDIR);
    cr_expect(unlinkat(AT_FDCWD, file, 0x8000) < 0 && errno == EINVAL);
    cr_expect(unlink(mount_path(&mount, "file/x")) < 0 && errno == ENOTDIR);
    cr_expect(unlink(mount_path(&mount, "absent")) < 0 && errno == ENOENT);
    cr_expect(rmdir(mount.rank) < 0 && (errno == EPERM || errno == EBUSY), "%s", strerror(errno));
    cr_expect(rmdir(mount.point) < 0 && errno == EBUSY, "%s", strerror(errno));
    cr_expect_eq(file_check(file, 10, 1), 0);
}

/* directories */

Test(posix_unlink, a_removed_directory_that_is_open_is_empty_and_takes_nothing) {
    const char *path = mount_path(&mount, "directory");
    cr_assert_eq(mkdir(path, 0700), 0);
    AUTO_CLOSE int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_expect_eq(rmdir(path), 0, "%s", strerror(errno));
    struct stat st;
    cr_expect(fstat(dir, &st) == 0 && st.st_nlink == 0, "links %ld", (long)st.st_nlink);
    cr_expect(openat(dir, "file", O_CREAT | O_WRONLY, 0600) < 0 && errno == ENOENT);
    cr_expect(mkdirat(dir, "below", 0700) < 0 && errno == ENOENT);
    cr_expect(fstatat(dir, "file", &st, 0) < 0 && errno == ENOENT);
    cr_assert_eq(file_put(mount_path(&mount, "file"), 10, 1), 0);
    cr_expect(renameat(AT_FDCWD, mount_path(&mount, "file"), dir, "file") < 0 && errno == ENOENT);
    AUTO_CLOSEDIR DIR *listing = fdopendir(dup(dir));
    for (struct dirent *entry; listing && (entry = readdir(listing));)
        cr_expect(!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."), "%s", entry->d_name);
    cr_expect_eq(mkdir(path, 0700), 0);
    cr_expect(openat(dir, "file", O_CREAT | O_WRONLY, 0600) < 0 && errno == ENOENT,
              "the new one is another");
}

Test(posix_unlink, who_stands_in_a_removed_directory_can_leave_it) {
    const char *path = mount_path(&mount, "directory");
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(chdir(path), 0);
    cr_expect_eq(rmdir(path), 0);
    char room[MOUNT_PATH_MAX];
    cr_expect(getcwd(room, sizeof room) == NULL && errno == ENOENT);
    cr_expect_eq(file_open_result("file", O_CREAT | O_WRONLY), -ENOENT);
    cr_expect_eq(chdir(".."), 0, "%s", strerror(errno));
    cr_expect(getcwd(room, sizeof room) && !strcmp(room, mount.rank), "%s", room);
    cr_expect_eq(chdir("/"), 0);
}

Test(posix_unlink, a_moved_directory_that_is_open_is_the_same_one) {
    cr_assert_eq(mkdir(mount_path(&mount, "a"), 0700), 0);
    cr_assert_eq(mkdir(mount_path(&mount, "b"), 0700), 0);
    AUTO_CLOSE int dir = open(mount_path(&mount, "a"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSE int fd = openat(dir, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_expect_eq(write(fd, "one ", 4), 4);
    cr_expect_eq(rename(mount_path(&mount, "a"), mount_path(&mount, "b/c")), 0);
    cr_expect_eq(write(fd, "two", 3), 3);
    close(fd);
    fd = -1;
    cr_expect(file_is_text(mount_path(&mount, "b/c/file"), "one two"));
    AUTO_CLOSE int other = openat(dir, "other", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_expect_geq(other, 0);
    close(other);
    other = -1;
    mount_wait_released(&mount);
    cr_expect_eq(directory_count(mount_path(&mount, "b/c")), 2);
    struct stat up, b;
    cr_expect(fstatat(dir, "..", &up, 0) == 0 && stat(mount_path(&mount, "b"), &b) == 0);
    cr_expect_eq(up.st_ino, b.st_ino);
}
