/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Renaming away from a content hash: the verified bytes are put again under the key of the new
 * name, and the old key and what the target held go in the same step. It loads, and may wait for
 * memory and for space; the kernel keeps both directories locked meanwhile, but what is published
 * under the names can change, so everything is looked at again at the end.
 */
#include "fs/attr.h"
#include "fs/rename.h"
#include "fs/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS_MAX = 5 };

enum copy_wait { COPY_START, COPY_LOADING, COPY_MEMORY, COPY_SPACE };

struct copy {
    struct task task;
    fuse_req_t request;
    struct rename_request asked; /* names are owned */
    struct rank *rank;
    struct version *version; /* of the source; a reference */
    struct buffer *buffer;   /* a copy of it, complete when the version is loaded no more */
    enum copy_wait waits_for;
    bool reserved;
    uint8_t reserved_kind;
    unsigned attempts;
};

static void unreserve(struct copy *copy) {
    if (copy->reserved)
        rank_unreserve(&copy->task.reservation);
    copy->reserved = false;
}

static void finish(struct copy *copy, int result) {
    fuse_req_t request = copy->request;
    unreserve(copy);
    version_unref(copy->version);
    buffer_destroy(copy->buffer);
    free((char *)copy->asked.from_name);
    free((char *)copy->asked.to_name);
    free(copy);
    return (void)fuse_reply_err(request, -result);
}

/* the bytes */

/* The source as it is now. -EALREADY: what the names stand for has changed, and it is done. */
static int open_source(struct copy *copy) {
    struct fs *fs = copy->task.fs;
    struct rename_ends ends;
    SCOPE_LOCK(&fs->lock);
    int result = rename_now(fs, &copy->asked);
    if (result != -EAGAIN)
        return result == 0 ? -EALREADY : result;
    result = rename_find_ends(fs, &copy->asked, &ends);
    if (result < 0)
        return result;
    copy->rank = ends.rank;
    return rank_open_version(ends.rank, &ends.source.key, 0, &copy->version, NULL);
}

static int make_room(struct copy *copy) {
    struct fs *fs = copy->task.fs;
    struct buffer_pool *pool = store_buffers(fs->store);
    uint32_t bytes = version_payload_bytes(copy->version);
    if (copy->buffer || buffer_create(pool, BUFFER_STAGING, bytes, &copy->buffer) == 0)
        return 0;
    if (copy->waits_for == COPY_MEMORY && copy->task.result < 0)
        return -ENOSPC;
    if (copy->task.deadline_ns == 0)
        copy->task.deadline_ns = clock_monotonic_ns() + WAIT_MAX_SECONDS * 1000000000ull;
    uint64_t note = park_want_memory(fs);
    if (buffer_create(pool, BUFFER_STAGING, bytes, &copy->buffer) == 0)
        return 0;
    copy->waits_for = COPY_MEMORY;
    task_wait_memory(&copy->task, NULL, note);
    return -EINPROGRESS;
}

static void copy_bytes(struct copy *copy) {
    uint64_t size = version_payload_bytes(copy->version);
    for (uint64_t done = 0; done < size;) {
        struct iovec pieces[4];
        uint64_t left = size - done;
        size_t n =
            version_pieces(copy->version, done,
                           left < BUFFER_SEGMENT_BYTES ? left : BUFFER_SEGMENT_BYTES, pieces, 4);
        for (size_t i = 0; i < n; i++) {
            buffer_write(copy->buffer, done, pieces[i].iov_base, pieces[i].iov_len);
            done += pieces[i].iov_len;
        }
    }
    version_drop_bytes(copy->version);
}

/* the step */

/* The inodes that stood for the old version stand for the same bytes under the new key. */
static void move_inodes(struct file *file, uint64_t old_sequence,
                        const struct blob_record *record) {
    if (file->shared && file->shared->sequence == old_sequence)
        inode_set_version(file->shared, record);
    for (struct handle *h = file->staged; h; h = h->next_staged) {
        if (h->inode->sequence == old_sequence)
            inode_set_version(h->inode, record);
    }
}

static int publish_copy(struct fs *fs, struct copy *copy, const struct rename_ends *ends,
                        const struct blob_key *key) {
    const struct blob_record *old = &ends->source.record;
    struct publication publication = {
        .key = *key,
        .buffer = copy->buffer,
        .payload_checksum = version_payload_checksum(copy->version),
        .mode = old->mode,
        .uid = old->uid,
        .gid = old->gid,
        .mtime_ns = old->mtime_ns,
        .directory = ends->to.directory,
        .name = ends->to.name,
        .name_bytes = strlen(ends->to.name),
        .remove = {ends->source.key},
        .remove_count = 1,
    };
    struct version *version;
    struct blob_record record;
    if (ends->target.published && !blob_key_equal(&ends->target.key, key))
        publication.remove[publication.remove_count++] = ends->target.key;
    int result = rank_publish(ends->rank, &copy->task.reservation, &publication, &version, &record);
    if (result < 0)
        return result;
    copy->reserved = false;
    copy->buffer = NULL;
    version_unref(version);
    struct file *file = ends->source.file;
    if (!file) {
        file_vacate(fs, &ends->to);
    } else if (file_move(fs, file, &ends->to) == 0) {
        file_set_key(file, key);
        move_inodes(file, old->sequence, &record);
    }
    inode_touch_directory(fs, ends->from.directory);
    inode_touch_directory(fs, ends->to.directory);
    return 0;
}

/* -ESTALE: the source is another version by now. -EAGAIN: reserve for ret_kind first. */
static int complete(struct copy *copy, uint8_t *ret_kind) {
    struct fs *fs = copy->task.fs;
    struct rename_ends ends;
    struct blob_key key;
    SCOPE_LOCK(&fs->lock);
    int result = rename_find_ends(fs, &copy->asked, &ends);
    if (result < 0)
        return result;
    if (ends.source.kind != FOUND_FILE || !ends.source.published || ends.source.key.named ||
        ends.source.record.sequence != version_sequence(copy->version))
        return -ESTALE;
    rename_target_key(fs, &ends, &ends.source.key, &key);
    if (!copy->reserved || copy->reserved_kind != key.kind) {
        *ret_kind = key.kind;
        return -EAGAIN;
    }
    return publish_copy(fs, copy, &ends, &key);
}

static int reserve(struct copy *copy, uint8_t kind) {
    unreserve(copy);
    copy->reserved_kind = kind;
    copy->waits_for = COPY_SPACE; /* before: it may go on elsewhere before the call returns */
    int result = task_reserve(&copy->task, copy->rank, kind, version_payload_bytes(copy->version));
    if (result == 0)
        copy->reserved = true;
    return result;
}

static int put_again(struct copy *copy) {
    uint8_t kind;
    int result;
    while ((result = complete(copy, &kind)) == -EAGAIN) {
        result = reserve(copy, kind);
        if (result < 0)
            return result;
    }
    return result;
}

static int load(struct copy *copy) {
    int result = make_room(copy);
    if (result < 0)
        return result;
    copy->waits_for = COPY_LOADING; /* before: as for space */
    result = task_load(&copy->task, copy->version);
    if (result == 0)
        copy_bytes(copy);
    return result;
}

/* Goes on from what it waited for. */
static int advance(struct copy *copy) {
    int result = copy->waits_for == COPY_MEMORY ? 0 : copy->task.result;
    switch (copy->waits_for) {
    case COPY_START:
        result = open_source(copy);
        [[fallthrough]];
    case COPY_MEMORY:
        if (result == 0)
            result = load(copy);
        break;
    case COPY_LOADING:
        if (result == 0)
            copy_bytes(copy);
        break;
    case COPY_SPACE:
        copy->reserved = result == 0;
        break;
    }
    return result == 0 ? put_again(copy) : result;
}

static void forget_attempt(struct copy *copy) {
    unreserve(copy);
    version_unref(copy->version);
    buffer_destroy(copy->buffer);
    copy->version = NULL;
    copy->buffer = NULL;
    copy->waits_for = COPY_START;
    copy->task.result = 0;
}

static void run(struct task *task) {
    struct copy *copy = (struct copy *)task;
    int result = advance(copy);
    while (result == -ESTALE && ++copy->attempts < ATTEMPTS_MAX) {
        forget_attempt(copy);
        result = advance(copy);
    }
    if (result == -EINPROGRESS)
        return;
    if (result == -EALREADY)
        result = 0;
    /* It does not verify, or the disk does not give it: there is nothing to rename. */
    if (result == -EBADMSG || result == -EIO || result == -ETIMEDOUT)
        result = -ENOENT;
    finish(copy, result);
}

void rename_start_copy(struct fs *fs, fuse_req_t request, const struct rename_request *asked) {
    struct copy *copy = calloc(1, sizeof *copy);
    if (!copy)
        return (void)fuse_reply_err(request, ENOMEM);
    copy->task.fs = fs;
    copy->task.run = run;
    copy->request = request;
    copy->asked = *asked;
    copy->asked.from_name = strdup(asked->from_name);
    copy->asked.to_name = strdup(asked->to_name);
    if (!copy->asked.from_name || !copy->asked.to_name)
        return finish(copy, -ENOMEM);
    run(&copy->task);
}
