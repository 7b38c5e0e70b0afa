/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the index_*.c files share: the environment, transactions, and four operations on raw bytes
 * (lookup, visit, put, delete). index_blobs.c, index_names.c and index_meta.c stand on these and do
 * not know LMDB; index_env.c, index_txn.c and index_inspect.c do. lmdb.h is not included here.
 */
#ifndef CPL3_CORE_INDEX_INTERNAL_H
#define CPL3_CORE_INDEX_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/index.h"
#include "core/index_record.h"

struct MDB_env;
struct MDB_txn;
struct index_reader;

enum {
    INDEX_FORMAT = 1,
    INDEX_DATABASES = 4,
    INDEX_KEY_BYTES_MAX = 511, /* LMDB's; a longer one in the file is damage */
};

#define INDEX_DATA_FILE "data.mdb"
#define INDEX_LOCK_FILE "lock.mdb"

/* A place in a database to go on from. */
struct index_position {
    uint16_t bytes;
    bool after; /* go on behind this key, not at it */
    uint8_t key[INDEX_KEY_BYTES_MAX];
};

struct index {
    /* fixed after open */
    struct MDB_env *env;
    unsigned blobs, inlines, names, meta; /* database handles */
    bool read_only;
    uint64_t map_bytes; /* puts end here; the mapping is larger, so that deletes never starve */

    uint64_t reserve_bytes;
    _Atomic uint64_t reserved_until; /* in the file: blocks exist up to here */

    pthread_rwlock_t map_lock; /* shared: to have a transaction; exclusive: to move the map */
    int map_error;             /* under map_lock: the map was lost in moving it */

    struct index_reader *readers; /* under the readers' mutex of index_txn.c */
    _Atomic unsigned writers;     /* transactions begun and not ended, and their threads waiting */

    /* Owned by whoever has the write transaction: where the last index_txn_delete_rank_names
     * stopped. A hint only, which need not be right after an abort. */
    struct index_position names_swept;
};

struct index_txn {
    struct index *index;
    struct MDB_txn *lmdb;
    bool full;   /* the index was at its bound: nothing that needs space is put */
    int failure; /* the first error; only abort is possible */
};

/* index_env.c */

/* LMDB's and the system's codes to 0 or -errno: the only place that translates. */
int index_error(int code);
/* The databases by name, in the order blobs, inline, names, meta. */
extern const char *const index_database_names[INDEX_DATABASES];
/* Pages up to the highest one ever used; under map_lock. */
uint64_t index_high_water_bytes(struct index *index);
/* Gets the blocks of the reserve, when half of it is used up; under map_lock. Best effort. */
void index_keep_reserve(struct index *index);
/* Without the free ones. */
int index_used_bytes(struct index *index, uint64_t *ret_bytes);

/* index_txn.c */

/* Begins, with map_lock held shared; index_unlock_map after its end. */
int index_begin(struct index *index, bool write, struct MDB_txn **ret_txn);
void index_unlock_map(struct index *index);

/* The calling thread's read transaction: end it soon, and before anything that may wait. */
int index_read_begin(struct index *index, struct MDB_txn **ret_txn);
void index_read_end(struct index *index, struct MDB_txn *txn);
/* Ends all threads' cached read transactions; before the environment is closed. */
void index_readers_close(struct index *index);

/* What they return points into the map: good until the transaction ends or, in a write transaction,
 * until its next change. -ENOENT. */
int index_lookup(struct MDB_txn *txn, unsigned database, struct index_bytes key,
                 struct index_bytes *ret_value);

/*
 * Calls visit for the entries from a position on whose keys begin with the position's first
 * prefix_bytes bytes, in order, until it answers non-zero. 0, or -errno of the database.
 */
int index_visit(struct MDB_txn *txn, unsigned database, const struct index_position *from,
                size_t prefix_bytes,
                bool (*visit)(void *argument, struct index_bytes key, struct index_bytes value),
                void *argument);
void index_position_set(struct index_position *position, struct index_bytes key, bool after);

/* -ENOSPC and nothing changed: see index_txn_is_full. Any other error but -ENOENT is remembered:
 * the transaction cannot be committed any more. */
int index_put(struct index_txn *txn, unsigned database, struct index_bytes key,
              struct index_bytes value);
int index_delete(struct index_txn *txn, unsigned database, struct index_bytes key);

/* index_inspect.c */

/* In a child of its own: a damaged file may kill the caller. 0, -EUCLEAN, or another -errno if it
 * could not be tried; for both a reason. */
int index_inspect(const char *path, uint16_t rank, char *ret_reason, size_t size);

#endif
