/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the mount has to do, in memory: names, versions, staged handles and the rules P1–P10, for
 * one process with one thread, in which nothing is evicted. test_posix_random.c does each call to
 * the mount and to this, and compares.
 *
 * Every function answers 0 or the -errno that the system call has to give. Paths are relative to
 * the rank's directory, without dots and doubled slashes.
 */
#ifndef CPL3_TESTS_MOUNT_POSIX_MODEL_H
#define CPL3_TESTS_MOUNT_POSIX_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

enum {
    MODEL_PATH_MAX = 256,
    MODEL_ENTRIES_MAX = 512,
    MODEL_HANDLES_MAX = 24,
    MODEL_FDS_MAX = 3, /* of one handle: by open and dup */
};

/* One published content. */
struct content {
    unsigned references;
    size_t bytes;
    char data[];
};

struct model_file {
    unsigned references;     /* its name and its handles */
    bool attached;           /* has its name */
    bool is_hash;            /* what is published next is a content hash: never empty, never bare */
    bool current_is_named;   /* what is published is not one */
    struct content *current; /* what readers get; NULL: never published */
    unsigned staged;         /* handles that write it */
    bool mode_known;         /* false where another file's version is served under this name */
    mode_t mode;
    bool mtime_known; /* set explicitly, and not changed since */
    struct timespec mtime;
};

struct model_entry {
    char path[MODEL_PATH_MAX];
    struct model_file *file; /* NULL: a directory */
};

/* Of one open(2); the descriptors are the driver's. */
struct model_handle {
    struct model_file *file;
    bool writer, readable, writable, append;
    struct content *version; /* of a reader */
    char *data;              /* of a writer: what it would publish */
    size_t bytes;
    size_t offset; /* of the descriptors, which share it */
    bool changed;  /* since the last publish: bytes, size, or bare creation */
    bool written;  /* ever */
    bool wrote;    /* bytes since the last publish: the next close publishes */
    bool dead;     /* it was to become too long: what killed it is the answer from then on */
    bool mtime_set;
    struct timespec mtime;
    int fds[MODEL_FDS_MAX];
    unsigned fd_count;
};

struct model {
    size_t max_file_bytes;
    struct model_entry entries[MODEL_ENTRIES_MAX];
    unsigned entry_count;
    struct model_handle *handles[MODEL_HANDLES_MAX];
    unsigned handle_count;
};

void model_destroy(struct model *model);

/* The entry, or NULL. */
struct model_entry *model_find(struct model *model, const char *path);
/* What walking to the parent of the path gives: 0, -ENOENT or -ENOTDIR. */
int model_walk(struct model *model, const char *path);
/* Has the directory ("" is the rank's) this child? Only what a listing shows. */
bool model_is_listed(const struct model_entry *entry, const char *directory);

/* names */
int model_unlink(struct model *model, const char *path);
int model_mkdir(struct model *model, const char *path);
int model_rmdir(struct model *model, const char *path);
int model_rename(struct model *model, const char *from, const char *to, bool replace);

/* by name */
int model_truncate(struct model *model, const char *path, size_t bytes);
int model_chmod(struct model *model, const char *path, mode_t mode);
int model_set_mtime(struct model *model, const char *path, struct timespec mtime);

/* With 0 for a directory *ret_handle is NULL; the driver closes what it opened. */
int model_open(struct model *model, const char *path, int flags, mode_t mode,
               struct model_handle **ret_handle);
int model_write(struct model *model, struct model_handle *handle, size_t offset, const void *bytes,
                size_t count);
int model_resize(struct model *model, struct model_handle *handle, size_t bytes, bool only_longer);
int model_fsync(struct model_handle *handle);
void model_set_handle_mtime(struct model_handle *handle, struct timespec mtime);
/* One descriptor less; with the last one the handle goes. */
int model_close(struct model *model, struct model_handle *handle);
const char *model_bytes(const struct model_handle *handle, size_t *ret_bytes);

#endif
