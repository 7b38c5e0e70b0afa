/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes of a test: see process.h. */
#include "tests/support/process.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/files.h"
#include "tests/support/wait.h"

pid_t child_start(int (*function)(void *), void *argument) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(function(argument));
}

int child_wait(pid_t pid, double seconds) {
    int status;
    if (WAIT_UNTIL(waitpid(pid, &status, WNOHANG) == pid, seconds))
        return status;
    fprintf(stderr, "process %d did not end within %g s\n", pid, seconds);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
}

bool child_succeeds(int (*function)(void *), void *argument, double seconds) {
    pid_t pid = child_start(function, argument);
    return pid > 0 && child_wait(pid, seconds) == 0;
}

int run_shell(double seconds, char **ret_output, const char *format, ...) {
    char command[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    int out = memfd_create("output", MFD_CLOEXEC);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpgid(0, 0);
        dup2(out, 1);
        dup2(out, 2);
        execl("/bin/bash", "bash", "-c", command, NULL);
        _exit(127);
    }
    int status = child_wait(pid, seconds);
    if (status == -1)
        kill(-pid, SIGKILL); /* what it had started */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", out);
    char *output = file_read(path, NULL);
    if (status != 0 && output && !ret_output)
        fprintf(stderr, "%s\n%s", command, output);
    if (ret_output)
        *ret_output = output;
    else
        free(output);
    close(out);
    return status;
}

int complain(const char *format, ...) {
    int error = errno;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "process %d: %s (errno %d: %s)\n", getpid(), text, error, strerror(error));
    return 1;
}
