/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a mount's state, what core tells it, and the table of handlers.
 */
#include "fs/fs.h"

#include "fs/name.h"
#include "fs/op.h"
#include "fs/open.h"
#include "fs/ops.h"
#include "fs/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct fuse_lowlevel_ops fs_operations = {
    .init = compat_init,
    .lookup = ops_lookup,
    .forget = ops_forget,
    .forget_multi = ops_forget_multi,
    .getattr = ops_getattr,
    .setattr = ops_setattr,
    .statfs = ops_statfs,
    .open = ops_open,
    .create = ops_create,
    .mknod = ops_mknod,
    .release = ops_release,
    .read = ops_read,
    .write = ops_write,
    .flush = ops_flush,
    .fsync = ops_fsync,
    .fallocate = ops_fallocate,
    .ioctl = ops_ioctl,
    .readdir = ops_readdir,
    .readdirplus = ops_readdirplus,
    .fsyncdir = ops_fsyncdir,
    .mkdir = ops_mkdir,
    .rmdir = ops_rmdir,
    .unlink = ops_unlink,
    .rename = ops_rename,
    .symlink = ops_symlink,
    .link = ops_link,
};

struct compat *fs_get_compat(struct fs *fs) {
    return &fs->compat;
}

int fs_create(const struct fs_options *options, struct fs **ret_fs) {
    struct fs *fs = calloc(1, sizeof *fs);
    if (!fs)
        return -ENOMEM;
    fs->options = *options;
    fs->created_ns = (int64_t)clock_real_ns();
    pthread_mutex_init(&fs->lock, NULL);
    TAILQ_INIT(&fs->handles);
    TAILQ_INIT(&fs->waiting_opens);
    int result = park_init(&fs->park);
    if (result < 0) {
        free(fs);
        return result;
    }
    result = inode_create_fixed(fs);
    if (result < 0) {
        fs_destroy(fs);
        return result;
    }
    *ret_fs = fs;
    return 0;
}

void fs_destroy(struct fs *fs) {
    if (!fs)
        return;
    CHECK(TAILQ_EMPTY(&fs->handles) && TAILQ_EMPTY(&fs->waiting_opens));
    inode_free_all(fs);
    file_free_hot_names(fs);
    park_destroy(&fs->park);
    pthread_mutex_destroy(&fs->lock);
    free(fs);
}

/* what core tells */

/* Where a blob that is gone stood. False: its kind has no name here. */
static bool find_place(const struct fs *fs, struct rank *rank, const struct blob_key *key,
                       const struct blob_record *record, struct place *ret_place) {
    char name[NAME_BYTES_MAX + 1];
    if (key->named) {
        place_set(ret_place, record->directory, record->name);
        return true;
    }
    if (name_format_hash(fs->config, key, name) == 0)
        return false;
    place_set(ret_place, directory_root(rank_number(rank)), name);
    return true;
}

static void on_blob_gone(void *argument, struct rank *rank, const struct blob_key *key,
                         const struct blob_record *record) {
    struct fs *fs = argument;
    struct place place;
    SCOPE_LOCK(&fs->lock);
    /* Before fs_attach the kernel knows nothing. */
    if (!fs->config || !find_place(fs, rank, key, record, &place))
        return;
    inode_touch_directory(fs, place.directory);
    /* The kernel knows the name only if there is an inode, and with it a file object. */
    const struct file *file = file_find_attached(fs, &place);
    if (file)
        file_notify(fs, file);
}

static void on_rank_cleared(void *argument, struct rank *rank) {
    struct fs *fs = argument;
    (void)rank;
    SCOPE_LOCK(&fs->lock);
    notify_everything(fs->notifier);
}

struct store_events fs_events(struct fs *fs) {
    return (struct store_events){
        .blob_gone = on_blob_gone, .rank_cleared = on_rank_cleared, .argument = fs};
}

/* start and stop */

void fs_attach(struct fs *fs, struct store *store, struct notifier *notifier) {
    SCOPE_LOCK(&fs->lock);
    fs->store = store;
    fs->config = store_config(store);
    fs->notifier = notifier;
}

static int create_ranks(struct fs *fs) {
    SCOPE_LOCK(&fs->lock);
    for (unsigned n = fs->config->rank_first; n <= fs->config->rank_last; n++) {
        int result = inode_create_rank_root(fs, store_rank(fs->store, (uint16_t)n));
        if (result < 0)
            return result;
    }
    return 0;
}

int fs_start(struct fs *fs) {
    int result = create_ranks(fs);
    return result < 0 ? result : park_start(fs);
}

/* Under its lock: closed as far as we can see, so what its RELEASE would publish is published. What
 * was written through a mapping may be half of something as long as no RELEASE came. */
static bool was_closed(const struct handle *handle) {
    return handle->kind == HANDLE_WRITE && atomic_load(&handle->flushed_ns) != 0 &&
           atomic_load(&handle->pending) == PENDING_BARE;
}

static void end_handle(struct handle *handle) {
    struct op *op = was_closed(handle) ? op_create(handle, OP_RELEASE, NULL) : NULL;
    if (op)
        op_submit(op);
    else
        open_abandon(handle, false);
}

static void end_handles(struct fs *fs) {
    struct handle *handle;
    size_t count = 0;
    pthread_mutex_lock(&fs->lock);
    TAILQ_FOREACH(handle, &fs->handles, all)
    count++;
    struct handle **handles = calloc(count + 1, sizeof(*handles));
    CHECK(handles);
    count = 0;
    TAILQ_FOREACH(handle, &fs->handles, all)
    handles[count++] = handle;
    pthread_mutex_unlock(&fs->lock);
    for (size_t i = 0; i < count; i++)
        end_handle(handles[i]);
    free(handles);
}

static void end_waiting_opens(struct fs *fs) {
    struct opening *opening;
    pthread_mutex_lock(&fs->lock);
    TAILQ_FOREACH(opening, &fs->waiting_opens, entry)
    opening->until_ns = 1;
    pthread_mutex_unlock(&fs->lock);
    open_run_waiting(fs, clock_monotonic_ns());
}

void fs_stop(struct fs *fs) {
    if (!fs->store)
        return;
    end_waiting_opens(fs);
    park_settle(fs);
    end_handles(fs);
    park_settle(fs);
    park_stop(fs);
    SCOPE_LOCK(&fs->lock);
    inode_expire_pins(fs, UINT64_MAX);
    fs->notifier = NULL;
    fs->config = NULL;
    fs->store = NULL;
}
