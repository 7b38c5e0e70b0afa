/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of the mountpoint. A dead mount is told by statfs: the kernel asks the file system for
 * that every time, while stat of the root may still be answered from its cache.
 */
#include "fs/mountpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "fs/mount_table.h"
#include "fs/path.h"

enum { DEAD_MOUNTS_MAX = 16 };

static bool means_dead(int error) {
    return error == ENOTCONN || error == ECONNABORTED;
}

static bool is_dead(const char *path) {
    struct statfs usage;
    return statfs(path, &usage) < 0 && means_dead(errno);
}

static int refuse(const char *path, int error, const char *why) {
    log_error("mountpoint %s: %s", path, why);
    return error;
}

static int check_empty(const char *path) {
    AUTO_CLOSEDIR DIR *directory = opendir(path);
    if (!directory) {
        int error = -errno;
        return refuse(path, error, strerror(-error));
    }
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return refuse(path, -ENOTEMPTY,
                          "it is not empty, and a mount would hide what is there; use an empty "
                          "directory");
    }
    return 0;
}

static int check_directory(const char *path) {
    struct stat status;
    if (stat(path, &status) < 0) {
        int error = -errno;
        return refuse(path, error,
                      means_dead(-error)
                          ? "a dead mount that is not of cpl3 lies on it: umount it first"
                          : strerror(-error));
    }
    if (!S_ISDIR(status.st_mode))
        return refuse(path, -ENOTDIR, "it is not a directory");
    return check_empty(path);
}

static int check_apart(const char *path, const char *store_path) {
    bool store_inside = path_is_inside(store_path, path);
    if (!store_inside && !path_is_inside(path, store_path))
        return 0;
    log_error("mountpoint %s: %s the store %s; they must lie apart", path,
              store_inside ? "it contains" : "it lies inside", store_path);
    return -ELOOP;
}

static int check_fit(const char *path, const char *store_path, bool *ret_dead) {
    struct mount_entry entry;
    bool ours = mount_table_find(path, &entry) == 0 && strcmp(entry.type, MOUNT_TYPE) == 0;
    bool dead = ours && is_dead(path);
    if (ours && !dead) {
        log_error("mountpoint %s: store %s is mounted there already; umount it first, or use "
                  "another directory",
                  path, entry.source);
        return -EBUSY;
    }
    int error = check_apart(path, store_path);
    if (!error && !dead)
        error = check_directory(path);
    if (!error)
        *ret_dead = dead;
    return error;
}

int mountpoint_check(const char *path, const char *store_path, struct mountpoint *ret_mountpoint) {
    struct mountpoint mountpoint = {0};
    int error = path_resolve(path, &mountpoint.path);
    if (error)
        return refuse(path, error, strerror(-error));
    struct stat status;
    if (lstat(mountpoint.path, &status) < 0 && errno == ENOENT)
        error = refuse(path, -ENOENT, "there is no such directory; make it first (mkdir -p)");
    if (!error)
        error = check_fit(mountpoint.path, store_path, &mountpoint.dead);
    if (error)
        mountpoint_free(&mountpoint);
    else
        *ret_mountpoint = mountpoint;
    return error;
}

static int detach(const char *path) {
    struct mount_entry entry;
    int error = mount_table_find(path, &entry);
    if (!error)
        error = mount_table_detach(path, &entry);
    if (error)
        return refuse(path, error,
                      "a dead earlier mount lies on it and cannot be detached: "
                      "umount it as the user who mounted it");
    log_notice("mountpoint %s: detached a dead earlier mount of %s", path, entry.source);
    return 0;
}

int mountpoint_clear(struct mountpoint *mountpoint, const char *store_path) {
    for (unsigned i = 0; mountpoint->dead; i++) {
        if (i == DEAD_MOUNTS_MAX)
            return refuse(mountpoint->path, -EBUSY, "too many dead mounts lie on it");
        int error = detach(mountpoint->path);
        if (!error)
            error = check_fit(mountpoint->path, store_path, &mountpoint->dead);
        if (error)
            return error;
    }
    return 0;
}

void mountpoint_free(struct mountpoint *mountpoint) {
    free(mountpoint->path);
    mountpoint->path = NULL;
}
