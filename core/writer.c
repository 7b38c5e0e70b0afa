/* SPDX-License-Identifier: Apache-2.0 */
/* The write thread's life, its inbox and its turn. The rules are in writer.h. */
#include "core/writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/writer_internal.h"

void change_list_add(struct change_list *list, struct change *change) {
    change->next = NULL;
    if (list->last)
        list->last->next = change;
    else
        list->first = change;
    list->last = change;
    list->count++;
}

struct change *change_list_take(struct change_list *list) {
    struct change *change = list->first;
    if (!change)
        return NULL;
    list->first = change->next;
    if (!list->first)
        list->last = NULL;
    list->count--;
    change->next = NULL;
    return change;
}

static void change_list_append(struct change_list *list, struct change_list *tail) {
    if (!tail->first)
        return;
    if (list->last)
        list->last->next = tail->first;
    else
        list->first = tail->first;
    list->last = tail->last;
    list->count += tail->count;
    *tail = (struct change_list){0};
}

void retired_list_add(struct retired_list *list, struct pool *pool, uint32_t slot) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        struct retired *items = realloc(list->items, capacity * sizeof(*items));
        CHECK(items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = (struct retired){.pool = pool, .slot = slot};
}

struct gc *writer_gc_of(const struct writer *writer, const struct pool *pool) {
    return writer->rank->gcs[pool->kind];
}

void writer_tell_progress(const struct writer *writer) {
    const struct store_events *events = &writer->rank->store->events;
    if (events->progressed)
        events->progressed(events->argument);
}

/* the inbox: any thread */

void writer_wake(struct writer *writer) {
    if (atomic_load(&writer->has_io))
        slab_io_wake(writer->io);
}

void writer_enqueue(struct writer *writer, struct change *change) {
    pthread_mutex_lock(&writer->inbox_lock);
    change_list_add(&writer->inbox, change);
    pthread_mutex_unlock(&writer->inbox_lock);
    writer_wake(writer);
}

/* Appends, so that the first to come is the first served. */
static void add_waiter(struct waiter **list, struct waiter *waiter) {
    waiter->next = NULL;
    while (*list)
        list = &(*list)->next;
    *list = waiter;
}

static void leave_waiter(struct writer *writer, struct waiter **inbox, struct waiter *waiter) {
    pthread_mutex_lock(&writer->inbox_lock);
    add_waiter(inbox, waiter);
    pthread_mutex_unlock(&writer->inbox_lock);
    writer_wake(writer);
}

void writer_wait_commit(struct writer *writer, struct waiter *waiter, uint64_t change_id) {
    waiter->value = change_id;
    leave_waiter(writer, &writer->commit_inbox, waiter);
}

void writer_wait_clear(struct writer *writer, struct waiter *waiter) {
    leave_waiter(writer, &writer->clear_inbox, waiter);
}

void writer_wait_space(struct writer *writer, struct reservation *reservation) {
    reservation->waiter.what = reservation;
    reservation->waiter.deadline_ns =
        clock_monotonic_ns() + (uint64_t)WAIT_MAX_SECONDS * 1000000000u;
    atomic_fetch_add(&writer->rank->space_waiting, 1);
    leave_waiter(writer, &writer->space_inbox, &reservation->waiter);
}

void writer_note_unpinned(struct writer *writer) {
    atomic_store(&writer->unpinned, true);
    writer_wake(writer);
}

uint64_t writer_durable_change(const struct writer *writer) {
    return atomic_load(&writer->durable_change);
}

bool writer_is_failing(const struct writer *writer) {
    return atomic_load(&writer->failing);
}

const char *writer_engine_name(const struct writer *writer) {
    return slab_io_name(writer->io);
}

void writer_run_between_turns(struct writer *writer, void (*check)(void *), void *argument) {
    SCOPE_LOCK(&writer->inbox_lock);
    while (writer->check)
        pthread_cond_wait(&writer->idle, &writer->inbox_lock);
    writer->check = check;
    writer->check_argument = argument;
    slab_io_wake(writer->io);
    while (writer->check == check && writer->check_argument == argument)
        pthread_cond_wait(&writer->idle, &writer->inbox_lock);
}

/* the turn */

static void move_waiters(struct waiter **list, struct waiter **inbox) {
    struct waiter *waiter = *inbox;
    *inbox = NULL;
    while (*list)
        list = &(*list)->next;
    *list = waiter;
}

/* True: it is time to stop. */
static bool take_inbox(struct writer *writer) {
    SCOPE_LOCK(&writer->inbox_lock);
    change_list_append(&writer->queue, &writer->inbox);
    move_waiters(&writer->commit_waiters, &writer->commit_inbox);
    move_waiters(&writer->clear_waiters, &writer->clear_inbox);
    move_waiters(&writer->space_waiters, &writer->space_inbox);
    writer->stopping = writer->stop;
    writer->check_wanted = writer->check != NULL;
    return writer->stopping;
}

static bool is_idle(const struct writer *writer) {
    return !writer->queue.first && !writer->open->changes.first &&
           !writer->closing->changes.first && slab_io_in_flight(writer->io) == 0;
}

/* What rank_verify wants to see: nothing under way. */
static void run_check(struct writer *writer) {
    pthread_mutex_lock(&writer->inbox_lock);
    void (*check)(void *) = writer->check;
    void *argument = writer->check_argument;
    pthread_mutex_unlock(&writer->inbox_lock);
    if (!check || !is_idle(writer))
        return;
    check(argument);
    pthread_mutex_lock(&writer->inbox_lock);
    writer->check = NULL;
    pthread_cond_broadcast(&writer->idle);
    pthread_mutex_unlock(&writer->inbox_lock);
}

/* How long the next wait may be. */
static uint64_t wait_ns(const struct writer *writer, uint64_t now_ns) {
    uint64_t until = now_ns + UINT64_C(1000000000);
    if (writer->retry_at_ns > now_ns)
        return writer->retry_at_ns - now_ns;
    uint64_t commit_ns = writer->rank->store->config.commit_ns;
    if (writer->open->opened_ns && writer->open->opened_ns + commit_ns < until)
        until = writer->open->opened_ns + commit_ns;
    if (writer->space_waiters || writer->queue.first || writer->gc_stalled)
        until = now_ns + BUSY_WAIT_NS < until ? now_ns + BUSY_WAIT_NS : until;
    for (unsigned kind = 0; kind < writer->rank->budget_count; kind++)
        if (writer->collecting[kind] && !writer->gc_stalled)
            return 0;
    return until > now_ns ? until - now_ns : 0;
}

static void expire_space_waiters(struct writer *writer, uint64_t now_ns) {
    struct waiter **link = &writer->space_waiters;
    while (*link) {
        struct waiter *waiter = *link;
        if (waiter->deadline_ns > now_ns) {
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        writer_answer_space_waiter(writer, waiter, -ENOSPC);
    }
}

static void commit_when_due(struct writer *writer) {
    uint64_t now = clock_monotonic_ns();
    if (now < writer->retry_at_ns)
        return;
    if (!writer->closing->opened_ns && writer_commit_due(writer, now))
        writer_close_group(writer);
    if (!writer->closing->opened_ns || writer->closing->puts_in_flight)
        return;
    /* The next group's writes run while this one is committed. */
    writer_admit(writer);
    writer_submit_writes(writer);
    int result = writer_commit(writer, writer->closing);
    writer->retry_at_ns = result < 0 ? clock_monotonic_ns() + RETRY_NS : 0;
}

static void turn(struct writer *writer) {
    if (atomic_exchange(&writer->unpinned, false)) {
        struct retired_list list = writer->pinned;
        writer->pinned = (struct retired_list){0};
        writer_free_retired(writer, &list);
        free(list.items);
    }
    writer_drain_touches(writer);
    writer_collect(writer);
    writer_serve_space_waiters(writer);
    writer_admit(writer);
    writer_submit_writes(writer);
    commit_when_due(writer);
    /* Those who began to wait while the last group that they need was committed. */
    writer_wake_commit_waiters(writer, atomic_load(&writer->durable_change), 0);
    expire_space_waiters(writer, clock_monotonic_ns());
    if (writer->clear_waiters)
        writer_clear(writer);
    run_check(writer);
}

/* Nobody is served any more: the mount ends. */
static void refuse_waiters(struct writer *writer) {
    struct waiter *waiter;
    while ((waiter = writer->space_waiters)) {
        writer->space_waiters = waiter->next;
        writer_answer_space_waiter(writer, waiter, -ENOSPC);
    }
    writer_wake_clear_waiters(writer, -EIO);
    writer_wake_commit_waiters(writer, UINT64_MAX, -EIO);
}

static void run(struct writer *writer) {
    unsigned failed_stops = 0;
    for (;;) {
        uint64_t timeout = wait_ns(writer, clock_monotonic_ns());
        struct slab_request *request = slab_io_wait(writer->io, timeout);
        while (request) {
            writer_complete_write(writer, request);
            request = slab_io_wait(writer->io, 0);
        }
        bool stop = take_inbox(writer);
        turn(writer);
        if (!stop)
            continue;
        /* A disk that refuses the last commit may keep us a second, not for ever (W5). */
        if (writer->failing && ++failed_stops > 10)
            break;
        if (is_idle(writer) && !touches_pending(writer->rank->touches))
            break;
        if (!writer->open->opened_ns)
            writer->open->opened_ns = 1; /* due: the last access times */
    }
    refuse_waiters(writer);
}

static int set_up(struct writer *writer) {
    int result = slab_io_open(writer->engine, WRITE_DEPTH, &writer->io);
    if (result < 0)
        return result;
    writer->requests = calloc(WRITE_DEPTH, sizeof(*writer->requests));
    writer->header_blocks = aligned_alloc(BLOCK_BYTES, (size_t)WRITE_DEPTH * BLOCK_BYTES);
    if (!writer->requests || !writer->header_blocks)
        return -ENOMEM;
    for (unsigned i = 0; i < WRITE_DEPTH; i++) {
        struct write_request *request = &writer->requests[i];
        request->header_block = (char *)writer->header_blocks + (size_t)i * BLOCK_BYTES;
        request->next_free = writer->free_requests;
        writer->free_requests = request;
    }
    return 0;
}

static void drop_all(struct change_list *list) {
    struct change *change;
    while ((change = change_list_take(list)))
        change_destroy(change);
}

static void *writer_main(void *argument) {
    struct writer *writer = argument;
    char name[16];
    thread_role = THREAD_WRITER;
    snprintf(name, sizeof(name), "cpl3-write%u", writer->rank->number % 10000u);
    pthread_setname_np(pthread_self(), name);
    int result = set_up(writer);
    pthread_mutex_lock(&writer->inbox_lock);
    writer->started = result;
    if (result == 0)
        atomic_store(&writer->has_io, true);
    pthread_cond_broadcast(&writer->idle);
    pthread_mutex_unlock(&writer->inbox_lock);
    if (result == 0)
        run(writer);
    drop_all(&writer->queue);
    drop_all(&writer->open->changes);
    drop_all(&writer->closing->changes);
    return NULL;
}

/* After the thread: until then others may wake its io. */
static void destroy(struct writer *writer) {
    slab_io_close(writer->io);
    free(writer->requests);
    free(writer->header_blocks);
    free(writer->groups[0].retired.items);
    free(writer->groups[1].retired.items);
    free(writer->pinned.items);
    pthread_cond_destroy(&writer->idle);
    pthread_mutex_destroy(&writer->inbox_lock);
    free(writer);
}

int writer_start(struct rank *rank, enum slab_engine engine, struct writer **ret_writer) {
    struct writer *writer = calloc(1, sizeof(*writer));
    if (!writer)
        return -ENOMEM;
    writer->rank = rank;
    writer->engine = engine;
    writer->started = 1;
    writer->open = &writer->groups[0];
    writer->closing = &writer->groups[1];
    writer->touches_written_ns = clock_monotonic_ns();
    pthread_mutex_init(&writer->inbox_lock, NULL);
    pthread_cond_init(&writer->idle, NULL);
    int result = -pthread_create(&writer->thread, NULL, writer_main, writer);
    if (result == 0) {
        pthread_mutex_lock(&writer->inbox_lock);
        while (writer->started == 1)
            pthread_cond_wait(&writer->idle, &writer->inbox_lock);
        result = writer->started;
        pthread_mutex_unlock(&writer->inbox_lock);
        if (result < 0)
            pthread_join(writer->thread, NULL);
    }
    if (result < 0) {
        destroy(writer);
        return result;
    }
    *ret_writer = writer;
    return 0;
}

void writer_stop(struct writer *writer) {
    if (!writer)
        return;
    pthread_mutex_lock(&writer->inbox_lock);
    writer->stop = true;
    pthread_mutex_unlock(&writer->inbox_lock);
    writer_wake(writer);
    pthread_join(writer->thread, NULL);
    destroy(writer);
}
