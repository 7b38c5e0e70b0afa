/* SPDX-License-Identifier: Apache-2.0 */
/* Names and attributes of the model; contents and handles are in posix_model_handles.c. */
#include "tests/mount/posix_model_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* files */

void model_file_unref(struct model_file *file) {
    if (--file->references > 0)
        return;
    content_unref(file->current);
    free(file);
}

static void detach(struct model *model, struct model_entry *entry) {
    struct model_file *file = entry->file;
    *entry = model->entries[--model->entry_count];
    if (!file)
        return;
    file->attached = false;
    model_file_unref(file);
}

struct model_entry *model_find(struct model *model, const char *path) {
    for (unsigned i = 0; i < model->entry_count; i++)
        if (!strcmp(model->entries[i].path, path))
            return &model->entries[i];
    return NULL;
}

static bool is_below(const char *path, const char *directory) {
    size_t n = strlen(directory);
    return !strncmp(path, directory, n) && path[n] == '/';
}

int model_walk(struct model *model, const char *path) {
    char part[MODEL_PATH_MAX];
    for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        const struct model_entry *entry = model_find(model, part);
        if (!entry)
            return -ENOENT;
        if (entry->file)
            return -ENOTDIR;
    }
    return 0;
}

bool model_is_listed(const struct model_entry *entry, const char *directory) {
    size_t n = strlen(directory);
    if (entry->file && !entry->file->current)
        return false;
    if (n == 0)
        return !strchr(entry->path, '/');
    return is_below(entry->path, directory) && !strchr(entry->path + n + 1, '/');
}

/* Directly in the rank's directory, 16 to 64 hex digits are a content hash. */
bool model_may_be_hash(const char *path) {
    size_t n = strlen(path);
    return n >= 16 && n <= 64 && n % 2 == 0 && strspn(path, "0123456789abcdef") == n;
}

struct model_entry *model_add(struct model *model, const char *path, struct model_file *file) {
    struct model_entry *entry = &model->entries[model->entry_count++];
    snprintf(entry->path, sizeof entry->path, "%s", path);
    entry->file = file;
    return entry;
}

/* making and removing */

int model_unlink(struct model *model, const char *path) {
    int result = model_walk(model, path);
    struct model_entry *entry = model_find(model, path);
    if (result < 0)
        return result;
    if (!entry)
        return -ENOENT;
    if (!entry->file)
        return -EISDIR;
    detach(model, entry);
    return 0;
}

int model_mkdir(struct model *model, const char *path) {
    int result = model_walk(model, path);
    if (result < 0)
        return result;
    if (model_find(model, path))
        return -EEXIST;
    model_add(model, path, NULL);
    return 0;
}

/* Also what is only staged keeps a directory. */
static bool is_empty(const struct model *model, const char *directory) {
    for (unsigned i = 0; i < model->entry_count; i++)
        if (is_below(model->entries[i].path, directory))
            return false;
    return true;
}

int model_rmdir(struct model *model, const char *path) {
    int result = model_walk(model, path);
    struct model_entry *entry = model_find(model, path);
    if (result < 0)
        return result;
    if (!entry)
        return -ENOENT;
    if (entry->file)
        return -ENOTDIR;
    if (!is_empty(model, path))
        return -ENOTEMPTY;
    detach(model, entry);
    return 0;
}

/* rename */

static void move_directory(struct model *model, const char *from, const char *to) {
    char old[MODEL_PATH_MAX], moved[2 * MODEL_PATH_MAX];
    snprintf(old, sizeof old, "%s", from);
    for (unsigned i = 0; i < model->entry_count; i++) {
        char *path = model->entries[i].path;
        if (strcmp(path, old) != 0 && !is_below(path, old))
            continue;
        snprintf(moved, sizeof moved, "%s%s", to, path + strlen(old));
        snprintf(path, MODEL_PATH_MAX, "%.*s", MODEL_PATH_MAX - 1, moved);
    }
}

/* Which kind of key it has under the new name, and whose version is served there (P9). */
static void move_file(struct model_file *file, const struct model_file *target, const char *to) {
    bool target_in_names = target && target->current && target->current_is_named;
    bool becomes_hash = model_may_be_hash(to) && !target_in_names;
    if (file->current) {
        file->is_hash = file->current_is_named ? false : becomes_hash;
        file->current_is_named = !file->is_hash;
        return;
    }
    file->is_hash = becomes_hash;
    if (!target || !target->current)
        return;
    file->current = content_ref(target->current);
    file->current_is_named = target->current_is_named;
    file->mode_known = false;
    file->mtime_known = false;
}

/* What the kernel decides of the two ends, in its order. */
static int check_rename(struct model *model, const char *from, const char *to, bool replace) {
    int result = model_walk(model, from);
    if (result == 0)
        result = model_walk(model, to);
    if (result < 0)
        return result;
    const struct model_entry *source = model_find(model, from), *target = model_find(model, to);
    if (!source)
        return -ENOENT;
    if (!replace && target)
        return -EEXIST;
    if (is_below(to, from))
        return -EINVAL;
    if (is_below(from, to))
        return -ENOTEMPTY;
    if (!target || target == source)
        return 0;
    if (!source->file && target->file)
        return -ENOTDIR;
    if (source->file && !target->file)
        return -EISDIR;
    return !target->file && !is_empty(model, to) ? -ENOTEMPTY : 0;
}

int model_rename(struct model *model, const char *from, const char *to, bool replace) {
    int result = check_rename(model, from, to, replace);
    if (result < 0 || !strcmp(from, to))
        return result;
    struct model_entry *target = model_find(model, to);
    const struct model_entry *source = model_find(model, from);
    if (source->file)
        move_file(source->file, target ? target->file : NULL, to);
    if (target)
        detach(model, target);
    move_directory(model, from, to);
    return 0;
}

/* attributes by name */

int model_truncate(struct model *model, const char *path, size_t bytes) {
    int result = model_walk(model, path);
    struct model_entry *entry = model_find(model, path);
    if (result < 0)
        return result;
    if (!entry)
        return -ENOENT;
    struct model_file *file = entry->file;
    if (!file)
        return -EISDIR;
    if (!file->current)
        return model_resize_staged(model, model_only_writer(model, file), bytes);
    if ((bytes == 0 && !file->current_is_named) || bytes == file->current->bytes)
        return 0;
    if (bytes > model->max_file_bytes)
        return -EFBIG;
    struct content *longer = content_create(file->current->data, file->current->bytes, bytes);
    content_unref(file->current);
    file->current = longer;
    file->mtime_known = false;
    return 0;
}

int model_chmod(struct model *model, const char *path, mode_t mode) {
    int result = model_walk(model, path);
    struct model_entry *entry = model_find(model, path);
    if (result < 0)
        return result;
    if (!entry)
        return -ENOENT;
    if (entry->file)
        entry->file->mode = mode;
    return 0;
}

int model_set_mtime(struct model *model, const char *path, struct timespec mtime) {
    int result = model_walk(model, path);
    struct model_entry *entry = model_find(model, path);
    if (result < 0)
        return result;
    if (!entry)
        return -ENOENT;
    struct model_file *file = entry->file;
    if (!file)
        return 0;
    /* Whether it is also for what is staged depends on which inode the kernel has for the name. */
    file->mtime_known = file->staged == 0;
    file->mtime = mtime;
    for (unsigned i = 0; i < model->handle_count; i++)
        if (model->handles[i]->file == file)
            model->handles[i]->mtime_set = false;
    return 0;
}

void model_destroy(struct model *model) {
    while (model->handle_count > 0)
        model_close(model, model->handles[0]);
    while (model->entry_count > 0)
        detach(model, &model->entries[0]);
}
