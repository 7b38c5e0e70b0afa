/* SPDX-License-Identifier: Apache-2.0 */
/* The index's few numbers by name, such as each rank's next directory id. */
#include "core/index_internal.h"

#include "core/check.h"

#include <string.h>

static struct index_bytes meta_key(const char *key) {
    size_t size = strlen(key);
    CHECK(size >= 1 && size <= INDEX_KEY_BYTES_MAX);
    return (struct index_bytes){.data = (const uint8_t *)key, .size = size};
}

int index_get_meta(struct index *index, const char *key, uint64_t *ret_value) {
    struct index_bytes raw_key = meta_key(key), value;
    struct MDB_txn *txn;
    int error = index_read_begin(index, &txn);
    if (error)
        return error;
    error = index_lookup(txn, index->meta, raw_key, &value);
    if (!error)
        error = index_record_unpack_meta(raw_key, value, ret_value);
    index_read_end(index, txn);
    return error;
}

int index_txn_put_meta(struct index_txn *txn, const char *key, uint64_t value) {
    struct index_bytes raw_key = meta_key(key);
    uint8_t raw[META_VALUE_BYTES];
    size_t size = index_record_pack_meta(raw_key, value, raw);
    return index_put(txn, txn->index->meta, raw_key, (struct index_bytes){raw, size});
}
