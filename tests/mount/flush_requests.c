/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that write by other means than write(2): io_uring, AIO, splice, sendfile. */
#include "tests/mount/flush_sequences.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

/* io_uring */

static void uring_write_block(struct io_uring *ring, int fd, unsigned sqe_flags) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    io_uring_prep_write(sqe, fd, sequence_bytes(), BLOCK, 0);
    sqe->flags |= sqe_flags;
    io_uring_submit(ring);
    struct io_uring_cqe *cqe;
    sequence_require(io_uring_wait_cqe(ring, &cqe) == 0 && cqe->res == BLOCK, "io_uring write");
    io_uring_cqe_seen(ring, cqe);
}

static void open_ring(struct io_uring *ring, unsigned flags) {
    int result = io_uring_queue_init(8, ring, flags);
    errno = -result;
    sequence_require(result == 0, "io_uring_queue_init");
}

static void write_by_ring(const char *path, unsigned ring_flags, unsigned sqe_flags) {
    struct io_uring ring;
    int fd = sequence_create(path, O_WRONLY);
    open_ring(&ring, ring_flags);
    uring_write_block(&ring, fd, sqe_flags);
    io_uring_queue_exit(&ring);
    close(fd);
}

static void uring_write(const char *path) {
    write_by_ring(path, 0, 0);
}

static void uring_async(const char *path) {
    write_by_ring(path, 0, IOSQE_ASYNC);
}

static void uring_sqpoll(const char *path) {
    write_by_ring(path, IORING_SETUP_SQPOLL, 0);
}

/* The ring holds the file; no descriptor is left to close, so only RELEASE can publish. */
static void write_by_registered_file(const char *path, struct io_uring *ring) {
    int fd = sequence_create(path, O_WRONLY);
    open_ring(ring, 0);
    sequence_require(io_uring_register_files(ring, &fd, 1) == 0, "io_uring_register_files");
    close(fd);
    uring_write_block(ring, 0, IOSQE_FIXED_FILE);
}

static void uring_registered_file(const char *path) {
    struct io_uring ring;
    write_by_registered_file(path, &ring);
    io_uring_queue_exit(&ring);
}

static void uring_registered_file_killed(const char *path) {
    struct io_uring ring;
    write_by_registered_file(path, &ring);
    kill(getpid(), SIGKILL);
}

/* the others */

static void write_by_aio(const char *path, int flags) {
    int fd = sequence_create(path, O_WRONLY | flags);
    aio_context_t context = 0;
    struct iocb block = {.aio_lio_opcode = IOCB_CMD_PWRITE,
                         .aio_fildes = (uint32_t)fd,
                         .aio_buf = (uint64_t)(uintptr_t)sequence_bytes(),
                         .aio_nbytes = BLOCK};
    struct iocb *blocks[] = {&block};
    struct io_event event;
    sequence_require(syscall(SYS_io_setup, 4, &context) == 0, "io_setup");
    sequence_require(syscall(SYS_io_submit, context, 1, blocks) == 1, "io_submit");
    sequence_require(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1, "io_getevents");
    sequence_require(event.res == BLOCK, "aio write");
    close(fd);
}

static void aio_write(const char *path) {
    write_by_aio(path, 0);
}

static void aio_write_direct(const char *path) {
    write_by_aio(path, O_DIRECT);
}

static void splice_from_pipe(const char *path) {
    int pipes[2];
    int fd = sequence_create(path, O_WRONLY);
    sequence_require(pipe(pipes) == 0, "pipe");
    sequence_write(pipes[1], 2);
    for (ssize_t left = 2 * BLOCK, n; left > 0; left -= n) {
        n = splice(pipes[0], NULL, fd, NULL, (size_t)left, 0);
        sequence_require(n > 0, "splice");
    }
    close(fd);
}

static void sendfile_from_file(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    int from = memfd_create("from", MFD_CLOEXEC);
    off_t start = 0;
    sequence_write(from, 2);
    sequence_require(sendfile(fd, from, &start, 2 * BLOCK) == 2 * BLOCK, "sendfile");
    close(fd);
}

/* It is refused (EXDEV): what is left is a bare creation. */
static void copy_file_range_from_file(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    int from = open("/proc/self/exe", O_RDONLY);
    sequence_require(copy_file_range(from, NULL, fd, NULL, 2 * BLOCK, 0) < 0, "copy_file_range");
    close(fd);
}

const struct sequence sequences_requests[] = {
    {"uring_write", uring_write, 0, 4096, 4096, 0},
    {"uring_async", uring_async, 0, 4096, 4096, 0},
    {"uring_sqpoll", uring_sqpoll, 0, 4096, 4096, 0},
    {"uring_registered_file", uring_registered_file, 0, 4096, 4096, 0},
    {"uring_registered_file_killed", uring_registered_file_killed, -SIGKILL, 4096, 4096, true},
    {"aio_write", aio_write, 0, 4096, 4096, 0},
    {"aio_write_direct", aio_write_direct, 0, 4096, 4096, 0},
    {"splice_from_pipe", splice_from_pipe, 0, 8192, 8192, 0},
    {"sendfile_from_file", sendfile_from_file, 0, 8192, 8192, 0},
    {"copy_file_range_from_file", copy_file_range_from_file, 0, 0, 0, 0},
    {0},
};
