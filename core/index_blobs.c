/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blob records and inline payloads: by key, in listings, in walks, and the removal of all of a
 * rank. Both databases have the same keys, which begin with the rank; every range here stays within
 * one rank (rule W7).
 */
#include "core/index_internal.h"

#include "core/check.h"
#include "core/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum {
    WALK_BATCH = 256,
    DELETE_BATCH = 32, /* of keys on the stack */
};

/* by key */

static int get_blob(struct index *index, struct MDB_txn *txn, const struct blob_key *key,
                    struct blob_record *ret_record) {
    uint8_t raw[BLOB_KEY_BYTES_MAX];
    struct index_bytes raw_key = {raw, index_record_pack_blob_key(key, raw)}, value;
    int error = index_lookup(txn, index->blobs, raw_key, &value);
    return error ? error : index_record_unpack_blob(raw_key, value, ret_record);
}

int index_get_blob(struct index *index, const struct blob_key *key,
                   struct blob_record *ret_record) {
    struct MDB_txn *txn;
    int error = index_read_begin(index, &txn);
    if (error)
        return error;
    error = get_blob(index, txn, key, ret_record);
    index_read_end(index, txn);
    return error;
}

int index_txn_get_blob(struct index_txn *txn, const struct blob_key *key,
                       struct blob_record *ret_record) {
    return get_blob(txn->index, txn->lmdb, key, ret_record);
}

static int get_inline(struct index *index, struct MDB_txn *txn, const struct blob_key *key,
                      void *ret_bytes, uint32_t payload_bytes) {
    uint8_t raw[BLOB_KEY_BYTES_MAX];
    struct index_bytes raw_key = {raw, index_record_pack_blob_key(key, raw)}, value;
    int error = index_lookup(txn, index->inlines, raw_key, &value);
    if (error)
        return error;
    if (value.size != payload_bytes)
        return -EBADMSG;
    if (payload_bytes)
        memcpy(ret_bytes, value.data, payload_bytes);
    return 0;
}

int index_get_inline(struct index *index, const struct blob_key *key, void *ret_bytes,
                     uint32_t payload_bytes) {
    struct MDB_txn *txn;
    if (payload_bytes > INLINE_BYTES_MAX)
        return -EBADMSG;
    int error = index_read_begin(index, &txn);
    if (error)
        return error;
    error = get_inline(index, txn, key, ret_bytes, payload_bytes);
    index_read_end(index, txn);
    return error;
}

int index_txn_put_blob(struct index_txn *txn, const struct blob_key *key,
                       const struct blob_record *record) {
    uint8_t raw[BLOB_KEY_BYTES_MAX], value[BLOB_VALUE_BYTES_MAX];
    struct index_bytes raw_key = {raw, index_record_pack_blob_key(key, raw)};
    size_t size = index_record_pack_blob(raw_key, record, value);
    return index_put(txn, txn->index->blobs, raw_key, (struct index_bytes){value, size});
}

int index_txn_put_inline(struct index_txn *txn, const struct blob_key *key, const void *bytes,
                         uint32_t payload_bytes) {
    uint8_t raw[BLOB_KEY_BYTES_MAX];
    CHECK(payload_bytes <= INLINE_BYTES_MAX);
    struct index_bytes raw_key = {raw, index_record_pack_blob_key(key, raw)};
    return index_put(txn, txn->index->inlines, raw_key, (struct index_bytes){bytes, payload_bytes});
}

int index_txn_delete_inline(struct index_txn *txn, const struct blob_key *key) {
    uint8_t raw[BLOB_KEY_BYTES_MAX];
    struct index_bytes raw_key = {raw, index_record_pack_blob_key(key, raw)};
    return index_delete(txn, txn->index->inlines, raw_key);
}

static int delete_blob_and_inline(struct index_txn *txn, struct index_bytes raw_key) {
    int error = index_delete(txn, txn->index->inlines, raw_key);
    if (error && error != -ENOENT)
        return error;
    return index_delete(txn, txn->index->blobs, raw_key);
}

int index_txn_delete_blob(struct index_txn *txn, const struct blob_key *key) {
    uint8_t raw[BLOB_KEY_BYTES_MAX];
    return delete_blob_and_inline(txn,
                                  (struct index_bytes){raw, index_record_pack_blob_key(key, raw)});
}

/* listing */

struct blob_list {
    struct index_blob *blobs;
    size_t most, count;
};

static bool unpack(struct index_bytes key, struct index_bytes value, struct index_blob *blob) {
    return index_record_unpack_blob_key(key, &blob->key) == 0 &&
           index_record_unpack_blob(key, value, &blob->record) == 0;
}

/* The entry after a full list: if it has the last one's order, their group moves to the next list,
 * unless it is all there is. */
static void leave_group(struct blob_list *list, uint64_t order) {
    size_t whole = list->most;
    while (whole > 0 && blob_key_order64(&list->blobs[whole - 1].key) == order)
        whole--;
    if (whole > 0)
        list->count = whole;
}

static bool list_blob(void *argument, struct index_bytes key, struct index_bytes value) {
    struct blob_list *list = argument;
    if (list->count == list->most) {
        leave_group(list, index_record_blob_order(key));
        return true;
    }
    if (unpack(key, value, &list->blobs[list->count]))
        list->count++;
    return false;
}

int index_list_blobs(struct index *index, uint16_t rank, uint8_t kind, bool named,
                     uint64_t after_order, bool inclusive, struct index_blob *ret_blobs,
                     size_t most, size_t *ret_count) {
    struct blob_list list = {.blobs = ret_blobs, .most = most};
    if (most == 0 || (!inclusive && after_order == UINT64_MAX)) {
        *ret_count = 0;
        return 0;
    }
    struct index_position from = {.after = false};
    from.bytes = (uint16_t)index_record_pack_blob_start(
        rank, kind, named, inclusive ? after_order : after_order + 1, from.key);
    struct MDB_txn *txn;
    int error = index_read_begin(index, &txn);
    if (error)
        return error;
    error = index_visit(txn, index->blobs, &from, RANK_PREFIX_BYTES + 1, list_blob, &list);
    index_read_end(index, txn);
    if (!error)
        *ret_count = list.count;
    return error;
}

/* all of a rank */

/* At the rank's first key, whatever its kind. */
static void start_of_rank(uint16_t rank, struct index_position *position) {
    uint8_t raw[BLOB_KEY_PREFIX_BYTES];
    index_record_pack_blob_start(rank, 0, false, 0, raw);
    index_position_set(position, (struct index_bytes){raw, RANK_PREFIX_BYTES}, false);
}

struct blob_walk {
    size_t count;
    uint64_t bad_records;
    struct index_position seen; /* up to here */
    struct index_blob blobs[WALK_BATCH];
};

static bool walk_blob(void *argument, struct index_bytes key, struct index_bytes value) {
    struct blob_walk *walk = argument;
    if (walk->count == WALK_BATCH)
        return true;
    if (unpack(key, value, &walk->blobs[walk->count]))
        walk->count++;
    else
        walk->bad_records++;
    index_position_set(&walk->seen, key, true);
    return false;
}

static int walk_batch(struct index *index, struct blob_walk *walk) {
    struct MDB_txn *txn;
    int error = index_read_begin(index, &txn);
    if (error)
        return error;
    struct index_position from = walk->seen;
    walk->count = 0;
    error = index_visit(txn, index->blobs, &from, RANK_PREFIX_BYTES, walk_blob, walk);
    index_read_end(index, txn);
    return error;
}

int index_each_blob(struct index *index, uint16_t rank,
                    int (*each)(void *argument, const struct index_blob *blob), void *argument,
                    uint64_t *ret_bad_records) {
    AUTO_FREE struct blob_walk *walk = malloc(sizeof *walk);
    if (!walk)
        return -ENOMEM;
    walk->bad_records = 0;
    start_of_rank(rank, &walk->seen);
    do {
        int error = walk_batch(index, walk);
        for (size_t i = 0; !error && i < walk->count; i++)
            error = each(argument, &walk->blobs[i]);
        if (error)
            return error;
    } while (walk->count == WALK_BATCH);
    *ret_bad_records = walk->bad_records;
    return 0;
}

struct key_batch {
    size_t most, count;
    struct index_position keys[DELETE_BATCH];
};

static bool take_key(void *argument, struct index_bytes key, struct index_bytes value) {
    struct key_batch *batch = argument;
    (void)value;
    index_position_set(&batch->keys[batch->count++], key, true);
    return batch->count == batch->most;
}

static int delete_batch(struct index_txn *txn, const struct key_batch *batch) {
    for (size_t i = 0; i < batch->count; i++) {
        struct index_bytes key = {batch->keys[i].key, batch->keys[i].bytes};
        int error = delete_blob_and_inline(txn, key);
        if (error && error != -ENOENT) /* absent: an inline payload without a record */
            return error;
    }
    return 0;
}

/* Deletes both the record and the inline payload of the keys found in one of the two databases. */
static int delete_keys_of(struct index_txn *txn, unsigned database,
                          const struct index_position *start, size_t most) {
    size_t deleted = 0;
    struct key_batch batch;
    do {
        size_t left = most - deleted;
        batch.most = left < DELETE_BATCH ? left : DELETE_BATCH;
        batch.count = 0;
        int error = batch.most ? index_visit(txn->lmdb, database, start, RANK_PREFIX_BYTES,
                                             take_key, &batch)
                               : 0;
        if (!error)
            error = delete_batch(txn, &batch);
        if (error)
            return error;
        deleted += batch.count;
    } while (batch.count);
    return (int)deleted;
}

int index_txn_delete_rank_blobs(struct index_txn *txn, uint16_t rank, size_t most) {
    struct index_position start;
    if (most > INT_MAX)
        most = INT_MAX;
    start_of_rank(rank, &start);
    int deleted = delete_keys_of(txn, txn->index->blobs, &start, most);
    if (deleted < 0)
        return deleted;
    int orphans = delete_keys_of(txn, txn->index->inlines, &start, most - (size_t)deleted);
    return orphans < 0 ? orphans : deleted + orphans;
}
