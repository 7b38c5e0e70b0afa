/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staged bytes live in buffers of the staging share. A WRITE of a whole segment is not copied: the
 * memory that it was received into becomes the segment, and the old one takes its place.
 */
#include "fs/staging.h"

#include "fs/op.h"
#include "fs/state.h"

#include <errno.h>

uint64_t staging_max_bytes(const struct handle *handle) {
    const struct config *config = handle->fs->config;
    uint8_t kind = atomic_load(&handle->payload_kind);
    return kind == 0 ? config->max_file_bytes : config->kinds[kind - 1].payload_bytes;
}

/* memory */

/* Small files double, large ones grow by whole segments. */
static uint64_t capacity_ahead(const struct handle *handle, uint64_t need_bytes) {
    uint64_t segment = BUFFER_SEGMENT_BYTES;
    if (need_bytes >= segment)
        return (need_bytes + segment - 1) / segment * segment;
    uint64_t doubled = handle->buffer ? 2 * buffer_capacity_bytes(handle->buffer) : 0;
    if (doubled > segment)
        doubled = segment;
    return doubled > need_bytes ? doubled : need_bytes;
}

static int try_capacity(const struct op *op, uint64_t capacity_bytes) {
    struct handle *handle = op->handle;
    struct buffer_pool *pool = store_buffers(handle->fs->store);
    uint64_t have = handle->buffer ? buffer_capacity_bytes(handle->buffer) : 0;
    uint64_t more = buffer_capacity_for(capacity_bytes) - have;
    if (!park_may_grow(handle->fs, handle, more, op->pid))
        return -ENOMEM;
    int result = handle->buffer
                     ? buffer_reserve(handle->buffer, capacity_bytes)
                     : buffer_create(pool, BUFFER_STAGING, capacity_bytes, &handle->buffer);
    if (result < 0)
        park_did_not_grow(handle->fs, handle);
    return result;
}

static int try_grow(const struct op *op, uint64_t need_bytes) {
    uint64_t ahead = capacity_ahead(op->handle, need_bytes);
    int result = try_capacity(op, ahead);
    return result < 0 && ahead > need_bytes ? try_capacity(op, need_bytes) : result;
}

static int wait_for_memory(struct op *op, uint64_t need_bytes) {
    struct handle *handle = op->handle;
    struct task *task = &op->task;
    if (task->deadline_ns == 0) {
        task->deadline_ns = clock_monotonic_ns() + WAIT_MAX_SECONDS * 1000000000ull;
        stats_add(rank_get_stats(handle->rank), memory_waits, 1);
    }
    int result = op_keep_payload(op);
    if (result < 0)
        return result;
    uint64_t note = park_want_memory(handle->fs);
    if (try_grow(op, need_bytes) == 0)
        return 0;
    op->wait = WAIT_MEMORY;
    task_wait_memory(task, handle, note);
    return -EINPROGRESS;
}

static int grow(struct op *op, uint64_t need_bytes) {
    struct handle *handle = op->handle;
    bool timed_out = op->wait == WAIT_MEMORY && op->task.result == -ETIMEDOUT;
    if (op->wait == WAIT_MEMORY)
        op->wait = WAIT_NOTHING;
    if (need_bytes <= (handle->buffer ? buffer_capacity_bytes(handle->buffer) : 0))
        return 0;
    if (try_grow(op, need_bytes) == 0)
        return 0;
    if (timed_out)
        return -ENOSPC;
    return wait_for_memory(op, need_bytes);
}

/* the base */

/* A hold on the base's bytes. */
static int hold_base(struct op *op) {
    if (op->wait == WAIT_LOAD) {
        op->wait = WAIT_NOTHING;
        op->holding = op->task.result == 0;
        return op->holding ? 0 : -EIO;
    }
    int result = op_keep_payload(op);
    if (result < 0)
        return result;
    result = task_load(&op->task, op->handle->base);
    if (result == -EINPROGRESS)
        op->wait = WAIT_LOAD;
    if (result == -EINPROGRESS)
        return result;
    op->holding = result == 0;
    return op->holding ? 0 : -EIO;
}

static void copy_base(struct handle *handle, uint64_t keep_bytes) {
    for (uint64_t done = 0; done < keep_bytes;) {
        struct iovec pieces[4];
        uint64_t count =
            keep_bytes - done < BUFFER_SEGMENT_BYTES ? keep_bytes - done : BUFFER_SEGMENT_BYTES;
        size_t n = version_pieces(handle->base, done, count, pieces, 4);
        for (size_t i = 0; i < n; i++) {
            buffer_write(handle->buffer, done, pieces[i].iov_base, pieces[i].iov_len);
            done += pieces[i].iov_len;
        }
    }
}

int staging_prepare(struct op *op, uint64_t end_bytes, uint64_t keep_bytes) {
    struct handle *handle = op->handle;
    CHECK(keep_bytes <= end_bytes);
    int result = grow(op, end_bytes);
    if (result < 0 || !handle->base)
        return result;
    if (keep_bytes > 0) {
        result = hold_base(op);
        if (result < 0)
            return result;
        copy_base(handle, keep_bytes);
        version_drop_bytes(handle->base);
        op->holding = false;
    }
    version_unref(handle->base);
    handle->base = NULL;
    atomic_store(&handle->size_bytes, keep_bytes);
    return 0;
}

/* changes */

static void note_change(struct handle *handle, uint64_t from) {
    handle->flushed = false;
    if (from < handle->hashed_bytes)
        handle->hashed_bytes = 0;
    atomic_store(&handle->changed_ns, clock_real_ns());
    atomic_store(&handle->mtime_ns, 0);
}

static bool keep_segment(struct buffer *buffer, uint64_t offset, size_t count,
                         struct buffer *segment) {
    return segment && count == BUFFER_SEGMENT_BYTES && offset % BUFFER_SEGMENT_BYTES == 0 &&
           buffer_exchange_segment(buffer, offset, segment);
}

void staging_write(struct handle *handle, uint64_t offset, const void *bytes, size_t count,
                   struct buffer *segment) {
    CHECK(!handle->base);
    uint64_t size = atomic_load(&handle->size_bytes);
    if (offset > size)
        buffer_zero(handle->buffer, size, offset - size);
    if (!keep_segment(handle->buffer, offset, count, segment))
        buffer_write(handle->buffer, offset, bytes, count);
    if (offset + count > size)
        atomic_store(&handle->size_bytes, offset + count);
    note_change(handle, offset);
}

void staging_resize(struct handle *handle, uint64_t size_bytes) {
    CHECK(!handle->base);
    uint64_t size = atomic_load(&handle->size_bytes);
    if (size_bytes > size)
        buffer_zero(handle->buffer, size, size_bytes - size);
    if (size_bytes < size && handle->buffer)
        buffer_trim(handle->buffer, size_bytes);
    atomic_store(&handle->size_bytes, size_bytes);
    note_change(handle, size_bytes);
}

/* the checksum */

static void hash_until(struct handle *handle, uint64_t end) {
    if (handle->hashed_bytes == 0)
        blob_hasher_start(handle->hasher);
    while (handle->hashed_bytes < end) {
        struct iovec piece;
        uint64_t left = end - handle->hashed_bytes;
        buffer_pieces(handle->buffer, handle->hashed_bytes,
                      left < BUFFER_SEGMENT_BYTES ? left : BUFFER_SEGMENT_BYTES, &piece, 1);
        blob_hasher_update(handle->hasher, piece.iov_base, piece.iov_len);
        handle->hashed_bytes += piece.iov_len;
    }
}

void staging_hash_ahead(struct handle *handle) {
    if (pthread_mutex_trylock(&handle->lock) != 0)
        return;
    uint64_t end = handle->hashed_bytes + BUFFER_SEGMENT_BYTES;
    if (handle->buffer && !handle->base && end <= atomic_load(&handle->size_bytes)) {
        if (!handle->hasher)
            handle->hasher = blob_hasher_create();
        if (handle->hasher)
            hash_until(handle, end);
    }
    pthread_mutex_unlock(&handle->lock);
}

uint64_t staging_checksum(struct handle *handle) {
    uint64_t size = atomic_load(&handle->size_bytes);
    if (handle->hashed_bytes == 0)
        return publication_checksum(handle->buffer, size);
    hash_until(handle, size);
    uint64_t checksum = blob_hasher_finish(handle->hasher);
    handle->hashed_bytes = 0; /* a next call begins anew: its last piece may be no segment */
    return checksum;
}
