/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The io_uring engine; liburing.h stands only here. The ring is made disabled and enabled by the
 * first submit or wait, so that the thread which uses it owns it, whichever opened it: with
 * SINGLE_ISSUER the kernel refuses a submit from any other (-EEXIST), which proves ownership.
 *
 * Waking: slab_io_wake sets `woken`; only if the owner is `sleeping` in the kernel it also writes
 * an eventfd, for which a read is always armed in the ring. The owner sets `sleeping`, then looks
 * at `woken` once more; the waker does the opposite: one of them sees the other.
 */
#include "core/slab_io.h"

#include "core/check.h"
#include "core/clock.h"

#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { ENTRIES_MIN = 8, ENTRIES_MAX = 4096 };

struct uring_io {
    struct slab_io io; /* first */
    struct io_uring ring;
    unsigned entries; /* fixed after open, as wake_fd */
    int wake_fd;
    /* the owner's */
    bool enabled;
    bool wake_armed;
    uint64_t wake_count;         /* where the armed read puts the eventfd's counter */
    unsigned started;            /* requests given to the ring */
    struct slab_request *queued; /* submitted, not started: the ring is full */
    struct slab_request **queued_end;
    /* atomic */
    atomic_bool woken;
    atomic_bool sleeping;
};

static struct uring_io *uring_of(struct slab_io *io) {
    return (struct uring_io *)io;
}

/* opening */

static const unsigned needed_features =
    IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_EXT_ARG;

static int init_ring(unsigned entries, unsigned flags, struct io_uring *ret_ring) {
    struct io_uring_params params = {.flags = flags | IORING_SETUP_R_DISABLED};
    int error = io_uring_queue_init_params(entries, ret_ring, &params);
    if (error == 0 && (params.features & needed_features) != needed_features) {
        io_uring_queue_exit(ret_ring);
        return -ENOSYS;
    }
    return error;
}

/* Kernels refuse flags that they do not know with -EINVAL: the best set first. */
static int init_ring_with_best_flags(unsigned entries, struct io_uring *ret_ring) {
    static const unsigned sets[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
        0,
    };
    int error = -EINVAL;
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]) && error == -EINVAL; i++)
        error = init_ring(entries, sets[i], ret_ring);
    return error;
}

/* The shared liburing 2.3 does not export io_uring_enable_rings. */
static int enable_ring(struct io_uring *ring) {
    return io_uring_register((unsigned)ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

/* A seccomp filter may allow setting a ring up but not using it: proves it with a no-op. */
static int try_ring(void) {
    struct io_uring ring;
    int error = init_ring_with_best_flags(ENTRIES_MIN, &ring);
    if (error != 0)
        return error;
    error = enable_ring(&ring);
    if (error == 0) {
        io_uring_prep_nop(io_uring_get_sqe(&ring));
        int submitted = io_uring_submit_and_wait(&ring, 1);
        error = submitted < 0 && submitted != -EINTR ? submitted : 0;
    }
    io_uring_queue_exit(&ring);
    return error;
}

static int uring_open(unsigned depth, struct slab_io **ret_io) {
    int error = try_ring();
    if (error != 0)
        return error;
    struct uring_io *uring = calloc(1, sizeof(*uring));
    if (!uring)
        return -ENOMEM;
    uring->queued_end = &uring->queued;
    uring->entries = ENTRIES_MIN;
    while (uring->entries < depth + 1 && uring->entries < ENTRIES_MAX)
        uring->entries *= 2;
    uring->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (uring->wake_fd < 0) {
        error = -errno;
        free(uring);
        return error;
    }
    error = init_ring_with_best_flags(uring->entries, &uring->ring);
    while (error == -ENOMEM && uring->entries > ENTRIES_MIN) {
        uring->entries /= 2;
        error = init_ring_with_best_flags(uring->entries, &uring->ring);
    }
    if (error != 0) {
        close(uring->wake_fd);
        free(uring);
        return error;
    }
    *ret_io = &uring->io;
    return 0;
}

/* The armed read ends with the ring; nobody writes the eventfd any more, so it moves no bytes. */
static void uring_close(struct slab_io *io) {
    struct uring_io *uring = uring_of(io);
    CHECK(uring->started == 0 && !uring->queued);
    io_uring_queue_exit(&uring->ring);
    close(uring->wake_fd);
    free(uring);
}

/* starting */

static void enable(struct uring_io *uring) {
    if (uring->enabled)
        return;
    CHECK(enable_ring(&uring->ring) == 0);
    uring->enabled = true;
}

/* `started` requests and the wake read never exceed the ring, so there is always room. */
static struct io_uring_sqe *next_sqe(struct uring_io *uring) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    CHECK(sqe != NULL);
    return sqe;
}

static void arm_wake(struct uring_io *uring) {
    if (uring->wake_armed)
        return;
    struct io_uring_sqe *sqe = next_sqe(uring);
    io_uring_prep_read(sqe, uring->wake_fd, &uring->wake_count, sizeof(uring->wake_count), 0);
    io_uring_sqe_set_data(sqe, NULL);
    uring->wake_armed = true;
}

static void start(struct uring_io *uring, struct slab_request *request) {
    struct io_uring_sqe *sqe = next_sqe(uring);
    int fd = slab_fd(request->slab);
    unsigned count = slab_request_rest(request);
    uint64_t offset = request->offset + request->done_bytes;
    if (request->write)
        io_uring_prep_writev(sqe, fd, request->rest, count, offset);
    else
        io_uring_prep_readv(sqe, fd, request->rest, count, offset);
    io_uring_sqe_set_data(sqe, request);
}

static void start_queued(struct uring_io *uring) {
    arm_wake(uring);
    while (uring->queued && uring->started + 1 < uring->entries) {
        struct slab_request *request = uring->queued;
        uring->queued = request->next;
        if (!uring->queued)
            uring->queued_end = &uring->queued;
        uring->started++;
        start(uring, request);
    }
}

static void uring_submit(struct slab_io *io, struct slab_request *request) {
    struct uring_io *uring = uring_of(io);
    *uring->queued_end = request;
    uring->queued_end = &request->next;
}

/* waiting */

/* The kernel is short of something for the moment, or was interrupted: try again. Anything else can
 * only be our own misuse of the ring. */
static void check_enter(int result) {
    CHECK(result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY ||
          result == -ENOMEM || result == -ETIME);
}

/* The next request that is done, of the completions that are there. */
static struct slab_request *reap(struct uring_io *uring) {
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
        struct slab_request *request = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&uring->ring, cqe);
        if (!request) {
            uring->wake_armed = false;
        } else if (slab_request_advance(request, result)) {
            uring->started--;
            return request;
        } else {
            start(uring, request);
        }
    }
    return NULL;
}

/* Gives the kernel what is prepared and fetches completions; waits for one until the deadline. */
static void enter(struct uring_io *uring, uint64_t wait_ns) {
    if (wait_ns == 0) {
        check_enter(io_uring_submit_and_get_events(&uring->ring));
        return;
    }
    struct __kernel_timespec timeout = {.tv_sec = (int64_t)(wait_ns / 1000000000),
                                        .tv_nsec = (long long)(wait_ns % 1000000000)};
    struct io_uring_cqe *cqe;
    check_enter(io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1,
                                                 wait_ns == UINT64_MAX ? NULL : &timeout, NULL));
}

static struct slab_request *uring_wait(struct slab_io *io, uint64_t timeout_ns) {
    struct uring_io *uring = uring_of(io);
    uint64_t now_ns = timeout_ns > 0 ? clock_monotonic_ns() : 0;
    bool for_ever = timeout_ns > UINT64_MAX - now_ns;
    uint64_t deadline_ns = now_ns + timeout_ns;
    enable(uring);
    for (bool first = true;; first = false) {
        struct slab_request *request = reap(uring);
        if (request)
            return request;
        start_queued(uring);
        bool expired = !for_ever && now_ns >= deadline_ns;
        atomic_store(&uring->sleeping, !expired);
        bool ends = expired || atomic_load(&uring->woken);
        if (!ends || first)
            enter(uring, ends ? 0 : for_ever ? UINT64_MAX : deadline_ns - now_ns);
        atomic_store(&uring->sleeping, false);
        if (ends && !first) {
            if (timeout_ns > 0)
                atomic_exchange(&uring->woken, false);
            return NULL;
        }
        if (timeout_ns > 0 && !for_ever)
            now_ns = clock_monotonic_ns();
    }
}

static void uring_wake(struct slab_io *io) {
    struct uring_io *uring = uring_of(io);
    atomic_store(&uring->woken, true);
    if (atomic_load(&uring->sleeping) && atomic_exchange(&uring->sleeping, false)) {
        uint64_t one = 1;
        CHECK(write(uring->wake_fd, &one, sizeof(one)) == sizeof(one));
    }
}

const struct slab_io_engine slab_io_uring = {
    .name = "io_uring",
    .open = uring_open,
    .close = uring_close,
    .submit = uring_submit,
    .wait = uring_wait,
    .wake = uring_wake,
};
