/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The durable index: one LMDB environment per store, shared by the processes of all ranks. lmdb.h
 * is included only in core/index_*.c, and its error codes are translated there. Every record
 * carries a checksum over its key and value that is verified at lookup (LMDB has none): a record
 * that fails it is -EBADMSG and never believed.
 *
 * Databases and keys (integers big-endian, so that order is numeric):
 *   blobs   rank u16 | kind u8, bit 7 named | order u64 | hash bytes  -> struct blob_record, packed
 *           order = blob_key_order64: names like 000...1, 000...2 spread evenly, so a listing can
 *           resume at any 64-bit cookie
 *   inline  same key -> payload bytes of a blob of at most 4096 bytes
 *   names   directory id u64 | name hash u64 (XXH3-64 of the name) | name -> struct name_entry
 *   meta    format; per rank: next directory id, clean mark
 * A directory id carries its rank in the top 16 bits; the root of a rank is rank << 48 | 1.
 *
 * Lookups open a read transaction for microseconds, reuse it per thread, and hold none across I/O
 * or return. Write transactions are used by one thread at a time per process; LMDB serialises the
 * processes. The environment has no WRITEMAP, is created 0600 in a 0700 directory, and is opened
 * once per process, after any fork (W8). Stale readers are checked at open and now and then.
 */
#ifndef CPL3_CORE_INDEX_H
#define CPL3_CORE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/blob.h"

struct index;
struct index_txn;

/* Everything durable about one published blob. */
struct blob_record {
    uint32_t slot_bytes; /* which pool: the slot size of its class; 0 = inline */
    uint32_t slot;       /* in that pool; for inline blobs a virtual one */
    uint64_t sequence;
    uint64_t payload_checksum;
    uint32_t payload_bytes;
    uint32_t epoch;          /* of the rank when it was written */
    uint64_t last_access_ns; /* real time */
    int64_t mtime_ns;        /* real time, as ctime_ns */
    int64_t ctime_ns;
    uint32_t mode; /* permission bits only */
    uint32_t uid, gid;
    uint32_t hits;
    /* named blobs only: where its name stands */
    uint64_t directory;
    uint8_t name_bytes;
    char name[NAME_BYTES_MAX + 1]; /* NUL terminated for printing; byte-exact, no NUL inside */
};

enum name_type { NAME_BLOB, NAME_DIRECTORY };

/* What a name stands for. */
struct name_entry {
    enum name_type type;
    struct blob_key blob; /* NAME_BLOB */
    /* NAME_DIRECTORY */
    uint64_t directory;
    uint32_t mode, uid, gid; /* permission bits only */
    int64_t mtime_ns, ctime_ns;
};

#define DIRECTORY_RANK_SHIFT 48
static inline uint64_t directory_root(uint16_t rank) {
    return (uint64_t)rank << DIRECTORY_RANK_SHIFT | 1;
}
static inline uint16_t directory_rank(uint64_t directory) {
    return (uint16_t)(directory >> DIRECTORY_RANK_SHIFT);
}

uint64_t name_hash64(const char *name, size_t name_bytes);

struct index_options {
    uint64_t map_bytes; /* address space, hence the file's bound; at least twice the file's size at
                           open */
    bool read_only;
    /* Disk blocks kept ahead of the file's end, so that commits work on a full host disk: evicting
     * is what makes room there. 0: none. */
    uint64_t reserve_bytes;
    unsigned readers_max; /* reader slots: threads of all ranks' processes; 0 = 1022 */
};

/* `path`: the store's index directory, made (0700) if missing and not read_only. -errno, one log
 * line with the reason. A damaged file can kill the caller: index_check in a child first. */
int index_open(const char *path, const struct index_options *options, struct index **ret_index);
void index_close(struct index *index); /* NULL is fine */

/* reading: any thread */

/* -ENOENT, -EBADMSG (the record's checksum or form), other -errno. */
int index_get_blob(struct index *index, const struct blob_key *key, struct blob_record *ret_record);
/* The inline payload; exactly payload_bytes of it or -EBADMSG. Its own checksum (the blob's) is
 * checked by the caller, who knows it. */
int index_get_inline(struct index *index, const struct blob_key *key, void *ret_bytes,
                     uint32_t payload_bytes);
int index_get_name(struct index *index, uint64_t directory, const char *name, size_t name_bytes,
                   struct name_entry *ret_entry);

/* A batch of one directory's names with name hash > after_hash (or >= when `inclusive`), in hash
 * order; entries of one hash are never split over two batches, unless they are more than `most`:
 * then only the first `most` of them are ever listed. 0 entries: there are no more. Bad records are
 * skipped. */
struct index_name {
    uint64_t hash;
    struct name_entry entry;
    uint8_t name_bytes;
    char name[NAME_BYTES_MAX + 1];
};
int index_list_names(struct index *index, uint64_t directory, uint64_t after_hash, bool inclusive,
                     struct index_name *ret_names, size_t most, size_t *ret_count);

/* A batch of a rank's blobs of one kind byte (kind, named) with order > after_order (or >=), in
 * order; equal orders are never split, with the same exception. */
struct index_blob {
    struct blob_key key;
    struct blob_record record;
};
int index_list_blobs(struct index *index, uint16_t rank, uint8_t kind, bool named,
                     uint64_t after_order, bool inclusive, struct index_blob *ret_blobs,
                     size_t most, size_t *ret_count);

/* Walks all blobs (all kinds) or all names of a rank in key order, in short transactions, calling
 * back outside of them. Stops at a non-zero answer and returns it. bad_records counts those that
 * failed their checksum (skipped); set when the walk ends with 0. */
int index_each_blob(struct index *index, uint16_t rank,
                    int (*each)(void *argument, const struct index_blob *blob), void *argument,
                    uint64_t *ret_bad_records);
int index_each_name(struct index *index, uint16_t rank,
                    int (*each)(void *argument, uint64_t directory, const struct index_name *name),
                    void *argument, uint64_t *ret_bad_records);

/* 0 and the value, or -ENOENT. Keys: short strings such as "rank 3 next-directory". */
int index_get_meta(struct index *index, const char *key, uint64_t *ret_value);

struct index_usage {
    uint64_t used_bytes; /* pages in use */
    uint64_t file_bytes;
    uint64_t map_bytes;
    uint64_t blobs, inlines, names; /* records of all ranks */
    unsigned readers, readers_max;
};
int index_get_usage(struct index *index, struct index_usage *ret_usage);
/* Frees reader slots of dead processes; the number freed. */
int index_check_readers(struct index *index);

/* writing: a rank's write thread */

/* Waits for other processes' write transactions. */
int index_txn_begin(struct index *index, struct index_txn **ret_txn);
/* Durable when it returns 0. Always ends the transaction; -errno: nothing happened. */
int index_txn_commit(struct index_txn *txn);
void index_txn_abort(struct index_txn *txn); /* NULL is fine */

/* The index was at its bound (map_bytes) when the transaction began. A put that needs space is then
 * refused with -ENOSPC; nothing has changed and the transaction may go on: deletes, meta and values
 * of the size that they replace have a reserve (see index_env.c). */
bool index_txn_is_full(const struct index_txn *txn);

/* All return 0 or -errno. After an error other than -ENOENT, -EBADMSG and the refusal above the
 * transaction must be aborted (a commit does that and returns the error). They see what the
 * transaction itself did. Deletes of what is not there are -ENOENT. One transaction's changes stay
 * below 16 MiB of pages. */
int index_txn_get_blob(struct index_txn *txn, const struct blob_key *key,
                       struct blob_record *ret_record);
int index_txn_put_blob(struct index_txn *txn, const struct blob_key *key,
                       const struct blob_record *record);
int index_txn_delete_blob(struct index_txn *txn, const struct blob_key *key); /* and its inline */
int index_txn_put_inline(struct index_txn *txn, const struct blob_key *key, const void *bytes,
                         uint32_t payload_bytes);
int index_txn_delete_inline(struct index_txn *txn, const struct blob_key *key);
int index_txn_get_name(struct index_txn *txn, uint64_t directory, const char *name,
                       size_t name_bytes, struct name_entry *ret_entry);
int index_txn_put_name(struct index_txn *txn, uint64_t directory, const char *name,
                       size_t name_bytes, const struct name_entry *entry);
int index_txn_delete_name(struct index_txn *txn, uint64_t directory, const char *name,
                          size_t name_bytes);
int index_txn_put_meta(struct index_txn *txn, const char *key, uint64_t value);

/* Deletes up to `most` of a rank's blobs (with inline payloads) / names / names of blobs only. The
 * number deleted; 0 = none left. Call until 0, committing now and then, so that no transaction
 * grows without bound. */
int index_txn_delete_rank_blobs(struct index_txn *txn, uint16_t rank, size_t most);
int index_txn_delete_rank_names(struct index_txn *txn, uint16_t rank, bool keep_directories,
                                size_t most);

/* checking */

/*
 * Forks; the child walks every record of the rank (and the structure of all databases) of the index
 * at `path` and dies if the file makes it die. Before any thread exists. 0: sound (or absent).
 * -EUCLEAN: damaged: the child found disorder, died of a signal, or took longer than the time-out.
 * Other -errno: it could not be tried. ret_reason: what was found, for a message (at most `size`).
 */
int index_check_in_child(const char *path, uint16_t rank, char *ret_reason, size_t size);
/* Removes the index (the lock file and the directory stay), so that index_open makes an empty one.
 * -EBUSY: a process has it open. Other -errno. Not while this process has it open. */
int index_remove_files(const char *path);

#endif
