/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pipe from child to parent. A byte means "serving"; its end without a byte, that the child is
 * gone, and its exit status is the answer. The descriptor is close-on-exec, so helpers that the
 * child starts cannot keep the pipe open.
 */
#include "fs/background.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "fs/descriptors.h"
#include "fs/exit_code.h"

static int code_of_child(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return EXIT_CODE_STORE;
    }
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    log_error("the process in the background was killed by signal %d (%s) before it served",
              WTERMSIG(status), strsignal(WTERMSIG(status)));
    return EXIT_CODE_STORE;
}

[[gnu::noreturn]] static void wait_for_child(pid_t child, int fd) {
    char byte;
    ssize_t count;
    do
        count = read(fd, &byte, 1);
    while (count < 0 && errno == EINTR);
    exit(count == 1 ? EXIT_CODE_GOOD : code_of_child(child));
}

int background_start(bool foreground, struct background *ret_background) {
    int fds[2];
    if (foreground) {
        *ret_background = (struct background){.report_fd = -1};
        return 0;
    }
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid_t child = fork();
    if (child < 0) {
        int error = -errno;
        close(fds[0]);
        close(fds[1]);
        return error;
    }
    close(fds[child > 0]);
    if (child > 0)
        wait_for_child(child, fds[0]);
    setsid();
    *ret_background = (struct background){.report_fd = fds[1]};
    return 0;
}

int background_report_serving(struct background *background) {
    if (background->report_fd < 0)
        return 0;
    char byte = 0;
    ssize_t count = write(background->report_fd, &byte, 1); /* SIGPIPE is ignored by main */
    int error = count == 1 ? 0 : -EPIPE;
    close(background->report_fd);
    background->report_fd = -1;
    if (error)
        return error;
    log_use_syslog(true);
    descriptors_leave_standard();
    return chdir("/") < 0 ? -errno : 0;
}
