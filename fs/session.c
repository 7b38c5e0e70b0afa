/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mounting through libfuse, unmounting by ourselves: libfuse closes the device first and then
 * unmounts whatever lies on the path, while we must still answer requests after the mount is out of
 * the tree, and must never take a mount that is not ours.
 */
#include "fs/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"

/* "-o name=value" with commas and backslashes of the value hidden from the list. 0 or -ENOMEM. */
static int add_option(struct fuse_args *arguments, const char *name, const char *value) {
    char *list = NULL, *option = NULL;
    int failed = asprintf(&option, "%s%s", name, value) < 0;
    if (failed)
        option = NULL;
    failed = failed || fuse_opt_add_opt_escaped(&list, option) != 0 ||
             fuse_opt_add_arg(arguments, "-o") != 0 || fuse_opt_add_arg(arguments, list) != 0;
    free(option);
    free(list);
    return failed ? -ENOMEM : 0;
}

static int build_arguments(const struct options *options, const char *store_path,
                           struct fuse_args *arguments) {
    int failed = fuse_opt_add_arg(arguments, "cpl3") != 0;
    failed = failed || add_option(arguments, "subtype=", "cpl3") < 0 ||
             add_option(arguments, "fsname=", store_path) < 0;
    if (options->config.read_only)
        failed = failed || fuse_opt_add_arg(arguments, "-oro") != 0;
    /* The kernel checks permissions only where more than one user may come: it costs a round trip
     * for each create and unlink. */
    if (options->allow_other)
        failed = failed || fuse_opt_add_arg(arguments, "-oallow_other,default_permissions") != 0;
    if (*options->mount_flags)
        failed = failed || fuse_opt_add_arg(arguments, "-o") != 0 ||
                 fuse_opt_add_arg(arguments, options->mount_flags) != 0;
    return failed ? -ENOMEM : 0;
}

static int make_session(const struct options *options, const char *store_path, struct fs *fs,
                        struct fuse_session **ret_fuse) {
    struct fuse_args arguments = FUSE_ARGS_INIT(0, NULL);
    struct fuse_session *fuse = NULL;
    if (build_arguments(options, store_path, &arguments) == 0)
        fuse = fuse_session_new(&arguments, &fs_operations, sizeof fs_operations, fs);
    fuse_opt_free_args(&arguments);
    if (!fuse)
        return -ENOMEM;
    *ret_fuse = fuse;
    return 0;
}

/* Nothing: somebody was quick to unmount it; the session will hear of that as of any unmount. */
static int find_mount(const char *path, struct mount_entry *ret_mount) {
    struct mount_entry found;
    int error = mount_table_find(path, &found);
    if (!error && strcmp(found.type, MOUNT_TYPE) == 0)
        *ret_mount = found;
    return error == -ENOENT ? 0 : error;
}

int session_mount(const struct options *options, const char *path, const char *store_path,
                  struct fs *fs, struct session *ret_session) {
    struct session session = {.path = strdup(path)};
    int error = session.path ? make_session(options, store_path, fs, &session.fuse) : -ENOMEM;
    if (!error && fuse_session_mount(session.fuse, path) != 0)
        error = -ECONNREFUSED;
    if (!error)
        error = find_mount(path, &session.mount);
    if (!error)
        error = compat_attach(session.fuse);
    if (error) {
        log_error("mountpoint %s: mounting failed: %s", path,
                  error == -ECONNREFUSED ? "libfuse or fusermount3 said why" : strerror(-error));
        session_detach(&session);
        session_close(&session);
        return error;
    }
    *ret_session = session;
    return 0;
}

void session_detach(struct session *session) {
    if (session->mount.type[0] == '\0')
        return;
    int error = mount_table_detach(session->path, &session->mount);
    if (error && error != -ENOENT)
        log_error("mountpoint %s: detaching: %s; umount it by hand", session->path,
                  strerror(-error));
}

/*
 * Puts a pipe that nobody reads in the device's place, which closes the device. libfuse polls the
 * descriptor before it unmounts, and the pipe's POLLERR tells it that there is nothing to unmount.
 */
static void close_device(int device_fd) {
    int pipe_fds[2];
    if (device_fd < 0 || pipe2(pipe_fds, O_CLOEXEC) < 0)
        return;
    close(pipe_fds[0]);
    dup3(pipe_fds[1], device_fd, O_CLOEXEC);
    close(pipe_fds[1]);
}

void session_close(struct session *session) {
    if (session->fuse) {
        close_device(fuse_session_fd(session->fuse));
        fuse_session_unmount(session->fuse);
        fuse_session_destroy(session->fuse);
    }
    free(session->path);
    *session = (struct session){0};
}
