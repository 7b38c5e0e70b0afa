/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other users, let in by allow_other: modes, owners and sticky directories hold for them as on any
 * file system, and uid=, gid= and umask= are above what the files say.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"

enum { USER = 12345, GROUP = 12346, SECOND_GROUP = 12347, STRANGER = 12399 };

static struct mount mount;

static void open_with(const char *options) {
    if (geteuid() != 0)
        cr_skip_test("acting for other users needs root");
    umask(0);
    mount_open(&mount, &(struct mount_settings){.threads = 4, .options = options});
    cr_assert_eq(chmod(mount.base, 0755), 0);
}
static void open_mount(void) {
    open_with("allow_other,umask=0");
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_access, .init = open_mount, .fini = close_mount, .timeout = 60);

static const char *path_of(const char *name) {
    return mount_path(&mount, "%s", name);
}

static void make(const char *name, mode_t mode) {
    cr_assert_eq(file_put(path_of(name), 5000, 1), 0);
    cr_assert_eq(chmod(path_of(name), mode), 0, "%s", strerror(errno));
}

static void make_directory(const char *name, mode_t mode) {
    cr_assert_eq(mkdir(path_of(name), mode), 0, "%s", strerror(errno));
}

struct user {
    uid_t uid;
    int (*function)(void);
};

static int act_for_user(void *argument) {
    const struct user *user = argument;
    const gid_t groups[] = {SECOND_GROUP};
    if (setgroups(1, groups) != 0 || setgid(GROUP) != 0 || setuid(user->uid) != 0)
        return complain("becoming user %u", user->uid);
    return user->function();
}

static void expect_for(uid_t uid, int (*function)(void)) {
    struct user user = {.uid = uid, .function = function};
    cr_expect(child_succeeds(act_for_user, &user, 20), "as user %u", uid);
}

/* In a child: nothing asserts there. The number of calls that did not go as expected. */
static int wrong;

#define EXPECT(call, error)                                                                        \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long result_ = (call);                                                                     \
        if (result_ < 0 ? errno != (error) : (error) != 0)                                         \
            wrong += complain("%s: not errno %d", #call, error);                                   \
    } while (0)

static int open_and_close(const char *name, int flags) {
    int fd = open(path_of(name), flags | O_CLOEXEC, 0666);
    return fd < 0 ? -1 : close(fd);
}

static int open_files(void) {
    EXPECT(open_and_close("private", O_RDONLY), EACCES);
    EXPECT(open_and_close("private", O_WRONLY), EACCES);
    EXPECT(open_and_close("readable", O_RDONLY), 0);
    EXPECT(open_and_close("readable", O_WRONLY), EACCES);
    EXPECT(open_and_close("readable", O_RDONLY | O_TRUNC), EACCES);
    EXPECT(open_and_close("readable", O_RDWR | O_CREAT), EACCES);
    EXPECT(open_and_close("readable", O_RDONLY | O_NOATIME), EPERM);
    EXPECT(open_and_close("writable", O_WRONLY), 0);
    EXPECT(open_and_close("writable", O_RDONLY), EACCES);
    EXPECT(open_and_close("of-group", O_RDONLY), 0);
    EXPECT(open_and_close("of-group", O_WRONLY), EACCES);
    EXPECT(access(path_of("readable"), R_OK), 0);
    EXPECT(access(path_of("readable"), W_OK), EACCES);
    EXPECT(access(path_of("readable"), X_OK), EACCES);
    EXPECT(access(path_of("private"), F_OK), 0);
    EXPECT(truncate(path_of("readable"), 0), EACCES);
    EXPECT(truncate(path_of("writable"), 100), 0);
    return wrong;
}

Test(posix_access, modes_decide_who_opens_a_file) {
    make("private", 0600);
    make("readable", 0644);
    make("writable", 0622);
    make("of-group", 0640);
    cr_assert_eq(chown(path_of("of-group"), 0, SECOND_GROUP), 0);
    expect_for(USER, open_files);
    cr_expect_eq(file_check(path_of("readable"), 5000, 1), 0);
    cr_expect_eq(file_size(path_of("writable")), 100);
}

static int change_attributes(void) {
    const struct timespec set[2] = {{1, 0}, {1, 0}};
    EXPECT(chmod(path_of("theirs"), 0777), EPERM);
    EXPECT(chown(path_of("theirs"), USER, -1u), EPERM);
    EXPECT(chown(path_of("theirs"), -1u, GROUP), EPERM);
    EXPECT(utimensat(AT_FDCWD, path_of("theirs"), set, 0), EPERM);
    EXPECT(utimensat(AT_FDCWD, path_of("theirs"), NULL, 0), EACCES);
    EXPECT(utimensat(AT_FDCWD, path_of("open"), NULL, 0), 0);
    EXPECT(utimensat(AT_FDCWD, path_of("open"), set, 0), EPERM);
    EXPECT(chmod(path_of("own"), 0640), 0);
    EXPECT(utimensat(AT_FDCWD, path_of("own"), set, 0), 0);
    EXPECT(chown(path_of("own"), 0, -1u), EPERM);
    EXPECT(chown(path_of("own"), -1u, SECOND_GROUP), 0);
    EXPECT(chown(path_of("own"), -1u, STRANGER), EPERM);
    EXPECT(chown(path_of("own"), USER, SECOND_GROUP), 0);
    return wrong;
}

Test(posix_access, attributes_are_the_owners_to_change) {
    make("theirs", 0644);
    make("open", 0666);
    make("own", 0600);
    cr_assert_eq(chown(path_of("own"), USER, GROUP), 0);
    expect_for(USER, change_attributes);
    struct stat st;
    cr_expect(stat(path_of("own"), &st) == 0 && st.st_uid == USER && st.st_gid == SECOND_GROUP &&
              (st.st_mode & 07777) == 0640);
    cr_expect(stat(path_of("theirs"), &st) == 0 && st.st_uid == 0 && (st.st_mode & 0777) == 0644);
}

static int use_directories(void) {
    struct stat st;
    EXPECT(open_and_close("closed/new", O_CREAT | O_WRONLY), EACCES);
    EXPECT(mkdir(path_of("closed/new"), 0700), EACCES);
    EXPECT(unlink(path_of("closed/f")), EACCES);
    EXPECT(rename(path_of("closed/f"), path_of("closed/g")), EACCES);
    EXPECT(rmdir(path_of("closed/d")), EACCES);
    EXPECT(open_and_close("closed/f", O_RDONLY), 0);
    EXPECT(open_and_close("no-search/f", O_RDONLY), EACCES);
    EXPECT(stat(path_of("no-search/absent"), &st), EACCES);
    EXPECT(open_and_close("no-list", O_RDONLY), EACCES);
    EXPECT(open_and_close("no-list/f", O_RDONLY), 0);
    EXPECT(open_and_close("shared/new", O_CREAT | O_WRONLY), 0);
    EXPECT(stat(path_of("shared/new"), &st), 0);
    if (st.st_uid != USER || st.st_gid != GROUP)
        wrong += complain("the new file belongs to %u:%u", st.st_uid, st.st_gid);
    EXPECT(unlink(path_of("shared/f")), 0);
    EXPECT(rename(path_of("shared/new"), path_of("shared/newer")), 0);
    return wrong;
}

Test(posix_access, directories_decide_who_makes_and_removes_names) {
    const char *const names[] = {"closed", "no-search", "no-list", "shared"};
    const mode_t modes[] = {0755, 0744, 0711, 0777};
    for (int i = 0; i < 4; i++) {
        char file[64];
        make_directory(names[i], 0777);
        snprintf(file, sizeof file, "%s/f", names[i]);
        make(file, 0666);
        cr_assert_eq(chmod(path_of(names[i]), modes[i]), 0);
    }
    make_directory("closed/d", 0777);
    expect_for(USER, use_directories);
    cr_expect_eq(directory_count(path_of("shared")), 1);
    cr_expect_eq(directory_count(path_of("closed")), 2);
}

static int use_sticky_directory(void) {
    EXPECT(open_and_close("sticky/own", O_CREAT | O_WRONLY), 0);
    EXPECT(unlink(path_of("sticky/theirs")), EPERM);
    EXPECT(rename(path_of("sticky/theirs"), path_of("sticky/moved")), EPERM);
    EXPECT(rename(path_of("sticky/own"), path_of("sticky/theirs")), EPERM);
    EXPECT(open_and_close("sticky/theirs", O_WRONLY), 0);
    EXPECT(rename(path_of("sticky/own"), path_of("sticky/moved")), 0);
    EXPECT(unlink(path_of("sticky/moved")), 0);
    return wrong;
}

Test(posix_access, in_a_sticky_directory_only_the_owner_removes_a_file) {
    make_directory("sticky", 0777);
    cr_assert_eq(chmod(path_of("sticky"), 01777), 0);
    make("sticky/theirs", 0666);
    expect_for(USER, use_sticky_directory);
    cr_expect_eq(file_check(path_of("sticky/theirs"), 5000, 1), 0);
}

static int create_and_use_own(void) {
    EXPECT(file_put(path_of("page"), 70000, 3), 0);
    EXPECT(file_check(path_of("page"), 70000, 3), 0);
    EXPECT(file_put(path_of("00112233445566778899aabbccddeeff"), 70000, 4), 0);
    EXPECT(file_put(path_of("page"), 80000, 5), 0);
    EXPECT(file_check(path_of("page"), 80000, 5), 0);
    EXPECT(rename(path_of("page"), path_of("page.bin")), 0);
    return wrong;
}

static int read_of_another(void) {
    EXPECT(file_check(path_of("page.bin"), 80000, 5), 0);
    EXPECT(file_check(path_of("00112233445566778899aabbccddeeff"), 70000, 4), 0);
    EXPECT(unlink(path_of("page.bin")), 0);
    return wrong;
}

Test(posix_access, users_share_a_cache_that_is_open_to_all) {
    expect_for(USER, create_and_use_own);
    expect_for(STRANGER, read_of_another);
    cr_expect_eq(directory_count(mount.rank), 1);
}

/* options */

static void open_with_owner(void) {
    open_with("allow_other,uid=12345,gid=12346,umask=0027");
}

static int use_as_owner(void) {
    struct stat st;
    EXPECT(file_put(path_of("page"), 5000, 1), 0);
    EXPECT(stat(path_of("page"), &st), 0);
    if (st.st_uid != USER || st.st_gid != GROUP || (st.st_mode & 07777) != 0640)
        wrong += complain("%u:%u %o", st.st_uid, st.st_gid, st.st_mode);
    EXPECT(chmod(path_of("page"), 0777), 0);
    EXPECT(stat(path_of("page"), &st), 0);
    if ((st.st_mode & 07777) != 0750)
        wrong += complain("after chmod %o", st.st_mode);
    EXPECT(chown(path_of("page"), STRANGER, -1u), EPERM);
    return wrong;
}

static int be_kept_out(void) {
    EXPECT(open_and_close("page", O_RDONLY), EACCES);
    EXPECT(chdir(mount.rank), EACCES);
    return wrong;
}

static int be_nobody_special(void *unused) {
    (void)unused;
    const gid_t none[1] = {0};
    if (setgroups(0, none) != 0 || setgid(STRANGER) != 0 || setuid(STRANGER) != 0)
        return complain("becoming a stranger");
    return be_kept_out();
}

Test(posix_access_owner, everything_belongs_to_the_given_user, .init = open_with_owner,
     .fini = close_mount, .timeout = 60) {
    expect_for(USER, use_as_owner);
    cr_expect(child_succeeds(be_nobody_special, NULL, 20));
    cr_expect(chown(path_of("page"), STRANGER, -1u) < 0 && errno == EPERM, "nor by root");
}

static void open_private(void) {
    open_with("umask=0");
}

static int reach_nothing(void) {
    struct stat st;
    EXPECT(stat(mount.point, &st), EACCES);
    EXPECT(stat(mount.rank, &st), EACCES);
    EXPECT(open_and_close("page", O_RDONLY), EACCES);
    EXPECT(open_and_close("new", O_CREAT | O_WRONLY), EACCES);
    return wrong;
}

Test(posix_access_private, without_allow_other_not_even_a_stat_gets_through, .init = open_private,
     .fini = close_mount, .timeout = 60) {
    make("page", 0666);
    expect_for(USER, reach_nothing);
}
