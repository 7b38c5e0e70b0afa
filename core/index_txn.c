/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions of the index and the raw operations inside them. Decided here: how threads reuse
 * their read transaction, how a map that another process has grown is adopted, and that an index at
 * its bound refuses puts while it still has pages for deletes.
 *
 * Readers: each thread keeps one reset LMDB transaction per index (MDB_NOTLS: the reader slot
 * belongs to it). A thread's list hangs on a thread-specific key whose destructor gives the slots
 * back; index_readers_close takes them away from the threads of an index that closes.
 */
#include "core/index_internal.h"

#include "core/check.h"
#include "core/cleanup.h"

#include <errno.h>
#include <lmdb.h>
#include <string.h>
#include <utlist.h>

enum { BEGIN_TRIES_MAX = 4 };

struct index_reader {
    _Atomic(struct index *) index; /* NULL: it was closed; the thread frees this */
    MDB_txn *txn;                  /* the thread's own; reset while nothing is read */
    struct index_reader *thread_next;
    struct index_reader *prev, *next; /* of the index, under readers_mutex */
};

static pthread_mutex_t readers_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t readers_once = PTHREAD_ONCE_INIT;
static pthread_key_t readers_key; /* the thread's list of readers */
static int readers_key_error;

/* readers */

/* Under readers_mutex. */
static void reader_detach(struct index_reader *reader) {
    struct index *index = atomic_load(&reader->index);
    if (!index)
        return;
    if (reader->txn)
        mdb_txn_abort(reader->txn);
    DL_DELETE(index->readers, reader);
    atomic_store(&reader->index, NULL);
}

static void readers_end_thread(void *list) {
    SCOPE_LOCK(&readers_mutex);
    for (struct index_reader *reader = list, *next; reader; reader = next) {
        next = reader->thread_next;
        reader_detach(reader);
        free(reader);
    }
}

static void readers_make_key(void) {
    readers_key_error = -pthread_key_create(&readers_key, readers_end_thread);
}

static int reader_create(struct index *index, struct index_reader **ret_reader) {
    struct index_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return -ENOMEM;
    atomic_init(&reader->index, index);
    reader->thread_next = pthread_getspecific(readers_key);
    int error = -pthread_setspecific(readers_key, reader);
    if (error) {
        free(reader);
        return error;
    }
    SCOPE_LOCK(&readers_mutex);
    DL_APPEND(index->readers, reader);
    *ret_reader = reader;
    return 0;
}

static int reader_of_thread(struct index *index, struct index_reader **ret_reader) {
    pthread_once(&readers_once, readers_make_key);
    if (readers_key_error)
        return readers_key_error;
    for (struct index_reader *r = pthread_getspecific(readers_key); r; r = r->thread_next) {
        if (atomic_load_explicit(&r->index, memory_order_relaxed) == index) {
            *ret_reader = r;
            return 0;
        }
    }
    return reader_create(index, ret_reader);
}

/* Frees those of the calling thread whose index is closed. */
static void readers_reap(void) {
    struct index_reader *kept = NULL;
    for (struct index_reader *r = pthread_getspecific(readers_key), *next; r; r = next) {
        next = r->thread_next;
        if (atomic_load(&r->index)) {
            r->thread_next = kept;
            kept = r;
        } else {
            free(r);
        }
    }
    pthread_setspecific(readers_key, kept);
}

void index_readers_close(struct index *index) {
    pthread_once(&readers_once, readers_make_key);
    if (readers_key_error)
        return;
    pthread_mutex_lock(&readers_mutex);
    while (index->readers)
        reader_detach(index->readers);
    pthread_mutex_unlock(&readers_mutex);
    readers_reap();
}

/* beginning and ending */

/* Another process has grown the file beyond our map. Waits for this process's transactions. */
static int adopt_map(struct index *index) {
    pthread_rwlock_wrlock(&index->map_lock);
    int code = index->map_error;
    if (!code) {
        code = index_error(mdb_env_set_mapsize(index->env, 0));
        index->map_error = code;
    }
    pthread_rwlock_unlock(&index->map_lock);
    return code;
}

/* After a failed begin, without map_lock. 0: it is worth another try. */
static int recover(struct index *index, int code) {
    switch (code) {
    case MDB_READERS_FULL:
        index_check_readers(index);
        return 0;
    case MDB_MAP_RESIZED:
        return adopt_map(index);
    default:
        return index_error(code);
    }
}

/* txn: NULL, or a reset read transaction to renew. */
static int begin(struct index *index, unsigned flags, MDB_txn **txn) {
    for (int tries = 1;; tries++) {
        pthread_rwlock_rdlock(&index->map_lock);
        int code = index->map_error ? -index->map_error
                   : *txn           ? mdb_txn_renew(*txn)
                                    : mdb_txn_begin(index->env, NULL, flags, txn);
        if (code == 0)
            return 0;
        pthread_rwlock_unlock(&index->map_lock);
        int error = tries == BEGIN_TRIES_MAX ? index_error(code) : recover(index, code);
        if (error)
            return error;
    }
}

int index_begin(struct index *index, bool write, struct MDB_txn **ret_txn) {
    MDB_txn *txn = NULL;
    int error = begin(index, write ? 0 : MDB_RDONLY, &txn);
    if (!error)
        *ret_txn = txn;
    return error;
}

void index_unlock_map(struct index *index) {
    pthread_rwlock_unlock(&index->map_lock);
}

int index_read_begin(struct index *index, struct MDB_txn **ret_txn) {
    struct index_reader *reader;
    int error = reader_of_thread(index, &reader);
    if (!error)
        error = begin(index, MDB_RDONLY, &reader->txn);
    if (!error)
        *ret_txn = reader->txn;
    return error;
}

void index_read_end(struct index *index, struct MDB_txn *txn) {
    mdb_txn_reset(txn);
    index_unlock_map(index);
}

/* A commit of another process in between does not matter: the slack is many transactions large. */
static int find_full(struct index *index, bool *ret_full) {
    pthread_rwlock_rdlock(&index->map_lock);
    bool near = !index->map_error && index_high_water_bytes(index) >= index->map_bytes;
    pthread_rwlock_unlock(&index->map_lock);
    if (near) {
        uint64_t used_bytes;
        index_check_readers(index); /* a dead one may hold the pages that we miss */
        int error = index_used_bytes(index, &used_bytes);
        if (error)
            return error;
        near = used_bytes >= index->map_bytes;
    }
    *ret_full = near;
    return 0;
}

int index_txn_begin(struct index *index, struct index_txn **ret_txn) {
    if (index->read_only)
        return -EROFS;
    AUTO_FREE struct index_txn *txn = calloc(1, sizeof *txn);
    if (!txn)
        return -ENOMEM;
    txn->index = index;
    int error = find_full(index, &txn->full);
    if (error)
        return error;
    atomic_fetch_add(&index->writers, 1);
    error = index_begin(index, true, &txn->lmdb);
    if (error) {
        atomic_fetch_sub(&index->writers, 1);
        return error;
    }
    *ret_txn = txn;
    txn = NULL;
    return 0;
}

/* Its LMDB transaction is over. */
static void txn_end(struct index_txn *txn) {
    index_unlock_map(txn->index);
    CHECK(atomic_fetch_sub(&txn->index->writers, 1) > 0);
    free(txn);
}

int index_txn_commit(struct index_txn *txn) {
    int error = txn->failure;
    if (error)
        mdb_txn_abort(txn->lmdb);
    else
        error = index_error(mdb_txn_commit(txn->lmdb)); /* frees it in any case */
    if (!error)
        index_keep_reserve(txn->index);
    txn_end(txn);
    return error;
}

void index_txn_abort(struct index_txn *txn) {
    if (!txn)
        return;
    mdb_txn_abort(txn->lmdb);
    txn_end(txn);
}

bool index_txn_is_full(const struct index_txn *txn) {
    return txn->full;
}

/* raw operations */

static MDB_val to_val(struct index_bytes bytes) {
    return (MDB_val){.mv_size = bytes.size, .mv_data = (void *)bytes.data};
}

static struct index_bytes from_val(MDB_val val) {
    return (struct index_bytes){.data = val.mv_data, .size = val.mv_size};
}

int index_lookup(struct MDB_txn *txn, unsigned database, struct index_bytes key,
                 struct index_bytes *ret_value) {
    MDB_val raw_key = to_val(key), value;
    int error = index_error(mdb_get(txn, database, &raw_key, &value));
    if (!error)
        *ret_value = from_val(value);
    return error;
}

void index_position_set(struct index_position *position, struct index_bytes key, bool after) {
    CHECK(key.size <= INDEX_KEY_BYTES_MAX);
    position->bytes = (uint16_t)key.size;
    position->after = after;
    memcpy(position->key, key.data, key.size);
}

/* The cursor's first entry at or, if so asked, after the position. */
static int seek(MDB_cursor *cursor, const struct index_position *from, MDB_val *key,
                MDB_val *value) {
    *key = (MDB_val){.mv_size = from->bytes, .mv_data = (void *)from->key};
    int code = mdb_cursor_get(cursor, key, value, MDB_SET_RANGE);
    if (code == 0 && from->after && key->mv_size == from->bytes &&
        memcmp(key->mv_data, from->key, from->bytes) == 0)
        code = mdb_cursor_get(cursor, key, value, MDB_NEXT);
    return code;
}

int index_visit(struct MDB_txn *txn, unsigned database, const struct index_position *from,
                size_t prefix_bytes,
                bool (*visit)(void *argument, struct index_bytes key, struct index_bytes value),
                void *argument) {
    CHECK(prefix_bytes <= from->bytes);
    MDB_cursor *cursor;
    int code = mdb_cursor_open(txn, database, &cursor);
    if (code)
        return index_error(code);
    MDB_val key, value;
    code = seek(cursor, from, &key, &value);
    while (code == 0) {
        if (key.mv_size > INDEX_KEY_BYTES_MAX) {
            code = MDB_CORRUPTED;
            break;
        }
        if (key.mv_size < prefix_bytes || memcmp(key.mv_data, from->key, prefix_bytes) != 0 ||
            visit(argument, from_val(key), from_val(value)))
            break;
        code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    return code == MDB_NOTFOUND ? 0 : index_error(code);
}

/* Attributes and touches replace a value by one of its size: that is free of charge even when the
 * index is full. */
static bool replaces_same_size(struct index_txn *txn, unsigned database, struct index_bytes key,
                               size_t size) {
    struct index_bytes old;
    return index_lookup(txn->lmdb, database, key, &old) == 0 && old.size == size;
}

int index_put(struct index_txn *txn, unsigned database, struct index_bytes key,
              struct index_bytes value) {
    if (txn->failure)
        return txn->failure;
    /* meta is small, and clearing a full index needs it. */
    if (txn->full && database != txn->index->meta &&
        !replaces_same_size(txn, database, key, value.size))
        return -ENOSPC;
    MDB_val raw_key = to_val(key), raw_value = to_val(value);
    txn->failure = index_error(mdb_put(txn->lmdb, database, &raw_key, &raw_value, 0));
    return txn->failure;
}

int index_delete(struct index_txn *txn, unsigned database, struct index_bytes key) {
    if (txn->failure)
        return txn->failure;
    MDB_val raw_key = to_val(key);
    int error = index_error(mdb_del(txn->lmdb, database, &raw_key, NULL));
    if (error && error != -ENOENT)
        txn->failure = error;
    return error;
}
