/* SPDX-License-Identifier: Apache-2.0 */
/*
 * READ, WRITE, FLUSH, FSYNC, FALLOCATE. Reads are answered straight from the version's buffer,
 * which was verified as a whole before (rule P8).
 */
#include "fs/exited.h"
#include "fs/op.h"
#include "fs/ops.h"
#include "fs/staging.h"
#include "fs/state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>

enum { READ_PIECES_MAX = COMPAT_READ_BYTES_MAX / BUFFER_SEGMENT_BYTES + 2 };

/* READ */

/* One READ of a version whose bytes may have to be loaded again. */
struct reading {
    struct task task;
    fuse_req_t request;
    struct rank *rank;
    struct version *version; /* a reference */
    uint64_t offset;
    size_t count;
};

/* With a hold, which ends here. */
static void answer_from(fuse_req_t request, struct rank *rank, struct version *version,
                        uint64_t offset, size_t count) {
    struct iovec pieces[READ_PIECES_MAX];
    uint64_t size = version_payload_bytes(version);
    uint64_t left = offset < size ? size - offset : 0;
    if (count > COMPAT_READ_BYTES_MAX)
        count = COMPAT_READ_BYTES_MAX;
    if (count > left)
        count = (size_t)left;
    size_t n = count ? version_pieces(version, offset, count, pieces, READ_PIECES_MAX) : 0;
    stats_add(rank_get_stats(rank), bytes_read, count);
    if (n > 0)
        fuse_reply_iov(request, pieces, (int)n);
    else
        fuse_reply_buf(request, NULL, 0);
    if (offset + count >= size)
        version_done_reading(version);
    version_drop_bytes(version);
}

/* The bytes verified when the file was opened; if they do not now, the disk rotted meanwhile, and
 * what is left to say is that this file is not there any more: a miss, as at open (ESTALE or EIO
 * would end a client's thread). */
static void finish_reading(struct task *task) {
    struct reading *reading = (struct reading *)task;
    if (task->result == 0)
        answer_from(reading->request, reading->rank, reading->version, reading->offset,
                    reading->count);
    else
        fuse_reply_err(reading->request, ENOENT);
    version_unref(reading->version);
    free(reading);
}

static void load_and_answer(struct fs *fs, fuse_req_t request, struct rank *rank,
                            struct version *version, uint64_t offset, size_t count) {
    struct reading *reading = calloc(1, sizeof *reading);
    if (!reading)
        return (void)fuse_reply_err(request, ENOMEM);
    *reading = (struct reading){
        .task = {.fs = fs, .run = finish_reading, .direct = true},
        .request = request,
        .rank = rank,
        .version = version_ref(version),
        .offset = offset,
        .count = count,
    };
    int result = task_load(&reading->task, version);
    if (result == -EINPROGRESS)
        return;
    reading->task.result = result;
    finish_reading(&reading->task);
}

/* With a reference of its own: as soon as the answer is out, the file may be closed. */
static void read_version(struct fs *fs, fuse_req_t request, struct rank *rank,
                         struct version *version, uint64_t offset, size_t count) {
    version_ref(version);
    if (version_hold_bytes(version))
        answer_from(request, rank, version, offset, count);
    else
        load_and_answer(fs, request, rank, version, offset, count);
    version_unref(version);
}

/* The writer's own bytes; under the handle's lock, so that they stay where they are. */
static void answer_from_staged(fuse_req_t request, const struct handle *handle, uint64_t offset,
                               size_t count) {
    struct iovec pieces[READ_PIECES_MAX];
    uint64_t size = atomic_load(&handle->size_bytes);
    uint64_t left = offset < size ? size - offset : 0;
    if (count > COMPAT_READ_BYTES_MAX)
        count = COMPAT_READ_BYTES_MAX;
    if (count > left)
        count = (size_t)left;
    if (count == 0)
        return (void)fuse_reply_buf(request, NULL, 0);
    size_t n = buffer_pieces(handle->buffer, offset, count, pieces, READ_PIECES_MAX);
    return (void)fuse_reply_iov(request, pieces, (int)n);
}

static void read_staged(fuse_req_t request, struct handle *handle, uint64_t offset, size_t count) {
    struct version *base = NULL;
    pthread_mutex_lock(&handle->lock);
    if (atomic_load(&handle->dead))
        fuse_reply_err(request, EIO);
    else if (handle->base)
        base = version_ref(handle->base);
    else
        answer_from_staged(request, handle, offset, count);
    pthread_mutex_unlock(&handle->lock);
    if (!base)
        return;
    read_version(handle->fs, request, handle->rank, base, offset, count);
    version_unref(base);
}

void ops_read(fuse_req_t request, fuse_ino_t node, size_t count, off_t offset,
              struct fuse_file_info *info) {
    (void)node;
    struct handle *handle = ops_handle(info);
    switch (handle->kind) {
    case HANDLE_READ:
        return read_version(handle->fs, request, handle->rank, handle->version, (uint64_t)offset,
                            count);
    case HANDLE_WRITE:
        return read_staged(request, handle, (uint64_t)offset, count);
    case HANDLE_CONTROL:
        return control_read(request, handle, count, offset);
    }
}

/* WRITE and what publishes */

void ops_write(fuse_req_t request, fuse_ino_t node, const char *bytes, size_t count, off_t offset,
               struct fuse_file_info *info) {
    (void)node;
    struct handle *handle = ops_handle(info);
    struct buffer *segment;
    if (handle->kind == HANDLE_CONTROL)
        return control_run(request, handle, compat_payload(bytes, &segment), count);
    if (handle->kind != HANDLE_WRITE)
        return (void)fuse_reply_err(request, EBADF);
    if (count == 0)
        return (void)fuse_reply_write(request, 0);
    struct op *op = op_create(handle, OP_WRITE, request);
    if (!op)
        return (void)fuse_reply_err(request, ENOMEM);
    op->lock_owner = info->lock_owner;
    op->pid = fuse_req_ctx(request)->pid;
    if (info->flags & O_DSYNC)
        atomic_store(&handle->durable, true);
    op->append = (info->flags & O_APPEND) && !info->writepage;
    op->offset = (uint64_t)offset;
    op->bytes = compat_payload(bytes, &op->segment);
    op->count = count;
    op->killed = info->lock_owner == 0 && exited_by_signal(handle->opener);
    bool is_segment = count == BUFFER_SEGMENT_BYTES;
    if (is_segment)
        handle_ref(handle);
    op_submit(op);
    if (is_segment) {
        staging_hash_ahead(handle);
        handle_unref(handle);
    }
}

void ops_flush(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    (void)node;
    struct handle *handle = ops_handle(info);
    if (handle->kind != HANDLE_WRITE)
        return (void)fuse_reply_err(request, 0);
    struct op *op = op_create(handle, OP_FLUSH, request);
    if (!op)
        return (void)fuse_reply_err(request, ENOMEM);
    op->lock_owner = info->lock_owner;
    op->pid = fuse_req_ctx(request)->pid;
    op_submit(op);
}

void ops_fsync(fuse_req_t request, fuse_ino_t node, int data_only, struct fuse_file_info *info) {
    (void)node;
    (void)data_only;
    struct handle *handle = ops_handle(info);
    if (handle->kind == HANDLE_CONTROL)
        return (void)fuse_reply_err(request, 0);
    if (handle->kind == HANDLE_READ)
        return op_reply_when_durable(handle->fs, handle->rank, handle->version, request);
    struct op *op = op_create(handle, OP_FSYNC, request);
    if (!op)
        return (void)fuse_reply_err(request, ENOMEM);
    op_submit(op);
}

/* Space is promised when a file is published: what can be asked for before that is a size. */
void ops_fallocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t length,
                   struct fuse_file_info *info) {
    (void)node;
    struct handle *handle = ops_handle(info);
    if (handle->kind != HANDLE_WRITE || (mode & ~FALLOC_FL_KEEP_SIZE) != 0)
        return (void)fuse_reply_err(request, EOPNOTSUPP);
    struct op *op = op_create(handle, OP_RESIZE, request);
    if (!op)
        return (void)fuse_reply_err(request, ENOMEM);
    op->size_bytes = (uint64_t)offset + (uint64_t)length;
    op->only_longer = true;
    op->keep_size = mode & FALLOC_FL_KEEP_SIZE;
    op_submit(op);
}

/* Python asks every file that it opens whether it is a terminal. */
void ops_ioctl(fuse_req_t request, fuse_ino_t node, unsigned int command, void *argument,
               struct fuse_file_info *info, unsigned flags, const void *in, size_t in_bytes,
               size_t out_bytes) {
    (void)node, (void)command, (void)argument, (void)info;
    (void)flags, (void)in, (void)in_bytes, (void)out_bytes;
    return (void)fuse_reply_err(request, ENOTTY);
}
