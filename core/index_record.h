/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of the index: how keys and values are packed, sealed with a checksum, and believed
 * again. Pure functions over memory, any thread; LMDB is not known here. Sizes that come from the
 * index file are checked before anything behind them is read.
 *
 * Keys are drawn in index.h (integers big-endian). Values are little-endian and begin with an
 * XXH3-64 of the rest of the value, seeded with the XXH3-64 of the key: a value moved to another
 * key fails.
 *
 *   blob       checksum | 72 fixed bytes | named only: directory u64, name
 *   name       checksum | type | a blob's key, or a directory's attributes
 *   meta       checksum | u64
 */
#ifndef CPL3_CORE_INDEX_RECORD_H
#define CPL3_CORE_INDEX_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "core/blob.h"
#include "core/index.h"

enum {
    BLOB_KEY_PREFIX_BYTES = 11, /* rank, kind, order */
    BLOB_KEY_BYTES_MAX = BLOB_KEY_PREFIX_BYTES + HASH_BYTES_MAX,
    NAME_KEY_PREFIX_BYTES = 16, /* directory, hash */
    NAME_KEY_BYTES_MAX = NAME_KEY_PREFIX_BYTES + NAME_BYTES_MAX,
    BLOB_VALUE_BYTES_MAX = 88 + NAME_BYTES_MAX,
    NAME_VALUE_BYTES_MAX = 56,
    META_VALUE_BYTES = 16,
    RANK_PREFIX_BYTES = 2, /* of the keys of blobs, inline and names alike */
};

/* A view of bytes that somebody else owns. */
struct index_bytes {
    const uint8_t *data;
    size_t size;
};

/* Packing: what is packed is our own state (CHECK). The number of bytes. */
size_t index_record_pack_blob_key(const struct blob_key *key, uint8_t ret_raw[BLOB_KEY_BYTES_MAX]);
size_t index_record_pack_blob_start(uint16_t rank, uint8_t kind, bool named, uint64_t order,
                                    uint8_t ret_raw[BLOB_KEY_PREFIX_BYTES]);
size_t index_record_pack_blob(struct index_bytes raw_key, const struct blob_record *record,
                              uint8_t ret_raw[BLOB_VALUE_BYTES_MAX]);
size_t index_record_pack_name_key(uint64_t directory, const char *name, size_t name_bytes,
                                  uint8_t ret_raw[NAME_KEY_BYTES_MAX]);
size_t index_record_pack_name_start(uint64_t directory, uint64_t hash,
                                    uint8_t ret_raw[NAME_KEY_PREFIX_BYTES]);
size_t index_record_pack_name(struct index_bytes raw_key, const struct name_entry *entry,
                              uint8_t ret_raw[NAME_VALUE_BYTES_MAX]);
size_t index_record_pack_meta(struct index_bytes raw_key, uint64_t value,
                              uint8_t ret_raw[META_VALUE_BYTES]);

/* Unpacking: 0, or -EBADMSG if the length, the checksum or a field is impossible. */
int index_record_unpack_blob_key(struct index_bytes raw_key, struct blob_key *ret_key);
int index_record_unpack_blob(struct index_bytes raw_key, struct index_bytes value,
                             struct blob_record *ret_record);
/* Key and value at once; the name's directory apart. */
int index_record_unpack_name(struct index_bytes raw_key, struct index_bytes value,
                             uint64_t *ret_directory, struct index_name *ret_name);
/* The value alone, for a lookup whose key was packed here. */
int index_record_unpack_name_entry(struct index_bytes raw_key, struct index_bytes value,
                                   struct name_entry *ret_entry);
int index_record_unpack_meta(struct index_bytes raw_key, struct index_bytes value,
                             uint64_t *ret_value);

/* Where listings order and cut: 0 if the key is too short to have one. */
uint64_t index_record_blob_order(struct index_bytes raw_key);
uint64_t index_record_name_hash(struct index_bytes raw_key);

#endif
