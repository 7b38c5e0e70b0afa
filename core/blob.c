/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing and reading the header that makes a blob describe itself, and the checksum of its
 * payload. The only code that knows the bytes of struct slot_header besides core/format.h. A header
 * read from disk is outside data: whatever is wrong with it is an error code, never an abort.
 */
#include "core/blob.h"

#include "core/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The library's dispatching entry points pick AVX2 or AVX-512 at run time: 48 GB/s against 11 of
 * the baseline ones, same values. */
#define XXH_STATIC_LINKING_ONLY
#ifdef __x86_64__
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

bool blob_key_equal(const struct blob_key *a, const struct blob_key *b) {
    return memcmp(a, b, sizeof(*a)) == 0;
}

uint64_t blob_key_hash64(const struct blob_key *key) {
    return XXH3_64bits(key, sizeof(*key));
}

uint64_t blob_key_order64(const struct blob_key *key) {
    CHECK(key->hash_bytes <= HASH_BYTES_MAX);
    return XXH3_64bits(key->hash, key->hash_bytes);
}

uint64_t blob_checksum(const struct iovec *pieces, size_t count) {
    if (count == 1)
        return XXH3_64bits(pieces[0].iov_base, pieces[0].iov_len);
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (size_t i = 0; i < count; i++)
        XXH3_64bits_update(&state, pieces[i].iov_base, pieces[i].iov_len);
    return XXH3_64bits_digest(&state);
}

struct blob_hasher {
    XXH3_state_t state;
};

struct blob_hasher *blob_hasher_create(void) {
    struct blob_hasher *hasher = aligned_alloc(_Alignof(struct blob_hasher), sizeof(*hasher));
    if (hasher)
        blob_hasher_start(hasher);
    return hasher;
}

void blob_hasher_destroy(struct blob_hasher *hasher) {
    free(hasher);
}

void blob_hasher_start(struct blob_hasher *hasher) {
    XXH3_64bits_reset(&hasher->state);
}

void blob_hasher_update(struct blob_hasher *hasher, const void *bytes, size_t count) {
    XXH3_64bits_update(&hasher->state, bytes, count);
}

uint64_t blob_hasher_finish(const struct blob_hasher *hasher) {
    return XXH3_64bits_digest(&hasher->state);
}

static bool hash_padding_is_zero(const uint8_t *hash, unsigned hash_bytes) {
    for (unsigned i = hash_bytes; i < HASH_BYTES_MAX; i++)
        if (hash[i] != 0)
            return false;
    return true;
}

static uint32_t header_checksum(const struct slot_header *raw, uint32_t epoch) {
    return (uint32_t)XXH3_64bits_withSeed(raw, offsetof(struct slot_header, header_checksum),
                                          epoch);
}

void blob_header_seal(struct slot_header *ret_raw, const struct blob_header *header,
                      uint32_t epoch) {
    const struct blob_key *key = &header->key;
    CHECK(key->hash_bytes >= HASH_BYTES_MIN && key->hash_bytes <= HASH_BYTES_MAX);
    CHECK(key->named <= 1);
    CHECK(hash_padding_is_zero(key->hash, key->hash_bytes));

    struct slot_header raw = {
        .magic = HEADER_MAGIC,
        .version = FORMAT_VERSION,
        .kind = key->kind,
        .hash_bytes = (uint8_t)(key->hash_bytes | (key->named ? HEADER_NAMED : 0)),
        .rank = key->rank,
        .payload_checksum = header->payload_checksum,
        .sequence = header->sequence,
        .payload_bytes = header->payload_bytes,
    };
    memcpy(raw.hash, key->hash, sizeof(raw.hash));
    raw.header_checksum = header_checksum(&raw, epoch);
    *ret_raw = raw;
}

int blob_header_parse(const struct slot_header *raw, uint32_t epoch,
                      struct blob_header *ret_header) {
    unsigned hash_bytes = raw->hash_bytes & HEADER_HASH_BYTES_MASK;
    unsigned reserved = raw->hash_bytes & (uint8_t) ~(HEADER_HASH_BYTES_MASK | HEADER_NAMED);
    if (memcmp(raw->magic, HEADER_MAGIC, sizeof(raw->magic)) != 0 ||
        raw->version != FORMAT_VERSION || reserved != 0 || hash_bytes < HASH_BYTES_MIN ||
        hash_bytes > HASH_BYTES_MAX || !hash_padding_is_zero(raw->hash, hash_bytes) ||
        raw->header_checksum != header_checksum(raw, epoch))
        return -EBADMSG;

    *ret_header = (struct blob_header){
        .key = {.rank = raw->rank,
                .kind = raw->kind,
                .named = (raw->hash_bytes & HEADER_NAMED) != 0,
                .hash_bytes = hash_bytes},
        .payload_checksum = raw->payload_checksum,
        .sequence = raw->sequence,
        .payload_bytes = raw->payload_bytes,
    };
    memcpy(ret_header->key.hash, raw->hash, sizeof(raw->hash));
    return 0;
}

uint64_t blob_header_fingerprint(const struct slot_header *raw) {
    uint64_t fingerprint = XXH3_64bits(raw, sizeof(*raw));
    return fingerprint ? fingerprint : 1;
}

bool blob_header_matches(const struct blob_header *header, const struct blob_header *expected) {
    return blob_key_equal(&header->key, &expected->key) && header->sequence == expected->sequence &&
           header->payload_bytes == expected->payload_bytes &&
           header->payload_checksum == expected->payload_checksum;
}
