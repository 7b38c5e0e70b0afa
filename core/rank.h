/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank from the inside, for the files that make up the store: rank_*.c (what threads ask),
 * writer*.c (the write thread), cold_start.c. Everybody else uses core/store.h.
 *
 * Locks, in order: change_lock, then those inside overlay, budget, versions, the writer's inbox.
 * All are held for table work only.
 */
#ifndef CPL3_CORE_RANK_H
#define CPL3_CORE_RANK_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/change.h"
#include "core/gc.h"
#include "core/log.h"
#include "core/store.h"
#include "core/touch.h"

struct writer;

enum {
    DIRECTORIES_MAX = 1 << 20,
    PENDING_BYTES_MAX = 256 << 20, /* published, not durable */
    OVERLAY_ENTRIES_MAX = 1 << 14, /* more: publications wait; a commit of all takes a second */
};

/* What the cold start did, for the start line and the stats. */
struct cold_start_report {
    bool loaded;
    uint64_t live_slots, live_inline, free_headers, pruned_records, pruned_names, directories;
    uint64_t evicted; /* to fit a smaller size */
    uint64_t nanoseconds;
    char empty_because[160]; /* load was asked for, but the rank starts empty: why; else "" */
};

struct rank {
    /* fixed after open */
    uint16_t number;
    struct store *store;
    int directory_fd; /* locked: one process per rank */
    unsigned budget_count;
    struct budget *budgets[PAYLOAD_KINDS_MAX];
    struct gc *gcs[PAYLOAD_KINDS_MAX]; /* write thread's */
    struct overlay *overlay;
    struct version_table *versions;
    struct touches *touches;
    struct writer *writer;
    struct cold_start_report cold_start;
    uint64_t id_prefix; /* random: the first half of this mount's blob ids */

    struct rank_stats stats;
    struct log_limit bad_log, space_log;
    _Atomic uint32_t epoch;
    _Atomic uint64_t last_access_ns; /* rises with every use: see rank_next_access_ns */
    _Atomic uint64_t next_id;
    _Atomic uint64_t directories;
    _Atomic unsigned space_waiting; /* reservations in the write thread's queue */
    _Atomic bool clearing;          /* publications wait until the clear is over */
    _Atomic uint64_t pending_bytes;

    pthread_mutex_t change_lock;
    /* under change_lock */
    uint64_t next_change; /* the last id given */
    uint64_t last_asked;  /* the last one that is not GC's: what a commit waits for */
    uint64_t next_sequence;
    uint64_t next_directory; /* without the rank bits */
};

struct store {
    /* fixed after open */
    struct config config;
    struct store_events events;
    int directory_fd;
    int index_lock_fd; /* shared lock: somebody uses the index */
    struct index *index;
    struct buffer_pool *buffers;
    unsigned rank_count;
    struct rank *ranks; /* rank_first + i */
    char uuid[40];
};

/* Any thread: max(now, last + 1), so that uses have one order. */
uint64_t rank_next_access_ns(struct rank *rank);

/* A record and, for blobs that are not committed yet, their version (a reference) or NULL. -ENOENT.
 */
int rank_find_blob(struct rank *rank, const struct blob_key *key, struct blob_record *ret_record,
                   struct version **ret_version);

/*
 * Under change_lock, the last step of each change: gives it an id, shows it in the overlay and
 * hands it to the write thread.
 */
void rank_submit_change(struct rank *rank, struct change *change);

/* Any thread: removes a blob that no client removed (evicted by `load`, bad, withdrawn) if it still
 * has this sequence; the write thread tells fs/. False: it was gone already. */
bool rank_drop_blob(struct rank *rank, const struct blob_key *key, uint64_t sequence);

/* Takes the bytes and the pending bytes of a reservation if there is room now. Any thread. */
bool rank_try_reserve(struct reservation *reservation);

/* Makes (or replaces) the rank's epoch file, durably. -errno. */
int epoch_write(struct rank *rank, uint32_t epoch);
/* -ENOENT: none or not readable as an epoch. */
int epoch_read(struct rank *rank, uint32_t *ret_epoch);

/* With `load`: whether the rank's pages are of this mount's tag; else it will start empty, or
 * cannot be mounted read-only. Before its slabs are opened. -errno after a log line. */
int cold_start_check_tag(struct rank *rank);
/* Runs `clear` or `load` for one rank, before its threads exist. -errno after a log line. */
int cold_start_run(struct rank *rank);

#endif
