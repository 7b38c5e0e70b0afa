/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ways to abort. The file `abort` of fusectl, a file system that has a directory for each
 * connection: users have it where it is mounted, and who may mount needs no place for it. Else
 * umount with force, which aborts first; an O_PATH descriptor keeps the mount busy, so that it only
 * aborts: a dead mount refuses its clients, while a directory without its mount would take their
 * files.
 */
#include "fs/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"

static const char fusectl_path[] = "/sys/fs/fuse/connections";

/* An instance of fusectl that is attached nowhere. */
static int open_own_fusectl(int *ret_fd) {
    AUTO_CLOSE int context = fsopen("fusectl", FSOPEN_CLOEXEC);
    if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    int fd = fsmount(context, FSMOUNT_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

int connection_open_abort(const struct mount_entry *mount, int *ret_fd) {
    char name[32];
    if (mount->major != 0)
        return -EINVAL;
    snprintf(name, sizeof name, "%u/abort", mount->minor);
    AUTO_CLOSE int directory = open(fusectl_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = directory < 0 ? -1 : openat(directory, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        AUTO_CLOSE int own = -1;
        int error = open_own_fusectl(&own);
        if (error)
            return error;
        fd = openat(own, name, O_WRONLY | O_CLOEXEC);
    }
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

void connection_abort_by(int fd) {
    ssize_t written = write(fd, "1", 1);
    (void)written; /* it answers 1 whether or not the connection was still there */
}

/* Asks the kernel only, not the file system. */
static bool is_on_device(int fd, const struct mount_entry *mount) {
    struct statx status;
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &status) == 0 &&
           status.stx_dev_major == mount->major && status.stx_dev_minor == mount->minor;
}

static int abort_by_force(const char *path, const struct mount_entry *mount) {
    char held[32];
    AUTO_CLOSE int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (!is_on_device(fd, mount))
        return -ENOENT;
    snprintf(held, sizeof held, "/proc/self/fd/%d", fd);
    return umount2(held, MNT_FORCE) == 0 || errno == EBUSY ? 0 : -errno;
}

int connection_abort(const char *path, const struct mount_entry *mount) {
    struct mount_entry found;
    AUTO_CLOSE int fd = -1;
    int error = mount_table_find(path, &found);
    if (error)
        return error;
    if (found.major != mount->major || found.minor != mount->minor)
        return -ENOENT;
    if (connection_open_abort(mount, &fd) < 0)
        return abort_by_force(path, mount);
    connection_abort_by(fd);
    return 0;
}
