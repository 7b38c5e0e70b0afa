/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait: no handler parks a worker. What a request is waiting for is a task: core
 * wakes it (a load, space, a commit), or memory of the staging share comes free, or its time is up;
 * then it runs on the park thread, or at once on the waking thread when all that is left is a short
 * reply.
 *
 * The park thread also keeps time: OPENs held back for a moment (P3), pins of private inodes and
 * hot names (P7).
 */
#ifndef CPL3_FS_PARK_H
#define CPL3_FS_PARK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/store.h"

struct fs;
struct handle;

enum { PARKED_PAYLOAD_BYTES_MAX = 64 << 20 };

/* Embedded in what waits; belongs to the park from the call that answered -EINPROGRESS (or
 * task_wait_memory) until run is called. */
struct task {
    struct fs *fs;
    void (*run)(struct task *task); /* goes on with it */
    bool direct;                    /* run on the waking thread: a reply and no more */
    int result;                     /* of the wait that ended: 0 or -errno */
    uint64_t deadline_ns;           /* monotonic: of a wait for memory */
    struct waiter waiter;
    struct reservation reservation;
    TAILQ_ENTRY(task) entry;
};

TAILQ_HEAD(task_list, task);

struct park {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for the thread */
    pthread_cond_t settled; /* nothing waits any more */
    pthread_t thread;
    /* under lock */
    bool running;
    bool draining; /* no wait for memory any more */
    bool stopping;
    bool poked; /* something about deadlines changed */
    bool memory_freed;
    uint64_t frees;            /* of staging memory, as far as we heard */
    unsigned waiting;          /* tasks that core has, or that are about to run */
    struct task_list ready;    /* woken */
    struct task_list starved;  /* for memory, by deadline */
    struct handle *grower;     /* may use the staging share's reserve */
    uint64_t grower_bytes;     /* what its buffer has */
    uint64_t grower_active_ns; /* monotonic: when it last asked for more */
    pid_t grower_thread;       /* the client's that asked; 0: not known */
    bool grower_waits;         /* for what it asked for */
    uint64_t largest_bytes;    /* published through this mount */
    uint64_t staged_bytes;     /* in buffers of all other handles, not published */
    /* atomic */
    _Atomic uint64_t payload_bytes; /* copies that waiting WRITEs keep */
};

int park_init(struct park *park);
void park_destroy(struct park *park);
int park_start(struct fs *fs);
/* Nothing new comes. Waits for memory end, then waits until no task is left. */
void park_settle(struct fs *fs);
/* After park_settle. */
void park_stop(struct fs *fs);
/* A deadline may have come nearer. */
void park_poke(struct park *park);

/* As the functions of core: 0, -EINPROGRESS (then run is called, once), -errno. */
int task_load(struct task *task, struct version *version);
int task_reserve(struct task *task, struct rank *rank, uint8_t kind, uint64_t payload_bytes);
int task_commit(struct task *task, struct rank *rank);

/* For a wait of core's with a waiter of its own: counted until it ends. */
void park_begin_wait(struct park *park);
void park_end_wait(struct park *park);

/*
 * Waiting for staging memory, missing no wake-up: note = park_want_memory, try once more, and when
 * that fails task_wait_memory(note): run is called with 0 when memory came free, or -ETIMEDOUT at
 * task->deadline_ns. handle: whose buffer is to grow, or NULL.
 */
uint64_t park_want_memory(struct fs *fs);
void task_wait_memory(struct task *task, const struct handle *handle, uint64_t note);

/*
 * The second half of the staging share is for one growing file at a time, the grower, and the other
 * half-written ones together stay so small that it fits beside them: so they cannot starve each
 * other for good. A grower that has stopped asking gives the role up: some clients close nothing
 * before many files are written. So it has as soon as its client's thread asks for another file;
 * else that is guessed from the time. `thread`: of the client, 0 if not known. False: wait for
 * memory. True: the bytes count as staged; then either the handle's buffer grows or
 * park_did_not_grow is called.
 */
bool park_may_grow(struct fs *fs, struct handle *handle, uint64_t bytes, pid_t thread);
void park_did_not_grow(struct fs *fs, struct handle *handle);
/* A file of this size was published: what a whole file looks like. */
void park_note_published(struct fs *fs, uint64_t bytes);
/* The handle's buffer is published, or gone. */
void park_end_growing(struct fs *fs, struct handle *handle);

/* False: waiting WRITEs keep as much as they may. */
bool park_take_payload(struct park *park, uint64_t bytes);
void park_give_payload(struct park *park, uint64_t bytes);

#endif
