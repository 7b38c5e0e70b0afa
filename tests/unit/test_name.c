/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of names: what is a content hash, what is not, and back again. */
#include "fs/name.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct config config = {
    .kinds = {{.name = "kv", .payload_bytes = 4194304}, {.name = "indexer", .payload_bytes = 8192}},
    .kind_count = 2,
};

#define HEX16 "0123456789abcdef"
#define HEX64 HEX16 HEX16 HEX16 HEX16

static bool is_hash(const char *name) {
    struct blob_key key;
    return name_parse_hash(&config, 3, name, strlen(name), &key);
}

Test(name, even_numbers_of_16_to_64_lower_case_hex_digits_are_hashes) {
    cr_assert(is_hash(HEX16));
    cr_assert(is_hash(HEX16 "ab"));
    cr_assert(is_hash(HEX64));
}

Test(name, everything_else_is_named) {
    const char *const named[] = {
        "",         "0123456789abcd", HEX16 "a",      HEX64 "ab",       "0123456789ABCDEF",
        HEX16 "g",  "x" HEX16,        HEX16 ".bin",   HEX16 ".",        HEX16 ".kv2",
        HEX16 ".k", HEX16 ".kv.tmp",  HEX16 "_model", "rank0",          HEX16 "a.kv",
        HEX16 " ",  HEX16 ".KV",      ".kv",          HEX16 ".indexer2"};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        cr_assert(!is_hash(named[i]), "%s was taken for a hash", named[i]);
}

Test(name, a_declared_kind_behind_a_dot_is_part_of_the_key) {
    struct blob_key kv, indexer, none;
    cr_assert(name_parse_hash(&config, 3, HEX16 ".kv", 19, &kv));
    cr_assert(name_parse_hash(&config, 3, HEX16 ".indexer", 24, &indexer));
    cr_assert(name_parse_hash(&config, 3, HEX16, 16, &none));
    cr_assert_eq(kv.kind, 1);
    cr_assert_eq(indexer.kind, 2);
    cr_assert_eq(none.kind, 0);
    cr_assert(!blob_key_equal(&kv, &none));
}

Test(name, the_key_holds_the_bytes_that_the_digits_say) {
    struct blob_key key;
    cr_assert(name_parse_hash(&config, 3, HEX16, 16, &key));
    const uint8_t bytes[HASH_BYTES_MAX] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
    cr_assert_eq(key.rank, 3);
    cr_assert_eq(key.named, 0);
    cr_assert_eq(key.hash_bytes, 8);
    cr_assert_arr_eq(key.hash, bytes, sizeof bytes);
}

Test(name, formatting_gives_the_name_that_was_parsed) {
    const char *const names[] = {HEX16, HEX64, HEX16 "00", HEX16 ".kv", HEX64 ".indexer"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct blob_key key;
        char text[NAME_BYTES_MAX + 1];
        cr_assert(name_parse_hash(&config, 0, names[i], strlen(names[i]), &key));
        cr_assert_eq(name_format_hash(&config, &key, text), strlen(names[i]));
        cr_assert_str_eq(text, names[i]);
    }
}

Test(name, a_kind_that_is_not_declared_has_no_name) {
    struct blob_key key = {.kind = 3, .hash_bytes = 8};
    char text[NAME_BYTES_MAX + 1];
    cr_assert_eq(name_format_hash(&config, &key, text), 0);
}

Test(name, ranks_are_written_without_leading_zeros) {
    uint16_t rank = 77;
    cr_assert(name_parse_rank("rank0", 5, &rank));
    cr_assert_eq(rank, 0);
    cr_assert(name_parse_rank("rank1023", 8, &rank));
    cr_assert_eq(rank, 1023);
    const char *const wrong[] = {"rank",   "rank00", "rank01", "rank1024",
                                 "rank-1", "rank1 ", "Rank1",  "rank99999999999999999999",
                                 "ran1",   "1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert(!name_parse_rank(wrong[i], strlen(wrong[i]), &rank), "%s", wrong[i]);
    cr_assert_eq(rank, 1023, "touched on failure");
}

Test(name, a_rank_is_formatted_as_it_is_parsed) {
    char text[NAME_BYTES_MAX + 1];
    uint16_t rank;
    size_t length = name_format_rank(512, text);
    cr_assert_str_eq(text, "rank512");
    cr_assert(name_parse_rank(text, length, &rank));
    cr_assert_eq(rank, 512);
}

Test(name, file_numbers_are_positive_and_never_those_of_the_mount_itself) {
    struct blob_key zero = {.named = 1, .hash_bytes = 16};
    struct blob_key ones = {.named = 1, .hash_bytes = 16};
    memset(ones.hash, 0xff, 16);
    cr_assert_geq(name_file_number(&zero), 1 << 16);
    cr_assert_geq(name_file_number(&ones), 1 << 16);
    cr_assert_eq(name_file_number(&ones) >> 63, 0);
}

Test(name, file_numbers_differ_by_kind_and_by_hash) {
    struct blob_key plain, kv, other;
    cr_assert(name_parse_hash(&config, 3, HEX16, 16, &plain));
    cr_assert(name_parse_hash(&config, 3, HEX16 ".kv", 19, &kv));
    cr_assert(name_parse_hash(&config, 3, HEX16 "01", 18, &other));
    cr_assert_neq(name_file_number(&plain), name_file_number(&kv));
    cr_assert_neq(name_file_number(&plain), name_file_number(&other));
}
