/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a store. Everything that can be refused is refused by store_preflight, before
 * anything is changed; store_open then makes what is missing and runs each rank's cold start.
 */
#include "core/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/rank.h"
#include "core/rank_lock.h"
#include "core/rank_open.h"
#include "core/superblock.h"

enum { DEFAULT_SHARE_PERCENT = 80 };

static unsigned rank_count_of(const struct config *config) {
    return (unsigned)(config->rank_last - config->rank_first) + 1;
}

static double gib(uint64_t bytes) {
    return (double)bytes / (1 << 30);
}

/* before anything is changed */

/* malloc'ed; "." for a bare name. */
static char *parent_of(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    return length ? strndup(path, length) : strdup(".");
}

/* The store's directory, or -1 in *ret_fd when it does not exist yet (its parent must). */
static int look_at_directory(const struct config *config, int *ret_fd) {
    int fd = open(config->store_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        *ret_fd = fd;
        return 0;
    }
    int error = errno;
    if (error == ENOENT && !config->read_only) {
        AUTO_FREE char *parent = parent_of(config->store_path);
        if (!parent)
            return -ENOMEM;
        if (access(parent, W_OK | X_OK) == 0) {
            *ret_fd = -1;
            return 0;
        }
        error = errno;
        log_error("store %s: it cannot be made: %s: %s", config->store_path, parent,
                  strerror(error));
        return -error;
    }
    log_error("store %s: %s", config->store_path, strerror(error));
    return -error;
}

static bool is_empty_directory(int directory_fd) {
    int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSEDIR DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir)
        return false;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, "lost+found") != 0)
            return false;
    return true;
}

/* The superblock of an existing store; size_bytes 0: a store is to be made here. */
static int look_at_superblock(const struct config *config, int directory_fd,
                              struct superblock *ret_superblock) {
    *ret_superblock = (struct superblock){0};
    int result = directory_fd < 0
                     ? -ENOENT
                     : superblock_read(directory_fd, config->store_path, ret_superblock);
    if (result != -ENOENT)
        return result;
    if (config->read_only) {
        log_error("store %s: there is no store, and a read-only mount makes none",
                  config->store_path);
        return -ENOENT;
    }
    if (directory_fd >= 0 && !is_empty_directory(directory_fd)) {
        log_error("store %s: the directory is not empty and has no cpl3 superblock; nothing was "
                  "changed. Name an empty or a new directory",
                  config->store_path);
        return -ENOTEMPTY;
    }
    return 0;
}

static uint64_t disk_bytes_of_rank(int directory_fd, const char *name) {
    int fd = openat(directory_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSEDIR DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    uint64_t bytes = 0;
    struct stat status;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(status.st_mode))
            bytes += (uint64_t)status.st_blocks * 512;
    return bytes;
}

/* What other mounts of this store may still take of the disk: their sizes less what they have. */
static uint64_t bytes_promised_to_others(const struct config *config, int directory_fd) {
    int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSEDIR DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    uint64_t promised = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        unsigned number;
        int end = 0;
        if (sscanf(entry->d_name, "rank%u%n", &number, &end) != 1 || entry->d_name[end] ||
            (number >= config->rank_first && number <= config->rank_last))
            continue;
        AUTO_CLOSE int rank_fd =
            openat(directory_fd, entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        uint64_t size = rank_fd < 0 ? 0 : rank_holder_size_bytes(rank_fd);
        uint64_t has = size ? disk_bytes_of_rank(directory_fd, entry->d_name) : 0;
        promised += size > has ? size - has : 0;
    }
    return promised;
}

static uint64_t bytes_of_own_ranks(const struct config *config, int directory_fd) {
    uint64_t bytes = 0;
    for (unsigned number = config->rank_first; number <= config->rank_last; number++) {
        char name[16];
        snprintf(name, sizeof(name), "rank%u", number);
        bytes += disk_bytes_of_rank(directory_fd, name);
    }
    return bytes;
}

/* `size` in force, and whether the host has it. What our slabs occupy already counts as there. */
static int resolve_size(struct config *config, int directory_fd,
                        const struct superblock *superblock) {
    struct statvfs host;
    AUTO_FREE char *parent = parent_of(config->store_path);
    if (!parent)
        return -ENOMEM;
    if ((directory_fd >= 0 ? fstatvfs(directory_fd, &host) : statvfs(parent, &host)) < 0) {
        int error = errno;
        log_error("store %s: %s", config->store_path, strerror(error));
        return -error;
    }
    uint64_t available = (uint64_t)host.f_bavail * host.f_frsize, promised = 0;
    if (directory_fd >= 0) {
        available += bytes_of_own_ranks(config, directory_fd);
        promised = bytes_promised_to_others(config, directory_fd);
        available -= promised < available ? promised : available;
    }
    unsigned ranks = rank_count_of(config);
    if (!config->size_bytes)
        config->size_bytes =
            superblock->size_bytes
                ? superblock->size_bytes
                : round_up_to_block(available / 100 * DEFAULT_SHARE_PERCENT / ranks);
    if (!config->read_only && config->size_bytes > available / ranks) {
        log_error(
            "size=%" PRIu64 " (%.2f GiB) for each of %u rank%s needs %.2f GiB, and the disk "
            "of %s has %.2f GiB (with what these ranks hold already, without the %.2f GiB that "
            "other mounts of the store may still take); give a smaller size",
            config->size_bytes, gib(config->size_bytes), ranks, ranks > 1 ? "s" : "",
            gib(config->size_bytes * ranks), config->store_path, gib(available), gib(promised));
        return -ENOSPC;
    }
    return 0;
}

static int preflight(struct config *config) {
    AUTO_CLOSE int fd = -1;
    struct superblock superblock;
    int result = look_at_directory(config, &fd);
    if (result == 0)
        result = look_at_superblock(config, fd, &superblock);
    if (result == 0)
        result = resolve_size(config, fd, &superblock);
    if (result == 0)
        result = rank_check_budgets(config);
    for (unsigned i = 0; result == 0 && fd >= 0 && i < rank_count_of(config); i++)
        result = rank_try_lock(config, fd, (uint16_t)(config->rank_first + i));
    return result;
}

int store_preflight(const struct config *config) {
    struct config resolved = *config;
    return preflight(&resolved);
}

/* opening */

static int make_directory(const char *path) {
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        int error = errno;
        log_error("store %s: making it: %s", path, strerror(error));
        return -error;
    }
    return 0;
}

static int open_directory(struct store *store) {
    const struct config *config = &store->config;
    int result = config->read_only ? 0 : make_directory(config->store_path);
    if (result < 0)
        return result;
    store->directory_fd = open(config->store_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->directory_fd < 0) {
        int error = errno;
        log_error("store %s: %s", config->store_path, strerror(error));
        return -error;
    }
    struct superblock superblock;
    result = superblock_read(store->directory_fd, config->store_path, &superblock);
    if (result == -ENOENT) {
        result = superblock_create(store->directory_fd, config->size_bytes, &superblock);
        if (result < 0)
            log_error("store %s: writing its superblock: %s", config->store_path,
                      strerror(-result));
    }
    if (result == 0)
        snprintf(store->uuid, sizeof(store->uuid), "%s", superblock.uuid);
    return result;
}

static int open_buffers(struct store *store) {
    const struct config *config = &store->config;
    uint64_t shares[BUFFER_SHARES] = {
        [BUFFER_STAGING] = config->memory_bytes / 2,
        [BUFFER_READING] = config->memory_bytes / 2,
        [BUFFER_REQUESTS] = config->request_bytes,
    };
    int result = buffer_pool_open(config->memory_bytes + config->request_bytes, shares, true,
                                  &store->buffers);
    if (result < 0)
        log_error("memory=%" PRIu64 ": %s", config->memory_bytes, strerror(-result));
    return result;
}

static int open_ranks(struct store *store) {
    unsigned count = rank_count_of(&store->config);
    store->ranks = calloc(count, sizeof(*store->ranks));
    if (!store->ranks)
        return -ENOMEM;
    /* All locks first: a rank in use is found before any other one is touched. */
    for (unsigned i = 0; i < count; i++) {
        int result = rank_lock(&store->ranks[i], store, (uint16_t)(store->config.rank_first + i));
        if (result < 0)
            return result;
        store->rank_count++;
    }
    int result = 0;
    for (unsigned i = 0; result == 0 && i < count; i++)
        result = cold_start_check_tag(&store->ranks[i]);
    for (unsigned i = 0; result == 0 && i < count; i++)
        result = rank_check_slabs(&store->ranks[i]);
    if (result == 0)
        result = rank_open_index(store);
    for (unsigned i = 0; result == 0 && i < count; i++)
        result = rank_open(&store->ranks[i]);
    if (result == 0)
        result = open_buffers(store);
    for (unsigned i = 0; result == 0 && i < count; i++)
        result = rank_start(&store->ranks[i]);
    return result;
}

/* A process in the background may have said its last words where nobody listened. */
static void tell_last_fatal(const struct store *store) {
    char words[4096], when[32];
    struct stat status;
    struct tm utc;
    if (fstatat(store->directory_fd, LOG_FATAL_NAME, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
        text_file_read(store->directory_fd, LOG_FATAL_NAME, words, sizeof(words)) < 0)
        return;
    words[strcspn(words, "\n")] = '\0';
    gmtime_r(&status.st_mtime, &utc);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &utc);
    log_notice("store %s: a process that served it crashed at %s: %s", store->config.store_path,
               when, words);
    unlinkat(store->directory_fd, LOG_FATAL_NAME, 0);
}

static void watch_for_fatal(const struct store *store) {
    if (store->config.read_only)
        return;
    tell_last_fatal(store);
    log_keep_fatal_in(store->directory_fd);
}

int store_open(const struct config *config, const struct store_events *events,
               struct store **ret_store) {
    struct store *store = calloc(1, sizeof(*store));
    if (!store)
        return -ENOMEM;
    store->config = *config;
    store->config.store_path = strdup(config->store_path);
    store->directory_fd = store->index_lock_fd = -1;
    if (events)
        store->events = *events;
    int result = store->config.store_path ? preflight(&store->config) : -ENOMEM;
    if (result == 0)
        result = open_directory(store);
    if (result == 0)
        watch_for_fatal(store);
    if (result == 0)
        result = open_ranks(store);
    if (result < 0) {
        store_close(store);
        return result;
    }
    *ret_store = store;
    return 0;
}

void store_note_serving(struct store *store, unsigned major, unsigned minor) {
    for (unsigned i = 0; i < store->rank_count; i++)
        rank_note_serving(&store->ranks[i], major, minor);
}

void store_note_closing(struct store *store) {
    for (unsigned i = 0; i < store->rank_count; i++)
        rank_note_closing(&store->ranks[i]);
}

int store_find_server(const char *store_path, unsigned major, unsigned minor, pid_t *ret_pid) {
    return rank_find_server(store_path, major, minor, ret_pid);
}

void store_close(struct store *store) {
    if (!store)
        return;
    store_note_closing(store);
    for (unsigned i = 0; i < store->rank_count; i++)
        rank_stop(&store->ranks[i]);
    for (unsigned i = 0; i < store->rank_count; i++)
        rank_close(&store->ranks[i]);
    buffer_pool_close(store->buffers);
    index_close(store->index);
    if (store->index_lock_fd >= 0)
        close(store->index_lock_fd);
    log_keep_fatal_in(-1);
    /* Last: who waits for a rank finds the rest free, too. */
    for (unsigned i = 0; i < store->rank_count; i++)
        rank_unlock(&store->ranks[i]);
    if (store->directory_fd >= 0)
        close(store->directory_fd);
    free(store->ranks);
    free(store->config.store_path);
    free(store);
}

const struct config *store_config(const struct store *store) {
    return &store->config;
}

struct buffer_pool *store_buffers(const struct store *store) {
    return store->buffers;
}

struct rank *store_rank(const struct store *store, uint16_t number) {
    if (number < store->config.rank_first || number > store->config.rank_last)
        return NULL;
    return &store->ranks[number - store->config.rank_first];
}
