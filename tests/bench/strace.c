/* SPDX-License-Identifier: Apache-2.0 */
/* A tracer as a child process: see strace.h. */
#include "tests/bench/strace.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/fuse.h>

#include "core/cleanup.h"
#include "tests/bench/sample.h"
#include "tests/support/wait.h"

enum { DEADLINE_SECONDS = 20 };

static const char *const names[STRACE_OPCODES] = {
    [FUSE_LOOKUP] = "LOOKUP",       [FUSE_FORGET] = "FORGET",
    [FUSE_GETATTR] = "GETATTR",     [FUSE_SETATTR] = "SETATTR",
    [FUSE_OPEN] = "OPEN",           [FUSE_READ] = "READ",
    [FUSE_WRITE] = "WRITE",         [FUSE_RELEASE] = "RELEASE",
    [FUSE_FSYNC] = "FSYNC",         [FUSE_FLUSH] = "FLUSH",
    [FUSE_CREATE] = "CREATE",       [FUSE_BATCH_FORGET] = "BATCH_FORGET",
    [FUSE_GETXATTR] = "GETXATTR",   [FUSE_ACCESS] = "ACCESS",
    [FUSE_INTERRUPT] = "INTERRUPT", [FUSE_READDIRPLUS] = "READDIRPLUS",
    [FUSE_OPENDIR] = "OPENDIR",     [FUSE_READDIR] = "READDIR",
    [FUSE_STATFS] = "STATFS",       [FUSE_UNLINK] = "UNLINK",
};

const char *strace_opcode_name(unsigned opcode) {
    return opcode < STRACE_OPCODES ? names[opcode] : NULL;
}

static void run_strace(pid_t daemon, const char *log) {
    char pid[16];
    snprintf(pid, sizeof pid, "%d", daemon);
    prctl(PR_SET_PDEATHSIG, SIGINT);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDERR_FILENO);
    execlp("strace", "strace", "-f", "-q", "-p", pid, "-P", "/dev/fuse", "-e", "trace=readv", "-xx",
           "-s", "8", "-o", log, NULL);
    _exit(127);
}

static bool is_traced(const char *task_status) {
    char line[256];
    int tracer = 0;
    AUTO_FCLOSE FILE *status = fopen(task_status, "re");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "TracerPid: %d", &tracer) == 1)
            break;
    return tracer != 0;
}

static bool all_traced(pid_t daemon) {
    char path[64];
    bool all = true;
    snprintf(path, sizeof path, "/proc/%d/task", daemon);
    AUTO_CLOSEDIR DIR *tasks = opendir(path);
    for (struct dirent *task; tasks && all && (task = readdir(tasks));) {
        char file[sizeof path + sizeof task->d_name + 8];
        snprintf(file, sizeof file, "%s/%s/status", path, task->d_name);
        all = task->d_name[0] == '.' || is_traced(file);
    }
    return tasks && all;
}

static bool has_ended(struct strace *strace) {
    int status;
    if (strace->pid != 0 && waitpid(strace->pid, &status, WNOHANG) == strace->pid)
        strace->pid = 0;
    return strace->pid == 0;
}

bool strace_start(struct strace *strace, pid_t daemon, const char *directory) {
    snprintf(strace->log, sizeof strace->log, "%s/strace.log", directory);
    strace->pid = fork();
    if (strace->pid == 0)
        run_strace(daemon, strace->log);
    if (strace->pid < 0)
        give_up("starting strace: %m");
    if (!WAIT_UNTIL(has_ended(strace) || all_traced(daemon), DEADLINE_SECONDS))
        give_up("strace does not attach to the daemon");
    return strace->pid != 0;
}

/* A line that shows a buffer begins it with the request's header: length, then the opcode. */
static bool find_opcode(const char *line, unsigned *ret_opcode) {
    unsigned byte[8];
    const char *bytes = strstr(line, "\"\\x");
    if (!bytes || sscanf(bytes, "\"\\x%2x\\x%2x\\x%2x\\x%2x\\x%2x\\x%2x\\x%2x\\x%2x", &byte[0],
                         &byte[1], &byte[2], &byte[3], &byte[4], &byte[5], &byte[6], &byte[7]) != 8)
        return false;
    *ret_opcode = byte[4] | byte[5] << 8 | byte[6] << 16 | byte[7] << 24;
    return true;
}

void strace_stop(struct strace *strace, uint64_t ret_counts[STRACE_OPCODES]) {
    char line[512];
    unsigned opcode;
    kill(strace->pid, SIGINT);
    if (!WAIT_UNTIL(has_ended(strace), DEADLINE_SECONDS))
        give_up("strace does not end");
    memset(ret_counts, 0, STRACE_OPCODES * sizeof *ret_counts);
    AUTO_FCLOSE FILE *log = fopen(strace->log, "re");
    if (!log)
        give_up("%s: %m", strace->log);
    while (fgets(line, sizeof line, log))
        if (find_opcode(line, &opcode) && opcode < STRACE_OPCODES)
            ret_counts[opcode]++;
}
