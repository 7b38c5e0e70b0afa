/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How handles come and go, and who wrote through them.
 */
#include "fs/handle.h"

#include "fs/open.h"
#include "fs/state.h"

#include <stdlib.h>

struct handle *handle_open(struct fs *fs, struct inode *inode, enum handle_kind kind) {
    struct handle *handle = calloc(1, sizeof *handle);
    if (!handle)
        return NULL;
    handle->fs = fs;
    handle->inode = inode;
    handle->kind = kind;
    atomic_init(&handle->references, 1);
    pthread_mutex_init(&handle->lock, NULL);
    STAILQ_INIT(&handle->queue);
    if (inode->kind == INODE_FILE) {
        handle->file = inode->file;
        handle->rank = inode->file->rank;
        stats_add(rank_get_stats(handle->rank), open_handles, 1);
        file_ref(handle->file);
        inode_mark_used(fs, inode);
    }
    inode_add_open(inode);
    TAILQ_INSERT_TAIL(&fs->handles, handle, all);
    handle->listed = true;
    return handle;
}

void handle_become_writer(struct handle *handle, pid_t opener) {
    struct file *file = handle->file;
    CHECK(!handle->inode->writer);
    handle->opener = opener;
    handle->inode->writer = handle;
    handle->next_staged = file->staged;
    file->staged = handle;
    atomic_store(&handle->payload_kind, file->key.kind);
    atomic_store(&handle->changed_ns, clock_real_ns());
}

void handle_ref(struct handle *handle) {
    atomic_fetch_add(&handle->references, 1);
}

void handle_unref(struct handle *handle) {
    if (atomic_fetch_sub(&handle->references, 1) > 1)
        return;
    CHECK(!handle->listed && !handle->running && STAILQ_EMPTY(&handle->queue));
    version_unref(handle->version);
    version_unref(handle->base);
    buffer_destroy(handle->buffer);
    handle->buffer = NULL;
    park_end_growing(handle->fs, handle);
    pthread_mutex_destroy(&handle->lock);
    blob_hasher_destroy(handle->hasher);
    free(handle->owners);
    free(handle->text);
    free(handle);
}

static void remove_from_staged(struct handle *handle) {
    struct handle **place = &handle->file->staged;
    while (*place != handle)
        place = &(*place)->next_staged;
    *place = handle->next_staged;
}

/* Rule P6, and what the kernel has to learn of it. */
static void end_writing(struct fs *fs, struct handle *handle) {
    struct inode *inode = handle->inode;
    struct file *file = handle->file;
    struct blob_record record;
    remove_from_staged(handle);
    inode->writer = NULL;
    if (!file->attached)
        return;
    bool published = file_get_current(file, &record);
    bool current = published && inode->sequence == record.sequence;
    if (current && !file->shared) {
        version_unref(inode_take_pin(fs, inode));
        inode_set_version(inode, &record);
        inode->private = false;
        file->shared = inode;
    }
    bool vanished = !published && !file->staged;
    if (vanished || (inode->sequence != 0 && !current))
        file_notify(fs, file);
}

void handle_close(struct handle *handle) {
    struct fs *fs = handle->fs;
    pthread_mutex_lock(&fs->lock);
    CHECK(handle->listed);
    bool was_writer = handle->file && handle->inode->writer == handle;
    if (was_writer)
        end_writing(fs, handle);
    TAILQ_REMOVE(&fs->handles, handle, all);
    handle->listed = false;
    struct file *file = handle->file;
    inode_drop_open(fs, handle->inode);
    if (file)
        file_unref(fs, file);
    if (handle->rank)
        atomic_fetch_sub(&rank_get_stats(handle->rank)->open_handles, 1);
    pthread_mutex_unlock(&fs->lock);
    if (was_writer)
        open_run_waiting(fs, clock_monotonic_ns());
    handle_unref(handle);
}

bool handle_has_owner(const struct handle *handle, uint64_t owner) {
    for (unsigned i = 0; i < handle->owner_count; i++) {
        if (handle->owners[i] == owner)
            return true;
    }
    return false;
}

/* An owner that cannot be kept only means that RELEASE publishes what its FLUSH would have. */
void handle_add_owner(struct handle *handle, uint64_t owner) {
    if (handle_has_owner(handle, owner) || handle->owner_count == HANDLE_OWNERS_MAX)
        return;
    if (handle->owner_count == handle->owner_room) {
        unsigned room = handle->owner_room ? 2 * handle->owner_room : 4;
        uint64_t *more = realloc(handle->owners, room * sizeof *more);
        if (!more)
            return;
        handle->owners = more;
        handle->owner_room = room;
    }
    handle->owners[handle->owner_count++] = owner;
}

void handle_kill(struct handle *handle, int error) {
    if (atomic_load(&handle->dead))
        return;
    atomic_store(&handle->dead_error, error);
    atomic_store(&handle->dead, true);
    stats_add(rank_get_stats(handle->rank), dead_writers, 1);
    buffer_destroy(handle->buffer);
    handle->buffer = NULL;
    park_end_growing(handle->fs, handle);
}
