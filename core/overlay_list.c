/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listings of the overlay: what one directory or kind has, tombstones included, in the order of
 * the index, so that a reader merges the two. Each call walks all of it, a shard at a time: it is
 * small (a few commit groups).
 */
#include "core/overlay_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"

/* A growing array of overlay_name or overlay_blob. */
struct collected {
    void *items;
    size_t item_bytes, count, capacity;
};

/* Room for one more, zeroed; NULL: no memory. */
static void *collected_add(struct collected *collected) {
    if (collected->count == collected->capacity) {
        size_t capacity = collected->capacity ? collected->capacity * 2 : 16;
        void *items = reallocarray(collected->items, capacity, collected->item_bytes);
        if (!items)
            return NULL;
        collected->items = items;
        collected->capacity = capacity;
    }
    void *item = (char *)collected->items + collected->count++ * collected->item_bytes;
    return memset(item, 0, collected->item_bytes);
}

static bool is_after(uint64_t value, uint64_t after, bool inclusive) {
    return value > after || (inclusive && value == after);
}

/* Like the index: bytes, then length. */
static int compare_bytes(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int compare_names(const void *a_item, const void *b_item) {
    const struct index_name *a = &((const struct overlay_name *)a_item)->name;
    const struct index_name *b = &((const struct overlay_name *)b_item)->name;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return compare_bytes(a->name, a->name_bytes, b->name, b->name_bytes);
}

static int compare_blobs(const void *a_item, const void *b_item) {
    const struct blob_key *a = &((const struct overlay_blob *)a_item)->blob.key;
    const struct blob_key *b = &((const struct overlay_blob *)b_item)->blob.key;
    uint64_t a_order = blob_key_order64(a), b_order = blob_key_order64(b);
    if (a_order != b_order)
        return a_order < b_order ? -1 : 1;
    return compare_bytes(a->hash, a->hash_bytes, b->hash, b->hash_bytes);
}

struct listing {
    /* names */
    uint64_t directory;
    /* blobs */
    uint8_t kind;
    bool named;

    uint64_t after;
    bool inclusive;
};

/* The node's item if the listing wants it. -ENOMEM. */
static int collect_name(const struct overlay_node *node, const struct listing *listing,
                        struct collected *collected) {
    const struct overlay_name_node *found = (const struct overlay_name_node *)node;
    if (found->directory != listing->directory)
        return 0;
    uint64_t hash = name_hash64(found->name, found->name_bytes);
    if (!is_after(hash, listing->after, listing->inclusive))
        return 0;
    struct overlay_name *item = collected_add(collected);
    if (!item)
        return -ENOMEM;
    item->name.hash = hash;
    item->name.entry = found->entry;
    item->name.name_bytes = found->name_bytes;
    memcpy(item->name.name, found->name, found->name_bytes);
    item->gone = node->gone;
    return 0;
}

static int collect_blob(const struct overlay_node *node, const struct listing *listing,
                        struct collected *collected) {
    const struct overlay_blob_node *found = (const struct overlay_blob_node *)node;
    if (found->key.kind != listing->kind || (found->key.named != 0) != listing->named)
        return 0;
    if (!is_after(blob_key_order64(&found->key), listing->after, listing->inclusive))
        return 0;
    struct overlay_blob *item = collected_add(collected);
    if (!item)
        return -ENOMEM;
    item->blob.key = found->key;
    item->blob.record = found->record;
    item->gone = node->gone;
    return 0;
}

static int collect_table(const struct overlay_table *table, const struct listing *listing,
                         int (*collect)(const struct overlay_node *node,
                                        const struct listing *listing, struct collected *collected),
                         struct collected *collected) {
    for (size_t i = 0; i < table->bucket_count; i++)
        for (const struct overlay_node *node = table->buckets[i]; node; node = node->next) {
            int r = collect(node, listing, collected);
            if (r)
                return r;
        }
    return 0;
}

int overlay_list_names(struct overlay *overlay, uint64_t directory, uint64_t after_hash,
                       bool inclusive, struct overlay_name **ret_names, size_t *ret_count) {
    struct listing listing = {.directory = directory, .after = after_hash, .inclusive = inclusive};
    struct collected collected = {.item_bytes = sizeof(struct overlay_name)};
    for (unsigned i = 0; i < OVERLAY_SHARDS; i++) {
        struct overlay_shard *shard = &overlay->shards[i];
        SCOPE_LOCK(&shard->lock);
        int r = collect_table(&shard->names, &listing, collect_name, &collected);
        if (r) {
            free(collected.items);
            return r;
        }
    }
    if (collected.count > 1)
        qsort(collected.items, collected.count, collected.item_bytes, compare_names);
    *ret_names = collected.items;
    *ret_count = collected.count;
    return 0;
}

int overlay_list_blobs(struct overlay *overlay, uint8_t kind, bool named, uint64_t after_order,
                       bool inclusive, struct overlay_blob **ret_blobs, size_t *ret_count) {
    struct listing listing = {
        .kind = kind, .named = named, .after = after_order, .inclusive = inclusive};
    struct collected collected = {.item_bytes = sizeof(struct overlay_blob)};
    for (unsigned i = 0; i < OVERLAY_SHARDS; i++) {
        struct overlay_shard *shard = &overlay->shards[i];
        SCOPE_LOCK(&shard->lock);
        int r = collect_table(&shard->blobs, &listing, collect_blob, &collected);
        if (r) {
            free(collected.items);
            return r;
        }
    }
    if (collected.count > 1)
        qsort(collected.items, collected.count, collected.item_bytes, compare_blobs);
    *ret_blobs = collected.items;
    *ret_count = collected.count;
    return 0;
}
