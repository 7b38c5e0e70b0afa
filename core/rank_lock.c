/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds a rank, and whether waiting for it is worth while. */
#include "core/rank_lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/superblock.h"

#define HOLDER_NAME "holder"
#define HOLDER_TEMP ".holder.new"

enum {
    LOOK_AGAIN_MS = 5,
    UNKNOWN_WAIT_SECONDS = 1, /* somebody is between the lock and the file, or read-only */
    STATUS_BYTES = 8192,
    SIGKILL_BIT = 1 << (SIGKILL - 1),
};

enum holder_state { HOLDER_UNKNOWN, HOLDER_OPENING, HOLDER_SERVING, HOLDER_CLOSING };

struct holder {
    enum holder_state state;
    long pid;
    unsigned major, minor; /* of its mount, when serving */
    uint64_t size_bytes;
};

/* the holder file */

static void holder_read(int directory_fd, struct holder *ret_holder) {
    char text[96], word[16];
    struct holder holder = {.state = HOLDER_UNKNOWN};
    int length = text_file_read(directory_fd, HOLDER_NAME, text, sizeof(text));
    int fields = length <= 0 ? 0
                             : sscanf(text, "%ld %15s %u:%u", &holder.pid, word, &holder.major,
                                      &holder.minor);
    if (fields == 4 && strcmp(word, "serving") == 0)
        holder.state = HOLDER_SERVING;
    else if (fields == 2 && strcmp(word, "opening") == 0)
        holder.state = HOLDER_OPENING;
    else if (fields == 2 && strcmp(word, "closing") == 0)
        holder.state = HOLDER_CLOSING;
    const char *second = length <= 0 ? NULL : strchr(text, '\n');
    if (!second || sscanf(second, " size %" SCNu64, &holder.size_bytes) != 1)
        holder.size_bytes = 0;
    *ret_holder = holder;
}

/* In one step for readers; it need not be durable, since no holder survives the machine. */
static void holder_write(const struct rank *rank, const char *state) {
    char text[96];
    int length = snprintf(text, sizeof(text), "%ld %s\nsize %" PRIu64 "\n", (long)getpid(), state,
                          rank->store->config.size_bytes);
    AUTO_CLOSE int fd = openat(rank->directory_fd, HOLDER_TEMP,
                               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (write(fd, text, (size_t)length) != length ||
        renameat(rank->directory_fd, HOLDER_TEMP, rank->directory_fd, HOLDER_NAME) < 0)
        unlinkat(rank->directory_fd, HOLDER_TEMP, 0);
}

void rank_note_serving(struct rank *rank, unsigned major, unsigned minor) {
    char state[48];
    snprintf(state, sizeof(state), "serving %u:%u", major, minor);
    if (!rank->store->config.read_only)
        holder_write(rank, state);
}

void rank_note_closing(struct rank *rank) {
    if (!rank->store->config.read_only)
        holder_write(rank, "closing");
}

/* is it about to go? */

static bool has_pending_kill(const char *status, const char *field) {
    const char *line = strstr(status, field);
    return line && strtoull(line + strlen(field), NULL, 16) & SIGKILL_BIT;
}

/*
 * Ended, or on the way: killed, dumping its core, or its main thread is gone while another one is
 * still inside the kernel. Pids of another pid namespace are unknown here and count as ended: then
 * the lock decides. Not from /proc/<pid>/stat, which waits for a process in execve.
 */
static bool process_is_ending(long pid) {
    char path[48], status[STATUS_BYTES];
    snprintf(path, sizeof(path), "/proc/%ld/status", pid);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, status, sizeof(status) - 1);
    if (length < 0)
        return kill((pid_t)pid, 0) < 0 && errno == ESRCH;
    status[length] = '\0';
    return !strstr(status, "\nVmSize:") /* no memory: a zombie, or nearly */ ||
           strstr(status, "\nCoreDumping:\t1") || has_pending_kill(status, "\nSigPnd:") ||
           has_pending_kill(status, "\nShdPnd:");
}

static bool device_is_mounted(unsigned major, unsigned minor) {
    AUTO_FCLOSE FILE *table = fopen("/proc/self/mountinfo", "re");
    AUTO_FREE char *line = NULL;
    size_t room = 0;
    unsigned found_major, found_minor;
    while (table && getline(&line, &room, table) >= 0)
        if (sscanf(line, "%*u %*u %u:%u", &found_major, &found_minor) == 2 &&
            found_major == major && found_minor == minor)
            return true;
    return !table;
}

/* A holder whose mount is gone has been unmounted, and is about to notice. */
static bool is_leaving(const struct holder *holder) {
    return holder->state == HOLDER_CLOSING || process_is_ending(holder->pid) ||
           (holder->state == HOLDER_SERVING && !device_is_mounted(holder->major, holder->minor));
}

uint64_t rank_holder_size_bytes(int rank_directory_fd) {
    struct holder holder;
    holder_read(rank_directory_fd, &holder);
    return holder.state == HOLDER_UNKNOWN || is_leaving(&holder) ? 0 : holder.size_bytes;
}

int rank_find_server(const char *store_path, unsigned major, unsigned minor, pid_t *ret_pid) {
    AUTO_CLOSEDIR DIR *store = opendir(store_path);
    int result = -ENOENT;
    for (struct dirent *entry; store && (entry = readdir(store));) {
        struct holder holder;
        if (strncmp(entry->d_name, "rank", 4) != 0)
            continue;
        AUTO_CLOSE int fd = openat(dirfd(store), entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            continue;
        holder_read(fd, &holder);
        if (holder.state != HOLDER_SERVING || holder.major != major || holder.minor != minor)
            continue;
        if (!process_is_ending(holder.pid)) {
            *ret_pid = (pid_t)holder.pid;
            return 0;
        }
        result = -ESRCH;
    }
    return result;
}

/* the lock */

static void rank_name(uint16_t number, char *ret_name, size_t size) {
    snprintf(ret_name, size, "rank%u", number);
}

static int refuse(const struct holder *holder, bool leaving, const char *store_path,
                  uint16_t number) {
    char who[64] = "a process that does not say which (a read-only mount?)";
    if (holder->state != HOLDER_UNKNOWN)
        snprintf(who, sizeof(who), "process %ld", holder->pid);
    if (leaving)
        log_error("rank %u of store %s is in use by %s, which is ending but has not gone within "
                  "%d s; nothing was changed. If its mount hangs, umount -f it",
                  number, store_path, who, RANK_LOCK_WAIT_SECONDS);
    else
        log_error("rank %u of store %s is in use by %s; nothing was changed. Unmount that one "
                  "first, or mount another rank",
                  number, store_path, who);
    return -EBUSY;
}

/* Since when, on the monotonic clock, one process has waited, and for a holder without a name. */
struct wait {
    uint64_t start_ns, unknown_ns;
};

/* Notes that it looked and found this holder. */
static bool wait_is_over(struct wait *wait, const struct holder *holder, bool leaving) {
    uint64_t now_ns = clock_monotonic_ns();
    if (holder->state == HOLDER_UNKNOWN)
        return now_ns - wait->unknown_ns >= UNKNOWN_WAIT_SECONDS * UINT64_C(1000000000);
    wait->unknown_ns = now_ns;
    return !leaving || now_ns - wait->start_ns >= RANK_LOCK_WAIT_SECONDS * UINT64_C(1000000000);
}

static int lock_directory(int fd, const char *store_path, uint16_t number) {
    const struct timespec pause = {.tv_nsec = LOOK_AGAIN_MS * 1000000L};
    const uint64_t now_ns = clock_monotonic_ns();
    struct wait wait = {now_ns, now_ns};
    for (bool told = false;; nanosleep(&pause, NULL)) {
        struct holder holder;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        int error = errno;
        if (error != EWOULDBLOCK) {
            log_error("rank %u of store %s: locking it: %s", number, store_path, strerror(error));
            return -error;
        }
        holder_read(fd, &holder);
        bool leaving = holder.state != HOLDER_UNKNOWN && is_leaving(&holder);
        if (wait_is_over(&wait, &holder, leaving))
            return refuse(&holder, leaving, store_path, number);
        if (leaving && !told)
            log_notice("rank %u of store %s: process %ld is ending; waiting for it", number,
                       store_path, holder.pid);
        told = told || leaving;
    }
}

int rank_try_lock(const struct config *config, int store_fd, uint16_t number) {
    char name[16];
    rank_name(number, name, sizeof(name));
    AUTO_CLOSE int fd = openat(store_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        if (!config->read_only)
            return 0;
        log_error("store %s has no rank %u, and a read-only mount makes none", config->store_path,
                  number);
        return -ENOENT;
    }
    if (fd < 0) {
        int error = errno;
        log_error("store %s: %s: %s", config->store_path, name, strerror(error));
        return -error;
    }
    return lock_directory(fd, config->store_path, number);
}

int rank_lock(struct rank *rank, struct store *store, uint16_t number) {
    char name[16];
    rank->number = number;
    rank->store = store;
    rank_name(number, name, sizeof(name));
    bool read_only = store->config.read_only;
    if (!read_only && mkdirat(store->directory_fd, name, 0700) == 0)
        fsync(store->directory_fd);
    int fd = openat(store->directory_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        int error = errno;
        log_error("store %s: %s: %s", store->config.store_path, name, strerror(error));
        return -error;
    }
    int result = lock_directory(fd, store->config.store_path, number);
    if (result < 0) {
        close(fd);
        return result;
    }
    rank->directory_fd = fd;
    if (!read_only)
        holder_write(rank, "opening");
    return 0;
}

void rank_unlock(struct rank *rank) {
    if (!rank->store->config.read_only)
        unlinkat(rank->directory_fd, HOLDER_NAME, 0);
    close(rank->directory_fd);
}
