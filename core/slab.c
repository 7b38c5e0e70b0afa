/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slab files: opening, measuring, punching and syncing them, and the rules of requests that both
 * engines share. Only core/slab*.c makes system calls on slabs. Results are -errno as the kernel
 * gave them; reads beyond the end of a file deliver zeros, as holes do.
 */
#include "core/slab.h"

#include "core/check.h"
#include "core/cleanup.h"
#include "core/slab_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct slab {
    /* fixed after open */
    int fd;
    uint32_t slot_bytes;
    uint32_t slots_max;
    bool direct;
};

static int open_once(int directory_fd, const char *name, int flags) {
    int fd;
    do
        fd = openat(directory_fd, name, flags | O_CLOEXEC, 0600);
    while (fd < 0 && errno == EINTR);
    return fd >= 0 ? fd : -errno;
}

/* O_DIRECT where the file system takes it. */
static int open_direct(int directory_fd, const char *name, int flags, bool *ret_direct) {
    int fd = open_once(directory_fd, name, flags | O_DIRECT);
    *ret_direct = fd != -EINVAL;
    return fd != -EINVAL ? fd : open_once(directory_fd, name, flags);
}

/* W1: a slab's own name is durable before anything in it can be. */
static int create_file(int directory_fd, const char *name, bool *ret_direct) {
    int fd = open_direct(directory_fd, name, O_RDWR | O_CREAT, ret_direct);
    if (fd >= 0 && fsync(directory_fd) != 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

int slab_open(int directory_fd, const char *name, uint32_t slot_bytes, uint32_t slots_max,
              bool read_only, struct slab **ret_slab) {
    CHECK(slot_bytes > 0 && slot_bytes % BLOCK_BYTES == 0 && slots_max > 0);
    AUTO_FREE struct slab *slab = calloc(1, sizeof(*slab));
    if (!slab)
        return -ENOMEM;
    slab->slot_bytes = slot_bytes;
    slab->slots_max = slots_max;
    slab->fd = open_direct(directory_fd, name, read_only ? O_RDONLY : O_RDWR, &slab->direct);
    if (slab->fd == -ENOENT && !read_only)
        slab->fd = create_file(directory_fd, name, &slab->direct);
    if (slab->fd < 0)
        return slab->fd;
    *ret_slab = slab;
    slab = NULL;
    return 0;
}

void slab_close(struct slab *slab) {
    if (!slab)
        return;
    close(slab->fd);
    free(slab);
}

bool slab_is_direct(const struct slab *slab) {
    return slab->direct;
}

uint32_t slab_slot_bytes(const struct slab *slab) {
    return slab->slot_bytes;
}

int slab_fd(const struct slab *slab) {
    return slab->fd;
}

int slab_slots_in_file(const struct slab *slab, uint32_t *ret_slots) {
    struct stat status;
    if (fstat(slab->fd, &status) != 0)
        return -errno;
    uint64_t slots = ((uint64_t)status.st_size + slab->slot_bytes - 1) / slab->slot_bytes;
    *ret_slots = slots < slab->slots_max ? (uint32_t)slots : slab->slots_max;
    return 0;
}

int slab_disk_bytes(const struct slab *slab, uint64_t *ret_bytes) {
    struct stat status;
    if (fstat(slab->fd, &status) != 0)
        return -errno;
    *ret_bytes = (uint64_t)status.st_blocks * 512;
    return 0;
}

static int64_t slot_offset(const struct slab *slab, uint32_t slot) {
    CHECK(slot < slab->slots_max);
    return (int64_t)slot * slab->slot_bytes;
}

int slab_read_header(const struct slab *slab, uint32_t slot, void *block) {
    CHECK((uintptr_t)block % BLOCK_BYTES == 0);
    int64_t offset = slot_offset(slab, slot) + slab->slot_bytes - BLOCK_BYTES;
    struct iovec piece = {block, BLOCK_BYTES};
    struct slab_request request = {.slab = (struct slab *)slab,
                                   .offset = (uint64_t)offset,
                                   .pieces = &piece,
                                   .piece_count = 1};
    ssize_t transferred;
    do {
        unsigned count = slab_request_rest(&request);
        transferred =
            preadv(slab->fd, request.rest, (int)count, offset + (int64_t)request.done_bytes);
    } while (!slab_request_advance(&request, transferred < 0 ? -errno : transferred));
    return request.result;
}

static int change_blocks(const struct slab *slab, int mode, uint32_t slot, uint32_t count) {
    CHECK(count > 0 && count <= slab->slots_max - slot);
    int result;
    do
        result =
            fallocate(slab->fd, mode, slot_offset(slab, slot), (int64_t)count * slab->slot_bytes);
    while (result != 0 && errno == EINTR);
    if (result == 0)
        return 0;
    return errno == ENOSYS ? -EOPNOTSUPP : -errno;
}

int slab_allocate(struct slab *slab, uint32_t slot, uint32_t count) {
    int result = change_blocks(slab, 0, slot, count);
    if (result != 0) /* it may have got some of them */
        change_blocks(slab, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, slot, count);
    return result;
}

int slab_punch(struct slab *slab, uint32_t slot) {
    return change_blocks(slab, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, slot, 1);
}

bool slab_can_punch(int directory_fd) {
    static const char name[] = ".punch.new";
    int fd = openat(directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        fd = openat(directory_fd, name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        unlinkat(directory_fd, name, 0);
    }
    if (fd < 0)
        return true;
    int result = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK_BYTES);
    bool can = result == 0 || (errno != EOPNOTSUPP && errno != ENOSYS);
    close(fd);
    return can;
}

int slab_truncate(struct slab *slab, uint32_t slots) {
    CHECK(slots <= slab->slots_max);
    int64_t bytes = (int64_t)slots * slab->slot_bytes;
    struct stat status;
    if (fstat(slab->fd, &status) != 0)
        return -errno;
    if (status.st_size <= bytes)
        return 0;
    int result;
    do
        result = ftruncate(slab->fd, bytes);
    while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : -errno;
}

int slab_sync(struct slab *slab) {
    int result;
    do
        result = fdatasync(slab->fd);
    while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : -errno;
}

/* requests */

static uint64_t request_bytes(const struct slab_request *request) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < request->piece_count; i++)
        bytes += request->pieces[i].iov_len;
    return bytes;
}

unsigned slab_request_rest(struct slab_request *request) {
    uint64_t skip = request->done_bytes;
    unsigned count = 0;
    for (uint32_t i = 0; i < request->piece_count; i++) {
        struct iovec piece = request->pieces[i];
        uint64_t skipped = skip < piece.iov_len ? skip : piece.iov_len;
        skip -= skipped;
        if (piece.iov_len > skipped)
            request->rest[count++] = (struct iovec){
                .iov_base = (uint8_t *)piece.iov_base + skipped,
                .iov_len = piece.iov_len - skipped,
            };
    }
    CHECK(count > 0);
    return count;
}

static bool finish(struct slab_request *request, int result) {
    request->result = result;
    return true;
}

static bool finish_with_zeros(struct slab_request *request) {
    unsigned count = slab_request_rest(request);
    for (unsigned i = 0; i < count; i++)
        memset(request->rest[i].iov_base, 0, request->rest[i].iov_len);
    return finish(request, 0);
}

static bool is_at_end_of_file(const struct slab_request *request) {
    struct stat status;
    return fstat(request->slab->fd, &status) == 0 &&
           request->offset + request->done_bytes >= (uint64_t)status.st_size;
}

/* After a short transfer the next one starts at a block boundary again (O_DIRECT takes no other);
 * one that did not even move a block gets nowhere. */
bool slab_request_advance(struct slab_request *request, ssize_t transferred) {
    if (transferred == -EINTR || transferred == -EAGAIN)
        return false;
    if (transferred < 0)
        return finish(request, (int)transferred);
    uint64_t before = request->done_bytes;
    request->done_bytes += (uint64_t)transferred;
    uint64_t wanted = request_bytes(request);
    CHECK(request->done_bytes <= wanted);
    if (request->done_bytes == wanted)
        return finish(request, 0);
    if (!request->write && is_at_end_of_file(request))
        return finish_with_zeros(request);
    request->done_bytes -= request->done_bytes % BLOCK_BYTES;
    return request->done_bytes > before ? false : finish(request, -EIO);
}

/* engines */

static int open_engine(const struct slab_io_engine *engine, unsigned depth,
                       struct slab_io **ret_io) {
    struct slab_io *io;
    int error = engine->open(depth, &io);
    if (error != 0)
        return error;
    io->engine = engine;
    io->depth = depth;
    *ret_io = io;
    return 0;
}

int slab_io_open(enum slab_engine engine, unsigned depth, struct slab_io **ret_io) {
    CHECK(depth > 0);
    if (engine != SLAB_ENGINE_POSIX) {
        int error = open_engine(&slab_io_uring, depth, ret_io);
        if (error == 0 || engine == SLAB_ENGINE_URING)
            return error;
    }
    return open_engine(&slab_io_posix, depth, ret_io);
}

void slab_io_close(struct slab_io *io) {
    if (!io)
        return;
    while (io->in_flight > 0)
        slab_io_wait(io, UINT64_MAX);
    io->engine->close(io);
}

const char *slab_io_name(const struct slab_io *io) {
    return io->engine->name;
}

void slab_io_submit(struct slab_io *io, struct slab_request *request) {
    CHECK(io->in_flight < io->depth);
    CHECK(request->piece_count > 0 && request->piece_count <= SLAB_PIECES_MAX);
    CHECK(request->offset % BLOCK_BYTES == 0);
    for (uint32_t i = 0; i < request->piece_count; i++) {
        CHECK(request->pieces[i].iov_len > 0 && request->pieces[i].iov_len % BLOCK_BYTES == 0);
        CHECK((uintptr_t)request->pieces[i].iov_base % BLOCK_BYTES == 0);
    }
    request->done_bytes = 0;
    request->next = NULL;
    io->in_flight++;
    io->engine->submit(io, request);
}

unsigned slab_io_in_flight(const struct slab_io *io) {
    return io->in_flight;
}

struct slab_request *slab_io_wait(struct slab_io *io, uint64_t timeout_ns) {
    struct slab_request *request = io->engine->wait(io, timeout_ns);
    if (request) {
        CHECK(io->in_flight > 0);
        io->in_flight--;
    }
    return request;
}

void slab_io_wake(struct slab_io *io) {
    io->engine->wake(io);
}
