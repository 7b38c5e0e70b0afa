/* SPDX-License-Identifier: Apache-2.0 */
/* The child and its two findings, each one message on a socket that keeps their boundaries. */
#include "fs/probe.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/descriptors.h"
#include "fs/path.h"

struct found_path {
    int error;
    char path[PATH_MAX];
};

[[gnu::noreturn]] static void look(const char *path, int fd) {
    static struct found_path found;
    char *resolved = NULL;
    struct statfs usage;
    /* A pipe that somebody reads to its end must not wait for this child. */
    descriptors_leave_standard();
    descriptors_keep_only(fd);
    found.error = path_resolve(path, &resolved);
    if (!found.error && strlen(resolved) >= sizeof found.path)
        found.error = -ENAMETOOLONG;
    if (!found.error)
        strcpy(found.path, resolved);
    bool told = send(fd, &found, sizeof found, MSG_NOSIGNAL) == sizeof found;
    int answer = !found.error && statfs(found.path, &usage) < 0 ? -errno : found.error;
    told = told && send(fd, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer;
    _exit(told ? 0 : 1);
}

int probe_start(const char *path, struct probe *ret_probe) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    pid_t child = fork();
    if (child == 0)
        look(path, fds[1]);
    int error = child < 0 ? -errno : 0;
    close(fds[1]);
    if (error) {
        close(fds[0]);
        return error;
    }
    *ret_probe = (struct probe){.child = child, .fd = fds[0]};
    return 0;
}

static int receive(struct probe *probe, int wait_ms, void *ret_finding, size_t bytes) {
    struct pollfd wait = {.fd = probe->fd, .events = POLLIN};
    int ready = poll(&wait, 1, wait_ms);
    if (ready == 0 || (ready < 0 && errno == EINTR))
        return -ETIMEDOUT;
    ssize_t received = ready < 0 ? -1 : recv(probe->fd, ret_finding, bytes, 0);
    if (received < 0)
        return -errno;
    return received == (ssize_t)bytes ? 0 : -EPIPE; /* it was killed */
}

int probe_get_path(struct probe *probe, int wait_ms, char **ret_path) {
    struct found_path found;
    int error = receive(probe, wait_ms, &found, sizeof found);
    if (!error)
        error = found.error;
    char *path = error ? NULL : strdup(found.path);
    if (!error && !path)
        error = -ENOMEM;
    if (!error)
        *ret_path = path;
    return error;
}

int probe_get_answer(struct probe *probe, int wait_ms) {
    int answer = 0;
    int error = receive(probe, wait_ms, &answer, sizeof answer);
    return error ? error : answer;
}

void probe_close(struct probe *probe) {
    kill(probe->child, SIGKILL);
    waitpid(probe->child, NULL, WNOHANG);
    close(probe->fd);
}
