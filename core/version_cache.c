/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of versions in memory: holds, asking for a load, and which bytes go when another load
 * needs the memory. Bytes with a hold never go (P8); of the others those that nobody references go
 * first, then those read to the end, then the rest, the oldest idle first in each.
 */
#include "core/version.h"

#include <errno.h>
#include <utlist.h>

#include "core/clock.h"
#include "core/loader.h"
#include "core/version_internal.h"

bool version_cache_in_memory(const struct version *version) {
    switch (version->bytes) {
    case BYTES_RESIDENT:
    case BYTES_STAGED:
    case BYTES_LEAVING:
    case BYTES_CACHED:
        return true;
    case BYTES_ABSENT:
    case BYTES_LOADING:
    case BYTES_BAD:
        break;
    }
    return false;
}

/* idle lists: under the mutex */

static void idle_unlink(struct version *version) {
    if (version->idle == IDLE_NONE)
        return;
    DL_DELETE2(version->table->idle[version->idle], version, idle_previous, idle_next);
    version->idle = IDLE_NONE;
}

void version_cache_relink(struct version *version) {
    idle_unlink(version);
    if (version->bytes != BYTES_CACHED || version->holds > 0)
        return;
    if (version->refs == 0)
        version->idle = IDLE_UNREFERENCED;
    else
        version->idle = version->done_reading ? IDLE_FINISHED : IDLE_REFERENCED;
    version->idle_since_ns = clock_monotonic_ns();
    DL_APPEND2(version->table->idle[version->idle], version, idle_previous, idle_next);
}

void version_cache_put(struct version *version, struct buffer *buffer) {
    CHECK(version->place == PLACE_SETTLED && version->bytes != BYTES_CACHED);
    /* Not even with the same value while readers, who hold no mutex, look at it. */
    if (version->buffer != buffer)
        version->buffer = buffer;
    version->bytes = BYTES_CACHED;
    version->table->cached_bytes += buffer_capacity_bytes(buffer);
    version_cache_relink(version);
}

void version_cache_take(struct version *version, struct version_rest *rest) {
    CHECK(version->holds == 0);
    if (!version->buffer)
        return;
    idle_unlink(version);
    if (version->bytes == BYTES_CACHED) {
        uint64_t capacity_bytes = buffer_capacity_bytes(version->buffer);
        CHECK(version->table->cached_bytes >= capacity_bytes);
        version->table->cached_bytes -= capacity_bytes;
    }
    rest->buffer = version->buffer;
    version->buffer = NULL;
    version->bytes = BYTES_ABSENT;
}

/* eviction */

/* Frees one version's bytes that were idle at that time, of the first `lists` idle lists. */
static bool evict_one(struct version_table *table, unsigned lists, uint64_t idle_at_ns) {
    struct version_rest rest = {};
    {
        SCOPE_LOCK(&table->mutex);
        struct version *oldest = NULL;
        for (unsigned i = 0; i < lists && !oldest; i++)
            if (table->idle[i] && table->idle[i]->idle_since_ns <= idle_at_ns)
                oldest = table->idle[i];
        if (!oldest)
            return false;
        if (oldest->refs == 0)
            version_remove(oldest, &rest);
        else
            version_cache_take(oldest, &rest);
    }
    buffer_destroy(rest.buffer);
    free(rest.version);
    return true;
}

void version_cache_evict_idle(struct version_table *table, uint64_t idle_at_ns) {
    while (evict_one(table, IDLE_LISTS, idle_at_ns))
        ;
}

/* All tables of the process; the mutex comes before a table's. */
static pthread_mutex_t peers_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct version_table *peers;

void version_cache_add_peer(struct version_table *table) {
    SCOPE_LOCK(&peers_mutex);
    LL_PREPEND2(peers, table, next_peer);
}

void version_cache_remove_peer(struct version_table *table) {
    SCOPE_LOCK(&peers_mutex);
    LL_DELETE2(peers, table, next_peer);
}

static bool evict_from_peer(const struct version_table *table, unsigned lists) {
    SCOPE_LOCK(&peers_mutex);
    struct version_table *peer;
    LL_FOREACH2(peers, peer, next_peer) {
        if (peer != table && peer->options.buffers == table->options.buffers &&
            evict_one(peer, lists, UINT64_MAX))
            return true;
    }
    return false;
}

bool version_cache_evict_for_load(struct version_table *table) {
    return evict_one(table, IDLE_UNREFERENCED + 1, UINT64_MAX) ||
           evict_from_peer(table, IDLE_UNREFERENCED + 1) ||
           evict_one(table, IDLE_LISTS, UINT64_MAX) || evict_from_peer(table, IDLE_LISTS);
}

void version_table_drop_cache(struct version_table *table) {
    version_cache_evict_idle(table, clock_monotonic_ns());
}

uint64_t version_table_cached_bytes(const struct version_table *table) {
    SCOPE_LOCK((pthread_mutex_t *)&table->mutex);
    return table->cached_bytes;
}

/* holds and loads */

/* Under the mutex. */
static void hold(struct version *version) {
    version->holds++;
    version->done_reading = false;
    idle_unlink(version);
}

bool version_hold_bytes(struct version *version) {
    SCOPE_LOCK(&version->table->mutex);
    CHECK(version->refs > 0);
    if (!version_cache_in_memory(version))
        return false;
    hold(version);
    return true;
}

void version_drop_bytes(struct version *version) {
    struct version_table *table = version->table;
    struct version_rest rest = {};
    bool evictable;
    {
        SCOPE_LOCK(&table->mutex);
        CHECK(version->refs > 0 && version->holds > 0);
        if (--version->holds > 0)
            return;
        if (version->bytes == BYTES_LEAVING)
            version_cache_take(version, &rest);
        version_cache_relink(version);
        evictable = version->idle != IDLE_NONE;
    }
    version_rest_finish(table, &rest);
    if (evictable && atomic_load_explicit(&table->memory_wanted, memory_order_relaxed))
        loader_wake(table->loader);
}

void version_done_reading(struct version *version) {
    SCOPE_LOCK(&version->table->mutex);
    CHECK(version->refs > 0);
    if (version->done_reading)
        return;
    version->done_reading = true;
    version_cache_relink(version);
}

/* Under the mutex: the waiter joins the version's load, which is queued if there is none yet. True:
 * the load thread must hear of it. */
static bool wait_for_load(struct version *version, struct waiter *waiter) {
    struct version_table *table = version->table;
    waiter->next = NULL;
    waiter->deadline_ns = clock_monotonic_ns() + table->times.wait_ns;
    LL_APPEND(version->waiters, waiter);
    bool wake = table->next_expiry_ns == UINT64_MAX;
    if (wake)
        table->next_expiry_ns = waiter->deadline_ns;
    if (version->bytes == BYTES_LOADING)
        return wake;
    CHECK(version->place == PLACE_SETTLED);
    version->bytes = BYTES_LOADING;
    version->refs++;
    LL_APPEND2(table->queue, version, queue_next);
    stats_add(table->options.stats, loads, 1);
    return true;
}

int version_load(struct version *version, struct waiter *waiter) {
    struct version_table *table = version->table;
    bool wake;
    {
        SCOPE_LOCK(&table->mutex);
        CHECK(version->refs > 0);
        if (version_cache_in_memory(version)) {
            hold(version);
            stats_add(table->options.stats, cache_hits, 1);
            return 0;
        }
        if (version->bytes == BYTES_BAD)
            return -EBADMSG;
        if (version->payload_bytes >
            buffer_pool_share_bytes(table->options.buffers, BUFFER_READING))
            return -ENOMEM;
        wake = wait_for_load(version, waiter);
    }
    /* The waiter may have been woken meanwhile: neither it nor the version is touched again. */
    if (wake)
        loader_wake(table->loader);
    return -EINPROGRESS;
}

size_t version_pieces(const struct version *version, uint64_t offset, uint64_t count,
                      struct iovec *ret_pieces, size_t most) {
    CHECK(offset <= version->payload_bytes && count <= version->payload_bytes - offset);
    if (count == 0)
        return 0;
    if (!version->buffer) {
        CHECK(version->bytes == BYTES_RESIDENT && most > 0);
        ret_pieces[0] =
            (struct iovec){.iov_base = (uint8_t *)version->resident + offset, .iov_len = count};
        return 1;
    }
    return buffer_pieces(version->buffer, offset, count, ret_pieces, most);
}
