/* SPDX-License-Identifier: Apache-2.0 */
/* Packing and unpacking of the index's keys and values, on bytes in memory. */
#include "core/index_record.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

enum { RANK = 0x0102 };

struct packed {
    uint8_t key[NAME_KEY_BYTES_MAX], value[BLOB_VALUE_BYTES_MAX];
    size_t key_bytes, value_bytes;
};

static struct index_bytes key_of(const struct packed *packed) {
    return (struct index_bytes){packed->key, packed->key_bytes};
}

static struct index_bytes value_of(const struct packed *packed) {
    return (struct index_bytes){packed->value, packed->value_bytes};
}

static struct blob_key a_key(bool named, uint32_t hash_bytes) {
    struct blob_key key = {.rank = RANK, .kind = 3, .named = named, .hash_bytes = hash_bytes};
    for (uint32_t i = 0; i < hash_bytes; i++)
        key.hash[i] = (uint8_t)(0xf0 + i);
    return key;
}

static struct blob_record a_record(size_t name_bytes) {
    struct blob_record record = {
        .slot_bytes = 8192,
        .slot = 12,
        .sequence = 1ull << 40,
        .payload_checksum = 0xfedcba9876543210u,
        .payload_bytes = 8192 - HEADER_BYTES,
        .epoch = 9,
        .last_access_ns = 1,
        .mtime_ns = -2,
        .ctime_ns = 3,
        .mode = 07777,
        .uid = UINT32_MAX,
        .gid = 5,
        .hits = 6,
        .directory = name_bytes ? directory_root(RANK) + 7 : 0,
        .name_bytes = (uint8_t)name_bytes,
    };
    for (size_t i = 0; i < name_bytes; i++)
        record.name[i] = (char)(i % 255 + 1 == '/' ? 'x' : i % 255 + 1);
    return record;
}

static struct packed pack_blob(const struct blob_key *key, const struct blob_record *record) {
    struct packed packed;
    packed.key_bytes = index_record_pack_blob_key(key, packed.key);
    packed.value_bytes = index_record_pack_blob(key_of(&packed), record, packed.value);
    return packed;
}

static struct packed pack_name(const char *name, const struct name_entry *entry) {
    struct packed packed;
    packed.key_bytes =
        index_record_pack_name_key(directory_root(RANK), name, strlen(name), packed.key);
    packed.value_bytes = index_record_pack_name(key_of(&packed), entry, packed.value);
    return packed;
}

static int unpack_blob(const struct packed *packed) {
    struct blob_record record;
    return index_record_unpack_blob(key_of(packed), value_of(packed), &record);
}

static int unpack_name(const struct packed *packed) {
    struct index_name name;
    uint64_t directory;
    return index_record_unpack_name(key_of(packed), value_of(packed), &directory, &name);
}

static struct name_entry a_directory(void) {
    return (struct name_entry){.type = NAME_DIRECTORY,
                               .directory = directory_root(RANK) + 5,
                               .mode = 0755,
                               .uid = 1,
                               .gid = 2,
                               .mtime_ns = 3,
                               .ctime_ns = 4};
}

Test(index_record, blob_keys_of_every_hash_length_come_back) {
    for (uint32_t bytes = HASH_BYTES_MIN; bytes <= HASH_BYTES_MAX; bytes++) {
        struct blob_key key = a_key(bytes % 2, bytes), back;
        uint8_t raw[BLOB_KEY_BYTES_MAX];
        size_t size = index_record_pack_blob_key(&key, raw);
        cr_assert_eq(size, BLOB_KEY_PREFIX_BYTES + bytes);
        cr_assert_eq(index_record_unpack_blob_key((struct index_bytes){raw, size}, &back), 0);
        cr_expect_arr_eq(&key, &back, sizeof key);
    }
}

Test(index_record, keys_order_by_rank_then_kind_then_order) {
    struct blob_key key = a_key(true, 16);
    uint8_t raw[BLOB_KEY_BYTES_MAX];
    index_record_pack_blob_key(&key, raw);
    cr_expect_eq(raw[0], 0x01);
    cr_expect_eq(raw[1], 0x02);
    cr_expect_eq(raw[2], 0x83);
    cr_expect_eq(raw[3], blob_key_order64(&key) >> 56);
    cr_expect_eq(raw[10], blob_key_order64(&key) & 0xff);
}

Test(index_record, a_blob_key_of_impossible_form_is_refused) {
    struct blob_key key = a_key(false, 16), back = {0};
    uint8_t raw[BLOB_KEY_BYTES_MAX + 1];
    size_t size = index_record_pack_blob_key(&key, raw);
    for (size_t cut = 0; cut < BLOB_KEY_PREFIX_BYTES + HASH_BYTES_MIN; cut++)
        cr_expect_eq(index_record_unpack_blob_key((struct index_bytes){raw, cut}, &back), -EBADMSG);
    cr_expect_eq(index_record_unpack_blob_key((struct index_bytes){raw, sizeof raw}, &back),
                 -EBADMSG);
    for (size_t i = 0; i < size; i++) {
        uint8_t change = i <= 2 ? 0x70 : 1;
        if (i == 1) /* every low byte of a rank is possible */
            continue;
        raw[i] ^= change;
        cr_expect_eq(index_record_unpack_blob_key((struct index_bytes){raw, size}, &back), -EBADMSG,
                     "byte %zu", i);
        raw[i] ^= change;
    }
    cr_expect_eq(back.hash_bytes, 0, "untouched on failure");
}

Test(index_record, every_field_of_a_blob_record_comes_back) {
    struct blob_key key = a_key(true, 16);
    struct blob_record record = a_record(NAME_BYTES_MAX), back;
    struct packed packed = pack_blob(&key, &record);
    cr_assert_eq(packed.value_bytes, BLOB_VALUE_BYTES_MAX);
    cr_assert_eq(index_record_unpack_blob(key_of(&packed), value_of(&packed), &back), 0);
    cr_expect_eq(back.slot_bytes, record.slot_bytes);
    cr_expect_eq(back.slot, record.slot);
    cr_expect_eq(back.sequence, record.sequence);
    cr_expect_eq(back.payload_checksum, record.payload_checksum);
    cr_expect_eq(back.payload_bytes, record.payload_bytes);
    cr_expect_eq(back.epoch, record.epoch);
    cr_expect_eq(back.last_access_ns, record.last_access_ns);
    cr_expect_eq(back.mtime_ns, record.mtime_ns);
    cr_expect_eq(back.ctime_ns, record.ctime_ns);
    cr_expect_eq(back.mode, record.mode);
    cr_expect_eq(back.uid, record.uid);
    cr_expect_eq(back.gid, record.gid);
    cr_expect_eq(back.hits, record.hits);
    cr_expect_eq(back.directory, record.directory);
    cr_expect_eq(back.name_bytes, record.name_bytes);
    cr_expect_arr_eq(back.name, record.name, NAME_BYTES_MAX + 1);
}

Test(index_record, any_flipped_bit_of_a_blob_record_or_its_key_is_found) {
    struct blob_key key = a_key(true, 9);
    struct blob_record record = a_record(20);
    struct packed packed = pack_blob(&key, &record);
    for (size_t bit = 0; bit < packed.value_bytes * 8; bit++) {
        packed.value[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_expect_eq(unpack_blob(&packed), -EBADMSG, "bit %zu", bit);
        packed.value[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t bit = 0; bit < packed.key_bytes * 8; bit++) {
        packed.key[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_expect_eq(unpack_blob(&packed), -EBADMSG, "key bit %zu", bit);
        packed.key[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    cr_expect_eq(unpack_blob(&packed), 0);
}

Test(index_record, any_other_length_of_a_blob_record_is_refused) {
    for (int named = 0; named < 2; named++) {
        struct blob_key key = a_key(named, 32);
        struct blob_record record = a_record(named ? 20 : 0);
        struct packed packed = pack_blob(&key, &record);
        size_t right = packed.value_bytes;
        for (packed.value_bytes = 0; packed.value_bytes <= sizeof packed.value;
             packed.value_bytes++)
            cr_expect_eq(unpack_blob(&packed), packed.value_bytes == right ? 0 : -EBADMSG);
        packed.value_bytes = SIZE_MAX;
        cr_expect_eq(unpack_blob(&packed), -EBADMSG);
    }
}

Test(index_record, a_payload_that_does_not_fit_its_slot_is_a_bug, .signal = SIGABRT) {
    struct blob_key key = a_key(false, 16);
    struct blob_record record = a_record(0);
    record.payload_bytes++;
    pack_blob(&key, &record);
}

Test(index_record, a_name_of_another_rank_is_a_bug, .signal = SIGABRT) {
    struct blob_key key = a_key(true, 16);
    key.rank = RANK - 1;
    struct name_entry entry = {.type = NAME_BLOB, .blob = key};
    pack_name("x", &entry);
}

Test(index_record, a_name_for_a_blob_comes_back) {
    struct name_entry entry = {.type = NAME_BLOB, .blob = a_key(true, 16)};
    struct packed packed = pack_name("model \xff\x01.bin", &entry);
    struct index_name name;
    uint64_t directory;
    cr_assert_eq(index_record_unpack_name(key_of(&packed), value_of(&packed), &directory, &name),
                 0);
    cr_expect_eq(directory, directory_root(RANK));
    cr_expect_str_eq(name.name, "model \xff\x01.bin");
    cr_expect_eq(name.name_bytes, strlen(name.name));
    cr_expect_eq(name.hash, name_hash64(name.name, name.name_bytes));
    cr_expect_eq(name.entry.type, NAME_BLOB);
    cr_expect(blob_key_equal(&name.entry.blob, &entry.blob));
}

Test(index_record, a_name_for_a_directory_comes_back) {
    struct name_entry entry = a_directory(), back;
    struct packed packed = pack_name("d", &entry);
    cr_assert_eq(index_record_unpack_name_entry(key_of(&packed), value_of(&packed), &back), 0);
    cr_expect_eq(back.type, NAME_DIRECTORY);
    cr_expect_eq(back.directory, entry.directory);
    cr_expect_eq(back.mode, entry.mode);
    cr_expect_eq(back.uid, entry.uid);
    cr_expect_eq(back.gid, entry.gid);
    cr_expect_eq(back.mtime_ns, entry.mtime_ns);
    cr_expect_eq(back.ctime_ns, entry.ctime_ns);
}

Test(index_record, any_flipped_bit_of_a_name_or_its_key_is_found) {
    struct name_entry entries[] = {a_directory(), {.type = NAME_BLOB, .blob = a_key(true, 16)}};
    for (int i = 0; i < 2; i++) {
        struct packed packed = pack_name("name", &entries[i]);
        for (size_t bit = 0; bit < packed.value_bytes * 8; bit++) {
            packed.value[bit / 8] ^= (uint8_t)(1 << bit % 8);
            cr_expect_eq(unpack_name(&packed), -EBADMSG, "bit %zu", bit);
            packed.value[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        for (size_t bit = 0; bit < packed.key_bytes * 8; bit++) {
            packed.key[bit / 8] ^= (uint8_t)(1 << bit % 8);
            cr_expect_eq(unpack_name(&packed), -EBADMSG, "key bit %zu", bit);
            packed.key[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        cr_expect_eq(unpack_name(&packed), 0);
    }
}

Test(index_record, a_name_key_of_impossible_length_is_refused) {
    struct name_entry entry = a_directory();
    struct packed packed = pack_name("name", &entry);
    size_t right = packed.key_bytes;
    for (packed.key_bytes = 0; packed.key_bytes < right; packed.key_bytes++)
        cr_expect_eq(unpack_name(&packed), -EBADMSG);
    packed.key_bytes = NAME_KEY_BYTES_MAX + 1;
    cr_expect_eq(unpack_name(&packed), -EBADMSG);
}

Test(index_record, a_meta_value_belongs_to_its_key) {
    const struct index_bytes key = {(const uint8_t *)"rank 1", 6};
    const struct index_bytes other = {(const uint8_t *)"rank 2", 6};
    uint8_t raw[META_VALUE_BYTES];
    size_t size = index_record_pack_meta(key, 42, raw);
    uint64_t value = 0;
    cr_expect_eq(index_record_unpack_meta(other, (struct index_bytes){raw, size}, &value),
                 -EBADMSG);
    cr_expect_eq(index_record_unpack_meta(key, (struct index_bytes){raw, size - 1}, &value),
                 -EBADMSG);
    cr_expect_eq(value, 0);
    cr_expect_eq(index_record_unpack_meta(key, (struct index_bytes){raw, size}, &value), 0);
    cr_expect_eq(value, 42);
}
