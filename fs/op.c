/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of operations on a handle, and their answers. What each does is in fs/op_step.c.
 */
#include "fs/op.h"

#include "fs/attr.h"
#include "fs/op_step.h"
#include "fs/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void resume(struct task *task);

struct op *op_create(struct handle *handle, enum op_kind kind, fuse_req_t request) {
    struct op *op = calloc(1, sizeof *op);
    if (!op)
        return NULL;
    op->task.fs = handle->fs;
    op->task.run = resume;
    op->handle = handle;
    op->kind = kind;
    op->request = request;
    handle_ref(handle);
    return op;
}

static void op_free(struct op *op) {
    struct park *park = &op->handle->fs->park;
    CHECK(!op->reserved && !op->holding);
    if (op->copy)
        park_give_payload(park, op->count);
    free(op->copy);
    version_unref(op->version);
    handle_unref(op->handle);
    free(op);
}

int op_keep_payload(struct op *op) {
    struct park *park = &op->handle->fs->park;
    if (op->kind != OP_WRITE || op->copy)
        return 0;
    if (!park_take_payload(park, op->count))
        return -ENOSPC;
    op->copy = malloc(op->count);
    if (!op->copy) {
        park_give_payload(park, op->count);
        return -ENOSPC;
    }
    memcpy(op->copy, op->bytes, op->count);
    op->bytes = op->copy;
    op->segment = NULL;
    return 0;
}

/* answers */

struct commit {
    struct task task;
    fuse_req_t request;
    struct version *version; /* a reference, or NULL */
};

/* A version may have been withdrawn by a commit that was over before this one was asked for. */
static void finish_commit(struct task *task) {
    struct commit *commit = (struct commit *)task;
    fuse_req_t request = commit->request;
    int result = task->result;
    if (result == 0 && commit->version && version_is_withdrawn(commit->version))
        result = -EIO;
    version_unref(commit->version);
    free(commit);
    return (void)fuse_reply_err(request, -result);
}

void op_reply_when_durable(struct fs *fs, struct rank *rank, struct version *version,
                           fuse_req_t request) {
    struct commit *commit = calloc(1, sizeof *commit);
    if (!commit)
        return (void)fuse_reply_err(request, ENOMEM);
    commit->task = (struct task){.fs = fs, .run = finish_commit, .direct = true};
    commit->request = request;
    commit->version = version ? version_ref(version) : NULL;
    int result = task_commit(&commit->task, rank);
    if (result == -EINPROGRESS)
        return;
    commit->task.result = result;
    finish_commit(&commit->task);
}

static void reply_attributes(struct fs *fs, fuse_req_t request, uint64_t node, int result) {
    struct stat stat;
    double known_seconds = 0;
    pthread_mutex_lock(&fs->lock);
    struct inode *inode = inode_find(fs, node);
    if (result == 0)
        result = inode ? attr_get(fs, inode, &stat) : -ESTALE;
    if (result == 0)
        known_seconds = attr_known_seconds(inode);
    pthread_mutex_unlock(&fs->lock);
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
    return (void)fuse_reply_attr(request, &stat, known_seconds);
}

static void finish_make(struct op *op) {
    struct handle *handle = op->handle;
    struct fs *fs = handle->fs;
    struct fuse_entry_param entry;
    if (op->result == 0) {
        SCOPE_LOCK(&fs->lock);
        op->result = attr_make_entry(fs, handle->inode, KNOWN_SECONDS, &entry);
    }
    handle_close(handle);
    if (op->result < 0)
        return (void)fuse_reply_err(op->request, -op->result);
    if (fuse_reply_entry(op->request, &entry) < 0) {
        SCOPE_LOCK(&fs->lock);
        inode_forget(fs, inode_find(fs, entry.ino), 1);
    }
}

static void finish_release(struct op *op) {
    handle_close(op->handle);
    if (op->request)
        return (void)fuse_reply_err(op->request, 0);
}

/* Without locks. Ends in exactly one reply and the end of the operation. */
static void finish(struct op *op) {
    struct handle *handle = op->handle;
    struct fs *fs = handle->fs;
    bool durable = op->kind == OP_FSYNC || (op->kind == OP_FLUSH && op->published &&
                                            (fs->config->sync || atomic_load(&handle->durable)));
    switch (op->kind) {
    case OP_WRITE:
        if (op->result == 0)
            fuse_reply_write(op->request, op->count);
        else
            fuse_reply_err(op->request, -op->result);
        break;
    case OP_RESIZE:
        if (op->again && op->result == -ESTALE)
            op->again(op);
        else if (op->wants_attributes)
            reply_attributes(fs, op->request, op->node, op->result);
        else
            fuse_reply_err(op->request, -op->result);
        break;
    case OP_FLUSH:
    case OP_FSYNC:
        if (op->result == 0 && durable)
            op_reply_when_durable(fs, handle->rank, op->version, op->request);
        else
            fuse_reply_err(op->request, -op->result);
        break;
    case OP_RELEASE:
        finish_release(op);
        break;
    case OP_TRUNCATE:
        handle_close(handle);
        reply_attributes(fs, op->request, op->node, op->result);
        break;
    case OP_MAKE:
        finish_make(op);
        break;
    }
    op_free(op);
}

/* order */

void op_submit(struct op *op) {
    struct handle *handle = op->handle;
    pthread_mutex_lock(&handle->lock);
    if (!handle->running) {
        op->result = op_step(op);
        if (op->result == -EINPROGRESS)
            handle->running = op;
    } else {
        op->result = op_keep_payload(op);
        if (op->result == 0) {
            op->result = -EINPROGRESS;
            STAILQ_INSERT_TAIL(&handle->queue, op, next);
        } else {
            handle_kill(handle, -op->result);
        }
    }
    bool done = op->result != -EINPROGRESS;
    pthread_mutex_unlock(&handle->lock);
    if (done)
        finish(op);
}

static void resume(struct task *task) {
    struct op *op = (struct op *)task;
    struct handle *handle = op->handle;
    struct op_queue done = STAILQ_HEAD_INITIALIZER(done);
    pthread_mutex_lock(&handle->lock);
    CHECK(handle->running == op);
    while (op && (op->result = op_step(op)) != -EINPROGRESS) {
        STAILQ_INSERT_TAIL(&done, op, next);
        op = STAILQ_FIRST(&handle->queue);
        if (op)
            STAILQ_REMOVE_HEAD(&handle->queue, next);
        handle->running = op;
    }
    pthread_mutex_unlock(&handle->lock);
    while ((op = STAILQ_FIRST(&done))) {
        STAILQ_REMOVE_HEAD(&done, next);
        finish(op);
    }
}
