/* SPDX-License-Identifier: Apache-2.0 */
/* Access times: into the LRU order at once, into the index now and then. */
#include <errno.h>
#include <stdlib.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/writer_internal.h"

/* Where the touched version is, if it is committed. */
static bool locate(struct rank *rank, const struct touch *touch, struct pool **ret_pool,
                   uint32_t *ret_slot) {
    if (touch->pool) {
        *ret_pool = touch->pool;
        *ret_slot = touch->slot;
        return true;
    }
    struct blob_record record;
    if (index_get_blob(rank->store->index, &touch->key, &record) < 0 ||
        record.sequence != touch->sequence)
        return false;
    *ret_pool = budget_pool_by_slot_bytes(rank->budgets[touch->key.kind], record.slot_bytes);
    *ret_slot = record.slot;
    return *ret_pool != NULL;
}

/* What is not committed yet gets the time of its latest touch when it settles. */
void writer_drain_touches(struct writer *writer) {
    CHECK_ON(WRITER);
    AUTO_FREE struct touch *touched = NULL;
    size_t count = touches_drain(writer->rank->touches, &touched);
    for (size_t i = 0; i < count; i++) {
        struct pool *pool;
        uint32_t slot;
        if (locate(writer->rank, &touched[i], &pool, &slot))
            gc_touch(writer_gc_of(writer, pool), pool->number, slot, touched[i].sequence,
                     touched[i].access_ns);
    }
}

bool writer_touches_due(const struct writer *writer, uint64_t now_ns) {
    uint64_t age = now_ns - writer->touches_written_ns;
    return (writer->stopping || writer->touches_left ||
            age >= (uint64_t)TOUCH_AGE_MAX_S * 1000000000u) &&
           !writer->rank->store->config.read_only && touches_pending(writer->rank->touches);
}

size_t writer_write_touches(struct writer *writer, struct index_txn *txn,
                            struct touch **ret_snapshot, int *ret_error) {
    uint64_t now = clock_monotonic_ns();
    if (!writer->stopping && !writer->touches_left &&
        now - writer->touches_written_ns < TOUCH_COMMIT_NS)
        return 0;
    writer->touches_written_ns = now;
    size_t count = touches_snapshot(writer->rank->touches, TOUCHES_PER_TXN, ret_snapshot);
    writer->touches_left = count == TOUCHES_PER_TXN;
    for (size_t i = 0; i < count; i++) {
        const struct touch *touch = &(*ret_snapshot)[i];
        struct blob_record record;
        int result = index_txn_get_blob(txn, &touch->key, &record);
        if (result == -ENOENT || result == -EBADMSG)
            continue;
        if (result == 0 && record.sequence == touch->sequence) {
            if (record.last_access_ns < touch->access_ns)
                record.last_access_ns = touch->access_ns;
            record.hits++;
            result = index_txn_put_blob(txn, &touch->key, &record);
        }
        if (result < 0) {
            *ret_error = result;
            break;
        }
    }
    return count;
}
