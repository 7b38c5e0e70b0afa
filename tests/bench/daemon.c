/* SPDX-License-Identifier: Apache-2.0 */
/* The mount under measurement: see daemon.h. */
#include "tests/bench/daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/clock.h"
#include "tests/bench/disk.h"
#include "tests/bench/sample.h"
#include "tests/support/wait.h"

enum { DEADLINE_SECONDS = 120 };
static const char program[] = "./mount.cpl3";

void daemon_init(struct daemon *daemon, const char *directory) {
    *daemon = (struct daemon){};
    int n = snprintf(daemon->store, sizeof daemon->store, "%s/store", directory);
    if (n < 0 || (size_t)n + 16 > sizeof daemon->store)
        give_up("%s: too long a path", directory);
    snprintf(daemon->point, sizeof daemon->point, "%s/mnt", directory);
    snprintf(daemon->rank, sizeof daemon->rank, "%s/rank0", daemon->point);
    snprintf(daemon->log, sizeof daemon->log, "%s/daemon.log", directory);
    while (umount2(daemon->point, MNT_DETACH) == 0)
        ;
    disk_make_empty_directory(directory);
    if (mkdir(daemon->point, 0755) < 0)
        give_up("making %s: %m", daemon->point);
}

/* life */

static bool has_ended(struct daemon *daemon) {
    int status;
    if (daemon->pid == 0 || waitpid(daemon->pid, &status, WNOHANG) != daemon->pid)
        return daemon->pid == 0;
    daemon->pid = 0;
    if (status != 0)
        give_up("the daemon ended with wait status 0x%x; its log is %s", (unsigned)status,
                daemon->log);
    return true;
}

/* SIGTERM, not SIGKILL: it unmounts and leaves nothing dead behind. */
static void run_daemon(const struct daemon *daemon, const char *options) {
    int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    close_range(3, ~0u, 0);
    execl(program, program, daemon->store, daemon->point, "-f", "-o", options, NULL);
    fprintf(stderr, "%s: %s\n", program, strerror(errno));
    _exit(127);
}

/* The stat waits for the daemon's first answers once the mount is there. */
static bool is_serving(struct daemon *daemon, dev_t ground) {
    struct stat status;
    return stat(daemon->point, &status) == 0 && status.st_dev != ground;
}

double daemon_start(struct daemon *daemon, const char *options) {
    struct stat ground;
    if (stat(daemon->point, &ground) < 0)
        give_up("%s: %m", daemon->point);
    uint64_t start_ns = clock_monotonic_ns();
    pid_t pid = fork();
    if (pid == 0)
        run_daemon(daemon, options);
    if (pid < 0)
        give_up("starting %s: %m", program);
    daemon->pid = pid;
    if (!WAIT_UNTIL(has_ended(daemon) || is_serving(daemon, ground.st_dev), DEADLINE_SECONDS) ||
        daemon->pid == 0)
        give_up("%s -o %s does not mount; its log is %s", program, options, daemon->log);
    return (double)(clock_monotonic_ns() - start_ns) / 1e9;
}

/* EBUSY while the last close of a file is on its way. */
static bool is_unmounted(const struct daemon *daemon) {
    return umount2(daemon->point, 0) == 0 || errno == EINVAL;
}

void daemon_stop(struct daemon *daemon) {
    if (daemon->pid == 0)
        return;
    if (!WAIT_UNTIL(is_unmounted(daemon), DEADLINE_SECONDS))
        give_up("unmounting %s: %m", daemon->point);
    if (!WAIT_UNTIL(has_ended(daemon), DEADLINE_SECONDS))
        give_up("unmounted, but the daemon does not end; its log is %s", daemon->log);
}

/* memory */

/* The thread that faults the payload memory in ends when it is done. */
static bool is_touching(const struct daemon *daemon) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", daemon->pid);
    AUTO_CLOSEDIR DIR *tasks = opendir(path);
    if (!tasks)
        give_up("%s: %m; the daemon's log is %s", path, daemon->log);
    for (struct dirent *task; (task = readdir(tasks));) {
        char file[sizeof path + sizeof task->d_name + 8], name[32] = "";
        snprintf(file, sizeof file, "%s/%s/comm", path, task->d_name);
        AUTO_FCLOSE FILE *comm = fopen(file, "re");
        if (comm && fgets(name, sizeof name, comm) && strcmp(name, "cpl3-touch\n") == 0)
            return true;
    }
    return false;
}

void daemon_wait_touched(const struct daemon *daemon) {
    if (!WAIT_UNTIL(!is_touching(daemon), DEADLINE_SECONDS))
        give_up("the daemon does not finish touching its memory");
}

void daemon_get_memory(const struct daemon *daemon, struct daemon_memory *ret_memory) {
    char path[64], line[256];
    uint64_t kib;
    *ret_memory = (struct daemon_memory){};
    snprintf(path, sizeof path, "/proc/%d/status", daemon->pid);
    AUTO_FCLOSE FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status)) {
        if (sscanf(line, "VmRSS: %" SCNu64, &kib) == 1)
            ret_memory->resident_bytes = kib * 1024;
        if (sscanf(line, "RssAnon: %" SCNu64, &kib) == 1)
            ret_memory->anonymous_bytes = kib * 1024;
    }
    if (ret_memory->resident_bytes == 0 || ret_memory->anonymous_bytes == 0)
        give_up("%s does not tell VmRSS and RssAnon", path);
}

/* talking to it */

void daemon_control(const struct daemon *daemon, const char *command) {
    char path[DAEMON_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/.cpl3/control", daemon->point);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, command, strlen(command)) != (ssize_t)strlen(command))
        give_up("%s: %s: %m", path, command);
}

uint64_t daemon_counter(const struct daemon *daemon, const char *name) {
    char path[DAEMON_PATH_MAX + 32], key[128], line[256];
    uint64_t value;
    snprintf(path, sizeof path, "%s/.cpl3/stats", daemon->point);
    AUTO_FCLOSE FILE *stats = fopen(path, "re");
    while (stats && fgets(line, sizeof line, stats))
        if (sscanf(line, "rank0.%127s %" SCNu64, key, &value) == 2 && strcmp(key, name) == 0)
            return value;
    give_up("%s has no rank0.%s", path, name);
}
