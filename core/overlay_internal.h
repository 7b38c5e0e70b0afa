/* SPDX-License-Identifier: Apache-2.0 */
/* The overlay from the inside: overlay.c changes and finds entries, overlay_list.c lists them. */
#ifndef CPL3_CORE_OVERLAY_INTERNAL_H
#define CPL3_CORE_OVERLAY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/overlay.h"

enum { OVERLAY_SHARD_BITS = 6, OVERLAY_SHARDS = 1 << OVERLAY_SHARD_BITS };

/* First member of what a table holds. */
struct overlay_node {
    struct overlay_node *next; /* in its bucket */
    uint64_t hash;
    uint64_t change; /* the last one that touched it */
    bool gone;       /* a tombstone */
};

struct overlay_blob_node {
    struct overlay_node node;
    struct blob_key key;
    struct blob_record record;
    struct version *version; /* a reference, or NULL: gone, or only attributes changed */
};

struct overlay_name_node {
    struct overlay_node node;
    uint64_t directory;
    struct name_entry entry;
    uint8_t name_bytes;
    char name[]; /* name_bytes, no NUL */
};

/* Chained; buckets is NULL while nothing was ever put. */
struct overlay_table {
    struct overlay_node **buckets;
    size_t bucket_count; /* 0 or a power of two */
    size_t count;
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

#endif
