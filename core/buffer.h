/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payload memory: one bounded pool of 2 MiB-aligned MADV_HUGEPAGE memory for staged writes, for
 * loads and for the WRITEs that are being received (measured: 4 MiB O_DIRECT reads run at 3.8 GB/s
 * into huge pages, at 1.2-2.3 into 4 KiB pages). A background thread touches the pool from the
 * start, since first touch can cost more than the disk. Each use has a fixed share, so that none
 * starves another.
 *
 * A buffer is a row of segments: segment i covers bytes [i, i + 1) MiB; the last may be smaller (a
 * power of two from 4 KiB). Segments are 4 KiB aligned. One thread at a time may change a buffer;
 * reading bytes that do not change is free for all. The pool's functions may run on any thread.
 */
#ifndef CPL3_CORE_BUFFER_H
#define CPL3_CORE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { BUFFER_SEGMENT_BYTES = 1 << 20 };
enum buffer_share { BUFFER_STAGING, BUFFER_READING, BUFFER_REQUESTS, BUFFER_SHARES };

struct buffer_pool;
struct buffer;

/*
 * bytes: the whole pool, rounded up to 2 MiB. share_bytes[s]: what each share may use at most;
 * their sum is at most `bytes`. With touch, a background thread faults the memory in. -ENOMEM,
 * -EINVAL.
 */
int buffer_pool_open(uint64_t bytes, const uint64_t share_bytes[BUFFER_SHARES], bool touch,
                     struct buffer_pool **ret_pool);
/* All buffers are back (CHECK). NULL is fine. */
void buffer_pool_close(struct buffer_pool *pool);

/* Called without locks, from whichever thread freed memory of that share, after each free while
 * anybody is interested (buffer_pool_want); also when the share had room but small blocks kept
 * larger ones apart, and any memory was freed. Set once per share before threads start. */
void buffer_pool_on_free(struct buffer_pool *pool, enum buffer_share share, void (*freed)(void *),
                         void *argument);
/* Asks for one call of on_free at the next free of that share (cheap, atomic). To miss none: want,
 * try again, and only then wait. */
void buffer_pool_want(struct buffer_pool *pool, enum buffer_share share);

uint64_t buffer_pool_used_bytes(const struct buffer_pool *pool, enum buffer_share share);
uint64_t buffer_pool_share_bytes(const struct buffer_pool *pool, enum buffer_share share);

/* New capacity has undefined contents until written or zeroed. capacity_bytes may be 0. -ENOMEM:
 * the share is used up now, or (rarely) the free memory is in pieces that are too small. */
int buffer_create(struct buffer_pool *pool, enum buffer_share share, uint64_t capacity_bytes,
                  struct buffer **ret_buffer);
void buffer_destroy(struct buffer *buffer); /* NULL is fine */

/* Grows the capacity to at least so many bytes, keeping contents (a small last segment may move to
 * a larger one). -ENOMEM: nothing changed. */
int buffer_reserve(struct buffer *buffer, uint64_t capacity_bytes);
/* Gives back whole segments beyond so many bytes. */
void buffer_trim(struct buffer *buffer, uint64_t capacity_bytes);
/* Swaps the whole segment at the offset (a multiple of 1 MiB) with the first one of another buffer
 * of the pool, also a whole one: 1 MiB changes hands without a copy. False: one is not whole. */
bool buffer_exchange_segment(struct buffer *buffer, uint64_t offset, struct buffer *other);
/* Moves the accounting to the other share; false if there is no room in it. */
bool buffer_move_to_share(struct buffer *buffer, enum buffer_share share);
/* What a buffer with this capacity really has, and takes of its share. */
uint64_t buffer_capacity_for(uint64_t capacity_bytes);
uint64_t buffer_capacity_bytes(const struct buffer *buffer);

/* Within the capacity (CHECK). */
void buffer_write(struct buffer *buffer, uint64_t offset, const void *bytes, size_t count);
void buffer_zero(struct buffer *buffer, uint64_t offset, uint64_t count);
void buffer_read(const struct buffer *buffer, uint64_t offset, void *ret_bytes, size_t count);

/* The pieces of [offset, offset + count): at most `most` of them; the number of pieces. Enough room
 * is count / 1 MiB + 2 (CHECK). */
size_t buffer_pieces(const struct buffer *buffer, uint64_t offset, uint64_t count,
                     struct iovec *ret_pieces, size_t most);

#endif
