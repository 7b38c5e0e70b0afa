/* SPDX-License-Identifier: Apache-2.0 */
/* The pure check of W4, on bytes in memory. */
#include "core/verify.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

enum { EPOCH = 3, PAYLOAD_BYTES = 10000 };

static uint8_t payload[PAYLOAD_BYTES];
static struct blob_header expected;
static struct slot_header raw;
static struct verify verify;

static void seal(void) {
    for (size_t i = 0; i < PAYLOAD_BYTES; i++)
        payload[i] = (uint8_t)(i * 31 + 7);
    struct iovec piece = {.iov_base = payload, .iov_len = PAYLOAD_BYTES};
    expected = (struct blob_header){
        .key = {.rank = 5, .kind = 2, .hash_bytes = 32, .hash = "0123456789abcdef0123456789abcde"},
        .payload_checksum = blob_checksum(&piece, 1),
        .sequence = 77,
        .payload_bytes = PAYLOAD_BYTES,
    };
    blob_header_seal(&raw, &expected, EPOCH);
    cr_assert_eq(verify_init(&verify), 0);
}

static void end(void) {
    verify_fini(&verify);
}

TestSuite(verify, .init = seal, .fini = end);

/* Hands the payload over in pieces of so many bytes. */
static const char *verdict(size_t piece_bytes, uint32_t epoch) {
    verify_begin(&verify, &expected, epoch);
    for (size_t done = 0; done < PAYLOAD_BYTES; done += piece_bytes) {
        size_t left = PAYLOAD_BYTES - done;
        verify_payload(&verify, payload + done, left < piece_bytes ? left : piece_bytes);
    }
    return verify_end(&verify, &raw);
}

Test(verify, what_was_sealed_verifies_in_any_pieces) {
    cr_expect_null(verdict(PAYLOAD_BYTES, EPOCH));
    cr_expect_null(verdict(4096, EPOCH));
    cr_expect_null(verdict(1, EPOCH));
}

Test(verify, any_changed_payload_byte_is_found) {
    for (size_t i = 0; i < PAYLOAD_BYTES; i += 37) {
        payload[i] ^= 0x10;
        cr_expect_not_null(verdict(PAYLOAD_BYTES, EPOCH));
        cr_expect_not_null(verdict(4096, EPOCH));
        payload[i] ^= 0x10;
    }
    cr_expect_null(verdict(4096, EPOCH));
}

Test(verify, any_changed_header_bit_is_found) {
    uint8_t *bytes = (uint8_t *)&raw;
    for (size_t bit = 0; bit < 8 * HEADER_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_expect_not_null(verdict(PAYLOAD_BYTES, EPOCH));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    cr_expect_null(verdict(PAYLOAD_BYTES, EPOCH));
}

Test(verify, another_epoch_or_sequence_is_found) {
    cr_expect_not_null(verdict(PAYLOAD_BYTES, EPOCH + 1));
    expected.sequence++;
    cr_expect_not_null(verdict(PAYLOAD_BYTES, EPOCH));
}

Test(verify, a_payload_longer_than_expected_aborts, .signal = SIGABRT) {
    verify_begin(&verify, &expected, EPOCH);
    verify_payload(&verify, payload, PAYLOAD_BYTES);
    verify_payload(&verify, payload, 1);
}

Test(verify, a_verdict_before_all_bytes_came_aborts, .signal = SIGABRT) {
    verify_begin(&verify, &expected, EPOCH);
    verify_payload(&verify, payload, 10);
    verify_end(&verify, &raw);
}
