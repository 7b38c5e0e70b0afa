/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and what they stand for: by directory and name, in listings by hash, in walks, and the
 * removal of all of a rank. A directory id begins with its rank, and so does every key here: a
 * range stays within one rank (rule W7).
 */
#include "core/index_internal.h"

#include "core/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum {
    WALK_BATCH = 256,
    DELETE_BATCH = 32, /* of keys on the stack */
    DIRECTORY_BYTES = 8,
};

/* by name */

static int get_name(struct index *index, struct MDB_txn *txn, uint64_t directory, const char *name,
                    size_t name_bytes, struct name_entry *ret_entry) {
    uint8_t raw[NAME_KEY_BYTES_MAX];
    if (name_bytes == 0 || name_bytes > NAME_BYTES_MAX)
        return -ENOENT;
    struct index_bytes raw_key = {raw,
                                  index_record_pack_name_key(directory, name, name_bytes, raw)},
                       value;
    int error = index_lookup(txn, index->names, raw_key, &value);
    return error ? error : index_record_unpack_name_entry(raw_key, value, ret_entry);
}

int index_get_name(struct index *index, uint64_t directory, const char *name, size_t name_bytes,
                   struct name_entry *ret_entry) {
    struct MDB_txn *txn;
    int error = index_read_begin(index, &txn);
    if (error)
        return error;
    error = get_name(index, txn, directory, name, name_bytes, ret_entry);
    index_read_end(index, txn);
    return error;
}

int index_txn_get_name(struct index_txn *txn, uint64_t directory, const char *name,
                       size_t name_bytes, struct name_entry *ret_entry) {
    return get_name(txn->index, txn->lmdb, directory, name, name_bytes, ret_entry);
}

int index_txn_put_name(struct index_txn *txn, uint64_t directory, const char *name,
                       size_t name_bytes, const struct name_entry *entry) {
    uint8_t raw[NAME_KEY_BYTES_MAX], value[NAME_VALUE_BYTES_MAX];
    struct index_bytes raw_key = {raw,
                                  index_record_pack_name_key(directory, name, name_bytes, raw)};
    size_t size = index_record_pack_name(raw_key, entry, value);
    return index_put(txn, txn->index->names, raw_key, (struct index_bytes){value, size});
}

int index_txn_delete_name(struct index_txn *txn, uint64_t directory, const char *name,
                          size_t name_bytes) {
    uint8_t raw[NAME_KEY_BYTES_MAX];
    if (name_bytes == 0 || name_bytes > NAME_BYTES_MAX)
        return -ENOENT;
    struct index_bytes raw_key = {raw,
                                  index_record_pack_name_key(directory, name, name_bytes, raw)};
    return index_delete(txn, txn->index->names, raw_key);
}

/* listing */

struct name_list {
    struct index_name *names;
    size_t most, count;
};

/* The entry after a full list: if it has the last one's hash, their group moves to the next list,
 * unless it is all there is. */
static void leave_group(struct name_list *list, uint64_t hash) {
    size_t whole = list->most;
    while (whole > 0 && list->names[whole - 1].hash == hash)
        whole--;
    if (whole > 0)
        list->count = whole;
}

static bool list_name(void *argument, struct index_bytes key, struct index_bytes value) {
    struct name_list *list = argument;
    uint64_t directory;
    if (list->count == list->most) {
        leave_group(list, index_record_name_hash(key));
        return true;
    }
    if (index_record_unpack_name(key, value, &directory, &list->names[list->count]) == 0)
        list->count++;
    return false;
}

int index_list_names(struct index *index, uint64_t directory, uint64_t after_hash, bool inclusive,
                     struct index_name *ret_names, size_t most, size_t *ret_count) {
    struct name_list list = {.names = ret_names, .most = most};
    if (most == 0 || (!inclusive && after_hash == UINT64_MAX)) {
        *ret_count = 0;
        return 0;
    }
    struct index_position from = {.after = false};
    from.bytes = (uint16_t)index_record_pack_name_start(
        directory, inclusive ? after_hash : after_hash + 1, from.key);
    struct MDB_txn *txn;
    int error = index_read_begin(index, &txn);
    if (error)
        return error;
    error = index_visit(txn, index->names, &from, DIRECTORY_BYTES, list_name, &list);
    index_read_end(index, txn);
    if (!error)
        *ret_count = list.count;
    return error;
}

/* all of a rank */

static void start_of_rank(uint16_t rank, struct index_position *position) {
    uint8_t raw[NAME_KEY_PREFIX_BYTES];
    index_record_pack_name_start((uint64_t)rank << DIRECTORY_RANK_SHIFT, 0, raw);
    index_position_set(position, (struct index_bytes){raw, RANK_PREFIX_BYTES}, false);
}

struct name_walk {
    size_t count;
    uint64_t bad_records;
    struct index_position seen; /* up to here */
    uint64_t directories[WALK_BATCH];
    struct index_name names[WALK_BATCH];
};

static bool walk_name(void *argument, struct index_bytes key, struct index_bytes value) {
    struct name_walk *walk = argument;
    size_t i = walk->count;
    if (i == WALK_BATCH)
        return true;
    if (index_record_unpack_name(key, value, &walk->directories[i], &walk->names[i]) == 0)
        walk->count++;
    else
        walk->bad_records++;
    index_position_set(&walk->seen, key, true);
    return false;
}

static int walk_batch(struct index *index, struct name_walk *walk) {
    struct MDB_txn *txn;
    int error = index_read_begin(index, &txn);
    if (error)
        return error;
    struct index_position from = walk->seen;
    walk->count = 0;
    error = index_visit(txn, index->names, &from, RANK_PREFIX_BYTES, walk_name, walk);
    index_read_end(index, txn);
    return error;
}

int index_each_name(struct index *index, uint16_t rank,
                    int (*each)(void *argument, uint64_t directory, const struct index_name *name),
                    void *argument, uint64_t *ret_bad_records) {
    AUTO_FREE struct name_walk *walk = malloc(sizeof *walk);
    if (!walk)
        return -ENOMEM;
    walk->bad_records = 0;
    start_of_rank(rank, &walk->seen);
    do {
        int error = walk_batch(index, walk);
        for (size_t i = 0; !error && i < walk->count; i++)
            error = each(argument, walk->directories[i], &walk->names[i]);
        if (error)
            return error;
    } while (walk->count == WALK_BATCH);
    *ret_bad_records = walk->bad_records;
    return 0;
}

struct name_sweep {
    bool keep_directories;
    size_t most, count;
    struct index_position *seen; /* up to here, kept directories included */
    struct index_position keys[DELETE_BATCH];
};

/* A bad record is deleted too: nobody believes it, whatever it was. */
static bool take_key(void *argument, struct index_bytes key, struct index_bytes value) {
    struct name_sweep *sweep = argument;
    struct name_entry entry;
    index_position_set(sweep->seen, key, true);
    bool keep = sweep->keep_directories &&
                index_record_unpack_name_entry(key, value, &entry) == 0 &&
                entry.type == NAME_DIRECTORY;
    if (!keep)
        index_position_set(&sweep->keys[sweep->count++], key, true);
    return sweep->count == sweep->most;
}

/* From `seen` on, which it moves. The number deleted. */
static int sweep_names(struct index_txn *txn, bool keep_directories, size_t most,
                       struct index_position *seen) {
    size_t deleted = 0;
    struct name_sweep sweep = {.keep_directories = keep_directories, .seen = seen};
    do {
        struct index_position from = *seen;
        size_t left = most - deleted;
        sweep.most = left < DELETE_BATCH ? left : DELETE_BATCH;
        sweep.count = 0;
        if (sweep.most == 0)
            break;
        int error =
            index_visit(txn->lmdb, txn->index->names, &from, RANK_PREFIX_BYTES, take_key, &sweep);
        for (size_t i = 0; !error && i < sweep.count; i++)
            error = index_delete(txn, txn->index->names,
                                 (struct index_bytes){sweep.keys[i].key, sweep.keys[i].bytes});
        if (error)
            return error;
        deleted += sweep.count;
    } while (sweep.count);
    return (int)deleted;
}

/*
 * Goes on where the last call for this rank stopped, so that a million kept directories are not
 * walked again in every transaction. What lies before that place (it is put there meanwhile, or an
 * abort brought it back) is found by the full pass before the answer 0.
 */
int index_txn_delete_rank_names(struct index_txn *txn, uint16_t rank, bool keep_directories,
                                size_t most) {
    struct index_position start, *seen = &txn->index->names_swept;
    if (most > INT_MAX)
        most = INT_MAX;
    start_of_rank(rank, &start);
    bool resumes =
        seen->bytes > RANK_PREFIX_BYTES && memcmp(seen->key, start.key, RANK_PREFIX_BYTES) == 0;
    if (!resumes)
        *seen = start;
    int deleted = sweep_names(txn, keep_directories, most, seen);
    if (deleted != 0 || !resumes)
        return deleted;
    *seen = start;
    return sweep_names(txn, keep_directories, most, seen);
}
