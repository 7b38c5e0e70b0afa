/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has changed since the last commit, per rank: every publish, unlink, rename, mkdir and
 * attribute change takes effect here at once, and lookups ask here first, then the index. Keyed
 * like `blobs` and `names`. The write thread commits a group of changes and only then settles their
 * entries. Sharded by key, one mutex a shard, held for the table access only.
 *
 * Mutations come one at a time (the caller holds the rank's change lock) with rising change ids;
 * lookups come from any thread at any time.
 *
 * A lookup that finds nothing here reads the index and then asks overlay_unchanged with the stamp:
 * if the shard changed meanwhile, it looks again. So a change is never missed between the two.
 */
#ifndef CPL3_CORE_OVERLAY_H
#define CPL3_CORE_OVERLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/blob.h"
#include "core/index.h"

struct overlay;
struct version; /* core/version.h: refcounted; the overlay holds one reference an entry */

enum overlay_found {
    OVERLAY_UNKNOWN, /* ask the index */
    OVERLAY_PRESENT,
    OVERLAY_GONE, /* a tombstone: do not ask the index */
};

int overlay_create(struct overlay **ret_overlay);
void overlay_destroy(struct overlay *overlay); /* drops what is left; NULL is fine */

/* ret_version: a new reference to the not yet committed version, or NULL when only attributes
 * changed (its bytes are where the record says). ret_version may be NULL: not wanted. */
enum overlay_found overlay_get_blob(struct overlay *overlay, const struct blob_key *key,
                                    struct blob_record *ret_record, struct version **ret_version,
                                    uint64_t *ret_stamp);
enum overlay_found overlay_get_name(struct overlay *overlay, uint64_t directory, const char *name,
                                    size_t name_bytes, struct name_entry *ret_entry,
                                    uint64_t *ret_stamp);
bool overlay_blob_unchanged(struct overlay *overlay, const struct blob_key *key, uint64_t stamp);
bool overlay_name_unchanged(struct overlay *overlay, uint64_t directory, const char *name,
                            size_t name_bytes, uint64_t stamp);

/* Mutations; -ENOMEM: nothing changed. `version` may be NULL (attributes only: an existing entry
 * keeps the version it has); a reference is taken. */
int overlay_put_blob(struct overlay *overlay, const struct blob_key *key,
                     const struct blob_record *record, struct version *version, uint64_t change);
int overlay_remove_blob(struct overlay *overlay, const struct blob_key *key, uint64_t change);
int overlay_put_name(struct overlay *overlay, uint64_t directory, const char *name,
                     size_t name_bytes, const struct name_entry *entry, uint64_t change);
int overlay_remove_name(struct overlay *overlay, uint64_t directory, const char *name,
                        size_t name_bytes, uint64_t change);

/* Write thread, after the commit that holds `change`: forgets the entry unless a later change
 * touched it. */
void overlay_settle_blob(struct overlay *overlay, const struct blob_key *key, uint64_t change);
void overlay_settle_name(struct overlay *overlay, uint64_t directory, const char *name,
                         size_t name_bytes, uint64_t change);
/* Runtime clear: forgets all blobs; names of blobs are removed by the changes that set them
 * (directories stay). */
void overlay_clear_blobs(struct overlay *overlay);

uint64_t overlay_entries(const struct overlay *overlay); /* any thread, approximate */

/* Listing: up to `most` entries of one directory's names from `hash` on, or of a kind's blobs from
 * `order` on, tombstones included, sorted as the index sorts them. Fewer than `most`: that was all.
 * The cost is that of what is returned and of sorting what has changed since the last listing.
 * -ENOMEM. */
struct overlay_name {
    struct index_name name;
    bool gone;
};
struct overlay_blob {
    struct index_blob blob;
    bool gone;
};
int overlay_list_names(struct overlay *overlay, uint64_t directory, uint64_t hash,
                       struct overlay_name *ret_names, size_t most, size_t *ret_count);
int overlay_list_blobs(struct overlay *overlay, uint8_t kind, bool named, uint64_t order,
                       struct overlay_blob *ret_blobs, size_t most, size_t *ret_count);

#endif
