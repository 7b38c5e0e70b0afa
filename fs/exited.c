/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/<pid>/statm comes first, always. A task that still has an mm may be in execve(), which
 * holds the lock that /proc/<pid>/stat waits for, while execve() itself waits for our answer to the
 * FLUSH of a close-on-exec descriptor: reading `stat` then would hang both for good. Without an mm
 * (statm is all zeros: past exit_mm) there is no execve() to wait for.
 */
#include "fs/exited.h"

#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TEXT_BYTES = 2048,
    STAT_FLAGS_FIELD = 9, /* as proc(5) counts: the state is 3 */
    STAT_EXIT_CODE_FIELD = 52,
    FLAG_EXITING = 0x4, /* PF_EXITING */
    SIGNAL_BITS = 0x7f,
    CAPABILITY_PTRACE = 19,
};

/* False: there is nothing to read. Without a descriptor to read it with (*ret_blind), it cannot be
 * told. */
static bool read_text(pid_t pid, const char *what, char ret_text[TEXT_BYTES], bool *ret_blind) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    *ret_blind = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, ret_text, TEXT_BYTES - 1);
    if (got <= 0)
        return false;
    ret_text[got] = '\0';
    return true;
}

bool exited_stat_tells_signal(const char *stat) {
    /* The command may contain anything, parentheses and blanks too: fields count from its end. */
    const char *field = strrchr(stat, ')');
    if (!field)
        return false;
    unsigned long flags = 0;
    long exit_code = 0;
    field += 1;
    for (int number = 3; number <= STAT_EXIT_CODE_FIELD; number++) {
        field = strchr(field, ' ');
        if (!field)
            return false;
        field++;
        if (number == STAT_FLAGS_FIELD)
            flags = strtoul(field, NULL, 10);
        if (number == STAT_EXIT_CODE_FIELD)
            exit_code = strtol(field, NULL, 10);
    }
    return (flags & FLAG_EXITING) && (exit_code & SIGNAL_BITS);
}

bool exited_by_signal(pid_t pid) {
    char text[TEXT_BYTES];
    bool blind;
    if (pid <= 0)
        return false;
    /* Half a file is worse than a whole one that is lost: who cannot be seen counts as killed. */
    if (!read_text(pid, "statm", text, &blind))
        return blind;
    if (strncmp(text, "0 0 0 ", 6) != 0)
        return false;
    return read_text(pid, "stat", text, &blind) ? exited_stat_tells_signal(text) : blind;
}

pid_t exited_process_of(pid_t thread) {
    char text[TEXT_BYTES];
    bool blind;
    if (thread <= 0 || !read_text(thread, "status", text, &blind))
        return 0;
    const char *line = strstr(text, "\nTgid:");
    return line ? (pid_t)strtol(line + strlen("\nTgid:"), NULL, 10) : 0;
}

bool exited_can_see_all(void) {
    char text[TEXT_BYTES];
    bool blind;
    if (geteuid() == 0)
        return true;
    if (!read_text(getpid(), "status", text, &blind))
        return false;
    const char *line = strstr(text, "\nCapEff:");
    return line && (strtoull(line + strlen("\nCapEff:"), NULL, 16) >> CAPABILITY_PTRACE & 1);
}
