/* SPDX-License-Identifier: Apache-2.0 */
/* statvfs from wherever it is asked: one file system, one answer, and its flags. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.size = "64M"});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_statvfs, .init = open_mount, .fini = close_mount, .timeout = 60);

static struct statvfs usage_of(const char *path) {
    struct statvfs v;
    cr_assert_eq(statvfs(path, &v), 0, "%s: %s", path, strerror(errno));
    return v;
}

Test(posix_statvfs, root_rank_directory_file_and_descriptor_agree) {
    cr_assert_eq(mkdir(mount_path(&mount, "d"), 0700), 0);
    cr_assert_eq(file_put(mount_path(&mount, "d/f"), 1 << 20, 1), 0);
    mount_commit(&mount);
    const struct statvfs at_root = usage_of(mount.point);
    const char *const paths[] = {mount.rank, mount_path(&mount, "d"), mount_path(&mount, "d/f"),
                                 mount_path(&mount, "../.cpl3/stats")};
    for (int i = 0; i < 4; i++) {
        struct statvfs v = usage_of(paths[i]);
        cr_expect_eq(v.f_blocks, at_root.f_blocks, "%s", paths[i]);
        cr_expect_eq(v.f_bfree, at_root.f_bfree, "%s", paths[i]);
        cr_expect_eq(v.f_fsid, at_root.f_fsid, "%s", paths[i]);
    }
    AUTO_CLOSE int fd = open(mount_path(&mount, "d/f"), O_RDONLY | O_CLOEXEC);
    struct statvfs v;
    cr_expect(fstatvfs(fd, &v) == 0 && v.f_bfree == at_root.f_bfree);
}

Test(posix_statvfs, numbers_are_in_order_and_flags_tell_how_it_is_mounted) {
    struct statvfs v = usage_of(mount.rank);
    cr_expect(v.f_bavail <= v.f_bfree && v.f_bfree <= v.f_blocks);
    cr_expect(v.f_favail <= v.f_ffree && v.f_ffree <= v.f_files);
    cr_expect_eq(v.f_flag & (ST_RDONLY | ST_NOSUID | ST_NODEV), ST_NOSUID | ST_NODEV);
    struct statfs s;
    cr_expect(statfs(mount.rank, &s) == 0 && s.f_type == FUSE_SUPER_MAGIC);
    mount_stop(&mount);
    mount_start(&mount, "ro");
    cr_expect(usage_of(mount.rank).f_flag & ST_RDONLY);
    cr_expect_eq(file_put(mount_path(&mount, "f"), 10, 1), -EROFS);
}

Test(posix_statvfs, of_what_is_not_there_it_is_an_error) {
    struct statvfs v;
    cr_expect(statvfs(mount_path(&mount, "absent"), &v) < 0 && errno == ENOENT);
    cr_assert_eq(file_put(mount_path(&mount, "f"), 10, 1), 0);
    cr_expect(statvfs(mount_path(&mount, "f/x"), &v) < 0 && errno == ENOTDIR);
}
