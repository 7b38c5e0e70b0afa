/* SPDX-License-Identifier: Apache-2.0 */
/* Threads under ptrace: see freeze.h. */
#include "tests/support/freeze.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "core/cleanup.h"

/* The value of a field of /proc/<id>/status; "" if there is none. */
static void status_field(pid_t id, const char *field, char *ret_value, size_t room) {
    char path[64], line[256];
    size_t bytes = strlen(field);
    *ret_value = '\0';
    snprintf(path, sizeof path, "/proc/%d/status", id);
    AUTO_FCLOSE FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, field, bytes) == 0 && line[bytes] == ':') {
            const char *value = line + bytes + 1 + strspn(line + bytes + 1, " \t");
            snprintf(ret_value, room, "%.*s", (int)strcspn(value, "\n"), value);
            return;
        }
}

char process_state(pid_t id) {
    char value[32];
    status_field(id, "State", value, sizeof value);
    return value[0];
}

static bool has_name(pid_t id, const char *name) {
    char value[32];
    status_field(id, "Name", value, sizeof value);
    return strncmp(value, name, strlen(name)) == 0;
}

/* The next number among the names of a directory of /proc, 0 at its end. */
static pid_t next_number(DIR *directory) {
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (isdigit((unsigned char)entry->d_name[0]))
            return (pid_t)atoi(entry->d_name);
    return 0;
}

static DIR *open_threads(pid_t process) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    return opendir(path);
}

pid_t thread_named(pid_t process, const char *name) {
    AUTO_CLOSEDIR DIR *threads = open_threads(process);
    for (pid_t thread; (thread = next_number(threads));)
        if (has_name(thread, name))
            return thread;
    return 0;
}

pid_t child_named(pid_t process, const char *name) {
    AUTO_CLOSEDIR DIR *processes = opendir("/proc");
    char parent[32];
    for (pid_t child; (child = next_number(processes));) {
        status_field(child, "PPid", parent, sizeof parent);
        if (atoi(parent) == process && has_name(child, name))
            return child;
    }
    return 0;
}

bool is_inside_syscall(pid_t id, long number) {
    char path[64];
    long found;
    snprintf(path, sizeof path, "/proc/%d/syscall", id);
    AUTO_FCLOSE FILE *file = fopen(path, "re");
    return file && fscanf(file, "%ld", &found) == 1 && found == number;
}

unsigned freeze_threads(pid_t process, const char *name, struct freeze *freeze) {
    AUTO_CLOSEDIR DIR *threads = open_threads(process);
    unsigned before = freeze->count;
    for (pid_t thread; freeze->count < FREEZE_MAX && (thread = next_number(threads));) {
        if (thread == process || !has_name(thread, name) ||
            ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0)
            continue;
        ptrace(PTRACE_INTERRUPT, thread, NULL, NULL);
        waitpid(thread, NULL, __WALL);
        freeze->threads[freeze->count++] = thread;
    }
    return freeze->count - before;
}

void freeze_end(struct freeze *freeze) {
    for (; freeze->count > 0; freeze->count--)
        ptrace(PTRACE_DETACH, freeze->threads[freeze->count - 1], NULL, NULL);
}

void freeze_reap(struct freeze *freeze) {
    for (; freeze->count > 0; freeze->count--)
        waitpid(freeze->threads[freeze->count - 1], NULL, __WALL);
}
