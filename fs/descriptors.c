/* SPDX-License-Identifier: Apache-2.0 */
/* Leaving behind the descriptors that a process was born with. */
#include "fs/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

void descriptors_ensure_standard(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

void descriptors_leave_standard(void) {
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; standard++)
        dup2(fd, standard);
    if (fd > STDERR_FILENO)
        close(fd);
}

void descriptors_keep_only(int fd) {
    const unsigned first = STDERR_FILENO + 1, kept = (unsigned)fd;
    if (kept > first)
        close_range(first, kept - 1, 0);
    close_range(kept < first ? first : kept + 1, ~0u, 0);
}

void descriptors_raise_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}
