/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The physical limit: one big preallocated file, O_DIRECT through io_uring, from and into huge
 * pages, in requests of up to 1 MiB. Nothing waits for an object: the worker keeps its queue full
 * across objects. put_durable waits for its object and syncs it. Bytes are not checked.
 *
 * It has the states of the other engines, since the first write to a block can cost twice what
 * writing it again costs: prepare makes the file anew, so a first fill writes blocks that were
 * never written, and every object has a place of its own, so what is read or put again was written.
 */
#include "tests/bench/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/bench/disk.h"
#include "tests/bench/sample.h"

enum {
    REQUEST_BYTES_MAX = 1 << 20,
    IN_FLIGHT_BYTES_MAX = 8 << 20,
    REQUESTS_MAX = 32,
    HUGE_PAGE_BYTES = 2 << 20,
};

/* Of one worker. */
struct raw_queue {
    struct io_uring ring;
    uint8_t *buffer; /* IN_FLIGHT_BYTES_MAX, huge pages */
    size_t request_bytes;
    unsigned in_flight;
    unsigned free_count; /* parts of the buffer, of request_bytes each */
    unsigned free_parts[REQUESTS_MAX];
};

static void prepare(struct target *target, uint64_t capacity_bytes) {
    snprintf(target->directory, sizeof target->directory, "%s/file", target->base);
    disk_make_empty_directory(target->base);
    target->raw_fd =
        open(target->directory, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0644);
    if (target->raw_fd < 0)
        give_up("%s: open with O_DIRECT: %m", target->directory);
    int error = posix_fallocate(target->raw_fd, 0, (off_t)capacity_bytes);
    if (error)
        give_up("%s: allocating %" PRIu64 " MiB: %s", target->directory, capacity_bytes >> 20,
                strerror(error));
    target->raw_bytes = capacity_bytes;
    disk_settle(target->base);
}

static void sync_file(struct target *target) {
    if (fdatasync(target->raw_fd) < 0)
        give_up("the raw file: fdatasync: %m");
}

static void destroy(struct target *target) {
    if (target->raw_fd >= 0)
        close(target->raw_fd);
    target->raw_fd = -1;
    disk_remove_tree(target->base);
}

/* a worker's queue */

static void open_worker(struct worker *worker) {
    struct raw_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        give_up("no memory");
    int error = io_uring_queue_init(REQUESTS_MAX, &queue->ring, 0);
    if (error)
        give_up("the raw disk is measured by io_uring: %s", strerror(-error));
    queue->request_bytes =
        worker->object_bytes < REQUEST_BYTES_MAX ? worker->object_bytes : REQUEST_BYTES_MAX;
    size_t parts = IN_FLIGHT_BYTES_MAX / queue->request_bytes;
    queue->buffer = aligned_alloc(HUGE_PAGE_BYTES, IN_FLIGHT_BYTES_MAX);
    if (!queue->buffer)
        give_up("no memory");
    madvise(queue->buffer, IN_FLIGHT_BYTES_MAX, MADV_HUGEPAGE);
    memset(queue->buffer, 1, IN_FLIGHT_BYTES_MAX);
    while (queue->free_count < parts && queue->free_count < REQUESTS_MAX) {
        queue->free_parts[queue->free_count] = queue->free_count;
        queue->free_count++;
    }
    worker->queue = queue;
}

static void close_worker(struct worker *worker) {
    io_uring_queue_exit(&worker->queue->ring);
    free(worker->queue->buffer);
    free(worker->queue);
    worker->queue = NULL;
}

static void reap_one(struct raw_queue *queue) {
    struct io_uring_cqe *completion;
    int error;
    while ((error = io_uring_wait_cqe(&queue->ring, &completion)) == -EINTR)
        ;
    if (error == 0 && completion->res != (int)queue->request_bytes)
        error = completion->res < 0 ? completion->res : -EIO;
    if (error)
        give_up("the raw file: %s", strerror(-error));
    queue->free_parts[queue->free_count++] = (unsigned)completion->user_data;
    queue->in_flight--;
    io_uring_cqe_seen(&queue->ring, completion);
}

static void submit(struct worker *worker, uint64_t offset, bool write) {
    struct raw_queue *queue = worker->queue;
    if (queue->free_count == 0)
        reap_one(queue);
    unsigned part = queue->free_parts[--queue->free_count];
    uint8_t *bytes = queue->buffer + part * queue->request_bytes;
    struct io_uring_sqe *request = io_uring_get_sqe(&queue->ring);
    int fd = worker->target->raw_fd;
    if (write)
        io_uring_prep_write(request, fd, bytes, (unsigned)queue->request_bytes, offset);
    else
        io_uring_prep_read(request, fd, bytes, (unsigned)queue->request_bytes, offset);
    request->user_data = part;
    int submitted = io_uring_submit(&queue->ring);
    if (submitted != 1)
        give_up("the raw file: submitting: %s", strerror(-submitted));
    queue->in_flight++;
}

static void submit_object(struct worker *worker, uint64_t id, bool write) {
    uint64_t start = id * worker->object_bytes;
    if (start + worker->object_bytes > worker->target->raw_bytes)
        give_up("the raw file: object %" PRIu64 " lies behind its end", id);
    for (size_t at = 0; at < worker->object_bytes; at += worker->queue->request_bytes)
        submit(worker, start + at, write);
}

static void finish(struct worker *worker) {
    while (worker->queue->in_flight > 0)
        reap_one(worker->queue);
}

static void put(struct worker *worker, uint64_t id) {
    submit_object(worker, id, true);
}

static void put_durable(struct worker *worker, uint64_t id) {
    submit_object(worker, id, true);
    finish(worker);
    if (fdatasync(worker->target->raw_fd) < 0)
        give_up("the raw file: fdatasync: %m");
}

static void get(struct worker *worker, uint64_t id) {
    submit_object(worker, id, false);
}

const struct engine engine_raw = {
    .name = "raw",
    .measures = MEASURES_PAGES,
    .huge_buffers = true,
    .prepare = prepare,
    .sync = sync_file,
    .destroy = destroy,
    .open_worker = open_worker,
    .close_worker = close_worker,
    .put = put,
    .put_durable = put_durable,
    .get = get,
    .finish = finish,
};
