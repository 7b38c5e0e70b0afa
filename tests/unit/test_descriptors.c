/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of a child: it says by its exit status what it found. */
#include "fs/descriptors.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

static bool is_null_device(int fd) {
    char link[32], target[32] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, target, sizeof target - 1) > 0 && strcmp(target, "/dev/null") == 0;
}

static int in_child(int (*function)(void)) {
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(function());
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int start_without_output(void) {
    close(STDOUT_FILENO);
    close(STDERR_FILENO);
    descriptors_ensure_standard();
    int next = open("/dev/zero", O_RDONLY);
    bool input_untouched = is_open(STDIN_FILENO);
    return is_null_device(1) && is_null_device(2) && next > STDERR_FILENO && input_untouched ? 0
                                                                                             : 1;
}

Test(descriptors, a_file_never_takes_the_place_of_a_closed_stderr) {
    cr_assert_eq(in_child(start_without_output), 0);
}

static int keep_one(void) {
    int kept = fcntl(STDIN_FILENO, F_DUPFD, 40), lower = fcntl(kept, F_DUPFD, 20),
        higher = fcntl(kept, F_DUPFD, 60);
    descriptors_keep_only(kept);
    return is_open(0) && is_open(2) && is_open(kept) && !is_open(lower) && !is_open(higher) &&
                   !is_open(3)
               ? 0
               : 1;
}

Test(descriptors, only_the_standard_ones_and_one_are_kept) {
    cr_assert_eq(in_child(keep_one), 0);
}

static int leave(void) {
    descriptors_leave_standard();
    return is_null_device(0) && is_null_device(1) && is_null_device(2) ? 0 : 1;
}

Test(descriptors, leaving_the_terminal_leaves_all_three) {
    cr_assert_eq(in_child(leave), 0);
}
