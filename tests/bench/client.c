/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, buffers and the clock of the client program: see client.h. */
#include "tests/bench/client.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/clock.h"
#include "tests/bench/sample.h"

enum { HUGE_PAGE_BYTES = 2 << 20, STRIDE = 7919 };

struct client {
    size_t buffer_bytes; /* of one thread, whole huge pages */
    uint8_t *huge[CLIENT_THREADS_MAX];
    uint8_t *plain[CLIENT_THREADS_MAX];
    unsigned huge_percent;
};

struct thread {
    struct worker worker;
    const struct job *job;
    uint64_t begin, end; /* its operations */
    pthread_barrier_t *barrier;
    pthread_t thread;
    uint64_t start_ns, end_ns;
};

/* buffers */

static uint64_t own_huge_kib(void) {
    char line[256];
    uint64_t kib = 0;
    FILE *smaps = fopen("/proc/self/smaps_rollup", "re");
    while (smaps && fgets(line, sizeof line, smaps))
        if (sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1)
            break;
    if (smaps)
        fclose(smaps);
    return kib;
}

/* Random bytes, so that nobody on the way can save by compressing. */
static uint8_t *make_buffer(size_t bytes, int advice) {
    uint64_t *buffer = aligned_alloc(HUGE_PAGE_BYTES, bytes);
    if (!buffer)
        give_up("no memory for %zu bytes", bytes);
    madvise(buffer, bytes, advice);
    uint64_t state = (uintptr_t)buffer | 1;
    for (size_t i = 0; i < bytes / sizeof *buffer; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        buffer[i] = state;
    }
    return (uint8_t *)buffer;
}

struct client *client_create(size_t object_bytes_max) {
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        give_up("no memory");
    client->buffer_bytes =
        (object_bytes_max + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    uint64_t before_kib = own_huge_kib();
    for (unsigned i = 0; i < CLIENT_THREADS; i++)
        client->huge[i] = make_buffer(client->buffer_bytes, MADV_HUGEPAGE);
    uint64_t wanted_kib = client->buffer_bytes / 1024 * CLIENT_THREADS;
    client->huge_percent = (unsigned)((own_huge_kib() - before_kib) * 100 / wanted_kib);
    for (unsigned i = 0; i < CLIENT_THREADS; i++)
        client->plain[i] = make_buffer(client->buffer_bytes, MADV_NOHUGEPAGE);
    return client;
}

void client_destroy(struct client *client) {
    for (unsigned i = 0; i < CLIENT_THREADS_MAX; i++) {
        free(client->huge[i]);
        free(client->plain[i]);
    }
    free(client);
}

unsigned client_huge_percent(const struct client *client) {
    return client->huge_percent;
}

/* threads */

/* A step through all ids in an order that is not the one they were put in. */
static uint64_t scattered(const struct job *job, uint64_t operation) {
    uint64_t stride = job->ids % STRIDE == 0 ? STRIDE + 2 : STRIDE;
    return job->first_id + operation % job->ids * stride % job->ids;
}

static void operate(struct worker *worker, const struct job *job, uint64_t operation) {
    const struct engine *engine = worker->target->engine;
    uint64_t put_id = job->first_id + operation % job->ids;
    uint64_t id = scattered(job, operation);
    switch (job->kind) {
    case JOB_PUT:
        return engine->put(worker, put_id);
    case JOB_PUT_DURABLE:
        return engine->put_durable(worker, put_id);
    case JOB_GET:
        return engine->get(worker, id);
    case JOB_GET_DIRECT:
        return (engine->get_direct ? engine->get_direct : engine->get)(worker, id);
    case JOB_HAS:
    case JOB_HAS_NOT:
        if (engine->has(worker, id) != (job->kind == JOB_HAS))
            give_up("%s: object %" PRIu64 " is %s", engine->name, id,
                    job->kind == JOB_HAS ? "absent" : "there");
    }
}

static void *run_thread(void *argument) {
    struct thread *thread = argument;
    struct worker *worker = &thread->worker;
    const struct engine *engine = worker->target->engine;
    if (engine->open_worker)
        engine->open_worker(worker);
    pthread_barrier_wait(thread->barrier);
    thread->start_ns = clock_monotonic_ns();
    for (uint64_t i = thread->begin; i < thread->end; i++)
        operate(worker, thread->job, i);
    if (engine->finish)
        engine->finish(worker);
    thread->end_ns = clock_monotonic_ns();
    if (engine->close_worker)
        engine->close_worker(worker);
    return NULL;
}

static uint8_t *buffer_for(struct client *client, unsigned number, const struct job *job,
                           bool huge) {
    uint8_t **buffer = huge ? &client->huge[number] : &client->plain[number];
    if (number >= CLIENT_THREADS && job->object_bytes > CLIENT_MANY_BYTES)
        give_up("%u threads with objects of %zu bytes", job->threads, job->object_bytes);
    if (!*buffer)
        *buffer = make_buffer(HUGE_PAGE_BYTES, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return *buffer;
}

static void init_worker(struct worker *worker, struct client *client, const struct target *target,
                        const struct job *job) {
    const char *directory = job->directories ? job->directories[worker->number] : target->directory;
    worker->target = target;
    worker->buffer = buffer_for(client, worker->number, job, target->engine->huge_buffers);
    worker->object_bytes = job->object_bytes;
    int n = snprintf(worker->path, sizeof worker->path, "%s/", directory);
    if (n < 0 || (size_t)n + ENGINE_NAME_BYTES >= sizeof worker->path)
        give_up("%s: too long a path", directory);
    worker->path_bytes = (size_t)n;
}

double client_run(struct client *client, const struct target *target, const struct job *job) {
    struct thread threads[CLIENT_THREADS_MAX];
    pthread_barrier_t barrier;
    if (job->threads > CLIENT_THREADS_MAX || job->object_bytes > client->buffer_bytes)
        give_up("a job for %u threads and %zu bytes", job->threads, job->object_bytes);
    pthread_barrier_init(&barrier, NULL, job->threads);
    for (unsigned i = 0; i < job->threads; i++) {
        threads[i] = (struct thread){.job = job,
                                     .barrier = &barrier,
                                     .worker.number = i,
                                     .begin = job->count * i / job->threads,
                                     .end = job->count * (i + 1) / job->threads};
        init_worker(&threads[i].worker, client, target, job);
        int error = pthread_create(&threads[i].thread, NULL, run_thread, &threads[i]);
        if (error)
            give_up("starting a thread: %s", strerror(error));
    }
    uint64_t start_ns = UINT64_MAX, end_ns = 0;
    for (unsigned i = 0; i < job->threads; i++) {
        pthread_join(threads[i].thread, NULL);
        if (threads[i].start_ns < start_ns)
            start_ns = threads[i].start_ns;
        if (threads[i].end_ns > end_ns)
            end_ns = threads[i].end_ns;
    }
    pthread_barrier_destroy(&barrier);
    return (double)(end_ns - start_ns) / 1e9;
}
