/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker sits in read(2) on the FUSE device nearly all of its life. It is woken for the end by a
 * signal with an empty handler (the read answers EINTR): polling the device together with an
 * eventfd would wake every idle worker for every request.
 *
 * The request memory belongs to the worker, not to the request: a handler may use it only until it
 * returns. A handler that keeps the payload of a WRITE leaves other memory in its place (compat.h).
 */
#include "fs/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/check.h"
#include "core/clock.h"
#include "core/log.h"

enum { WAKE_SIGNAL = SIGUSR1, WAKE_AGAIN_NS = 5 * 1000 * 1000 };

struct worker {
    struct loop *loop;
    pthread_t thread;
    struct compat_request request; /* its own */
};

struct loop {
    struct fuse_session *session; /* fixed after start */
    int ended_fd;                 /* fixed after start */
    atomic_bool stopping;
    unsigned worker_count; /* fixed after start */
    struct worker workers[];
};

static void on_wake_signal(int signal_number) {
    (void)signal_number;
}

static void tell_ended(struct loop *loop) {
    uint64_t one = 1;
    ssize_t written = write(loop->ended_fd, &one, sizeof one);
    CHECK(written == sizeof one);
}

/* Until the session ends or the loop stops. */
static void serve(struct worker *worker) {
    struct loop *loop = worker->loop;
    while (!atomic_load_explicit(&loop->stopping, memory_order_relaxed)) {
        int received = compat_receive(loop->session, &worker->request);
        if (received == -EINTR || received == -EAGAIN)
            continue;
        if (received < 0)
            log_error("reading from the FUSE device: %s; the mount ends", strerror(-received));
        if (received <= 0)
            return tell_ended(loop);
        compat_process(loop->session, &worker->request);
    }
}

static void *run_worker(void *argument) {
    struct worker *worker = argument;
    sigset_t wake;
    sigemptyset(&wake);
    sigaddset(&wake, WAKE_SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
    serve(worker);
    return NULL;
}

static int start_worker(struct loop *loop, struct buffer_pool *pool, unsigned number) {
    struct worker *worker = &loop->workers[number];
    worker->loop = loop;
    int error = compat_create_request(pool, &worker->request);
    if (error)
        return error;
    error = -pthread_create(&worker->thread, NULL, run_worker, worker);
    if (error) {
        compat_destroy_request(&worker->request);
        return error;
    }
    char name[16];
    snprintf(name, sizeof name, "cpl3-fuse%u", number % 100);
    pthread_setname_np(worker->thread, name);
    return 0;
}

int loop_start(struct fuse_session *session, struct buffer_pool *pool, unsigned threads,
               struct loop **ret_loop) {
    struct loop *loop = calloc(1, sizeof *loop + threads * sizeof loop->workers[0]);
    if (!loop)
        return -ENOMEM;
    loop->session = session;
    loop->ended_fd = eventfd(0, EFD_CLOEXEC);
    if (loop->ended_fd < 0) {
        int error = -errno;
        free(loop);
        return error;
    }
    struct sigaction action = {.sa_handler =
                                   on_wake_signal}; /* no SA_RESTART: EINTR is the point */
    sigaction(WAKE_SIGNAL, &action, NULL);
    for (; loop->worker_count < threads; loop->worker_count++) {
        int error = start_worker(loop, pool, loop->worker_count);
        if (error) {
            loop_stop(loop);
            return error;
        }
    }
    *ret_loop = loop;
    return 0;
}

int loop_ended_fd(const struct loop *loop) {
    return loop->ended_fd;
}

/* The signal is lost on a worker that was just about to read: it is sent until the worker ends. */
static void wake_and_join(struct worker *worker) {
    for (;;) {
        pthread_kill(worker->thread, WAKE_SIGNAL);
        uint64_t until_ns = clock_monotonic_ns() + WAKE_AGAIN_NS;
        struct timespec until = {
            .tv_sec = (time_t)(until_ns / 1000000000u),
            .tv_nsec = (long)(until_ns % 1000000000u),
        };
        if (pthread_clockjoin_np(worker->thread, NULL, CLOCK_MONOTONIC, &until) == 0)
            return;
    }
}

void loop_stop(struct loop *loop) {
    if (!loop)
        return;
    atomic_store(&loop->stopping, true);
    for (unsigned i = 0; i < loop->worker_count; i++) {
        wake_and_join(&loop->workers[i]);
        compat_destroy_request(&loop->workers[i].request);
    }
    close(loop->ended_fd);
    free(loop);
}
