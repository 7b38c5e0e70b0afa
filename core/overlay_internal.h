/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The overlay from the inside: overlay.c changes and finds entries, overlay_list.c lists them.
 *
 * An entry belongs to a group (what one listing shows) and has a 64-bit order in it, the index's.
 * Its hash is the order, mixed with the group: the top bits choose the shard, so that the shards
 * hold successive parts of each group.
 */
#ifndef CPL3_CORE_OVERLAY_INTERNAL_H
#define CPL3_CORE_OVERLAY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/overlay.h"

enum { OVERLAY_SHARD_BITS = 6, OVERLAY_SHARDS = 1 << OVERLAY_SHARD_BITS };

/* First member of what a table holds. */
struct overlay_node {
    struct overlay_node *next; /* in its bucket */
    uint64_t group;            /* names: the directory; blobs: see overlay_blob_group */
    uint64_t order;            /* names: name_hash64; blobs: blob_key_order64 */
    uint64_t change;           /* the last one that touched it */
    bool gone;                 /* a tombstone */
};

static inline uint64_t overlay_blob_group(uint8_t kind, bool named) {
    return (uint64_t)kind << 1 | named;
}
static inline uint64_t overlay_mix(uint64_t group) {
    return group * UINT64_C(0x9e3779b97f4a7c15);
}
static inline uint64_t overlay_hash(uint64_t group, uint64_t order) {
    return order ^ overlay_mix(group);
}

struct overlay_blob_node {
    struct overlay_node node;
    struct blob_key key;
    struct blob_record record;
    struct version *version; /* a reference, or NULL: gone, or only attributes changed */
};

struct overlay_name_node {
    struct overlay_node node; /* group: the directory */
    struct name_entry entry;
    uint8_t name_bytes;
    char name[]; /* name_bytes, no NUL */
};

/* A node and what it is sorted by, beside it so that sorting and searching touch no node. */
struct overlay_place {
    uint64_t group, order;
    const struct overlay_node *node;
};

/* Chained; buckets is NULL while nothing was ever put. */
struct overlay_table {
    struct overlay_node **buckets;
    size_t bucket_count; /* 0 or a power of two */
    size_t count;
    /* For listings, which alone pay for it: all nodes, sorted. The set of nodes has changed since
     * unless is_sorted: then the places lead nowhere. */
    struct overlay_place *places;
    size_t place_capacity;
    bool is_sorted;
};

struct overlay_shard {
    _Alignas(64) pthread_mutex_t lock;
    _Atomic uint64_t stamp; /* changed under lock */
    /* under lock */
    struct overlay_table blobs;
    struct overlay_table names;
};

struct overlay {
    struct overlay_shard shards[OVERLAY_SHARDS];
    _Atomic uint64_t entries;
};

static inline struct overlay_shard *overlay_shard_of(struct overlay *overlay, uint64_t hash) {
    return &overlay->shards[hash >> (64 - OVERLAY_SHARD_BITS)];
}

#endif
