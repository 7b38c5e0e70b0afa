/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listings of the overlay: what one directory or kind has from a place on, tombstones included, in
 * the order of the index, so that a reader merges the two. The shards hold successive parts of a
 * group: one after the other is asked, each under its lock, until there is enough.
 *
 * A table is sorted when it is listed and a node has come or gone since the last time: at most a
 * shard for each change, and nothing at all as long as nobody lists. (A tree that every change kept
 * in order cost publishing a tenth of its time: the nodes are far apart in memory.)
 */
#include "core/overlay_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"

enum { PART_SHIFT = 64 - OVERLAY_SHARD_BITS };

/* Like the index: bytes, then length. */
static int compare_bytes(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* Puts the node's item behind the `count` that are there; nodes of one order come in any order, so
 * among those it may have to move forward. */
static void add_name(void *items, size_t count, const struct overlay_node *node) {
    const struct overlay_name_node *found = (const struct overlay_name_node *)node;
    struct overlay_name *to = (struct overlay_name *)items + count;
    for (; count > 0 && to[-1].name.hash == node->order; count--, to--) {
        if (compare_bytes(to[-1].name.name, to[-1].name.name_bytes, found->name,
                          found->name_bytes) < 0)
            break;
        to[0] = to[-1];
    }
    to->name.hash = node->order;
    to->name.entry = found->entry;
    to->name.name_bytes = found->name_bytes;
    memcpy(to->name.name, found->name, found->name_bytes);
    to->name.name[found->name_bytes] = '\0';
    to->gone = node->gone;
}

static void add_blob(void *items, size_t count, const struct overlay_node *node) {
    const struct overlay_blob_node *found = (const struct overlay_blob_node *)node;
    struct overlay_blob *to = (struct overlay_blob *)items + count;
    for (; count > 0 && blob_key_order64(&to[-1].blob.key) == node->order; count--, to--) {
        if (compare_bytes(to[-1].blob.key.hash, to[-1].blob.key.hash_bytes, found->key.hash,
                          found->key.hash_bytes) < 0)
            break;
        to[0] = to[-1];
    }
    to->blob.key = found->key;
    to->blob.record = found->record;
    to->gone = node->gone;
}

/* What a listing wants: the nodes of a group from an order on, of one table of each shard. */
struct listing {
    uint64_t group, order;
    struct overlay_table *(*table_of)(struct overlay_shard *shard);
    void (*add)(void *items, size_t count, const struct overlay_node *node);
};

static struct overlay_table *names_of(struct overlay_shard *shard) {
    return &shard->names;
}

static struct overlay_table *blobs_of(struct overlay_shard *shard) {
    return &shard->blobs;
}

static int compare_places(const void *a_item, const void *b_item) {
    const struct overlay_place *a = a_item, *b = b_item;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

/* Under the shard's lock. -ENOMEM. */
static int sort(struct overlay_table *table) {
    size_t count = 0;
    if (table->is_sorted)
        return 0;
    if (table->place_capacity < table->count) {
        struct overlay_place *places =
            reallocarray(table->places, table->bucket_count + table->count, sizeof(*places));
        if (!places)
            return -ENOMEM;
        table->places = places;
        table->place_capacity = table->bucket_count + table->count;
    }
    for (size_t i = 0; i < table->bucket_count; i++)
        for (const struct overlay_node *node = table->buckets[i]; node; node = node->next)
            table->places[count++] = (struct overlay_place){node->group, node->order, node};
    if (count > 1)
        qsort(table->places, count, sizeof(*table->places), compare_places);
    table->is_sorted = true;
    return 0;
}

/* The first place that is not before this one. */
static size_t find_place(const struct overlay_table *table, const struct overlay_place *wanted) {
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_places(&table->places[middle], wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds to *count. */
static int list_part(struct overlay_shard *shard, const struct listing *listing, void *items,
                     size_t most, size_t *count) {
    const struct overlay_place wanted = {.group = listing->group, .order = listing->order};
    SCOPE_LOCK(&shard->lock);
    struct overlay_table *table = listing->table_of(shard);
    int result = sort(table);
    if (result < 0)
        return result;
    for (size_t i = find_place(table, &wanted); i < table->count && *count < most; i++) {
        if (table->places[i].group != listing->group)
            break;
        listing->add(items, (*count)++, table->places[i].node);
    }
    return 0;
}

static int list(struct overlay *overlay, const struct listing *listing, void *items, size_t most,
                size_t *ret_count) {
    size_t count = 0;
    /* Empty after a change that the caller knows of: it is in the index. */
    bool is_empty = overlay_entries(overlay) == 0;
    for (uint64_t part = listing->order >> PART_SHIFT;
         !is_empty && part < OVERLAY_SHARDS && count < most; part++) {
        uint64_t hash = overlay_hash(listing->group, part << PART_SHIFT);
        int result = list_part(overlay_shard_of(overlay, hash), listing, items, most, &count);
        if (result < 0)
            return result;
    }
    *ret_count = count;
    return 0;
}

int overlay_list_names(struct overlay *overlay, uint64_t directory, uint64_t hash,
                       struct overlay_name *ret_names, size_t most, size_t *ret_count) {
    const struct listing listing = {directory, hash, names_of, add_name};
    return list(overlay, &listing, ret_names, most, ret_count);
}

int overlay_list_blobs(struct overlay *overlay, uint8_t kind, bool named, uint64_t order,
                       struct overlay_blob *ret_blobs, size_t most, size_t *ret_count) {
    const struct listing listing = {overlay_blob_group(kind, named), order, blobs_of, add_blob};
    return list(overlay, &listing, ret_blobs, most, ret_count);
}
