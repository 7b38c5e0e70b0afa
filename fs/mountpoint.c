/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of the mountpoint. What lies on it is taken from the mount table, and whether that answers
 * is found out by a probe: this process itself goes into a mount only after it answered.
 */
#include "fs/mountpoint.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "core/store.h"
#include "fs/connection.h"
#include "fs/mount_table.h"
#include "fs/path.h"
#include "fs/probe.h"

enum { DEAD_MOUNTS_MAX = 16, ANSWER_MS = 3000, LOOK_AGAIN_MS = 20 };

static int refuse(const char *path, int error, const char *why) {
    log_error("mountpoint %s: %s", path, why);
    return error;
}

/* a directory */

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
    if (lstat(path, &status) < 0) {
        int error = -errno;
        return refuse(path, error,
                      error == -ENOENT ? "there is no such directory; make it first (mkdir -p)"
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

/* what is mounted on it */

enum mount_state { MOUNT_ANSWERS, MOUNT_DEAD, MOUNT_DYING, MOUNT_SILENT };

struct ground {
    bool mounted; /* something lies on this very path; then: */
    bool ours;
    struct mount_entry entry;
    pid_t server; /* 0: not known */
    enum mount_state state;
};

static enum mount_state state_of_answer(int answer) {
    if (answer == -ETIMEDOUT)
        return MOUNT_SILENT;
    return answer == -ENOTCONN || answer == -ECONNABORTED ? MOUNT_DEAD : MOUNT_ANSWERS;
}

/* Silence may end; and a dead mount whose process still says that it serves it is one that this
 * process is about to leave. */
static bool is_settled(const struct ground *ground, int found_server) {
    return ground->state != MOUNT_SILENT && (ground->state != MOUNT_DEAD || found_server != 0);
}

/* Until that is settled, or the time is up. */
static void find_state(struct probe *probe, struct ground *ground) {
    int answer = -ETIMEDOUT, found = -ENOENT, waited_ms = 0;
    do {
        if (answer == -ETIMEDOUT)
            answer = probe_get_answer(probe, LOOK_AGAIN_MS);
        else
            poll(NULL, 0, LOOK_AGAIN_MS);
        ground->state = state_of_answer(answer);
        if (ground->ours)
            found = store_find_server(ground->entry.source, ground->entry.major,
                                      ground->entry.minor, &ground->server);
        if (found == -ESRCH && ground->state != MOUNT_DEAD)
            ground->state = MOUNT_DYING;
        waited_ms += LOOK_AGAIN_MS;
    } while (!is_settled(ground, found) && waited_ms < ANSWER_MS);
}

static int refuse_silent(const char *path, const struct ground *ground) {
    if (!ground->mounted)
        log_error("mountpoint %s: a mount on the way to it does not answer", path);
    else if (ground->server)
        log_error("mountpoint %s: store %s is mounted there by process %d, which does not answer; "
                  "wait for it, or end it",
                  path, ground->entry.source, (int)ground->server);
    else
        log_error("mountpoint %s: a mount of type %s (%s) lies on it and does not answer; umount "
                  "-f it first",
                  path, ground->entry.type, ground->entry.source);
    return -ETIMEDOUT;
}

static int refuse_in_use(const char *path, const struct ground *ground) {
    char who[32] = "";
    if (ground->server)
        snprintf(who, sizeof who, " by process %d", (int)ground->server);
    log_error("mountpoint %s: store %s is mounted there already%s; umount it first, or use "
              "another directory",
              path, ground->entry.source, who);
    return -EBUSY;
}

/* Its process cannot finish: one of its threads waits for a client that waits for it. */
static int free_dying(const char *path, const struct ground *ground) {
    int error = connection_abort(path, &ground->entry);
    if (!error || error == -ENOENT)
        return 0;
    return refuse(path, error,
                  "a mount of cpl3 lies on it whose process is dying; umount -f it as root");
}

/* 0: nothing is in the way, or what is dead. */
static int check_ground(const char *path, const struct ground *ground, bool *ret_dead) {
    switch (ground->state) {
    case MOUNT_SILENT:
        return refuse_silent(path, ground);
    case MOUNT_ANSWERS:
        if (ground->ours)
            return refuse_in_use(path, ground);
        break;
    case MOUNT_DEAD:
        if (!ground->ours)
            return refuse(path, -ENOTCONN,
                          "a dead mount that is not of cpl3 lies on it: umount it first");
        break;
    case MOUNT_DYING: {
        int error = free_dying(path, ground);
        if (error)
            return error;
        break;
    }
    }
    *ret_dead = ground->state != MOUNT_ANSWERS;
    return 0;
}

/* all of it */

static int check_resolved(struct probe *probe, const char *path, const char *store_path,
                          bool *ret_dead) {
    struct ground ground = {0};
    ground.mounted = mount_table_find(path, &ground.entry) == 0;
    ground.ours = ground.mounted && strcmp(ground.entry.type, MOUNT_TYPE) == 0;
    bool dead;
    find_state(probe, &ground);
    int error = check_ground(path, &ground, &dead);
    if (!error)
        error = check_apart(path, store_path);
    if (!error && !dead)
        error = check_directory(path);
    if (!error)
        *ret_dead = dead;
    return error;
}

int mountpoint_check(const char *path, const char *store_path, struct mountpoint *ret_mountpoint) {
    struct mountpoint mountpoint = {0};
    struct probe probe;
    int error = probe_start(path, &probe);
    if (error)
        return refuse(path, error, strerror(-error));
    error = probe_get_path(&probe, ANSWER_MS, &mountpoint.path);
    if (error)
        refuse(path, error,
               error == -ETIMEDOUT ? "a mount on the way to it does not answer" : strerror(-error));
    else
        error = check_resolved(&probe, mountpoint.path, store_path, &mountpoint.dead);
    probe_close(&probe);
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
    if (error == -ENOENT) /* its process came to do it itself */
        return 0;
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
        struct mountpoint next = {0};
        int error = detach(mountpoint->path);
        if (!error)
            error = mountpoint_check(mountpoint->path, store_path, &next);
        if (error)
            return error;
        mountpoint->dead = next.dead;
        mountpoint_free(&next);
    }
    return 0;
}

void mountpoint_free(struct mountpoint *mountpoint) {
    free(mountpoint->path);
    mountpoint->path = NULL;
}
