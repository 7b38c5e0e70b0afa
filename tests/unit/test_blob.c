/* SPDX-License-Identifier: Apache-2.0 */
/* Headers: the exact bytes on disk, and that whatever is not exactly a sealed header is refused. */
#include "core/blob.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <xxhash.h>

static struct blob_header example_header(void) {
    struct blob_header header = {
        .key = {.rank = 0x0203, .kind = 5, .named = 1, .hash_bytes = 16},
        .payload_checksum = 0x1122334455667788,
        .sequence = 0x0102030405060708,
        .payload_bytes = 0xa1b2c3d4,
    };
    for (unsigned i = 0; i < 16; i++)
        header.key.hash[i] = (uint8_t)(0x40 + i);
    return header;
}

static struct slot_header sealed(const struct blob_header *header, uint32_t epoch) {
    struct slot_header raw;
    blob_header_seal(&raw, header, epoch);
    return raw;
}

Test(blob, a_slot_holds_the_payload_and_the_header) {
    cr_expect_eq(slot_bytes_for_page(0), 4096);
    cr_expect_eq(slot_bytes_for_page(1), 4096);
    cr_expect_eq(slot_bytes_for_page(4096 - 64), 4096);
    cr_expect_eq(slot_bytes_for_page(4096 - 63), 8192);
    cr_expect_eq(slot_bytes_for_page(4096), 8192);
    cr_expect_eq(slot_bytes_for_page(4u << 20), (4u << 20) + 4096);
    cr_expect_eq(slot_bytes_for_page(4497408), 4497408 + 4096);
    cr_expect_eq(slot_bytes_for_page(70272), 73728);
    cr_expect_eq(slot_bytes_for_page(UINT32_MAX), (UINT64_C(1) << 32) + 4096);
}

Test(blob, a_sealed_header_has_exactly_these_bytes) {
    static const uint8_t golden[HEADER_BYTES] = {
        'C',  'P',  '3',  1,    5,    0x90, 0x03, 0x02,                         /* to the rank */
        0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, /* hash */
        0x4c, 0x4d, 0x4e, 0x4f, 0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    0,    0,    0,    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x08, 0x07,
        0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0xd4, 0xc3, 0xb2, 0xa1, 0xda, 0x89, 0x44, 0xed,
    };
    struct blob_header header = example_header();
    struct slot_header raw = sealed(&header, 7);
    cr_expect_arr_eq(&raw, golden, HEADER_BYTES);
}

Test(blob, a_sealed_header_parses_to_what_was_sealed) {
    struct blob_header header = example_header(), parsed;
    for (header.key.hash_bytes = HASH_BYTES_MIN; header.key.hash_bytes <= HASH_BYTES_MAX;
         header.key.hash_bytes++) {
        memset(header.key.hash, 0, sizeof(header.key.hash));
        memset(header.key.hash, 0xee, header.key.hash_bytes);
        header.key.named = header.key.hash_bytes % 2;
        struct slot_header raw = sealed(&header, 7);
        memset(&parsed, 0xff, sizeof(parsed));
        cr_assert_eq(blob_header_parse(&raw, 7, &parsed), 0);
        cr_expect(blob_header_matches(&parsed, &header));
    }
}

Test(blob, every_single_flipped_bit_of_a_header_is_refused) {
    struct blob_header header = example_header();
    const struct slot_header whole = sealed(&header, 7);
    for (unsigned bit = 0; bit < 8 * HEADER_BYTES; bit++) {
        struct slot_header raw = whole;
        ((uint8_t *)&raw)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        struct blob_header parsed = {.sequence = 99};
        cr_expect_eq(blob_header_parse(&raw, 7, &parsed), -EBADMSG, "bit %u", bit);
        cr_expect_eq(parsed.sequence, 99, "bit %u: the answer is touched", bit);
    }
}

Test(blob, a_fingerprint_tells_headers_apart_by_any_bit_and_is_never_zero) {
    struct blob_header header = example_header();
    const struct slot_header whole = sealed(&header, 7);
    uint64_t fingerprint = blob_header_fingerprint(&whole);
    cr_expect_eq(blob_header_fingerprint(&whole), fingerprint);
    cr_expect_neq(fingerprint, 0);
    for (unsigned bit = 0; bit < 8 * HEADER_BYTES; bit++) {
        struct slot_header raw = whole;
        ((uint8_t *)&raw)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_expect_neq(blob_header_fingerprint(&raw), fingerprint, "bit %u", bit);
    }
}

Test(blob, a_header_of_another_epoch_is_refused) {
    struct blob_header header = example_header(), parsed;
    struct slot_header raw = sealed(&header, 7);
    cr_expect_eq(blob_header_parse(&raw, 6, &parsed), -EBADMSG);
    cr_expect_eq(blob_header_parse(&raw, 8, &parsed), -EBADMSG);
    cr_expect_eq(blob_header_parse(&raw, 0, &parsed), -EBADMSG);
}

Test(blob, zeros_are_no_header) {
    struct slot_header raw = {0};
    struct blob_header parsed;
    cr_expect_eq(blob_header_parse(&raw, 0, &parsed), -EBADMSG);
}

/* A header with one byte changed and the checksum made right again. */
static int parse_changed(unsigned byte, uint8_t value) {
    struct blob_header header = example_header(), parsed;
    struct slot_header raw = sealed(&header, 7);
    ((uint8_t *)&raw)[byte] = value;
    raw.header_checksum = (uint32_t)XXH3_64bits_withSeed(&raw, 60, 7);
    return blob_header_parse(&raw, 7, &parsed);
}

Test(blob, a_right_checksum_does_not_excuse_a_wrong_field) {
    cr_expect_eq(parse_changed(8, 0x77), 0, "the method itself: another hash byte is fine");
    cr_expect_eq(parse_changed(0, 'c'), -EBADMSG, "magic");
    cr_expect_eq(parse_changed(3, FORMAT_VERSION + 1), -EBADMSG, "version");
    cr_expect_eq(parse_changed(5, 0x90 | 0x40), -EBADMSG, "reserved bit 6");
    cr_expect_eq(parse_changed(5, 0x80 | 15), -EBADMSG, "a hash byte in the padding");
    cr_expect_eq(parse_changed(5, 7), -EBADMSG, "hash too short");
    cr_expect_eq(parse_changed(5, 33), -EBADMSG, "hash too long");
    cr_expect_eq(parse_changed(5, 63), -EBADMSG, "hash much too long");
    cr_expect_eq(parse_changed(39, 1), -EBADMSG, "padding of the hash");
}

Test(blob, a_header_matches_only_if_all_of_it_does) {
    const struct blob_header header = example_header();
    struct blob_header other = header;
    cr_expect(blob_header_matches(&header, &other));
    other.key.rank++;
    cr_expect_not(blob_header_matches(&header, &other));
    other = header;
    other.sequence += UINT64_C(1) << 40;
    cr_expect_not(blob_header_matches(&header, &other));
    other = header;
    other.payload_bytes--;
    cr_expect_not(blob_header_matches(&header, &other));
    other = header;
    other.payload_checksum ^= UINT64_C(1) << 63;
    cr_expect_not(blob_header_matches(&header, &other));
}

Test(blob, sealing_a_short_hash_aborts, .signal = SIGABRT) {
    struct blob_header header = example_header();
    header.key.hash_bytes = HASH_BYTES_MIN - 1;
    sealed(&header, 7);
}

Test(blob, sealing_a_dirty_padding_aborts, .signal = SIGABRT) {
    struct blob_header header = example_header();
    header.key.hash[HASH_BYTES_MAX - 1] = 1;
    sealed(&header, 7);
}

static void fill(uint8_t *payload, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        payload[i] = (uint8_t)(i * 7);
}

static const uint64_t checksum_of_10000 = 0x09ea754d7983b623;

Test(blob, a_checksum_does_not_depend_on_how_the_payload_is_cut) {
    uint8_t payload[10000];
    fill(payload, sizeof(payload));
    struct iovec whole = {payload, sizeof(payload)};
    cr_expect_eq(blob_checksum(&whole, 1), checksum_of_10000);
    for (size_t cut = 0; cut <= sizeof(payload); cut += 97) {
        struct iovec pieces[] = {{payload, cut / 2},
                                 {payload + cut / 2, cut - cut / 2},
                                 {payload + cut, sizeof(payload) - cut}};
        cr_expect_eq(blob_checksum(pieces, 3), checksum_of_10000, "cut at %zu", cut);
    }
    cr_expect_eq(blob_checksum(NULL, 0), UINT64_C(0x2d06800538d394c2), "of nothing");
}

Test(blob, a_hasher_gives_the_same_checksum_each_time_it_starts) {
    uint8_t payload[10000];
    fill(payload, sizeof(payload));
    struct blob_hasher *hasher = blob_hasher_create();
    for (size_t step = 1; step < sizeof(payload); step = step * 3 + 1) {
        blob_hasher_start(hasher);
        for (size_t at = 0; at < sizeof(payload); at += step)
            blob_hasher_update(hasher, payload + at,
                               step < sizeof(payload) - at ? step : sizeof(payload) - at);
        cr_expect_eq(blob_hasher_finish(hasher), checksum_of_10000, "steps of %zu", step);
    }
    blob_hasher_destroy(hasher);
    blob_hasher_destroy(NULL);
}

Test(blob, keys_are_equal_only_if_all_of_them_is) {
    struct blob_key a = example_header().key;
    struct blob_key b = a;
    cr_expect(blob_key_equal(&a, &b));
    cr_expect_eq(blob_key_hash64(&a), blob_key_hash64(&b));
    for (unsigned i = 0; i < sizeof(a); i++) {
        b = a;
        ((uint8_t *)&b)[i] ^= 1;
        cr_expect_not(blob_key_equal(&a, &b), "byte %u", i);
        cr_expect_neq(blob_key_hash64(&a), blob_key_hash64(&b), "byte %u", i);
    }
}

Test(blob, the_order_of_listings_depends_on_the_hash_alone) {
    struct blob_key a = example_header().key, b = a;
    b.rank++;
    b.kind++;
    b.named = !b.named;
    cr_expect_eq(blob_key_order64(&a), blob_key_order64(&b));
    b.hash[0]++;
    cr_expect_neq(blob_key_order64(&a), blob_key_order64(&b));
}
