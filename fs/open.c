/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decisions of rule P7. ESTALE makes the kernel look the name up once more and try again; since
 * the name is hot by then, that LOOKUP gets a private inode, and a private inode is never answered
 * ESTALE.
 */
#include "fs/open.h"

#include "fs/attr.h"
#include "fs/publish.h"
#include "fs/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

/* held back (P3) */

/* When a RELEASE that will publish has to have come; 0: none is expected. */
static uint64_t release_expected_until(const struct file *file, uint64_t now_ns) {
    uint64_t latest_ns = 0;
    for (const struct handle *h = file->staged; h; h = h->next_staged) {
        uint64_t flushed_ns = atomic_load(&h->flushed_ns);
        unsigned pending = atomic_load(&h->pending);
        uint64_t until_ns = flushed_ns + OPEN_HELD_BACK_NS;
        if (flushed_ns != 0 && until_ns > now_ns && until_ns > latest_ns &&
            (pending & (PENDING_MMAP | PENDING_BARE)) && publish_is_due(h))
            latest_ns = until_ns;
    }
    return latest_ns;
}

/* True: wait, not longer than opening->until_ns. */
static bool must_wait(struct opening *opening) {
    const struct file *file = opening->inode->file;
    uint64_t now_ns = clock_monotonic_ns();
    uint64_t until_ns = file->attached ? release_expected_until(file, now_ns) : 0;
    if (opening->until_ns == 0)
        opening->until_ns = until_ns;
    return until_ns != 0 && now_ns < opening->until_ns;
}

/* reading */

static int answer_stale(struct fs *fs, const struct inode *inode) {
    file_heat(fs, inode->file);
    return -ESTALE;
}

/* An inode of one LOOKUP: what that saw, or what has been published since. */
static int choose_private(struct fs *fs, struct opening *opening, struct version **ret_version) {
    struct inode *inode = opening->inode;
    if (must_wait(opening))
        return -EAGAIN;
    inode_adopt_newest(fs, inode);
    if (!inode->pinned)
        return -ENOENT;
    *ret_version = version_ref(inode->pinned);
    return 0;
}

static int choose_shared(struct fs *fs, struct opening *opening, struct version **ret_version) {
    struct inode *inode = opening->inode;
    struct file *file = inode->file;
    struct blob_record record;
    if (must_wait(opening))
        return -EAGAIN;
    bool published = file_get_current(file, &record);
    if (!published && file->attached && file->staged)
        return -ENOENT;
    if (!published || inode->writer || record.sequence != inode->sequence)
        return answer_stale(fs, inode);
    if (rank_open_version(file->rank, file_served_key(file), inode->sequence, ret_version, NULL) <
        0)
        return answer_stale(fs, inode);
    return 0;
}

/* 0, -EAGAIN: wait, -ENOENT, -ESTALE. */
static int choose_version(struct fs *fs, struct opening *opening, struct version **ret_version) {
    struct inode *inode = opening->inode;
    if (inode->private && !inode->used)
        return choose_private(fs, opening, ret_version);
    if (inode->private && !inode->writer && inode->pinned) {
        *ret_version = version_ref(inode->pinned);
        return 0;
    }
    return choose_shared(fs, opening, ret_version);
}

static int decide_read(struct fs *fs, struct opening *opening) {
    struct version *version;
    int result = choose_version(fs, opening, &version);
    if (result < 0)
        return result;
    opening->handle = handle_open(fs, opening->inode, HANDLE_READ);
    if (!opening->handle) {
        version_unref(version);
        return -ENOMEM;
    }
    opening->handle->version = version;
    opening->loading = version;
    return 0;
}

/* writing */

static int decide_write(struct fs *fs, struct opening *opening) {
    struct inode *inode = opening->inode;
    if (!inode->private || inode->used)
        return answer_stale(fs, inode);
    /* What it starts from has to be what was closed before (P3). */
    if (!(opening->info.flags & O_TRUNC) && must_wait(opening))
        return -EAGAIN;
    inode_adopt_newest(fs, inode);
    struct version *base = inode_take_pin(fs, inode);
    struct handle *handle = handle_open(fs, inode, HANDLE_WRITE);
    if (!handle) {
        version_unref(base);
        return -ENOMEM;
    }
    handle_become_writer(handle, opening->opener);
    if (opening->info.flags & O_TRUNC) {
        version_unref(base);
        base = NULL;
        atomic_store(&handle->pending, PENDING_BARE);
    }
    if (base)
        atomic_store(&handle->size_bytes, version_payload_bytes(base));
    if (!(opening->info.flags & O_TRUNC))
        handle->kernel_end = opening->create ? atomic_load(&handle->size_bytes) : inode->told_bytes;
    handle->base = base;
    opening->handle = handle;
    /* Without O_TRUNC, O_RDWR is also a get (P6). */
    if ((opening->info.flags & O_ACCMODE) == O_RDWR)
        opening->loading = base;
    return 0;
}

/* the answer */

void open_abandon(struct handle *handle, bool entry_counted) {
    struct fs *fs = handle->fs;
    atomic_store(&handle->dead_error, EIO);
    atomic_store(&handle->dead, true);
    if (entry_counted) {
        SCOPE_LOCK(&fs->lock);
        inode_forget(fs, handle->inode, 1);
    }
    handle_close(handle);
}

/*
 * FOPEN_DIRECT_IO: no pages in the kernel, and one READ after another. A file that the client
 * opened O_DIRECT has no pages without it as well, and then the kernel sends the READs of one
 * read(2) all at once; but it cuts them at the size that it knows.
 */
static bool wants_direct_io(const struct handle *handle, int flags) {
    return !(handle->kind == HANDLE_READ && handle->inode->found && (flags & O_DIRECT));
}

static void answer_opened(struct opening *opening) {
    struct handle *handle = opening->handle;
    struct fs *fs = handle->fs;
    struct fuse_entry_param entry;
    opening->info.fh = (uint64_t)(uintptr_t)handle;
    opening->info.direct_io = wants_direct_io(handle, opening->info.flags);
    opening->info.noflush = handle->kind == HANDLE_READ;
    if (!opening->create) {
        if (fuse_reply_open(opening->request, &opening->info) < 0)
            open_abandon(handle, false);
        return;
    }
    pthread_mutex_lock(&fs->lock);
    int result = attr_make_entry(fs, handle->inode, attr_known_seconds(handle->inode), &entry);
    pthread_mutex_unlock(&fs->lock);
    if (result < 0) {
        open_abandon(handle, false);
        return (void)fuse_reply_err(opening->request, -result);
    }
    if (fuse_reply_create(opening->request, &entry, &opening->info) < 0)
        open_abandon(handle, true);
}

/* What was to be opened does not verify or cannot be read: a miss. */
static int error_of_load(struct fs *fs, struct opening *opening, int result) {
    SCOPE_LOCK(&fs->lock);
    stats_add(rank_get_stats(opening->handle->rank), misses, 1);
    if (result == -EBADMSG && !opening->inode->private)
        return answer_stale(fs, opening->inode);
    return -ENOENT;
}

static void finish(struct opening *opening) {
    struct handle *handle = opening->handle;
    struct fs *fs = opening->task.fs;
    int result = opening->result;
    if (result == 0 && opening->loading) {
        stats_add(rank_get_stats(handle->rank), hits, 1);
        rank_touch(handle->rank, version_key(opening->loading), 0);
        version_drop_bytes(opening->loading);
    }
    if (result < 0 && handle) {
        result = error_of_load(fs, opening, result);
        open_abandon(handle, false);
    }
    if (result == 0)
        answer_opened(opening);
    else
        fuse_reply_err(opening->request, -result);
    free(opening);
}

static void finish_load(struct task *task) {
    struct opening *opening = (struct opening *)task;
    opening->result = task->result;
    finish(opening);
}

void open_proceed(struct opening *opening) {
    if (opening->go_on)
        return opening->go_on(opening);
    int result = opening->result;
    if (result == 0 && opening->loading)
        result = task_load(&opening->task, opening->loading);
    if (result == -EINPROGRESS)
        return; /* it may have been answered and freed by now */
    opening->result = result;
    finish(opening);
}

struct opening *open_create(struct fs *fs, fuse_req_t request, struct inode *inode,
                            const struct fuse_file_info *info, pid_t opener) {
    struct opening *opening = calloc(1, sizeof *opening);
    if (!opening)
        return NULL;
    opening->task.fs = fs;
    opening->task.run = finish_load;
    opening->task.direct = true;
    opening->request = request;
    opening->inode = inode;
    opening->info = *info;
    opening->opener = opener;
    return opening;
}

static int decide_truncation(struct opening *opening) {
    return must_wait(opening) ? -EAGAIN : 0;
}

static int decide_open(struct fs *fs, struct opening *opening) {
    bool writes = (opening->info.flags & O_ACCMODE) != O_RDONLY || (opening->info.flags & O_TRUNC);
    return writes ? decide_write(fs, opening) : decide_read(fs, opening);
}

/* False: it is held back. */
static bool decide(struct fs *fs, struct opening *opening) {
    opening->result = opening->go_on ? decide_truncation(opening) : decide_open(fs, opening);
    if (opening->result == -ENOENT)
        stats_add(rank_get_stats(opening->inode->file->rank), misses, 1);
    if (opening->result != -EAGAIN)
        return true;
    TAILQ_INSERT_TAIL(&fs->waiting_opens, opening, entry);
    return false;
}

bool open_decide(struct fs *fs, struct opening *opening) {
    bool decided = decide(fs, opening);
    if (!decided)
        park_poke(&fs->park);
    return decided;
}

uint64_t open_run_waiting(struct fs *fs, uint64_t now_ns) {
    struct open_list waiting = TAILQ_HEAD_INITIALIZER(waiting);
    struct open_list ready = TAILQ_HEAD_INITIALIZER(ready);
    struct opening *opening;
    uint64_t next_ns = UINT64_MAX;
    pthread_mutex_lock(&fs->lock);
    TAILQ_CONCAT(&waiting, &fs->waiting_opens, entry);
    while ((opening = TAILQ_FIRST(&waiting))) {
        TAILQ_REMOVE(&waiting, opening, entry);
        if (decide(fs, opening))
            TAILQ_INSERT_TAIL(&ready, opening, entry);
        else if (opening->until_ns < next_ns)
            next_ns = opening->until_ns;
    }
    pthread_mutex_unlock(&fs->lock);
    while ((opening = TAILQ_FIRST(&ready))) {
        TAILQ_REMOVE(&ready, opening, entry);
        open_proceed(opening);
    }
    return next_ns < now_ns ? now_ns : next_ns;
}
