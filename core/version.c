/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of a rank's versions: references, and the pins that they stand for. A version in a slot
 * is pinned once while anybody holds it; without references it may stay in the table, unpinned, as
 * long as its bytes are cached, and has to win its pin again when it is acquired (W4).
 */
#include "core/version.h"

#include <errno.h>
#include <string.h>

#include "core/loader.h"
#include "core/version_internal.h"

const struct version_times version_times_default = {
    .wait_ns = WAIT_MAX_SECONDS * 1000000000ull,
    .idle_ns = 30000000000ull,
    .sweep_ns = 1000000000ull,
    .retry_ns = 10000000ull,
};

void version_rest_finish(struct version_table *table, const struct version_rest *rest) {
    bool freed_memory = rest->buffer != NULL;
    buffer_destroy(rest->buffer);
    free(rest->version);
    if (freed_memory && atomic_load_explicit(&table->memory_wanted, memory_order_relaxed))
        loader_wake(table->loader);
    if (rest->pool)
        table->options.on_unpinned(table->options.argument, rest->pool, rest->slot);
}

/* the table */

int version_table_open_timed(const struct version_table_options *options,
                             const struct version_times *times, struct version_table **ret_table) {
    struct version_table *table = calloc(1, sizeof *table);
    if (!table)
        return -ENOMEM;
    table->options = *options;
    table->times = *times;
    table->next_expiry_ns = UINT64_MAX;
    pthread_mutex_init(&table->mutex, NULL);
    int result = loader_open(table, &table->loader);
    if (result < 0) {
        pthread_mutex_destroy(&table->mutex);
        free(table);
        return result;
    }
    version_cache_add_peer(table);
    *ret_table = table;
    return 0;
}

int version_table_open(const struct version_table_options *options, struct version_table **ret) {
    return version_table_open_timed(options, &version_times_default, ret);
}

void version_table_close(struct version_table *table) {
    if (!table)
        return;
    version_cache_remove_peer(table);
    loader_close(table->loader);
    struct version *version, *following;
    HASH_ITER (hh, table->by_sequence, version, following) {
        struct version_rest rest = {};
        version_remove(version, &rest);
        buffer_destroy(rest.buffer);
        free(rest.version);
    }
    CHECK(table->cached_bytes == 0);
    pthread_mutex_destroy(&table->mutex);
    free(table);
}

uint64_t version_table_count(const struct version_table *table) {
    SCOPE_LOCK((pthread_mutex_t *)&table->mutex);
    return HASH_COUNT(table->by_sequence);
}

static struct version *table_find(struct version_table *table, uint64_t sequence) {
    struct version *version;
    HASH_FIND(hh, table->by_sequence, &sequence, sizeof sequence, version);
    return version;
}

static int table_add(struct version_table *table, struct version *version) {
    HASH_ADD(hh, table->by_sequence, sequence, sizeof version->sequence, version);
    return version->hh.tbl ? 0 : -ENOMEM;
}

void version_remove(struct version *version, struct version_rest *rest) {
    CHECK(version->refs == 0 && version->holds == 0 && version->bytes != BYTES_LOADING);
    HASH_DEL(version->table->by_sequence, version);
    version_cache_take(version, rest);
    rest->version = version;
}

/* making */

static struct version *make_version(struct version_table *table, const struct blob_key *key,
                                    const struct blob_record *record, uint32_t resident_bytes) {
    struct version *version = calloc(1, sizeof *version + resident_bytes);
    if (!version)
        return NULL;
    version->table = table;
    version->key = *key;
    version->sequence = record->sequence;
    version->payload_checksum = record->payload_checksum;
    version->payload_bytes = record->payload_bytes;
    version->epoch = record->epoch;
    version->refs = 1;
    version->bytes = BYTES_ABSENT;
    version->idle = IDLE_NONE;
    return version;
}

static void make_resident(struct version *version, const void *inline_bytes) {
    if (version->payload_bytes > 0)
        memcpy(version->resident, inline_bytes, version->payload_bytes);
    version->bytes = BYTES_RESIDENT;
}

int version_create_staged(struct version_table *table, const struct blob_key *key,
                          const struct blob_record *record, struct buffer *buffer,
                          const void *inline_bytes, struct version **ret_version) {
    CHECK(buffer || record->payload_bytes <= INLINE_BYTES_MAX);
    CHECK(!buffer || buffer_capacity_bytes(buffer) >= record->payload_bytes);
    struct version *version = make_version(table, key, record, buffer ? 0 : record->payload_bytes);
    if (!version)
        return -ENOMEM;
    version->place = PLACE_STAGED;
    if (buffer) {
        version->buffer = buffer;
        version->bytes = BYTES_STAGED;
    } else {
        make_resident(version, inline_bytes);
    }
    int result;
    {
        SCOPE_LOCK(&table->mutex);
        CHECK(!table_find(table, version->sequence));
        result = table_add(table, version);
    }
    if (result < 0) {
        free(version);
        return result;
    }
    *ret_version = version;
    return 0;
}

/* pins */

static bool pin_slot(struct version_table *table, struct pool *pool, uint32_t slot,
                     uint64_t sequence) {
    if (!slot_pool_pin(pool->slots, slot, sequence))
        return false;
    atomic_fetch_add(&table->pinned_bytes, pool->slot_bytes);
    return true;
}

static void unpin_slot(struct version *version, struct version_rest *rest) {
    struct pool *pool = version->pool;
    uint64_t before = atomic_fetch_sub(&version->table->pinned_bytes, pool->slot_bytes);
    CHECK(before >= pool->slot_bytes);
    if (!slot_pool_unpin(pool->slots, version->slot))
        return;
    rest->pool = pool;
    rest->slot = version->slot;
}

/* acquiring */

/* Under the mutex: one more reference to a version of the table. */
static int reference_found(struct version *version, const struct blob_key *key,
                           const struct blob_record *record, struct version_rest *rest) {
    if (!blob_key_equal(&version->key, key) || version->payload_bytes != record->payload_bytes ||
        version->payload_checksum != record->payload_checksum)
        return -EBADMSG;
    if (version->place == PLACE_WITHDRAWN)
        return -ESTALE;
    if (version->refs == 0 &&
        !pin_slot(version->table, version->pool, version->slot, version->sequence)) {
        version_remove(version, rest);
        return -ESTALE;
    }
    version->refs++;
    version_cache_relink(version);
    return 0;
}

/* What the record claims about its place is believed only as far as our own tables allow. */
static bool record_fits(const struct blob_record *record, const struct pool *pool) {
    uint32_t room_bytes = pool->is_inline ? INLINE_BYTES_MAX : pool->slot_bytes - HEADER_BYTES;
    return record->slot < pool->slots_max && record->payload_bytes <= room_bytes;
}

/* A version that pins its slot and is not in the table yet. */
static int make_pinned(struct version_table *table, const struct blob_key *key,
                       const struct blob_record *record, struct pool *pool,
                       const void *inline_bytes, struct version **ret_version) {
    if (!record_fits(record, pool))
        return -EBADMSG;
    struct version *version =
        make_version(table, key, record, pool->is_inline ? record->payload_bytes : 0);
    if (!version)
        return -ENOMEM;
    if (!pin_slot(table, pool, record->slot, record->sequence)) {
        free(version);
        return -ESTALE;
    }
    version->place = PLACE_SETTLED;
    version->pool = pool;
    version->slot = record->slot;
    if (pool->is_inline)
        make_resident(version, inline_bytes);
    *ret_version = version;
    return 0;
}

static bool resident_verifies(const struct version *version) {
    struct iovec piece = {.iov_base = (void *)version->resident, .iov_len = version->payload_bytes};
    return blob_checksum(&piece, 1) == version->payload_checksum;
}

/* Ends a version that never came into the table. */
static void discard_pinned(struct version *version, struct version_rest *rest) {
    unpin_slot(version, rest);
    rest->version = version;
}

static int add_or_join(struct version *made, const struct blob_record *record,
                       struct version_rest *rest, struct version **ret_version) {
    struct version_table *table = made->table;
    SCOPE_LOCK(&table->mutex);
    struct version *found = table_find(table, made->sequence);
    int result = found ? reference_found(found, &made->key, record, rest) : table_add(table, made);
    if (result == 0)
        *ret_version = found ? found : made;
    return result;
}

static int acquire_new(struct version_table *table, const struct blob_key *key,
                       const struct blob_record *record, struct pool *pool,
                       const void *inline_bytes, struct version **ret_version) {
    struct version *made, *version = NULL;
    int result = make_pinned(table, key, record, pool, inline_bytes, &made);
    if (result < 0)
        return result;
    struct version_rest joined = {}, discarded = {};
    if (made->bytes == BYTES_RESIDENT && !resident_verifies(made))
        result = -EBADMSG;
    else
        result = add_or_join(made, record, &joined, &version);
    if (version != made)
        discard_pinned(made, &discarded);
    version_rest_finish(table, &joined);
    version_rest_finish(table, &discarded);
    if (result == 0)
        *ret_version = version;
    return result;
}

int version_acquire(struct version_table *table, const struct blob_key *key,
                    const struct blob_record *record, struct pool *pool, const void *inline_bytes,
                    struct version **ret_version) {
    struct version_rest rest = {};
    struct version *found;
    int result = 0;
    {
        SCOPE_LOCK(&table->mutex);
        found = table_find(table, record->sequence);
        if (found)
            result = reference_found(found, key, record, &rest);
    }
    version_rest_finish(table, &rest);
    if (!found)
        return acquire_new(table, key, record, pool, inline_bytes, ret_version);
    if (result == 0)
        *ret_version = found;
    return result;
}

struct version *version_ref(struct version *version) {
    SCOPE_LOCK(&version->table->mutex);
    CHECK(version->refs > 0);
    version->refs++;
    return version;
}

/* Under the mutex. */
static void release_last(struct version *version, struct version_rest *rest) {
    CHECK(version->holds == 0);
    if (version->place == PLACE_SETTLED)
        unpin_slot(version, rest);
    if (version->bytes == BYTES_CACHED && !version->forgotten)
        version_cache_relink(version);
    else
        version_remove(version, rest);
}

void version_unref(struct version *version) {
    if (!version)
        return;
    struct version_table *table = version->table;
    struct version_rest rest = {};
    {
        SCOPE_LOCK(&table->mutex);
        CHECK(version->refs > 0);
        if (--version->refs > 0)
            return;
        release_last(version, &rest);
    }
    version_rest_finish(table, &rest);
}

/* the write thread */

void version_settle(struct version *version, struct pool *pool, uint32_t slot) {
    CHECK_ON(WRITER);
    struct version_table *table = version->table;
    struct version_rest rest = {};
    {
        SCOPE_LOCK(&table->mutex);
        CHECK(version->place == PLACE_STAGED && version->refs > 0);
        CHECK(pin_slot(table, pool, slot, version->sequence));
        version->place = PLACE_SETTLED;
        version->pool = pool;
        version->slot = slot;
        if (version->bytes == BYTES_RESIDENT)
            return;
    }
    /* Without the mutex: what this frees in the staging share may call back. Nobody else changes
     * the buffer: the bytes are still STAGED, and the caller's reference keeps them. */
    bool moved = buffer_move_to_share(version->buffer, BUFFER_READING);
    {
        SCOPE_LOCK(&table->mutex);
        if (moved)
            version_cache_put(version, version->buffer);
        else if (version->holds > 0)
            version->bytes = BYTES_LEAVING;
        else
            version_cache_take(version, &rest);
    }
    version_rest_finish(table, &rest);
}

void version_withdraw(struct version *version) {
    CHECK_ON(WRITER);
    SCOPE_LOCK(&version->table->mutex);
    CHECK(version->place == PLACE_STAGED);
    version->place = PLACE_WITHDRAWN;
}

bool version_is_withdrawn(const struct version *version) {
    SCOPE_LOCK(&version->table->mutex);
    return version->place == PLACE_WITHDRAWN;
}

void version_forget(struct version_table *table, uint64_t sequence) {
    CHECK_ON(WRITER);
    struct version_rest rest = {};
    {
        SCOPE_LOCK(&table->mutex);
        struct version *version = table_find(table, sequence);
        if (!version)
            return;
        version->forgotten = true;
        if (version->refs == 0)
            version_remove(version, &rest);
    }
    version_rest_finish(table, &rest);
}

struct buffer *version_staged_buffer(struct version *version) {
    SCOPE_LOCK(&version->table->mutex);
    return version->bytes == BYTES_STAGED ? version->buffer : NULL;
}

/* fixed after creation */

const struct blob_key *version_key(const struct version *version) {
    return &version->key;
}

uint64_t version_sequence(const struct version *version) {
    return version->sequence;
}

uint32_t version_payload_bytes(const struct version *version) {
    return version->payload_bytes;
}

uint64_t version_payload_checksum(const struct version *version) {
    return version->payload_checksum;
}

uint64_t version_table_pinned_bytes(const struct version_table *table) {
    return atomic_load(&table->pinned_bytes);
}
