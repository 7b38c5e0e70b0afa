/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transfers of NIXL's POSIX plugin, for nixl_posix.py: whole files at offset 0, from one
 * submitter, up to 64 in flight, by libaio or io_uring. A shared object without Python's API,
 * called through ctypes.
 */
#include <errno.h>
#include <libaio.h>
#include <liburing.h>
#include <stdint.h>
#include <stdlib.h>

enum { IN_FLIGHT_MAX = 64 };

struct transfer {
    int32_t fd;
    int32_t write;
    void *buffer;
    uint64_t bytes;
    int64_t result; /* bytes moved or -errno */
};

int nixl_run_aio(struct transfer *transfers, unsigned count);
int nixl_run_uring(struct transfer *transfers, unsigned count);

static unsigned smaller(unsigned a, unsigned b) {
    return a < b ? a : b;
}

/* libaio */

static int aio_batch(io_context_t context, struct transfer *transfers, unsigned count) {
    struct iocb blocks[IN_FLIGHT_MAX], *pointers[IN_FLIGHT_MAX];
    for (unsigned i = 0; i < count; i++) {
        struct transfer *t = &transfers[i];
        if (t->write)
            io_prep_pwrite(&blocks[i], t->fd, t->buffer, t->bytes, 0);
        else
            io_prep_pread(&blocks[i], t->fd, t->buffer, t->bytes, 0);
        blocks[i].data = t;
        pointers[i] = &blocks[i];
    }
    for (unsigned submitted = 0; submitted < count;) {
        int n = io_submit(context, (long)(count - submitted), pointers + submitted);
        if (n < 0)
            return n; /* what is under way ends with the context */
        submitted += (unsigned)n;
    }
    for (unsigned done = 0; done < count;) {
        struct io_event events[IN_FLIGHT_MAX];
        int n = io_getevents(context, 1, (long)(count - done), events, NULL);
        if (n < 0 && n != -EINTR)
            return n;
        for (int i = 0; i < n; i++)
            ((struct transfer *)events[i].data)->result = (int64_t)events[i].res;
        done += n > 0 ? (unsigned)n : 0;
    }
    return 0;
}

/* A thread keeps its context: to end one takes the kernel tens of milliseconds. */
int nixl_run_aio(struct transfer *transfers, unsigned count) {
    static _Thread_local io_context_t context;
    int error = context ? 0 : io_setup(IN_FLIGHT_MAX, &context);
    for (unsigned i = 0; error == 0 && i < count; i += IN_FLIGHT_MAX)
        error = aio_batch(context, transfers + i, smaller(count - i, IN_FLIGHT_MAX));
    if (error != 0 && context) {
        io_destroy(context);
        context = NULL;
    }
    return error;
}

/* io_uring */

static int uring_batch(struct io_uring *ring, struct transfer *transfers, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
        struct transfer *t = &transfers[i];
        if (t->write)
            io_uring_prep_write(sqe, t->fd, t->buffer, (unsigned)t->bytes, 0);
        else
            io_uring_prep_read(sqe, t->fd, t->buffer, (unsigned)t->bytes, 0);
        io_uring_sqe_set_data(sqe, t);
    }
    for (unsigned submitted = 0; submitted < count;) {
        int n = io_uring_submit(ring);
        if (n < 0 && n != -EINTR)
            return n;
        submitted += n > 0 ? (unsigned)n : 0;
    }
    for (unsigned done = 0; done < count;) {
        struct io_uring_cqe *cqe;
        int error = io_uring_wait_cqe(ring, &cqe);
        if (error == -EINTR)
            continue;
        if (error < 0)
            return error;
        ((struct transfer *)io_uring_cqe_get_data(cqe))->result = cqe->res;
        io_uring_cqe_seen(ring, cqe);
        done++;
    }
    return 0;
}

int nixl_run_uring(struct transfer *transfers, unsigned count) {
    struct io_uring ring;
    int error = io_uring_queue_init(IN_FLIGHT_MAX, &ring, 0);
    if (error < 0)
        return error;
    for (unsigned i = 0; error == 0 && i < count; i += IN_FLIGHT_MAX)
        error = uring_batch(&ring, transfers + i, smaller(count - i, IN_FLIGHT_MAX));
    io_uring_queue_exit(&ring);
    return error;
}
