/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a staged version: growing, the copy of the base at the first change, writing,
 * resizing. All under the handle's lock; what has to wait (memory, loading the base) waits as part
 * of an operation and is called again with it.
 */
#ifndef CPL3_FS_STAGING_H
#define CPL3_FS_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;
struct handle;
struct op;

/* The largest size that a staged file may have: max_file, or its payload kind's page. */
uint64_t staging_max_bytes(const struct handle *handle);

/*
 * Makes the content the handle's own, with room for end_bytes and the first keep_bytes of what it
 * was. 0; -EINPROGRESS: call again when the operation goes on; -ENOSPC: no memory for 5 s; -EIO:
 * the base cannot be read any more.
 */
int staging_prepare(struct op *op, uint64_t end_bytes, uint64_t keep_bytes);

/* After staging_prepare for offset + count. What lies between the end and the offset becomes zeros.
 * segment: the buffer whose first segment the bytes are, which may get another one; or NULL. */
void staging_write(struct handle *handle, uint64_t offset, const void *bytes, size_t count,
                   struct buffer *segment);
/* After staging_prepare for size_bytes. */
void staging_resize(struct handle *handle, uint64_t size_bytes);

/*
 * Without locks, after the answer to a WRITE: hashes the next whole segment, if it is there and
 * nobody else works on the handle, so that the close, which waits for the checksum, finds most of
 * it done.
 */
void staging_hash_ahead(struct handle *handle);
/* The checksum of all that is staged. */
uint64_t staging_checksum(struct handle *handle);

#endif
