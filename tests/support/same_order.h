/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Content hashes that share their place in listings: XXH3-64 is no cryptographic hash, so 16-byte
 * inputs with one value can be had by algebra. With the halves a and b of an input, each XORed with
 * a constant, the value depends on swap(a) + b + fold(a * b) alone; fold is 0 where a or b is, and
 * b where a is 1.
 */
#ifndef CPL3_TESTS_SAME_ORDER_H
#define CPL3_TESTS_SAME_ORDER_H

#include <stdint.h>
#include <string.h>

enum { SAME_ORDER_HASHES = 3, SAME_ORDER_BYTES = 16 };

/* `number` below SAME_ORDER_HASHES; hashes of one `seed` have one blob_key_order64. */
static inline void same_order_hash(uint32_t seed, unsigned number,
                                   uint8_t ret_hash[SAME_ORDER_BYTES]) {
    const uint64_t flip_a = UINT64_C(0x6782737bea4239b9), flip_b = UINT64_C(0xaf56bc3b0996523a);
    const uint64_t sum = (uint64_t)seed << 1, one_swapped = UINT64_C(1) << 56;
    const uint64_t halves[SAME_ORDER_HASHES][2] = {
        {0, sum}, {__builtin_bswap64(sum), 0}, {1, (sum - one_swapped) / 2}};
    uint64_t a = halves[number][0] ^ flip_a, b = halves[number][1] ^ flip_b;
    memcpy(ret_hash, &a, sizeof a);
    memcpy(ret_hash + sizeof a, &b, sizeof b);
}

#endif
