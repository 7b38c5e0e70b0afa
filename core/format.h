/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on disk in a slab. Fixed-width little-endian fields; only this file and the code that
 * seals and reads headers (core/blob.c) know it. It is a cache: a change bumps FORMAT_VERSION and
 * an older store is refused with the command that makes a new one.
 *
 *  0                       payload_bytes        slot_bytes-64      slot_bytes
 *  |  payload              | padding            | header (64)      |
 *
 * The padding is zero up to the next 4 KiB boundary and in the header's own 4 KiB block; whole
 * blocks between them are not written (a grid class would spend up to a fifth of the disk's
 * bandwidth on them) and are never read.
 */
#ifndef CPL3_CORE_FORMAT_H
#define CPL3_CORE_FORMAT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FORMAT_VERSION = 1,
    BLOCK_BYTES = 4096, /* alignment of slots, O_DIRECT requests and buffers */
    HEADER_BYTES = 64,
    HASH_BYTES_MIN = 8,
    HASH_BYTES_MAX = 32,
    INLINE_BYTES_MAX = 4096,  /* payloads up to this live in the index */
    INLINE_COST_BYTES = 8192, /* and cost this much of kind 0's budget */
    PAYLOAD_KINDS_MAX = 16,   /* kind 0 and 15 declared ones */
    RANKS_MAX = 1024,
    NAME_BYTES_MAX = 255,
};

#define HEADER_MAGIC "CP3"
#define HEADER_HASH_BYTES_MASK 0x3f
#define HEADER_NAMED 0x80 /* the hash is an id of ours: a named file */

struct slot_header {
    uint8_t magic[3];
    uint8_t version;
    uint8_t kind;
    uint8_t hash_bytes; /* low 6 bits; bit 7: HEADER_NAMED */
    uint16_t rank;
    uint8_t hash[HASH_BYTES_MAX]; /* zero padded */
    uint64_t payload_checksum;    /* XXH3-64 of the payload, seed 0 */
    uint64_t sequence;
    uint32_t payload_bytes;
    uint32_t header_checksum; /* low 32 bits of XXH3-64 of bytes 0..59, seeded with the epoch */
};

static_assert(sizeof(struct slot_header) == HEADER_BYTES);
static_assert(offsetof(struct slot_header, version) == 3);
static_assert(offsetof(struct slot_header, kind) == 4);
static_assert(offsetof(struct slot_header, hash_bytes) == 5);
static_assert(offsetof(struct slot_header, rank) == 6);
static_assert(offsetof(struct slot_header, hash) == 8);
static_assert(offsetof(struct slot_header, payload_checksum) == 40);
static_assert(offsetof(struct slot_header, sequence) == 48);
static_assert(offsetof(struct slot_header, payload_bytes) == 56);
static_assert(offsetof(struct slot_header, header_checksum) == 60);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "big-endian hosts are not supported");

static inline uint64_t round_up_to_block(uint64_t bytes) {
    return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

/* Bytes of the smallest slot that holds a page of so many payload bytes. */
static inline uint64_t slot_bytes_for_page(uint64_t payload_bytes) {
    return round_up_to_block(payload_bytes + HEADER_BYTES);
}

#endif
