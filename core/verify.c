/* SPDX-License-Identifier: Apache-2.0 */
/* The read side of rule W4; what it checks is what blob_header_seal and the writer put in. */
#include "core/verify.h"

#include <errno.h>

#include "core/check.h"

int verify_init(struct verify *verify) {
    verify->hasher = blob_hasher_create();
    return verify->hasher ? 0 : -ENOMEM;
}

void verify_fini(struct verify *verify) {
    blob_hasher_destroy(verify->hasher);
    verify->hasher = NULL;
}

void verify_begin(struct verify *verify, const struct blob_header *expected, uint32_t epoch) {
    verify->expected = *expected;
    verify->epoch = epoch;
    verify->hashed_bytes = 0;
    blob_hasher_start(verify->hasher);
}

void verify_payload(struct verify *verify, const void *bytes, uint64_t count) {
    CHECK(count <= verify->expected.payload_bytes - verify->hashed_bytes);
    blob_hasher_update(verify->hasher, bytes, count);
    verify->hashed_bytes += count;
}

const char *verify_end(const struct verify *verify, const struct slot_header *raw) {
    CHECK(verify->hashed_bytes == verify->expected.payload_bytes);
    struct blob_header found;
    if (blob_header_parse(raw, verify->epoch, &found) < 0)
        return "the slot has no valid header";
    if (!blob_header_matches(&found, &verify->expected))
        return "the slot's header is another blob's";
    if (blob_hasher_finish(verify->hasher) != verify->expected.payload_checksum)
        return "payload checksum differs";
    return NULL;
}
