/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name, the key and whether it is still wanted are decided at the moment of publishing: while
 * an operation waited for space, the file may have been renamed, replaced or unlinked.
 */
#include "fs/publish.h"

#include "fs/op.h"
#include "fs/staging.h"
#include "fs/state.h"

#include <errno.h>
#include <stdlib.h>

bool publish_is_due(const struct handle *handle) {
    const struct file *file = handle->file;
    unsigned pending = atomic_load(&handle->pending);
    if (pending == 0 || atomic_load(&handle->dead) || atomic_load(&handle->cancelled) ||
        !file->attached)
        return false;
    if (file->key.named)
        return true;
    return atomic_load(&handle->size_bytes) > 0 && atomic_load(&handle->written);
}

void publish_note_flush(struct handle *handle) {
    SCOPE_LOCK(&handle->fs->lock);
    handle->flushed = true;
    handle->flushed_publishes = handle->file->publishes;
}

/* RELEASE comes late: what other handles have published since the last close is newer than what it
 * would. (What the name leads to may be older: a rename brought the file there.) */
static bool is_outdated(const struct op *op) {
    const struct handle *handle = op->handle;
    return op->kind == OP_RELEASE && handle->flushed &&
           handle->file->publishes != handle->flushed_publishes;
}

static void give_reservation_back(struct op *op) {
    if (op->reserved)
        rank_unreserve(&op->task.reservation);
    op->reserved = false;
}

/* A replaced blob keeps its attributes; a file's first one gets those that it was created with. */
static void set_attributes(const struct file *file, struct publication *publication) {
    struct blob_record own;
    bool known = rank_get_blob(file->rank, &file->key, &own) == 0;
    publication->mode = known ? own.mode : file->mode;
    publication->uid = known ? own.uid : file->uid;
    publication->gid = known ? own.gid : file->gid;
}

static void set_names(const struct file *file, bool replaces, struct publication *publication) {
    publication->key = file->key;
    if (file->key.named) {
        publication->directory = file->place->directory;
        publication->name = file->place->name;
        publication->name_bytes = file_name_bytes(file);
    }
    if (replaces && file->has_served)
        publication->remove[publication->remove_count++] = file->served;
}

/* The handle's content is that version now; the inode belongs to it until its RELEASE. */
static void settle(struct fs *fs, struct handle *handle, struct version *version,
                   const struct blob_record *record, bool replaced) {
    struct inode *inode = handle->inode;
    struct file *file = handle->file;
    handle->buffer = NULL;
    handle->base = version;
    handle->owner_count = 0;
    atomic_store(&handle->pending, 0);
    atomic_store(&handle->mtime_ns, 0);
    file->has_served = false;
    file->publishes++;
    inode_set_version(inode, record);
    if (file->shared != inode)
        file->shared = NULL;
    if (!replaced)
        inode_touch_directory(fs, file->place->directory);
    if (replaced || !inode->created)
        file_notify(fs, file);
}

/* Under both locks, with space reserved. */
static int publish_now(struct op *op, uint64_t checksum) {
    struct handle *handle = op->handle;
    struct fs *fs = handle->fs;
    struct blob_record record;
    struct version *version;
    bool replaces = file_get_current(handle->file, &record);
    uint64_t size = atomic_load(&handle->size_bytes);
    bool empty = size == 0;
    struct publication publication = {
        .buffer = empty ? NULL : handle->buffer,
        .payload_checksum = checksum,
        .mtime_ns = atomic_load(&handle->mtime_ns),
    };
    set_names(handle->file, replaces, &publication);
    set_attributes(handle->file, &publication);
    int result = rank_publish(handle->rank, &op->task.reservation, &publication, &version, &record);
    if (result < 0)
        return result;
    op->reserved = false;
    op->published = true;
    park_note_published(fs, size);
    if (empty)
        buffer_destroy(handle->buffer);
    settle(fs, handle, version, &record, replaces);
    return 0;
}

/* 0, -EINPROGRESS or -errno. */
static int reserve(struct op *op, uint8_t kind) {
    struct handle *handle = op->handle;
    give_reservation_back(op);
    int result = task_reserve(&op->task, handle->rank, kind, atomic_load(&handle->size_bytes));
    op->reserved_kind = kind;
    op->reserved = result == 0;
    if (result == -EINPROGRESS)
        op->wait = WAIT_SPACE;
    return result;
}

int publish_step(struct op *op) {
    struct handle *handle = op->handle;
    struct fs *fs = handle->fs;
    int result = 0;
    if (op->wait == WAIT_SPACE) {
        op->wait = WAIT_NOTHING;
        result = op->task.result;
        op->reserved = result == 0;
    }
    if (handle->buffer)
        buffer_trim(handle->buffer, atomic_load(&handle->size_bytes));
    uint64_t checksum = 0;
    bool hashed = false;
    while (result == 0) {
        if (op->reserved && !hashed) {
            checksum = staging_checksum(handle);
            hashed = true;
        }
        pthread_mutex_lock(&fs->lock);
        bool due = publish_is_due(handle) && !is_outdated(op);
        uint8_t kind = handle->file->key.kind;
        bool ready = due && op->reserved && op->reserved_kind == kind;
        if (ready)
            result = publish_now(op, checksum);
        pthread_mutex_unlock(&fs->lock);
        if (!due || ready)
            break;
        result = reserve(op, kind);
    }
    if (result != -EINPROGRESS) {
        give_reservation_back(op);
        handle->owner_count = 0;
        park_end_growing(fs, handle);
    }
    return result;
}
