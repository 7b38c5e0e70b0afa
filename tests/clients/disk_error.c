/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into the daemon: reads, writes and syncs of its slab files fail with EIO when a test
 * says so, through a small shared file named by $CPL3_DISK_ERROR. For both engines: the plain calls
 * fail here; in io_uring's queue the descriptor is replaced by one of /proc/self/mem, of which
 * address 0 can neither be read nor written.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* One kind of call: how many of them are to fail (UINT64_MAX: all), and how many did. */
struct failing {
    _Atomic uint64_t left;
    _Atomic uint64_t failed;
};

struct orders {
    struct failing reads, writes, syncs;
};

static struct orders idle;
static struct orders *orders = &idle;
static int bad_fd = -1;

#define NEXT(function) ((typeof(&(function)))dlsym(RTLD_NEXT, #function))

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("CPL3_DISK_ERROR");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *memory = mmap(NULL, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    bad_fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (memory != MAP_FAILED && bad_fd >= 0)
        orders = memory;
}

static bool is_slab(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path);
    return n > 5 && !memcmp(path + n - 5, ".slab", 5);
}

static bool fails(struct failing *failing, int fd) {
    uint64_t left = failing->left;
    if (left == 0 || !is_slab(fd))
        return false;
    while (left > 0 && left != UINT64_MAX)
        if (atomic_compare_exchange_weak(&failing->left, &left, left - 1))
            break;
    if (left > 0)
        failing->failed++;
    return left > 0;
}

static int eio(void) {
    errno = EIO;
    return -1;
}

ssize_t preadv(int fd, const struct iovec *pieces, int count, off_t offset) {
    return fails(&orders->reads, fd) ? eio() : NEXT(preadv)(fd, pieces, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset) {
    return fails(&orders->writes, fd) ? eio() : NEXT(pwritev)(fd, pieces, count, offset);
}

int fdatasync(int fd) {
    return fails(&orders->syncs, fd) ? eio() : NEXT(fdatasync)(fd);
}

/* What is prepared and was not given to the kernel yet. */
static void spoil(struct io_uring *ring) {
    for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++) {
        struct io_uring_sqe *sqe = &ring->sq.sqes[i & *ring->sq.kring_mask];
        bool read = sqe->opcode == IORING_OP_READV;
        if (!read && sqe->opcode != IORING_OP_WRITEV)
            continue;
        if (fails(read ? &orders->reads : &orders->writes, sqe->fd)) {
            sqe->fd = bad_fd;
            sqe->off = 0;
        }
    }
}

int io_uring_submit_and_get_events(struct io_uring *ring) {
    spoil(ring);
    return NEXT(io_uring_submit_and_get_events)(ring);
}

int io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **ret_cqe,
                                     unsigned wait_count, struct __kernel_timespec *timeout,
                                     sigset_t *mask) {
    spoil(ring);
    return NEXT(io_uring_submit_and_wait_timeout)(ring, ret_cqe, wait_count, timeout, mask);
}
