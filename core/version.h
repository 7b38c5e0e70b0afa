/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A version is one published content of a blob: (key, sequence). It knows where its bytes are
 * (memory until committed, then the slot, or the index for inline ones), pins its slot while
 * anybody holds the version, loads and verifies the bytes when asked, and shares them between all
 * readers. The table of versions of a rank is thereby also the read cache: verified bytes stay in
 * the reading share until another load needs the memory (oldest idle first), an idle time of 30 s,
 * or the slot is retired and nobody holds the version.
 *
 * Loads run on the rank's load thread: 1 MiB requests, 8 in flight a blob, hashed as they land. A
 * blob that does not verify (W4: pin, header, hash, sequence, length, epoch, checksum of the whole
 * payload) is reported to on_bad once and every waiter gets -EBADMSG: never wrong bytes.
 *
 * Any thread may call anything here unless it says otherwise. Locks: the table's mutex, never held
 * across I/O, hashing or callbacks.
 */
#ifndef CPL3_CORE_VERSION_H
#define CPL3_CORE_VERSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/blob.h"
#include "core/budget.h"
#include "core/buffer.h"
#include "core/index.h"
#include "core/slab.h"
#include "core/stats.h"
#include "core/waiter.h"

struct version;
struct version_table;

struct version_table_options {
    uint16_t rank;
    struct buffer_pool *buffers;
    enum slab_engine engine;
    struct rank_stats *stats;
    /* Load thread, no locks held: these bytes did not verify (or the disk failed twice): drop the
     * record if it still has this sequence. */
    void (*on_bad)(void *argument, const struct blob_key *key, uint64_t sequence,
                   const char *reason);
    /* Any thread, no locks held: the last pin of a retired slot is gone; it may be freed. */
    void (*on_unpinned)(void *argument, struct pool *pool, uint32_t slot);
    void *argument;
};

/* Starts the load thread. */
int version_table_open(const struct version_table_options *options, struct version_table **ret);
/* All references are back (CHECK). Ends the thread. NULL is fine. */
void version_table_close(struct version_table *table);

/*
 * A new version whose bytes are in memory and verified by construction (being published). Owns the
 * buffer from now on (NULL for inline: `inline_bytes` are copied). One reference for the caller.
 * -ENOMEM: the buffer stays the caller's.
 */
int version_create_staged(struct version_table *table, const struct blob_key *key,
                          const struct blob_record *record, struct buffer *buffer,
                          const void *inline_bytes, struct version **ret_version);
/*
 * A version of a committed record: the one in the table, or a new one that pins the slot.
 * inline_bytes: for a new inline one, its payload (verified here against the record's checksum).
 * -ESTALE: the slot no longer holds that sequence (look the record up again). -EBADMSG: the inline
 * payload does not verify, or the record cannot be right (a slot that the pool does not have, more
 * payload than fits, another key than the version of that sequence has). Neither is counted or told
 * to on_bad here: the record may only be old. -ENOMEM. One new reference.
 */
int version_acquire(struct version_table *table, const struct blob_key *key,
                    const struct blob_record *record, struct pool *pool, const void *inline_bytes,
                    struct version **ret_version);
struct version *version_ref(struct version *version);
void version_unref(struct version *version); /* NULL is fine */

/* Write thread: its bytes are durable in this slot (LIVE with this sequence) and committed; pins it
 * for whoever holds the version (the caller does, at least). The buffer goes to the reading share
 * if there is room, else it is freed when nobody uses it. Inline: pool is the inline pool. */
void version_settle(struct version *version, struct pool *pool, uint32_t slot);
/* Write thread: it could not be stored. Holders keep the bytes in memory; it is in no slot. */
void version_withdraw(struct version *version);
bool version_is_withdrawn(const struct version *version);
/* Write thread, at retire: drops cached bytes as soon as nobody holds the version. */
void version_forget(struct version_table *table, uint64_t sequence);

/*
 * Makes the bytes available. 0: they are. -EINPROGRESS: the waiter will be called with 0, -EBADMSG
 * (dropped: a miss), -EIO (the disk; a miss now), -ETIMEDOUT (5 s). At once: -EBADMSG (an earlier
 * load found it bad), -ENOMEM (larger than the reading share: a miss as long as this mount lasts).
 * On success, in either way, the caller has a hold on the bytes (see version_drop_bytes): they
 * cannot go before it has answered. The caller keeps its reference until then.
 */
int version_load(struct version *version, struct waiter *waiter);
/*
 * Holds the bytes for reading if they are in memory; false: version_load. The hold ends with
 * version_drop_bytes; the bytes cannot go meanwhile.
 */
bool version_hold_bytes(struct version *version);
void version_drop_bytes(struct version *version);
/* With a hold, in [0, payload_bytes]: the pieces (buffer_pieces). */
size_t version_pieces(const struct version *version, uint64_t offset, uint64_t count,
                      struct iovec *ret_pieces, size_t most);
/* Read to the end: the bytes may go first when memory is needed (until the next hold). */
void version_done_reading(struct version *version);

/* Fixed after creation. */
const struct blob_key *version_key(const struct version *version);
uint64_t version_sequence(const struct version *version);
uint32_t version_payload_bytes(const struct version *version);
uint64_t version_payload_checksum(const struct version *version);

/* The buffer of a staged version, for the write thread, until it settles (NULL: inline; then
 * version_pieces gives the bytes). */
struct buffer *version_staged_buffer(struct version *version);

/* Drops all cached bytes that nobody holds (tests, cold reads in benchmarks). */
void version_table_drop_cache(struct version_table *table);
uint64_t version_table_count(const struct version_table *table);
uint64_t version_table_cached_bytes(const struct version_table *table);
uint64_t version_table_pinned_bytes(const struct version_table *table); /* of slots in use */

#endif
