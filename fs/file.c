/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files by place, what is published under them, and how names are taken, moved and given up. Hot
 * names are in fs/hot_name.c.
 */
#include "fs/file.h"

#include "fs/name.h"
#include "fs/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void place_set(struct place *place, uint64_t directory, const char *name) {
    size_t name_bytes = strlen(name);
    CHECK(name_bytes <= NAME_BYTES_MAX);
    place->directory = directory;
    memcpy(place->name, name, name_bytes + 1);
}

bool place_may_be_hash(const struct rank *rank, const struct place *place) {
    return place->directory == directory_root(rank_number(rank));
}

static struct place *copy_place(const struct place *place) {
    size_t bytes = place_key_bytes(strlen(place->name)) + 1;
    struct place *copy = malloc(bytes);
    if (copy)
        memcpy(copy, place, bytes);
    return copy;
}

size_t file_name_bytes(const struct file *file) {
    return strlen(file->place->name);
}

struct file *file_find_attached(struct fs *fs, const struct place *place) {
    struct file *file;
    HASH_FIND(by_place, fs->files, place, place_key_bytes(strlen(place->name)), file);
    return file;
}

static void attach(struct fs *fs, struct file *file) {
    CHECK(!file->attached);
    HASH_ADD_KEYPTR(by_place, fs->files, file->place, place_key_bytes(file_name_bytes(file)), file);
    file->attached = true;
}

static void unhash(struct fs *fs, struct file *file) {
    CHECK(file->attached);
    HASH_DELETE(by_place, fs->files, file);
    file->attached = false;
}

const struct blob_key *file_served_key(const struct file *file) {
    return file->has_served ? &file->served : &file->key;
}

bool file_get_current(const struct file *file, struct blob_record *ret_record) {
    return file->attached && rank_get_blob(file->rank, file_served_key(file), ret_record) == 0;
}

void file_ref(struct file *file) {
    file->references++;
}

void file_unref(struct fs *fs, struct file *file) {
    CHECK(file->references > 0);
    if (--file->references > 0)
        return;
    CHECK(!file->staged && !file->shared);
    if (file->attached)
        unhash(fs, file);
    free(file->place);
    free(file);
}

/* finding */

static bool find_blob(struct rank *rank, const struct blob_key *key, struct found *found) {
    if (rank_get_blob(rank, key, &found->record) < 0)
        return false;
    found->kind = FOUND_FILE;
    found->published = true;
    found->key = *key;
    return true;
}

/* What core knows of a name that no file object has. A hash is looked for as a blob first. */
static void find_in_core(struct fs *fs, struct rank *rank, const struct place *place,
                         struct found *found) {
    struct blob_key key;
    size_t name_bytes = strlen(place->name);
    if (place_may_be_hash(rank, place) &&
        name_parse_hash(fs->config, rank_number(rank), place->name, name_bytes, &key) &&
        find_blob(rank, &key, found))
        return;
    if (rank_get_name(rank, place->directory, place->name, name_bytes, &found->entry) < 0)
        return;
    if (found->entry.type == NAME_DIRECTORY)
        found->kind = FOUND_DIRECTORY;
    else
        find_blob(rank, &found->entry.blob, found);
}

void file_find(struct fs *fs, struct rank *rank, const struct place *place,
               struct found *ret_found) {
    struct file *file = file_find_attached(fs, place);
    ret_found->kind = FOUND_NOTHING;
    ret_found->file = file;
    ret_found->published = false;
    if (!file)
        return find_in_core(fs, rank, place, ret_found);
    /* Directories and names never come to stand where a file object is attached: see file_vacate.
     */
    if (!find_blob(rank, file_served_key(file), ret_found) && file->staged)
        ret_found->kind = FOUND_FILE;
}

/* making */

static struct file *create(struct fs *fs, struct rank *rank, const struct place *place,
                           const struct blob_key *key) {
    struct file *file = calloc(1, sizeof *file);
    struct place *copy = file ? copy_place(place) : NULL;
    if (!copy) {
        free(file);
        return NULL;
    }
    file->rank = rank;
    file->place = copy;
    file->key = *key;
    file->number = name_file_number(key);
    attach(fs, file);
    return file;
}

struct file *file_of_found(struct fs *fs, struct rank *rank, const struct place *place,
                           const struct found *found) {
    if (found->file)
        return found->file;
    CHECK(found->kind == FOUND_FILE && found->published);
    struct file *file = create(fs, rank, place, &found->key);
    if (!file)
        return NULL;
    file->mode = found->record.mode;
    file->uid = found->record.uid;
    file->gid = found->record.gid;
    return file;
}

struct file *file_create(struct fs *fs, struct rank *rank, const struct place *place,
                         struct file *reuse, uint32_t mode, uint32_t uid, uint32_t gid) {
    struct blob_key key;
    bool is_hash =
        place_may_be_hash(rank, place) &&
        name_parse_hash(fs->config, rank_number(rank), place->name, strlen(place->name), &key);
    if (!is_hash && reuse && reuse->key.named)
        key = reuse->key;
    else if (!is_hash)
        rank_new_blob_id(rank, &key);
    struct file *file = reuse ? reuse : create(fs, rank, place, &key);
    if (!file)
        return NULL;
    file_set_key(file, &key);
    file->mode = mode;
    file->uid = uid;
    file->gid = gid;
    return file;
}

void file_discard_unused(struct fs *fs, struct file *file) {
    if (file->references > 0)
        return;
    file_ref(file);
    file_unref(fs, file);
}

/* names change hands */

void file_detach(struct fs *fs, struct file *file) {
    for (struct handle *h = file->staged; h; h = h->next_staged)
        atomic_store(&h->cancelled, true);
    unhash(fs, file);
    file_discard_unused(fs, file);
}

void file_vacate(struct fs *fs, const struct place *place) {
    struct file *file = file_find_attached(fs, place);
    if (file)
        file_detach(fs, file);
}

int file_move(struct fs *fs, struct file *file, const struct place *place) {
    struct place *copy = copy_place(place);
    if (!copy)
        return -ENOMEM;
    file_vacate(fs, place);
    unhash(fs, file);
    free(file->place);
    file->place = copy;
    attach(fs, file);
    return 0;
}

void file_set_key(struct file *file, const struct blob_key *key) {
    file->has_served = false;
    file->key = *key;
    for (struct handle *h = file->staged; h; h = h->next_staged)
        atomic_store(&h->payload_kind, key->kind);
}

void file_set_served(struct file *file, const struct blob_key *key) {
    file->has_served = !blob_key_equal(key, &file->key);
    file->served = *key;
}

bool file_any_staged_in(struct fs *fs, uint64_t directory) {
    struct handle *handle;
    TAILQ_FOREACH(handle, &fs->handles, all) {
        if (handle->kind == HANDLE_WRITE && handle->file->attached &&
            handle->file->place->directory == directory && !atomic_load(&handle->cancelled))
            return true;
    }
    return false;
}

void file_notify(struct fs *fs, const struct file *file) {
    const struct directory *parent = inode_find_directory(fs, file->place->directory);
    if (parent)
        notify_entry(fs->notifier, parent->inode->node, file->place->name, file_name_bytes(file));
}
