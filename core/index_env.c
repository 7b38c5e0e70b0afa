/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index's environment: opening and closing, how large the map is, usage, stale readers, and the
 * only translation of LMDB's error codes.
 *
 * The map is address space and the file is sparse, so slack costs nothing: LMDB maps map_bytes plus
 * an eighth plus 16 MiB, and puts end at map_bytes. Deletes copy pages before they free any and
 * would be refused, for ever, by a map that puts have filled. One transaction therefore stays well
 * below 16 MiB of changes.
 */
#include "core/index_internal.h"

#include "core/check.h"
#include "core/cleanup.h"
#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <lmdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    READERS_DEFAULT = 1022,
    MAP_ROUND_BYTES = 1 << 20,
    SLACK_BYTES = 16 << 20,
    SLACK_FRACTION = 8, /* one in so many of map_bytes more */
    FREE_DATABASE = 0,  /* LMDB's list of free pages */
};

#define FORMAT_KEY "format"

const char *const index_database_names[INDEX_DATABASES] = {"blobs", "inline", "names", "meta"};

int index_error(int code) {
    switch (code) {
    case MDB_SUCCESS:
        return 0;
    case MDB_NOTFOUND:
        return -ENOENT;
    case MDB_MAP_FULL:
    case MDB_TXN_FULL:
        return -ENOSPC;
    case MDB_READERS_FULL:
        return -EAGAIN;
    case MDB_PAGE_NOTFOUND:
    case MDB_CORRUPTED:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
    case MDB_CURSOR_FULL:
    case MDB_PAGE_FULL:
        return -EUCLEAN;
    default: /* an errno; the rest of LMDB's (panic after a failed meta page write) are -EIO */
        return code > 0 ? -code : -EIO;
    }
}

/* opening */

static int sync_directory(const char *path) {
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return -errno;
    return 0;
}

/* The names of data.mdb and of the directory itself, before anything in them is acknowledged. */
static int sync_names(const char *path) {
    int error = sync_directory(path);
    if (error)
        return error;
    AUTO_FREE char *copy = strdup(path);
    return copy ? sync_directory(dirname(copy)) : -ENOMEM;
}

/* The size of data.mdb; 0 if it is missing. */
static int data_file_bytes(const char *path, uint64_t *ret_bytes) {
    char file[PATH_MAX];
    struct stat status;
    if (snprintf(file, sizeof file, "%s/" INDEX_DATA_FILE, path) >= (int)sizeof file)
        return -ENAMETOOLONG;
    if (stat(file, &status) == 0)
        *ret_bytes = (uint64_t)status.st_size;
    else if (errno == ENOENT)
        *ret_bytes = 0;
    else
        return -errno;
    return 0;
}

static int create_directory(const char *path) {
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

static int open_environment(struct index *index, const char *path,
                            const struct index_options *options) {
    uint64_t file_bytes;
    int error = data_file_bytes(path, &file_bytes);
    if (error)
        return error;
    if (!file_bytes && options->read_only)
        return -ENOENT;
    uint64_t bytes = options->map_bytes > 2 * file_bytes ? options->map_bytes : 2 * file_bytes;
    index->map_bytes = (bytes / MAP_ROUND_BYTES + (bytes % MAP_ROUND_BYTES != 0)) * MAP_ROUND_BYTES;

    /* LMDB does without locks by itself where read-only meets a read-only file system. */
    unsigned flags = MDB_NOTLS | MDB_NORDAHEAD | (options->read_only ? MDB_RDONLY : 0);
    unsigned readers = options->readers_max ? options->readers_max : READERS_DEFAULT;
    int code = mdb_env_create(&index->env);
    if (code == 0)
        code = mdb_env_set_mapsize(index->env, index->map_bytes +
                                                   index->map_bytes / SLACK_FRACTION + SLACK_BYTES);
    if (code == 0)
        code = mdb_env_set_maxreaders(index->env, readers);
    if (code == 0)
        code = mdb_env_set_maxdbs(index->env, INDEX_DATABASES);
    if (code == 0)
        code = mdb_env_open(index->env, path, flags, 0600);
    return index_error(code);
}

/* A fresh index gets its format, any other must have ours: -EINVAL. */
static int settle_format(struct index *index, MDB_txn *txn, bool fresh) {
    struct index_bytes key = {(const uint8_t *)FORMAT_KEY, strlen(FORMAT_KEY)}, value;
    if (fresh) {
        uint8_t raw[META_VALUE_BYTES];
        size_t size = index_record_pack_meta(key, INDEX_FORMAT, raw);
        MDB_val raw_key = {key.size, (void *)key.data}, raw_value = {size, raw};
        return index_error(mdb_put(txn, index->meta, &raw_key, &raw_value, 0));
    }
    uint64_t format;
    int error = index_lookup(txn, index->meta, key, &value);
    if (!error)
        error = index_record_unpack_meta(key, value, &format);
    if (error)
        return error == -ENOENT || error == -EBADMSG ? -EUCLEAN : error;
    return format == INDEX_FORMAT ? 0 : -EINVAL;
}

static int open_databases(struct index *index, MDB_txn *txn) {
    unsigned *const handles[INDEX_DATABASES] = {&index->blobs, &index->inlines, &index->names,
                                                &index->meta};
    MDB_dbi main_database;
    MDB_stat status;
    int code = mdb_dbi_open(txn, NULL, 0, &main_database);
    if (code == 0)
        code = mdb_stat(txn, main_database, &status);
    bool fresh = code == 0 && status.ms_entries == 0 && !index->read_only;
    for (int i = 0; code == 0 && i < INDEX_DATABASES; i++)
        code = mdb_dbi_open(txn, index_database_names[i], fresh ? MDB_CREATE : 0, handles[i]);
    return code ? index_error(code) : settle_format(index, txn, fresh);
}

static int start_databases(struct index *index) {
    MDB_txn *txn;
    int error = index_begin(index, !index->read_only, &txn);
    if (error)
        return error;
    error = open_databases(index, txn);
    if (error)
        mdb_txn_abort(txn);
    else
        error = index_error(mdb_txn_commit(txn)); /* read-only too: keeps the handles */
    index_unlock_map(index);
    return error;
}

static const char *open_reason(int error) {
    switch (error) {
    case -EUCLEAN:
        return "the file is damaged";
    case -EINVAL:
        return "its format is not 1, the only one known here";
    default:
        return strerror(-error);
    }
}

static void cleanup_index(struct index **index) {
    index_close(*index);
}

int index_open(const char *path, const struct index_options *options, struct index **ret_index) {
    _cleanup_(cleanup_index) struct index *index = calloc(1, sizeof *index);
    if (!index)
        return -ENOMEM;
    pthread_rwlock_init(&index->map_lock, NULL);
    index->read_only = options->read_only;
    index->reserve_bytes = options->reserve_bytes;

    int error = options->read_only ? 0 : create_directory(path);
    if (!error)
        error = open_environment(index, path, options);
    if (!error) {
        index_check_readers(index);
        error = start_databases(index);
    }
    if (!error && !options->read_only)
        error = sync_names(path);
    if (!error)
        index_keep_reserve(index);
    if (error) {
        log_error("index %s: cannot be opened: %s", path, open_reason(error));
        return error;
    }
    *ret_index = index;
    index = NULL;
    return 0;
}

void index_close(struct index *index) {
    if (!index)
        return;
    CHECK(atomic_load(&index->writers) == 0);
    index_readers_close(index);
    if (index->env)
        mdb_env_close(index->env);
    pthread_rwlock_destroy(&index->map_lock);
    free(index);
}

int index_remove_files(const char *path) {
    char file[PATH_MAX];
    if (snprintf(file, sizeof file, "%s/" INDEX_LOCK_FILE, path) >= (int)sizeof file)
        return -ENAMETOOLONG;
    /* Every process that has the index open holds a shared lock on the first byte of the lock file.
     * The file stays: one that waits to open it must meet those who open it later. */
    AUTO_CLOSE int lock = open(file, O_RDWR | O_CLOEXEC);
    if (lock < 0 && errno != ENOENT)
        return -errno;
    struct flock first = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (lock >= 0 && fcntl(lock, F_SETLK, &first) < 0)
        return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
    snprintf(file, sizeof file, "%s/" INDEX_DATA_FILE, path);
    if (unlink(file) < 0)
        return errno == ENOENT ? 0 : -errno;
    return sync_directory(path);
}

void index_keep_reserve(struct index *index) {
    if (index->read_only || !index->reserve_bytes)
        return;
    uint64_t used = index_high_water_bytes(index);
    if (used + index->reserve_bytes / 2 <= atomic_load(&index->reserved_until))
        return;
    mdb_filehandle_t file;
    uint64_t until = used + index->reserve_bytes;
    if (mdb_env_get_fd(index->env, &file) == 0 &&
        fallocate(file, FALLOC_FL_KEEP_SIZE, 0, (off_t)until) == 0)
        atomic_store(&index->reserved_until, until);
}

/* usage */

uint64_t index_high_water_bytes(struct index *index) {
    MDB_envinfo info;
    MDB_stat status;
    CHECK(mdb_env_info(index->env, &info) == 0 && mdb_env_stat(index->env, &status) == 0);
    return (uint64_t)(info.me_last_pgno + 1) * status.ms_psize;
}

/* The free list's records are a count and so many page numbers. */
static int count_free_pages(MDB_txn *txn, uint64_t *ret_pages) {
    MDB_cursor *cursor;
    int code = mdb_cursor_open(txn, FREE_DATABASE, &cursor);
    if (code)
        return index_error(code);
    MDB_val key, value;
    uint64_t pages = 0, count;
    while ((code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        if (value.mv_size < sizeof count) {
            code = MDB_CORRUPTED;
            break;
        }
        memcpy(&count, value.mv_data, sizeof count);
        pages += count;
    }
    mdb_cursor_close(cursor);
    if (code != MDB_NOTFOUND)
        return index_error(code);
    *ret_pages = pages;
    return 0;
}

static int used_bytes_in(struct index *index, MDB_txn *txn, uint64_t *ret_bytes) {
    MDB_stat status;
    uint64_t high_water_bytes = index_high_water_bytes(index), free_pages = 0;
    int error = count_free_pages(txn, &free_pages);
    if (!error)
        error = index_error(mdb_env_stat(index->env, &status));
    if (error)
        return error;
    uint64_t free_bytes = free_pages * status.ms_psize;
    *ret_bytes = free_bytes < high_water_bytes ? high_water_bytes - free_bytes : 0;
    return 0;
}

int index_used_bytes(struct index *index, uint64_t *ret_bytes) {
    MDB_txn *txn;
    int error = index_read_begin(index, &txn);
    if (error)
        return error;
    error = used_bytes_in(index, txn, ret_bytes);
    index_read_end(index, txn);
    return error;
}

static int count_entries(MDB_txn *txn, unsigned database, uint64_t *ret_entries) {
    MDB_stat status;
    int error = index_error(mdb_stat(txn, database, &status));
    if (!error)
        *ret_entries = status.ms_entries;
    return error;
}

static int usage_in(struct index *index, MDB_txn *txn, struct index_usage *usage) {
    MDB_envinfo info;
    struct stat status;
    int fd, error = used_bytes_in(index, txn, &usage->used_bytes);
    if (!error)
        error = count_entries(txn, index->blobs, &usage->blobs);
    if (!error)
        error = count_entries(txn, index->inlines, &usage->inlines);
    if (!error)
        error = count_entries(txn, index->names, &usage->names);
    if (!error)
        error = index_error(mdb_env_info(index->env, &info));
    if (!error)
        error = index_error(mdb_env_get_fd(index->env, &fd));
    if (!error && fstat(fd, &status) < 0)
        error = -errno;
    if (error)
        return error;
    usage->file_bytes = (uint64_t)status.st_size;
    usage->map_bytes = index->map_bytes;
    usage->readers = info.me_numreaders;
    usage->readers_max = info.me_maxreaders;
    return 0;
}

int index_get_usage(struct index *index, struct index_usage *ret_usage) {
    struct index_usage usage;
    MDB_txn *txn;
    int error = index_read_begin(index, &txn);
    if (error)
        return error;
    error = usage_in(index, txn, &usage);
    index_read_end(index, txn);
    if (!error)
        *ret_usage = usage;
    return error;
}

int index_check_readers(struct index *index) {
    int dead = 0;
    return mdb_reader_check(index->env, &dead) == 0 ? dead : 0;
}
