/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into the test driver: kills the process in the middle of one of its own writes below a
 * directory. Armed in the client's process through kill_writer_arm, idle everywhere else.
 *
 * A point is a call that carries payload: half of its bytes (of the operations of a batch; of the
 * pages of a writable shared mapping) go their way, then the process gets SIGKILL. The close and
 * the rename of what was written are points as well: killed before them.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <libaio.h>
#include <liburing.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PIECES_MAX = 1024 };

void kill_writer_arm(const char *directory, long point);
long kill_writer_points(void);

static char armed_directory[4096]; /* "": idle */
static long kill_at;               /* -1: only counts */
static atomic_long points;

#define NEXT(function) ((typeof(&(function)))dlsym(RTLD_NEXT, #function))

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* The half of a mapping that may not be written was reached. */
static void on_fault(int signal) {
    (void)signal;
    die();
}

void kill_writer_arm(const char *directory, long point) {
    snprintf(armed_directory, sizeof armed_directory, "%s", directory);
    kill_at = point;
    points = 0;
    if (point >= 0)
        signal(SIGSEGV, on_fault);
}

long kill_writer_points(void) {
    return points;
}

static bool is_below(const char *path) {
    size_t n = strlen(armed_directory);
    return n > 0 && !strncmp(path, armed_directory, n) && path[n] == '/';
}

static bool is_ours(int fd) {
    char link[64], path[4096];
    if (armed_directory[0] == '\0')
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return is_below(path) && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
}

static bool is_due(void) {
    return atomic_fetch_add(&points, 1) == kill_at;
}

/* plain calls */

ssize_t write(int fd, const void *bytes, size_t count) {
    if (is_ours(fd) && is_due()) {
        NEXT(write)(fd, bytes, count / 2);
        die();
    }
    return NEXT(write)(fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    if (is_ours(fd) && is_due()) {
        NEXT(pwrite)(fd, bytes, count / 2, offset);
        die();
    }
    return NEXT(pwrite)(fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    return pwrite(fd, bytes, count, offset);
}

/* The first half of the bytes, and then the end. */
static void write_half(int fd, const struct iovec *pieces, int count, off_t offset) {
    struct iovec half[PIECES_MAX];
    size_t left = 0;
    int n = 0;
    for (int i = 0; i < count; i++)
        left += pieces[i].iov_len;
    for (left /= 2; n < count && n < PIECES_MAX && left > 0; n++) {
        half[n] = pieces[n];
        if (half[n].iov_len > left)
            half[n].iov_len = left;
        left -= half[n].iov_len;
    }
    if (offset < 0)
        NEXT(writev)(fd, half, n);
    else
        NEXT(pwritev)(fd, half, n, offset);
    die();
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    if (is_ours(fd) && is_due())
        write_half(fd, pieces, count, -1);
    return NEXT(writev)(fd, pieces, count);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset) {
    if (is_ours(fd) && is_due())
        write_half(fd, pieces, count, offset);
    return NEXT(pwritev)(fd, pieces, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t offset) {
    return pwritev(fd, pieces, count, offset);
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    if (is_ours(fd) && is_due())
        write_half(fd, pieces, count, offset);
    return NEXT(pwritev2)(fd, pieces, count, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off64_t offset, int flags) {
    return pwritev2(fd, pieces, count, offset, flags);
}

/* numpy's tofile: its write(2) is inside the C library. */
size_t fwrite(const void *bytes, size_t size, size_t count, FILE *file) {
    if (is_ours(fileno(file)) && is_due()) {
        NEXT(fwrite)(bytes, 1, size * count / 2, file);
        fflush(file);
        die();
    }
    return NEXT(fwrite)(bytes, size, count, file);
}

/* batches */

/* The first half of the operations; of the last one of these, half of its bytes. */
int io_submit(io_context_t context, long count, struct iocb **blocks) {
    if (blocks[0]->aio_lio_opcode == IO_CMD_PWRITE && is_ours(blocks[0]->aio_fildes) && is_due()) {
        long half = (count + 1) / 2;
        blocks[half - 1]->u.c.nbytes /= 2;
        NEXT(io_submit)(context, half, blocks);
        die();
    }
    return NEXT(io_submit)(context, count, blocks);
}

static struct io_uring_sqe *queued(struct io_uring *ring, unsigned i) {
    return &ring->sq.sqes[i & *ring->sq.kring_mask];
}

int io_uring_submit(struct io_uring *ring) {
    unsigned first = ring->sq.sqe_head, count = ring->sq.sqe_tail - first;
    if (count > 0 && queued(ring, first)->opcode == IORING_OP_WRITE &&
        is_ours(queued(ring, first)->fd) && is_due()) {
        unsigned half = (count + 1) / 2;
        queued(ring, first + half - 1)->len /= 2;
        ring->sq.sqe_tail = first + half;
        NEXT(io_uring_submit)(ring);
        die();
    }
    return NEXT(io_uring_submit)(ring);
}

/* Writing the second half of the mapping is a fault. */
void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    void *memory = NEXT(mmap)(address, length, protection, flags, fd, offset);
    if (memory != MAP_FAILED && fd >= 0 && (flags & MAP_SHARED) && (protection & PROT_WRITE) &&
        is_ours(fd) && is_due()) {
        size_t half = length / 2 & ~(size_t)4095;
        mprotect((char *)memory + half, length - half, PROT_NONE);
    }
    return memory;
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset) {
    return mmap(address, length, protection, flags, fd, offset);
}

/* ends */

int close(int fd) {
    if (is_ours(fd) && is_due())
        die();
    return NEXT(close)(fd);
}

int rename(const char *from, const char *to) {
    if (is_below(from) && is_due())
        die();
    return NEXT(rename)(from, to);
}
