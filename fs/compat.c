/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Custom I/O on the FUSE device: INIT is watched on its way in and amended on its way out. What the
 * kernel offers is believed only from INIT itself. A request is read into two places: as many bytes
 * as the headers of a WRITE have, and a segment; the rest of any other request, which is short, is
 * copied behind its beginning.
 */
#include "fs/compat.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/check.h"

enum {
    WRITE_HEADER_BYTES = sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in),
    REQUEST_BYTES_MAX = WRITE_HEADER_BYTES + COMPAT_WRITE_BYTES_MAX,
    /* Kernel interfaces younger than the oldest <linux/fuse.h> we build with. */
    FLAGS2_DIRECT_IO_ALLOW_MMAP = 1 << 4, /* bit 36 of the flags; kernel 6.6 */
    NOTIFY_INC_EPOCH = 8,
    MINOR_WITH_INC_EPOCH = 44,
};

static const unsigned capabilities_on = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO |
                                        FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ATOMIC_O_TRUNC |
                                        FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO;
static const unsigned capabilities_off = FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
                                         FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE |
                                         FUSE_CAP_AUTO_INVAL_DATA;

void compat_init(void *userdata, struct fuse_conn_info *conn) {
    (void)userdata;
    /* Asking for what was not offered makes libfuse refuse the mount. */
    conn->want |= conn->capable & capabilities_on;
    conn->want &= ~capabilities_off;
    conn->max_write = COMPAT_WRITE_BYTES_MAX;
    conn->max_background = COMPAT_BACKGROUND_MAX;
}

static void note_init_request(struct compat *compat, const void *request, size_t bytes) {
    const struct fuse_in_header *header = request;
    const struct fuse_init_in *init = (const void *)(header + 1);
    if (bytes < sizeof *header + offsetof(struct fuse_init_in, flags2) ||
        header->opcode != FUSE_INIT)
        return;
    if (bytes >= sizeof *header + offsetof(struct fuse_init_in, unused) &&
        (init->flags & FUSE_INIT_EXT))
        atomic_store(&compat->mmap_offered, init->flags2 & FLAGS2_DIRECT_IO_ALLOW_MMAP);
    atomic_store(&compat->parallel_offered, init->flags & FUSE_PARALLEL_DIROPS);
    atomic_store(&compat->kernel_minor, init->minor);
    atomic_store(&compat->init_unique, header->unique);
}

/* What this thread receives, or handles: libfuse passes nothing of ours through. */
static _Thread_local struct compat_request *current;

static ssize_t receive(int fd, void *headers, size_t bytes, void *userdata) {
    struct compat *compat = fs_get_compat(userdata);
    const struct fuse_in_header *header = headers;
    struct iovec pieces[2] = {{.iov_base = headers, .iov_len = WRITE_HEADER_BYTES}};
    CHECK(current && headers == current->buffer.mem && bytes > WRITE_HEADER_BYTES);
    /* Before INIT libfuse may ask for more than there is, and later for less. */
    bytes = bytes < REQUEST_BYTES_MAX ? bytes : REQUEST_BYTES_MAX;
    buffer_pieces(current->payload, 0, bytes - WRITE_HEADER_BYTES, &pieces[1], 1);
    ssize_t received = readv(fd, pieces, 2);
    if (received <= 0)
        return received;
    if (received > WRITE_HEADER_BYTES && header->opcode != FUSE_WRITE)
        memcpy((char *)headers + WRITE_HEADER_BYTES, pieces[1].iov_base,
               (size_t)received - WRITE_HEADER_BYTES);
    if (atomic_load_explicit(&compat->kernel_minor, memory_order_relaxed) == 0)
        note_init_request(compat, headers, (size_t)received);
    return received;
}

/* Whether these pieces are the accepted INIT, whole enough to carry flags2. */
static bool is_init_reply(uint64_t init_unique, const struct iovec *pieces, int count) {
    const struct fuse_out_header *header = pieces[0].iov_base;
    return pieces[0].iov_len == sizeof *header && header->unique == init_unique &&
           header->error == 0 && count == 2;
}

static ssize_t send_init_reply(struct compat *compat, int fd, struct iovec *pieces, int count) {
    struct fuse_init_out *init = pieces[1].iov_base;
    if (compat_has_shared_mmap(compat) && pieces[1].iov_len == sizeof *init) {
        init->flags |= FUSE_INIT_EXT;
        init->flags2 |= FLAGS2_DIRECT_IO_ALLOW_MMAP;
    }
    /* Without it the kernel lets one LOOKUP at a time into a directory. */
    if (atomic_load(&compat->parallel_offered) &&
        pieces[1].iov_len >= offsetof(struct fuse_init_out, max_background))
        init->flags |= FUSE_PARALLEL_DIROPS;
    /* The kernel cuts it to fs.fuse.max_pages_limit; WRITEs keep to max_write. */
    if ((init->flags & FUSE_MAX_PAGES) &&
        pieces[1].iov_len >= offsetof(struct fuse_init_out, map_alignment))
        init->max_pages = (uint16_t)(COMPAT_READ_BYTES_MAX / sysconf(_SC_PAGESIZE));
    atomic_store(&compat->init_unique, 0);
    ssize_t sent = writev(fd, pieces, count);
    if (sent >= 0 && compat->serving)
        compat->serving(compat->serving_argument);
    return sent;
}

static ssize_t send(int fd, struct iovec *pieces, int count, void *userdata) {
    struct compat *compat = fs_get_compat(userdata);
    uint64_t init_unique = atomic_load_explicit(&compat->init_unique, memory_order_relaxed);
    if (init_unique != 0 && is_init_reply(init_unique, pieces, count))
        return send_init_reply(compat, fd, pieces, count);
    return writev(fd, pieces, count);
}

int compat_attach(struct fuse_session *session) {
    static const struct fuse_custom_io io = {.read = receive, .writev = send};
    return fuse_session_custom_io(session, &io, fuse_session_fd(session));
}

uint32_t compat_kernel_minor(const struct compat *compat) {
    return atomic_load(&compat->kernel_minor);
}

bool compat_has_shared_mmap(const struct compat *compat) {
    return atomic_load(&compat->mmap_offered);
}

bool compat_has_epoch(const struct compat *compat) {
    return compat_kernel_minor(compat) >= MINOR_WITH_INC_EPOCH;
}

int compat_increase_epoch(struct compat *compat, struct fuse_session *session) {
    if (!compat_has_epoch(compat))
        return -EOPNOTSUPP;
    struct fuse_out_header notification = {
        .len = sizeof notification,
        .error = NOTIFY_INC_EPOCH, /* a notification: unique is 0, the code stands here */
    };
    ssize_t sent = write(fuse_session_fd(session), &notification, sizeof notification);
    return sent < 0 ? -errno : 0;
}

int compat_create_request(struct buffer_pool *pool, struct compat_request *ret_request) {
    *ret_request = (struct compat_request){.buffer.mem = malloc(REQUEST_BYTES_MAX)};
    int error =
        ret_request->buffer.mem
            ? buffer_create(pool, BUFFER_REQUESTS, COMPAT_WRITE_BYTES_MAX, &ret_request->payload)
            : -ENOMEM;
    if (error)
        compat_destroy_request(ret_request);
    return error;
}

void compat_destroy_request(struct compat_request *request) {
    free(request->buffer.mem);
    buffer_destroy(request->payload);
    *request = (struct compat_request){0};
}

int compat_receive(struct fuse_session *session, struct compat_request *request) {
    current = request;
    return fuse_session_receive_buf(session, &request->buffer);
}

void compat_process(struct fuse_session *session, struct compat_request *request) {
    CHECK(current == request);
    fuse_session_process_buf(session, &request->buffer);
}

const char *compat_payload(const char *bytes, struct buffer **ret_segment) {
    struct iovec piece;
    *ret_segment = NULL;
    if (!current || bytes != (const char *)current->buffer.mem + WRITE_HEADER_BYTES)
        return bytes;
    buffer_pieces(current->payload, 0, COMPAT_WRITE_BYTES_MAX, &piece, 1);
    *ret_segment = current->payload;
    return piece.iov_base;
}
