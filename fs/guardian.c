/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both sides of the guardian. Orders go over a socket that keeps message boundaries. On the death
 * of the main thread, on the order to abort and at the end of the socket, it does the same: abort,
 * end. A connection that is closed already is not hurt by that.
 */
#include "fs/guardian.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>

#include "core/check.h"
#include "core/log.h"
#include "fs/connection.h"
#include "fs/descriptors.h"
#include "fs/fuse_device.h"

enum { PARENT_DIED = SIGUSR1, ANSWER_SECONDS = 5 };

static const char guardian_name[] = "cpl3-guard";

enum order_kind { ORDER_WATCH, ORDER_ABORT };

struct order {
    enum order_kind kind;
    struct mount_entry mount; /* to watch */
};

/* What the guardian process knows. */
struct watch {
    const char *mountpoint;
    struct mount_entry mount; /* no type: none yet */
    int abort_fd;
    int orders_fd;
    int signal_fd;
};

/* the guardian's process */

[[gnu::noreturn]] static void end(const struct watch *watch) {
    if (watch->abort_fd >= 0)
        connection_abort_by(watch->abort_fd);
    else if (watch->mount.type[0] != '\0')
        connection_abort(watch->mountpoint, &watch->mount);
    _exit(0);
}

static void answer(const struct watch *watch, int error) {
    send(watch->orders_fd, &error, sizeof error, MSG_NOSIGNAL);
}

static void take_watch(struct watch *watch, const struct mount_entry *mount) {
    watch->mount = *mount;
    answer(watch, connection_open_abort(mount, &watch->abort_fd));
}

/* False: there is none that waits. */
static bool take_order(struct watch *watch) {
    struct order order;
    ssize_t received = recv(watch->orders_fd, &order, sizeof order, MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (received != sizeof order || order.kind == ORDER_ABORT)
        end(watch);
    take_watch(watch, &order.mount);
    return true;
}

[[gnu::noreturn]] static void guard(struct watch *watch) {
    struct pollfd waits[] = {
        {.fd = watch->orders_fd, .events = POLLIN},
        {.fd = watch->signal_fd, .events = POLLIN},
    };
    for (;;) {
        poll(waits, 2, -1);
        while (take_order(watch))
            continue;
        if (waits[1].revents)
            end(watch);
    }
}

/* The memory of the arguments, one behind the other, which is what `ps` shows. */
static void rename_process(char **argv) {
    char *first = argv[0], *last = argv[0];
    for (char **argument = argv; *argument; argument++) {
        first = *argument < first ? *argument : first;
        last = *argument > last ? *argument : last;
    }
    if (!first)
        return;
    size_t room = (size_t)(last + strlen(last) - first);
    memset(first, 0, room);
    if (room >= sizeof guardian_name)
        memcpy(first, guardian_name, sizeof guardian_name);
    prctl(PR_SET_NAME, guardian_name);
}

[[gnu::noreturn]] static void run_guardian(pid_t daemon, int orders_fd, const char *mountpoint,
                                           char **argv) {
    sigset_t all, parent_died;
    struct watch watch = {.mountpoint = mountpoint, .orders_fd = orders_fd, .abort_fd = -1};
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    prctl(PR_SET_PDEATHSIG, PARENT_DIED);
    if (getppid() != daemon) /* it died before that; nothing is mounted yet */
        _exit(0);
    setsid();
    rename_process(argv);
    descriptors_leave_standard();
    descriptors_keep_only(orders_fd);
    if (chdir("/") < 0)
        _exit(0);
    sigemptyset(&parent_died);
    sigaddset(&parent_died, PARENT_DIED);
    watch.signal_fd = signalfd(-1, &parent_died, SFD_CLOEXEC);
    if (watch.signal_fd < 0)
        _exit(0);
    answer(&watch, 0);
    guard(&watch);
}

/* the daemon's side */

static void reap(struct guardian *guardian) {
    CHECK(guardian->pid > 0); /* 0 and less are whole groups of processes */
    kill(guardian->pid, SIGKILL);
    while (waitpid(guardian->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    close(guardian->fd);
    *guardian = (struct guardian){.fd = -1};
}

/* A wait with a time-out ends early for what io_uring has to do on this thread, too. */
static bool receive_answer(int fd, int *ret_answer) {
    ssize_t received;
    do
        received = recv(fd, ret_answer, sizeof *ret_answer, 0);
    while (received < 0 && errno == EINTR);
    return received == sizeof *ret_answer;
}

static int start(const char *mountpoint, char **argv, struct guardian *ret_guardian) {
    int fds[2];
    pid_t daemon = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0)
        run_guardian(daemon, fds[1], mountpoint, argv);
    int error = pid < 0 ? -errno : 0;
    close(fds[1]);
    if (error) {
        close(fds[0]);
        return error;
    }
    struct timeval most = {.tv_sec = ANSWER_SECONDS};
    setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    *ret_guardian = (struct guardian){.pid = pid, .fd = fds[0]};
    /* From here on it would notice the end of this thread, and others may be started. */
    if (!receive_answer(fds[0], &error)) {
        reap(ret_guardian);
        return -ECHILD;
    }
    return 0;
}

void guardian_start(const char *mountpoint, char **argv, struct guardian *ret_guardian) {
    *ret_guardian = (struct guardian){.fd = -1};
    int error = start(mountpoint, argv, ret_guardian);
    if (error)
        log_notice("starting a guardian process: %s; if this process is killed, clients may hang "
                   "until umount -f %s",
                   strerror(-error), mountpoint);
}

bool guardian_watch(const struct guardian *guardian, const struct mount_entry *mount) {
    struct order order = {.kind = ORDER_WATCH, .mount = *mount};
    int error;
    if (guardian->fd < 0 ||
        send(guardian->fd, &order, sizeof order, MSG_NOSIGNAL) != sizeof order ||
        !receive_answer(guardian->fd, &error))
        return false; /* its end is noticed where its descriptor is polled */
    if (!error || process_has_capability(CAP_SYS_ADMIN))
        return true;
    log_notice("guarding the connection: %s; if this process is killed, clients may hang until "
               "umount -f by root: mount fusectl on /sys/fs/fuse/connections",
               strerror(-error));
    return false;
}

void guardian_abort(const struct guardian *guardian) {
    struct order order = {.kind = ORDER_ABORT};
    if (guardian->fd >= 0)
        send(guardian->fd, &order, sizeof order, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void guardian_bury(struct guardian *guardian) {
    log_notice("the guardian process %d is gone; serving goes on, but if this process is killed, "
               "clients may hang until umount -f",
               (int)guardian->pid);
    reap(guardian);
}

void guardian_stop(struct guardian *guardian) {
    if (guardian->pid > 0)
        reap(guardian);
}
