/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access times on their way to the LRU order: readers note them here, the write thread drains them
 * and writes them with a later commit, within 10 s.
 */
#ifndef CPL3_CORE_TOUCH_H
#define CPL3_CORE_TOUCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/blob.h"
#include "core/budget.h"

struct touches;

struct touch {
    struct pool *pool; /* NULL: the blob was not committed yet: look `key` up again */
    uint32_t slot;
    uint64_t sequence;
    uint64_t access_ns;
    struct blob_key key;
};

int touches_create(struct touches **ret_touches);
void touches_destroy(struct touches *touches); /* NULL is fine */

/* Any thread. Moves the slot's access time later, never earlier; true if the write thread should
 * be woken (nothing was noted before). Lost when memory is short: it is only a hint. */
bool touches_add(struct touches *touches, const struct touch *touch);
/* Any thread: the latest time noted for this version that is not durable yet, or 0. */
uint64_t touches_latest_ns(struct touches *touches, uint64_t sequence);
/* Write thread: what was noted or moved since the last drain; malloc'ed, freed by the caller; the
 * count. The entries stay until they are settled, so that `stat` keeps showing them. */
size_t touches_drain(struct touches *touches, struct touch **ret_touches);
/* Write thread: up to `most` entries, to be written to the index. As above. */
size_t touches_snapshot(struct touches *touches, size_t most, struct touch **ret_touches);
/* Write thread, after the commit: forgets those of the snapshot that were not moved since. */
void touches_settle(struct touches *touches, const struct touch *snapshot, size_t count);
/* Any thread: is there anything to be written? */
bool touches_pending(struct touches *touches);

#endif
