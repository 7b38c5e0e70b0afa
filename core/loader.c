/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load thread's loop and its loads. A load that fails for the disk's sake is a miss now; the
 * loader remembers the last such sequences, and the second failure of one counts as bad, as does
 * anything that does not verify (W4).
 */
#include "core/loader.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <utlist.h>

#include "core/clock.h"
#include "core/load.h"
#include "core/version_internal.h"

enum {
    LOADER_DEPTH = 32,       /* requests in flight; also loads in work, as each has one at least */
    LOADER_FAILED_MAX = 256, /* disk failures remembered */
};

struct loader {
    struct load loads[LOADER_DEPTH];
    struct load *free_loads;
    struct load *active; /* in order of their start */
    struct slab_io *io;
    bool blocked; /* the first load of the queue waits for memory */
    uint64_t next_sweep_ns;
    uint64_t failed[LOADER_FAILED_MAX]; /* sequences, a ring; 0: none */
    unsigned failed_next;
    /* fixed after open */
    struct version_table *table;
    pthread_t thread;
    /* start */
    pthread_mutex_t mutex;
    pthread_cond_t started;
    bool is_started; /* under the mutex */
    int start_result;
};

/* results */

static bool failed_before(struct loader *loader, uint64_t sequence) {
    for (unsigned i = 0; i < LOADER_FAILED_MAX; i++) {
        if (loader->failed[i] == sequence)
            return true;
    }
    loader->failed[loader->failed_next++ % LOADER_FAILED_MAX] = sequence;
    return false;
}

/* The load's outcome becomes the version's; every waiter gets a hold with a good one. */
static struct waiter *settle_load(struct version *version, int result, struct buffer *buffer) {
    SCOPE_LOCK(&version->table->mutex);
    CHECK(version->bytes == BYTES_LOADING && version->holds == 0);
    struct waiter *waiters = version->waiters, *waiter;
    version->waiters = NULL;
    if (result < 0) {
        version->bytes = result == -EBADMSG ? BYTES_BAD : BYTES_ABSENT;
        return waiters;
    }
    LL_FOREACH(waiters, waiter) {
        version->holds++;
    }
    version->done_reading = false;
    version_cache_put(version, buffer);
    return waiters;
}

static void wake_all(struct waiter *waiters, int result) {
    while (waiters) {
        struct waiter *waiter = waiters;
        waiters = waiter->next;
        waiter->wake(waiter, result);
    }
}

/* Ends the load's reference, before the waiters hear: those who wait have their own, so that once
 * they have answered nothing of the load is left. */
static void finish_version(struct loader *loader, struct version *version, int result,
                           const char *reason, struct buffer *buffer) {
    const struct version_table_options *options = &loader->table->options;
    struct waiter *waiters = settle_load(version, result, buffer);
    if (result < 0)
        buffer_destroy(buffer);
    if (result == -EBADMSG) {
        stats_add(options->stats, corrupt, 1);
        options->on_bad(options->argument, &version->key, version->sequence, reason);
    }
    version_unref(version);
    wake_all(waiters, result);
}

static void finish_load(struct loader *loader, struct load *load) {
    struct version *version = load->version;
    const char *reason = NULL;
    int result = 0;
    if (load->result < 0) {
        stats_add(loader->table->options.stats, read_errors, 1);
        result = -EIO;
        if (failed_before(loader, version->sequence))
            reason = "the disk failed to read it twice";
    } else {
        reason = load_verify(load);
    }
    if (reason)
        result = -EBADMSG;
    struct buffer *buffer = load->buffer;
    DL_DELETE2(loader->active, load, previous, next);
    LL_PREPEND(loader->free_loads, load);
    finish_version(loader, version, result, reason, buffer);
}

/* requests */

/* The oldest loads first, so that they end first. */
static void submit_more(struct loader *loader) {
    struct load *load;
    DL_FOREACH2(loader->active, load, next) {
        while (slab_io_in_flight(loader->io) < LOADER_DEPTH && load_has_request(load))
            slab_io_submit(loader->io, load_next_request(load));
    }
}

static void request_done(struct loader *loader, const struct slab_request *request) {
    struct load *load = load_of_request(request);
    if (load_request_done(load, request))
        finish_load(loader, load);
}

/* starting */

static void begin_load(struct loader *loader, struct version *version, struct buffer *buffer) {
    struct load *load = loader->free_loads;
    LL_DELETE(loader->free_loads, load);
    load_begin(load, version, buffer);
    DL_APPEND2(loader->active, load, previous, next);
}

static int reserve_memory(struct loader *loader, uint64_t bytes, struct buffer **ret_buffer) {
    struct buffer_pool *buffers = loader->table->options.buffers;
    int result;
    do
        result = buffer_create(buffers, BUFFER_READING, round_up_to_block(bytes), ret_buffer);
    while (result < 0 && version_cache_evict_for_load(loader->table));
    return result;
}

static void dequeue(struct loader *loader, struct version *version) {
    SCOPE_LOCK(&loader->table->mutex);
    CHECK(loader->table->queue == version);
    LL_DELETE2(loader->table->queue, version, queue_next);
}

/* The first of the queue, which only this thread takes off. A load whose waiters all gave up while
 * it waited is dropped. */
static struct version *queue_first(struct loader *loader) {
    struct version_table *table = loader->table;
    struct version *abandoned, *first;
    do {
        {
            SCOPE_LOCK(&table->mutex);
            first = table->queue;
            abandoned = first && !first->waiters ? first : NULL;
            if (abandoned) {
                LL_DELETE2(table->queue, abandoned, queue_next);
                abandoned->bytes = BYTES_ABSENT;
            }
        }
        version_unref(abandoned);
    } while (abandoned);
    return first;
}

static void start_loads(struct loader *loader) {
    struct version *version;
    loader->blocked = false;
    while (loader->free_loads && (version = queue_first(loader))) {
        struct buffer *buffer;
        if (reserve_memory(loader, version->payload_bytes, &buffer) < 0) {
            loader->blocked = true;
            break;
        }
        dequeue(loader, version);
        begin_load(loader, version, buffer);
    }
    atomic_store_explicit(&loader->table->memory_wanted, loader->blocked, memory_order_relaxed);
}

/* time */

/* Under the table's mutex: moves the version's expired waiters to a list, and finds the earliest
 * deadline of those that stay. */
static void take_expired(struct version *version, uint64_t now_ns, struct waiter **expired) {
    uint64_t *next_expiry_ns = &version->table->next_expiry_ns;
    struct waiter *waiter;
    while ((waiter = version->waiters) && waiter->deadline_ns <= now_ns) {
        LL_DELETE(version->waiters, waiter);
        LL_PREPEND(*expired, waiter);
    }
    if (waiter && waiter->deadline_ns < *next_expiry_ns)
        *next_expiry_ns = waiter->deadline_ns;
}

static void expire_waiters(struct loader *loader, uint64_t now_ns) {
    struct version_table *table = loader->table;
    struct waiter *expired = NULL;
    {
        SCOPE_LOCK(&table->mutex);
        if (now_ns < table->next_expiry_ns)
            return;
        table->next_expiry_ns = UINT64_MAX;
        struct version *version;
        LL_FOREACH2(table->queue, version, queue_next) {
            take_expired(version, now_ns, &expired);
        }
        struct load *load;
        DL_FOREACH2(loader->active, load, next) {
            take_expired(load->version, now_ns, &expired);
        }
    }
    wake_all(expired, -ETIMEDOUT);
}

static void sweep(struct loader *loader, uint64_t now_ns) {
    const struct version_times *times = &loader->table->times;
    if (now_ns < loader->next_sweep_ns)
        return;
    loader->next_sweep_ns = now_ns + times->sweep_ns;
    if (now_ns > times->idle_ns)
        version_cache_evict_idle(loader->table, now_ns - times->idle_ns);
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* How long the thread may sleep. */
static uint64_t timeout_ns(const struct loader *loader) {
    struct version_table *table = loader->table;
    uint64_t now_ns = clock_monotonic_ns();
    uint64_t until_ns = loader->next_sweep_ns;
    if (loader->blocked)
        until_ns = earlier(until_ns, now_ns + table->times.retry_ns);
    {
        SCOPE_LOCK(&table->mutex);
        until_ns = earlier(until_ns, table->next_expiry_ns);
    }
    return until_ns > now_ns ? until_ns - now_ns : 0;
}

/* the thread */

static bool is_finished(struct loader *loader) {
    SCOPE_LOCK(&loader->table->mutex);
    return loader->table->stopping && !loader->table->queue && !loader->active;
}

static void work(struct loader *loader) {
    while (!is_finished(loader)) {
        start_loads(loader);
        submit_more(loader);
        uint64_t now_ns = clock_monotonic_ns();
        expire_waiters(loader, now_ns);
        sweep(loader, now_ns);
        struct slab_request *request = slab_io_wait(loader->io, timeout_ns(loader));
        while (request) {
            request_done(loader, request);
            submit_more(loader);
            request = slab_io_wait(loader->io, 0);
        }
    }
}

static void *run(void *argument) {
    struct loader *loader = argument;
    thread_role = THREAD_LOADER;
    pthread_setname_np(pthread_self(), "cpl3-load");
    int result = slab_io_open(loader->table->options.engine, LOADER_DEPTH, &loader->io);
    {
        SCOPE_LOCK(&loader->mutex);
        loader->start_result = result;
        loader->is_started = true;
        pthread_cond_signal(&loader->started);
    }
    if (result < 0)
        return NULL;
    work(loader);
    slab_io_close(loader->io);
    return NULL;
}

/* The thread gets no signals: they are the main thread's. */
static int start_thread(struct loader *loader) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&loader->thread, NULL, run, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return -error;
    {
        SCOPE_LOCK(&loader->mutex);
        while (!loader->is_started)
            pthread_cond_wait(&loader->started, &loader->mutex);
    }
    if (loader->start_result < 0)
        pthread_join(loader->thread, NULL);
    return loader->start_result;
}

static struct loader *make_loader(struct version_table *table) {
    struct loader *loader = aligned_alloc(alignof(struct loader), sizeof *loader);
    if (!loader)
        return NULL;
    memset(loader, 0, sizeof *loader);
    loader->table = table;
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->started, NULL);
    return loader;
}

static void free_loader(struct loader *loader) {
    for (unsigned i = 0; i < LOADER_DEPTH; i++)
        verify_fini(&loader->loads[i].verify);
    pthread_cond_destroy(&loader->started);
    pthread_mutex_destroy(&loader->mutex);
    free(loader);
}

static int prepare_loads(struct loader *loader) {
    for (unsigned i = 0; i < LOADER_DEPTH; i++) {
        int result = verify_init(&loader->loads[i].verify);
        if (result < 0)
            return result;
        LL_PREPEND(loader->free_loads, &loader->loads[i]);
    }
    return 0;
}

int loader_open(struct version_table *table, struct loader **ret_loader) {
    struct loader *loader = make_loader(table);
    if (!loader)
        return -ENOMEM;
    int result = prepare_loads(loader);
    if (result == 0)
        result = start_thread(loader);
    if (result < 0) {
        free_loader(loader);
        return result;
    }
    *ret_loader = loader;
    return 0;
}

void loader_close(struct loader *loader) {
    if (!loader)
        return;
    {
        /* Woken under the mutex: the thread cannot see that it stops, and close its io, before. */
        SCOPE_LOCK(&loader->table->mutex);
        loader->table->stopping = true;
        slab_io_wake(loader->io);
    }
    pthread_join(loader->thread, NULL);
    free_loader(loader);
}

void loader_wake(struct loader *loader) {
    slab_io_wake(loader->io);
}
