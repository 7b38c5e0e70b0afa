/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of touched versions: one entry coalesces repeated touches and lives until its time is
 * durable, so the table is as small as the set of blobs read in the last seconds. Versions that
 * were not committed yet when they were touched have no pool: the write thread looks them up by
 * key.
 */
#include "core/touch.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "core/cleanup.h"

struct entry {
    uint64_t sequence; /* unique in the rank */
    struct touch touch;
    bool noted; /* moved since the last drain */
    UT_hash_handle hh;
};

struct touches {
    pthread_mutex_t lock;
    struct entry *by_sequence; /* under lock */
    size_t count;              /* under lock */
    size_t noted;              /* under lock: entries to drain */
};

enum { TOUCHES_MAX = 1 << 20 };

int touches_create(struct touches **ret_touches) {
    struct touches *touches = calloc(1, sizeof(*touches));
    if (!touches)
        return -ENOMEM;
    pthread_mutex_init(&touches->lock, NULL);
    *ret_touches = touches;
    return 0;
}

static void drop_entry(struct touches *touches, struct entry *entry) {
    HASH_DEL(touches->by_sequence, entry);
    touches->count--;
    if (entry->noted)
        touches->noted--;
    free(entry);
}

void touches_destroy(struct touches *touches) {
    if (!touches)
        return;
    struct entry *entry, *next;
    HASH_ITER (hh, touches->by_sequence, entry, next)
        drop_entry(touches, entry);
    pthread_mutex_destroy(&touches->lock);
    free(touches);
}

static struct entry *find(struct touches *touches, uint64_t sequence) {
    struct entry *entry = NULL;
    if (touches->by_sequence)
        HASH_FIND(hh, touches->by_sequence, &sequence, sizeof(sequence), entry);
    return entry;
}

bool touches_add(struct touches *touches, const struct touch *touch) {
    SCOPE_LOCK(&touches->lock);
    struct entry *entry = find(touches, touch->sequence);
    if (entry && entry->touch.access_ns >= touch->access_ns)
        return false;
    if (!entry) {
        entry = touches->count < TOUCHES_MAX ? calloc(1, sizeof(*entry)) : NULL;
        if (!entry)
            return true;
        entry->sequence = touch->sequence;
        HASH_ADD(hh, touches->by_sequence, sequence, sizeof(entry->sequence), entry);
        touches->count++;
    }
    struct pool *pool = touch->pool ? touch->pool : entry->touch.pool;
    uint32_t slot = touch->pool ? touch->slot : entry->touch.slot;
    entry->touch = *touch;
    entry->touch.pool = pool;
    entry->touch.slot = slot;
    if (entry->noted)
        return false;
    entry->noted = true;
    return ++touches->noted == 1;
}

uint64_t touches_latest_ns(struct touches *touches, uint64_t sequence) {
    SCOPE_LOCK(&touches->lock);
    struct entry *entry = find(touches, sequence);
    return entry ? entry->touch.access_ns : 0;
}

size_t touches_drain(struct touches *touches, struct touch **ret_touches) {
    SCOPE_LOCK(&touches->lock);
    struct touch *copies = touches->noted ? calloc(touches->noted, sizeof(*copies)) : NULL;
    if (!copies)
        return 0;
    size_t count = 0;
    struct entry *entry, *next;
    HASH_ITER (hh, touches->by_sequence, entry, next) {
        if (!entry->noted)
            continue;
        copies[count++] = entry->touch;
        entry->noted = false;
    }
    touches->noted = 0;
    *ret_touches = copies;
    return count;
}

size_t touches_snapshot(struct touches *touches, size_t most, struct touch **ret_touches) {
    SCOPE_LOCK(&touches->lock);
    if (most > touches->count)
        most = touches->count;
    struct touch *copies = most ? calloc(most, sizeof(*copies)) : NULL;
    if (!copies)
        return 0;
    size_t count = 0;
    for (struct entry *entry = touches->by_sequence; entry && count < most; entry = entry->hh.next)
        copies[count++] = entry->touch;
    *ret_touches = copies;
    return count;
}

void touches_settle(struct touches *touches, const struct touch *snapshot, size_t count) {
    SCOPE_LOCK(&touches->lock);
    for (size_t i = 0; i < count; i++) {
        struct entry *entry = find(touches, snapshot[i].sequence);
        if (entry && entry->touch.access_ns == snapshot[i].access_ns)
            drop_entry(touches, entry);
    }
}

bool touches_pending(struct touches *touches) {
    SCOPE_LOCK(&touches->lock);
    return touches->count > 0;
}
