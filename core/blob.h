/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A blob's identity and its header: sealing before a write, parsing and verifying after a read.
 * What sealing puts in, verifying checks again (rule W4). Pure functions, any thread.
 */
#ifndef CPL3_CORE_BLOB_H
#define CPL3_CORE_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/format.h"

/* Which blob: unused bytes of `hash` are zero, so two keys compare with memcmp. No padding. */
struct blob_key {
    uint16_t rank;
    uint8_t kind;
    uint8_t named; /* 0 or 1: the hash is an id of ours and the index holds the name */
    uint32_t hash_bytes;
    uint8_t hash[HASH_BYTES_MAX];
};
static_assert(sizeof(struct blob_key) == 40);

bool blob_key_equal(const struct blob_key *a, const struct blob_key *b);
/* In-memory hash of a key, for hash tables and shards. */
uint64_t blob_key_hash64(const struct blob_key *key);
/* XXH3-64 of the content hash bytes alone: the order of listings (see index.h). */
uint64_t blob_key_order64(const struct blob_key *key);

/* XXH3-64, seed 0, of a payload in pieces. */
uint64_t blob_checksum(const struct iovec *pieces, size_t count);
/* The same while the pieces arrive, in order. One thread at a time. NULL: no memory. */
struct blob_hasher;
struct blob_hasher *blob_hasher_create(void);
void blob_hasher_destroy(struct blob_hasher *hasher); /* NULL is fine */
void blob_hasher_start(struct blob_hasher *hasher);   /* also begins anew */
void blob_hasher_update(struct blob_hasher *hasher, const void *bytes, size_t count);
uint64_t blob_hasher_finish(const struct blob_hasher *hasher); /* of all bytes since start */

/* What a header says, in host order. */
struct blob_header {
    struct blob_key key;
    uint64_t payload_checksum;
    uint64_t sequence;
    uint32_t payload_bytes;
};

/* Writes the 64 header bytes. key->hash_bytes is 8..32. */
void blob_header_seal(struct slot_header *ret_raw, const struct blob_header *header,
                      uint32_t epoch);

/*
 * Reads 64 header bytes. 0, or -EBADMSG: magic, version, hash length, zero padding or the header
 * checksum under this epoch differ. Believes nothing else: see blob_header_matches.
 */
int blob_header_parse(const struct slot_header *raw, uint32_t epoch,
                      struct blob_header *ret_header);

/* XXH3-64 of the 64 bytes, never 0: equal iff the headers are (but for a chance of 2^-64). */
uint64_t blob_header_fingerprint(const struct slot_header *raw);

/* Key, sequence, length and payload checksum all agree (the rest of W4). */
bool blob_header_matches(const struct blob_header *header, const struct blob_header *expected);

#endif
