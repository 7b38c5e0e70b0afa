/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The park thread and the three ways to wait. A task that core has is counted from before core is
 * asked until it has run, so that a mount can wait until nothing is left.
 */
#include "fs/park.h"

#include "fs/open.h"
#include "fs/state.h"

#include <errno.h>

enum { TICK_NS = 1000000000 };

/* How long a grower has asked for nothing when it counts as stopped: as large as files have been
 * until now; and smaller, or before any was published. A busy machine can keep a client from its
 * processor for some 100 ms. */
enum {
    GROWER_WHOLE_NS = 50 * 1000 * 1000,
    GROWER_INTERRUPTED_NS = 1000 * 1000 * 1000,
};

int park_init(struct park *park) {
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0)
        return -ENOMEM;
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&park->lock, NULL);
    pthread_cond_init(&park->changed, &monotonic);
    pthread_cond_init(&park->settled, NULL);
    pthread_condattr_destroy(&monotonic);
    TAILQ_INIT(&park->ready);
    TAILQ_INIT(&park->starved);
    return 0;
}

void park_destroy(struct park *park) {
    CHECK(!park->running && TAILQ_EMPTY(&park->ready) && TAILQ_EMPTY(&park->starved));
    pthread_cond_destroy(&park->settled);
    pthread_cond_destroy(&park->changed);
    pthread_mutex_destroy(&park->lock);
}

/* waiting for core */

void park_begin_wait(struct park *park) {
    SCOPE_LOCK(&park->lock);
    park->waiting++;
}

void park_end_wait(struct park *park) {
    SCOPE_LOCK(&park->lock);
    CHECK(park->waiting > 0);
    if (--park->waiting == 0)
        pthread_cond_broadcast(&park->settled);
}

static void run_task(struct task *task) {
    struct park *park = &task->fs->park;
    task->run(task); /* may free it */
    park_end_wait(park);
}

static void wake(struct task *task, int result) {
    struct park *park = &task->fs->park;
    task->result = result;
    if (task->direct)
        return run_task(task);
    SCOPE_LOCK(&park->lock);
    TAILQ_INSERT_TAIL(&park->ready, task, entry);
    pthread_cond_signal(&park->changed);
}

static void wake_waiter(struct waiter *waiter, int result) {
    wake((struct task *)((char *)waiter - offsetof(struct task, waiter)), result);
}

static void wake_reservation(struct waiter *waiter, int result) {
    wake((struct task *)((char *)waiter - offsetof(struct task, reservation.waiter)), result);
}

/* Core has answered: unless it has the task now, nothing waits. */
static int answered(struct park *park, int result) {
    if (result != -EINPROGRESS)
        park_end_wait(park);
    return result;
}

int task_load(struct task *task, struct version *version) {
    struct park *park = &task->fs->park;
    task->waiter.wake = wake_waiter;
    park_begin_wait(park);
    return answered(park, version_load(version, &task->waiter));
}

int task_reserve(struct task *task, struct rank *rank, uint8_t kind, uint64_t payload_bytes) {
    struct park *park = &task->fs->park;
    task->reservation.waiter.wake = wake_reservation;
    park_begin_wait(park);
    return answered(park, rank_reserve(rank, kind, payload_bytes, &task->reservation));
}

int task_commit(struct task *task, struct rank *rank) {
    struct park *park = &task->fs->park;
    task->waiter.wake = wake_waiter;
    park_begin_wait(park);
    return answered(park, rank_commit(rank, &task->waiter));
}

/* waiting for memory */

static void note_free(struct park *park) {
    SCOPE_LOCK(&park->lock);
    park->frees++;
    park->memory_freed = true;
    pthread_cond_signal(&park->changed);
}

/* Called by the buffer pool on any thread, also under fs->lock and a handle's: see the lock order.
 */
static void memory_freed(void *argument) {
    note_free(argument);
}

uint64_t park_want_memory(struct fs *fs) {
    buffer_pool_want(store_buffers(fs->store), BUFFER_STAGING);
    SCOPE_LOCK(&fs->park.lock);
    return fs->park.frees;
}

void task_wait_memory(struct task *task, const struct handle *handle, uint64_t note) {
    struct park *park = &task->fs->park;
    SCOPE_LOCK(&park->lock);
    if (handle && park->grower == handle)
        park->grower_waits = true;
    struct task *later;
    TAILQ_FOREACH(later, &park->starved, entry)
    if (later->deadline_ns > task->deadline_ns)
        break;
    if (later)
        TAILQ_INSERT_BEFORE(later, task, entry);
    else
        TAILQ_INSERT_TAIL(&park->starved, task, entry);
    park->waiting++;
    if (park->frees != note)
        park->memory_freed = true;
    if (park->draining)
        task->deadline_ns = 0;
    park->poked = true;
    pthread_cond_signal(&park->changed);
}

/* What half-written files other than the grower may hold: then it gets its memory, as large as it
 * is, when those that are published are on the disk. */
static uint64_t room_beside_grower(const struct fs *fs, uint64_t share) {
    uint64_t most = share - share / 8; /* one that rests leaves something for small files */
    uint64_t largest = fs->config->max_file_bytes < most ? fs->config->max_file_bytes : most;
    return share - (largest > share / 2 ? largest : share / 2);
}

/* Under the park's lock. */
static void count_staged(struct park *park, struct handle *handle, uint64_t bytes) {
    park->staged_bytes += bytes;
    park->staged_bytes -= handle->counted_bytes;
    handle->counted_bytes = bytes;
}

static uint64_t capacity_of(const struct handle *handle) {
    return handle->buffer ? buffer_capacity_bytes(handle->buffer) : 0;
}

/* Under the park's lock. It may be whole and just not closed yet; one that was interrupted needs
 * the reserve to itself. `asking`: for another file, the thread of its client, or 0. */
static bool grower_has_stopped(const struct park *park, pid_t asking, uint64_t now_ns) {
    uint64_t idle_ns = now_ns - park->grower_active_ns;
    if (park->grower_waits)
        return false;
    if (asking != 0 && asking == park->grower_thread)
        return true;
    bool whole = park->largest_bytes > 0 && park->grower_bytes >= park->largest_bytes;
    return idle_ns >= (whole ? GROWER_WHOLE_NS : GROWER_INTERRUPTED_NS);
}

/* Under the park's lock. */
static void make_grower(struct park *park, struct handle *handle) {
    if (park->grower)
        count_staged(park, park->grower, park->grower_bytes);
    park->grower = handle;
    park->grower_bytes = capacity_of(handle);
    count_staged(park, handle, 0);
}

bool park_may_grow(struct fs *fs, struct handle *handle, uint64_t bytes, pid_t thread) {
    struct buffer_pool *pool = store_buffers(fs->store);
    struct park *park = &fs->park;
    uint64_t share = buffer_pool_share_bytes(pool, BUFFER_STAGING);
    uint64_t grown_bytes = capacity_of(handle) + bytes;
    SCOPE_LOCK(&park->lock);
    uint64_t now_ns = clock_monotonic_ns(); /* under the lock: never before the grower's */
    if (park->grower != handle &&
        buffer_pool_used_bytes(pool, BUFFER_STAGING) + bytes <= share / 2 &&
        park->staged_bytes - handle->counted_bytes + grown_bytes <= room_beside_grower(fs, share)) {
        count_staged(park, handle, grown_bytes);
        return true;
    }
    if (park->grower != handle) {
        if (park->grower && !grower_has_stopped(park, thread, now_ns))
            return false;
        make_grower(park, handle);
    }
    park->grower_bytes = grown_bytes;
    park->grower_active_ns = now_ns;
    park->grower_thread = thread;
    park->grower_waits = false;
    return true;
}

void park_did_not_grow(struct fs *fs, struct handle *handle) {
    struct park *park = &fs->park;
    SCOPE_LOCK(&park->lock);
    if (park->grower == handle)
        park->grower_bytes = capacity_of(handle);
    else
        count_staged(park, handle, capacity_of(handle));
}

void park_note_published(struct fs *fs, uint64_t bytes) {
    SCOPE_LOCK(&fs->park.lock);
    if (fs->park.largest_bytes < bytes)
        fs->park.largest_bytes = bytes;
}

void park_end_growing(struct fs *fs, struct handle *handle) {
    struct park *park = &fs->park;
    uint64_t left_bytes = capacity_of(handle);
    SCOPE_LOCK(&park->lock);
    if (park->grower != handle && left_bytes >= handle->counted_bytes)
        return;
    if (park->grower == handle)
        park->grower = NULL;
    count_staged(park, handle, left_bytes);
    park->frees++; /* for those that are about to wait */
    if (TAILQ_EMPTY(&park->starved))
        return;
    park->memory_freed = true;
    pthread_cond_signal(&park->changed);
}

bool park_take_payload(struct park *park, uint64_t bytes) {
    if (atomic_fetch_add(&park->payload_bytes, bytes) + bytes <= PARKED_PAYLOAD_BYTES_MAX)
        return true;
    park_give_payload(park, bytes);
    return false;
}

void park_give_payload(struct park *park, uint64_t bytes) {
    atomic_fetch_sub(&park->payload_bytes, bytes);
}

/* the thread */

/* Under the park's lock: all that can go on now. */
static void take_runnable(struct park *park, uint64_t now_ns, struct task_list *ret_tasks) {
    TAILQ_CONCAT(ret_tasks, &park->ready, entry);
    struct task *task;
    bool try_again = park->memory_freed || (park->grower && grower_has_stopped(park, 0, now_ns));
    while ((task = TAILQ_FIRST(&park->starved)) && (try_again || task->deadline_ns <= now_ns)) {
        TAILQ_REMOVE(&park->starved, task, entry);
        task->result = task->deadline_ns <= now_ns ? -ETIMEDOUT : 0;
        TAILQ_INSERT_TAIL(ret_tasks, task, entry);
    }
    park->memory_freed = false;
}

static void wait_for_change(struct park *park, uint64_t until_ns) {
    struct task *starved = TAILQ_FIRST(&park->starved);
    uint64_t grower_ns = clock_monotonic_ns() + GROWER_WHOLE_NS;
    if (starved && park->grower && grower_ns < until_ns)
        until_ns = grower_ns;
    if (starved && starved->deadline_ns < until_ns)
        until_ns = starved->deadline_ns;
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    while (!park->poked && !park->stopping && !park->memory_freed && TAILQ_EMPTY(&park->ready) &&
           pthread_cond_timedwait(&park->changed, &park->lock, &until) != ETIMEDOUT)
        ;
    park->poked = false;
}

/* Keeps time for opens, pins and hot names; when to come back. */
static uint64_t keep_time(struct fs *fs, uint64_t now_ns) {
    uint64_t next_ns = open_run_waiting(fs, now_ns);
    SCOPE_LOCK(&fs->lock);
    inode_expire_pins(fs, now_ns);
    file_cool(fs, now_ns);
    return next_ns < now_ns + TICK_NS ? next_ns : now_ns + TICK_NS;
}

static void *run_park(void *argument) {
    struct fs *fs = argument;
    struct park *park = &fs->park;
    pthread_setname_np(pthread_self(), "cpl3-ticker");
    for (;;) {
        uint64_t until_ns = keep_time(fs, clock_monotonic_ns());
        struct task_list tasks = TAILQ_HEAD_INITIALIZER(tasks);
        pthread_mutex_lock(&park->lock);
        wait_for_change(park, until_ns);
        take_runnable(park, clock_monotonic_ns(), &tasks);
        bool done = park->stopping && TAILQ_EMPTY(&tasks) && park->waiting == 0;
        pthread_mutex_unlock(&park->lock);
        struct task *task;
        while ((task = TAILQ_FIRST(&tasks))) {
            TAILQ_REMOVE(&tasks, task, entry);
            run_task(task);
        }
        if (done)
            return NULL;
    }
}

int park_start(struct fs *fs) {
    buffer_pool_on_free(store_buffers(fs->store), BUFFER_STAGING, memory_freed, &fs->park);
    int error = pthread_create(&fs->park.thread, NULL, run_park, fs);
    if (error != 0)
        return -error;
    fs->park.running = true;
    return 0;
}

void park_poke(struct park *park) {
    SCOPE_LOCK(&park->lock);
    park->poked = true;
    pthread_cond_signal(&park->changed);
}

void park_settle(struct fs *fs) {
    struct park *park = &fs->park;
    SCOPE_LOCK(&park->lock);
    park->draining = true;
    struct task *task;
    TAILQ_FOREACH(task, &park->starved, entry)
    task->deadline_ns = 0;
    park->poked = true;
    pthread_cond_signal(&park->changed);
    while (park->waiting > 0)
        pthread_cond_wait(&park->settled, &park->lock);
}

void park_stop(struct fs *fs) {
    struct park *park = &fs->park;
    if (!park->running)
        return;
    pthread_mutex_lock(&park->lock);
    park->stopping = true;
    pthread_cond_signal(&park->changed);
    pthread_mutex_unlock(&park->lock);
    pthread_join(park->thread, NULL);
    park->running = false;
}
