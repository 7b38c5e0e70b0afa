/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WRITE, resizing, FLUSH, FSYNC and RELEASE on staged content: rules P2, P3 and P4.
 */
#include "fs/op_step.h"

#include "fs/exited.h"
#include "fs/op.h"
#include "fs/publish.h"
#include "fs/staging.h"
#include "fs/state.h"

#include <errno.h>

enum { TOO_LARGE_SILENCE_NS = 60 };

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static int refuse_too_large(struct handle *handle, uint64_t bytes) {
    struct fs *fs = handle->fs;
    stats_add(rank_get_stats(handle->rank), too_large, 1);
    uint64_t now_ns = clock_monotonic_ns();
    uint64_t next_ns = atomic_load(&fs->next_too_large_ns);
    uint64_t after_ns = now_ns + TOO_LARGE_SILENCE_NS * 1000000000ull;
    if (now_ns >= next_ns &&
        atomic_compare_exchange_strong(&fs->next_too_large_ns, &next_ns, after_ns))
        log_notice("rank %u: a file of at least %llu bytes was refused (EFBIG): at most %llu fit; "
                   "mount with a larger max_file= or payload",
                   rank_number(handle->rank), (unsigned long long)bytes,
                   (unsigned long long)staging_max_bytes(handle));
    return -EFBIG;
}

static int fail(struct handle *handle, int result) {
    if (result == -ENOSPC)
        stats_add(rank_get_stats(handle->rank), no_space, 1);
    handle_kill(handle, -result);
    return result;
}

/* content */

static void note_kernel_end(struct handle *handle, uint64_t end) {
    if (end > handle->kernel_end)
        handle->kernel_end = end;
}

/* Once for each WRITE: an append goes to the end, also where the kernel takes that to be elsewhere.
 */
static void append_at_end(struct op *op, uint64_t size) {
    struct handle *handle = op->handle;
    bool at_end = op->append && op->offset == handle->kernel_end;
    if (!op->placed)
        note_kernel_end(handle, op->offset + op->count);
    if (at_end && !op->placed)
        op->offset = size;
    op->placed = true;
}

static int step_write(struct op *op) {
    struct handle *handle = op->handle;
    uint64_t size = atomic_load(&handle->size_bytes);
    append_at_end(op, size);
    uint64_t end = op->offset + op->count;
    bool replaces_all = op->offset == 0 && op->count >= size;
    uint64_t keep = replaces_all ? 0 : size;
    if (op->killed)
        return fail(handle, -EIO);
    if (end > staging_max_bytes(handle))
        return fail(handle, refuse_too_large(handle, end));
    int result = staging_prepare(op, end > keep ? end : keep, keep);
    if (result == -EINPROGRESS)
        return result;
    if (result < 0)
        return fail(handle, result);
    staging_write(handle, op->offset, op->bytes, op->count, op->segment);
    if (op->lock_owner)
        handle_add_owner(handle, op->lock_owner);
    atomic_fetch_or(&handle->pending, op->lock_owner ? PENDING_DATA : PENDING_DATA | PENDING_MMAP);
    atomic_store(&handle->written, true);
    return 0;
}

/* A resize that fails changes nothing and kills nothing. */
static int resize(struct op *op) {
    struct handle *handle = op->handle;
    uint64_t size = atomic_load(&handle->size_bytes);
    if (op->size_bytes == size || (op->only_longer && op->size_bytes < size))
        return 0;
    if (op->size_bytes > staging_max_bytes(handle))
        return refuse_too_large(handle, op->size_bytes);
    if (op->keep_size)
        return 0;
    int result = staging_prepare(op, op->size_bytes, smaller(size, op->size_bytes));
    if (result < 0)
        return result;
    staging_resize(handle, op->size_bytes);
    atomic_fetch_or(&handle->pending, PENDING_BARE);
    return 0;
}

static int step_resize(struct op *op) {
    /* By name, on a handle whose RELEASE came first: the caller looks again. */
    int result = op->handle->released ? -ESTALE : resize(op);
    if (result == 0 && op->only_longer && !op->keep_size)
        note_kernel_end(op->handle, op->size_bytes); /* fallocate: the kernel counts on it */
    return result;
}

static int step_truncate(struct op *op) {
    if (!op->resized) {
        int result = resize(op);
        if (result < 0)
            return result;
        op->resized = true;
        atomic_store(&op->handle->written, true);
    }
    return publish_step(op);
}

/* publishing */

/* Whoever is being killed publishes nothing, nor does what is left of it later. */
static bool flush_is_of_killed(const struct op *op, bool wrote) {
    bool bare_only = atomic_load(&op->handle->pending) == PENDING_BARE;
    return (wrote || bare_only) && exited_by_signal(op->pid);
}

/* What the answer waits for: the handle may go on to another content meanwhile. */
static void remember_version(struct op *op) {
    if (op->handle->base)
        op->version = version_ref(op->handle->base);
}

static int step_flush(struct op *op) {
    struct handle *handle = op->handle;
    if (!op->decided) {
        op->decided = true;
        op->publish = handle_has_owner(handle, op->lock_owner);
        if (flush_is_of_killed(op, op->publish))
            return fail(handle, -EIO);
    }
    int result = op->publish ? publish_step(op) : 0;
    if (result == -EINPROGRESS)
        return result;
    atomic_store(&handle->flushed_ns, clock_monotonic_ns());
    if (result < 0) {
        handle_kill(handle, -result);
        return result;
    }
    remember_version(op);
    publish_note_flush(handle);
    return 0;
}

static int step_fsync(struct op *op) {
    int result = publish_step(op);
    if (result == 0)
        remember_version(op);
    else if (result != -EINPROGRESS)
        handle_kill(op->handle, -result);
    return result;
}

static int step_release(struct op *op) {
    struct handle *handle = op->handle;
    if (op->killed && (atomic_load(&handle->pending) & PENDING_MMAP))
        handle_kill(handle, EIO);
    int result = publish_step(op);
    if (result != -EINPROGRESS)
        handle->released = true;
    return result;
}

/* The handle died while the operation waited: what it waited for goes back. */
static void give_up_waiting(struct op *op) {
    if (op->wait == WAIT_LOAD && op->task.result == 0)
        version_drop_bytes(op->handle->base);
    if (op->wait == WAIT_SPACE && op->task.result == 0)
        rank_unreserve(&op->task.reservation);
    op->wait = WAIT_NOTHING;
}

int op_step(struct op *op) {
    struct handle *handle = op->handle;
    if (atomic_load(&handle->dead)) {
        give_up_waiting(op);
        if (op->kind == OP_RELEASE)
            handle->released = true;
        return -atomic_load(&handle->dead_error);
    }
    switch (op->kind) {
    case OP_WRITE:
        return step_write(op);
    case OP_RESIZE:
        return step_resize(op);
    case OP_FLUSH:
        return step_flush(op);
    case OP_FSYNC:
        return step_fsync(op);
    case OP_RELEASE:
        return step_release(op);
    case OP_TRUNCATE:
        return step_truncate(op);
    case OP_MAKE:
        return publish_step(op);
    }
    return -EINVAL;
}
