/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The changes that are not committed yet (see overlay.h). A shard's lock covers table work only:
 * references that an entry held are dropped after it, since the last one may unpin a slot.
 */
#include "core/overlay_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/version.h"

enum { FIRST_BUCKETS = 16 };

/* tables */

/* Doubles when full; without memory the chains get longer. -ENOMEM: there is no bucket at all. */
static int table_reserve(struct overlay_table *table) {
    if (table->count < table->bucket_count)
        return 0;
    size_t bucket_count = table->bucket_count ? table->bucket_count * 2 : FIRST_BUCKETS;
    struct overlay_node **buckets = calloc(bucket_count, sizeof(*buckets));
    if (!buckets)
        return table->bucket_count ? 0 : -ENOMEM;
    for (size_t i = 0; i < table->bucket_count; i++)
        for (struct overlay_node *node = table->buckets[i], *next; node; node = next) {
            uint64_t hash = overlay_hash(node->group, node->order);
            struct overlay_node **bucket = &buckets[hash & (bucket_count - 1)];
            next = node->next;
            node->next = *bucket;
            *bucket = node;
        }
    free(table->buckets);
    table->buckets = buckets;
    table->bucket_count = bucket_count;
    return 0;
}

/* The link to the first node of this hash's bucket. */
static struct overlay_node **table_bucket(struct overlay_table *table, uint64_t hash) {
    return &table->buckets[hash & (table->bucket_count - 1)];
}

static int table_insert(struct overlay *overlay, struct overlay_table *table,
                        struct overlay_node *node) {
    int r = table_reserve(table);
    if (r)
        return r;
    struct overlay_node **bucket = table_bucket(table, overlay_hash(node->group, node->order));
    node->next = *bucket;
    *bucket = node;
    table->is_sorted = false;
    table->count++;
    atomic_fetch_add(&overlay->entries, 1);
    return 0;
}

static struct overlay_node *table_unlink(struct overlay *overlay, struct overlay_table *table,
                                         struct overlay_node **link) {
    struct overlay_node *node = *link;
    *link = node->next;
    table->is_sorted = false;
    CHECK(table->count > 0);
    table->count--;
    atomic_fetch_sub(&overlay->entries, 1);
    return node;
}

/* Takes out all nodes, as a chain. */
static struct overlay_node *table_extract(struct overlay *overlay, struct overlay_table *table) {
    struct overlay_node *chain = NULL;
    for (size_t i = 0; i < table->bucket_count; i++)
        while (table->buckets[i]) {
            struct overlay_node *node = table_unlink(overlay, table, &table->buckets[i]);
            node->next = chain;
            chain = node;
        }
    return chain;
}

static void table_destroy(struct overlay_table *table) {
    free(table->buckets);
    free(table->places);
}

/* No locks held. */
static void free_blob_chain(struct overlay_node *chain) {
    for (struct overlay_node *next; chain; chain = next) {
        next = chain->next;
        version_unref(((struct overlay_blob_node *)chain)->version);
        free(chain);
    }
}

static void free_name_chain(struct overlay_node *chain) {
    for (struct overlay_node *next; chain; chain = next) {
        next = chain->next;
        free(chain);
    }
}

/* Under the shard's lock, after each change of its entries. */
static void bump_stamp(struct overlay_shard *shard) {
    atomic_fetch_add(&shard->stamp, 1);
}

/* life */

int overlay_create(struct overlay **ret_overlay) {
    struct overlay *overlay = aligned_alloc(_Alignof(struct overlay), sizeof(*overlay));
    if (!overlay)
        return -ENOMEM;
    memset(overlay, 0, sizeof(*overlay));
    for (unsigned i = 0; i < OVERLAY_SHARDS; i++)
        pthread_mutex_init(&overlay->shards[i].lock, NULL);
    *ret_overlay = overlay;
    return 0;
}

void overlay_destroy(struct overlay *overlay) {
    if (!overlay)
        return;
    for (unsigned i = 0; i < OVERLAY_SHARDS; i++) {
        struct overlay_shard *shard = &overlay->shards[i];
        free_blob_chain(table_extract(overlay, &shard->blobs));
        free_name_chain(table_extract(overlay, &shard->names));
        table_destroy(&shard->blobs);
        table_destroy(&shard->names);
        pthread_mutex_destroy(&shard->lock);
    }
    CHECK(atomic_load(&overlay->entries) == 0);
    free(overlay);
}

uint64_t overlay_entries(const struct overlay *overlay) {
    return atomic_load(&overlay->entries);
}

/* blobs */

static uint64_t hash_of_blob(const struct blob_key *key) {
    return overlay_hash(overlay_blob_group(key->kind, key->named), blob_key_order64(key));
}

/* The link to the entry; NULL: there is none. */
static struct overlay_node **find_blob(struct overlay_shard *shard, const struct blob_key *key,
                                       uint64_t hash) {
    if (shard->blobs.bucket_count == 0)
        return NULL;
    struct overlay_node **link = table_bucket(&shard->blobs, hash);
    for (; *link; link = &(*link)->next)
        if (blob_key_equal(&((struct overlay_blob_node *)*link)->key, key))
            return link;
    return NULL;
}

enum overlay_found overlay_get_blob(struct overlay *overlay, const struct blob_key *key,
                                    struct blob_record *ret_record, struct version **ret_version,
                                    uint64_t *ret_stamp) {
    uint64_t hash = hash_of_blob(key);
    struct overlay_shard *shard = overlay_shard_of(overlay, hash);
    SCOPE_LOCK(&shard->lock);
    *ret_stamp = atomic_load(&shard->stamp);
    struct overlay_node **link = find_blob(shard, key, hash);
    if (!link)
        return OVERLAY_UNKNOWN;
    const struct overlay_blob_node *blob = (const struct overlay_blob_node *)*link;
    if (blob->node.gone)
        return OVERLAY_GONE;
    *ret_record = blob->record;
    if (ret_version)
        *ret_version = blob->version ? version_ref(blob->version) : NULL;
    return OVERLAY_PRESENT;
}

bool overlay_blob_unchanged(struct overlay *overlay, const struct blob_key *key, uint64_t stamp) {
    return atomic_load(&overlay_shard_of(overlay, hash_of_blob(key))->stamp) == stamp;
}

/* Under the shard's lock: the entry, made if there is none. NULL: no memory. */
static struct overlay_blob_node *need_blob(struct overlay *overlay, struct overlay_shard *shard,
                                           const struct blob_key *key, uint64_t hash) {
    struct overlay_node **link = find_blob(shard, key, hash);
    if (link)
        return (struct overlay_blob_node *)*link;
    struct overlay_blob_node *blob = calloc(1, sizeof(*blob));
    if (!blob)
        return NULL;
    blob->key = *key;
    blob->node.group = overlay_blob_group(key->kind, key->named);
    blob->node.order = blob_key_order64(key);
    if (table_insert(overlay, &shard->blobs, &blob->node)) {
        free(blob);
        return NULL;
    }
    return blob;
}

/* record NULL: a tombstone. ret_dropped: the reference that the entry gave up, or NULL. */
static int change_blob(struct overlay *overlay, const struct blob_key *key,
                       const struct blob_record *record, struct version *version, uint64_t change,
                       struct version **ret_dropped) {
    uint64_t hash = hash_of_blob(key);
    struct overlay_shard *shard = overlay_shard_of(overlay, hash);
    SCOPE_LOCK(&shard->lock);
    struct overlay_blob_node *blob = need_blob(overlay, shard, key, hash);
    if (!blob)
        return -ENOMEM;
    CHECK(blob->node.change <= change);
    *ret_dropped = NULL;
    if (!record || version) {
        *ret_dropped = blob->version;
        blob->version = version ? version_ref(version) : NULL;
    }
    if (record)
        blob->record = *record;
    blob->node.gone = !record;
    blob->node.change = change;
    bump_stamp(shard);
    return 0;
}

int overlay_put_blob(struct overlay *overlay, const struct blob_key *key,
                     const struct blob_record *record, struct version *version, uint64_t change) {
    struct version *dropped;
    int r = change_blob(overlay, key, record, version, change, &dropped);
    if (r == 0)
        version_unref(dropped);
    return r;
}

int overlay_remove_blob(struct overlay *overlay, const struct blob_key *key, uint64_t change) {
    struct version *dropped;
    int r = change_blob(overlay, key, NULL, NULL, change, &dropped);
    if (r == 0)
        version_unref(dropped);
    return r;
}

/* Under the shard's lock: takes the entry out, unless a later change touched it or it is gone. */
static struct overlay_node *settle(struct overlay *overlay, struct overlay_shard *shard,
                                   struct overlay_table *table, struct overlay_node **link,
                                   uint64_t change) {
    if (!link || (*link)->change > change)
        return NULL;
    struct overlay_node *node = table_unlink(overlay, table, link);
    node->next = NULL;
    bump_stamp(shard);
    return node;
}

void overlay_settle_blob(struct overlay *overlay, const struct blob_key *key, uint64_t change) {
    uint64_t hash = hash_of_blob(key);
    struct overlay_shard *shard = overlay_shard_of(overlay, hash);
    struct overlay_node *settled;
    {
        SCOPE_LOCK(&shard->lock);
        settled = settle(overlay, shard, &shard->blobs, find_blob(shard, key, hash), change);
    }
    free_blob_chain(settled);
}

/* names */

static uint64_t hash_of_name(uint64_t directory, const char *name, size_t name_bytes) {
    return overlay_hash(directory, name_hash64(name, name_bytes));
}

/* The link to the entry; NULL: there is none. */
static struct overlay_node **find_name(struct overlay_shard *shard, uint64_t directory,
                                       const char *name, size_t name_bytes, uint64_t hash) {
    if (shard->names.bucket_count == 0)
        return NULL;
    struct overlay_node **link = table_bucket(&shard->names, hash);
    for (; *link; link = &(*link)->next) {
        const struct overlay_name_node *found = (const struct overlay_name_node *)*link;
        if (found->node.group == directory && found->name_bytes == name_bytes &&
            memcmp(found->name, name, name_bytes) == 0)
            return link;
    }
    return NULL;
}

enum overlay_found overlay_get_name(struct overlay *overlay, uint64_t directory, const char *name,
                                    size_t name_bytes, struct name_entry *ret_entry,
                                    uint64_t *ret_stamp) {
    uint64_t hash = hash_of_name(directory, name, name_bytes);
    struct overlay_shard *shard = overlay_shard_of(overlay, hash);
    SCOPE_LOCK(&shard->lock);
    *ret_stamp = atomic_load(&shard->stamp);
    struct overlay_node **link = find_name(shard, directory, name, name_bytes, hash);
    if (!link)
        return OVERLAY_UNKNOWN;
    if ((*link)->gone)
        return OVERLAY_GONE;
    *ret_entry = ((const struct overlay_name_node *)*link)->entry;
    return OVERLAY_PRESENT;
}

bool overlay_name_unchanged(struct overlay *overlay, uint64_t directory, const char *name,
                            size_t name_bytes, uint64_t stamp) {
    uint64_t hash = hash_of_name(directory, name, name_bytes);
    return atomic_load(&overlay_shard_of(overlay, hash)->stamp) == stamp;
}

/* Under the shard's lock: the entry, made if there is none. NULL: no memory. */
static struct overlay_name_node *need_name(struct overlay *overlay, struct overlay_shard *shard,
                                           uint64_t directory, const char *name, size_t name_bytes,
                                           uint64_t hash) {
    struct overlay_node **link = find_name(shard, directory, name, name_bytes, hash);
    if (link)
        return (struct overlay_name_node *)*link;
    CHECK(name_bytes > 0 && name_bytes <= NAME_BYTES_MAX);
    struct overlay_name_node *added = calloc(1, sizeof(*added) + name_bytes);
    if (!added)
        return NULL;
    added->node.group = directory;
    added->node.order = name_hash64(name, name_bytes);
    added->name_bytes = (uint8_t)name_bytes;
    memcpy(added->name, name, name_bytes);
    if (table_insert(overlay, &shard->names, &added->node)) {
        free(added);
        return NULL;
    }
    return added;
}

/* entry NULL: a tombstone. */
static int change_name(struct overlay *overlay, uint64_t directory, const char *name,
                       size_t name_bytes, const struct name_entry *entry, uint64_t change) {
    uint64_t hash = hash_of_name(directory, name, name_bytes);
    struct overlay_shard *shard = overlay_shard_of(overlay, hash);
    SCOPE_LOCK(&shard->lock);
    struct overlay_name_node *changed =
        need_name(overlay, shard, directory, name, name_bytes, hash);
    if (!changed)
        return -ENOMEM;
    CHECK(changed->node.change <= change);
    if (entry)
        changed->entry = *entry;
    changed->node.gone = !entry;
    changed->node.change = change;
    bump_stamp(shard);
    return 0;
}

int overlay_put_name(struct overlay *overlay, uint64_t directory, const char *name,
                     size_t name_bytes, const struct name_entry *entry, uint64_t change) {
    return change_name(overlay, directory, name, name_bytes, entry, change);
}

int overlay_remove_name(struct overlay *overlay, uint64_t directory, const char *name,
                        size_t name_bytes, uint64_t change) {
    return change_name(overlay, directory, name, name_bytes, NULL, change);
}

void overlay_settle_name(struct overlay *overlay, uint64_t directory, const char *name,
                         size_t name_bytes, uint64_t change) {
    uint64_t hash = hash_of_name(directory, name, name_bytes);
    struct overlay_shard *shard = overlay_shard_of(overlay, hash);
    SCOPE_LOCK(&shard->lock);
    struct overlay_node **link = find_name(shard, directory, name, name_bytes, hash);
    free(settle(overlay, shard, &shard->names, link, change));
}

/* clear */

/* Under the shard's lock. */
static void remove_blob_names(struct overlay_table *table) {
    for (size_t i = 0; i < table->bucket_count; i++)
        for (struct overlay_node *node = table->buckets[i]; node; node = node->next)
            if (((struct overlay_name_node *)node)->entry.type == NAME_BLOB)
                node->gone = true;
}

void overlay_clear_blobs(struct overlay *overlay) {
    for (unsigned i = 0; i < OVERLAY_SHARDS; i++) {
        struct overlay_shard *shard = &overlay->shards[i];
        struct overlay_node *blobs;
        {
            SCOPE_LOCK(&shard->lock);
            blobs = table_extract(overlay, &shard->blobs);
            remove_blob_names(&shard->names);
            bump_stamp(shard);
        }
        free_blob_chain(blobs);
    }
}
