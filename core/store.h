/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only door to the engine for fs/ and tools/. A store is a directory: superblock, index/ and
 * rank<N>/ (epoch, lock, *.slab). A process opens one store, for one rank or a row of ranks; each
 * rank has its own write thread and load thread and shares nothing with the others but the index
 * file and the payload memory.
 *
 * All rank_ functions may be called by any thread and never wait for I/O or for another thread;
 * what has to wait takes a waiter (core/waiter.h). Changes (publish, unlink, rename, mkdir,
 * attributes) are visible to every lookup when the function returns and durable with the next
 * commit. Errors are -errno; on failure nothing changed and ret_ parameters are untouched.
 */
#ifndef CPL3_CORE_STORE_H
#define CPL3_CORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "core/blob.h"
#include "core/buffer.h"
#include "core/config.h"
#include "core/index.h"
#include "core/stats.h"
#include "core/version.h"
#include "core/waiter.h"

struct store;
struct rank;

/* What fs/ wants to hear. Called on a write or load thread, no locks held; must not wait. */
struct store_events {
    /* The blob is no longer there and no client asked for that: evicted, dropped as bad, withdrawn.
     * For named blobs the record tells where the name stood. */
    void (*blob_gone)(void *argument, struct rank *rank, const struct blob_key *key,
                      const struct blob_record *record);
    /* Runtime clear: every blob of the rank is gone. */
    void (*rank_cleared)(void *argument, struct rank *rank);
    /* The disk has taken something: a payload, or a commit. */
    void (*progressed)(void *argument);
    void *argument;
};

/* life */

/*
 * Checks that the store can be opened as configured, without changing anything: superblock, format,
 * sizes, rank locks (tried and released; waits for a holder that is ending). 0, or -errno after one
 * log line that says what, the value found and what is allowed. For before the fork into the
 * background.
 */
int store_preflight(const struct config *config);
/*
 * Opens (makes, if new) the store, locks its ranks, runs the cold start of each, starts the
 * threads. After the fork into the background (W8), before any other thread of the process except
 * none. -errno after one log line.
 */
int store_open(const struct config *config, const struct store_events *events,
               struct store **ret_store);
/*
 * For who asks for a rank of ours meanwhile: it is served by the mount on this device (st_dev) and
 * stays in use; or it is about to be free, and waiting is worth while.
 */
void store_note_serving(struct store *store, unsigned major, unsigned minor);
void store_note_closing(struct store *store);
/* Commits everything, marks the ranks clean, ends the threads. All versions are back. NULL is fine.
 */
void store_close(struct store *store);

/* The living process that serves the mount on this device out of a store. -ENOENT: not known (it is
 * read-only, or the store is out of sight); -ESRCH: that process has ended or is dying. */
int store_find_server(const char *store_path, unsigned major, unsigned minor, pid_t *ret_pid);

const struct config *store_config(const struct store *store);        /* with defaults resolved */
struct buffer_pool *store_buffers(const struct store *store);        /* BUFFER_STAGING is for fs/ */
struct rank *store_rank(const struct store *store, uint16_t number); /* NULL: not mounted here */
uint16_t rank_number(const struct rank *rank);
struct rank_stats *rank_get_stats(struct rank *rank);

/* looking up */

/* The current record. -ENOENT. last_access_ns includes touches that are not durable yet. */
int rank_get_blob(struct rank *rank, const struct blob_key *key, struct blob_record *ret_record);
/* What a name in a directory stands for. -ENOENT. Named files and directories only. */
int rank_get_name(struct rank *rank, uint64_t directory, const char *name, size_t name_bytes,
                  struct name_entry *ret_entry);
/*
 * A reference to the current version (its slot is pinned while it is held; version_unref). sequence
 * 0: whichever is current; else -ESTALE if another one is. -ENOENT. ret_record may be NULL. Does
 * not touch and does not load.
 */
int rank_open_version(struct rank *rank, const struct blob_key *key, uint64_t sequence,
                      struct version **ret_version, struct blob_record *ret_record);
/* Moves the blob to the most recently used end: opened, read, or utimensat of its atime (then
 * access_ns; 0 = now; earlier than what is known is ignored). Cheap, coalesced. */
void rank_touch(struct rank *rank, const struct blob_key *key, uint64_t access_ns);

/* One directory entry as found. Hash-named blobs (only under the root) have name_bytes 0: fs/name.c
 * makes their name of the key. */
struct list_entry {
    uint64_t cookie; /* 63 bits; names the place after this entry; never 0 */
    enum name_type type;
    struct blob_key key;         /* NAME_BLOB */
    struct blob_record record;   /* NAME_BLOB */
    struct name_entry directory; /* NAME_DIRECTORY */
    uint8_t name_bytes;
    char name[NAME_BYTES_MAX + 1];
};
/*
 * The next entries of a directory after a cookie (0: from the start), in cookie order, stable under
 * concurrent changes: what is there throughout is listed exactly once. *ret_count 0: the end.
 */
int rank_list(struct rank *rank, uint64_t directory, uint64_t after_cookie,
              struct list_entry *ret_entries, size_t most, size_t *ret_count);

/* publishing */

/* Space promised to one publication: from rank_reserve until rank_publish or rank_unreserve. */
struct reservation {
    struct waiter waiter; /* set waiter.wake before */
    struct pool *pool;
    uint64_t payload_bytes;
    struct rank *rank;
};
/*
 * Takes the bytes that a payload of this kind and size needs. 0; -EINPROGRESS: waiter.wake is
 * called with 0, or -ENOSPC (nothing is evictable, or 5 s passed); -EFBIG. Waits for GC and while
 * more than 256 MiB are published but not durable.
 */
int rank_reserve(struct rank *rank, uint8_t kind, uint64_t payload_bytes,
                 struct reservation *reservation);
void rank_unreserve(struct reservation *reservation);

/* A new id for a named blob (16 bytes, unique). */
void rank_new_blob_id(struct rank *rank, struct blob_key *ret_key);

/* What readers will verify. Takes a while for large payloads: hold no lock that others need. */
uint64_t publication_checksum(const struct buffer *buffer, uint64_t payload_bytes);

/* One step, all or nothing: the blob's new version, its name, and what it replaces. */
struct publication {
    struct blob_key key;
    struct buffer *buffer;     /* payload from offset 0; core's on success. NULL only for 0 bytes */
    uint64_t payload_checksum; /* publication_checksum of it */
    uint32_t mode, uid, gid;
    int64_t mtime_ns; /* 0: now */
    /* named blobs: the entry to set (always given: it is rewritten) */
    uint64_t directory;
    const char *name;
    size_t name_bytes;
    /* other blobs that go in the same step: what the name held, what a rename moved away from */
    struct blob_key remove[2];
    unsigned remove_count;
    /* a name that goes in the same step (rename of a file across names by copy); 0 bytes: none */
    uint64_t remove_directory;
    const char *remove_name;
    size_t remove_name_bytes;
};
/* ret_version: a reference to the new version. Uses up the reservation on success. -EISDIR.
 * Whatever else the name or the blob's older name held goes too: one name a blob, one blob a name.
 */
int rank_publish(struct rank *rank, struct reservation *reservation,
                 const struct publication *publication, struct version **ret_version,
                 struct blob_record *ret_record);

/* other changes */

int rank_unlink_blob(struct rank *rank, const struct blob_key *key); /* hash-named; -ENOENT */
/* A named blob: its name and the blob. -ENOENT, -EISDIR. */
int rank_unlink_name(struct rank *rank, uint64_t directory, const char *name, size_t name_bytes);
/* entry: mode, uid, gid, times; its directory id is chosen here. -EEXIST, -ENOSPC (2^20 of them).
 */
int rank_make_directory(struct rank *rank, uint64_t directory, const char *name, size_t name_bytes,
                        const struct name_entry *entry, uint64_t *ret_directory);
/* -ENOENT, -ENOTDIR, -ENOTEMPTY (published entries; staged ones are the caller's to check). */
int rank_remove_directory(struct rank *rank, uint64_t directory, const char *name,
                          size_t name_bytes);

struct rank_rename {
    uint64_t from_directory, to_directory;
    const char *from_name, *to_name;
    size_t from_bytes, to_bytes;
    /* a hash-named blob that stands under the target name and goes in the same step */
    bool remove_hash;
    struct blob_key hash;
};
/* A named blob or a directory; over a named blob, or a directory over an empty one. -ENOENT,
 * -EISDIR, -ENOTDIR, -ENOTEMPTY. The caller keeps a directory from moving below itself. */
int rank_rename_name(struct rank *rank, const struct rank_rename *rename);

enum attribute {
    ATTRIBUTE_MODE = 1,
    ATTRIBUTE_UID = 2,
    ATTRIBUTE_GID = 4,
    ATTRIBUTE_MTIME = 8,
};
struct attributes {
    unsigned set; /* enum attribute */
    uint32_t mode, uid, gid;
    int64_t mtime_ns;
};
/* -ENOENT. The version stays the same; ctime moves. */
int rank_set_blob_attributes(struct rank *rank, const struct blob_key *key,
                             const struct attributes *attributes);
int rank_set_directory_attributes(struct rank *rank, uint64_t directory, const char *name,
                                  size_t name_bytes, const struct attributes *attributes);

/* durability and whole-rank operations */

/*
 * All changes made before are durable when the waiter is woken (always -EINPROGRESS, or 0 when
 * there is nothing to commit): 0, or -ENOSPC (the host's disk is full) or -EIO when a version among
 * them was withdrawn.
 */
int rank_commit(struct rank *rank, struct waiter *waiter);
/* Forgets every blob of the rank (directories stay), on the write thread; the waiter is woken when
 * it is durable. Always -EINPROGRESS. -EROFS. */
int rank_clear(struct rank *rank, struct waiter *waiter);

struct rank_usage {
    uint64_t size_bytes;        /* the rank's bound */
    uint64_t taken_bytes;       /* promised to blobs */
    uint64_t evictable_bytes;   /* of those: durable and in nobody's use; approximate */
    uint64_t backed_bytes;      /* disk blocks of slabs, and inline cost */
    uint64_t live_slots;        /* blobs, inline ones included */
    uint64_t common_slot_bytes; /* the class with the most blobs: what statfs counts files in */
    uint64_t free_slots;        /* of that class, by remaining bytes */
    uint64_t pending_bytes;     /* published, not durable yet */
    uint64_t directories;
};
void rank_get_usage(struct rank *rank, struct rank_usage *ret_usage);

/* Everything, for people and for machines. */
void store_print_stats(struct store *store, FILE *out);   /* `key value` lines, grouped by rank */
void store_print_metrics(struct store *store, FILE *out); /* Prometheus text format */
void store_print_config(struct store *store, FILE *out);  /* what is in force, `key=value` */

/* Checks the whole state of a rank against itself (pools, accounts, GC, index); CHECKs our own, and
 * for the rest returns the number of disagreements printed to `out`. Waits for the write thread to
 * be idle: tests and fsck. */
uint64_t rank_verify(struct rank *rank, FILE *out);

#endif
