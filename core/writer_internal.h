/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The write thread from the inside, for the writer_*.c files. Everything without a note belongs to
 * the write thread alone (CHECK_ON(WRITER)).
 */
#ifndef CPL3_CORE_WRITER_INTERNAL_H
#define CPL3_CORE_WRITER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/rank.h"
#include "core/writer.h"

enum {
    GROUP_CHANGES_DUE = 256,  /* this many are a reason to commit */
    GROUP_CHANGES_MAX = 4096, /* and a long queue makes larger groups, which cost less a change */
    COMMIT_PENDING_BYTES = 64 << 20, /* or when so much waits in memory */
    GROUP_BYTES_MAX = 64 << 20,      /* of payload: its memory comes back only with its commit */
    TOUCH_COMMIT_NS = 1000 * 1000 * 1000, /* touches ride with a commit at most this often */
    TOUCHES_PER_TXN = 2048,               /* each may change a page of its own */
    TOUCH_AGE_MAX_S = 10,                 /* and get their own after so long */
    WRITE_DEPTH = 32,                     /* requests in flight */
    WRITE_PIECES = 4,                     /* 1 MiB pieces a request */
    VICTIMS_PER_TURN = 64,
    RETRY_NS = 100 * 1000 * 1000,    /* after a failed commit */
    BUSY_WAIT_NS = 10 * 1000 * 1000, /* while something is short */
    PUT_TRIES_MAX = 4,               /* slots tried for one payload on a full host disk */
};

/* A row of changes, first in first out. */
struct change_list {
    struct change *first, *last;
    unsigned count;
};

void change_list_add(struct change_list *list, struct change *change);
struct change *change_list_take(struct change_list *list);

/* A slot whose index entry is, or is about to be, gone; freed after the commit, when nobody pins
 * it. */
struct retired {
    struct pool *pool;
    uint32_t slot;
};
struct retired_list {
    struct retired *items;
    size_t count, capacity;
};
void retired_list_add(struct retired_list *list, struct pool *pool, uint32_t slot);

/* Changes that are committed together. */
struct group {
    struct change_list changes;
    unsigned puts_in_flight;     /* payloads whose writes are not finished */
    uint64_t payload_bytes;      /* admitted */
    uint64_t opened_ns;          /* monotonic; 0: empty */
    int error;                   /* -errno: a payload among them could not be stored */
    struct retired_list retired; /* RETIRING slots that this group's commit lets go */
};

/* A write request in flight. */
struct write_request {
    struct slab_request request;
    struct iovec pieces[SLAB_PIECES_MAX];
    struct put *put;
    void *header_block; /* 4 KiB, aligned, this request's own */
    struct write_request *next_free;
};

struct writer {
    /* fixed after start */
    struct rank *rank;
    pthread_t thread;
    enum slab_engine engine;

    /* under inbox_lock */
    pthread_mutex_t inbox_lock;
    pthread_cond_t idle; /* started; check done */
    struct change_list inbox;
    struct waiter *commit_inbox, *clear_inbox, *space_inbox;
    void (*check)(void *argument);
    void *check_argument;
    bool stop;
    int started; /* 1: waits for the thread; 0 or -errno from its start */

    _Atomic uint64_t durable_change;
    _Atomic bool failing;  /* commits fail: no new publications */
    _Atomic bool has_io;   /* may be woken */
    _Atomic bool unpinned; /* some retired slot lost its last pin */

    /* the thread's own */
    struct slab_io *io;
    struct change_list queue; /* taken from the inbox, without a slot yet */
    struct group groups[2];
    struct group *open, *closing;
    struct waiter *commit_waiters; /* value: the change id */
    struct waiter *clear_waiters;
    struct waiter *space_waiters;               /* first come, first served */
    struct retired_list pinned;                 /* entry durably gone, but still pinned */
    uint64_t retiring_bytes[PAYLOAD_KINDS_MAX]; /* slots on their way from RETIRING to FREE */
    bool collecting[PAYLOAD_KINDS_MAX];         /* between the watermarks */
    bool gc_stalled;                            /* collecting, but all candidates are busy */
    struct write_request *requests, *free_requests;
    void *header_blocks;
    struct put *writing_first, *writing_last; /* payloads not completely submitted */
    bool stopping, check_wanted;              /* as the inbox said in this turn */
    uint64_t touches_written_ns, retry_at_ns;
    uint32_t clear_epoch; /* a clear has made this one durable and has to be finished; 0: none */
    bool touches_left;    /* the last commit could not take them all */
};

/* writer_put.c: slots and writes. */
void writer_admit(struct writer *writer);
void writer_submit_writes(struct writer *writer);
void writer_complete_write(struct writer *writer, struct slab_request *request);
/* A slot that could not be written: free again if the disk lacked space, else quarantined. */
void writer_give_slot_up(struct put *put, int error);
/* The payload cannot be stored: the blob becomes a miss. */
void writer_withdraw(struct writer *writer, struct change *change, int error);

/* writer_gc.c: eviction. */
void writer_collect(struct writer *writer);
/*
 * Evicts up to VICTIMS_PER_TURN of the coldest blobs of a budget (of one pool, if only_pool >= 0),
 * at least `bytes` if there are so many, with the group's commit. The slot bytes found.
 */
uint64_t writer_evict(struct writer *writer, struct group *group, struct budget *budget,
                      int only_pool, uint64_t bytes);
/* A slot's worth of the pool's budget, with a commit of its own, so that the slots are free on
 * return. False: nothing was. */
bool writer_evict_now(struct writer *writer, struct pool *pool, int only_pool);
void writer_serve_space_waiters(struct writer *writer);
/* Off the list already. */
void writer_answer_space_waiter(struct writer *writer, struct waiter *waiter, int result);

/* writer_commit.c */
bool writer_commit_due(const struct writer *writer, uint64_t now_ns);
/* Makes the open group the closing one (which is empty). */
void writer_close_group(struct writer *writer);
/* 0, or -errno: the group stays as it is and can be tried again. */
int writer_commit(struct writer *writer, struct group *group);
/* Takes a slot out of LIVE and out of GC, if it still holds this version; it is freed with `list`.
 */
void writer_retire_slot(struct writer *writer, struct pool *pool, uint32_t slot, uint64_t sequence,
                        struct retired_list *list);
/* Frees slots whose index entries are durably gone (W3); those still pinned wait. */
void writer_free_retired(struct writer *writer, struct retired_list *list);
void writer_wake_commit_waiters(struct writer *writer, uint64_t durable, int result);

/* writer_touch.c */
void writer_drain_touches(struct writer *writer);
/* Writes the access times with a commit, if it is time; the snapshot is settled after it. */
size_t writer_write_touches(struct writer *writer, struct index_txn *txn,
                            struct touch **ret_snapshot, int *ret_error);
bool writer_touches_due(const struct writer *writer, uint64_t now_ns);

/* writer_clear.c */
void writer_clear(struct writer *writer);
void writer_wake_clear_waiters(struct writer *writer, int result);

/* For who waits for the end of a stop. */
void writer_tell_progress(const struct writer *writer);

struct gc *writer_gc_of(const struct writer *writer, const struct pool *pool);

#endif
