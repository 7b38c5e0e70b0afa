/* SPDX-License-Identifier: Apache-2.0 */
/* Contents and open handles of the model: when what is staged becomes the file's version. */
#include "tests/mount/posix_model_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* contents */

struct content *content_create(const char *data, size_t data_bytes, size_t bytes) {
    struct content *content = calloc(1, sizeof *content + bytes + 1);
    content->references = 1;
    content->bytes = bytes;
    if (data_bytes > 0)
        memcpy(content->data, data, data_bytes < bytes ? data_bytes : bytes);
    return content;
}

struct content *content_ref(struct content *content) {
    content->references++;
    return content;
}

void content_unref(struct content *content) {
    if (content && --content->references == 0)
        free(content);
}

/* publishing */

static bool is_due(const struct model_handle *handle) {
    const struct model_file *file = handle->file;
    if (!handle->writer || !handle->changed || handle->dead || !file->attached)
        return false;
    return !file->is_hash || (handle->bytes > 0 && handle->written);
}

static void publish(struct model_handle *handle) {
    struct model_file *file = handle->file;
    handle->wrote = false;
    if (!is_due(handle))
        return;
    content_unref(file->current);
    file->current = content_create(handle->data, handle->bytes, handle->bytes);
    file->current_is_named = !file->is_hash;
    file->mtime_known = handle->mtime_set;
    file->mtime = handle->mtime;
    handle->mtime_set = false;
    handle->changed = false;
}

/* opening and closing */

static void load(struct model_handle *handle, const struct content *base) {
    if (!base)
        return;
    handle->data = malloc(base->bytes + 1);
    memcpy(handle->data, base->data, base->bytes);
    handle->bytes = base->bytes;
}

static struct model_handle *add_handle(struct model *model, struct model_file *file, int flags) {
    struct model_handle *handle = calloc(1, sizeof *handle);
    handle->file = file;
    handle->readable = (flags & O_ACCMODE) != O_WRONLY;
    handle->writable = (flags & O_ACCMODE) != O_RDONLY;
    handle->append = flags & O_APPEND;
    handle->writer = handle->writable || (flags & O_TRUNC);
    handle->fd_count = 1;
    file->references++;
    file->staged += handle->writer;
    model->handles[model->handle_count++] = handle;
    return handle;
}

static struct model_handle *open_file(struct model *model, struct model_file *file, int flags) {
    struct model_handle *handle = add_handle(model, file, flags);
    if (!handle->writer)
        handle->version = content_ref(file->current);
    else if (flags & O_TRUNC)
        handle->changed = true;
    else
        load(handle, file->current);
    return handle;
}

static struct model_handle *create_file(struct model *model, const char *path, int flags,
                                        mode_t mode) {
    struct model_file *file = calloc(1, sizeof *file);
    file->references = 1;
    file->attached = true;
    file->is_hash = model_may_be_hash(path);
    file->mode = mode;
    file->mode_known = true;
    model_add(model, path, file);
    /* Created for reading only, it is a bare creation all the same. */
    struct model_handle *handle = add_handle(model, file, flags | O_TRUNC);
    handle->changed = true;
    return handle;
}

int model_open(struct model *model, const char *path, int flags, mode_t mode,
               struct model_handle **ret_handle) {
    int result = model_walk(model, path);
    if (result < 0)
        return result;
    struct model_entry *entry = model_find(model, path);
    bool creates = flags & O_CREAT, writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
    *ret_handle = NULL;
    if (!entry && !creates)
        return -ENOENT;
    if (entry && creates && (flags & O_EXCL))
        return -EEXIST;
    if (entry && !entry->file)
        return creates || writes ? -EISDIR : 0;
    if (entry && !writes && !entry->file->current)
        return -ENOENT;
    *ret_handle =
        entry ? open_file(model, entry->file, flags) : create_file(model, path, flags, mode);
    return 0;
}

/* A name that nothing came of goes with its last writer. */
static void drop_unpublished(struct model *model, struct model_file *file) {
    if (!file->attached || file->current || file->staged > 0)
        return;
    for (unsigned i = 0; i < model->entry_count; i++)
        if (model->entries[i].file == file) {
            model->entries[i] = model->entries[--model->entry_count];
            file->attached = false;
            return model_file_unref(file);
        }
}

static void remove_handle(struct model *model, struct model_handle *handle) {
    struct model_file *file = handle->file;
    unsigned i = 0;
    while (model->handles[i] != handle)
        i++;
    model->handles[i] = model->handles[--model->handle_count];
    file->staged -= handle->writer;
    drop_unpublished(model, file);
    model_file_unref(file);
    content_unref(handle->version);
    free(handle->data);
    free(handle);
}

int model_close(struct model *model, struct model_handle *handle) {
    int result = handle->writer && handle->dead ? -EFBIG : 0;
    if (handle->wrote)
        publish(handle);
    if (--handle->fd_count > 0)
        return result;
    publish(handle);
    remove_handle(model, handle);
    return result;
}

/* contents of handles */

const char *model_bytes(const struct model_handle *handle, size_t *ret_bytes) {
    *ret_bytes = handle->writer ? handle->bytes : handle->version->bytes;
    return handle->writer ? handle->data : handle->version->data;
}

static void set_size(struct model_handle *handle, size_t bytes) {
    handle->data = realloc(handle->data, bytes + 1);
    if (bytes > handle->bytes)
        memset(handle->data + handle->bytes, 0, bytes - handle->bytes);
    handle->bytes = bytes;
}

int model_write(struct model *model, struct model_handle *handle, size_t offset, const void *bytes,
                size_t count) {
    if (!handle->writable)
        return -EBADF;
    if (count == 0)
        return 0; /* the kernel answers */
    if (handle->dead)
        return -EFBIG;
    if (handle->append)
        offset = handle->bytes;
    if (offset + count > model->max_file_bytes) {
        handle->dead = true;
        return -EFBIG;
    }
    if (offset + count > handle->bytes)
        set_size(handle, offset + count);
    memcpy(handle->data + offset, bytes, count);
    handle->changed = handle->written = handle->wrote = true;
    handle->mtime_set = false;
    return 0;
}

int model_resize_staged(const struct model *model, struct model_handle *handle, size_t bytes) {
    if (handle->dead)
        return -EFBIG;
    if (bytes == handle->bytes)
        return 0;
    if (bytes > model->max_file_bytes)
        return -EFBIG;
    set_size(handle, bytes);
    handle->changed = true;
    handle->mtime_set = false;
    return 0;
}

int model_resize(struct model *model, struct model_handle *handle, size_t bytes, bool only_longer) {
    if (!handle->writable)
        return only_longer ? -EBADF : -EINVAL;
    if (only_longer && bytes < handle->bytes)
        bytes = handle->bytes;
    return model_resize_staged(model, handle, bytes);
}

int model_fsync(struct model_handle *handle) {
    if (handle->writer && handle->dead)
        return -EFBIG;
    publish(handle);
    return 0;
}

void model_set_handle_mtime(struct model_handle *handle, struct timespec mtime) {
    handle->mtime_set = true;
    handle->mtime = mtime;
}

struct model_handle *model_only_writer(struct model *model, const struct model_file *file) {
    for (unsigned i = 0; i < model->handle_count; i++)
        if (model->handles[i]->file == file && model->handles[i]->writer)
            return model->handles[i];
    return NULL;
}
