/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing and unpacking of the index's keys and values. What packing puts in (CHECKed, it is ours),
 * unpacking checks again, since the file may have rotted: first the length, then the checksum, then
 * every field that can be impossible. Unpacking writes its result only when all of that held.
 */
#include "core/index_record.h"

#include "core/check.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

enum {
    KIND_NAMED = 0x80, /* in the kind byte of a key */
    MODE_BITS = 07777,
    NAME_TYPE_BLOB = 1, /* on disk */
    NAME_TYPE_DIRECTORY = 2,
};

#define KEY_SEED 0x63706c33696e6478u /* "cpl3indx" */

struct blob_value {
    uint64_t checksum;
    uint64_t sequence;
    uint64_t payload_checksum;
    uint64_t last_access_ns;
    int64_t mtime_ns;
    int64_t ctime_ns;
    uint32_t slot_bytes;
    uint32_t slot;
    uint32_t payload_bytes;
    uint32_t epoch;
    uint32_t mode;
    uint32_t uid;
    uint32_t gid;
    uint32_t hits;
};
static_assert(sizeof(struct blob_value) == 80);

struct named_blob_value {
    struct blob_value blob;
    uint64_t directory;
    char name[NAME_BYTES_MAX]; /* the value ends where the name ends */
};
static_assert(offsetof(struct named_blob_value, name) == 88);
static_assert(BLOB_VALUE_BYTES_MAX == 88 + NAME_BYTES_MAX);

struct name_blob_value {
    uint64_t checksum;
    uint8_t type;
    uint8_t kind;
    uint8_t named;
    uint8_t hash_bytes;
    uint16_t rank;
    uint16_t reserved; /* zero */
    uint8_t hash[HASH_BYTES_MAX];
};
static_assert(sizeof(struct name_blob_value) == 48);

struct name_directory_value {
    uint64_t checksum;
    uint8_t type;
    uint8_t reserved[3]; /* zero, as reserved2 */
    uint32_t mode;
    uint64_t directory;
    int64_t mtime_ns;
    int64_t ctime_ns;
    uint32_t uid;
    uint32_t gid;
    uint64_t reserved2;
};
static_assert(sizeof(struct name_directory_value) == NAME_VALUE_BYTES_MAX);

struct meta_value {
    uint64_t checksum;
    uint64_t value;
};
static_assert(sizeof(struct meta_value) == META_VALUE_BYTES);

static void put_be16(uint8_t *bytes, uint16_t value) {
    value = htobe16(value);
    memcpy(bytes, &value, sizeof value);
}

static void put_be64(uint8_t *bytes, uint64_t value) {
    value = htobe64(value);
    memcpy(bytes, &value, sizeof value);
}

static uint16_t get_be16(const uint8_t *bytes) {
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return be16toh(value);
}

static uint64_t get_be64(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return be64toh(value);
}

uint64_t name_hash64(const char *name, size_t name_bytes) {
    return XXH3_64bits(name, name_bytes);
}

/* Of everything behind the value's own checksum, which is its first 8 bytes. */
static uint64_t value_checksum(struct index_bytes raw_key, const uint8_t *value, size_t size) {
    uint64_t seed = XXH3_64bits_withSeed(raw_key.data, raw_key.size, KEY_SEED);
    return XXH3_64bits_withSeed(value + sizeof(uint64_t), size - sizeof(uint64_t), seed);
}

static size_t seal(struct index_bytes raw_key, uint8_t *value, size_t size) {
    uint64_t checksum = value_checksum(raw_key, value, size);
    memcpy(value, &checksum, sizeof checksum);
    return size;
}

/* Only after the size has been found possible. */
static bool sealed(struct index_bytes raw_key, struct index_bytes value) {
    uint64_t checksum;
    memcpy(&checksum, value.data, sizeof checksum);
    return checksum == value_checksum(raw_key, value.data, value.size);
}

static bool name_possible(const char *name, size_t name_bytes) {
    return name_bytes >= 1 && name_bytes <= NAME_BYTES_MAX && !memchr(name, '\0', name_bytes) &&
           !memchr(name, '/', name_bytes);
}

static bool zero(const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (bytes[i])
            return false;
    }
    return true;
}

static bool blob_key_possible(const struct blob_key *key) {
    return key->rank < RANKS_MAX && key->kind < PAYLOAD_KINDS_MAX && key->named <= 1 &&
           key->hash_bytes >= HASH_BYTES_MIN && key->hash_bytes <= HASH_BYTES_MAX &&
           zero(key->hash + key->hash_bytes, HASH_BYTES_MAX - key->hash_bytes);
}

/* keys */

size_t index_record_pack_blob_start(uint16_t rank, uint8_t kind, bool named, uint64_t order,
                                    uint8_t ret_raw[BLOB_KEY_PREFIX_BYTES]) {
    CHECK(rank < RANKS_MAX && kind < PAYLOAD_KINDS_MAX);
    put_be16(ret_raw, rank);
    ret_raw[2] = (uint8_t)(kind | (named ? KIND_NAMED : 0));
    put_be64(ret_raw + 3, order);
    return BLOB_KEY_PREFIX_BYTES;
}

size_t index_record_pack_blob_key(const struct blob_key *key, uint8_t ret_raw[BLOB_KEY_BYTES_MAX]) {
    CHECK(blob_key_possible(key));
    size_t size = index_record_pack_blob_start(key->rank, key->kind, key->named,
                                               blob_key_order64(key), ret_raw);
    memcpy(ret_raw + size, key->hash, key->hash_bytes);
    return size + key->hash_bytes;
}

int index_record_unpack_blob_key(struct index_bytes raw_key, struct blob_key *ret_key) {
    if (raw_key.size < BLOB_KEY_PREFIX_BYTES + HASH_BYTES_MIN || raw_key.size > BLOB_KEY_BYTES_MAX)
        return -EBADMSG;
    struct blob_key key = {
        .rank = get_be16(raw_key.data),
        .kind = raw_key.data[2] & ~KIND_NAMED,
        .named = (raw_key.data[2] & KIND_NAMED) != 0,
        .hash_bytes = (uint32_t)raw_key.size - BLOB_KEY_PREFIX_BYTES,
    };
    memcpy(key.hash, raw_key.data + BLOB_KEY_PREFIX_BYTES, key.hash_bytes);
    if (!blob_key_possible(&key) || index_record_blob_order(raw_key) != blob_key_order64(&key))
        return -EBADMSG;
    *ret_key = key;
    return 0;
}

size_t index_record_pack_name_start(uint64_t directory, uint64_t hash,
                                    uint8_t ret_raw[NAME_KEY_PREFIX_BYTES]) {
    put_be64(ret_raw, directory);
    put_be64(ret_raw + 8, hash);
    return NAME_KEY_PREFIX_BYTES;
}

size_t index_record_pack_name_key(uint64_t directory, const char *name, size_t name_bytes,
                                  uint8_t ret_raw[NAME_KEY_BYTES_MAX]) {
    CHECK(name_bytes >= 1 && name_bytes <= NAME_BYTES_MAX);
    size_t size = index_record_pack_name_start(directory, name_hash64(name, name_bytes), ret_raw);
    memcpy(ret_raw + size, name, name_bytes);
    return size + name_bytes;
}

uint64_t index_record_blob_order(struct index_bytes raw_key) {
    return raw_key.size < BLOB_KEY_PREFIX_BYTES ? 0 : get_be64(raw_key.data + 3);
}

uint64_t index_record_name_hash(struct index_bytes raw_key) {
    return raw_key.size < NAME_KEY_PREFIX_BYTES ? 0 : get_be64(raw_key.data + 8);
}

/* blobs */

static bool blob_value_possible(const struct blob_value *value) {
    bool fits = value->slot_bytes
                    ? value->slot_bytes % BLOCK_BYTES == 0 &&
                          (uint64_t)value->payload_bytes + HEADER_BYTES <= value->slot_bytes
                    : value->payload_bytes <= INLINE_BYTES_MAX;
    return fits && !(value->mode & ~(uint32_t)MODE_BITS);
}

size_t index_record_pack_blob(struct index_bytes raw_key, const struct blob_record *record,
                              uint8_t ret_raw[BLOB_VALUE_BYTES_MAX]) {
    struct blob_value value = {
        .sequence = record->sequence,
        .payload_checksum = record->payload_checksum,
        .last_access_ns = record->last_access_ns,
        .mtime_ns = record->mtime_ns,
        .ctime_ns = record->ctime_ns,
        .slot_bytes = record->slot_bytes,
        .slot = record->slot,
        .payload_bytes = record->payload_bytes,
        .epoch = record->epoch,
        .mode = record->mode,
        .uid = record->uid,
        .gid = record->gid,
        .hits = record->hits,
    };
    CHECK(blob_value_possible(&value));
    memcpy(ret_raw, &value, sizeof value);
    if (!(raw_key.data[2] & KIND_NAMED))
        return seal(raw_key, ret_raw, sizeof value);

    CHECK(name_possible(record->name, record->name_bytes));
    CHECK(directory_rank(record->directory) == get_be16(raw_key.data));
    memcpy(ret_raw + sizeof value, &record->directory, sizeof record->directory);
    size_t name_offset = offsetof(struct named_blob_value, name);
    memcpy(ret_raw + name_offset, record->name, record->name_bytes);
    return seal(raw_key, ret_raw, name_offset + record->name_bytes);
}

static void record_from_value(const struct blob_value *value, struct blob_record *ret_record) {
    ret_record->slot_bytes = value->slot_bytes;
    ret_record->slot = value->slot;
    ret_record->sequence = value->sequence;
    ret_record->payload_checksum = value->payload_checksum;
    ret_record->payload_bytes = value->payload_bytes;
    ret_record->epoch = value->epoch;
    ret_record->last_access_ns = value->last_access_ns;
    ret_record->mtime_ns = value->mtime_ns;
    ret_record->ctime_ns = value->ctime_ns;
    ret_record->mode = value->mode;
    ret_record->uid = value->uid;
    ret_record->gid = value->gid;
    ret_record->hits = value->hits;
}

int index_record_unpack_blob(struct index_bytes raw_key, struct index_bytes value,
                             struct blob_record *ret_record) {
    struct named_blob_value raw = {0};
    const size_t name_offset = offsetof(struct named_blob_value, name);
    if (raw_key.size < BLOB_KEY_PREFIX_BYTES)
        return -EBADMSG;
    bool named = (raw_key.data[2] & KIND_NAMED) != 0;
    if (named ? value.size <= name_offset || value.size > BLOB_VALUE_BYTES_MAX
              : value.size != sizeof(struct blob_value))
        return -EBADMSG;
    if (!sealed(raw_key, value))
        return -EBADMSG;
    memcpy(&raw, value.data, value.size);
    if (!blob_value_possible(&raw.blob))
        return -EBADMSG;
    size_t name_bytes = named ? value.size - name_offset : 0;
    if (named && (!name_possible(raw.name, name_bytes) ||
                  directory_rank(raw.directory) != get_be16(raw_key.data)))
        return -EBADMSG;

    record_from_value(&raw.blob, ret_record);
    ret_record->directory = raw.directory;
    ret_record->name_bytes = (uint8_t)name_bytes;
    memcpy(ret_record->name, raw.name, sizeof raw.name);
    ret_record->name[name_bytes] = '\0';
    return 0;
}

/* names */

static size_t pack_name_blob(uint16_t rank, const struct blob_key *blob, uint8_t *ret_raw) {
    CHECK(blob_key_possible(blob) && blob->rank == rank);
    struct name_blob_value value = {
        .type = NAME_TYPE_BLOB,
        .kind = blob->kind,
        .named = blob->named,
        .hash_bytes = (uint8_t)blob->hash_bytes,
        .rank = blob->rank,
    };
    memcpy(value.hash, blob->hash, sizeof value.hash);
    memcpy(ret_raw, &value, sizeof value);
    return sizeof value;
}

static size_t pack_name_directory(uint16_t rank, const struct name_entry *entry, uint8_t *ret_raw) {
    CHECK(directory_rank(entry->directory) == rank && !(entry->mode & ~(uint32_t)MODE_BITS));
    struct name_directory_value value = {
        .type = NAME_TYPE_DIRECTORY,
        .mode = entry->mode,
        .directory = entry->directory,
        .mtime_ns = entry->mtime_ns,
        .ctime_ns = entry->ctime_ns,
        .uid = entry->uid,
        .gid = entry->gid,
    };
    memcpy(ret_raw, &value, sizeof value);
    return sizeof value;
}

size_t index_record_pack_name(struct index_bytes raw_key, const struct name_entry *entry,
                              uint8_t ret_raw[NAME_VALUE_BYTES_MAX]) {
    uint16_t rank = get_be16(raw_key.data);
    size_t size = entry->type == NAME_BLOB ? pack_name_blob(rank, &entry->blob, ret_raw)
                                           : pack_name_directory(rank, entry, ret_raw);
    return seal(raw_key, ret_raw, size);
}

static int unpack_name_blob(uint16_t rank, struct index_bytes value, struct name_entry *ret_entry) {
    struct name_blob_value raw;
    memcpy(&raw, value.data, sizeof raw);
    struct blob_key blob = {
        .rank = raw.rank, .kind = raw.kind, .named = raw.named, .hash_bytes = raw.hash_bytes};
    memcpy(blob.hash, raw.hash, sizeof blob.hash);
    if (raw.type != NAME_TYPE_BLOB || raw.reserved || raw.hash_bytes > HASH_BYTES_MAX ||
        !blob_key_possible(&blob) || blob.rank != rank)
        return -EBADMSG;
    *ret_entry = (struct name_entry){.type = NAME_BLOB, .blob = blob};
    return 0;
}

static int unpack_name_directory(uint16_t rank, struct index_bytes value,
                                 struct name_entry *ret_entry) {
    struct name_directory_value raw;
    memcpy(&raw, value.data, sizeof raw);
    if (raw.type != NAME_TYPE_DIRECTORY || !zero(raw.reserved, sizeof raw.reserved) ||
        raw.reserved2 || raw.mode & ~(uint32_t)MODE_BITS || directory_rank(raw.directory) != rank)
        return -EBADMSG;
    *ret_entry = (struct name_entry){
        .type = NAME_DIRECTORY,
        .directory = raw.directory,
        .mode = raw.mode,
        .uid = raw.uid,
        .gid = raw.gid,
        .mtime_ns = raw.mtime_ns,
        .ctime_ns = raw.ctime_ns,
    };
    return 0;
}

int index_record_unpack_name_entry(struct index_bytes raw_key, struct index_bytes value,
                                   struct name_entry *ret_entry) {
    bool blob = value.size == sizeof(struct name_blob_value);
    if (!blob && value.size != sizeof(struct name_directory_value))
        return -EBADMSG;
    if (raw_key.size < NAME_KEY_PREFIX_BYTES || !sealed(raw_key, value))
        return -EBADMSG;
    uint16_t rank = get_be16(raw_key.data);
    return blob ? unpack_name_blob(rank, value, ret_entry)
                : unpack_name_directory(rank, value, ret_entry);
}

int index_record_unpack_name(struct index_bytes raw_key, struct index_bytes value,
                             uint64_t *ret_directory, struct index_name *ret_name) {
    if (raw_key.size <= NAME_KEY_PREFIX_BYTES || raw_key.size > NAME_KEY_BYTES_MAX)
        return -EBADMSG;
    const char *name = (const char *)raw_key.data + NAME_KEY_PREFIX_BYTES;
    size_t name_bytes = raw_key.size - NAME_KEY_PREFIX_BYTES;
    uint64_t hash = index_record_name_hash(raw_key);
    struct name_entry entry;
    if (!name_possible(name, name_bytes) || hash != name_hash64(name, name_bytes) ||
        index_record_unpack_name_entry(raw_key, value, &entry) != 0)
        return -EBADMSG;
    *ret_directory = get_be64(raw_key.data);
    ret_name->hash = hash;
    ret_name->entry = entry;
    ret_name->name_bytes = (uint8_t)name_bytes;
    memcpy(ret_name->name, name, name_bytes);
    ret_name->name[name_bytes] = '\0';
    return 0;
}

/* meta */

size_t index_record_pack_meta(struct index_bytes raw_key, uint64_t value,
                              uint8_t ret_raw[META_VALUE_BYTES]) {
    struct meta_value raw = {.value = value};
    memcpy(ret_raw, &raw, sizeof raw);
    return seal(raw_key, ret_raw, sizeof raw);
}

int index_record_unpack_meta(struct index_bytes raw_key, struct index_bytes value,
                             uint64_t *ret_value) {
    if (value.size != sizeof(struct meta_value) || !sealed(raw_key, value))
        return -EBADMSG;
    struct meta_value raw;
    memcpy(&raw, value.data, sizeof raw);
    *ret_value = raw.value;
    return 0;
}
