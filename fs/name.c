/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash names, kinds and ranks as text, in both directions.
 */
#include "fs/name.h"

#include "core/check.h"

#include <stdio.h>
#include <string.h>

enum {
    DIGITS_MIN = 2 * HASH_BYTES_MIN,
    DIGITS_MAX = 2 * HASH_BYTES_MAX,
    NUMBER_MIN = 1 << 16, /* below: the root, .cpl3 and what is in it */
};

static int digit_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

static size_t count_digits(const char *name, size_t name_bytes) {
    size_t count = 0;
    while (count < name_bytes && digit_value(name[count]) >= 0)
        count++;
    return count;
}

/* Kind 0 is written as no suffix at all; false: not a declared kind. */
static bool parse_kind(const struct config *config, const char *suffix, size_t suffix_bytes,
                       uint8_t *ret_kind) {
    if (suffix_bytes == 0) {
        *ret_kind = 0;
        return true;
    }
    if (suffix[0] != '.')
        return false;
    for (unsigned i = 0; i < config->kind_count; i++) {
        const char *name = config->kinds[i].name;
        if (strlen(name) == suffix_bytes - 1 && memcmp(name, suffix + 1, suffix_bytes - 1) == 0) {
            *ret_kind = (uint8_t)(i + 1);
            return true;
        }
    }
    return false;
}

bool name_parse_hash(const struct config *config, uint16_t rank, const char *name,
                     size_t name_bytes, struct blob_key *ret_key) {
    size_t digits = count_digits(name, name_bytes);
    if (digits < DIGITS_MIN || digits > DIGITS_MAX || digits % 2 != 0)
        return false;
    uint8_t kind;
    if (!parse_kind(config, name + digits, name_bytes - digits, &kind))
        return false;
    *ret_key = (struct blob_key){.rank = rank, .kind = kind, .hash_bytes = (uint32_t)digits / 2};
    for (size_t i = 0; i < digits / 2; i++)
        ret_key->hash[i] = (uint8_t)(digit_value(name[2 * i]) << 4 | digit_value(name[2 * i + 1]));
    return true;
}

size_t name_format_hash(const struct config *config, const struct blob_key *key,
                        char ret_name[NAME_BYTES_MAX + 1]) {
    static const char digits[] = "0123456789abcdef";
    CHECK(!key->named && key->hash_bytes <= HASH_BYTES_MAX);
    if (key->kind > config->kind_count)
        return 0;
    size_t length = 0;
    for (size_t i = 0; i < key->hash_bytes; i++) {
        ret_name[length++] = digits[key->hash[i] >> 4];
        ret_name[length++] = digits[key->hash[i] & 15];
    }
    ret_name[length] = '\0';
    if (key->kind != 0)
        length += (size_t)snprintf(ret_name + length, NAME_BYTES_MAX + 1 - length, ".%s",
                                   config->kinds[key->kind - 1].name);
    return length;
}

bool name_parse_rank(const char *name, size_t name_bytes, uint16_t *ret_rank) {
    static const char prefix[] = "rank";
    const size_t prefix_bytes = sizeof prefix - 1;
    if (name_bytes <= prefix_bytes || memcmp(name, prefix, prefix_bytes) != 0)
        return false;
    if (name[prefix_bytes] == '0' && name_bytes > prefix_bytes + 1)
        return false;
    unsigned number = 0;
    for (size_t i = prefix_bytes; i < name_bytes; i++) {
        if (name[i] < '0' || name[i] > '9')
            return false;
        number = number * 10 + (unsigned)(name[i] - '0');
        if (number >= RANKS_MAX)
            return false;
    }
    *ret_rank = (uint16_t)number;
    return true;
}

size_t name_format_rank(uint16_t rank, char ret_name[NAME_BYTES_MAX + 1]) {
    return (size_t)snprintf(ret_name, NAME_BYTES_MAX + 1, "rank%u", rank);
}

uint64_t name_file_number(const struct blob_key *key) {
    uint64_t number;
    if (key->named)
        memcpy(&number, key->hash, sizeof number);
    else
        number = blob_key_hash64(key);
    number &= INT64_MAX;
    return number < NUMBER_MIN ? number + NUMBER_MIN : number;
}
