/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must agree before a reader believes the bytes of a slot (rule W4): the header under the
 * record's epoch, everything it says, and the checksum of the whole payload. The payload may come
 * in pieces, in order, while others are still on their way from the disk. Pure; one thread at a
 * time per struct verify.
 */
#ifndef CPL3_CORE_VERIFY_H
#define CPL3_CORE_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/blob.h"

/* All fields are verify.c's own. */
struct verify {
    struct blob_hasher *hasher;
    struct blob_header expected;
    uint32_t epoch;
    uint64_t hashed_bytes;
};

/* -ENOMEM. For any number of blobs, one after the other. */
int verify_init(struct verify *verify);
void verify_fini(struct verify *verify); /* a zeroed one is fine */

void verify_begin(struct verify *verify, const struct blob_header *expected, uint32_t epoch);
/* The next `count` payload bytes. */
void verify_payload(struct verify *verify, const void *bytes, uint64_t count);
/* After all payload bytes: NULL if everything agrees, else the reason for a message. */
const char *verify_end(const struct verify *verify, const struct slot_header *raw);

#endif
