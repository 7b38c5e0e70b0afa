/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mount does with what the disk already holds, before any thread exists.
 *
 *   clear  the epoch is bumped durably: from then on no header on disk and no record verifies; then
 *          the records go. The slabs' bytes stay, inert, and are reused.
 *   load   headers under the current epoch and the index must agree on each slot (cold_load.c).
 * What cannot be trusted as a whole (no epoch, no index) makes the rank start empty, said aloud.
 */
#include "core/cold_start.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/rank_open.h"
#include "core/tag.h"

enum { DELETES_PER_TXN = 8192 };

/* the index, before it is opened */

static bool is_ours(const struct store *store, const char *name) {
    for (unsigned i = 0; i < store->rank_count; i++) {
        char ours[16];
        snprintf(ours, sizeof(ours), "rank%u", store->ranks[i].number);
        if (strcmp(name, ours) == 0)
            return true;
    }
    return false;
}

static bool has_other_ranks(const struct store *store) {
    int fd = openat(store->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSEDIR DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir)
        return true;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strncmp(entry->d_name, "rank", 4) == 0 && !is_ours(store, entry->d_name))
            return true;
    return false;
}

/* Nobody else has the index open: it may be replaced. Else shared. */
static int lock_index(struct store *store, bool *ret_alone) {
    if (!store->config.read_only && mkdirat(store->directory_fd, "index", 0700) == 0)
        fsync(store->directory_fd);
    int fd = openat(store->directory_fd, "index", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    store->index_lock_fd = fd;
    *ret_alone = !store->config.read_only && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (*ret_alone)
        return 0;
    return flock(fd, LOCK_SH) < 0 ? -errno : 0;
}

static int replace_damaged(struct store *store, const char *path, bool alone, const char *reason) {
    if (!alone) {
        log_error("store %s: the index is damaged (%s), and another mount is using it; unmount the "
                  "other ranks first, then mount again: all ranks will start empty",
                  store->config.store_path, reason);
        return -EUCLEAN;
    }
    log_error("store %s: the index is damaged (%s): it is replaced, and every rank of the store "
              "starts empty",
              store->config.store_path, reason);
    for (unsigned i = 0; i < store->rank_count; i++)
        snprintf(store->ranks[i].cold_start.empty_because,
                 sizeof(store->ranks[i].cold_start.empty_because), "the index was damaged: %.100s",
                 reason);
    return index_remove_files(path);
}

/* A file that would kill its reader is found out by a child that may die (index_check_in_child). */
static int check_index(struct store *store, const char *path, bool alone) {
    bool clear = store->config.cold_start == COLD_START_CLEAR;
    if (clear && alone && !has_other_ranks(store))
        return index_remove_files(path); /* all of it goes, whatever its size */
    for (unsigned i = 0; i < store->rank_count; i++) {
        char reason[128] = "";
        int result = index_check_in_child(path, store->ranks[i].number, reason, sizeof(reason));
        if (result == -EUCLEAN)
            return replace_damaged(store, path, alone, reason);
        if (result < 0)
            return result;
    }
    return 0;
}

/* Enough for many transactions, and little beside the store. */
static uint64_t reserve_bytes(uint64_t size_bytes) {
    uint64_t bytes = size_bytes / 256, least = 1 << 20, most = 64 << 20;
    return bytes < least ? least : bytes > most ? most : bytes;
}

int rank_open_index(struct store *store) {
    const struct config *config = &store->config;
    AUTO_FREE char *path = NULL;
    if (asprintf(&path, "%s/index", config->store_path) < 0)
        return -ENOMEM;
    bool alone = false;
    int result = lock_index(store, &alone);
    if (result == 0)
        result = check_index(store, path, alone);
    /* Worst case: everything inline, 8 KiB of pages and a record each; twice that, for the free
     * list of long transactions, so that deletes never meet a full map. Address space only. */
    struct index_options options = {
        .map_bytes = (UINT64_C(1) << 30) + 4 * config->size_bytes * store->rank_count,
        .reserve_bytes = reserve_bytes(config->size_bytes * store->rank_count),
        .read_only = config->read_only,
    };
    if (result == 0)
        result = index_open(path, &options, &store->index);
    if (result == 0 && alone && flock(store->index_lock_fd, LOCK_SH) < 0)
        result = -errno;
    if (result < 0)
        log_error("store %s: opening its index: %s", config->store_path, strerror(-result));
    return result;
}

/* deleting */

static int delete_one(struct index_txn *txn, const struct blob_key *key) {
    struct blob_record record;
    int result = index_txn_get_blob(txn, key, &record);
    if (result == 0 && key->named) {
        struct name_entry entry;
        result = index_txn_get_name(txn, record.directory, record.name, record.name_bytes, &entry);
        if (result == 0 && entry.type == NAME_BLOB && blob_key_equal(&entry.blob, key))
            result = index_txn_delete_name(txn, record.directory, record.name, record.name_bytes);
    }
    if (result < 0 && result != -ENOENT && result != -EBADMSG)
        return result;
    result = index_txn_delete_blob(txn, key);
    return result == -ENOENT ? 0 : result;
}

int cold_delete_blobs(struct rank *rank, const struct blob_key *keys, size_t count) {
    for (size_t done = 0; done < count;) {
        struct index_txn *txn;
        int result = index_txn_begin(rank->store->index, &txn);
        if (result < 0)
            return result;
        size_t end = count - done < DELETES_PER_TXN ? count : done + DELETES_PER_TXN;
        for (; done < end && result == 0; done++)
            result = delete_one(txn, &keys[done]);
        if (result < 0) {
            index_txn_abort(txn);
            return result;
        }
        result = index_txn_commit(txn);
        if (result < 0)
            return result;
    }
    return 0;
}

static int delete_batch(struct rank *rank, bool names) {
    struct index_txn *txn;
    int result = index_txn_begin(rank->store->index, &txn);
    if (result < 0)
        return result;
    int count = names ? index_txn_delete_rank_names(txn, rank->number, false, DELETES_PER_TXN)
                      : index_txn_delete_rank_blobs(txn, rank->number, DELETES_PER_TXN);
    if (count < 0) {
        index_txn_abort(txn);
        return count;
    }
    result = index_txn_commit(txn);
    return result < 0 ? result : count;
}

int cold_delete_rank(struct rank *rank) {
    for (int names = 0; names < 2; names++) {
        int count;
        while ((count = delete_batch(rank, names)) > 0)
            continue;
        if (count < 0)
            return count;
    }
    return 0;
}

/* clear */

/* Above any epoch that this rank can have had, also when its file is lost: it counts from the time.
 */
static int bump_epoch(struct rank *rank) {
    uint32_t old = 0, epoch = (uint32_t)time(NULL);
    if (epoch_read(rank, &old) == 0 && epoch <= old)
        epoch = old + 1;
    int result = epoch_write(rank, epoch);
    if (result == 0)
        atomic_store(&rank->epoch, epoch);
    return result;
}

static int start_empty(struct rank *rank) {
    int result = bump_epoch(rank);
    if (result == 0)
        result = cold_delete_rank(rank);
    struct pool *pool;
    for (unsigned kind = 0; kind < rank->budget_count; kind++) {
        struct budget *budget = rank->budgets[kind];
        if (result == 0)
            result = budget_drop_surplus_slabs(budget);
        for (unsigned i = 0; result == 0 && (pool = budget_pool_at(budget, i)); i++) {
            result = budget_adopt_free_pool(budget, pool);
            if (result == 0)
                result =
                    gc_add_pool(rank->gcs[kind], pool->number, pool->slots_max, pool->slot_bytes);
        }
        if (result == 0)
            result = budget_fit_to_limit(budget);
        /* Where holes cannot be punched, what is too much stays until it is reused. */
        if (result == -ENOSPC)
            result = 0;
    }
    return result;
}

/* the tag */

static const char *tag_in_words(const char *tag) {
    return tag[0] ? tag : "(none)";
}

int cold_start_check_tag(struct rank *rank) {
    const struct config *config = &rank->store->config;
    struct cold_start_report *report = &rank->cold_start;
    char found[TAG_BYTES_MAX + 1];
    uint32_t epoch;
    if (config->cold_start == COLD_START_CLEAR || epoch_read(rank, &epoch) < 0)
        return 0;
    int result = tag_read(rank->directory_fd, found);
    if (result < 0 && result != -EBADMSG) {
        log_error("rank %u: reading its file 'tag': %s", rank->number, strerror(-result));
        return result;
    }
    if (result == 0 && strcmp(found, config->tag) == 0)
        return 0;
    if (result == -EBADMSG)
        strcpy(found, "(unreadable)");
    if (config->read_only)
        log_error("rank %u: its pages have the tag %s, and this mount has %s; a read-only mount "
                  "cannot empty it",
                  rank->number, tag_in_words(found), tag_in_words(config->tag));
    if (config->read_only)
        return -EINVAL;
    if (!report->empty_because[0])
        snprintf(report->empty_because, sizeof(report->empty_because),
                 "its pages have the tag %.50s, and this mount has %.50s", tag_in_words(found),
                 tag_in_words(config->tag));
    return 0;
}

/* Of an empty rank only: what it held under another tag is gone for good before (W5). */
static int keep_tag(struct rank *rank) {
    char found[TAG_BYTES_MAX + 1];
    const struct config *config = &rank->store->config;
    if (config->read_only ||
        (tag_read(rank->directory_fd, found) == 0 && strcmp(found, config->tag) == 0))
        return 0;
    return tag_write(rank->directory_fd, config->tag);
}

/* which one */

static int load_or_start_empty(struct rank *rank) {
    struct cold_start_report *report = &rank->cold_start;
    uint32_t epoch;
    bool existed = epoch_read(rank, &epoch) == 0;
    if (!existed && faccessat(rank->directory_fd, "epoch", F_OK, 0) == 0 &&
        !report->empty_because[0])
        snprintf(report->empty_because, sizeof(report->empty_because), "its epoch file is damaged");
    if (report->empty_because[0] || !existed) {
        if (rank->store->config.read_only)
            return -EUCLEAN;
        return start_empty(rank);
    }
    atomic_store(&rank->epoch, epoch);
    report->loaded = true;
    return cold_load(rank);
}

static void report_start(struct rank *rank) {
    const struct cold_start_report *report = &rank->cold_start;
    if (report->empty_because[0])
        log_notice("rank %u: cold start load: starts empty: %s", rank->number,
                   report->empty_because);
    else if (report->loaded)
        log_notice("rank %u: cold start load: %" PRIu64 " blobs back (%" PRIu64
                   " small ones), %" PRIu64 " directories, %" PRIu64 " evicted to fit, %" PRIu64
                   " stale records and %" PRIu64 " stale names dropped; %.2f s",
                   rank->number, report->live_slots + report->live_inline, report->live_inline,
                   report->directories, report->evicted, report->pruned_records,
                   report->pruned_names, (double)report->nanoseconds / 1e9);
    else
        log_notice("rank %u: cold start %s; %.2f s", rank->number,
                   rank->store->config.cold_start == COLD_START_LOAD ? "load: there is nothing yet"
                                                                     : "clear: empty",
                   (double)report->nanoseconds / 1e9);
}

int cold_start_run(struct rank *rank) {
    uint64_t begin = clock_monotonic_ns();
    /* The write thread's functions are ours until it exists. */
    enum thread_role role = thread_role;
    thread_role = THREAD_WRITER;
    int result = rank->store->config.cold_start == COLD_START_LOAD ? load_or_start_empty(rank)
                                                                   : start_empty(rank);
    if (result == 0)
        result = keep_tag(rank);
    thread_role = role;
    rank->cold_start.nanoseconds = clock_monotonic_ns() - begin;
    const char *reason = rank->cold_start.empty_because;
    if (result < 0 && reason[0])
        log_error("rank %u: cold start load: %s; a read-only mount cannot empty it", rank->number,
                  reason);
    else if (result < 0)
        log_error("rank %u: cold start: %s", rank->number, strerror(-result));
    else
        report_start(rank);
    return result;
}
