/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What version.c (the table, references, pins), version_cache.c (bytes in memory, holds, eviction)
 * and loader.c (the load thread) share, and tests with their own times. Not for other modules.
 *
 * Where the bytes of a version are:
 *
 *   RESIDENT                                  small, in the version itself, for good
 *   STAGED --settle, room in reading share--> CACHED <--verified-- LOADING --EIO--> ABSENT
 *     |                                         |                    |  ^
 *     +--settle, no room--> LEAVING --no hold-> ABSENT --load--------|--+
 *                                               ^ evict (CACHED)     +--mismatch--> BAD
 *
 * Only CACHED bytes without holds are on an idle list, and only those can be evicted.
 */
#ifndef CPL3_CORE_VERSION_INTERNAL_H
#define CPL3_CORE_VERSION_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/version.h"

struct version_times {
    uint64_t wait_ns;  /* a load's waiter, at most */
    uint64_t idle_ns;  /* cached bytes that nobody used */
    uint64_t sweep_ns; /* between two looks for those */
    uint64_t retry_ns; /* a load that waits for memory tries again */
};
extern const struct version_times version_times_default;

enum version_place {
    PLACE_STAGED,    /* in memory only */
    PLACE_SETTLED,   /* in pool and slot; pinned iff refs > 0 */
    PLACE_WITHDRAWN, /* in memory only, for those who hold it */
};

enum version_bytes {
    BYTES_RESIDENT,
    BYTES_STAGED,  /* buffer in the staging share, until settled or the last reference is gone */
    BYTES_LEAVING, /* settled, but still in the staging share: freed with the last hold */
    BYTES_CACHED,  /* buffer in the reading share */
    BYTES_ABSENT,
    BYTES_LOADING, /* the load thread has it; holds a reference */
    BYTES_BAD,     /* did not verify: no further load is tried */
};

/* In the order in which memory is taken back; each oldest first. */
enum idle_list {
    IDLE_UNREFERENCED,
    IDLE_FINISHED, /* read to the end */
    IDLE_REFERENCED,
    IDLE_LISTS,
    IDLE_NONE = IDLE_LISTS,
};

struct version {
    /* fixed after creation */
    struct version_table *table;
    struct blob_key key;
    uint64_t sequence;
    uint64_t payload_checksum;
    uint32_t payload_bytes;
    uint32_t epoch;
    /* under the table's mutex */
    uint32_t refs;
    uint32_t holds;
    enum version_place place;
    enum version_bytes bytes;
    struct pool *pool; /* PLACE_SETTLED */
    uint32_t slot;
    bool forgotten; /* its slot is retired: nothing is kept after the last reference */
    bool done_reading;
    struct buffer *buffer; /* STAGED, LEAVING, CACHED; may be read without the mutex under a hold */
    enum idle_list idle;
    uint64_t idle_since_ns;
    struct version *idle_previous, *idle_next; /* as utlist.h links them */
    struct waiter *waiters;                    /* LOADING; by deadline */
    struct version *queue_next;                /* LOADING, until the load thread starts it */
    UT_hash_handle hh;
    /* fixed: BYTES_RESIDENT */
    uint8_t resident[];
};

struct loader;

struct version_table {
    /* fixed after open */
    struct version_table_options options;
    struct version_times times;
    struct loader *loader;
    struct version_table *next_peer; /* under the peers' mutex */
    _Atomic bool memory_wanted;      /* a load waits for memory */
    _Atomic uint64_t pinned_bytes;   /* sum of slot_bytes over our pins */

    pthread_mutex_t mutex;
    /* under the mutex */
    struct version *by_sequence;
    struct version *idle[IDLE_LISTS];
    uint64_t cached_bytes;
    struct version *queue;   /* loads that have not started, first in, first out */
    uint64_t next_expiry_ns; /* no waiter's deadline is earlier */
    bool stopping;
};

/* What is left to do when the mutex has been released: frees and callbacks. Starts zeroed. */
struct version_rest {
    struct version *version; /* out of the table: to be freed */
    struct buffer *buffer;   /* to be freed */
    struct pool *pool;       /* a last pin is gone: on_unpinned */
    uint32_t slot;
};
void version_rest_finish(struct version_table *table, const struct version_rest *rest);

int version_table_open_timed(const struct version_table_options *options,
                             const struct version_times *times, struct version_table **ret_table);

/* Under the mutex: takes an unreferenced version out of the table, with its bytes. */
void version_remove(struct version *version, struct version_rest *rest);

/* version_cache.c */

/* Tables that share a buffer pool take idle bytes from each other. */
void version_cache_add_peer(struct version_table *table);
void version_cache_remove_peer(struct version_table *table);

/* Under the mutex. */
bool version_cache_in_memory(const struct version *version);
void version_cache_put(struct version *version, struct buffer *buffer);      /* -> CACHED */
void version_cache_take(struct version *version, struct version_rest *rest); /* -> ABSENT */
/* Puts it on the idle list where it belongs, last; off all lists if it is in use. */
void version_cache_relink(struct version *version);

/* Load thread: frees idle bytes of one version, of this rank or one that shares the pool; false:
 * there are none. */
bool version_cache_evict_for_load(struct version_table *table);
/* Frees all bytes that were idle at that time. */
void version_cache_evict_idle(struct version_table *table, uint64_t idle_at_ns);

#endif
