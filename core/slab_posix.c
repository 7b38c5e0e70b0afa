/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine for where io_uring is not allowed (containers often forbid it): a few threads that
 * preadv and pwritev, one queue to them and one back. Same results as slab_uring.c.
 */
#include "core/slab_io.h"

#include "core/check.h"
#include "core/cleanup.h"
#include "core/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/uio.h>

enum { THREADS_MAX = 8 };

struct request_queue {
    struct slab_request *first;
    struct slab_request **end; /* where the next one is linked */
};

struct posix_io {
    struct slab_io io; /* first */
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t event; /* for the owner: something done, or woken */
    /* under lock */
    struct request_queue submitted;
    struct request_queue done;
    bool woken;
    bool stop;
    /* the owner's */
    unsigned thread_count;
    pthread_t threads[THREADS_MAX];
};

static struct posix_io *posix_of(struct slab_io *io) {
    return (struct posix_io *)io;
}

static void queue_init(struct request_queue *queue) {
    queue->first = NULL;
    queue->end = &queue->first;
}

static void queue_put(struct request_queue *queue, struct slab_request *request) {
    request->next = NULL;
    *queue->end = request;
    queue->end = &request->next;
}

static struct slab_request *queue_take(struct request_queue *queue) {
    struct slab_request *request = queue->first;
    if (request) {
        queue->first = request->next;
        if (!queue->first)
            queue->end = &queue->first;
    }
    return request;
}

static void run_request(struct slab_request *request) {
    ssize_t transferred;
    do {
        int fd = slab_fd(request->slab);
        int count = (int)slab_request_rest(request);
        off_t offset = (off_t)(request->offset + request->done_bytes);
        transferred = request->write ? pwritev(fd, request->rest, count, offset)
                                     : preadv(fd, request->rest, count, offset);
    } while (!slab_request_advance(request, transferred < 0 ? -errno : transferred));
}

static struct slab_request *next_submitted(struct posix_io *posix) {
    SCOPE_LOCK(&posix->lock);
    while (!posix->submitted.first && !posix->stop)
        pthread_cond_wait(&posix->work, &posix->lock);
    return queue_take(&posix->submitted);
}

static void *run_requests(void *argument) {
    struct posix_io *posix = argument;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    struct slab_request *request;
    while ((request = next_submitted(posix))) {
        run_request(request);
        SCOPE_LOCK(&posix->lock);
        queue_put(&posix->done, request);
        pthread_cond_signal(&posix->event);
    }
    return NULL;
}

static void posix_close(struct slab_io *io) {
    struct posix_io *posix = posix_of(io);
    {
        SCOPE_LOCK(&posix->lock);
        CHECK(!posix->submitted.first);
        posix->stop = true;
        pthread_cond_broadcast(&posix->work);
    }
    for (unsigned i = 0; i < posix->thread_count; i++)
        pthread_join(posix->threads[i], NULL);
    pthread_cond_destroy(&posix->work);
    pthread_cond_destroy(&posix->event);
    pthread_mutex_destroy(&posix->lock);
    free(posix);
}

static int posix_open(unsigned depth, struct slab_io **ret_io) {
    struct posix_io *posix = calloc(1, sizeof(*posix));
    if (!posix)
        return -ENOMEM;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&posix->lock, NULL);
    pthread_cond_init(&posix->work, NULL);
    pthread_cond_init(&posix->event, &monotonic);
    pthread_condattr_destroy(&monotonic);
    queue_init(&posix->submitted);
    queue_init(&posix->done);
    int error = 0;
    while (error == 0 && posix->thread_count < depth && posix->thread_count < THREADS_MAX) {
        pthread_t *thread = &posix->threads[posix->thread_count];
        error = -pthread_create(thread, NULL, run_requests, posix);
        if (error == 0) {
            pthread_setname_np(*thread, "cpl3-io");
            posix->thread_count++;
        }
    }
    if (posix->thread_count == 0) { /* fewer than wanted will do */
        posix_close(&posix->io);
        return error;
    }
    *ret_io = &posix->io;
    return 0;
}

static void posix_submit(struct slab_io *io, struct slab_request *request) {
    struct posix_io *posix = posix_of(io);
    SCOPE_LOCK(&posix->lock);
    queue_put(&posix->submitted, request);
    pthread_cond_signal(&posix->work);
}

/* Until something happened or the deadline passed. Under lock. */
static void wait_for_event(struct posix_io *posix, uint64_t timeout_ns) {
    uint64_t now_ns = clock_monotonic_ns();
    bool for_ever = timeout_ns > UINT64_MAX - now_ns;
    uint64_t deadline_ns = now_ns + timeout_ns;
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                                .tv_nsec = (long)(deadline_ns % 1000000000)};
    int result = 0;
    while (!posix->done.first && !posix->woken && result != ETIMEDOUT)
        result = for_ever ? pthread_cond_wait(&posix->event, &posix->lock)
                          : pthread_cond_timedwait(&posix->event, &posix->lock, &deadline);
}

static struct slab_request *posix_wait(struct slab_io *io, uint64_t timeout_ns) {
    struct posix_io *posix = posix_of(io);
    SCOPE_LOCK(&posix->lock);
    if (timeout_ns > 0)
        wait_for_event(posix, timeout_ns);
    struct slab_request *request = queue_take(&posix->done);
    if (!request && timeout_ns > 0)
        posix->woken = false;
    return request;
}

static void posix_wake(struct slab_io *io) {
    struct posix_io *posix = posix_of(io);
    SCOPE_LOCK(&posix->lock);
    posix->woken = true;
    pthread_cond_signal(&posix->event);
}

const struct slab_io_engine slab_io_posix = {
    .name = "pread/pwrite",
    .open = posix_open,
    .close = posix_close,
    .submit = posix_submit,
    .wait = posix_wait,
    .wake = posix_wake,
};
