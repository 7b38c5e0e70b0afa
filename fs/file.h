/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The identity behind a file's name: what is published under it (core is the truth for that), who
 * is writing it, and which names are hot. A file object exists while inodes or handles refer to it;
 * it is attached while its name leads to it. Rules P5, P7, P9.
 *
 * Everything here is under fs->lock.
 */
#ifndef CPL3_FS_FILE_H
#define CPL3_FS_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "core/store.h"
#include "fs/inode.h"

struct handle;

/* Longer than the kernel takes from our ESTALE to its next LOOKUP, also while the daemon is stopped
 * or starved for some seconds: a second ESTALE would reach the client. */
#define HOT_NAME_NS UINT64_C(10000000000)

/* A name in a directory. As a hash key: the directory and the bytes of the name. */
struct place {
    uint64_t directory;
    char name[NAME_BYTES_MAX + 1];
};
static inline unsigned place_key_bytes(size_t name_bytes) {
    return (unsigned)(offsetof(struct place, name) + name_bytes);
}
/* Zero-terminated name of at most NAME_BYTES_MAX bytes. */
void place_set(struct place *place, uint64_t directory, const char *name);

struct file {
    UT_hash_handle by_place; /* of fs->files, while attached */
    struct rank *rank;
    struct place *place; /* malloc'ed, cut to its length; stays after detaching */
    bool attached;
    unsigned references; /* inodes and handles */
    uint64_t number;     /* st_ino */
    struct blob_key key; /* under which it publishes */
    /* P9: while the file itself has not published, readers of the name get this blob */
    bool has_served;
    struct blob_key served;
    uint64_t publishes;      /* by its handles, so far */
    struct inode *shared;    /* no reference */
    struct handle *staged;   /* write handles, the latest first */
    uint32_t mode, uid, gid; /* for the first publish */
};

/* What a name stands for. */
enum found_kind { FOUND_NOTHING, FOUND_FILE, FOUND_DIRECTORY };
struct found {
    enum found_kind kind;
    struct file *file;         /* NULL: not in memory. With FOUND_NOTHING: an empty one to reuse */
    bool published;            /* FOUND_FILE */
    struct blob_key key;       /* published: of what is served */
    struct blob_record record; /* published */
    struct name_entry entry;   /* FOUND_DIRECTORY */
};
void file_find(struct fs *fs, struct rank *rank, const struct place *place,
               struct found *ret_found);
/* NULL: no file object has this name. */
struct file *file_find_attached(struct fs *fs, const struct place *place);
/* The file object of what was found, made if it is not in memory. NULL: no memory. */
struct file *file_of_found(struct fs *fs, struct rank *rank, const struct place *place,
                           const struct found *found);
/* For a name that stands for nothing: a file to be written, with these attributes. */
struct file *file_create(struct fs *fs, struct rank *rank, const struct place *place,
                         struct file *reuse, uint32_t mode, uint32_t uid, uint32_t gid);

/* Frees it if nothing refers to it (yet). */
void file_discard_unused(struct fs *fs, struct file *file);

void file_ref(struct file *file);
void file_unref(struct fs *fs, struct file *file);

const struct blob_key *file_served_key(const struct file *file);
/* What readers of the name get. False: nothing. */
bool file_get_current(const struct file *file, struct blob_record *ret_record);
size_t file_name_bytes(const struct file *file);
/* Directly under its rank's root. */
bool place_may_be_hash(const struct rank *rank, const struct place *place);

/* Takes the name away from it: unlinked or replaced. Its writers are cancelled: their close
 * succeeds and nothing appears. */
void file_detach(struct fs *fs, struct file *file);
/* Detaches whatever file object stands at the place. */
void file_vacate(struct fs *fs, const struct place *place);
/* The file gets another name, with its staged handles; what stood there is detached. -ENOMEM:
 * nothing changed. */
int file_move(struct fs *fs, struct file *file, const struct place *place);
/* The file publishes under this key from now on, and that is what readers get. */
void file_set_key(struct file *file, const struct blob_key *key);
/* Readers of the name get this blob until the file publishes. */
void file_set_served(struct file *file, const struct blob_key *key);
/* Something that is not cancelled is being written below this directory. */
bool file_any_staged_in(struct fs *fs, uint64_t directory);

void file_heat(struct fs *fs, const struct file *file);
bool file_place_is_hot(struct fs *fs, const struct place *place);
void file_cool(struct fs *fs, uint64_t now_ns); /* forgets names that are hot no longer */
void file_free_hot_names(struct fs *fs);

/* The kernel is to look the name up again (W6: only queued). */
void file_notify(struct fs *fs, const struct file *file);

#endif
