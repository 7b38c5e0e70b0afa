/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listing a directory: the overlay merged over the index, in the order of 64-bit hashes, so that a
 * cookie names a place that survives any change. A cookie has 63 bits: 5 for the group, 58 for the
 * top of the hash.
 *
 *   group 1       names of the directory, by name hash
 *   group 2 + k   hash-named blobs of kind k, by blob_key_order64 (the root of a rank only)
 *
 * Entries whose hashes agree in the top 58 bits share a cookie and are never split over two
 * answers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/rank.h"

enum { HASH_SHIFT = 6, GROUP_SHIFT = 58, BATCH = 128 };
enum { GROUP_NAMES = 1, GROUP_KINDS = 2 };

static uint64_t cookie_of(unsigned group, uint64_t hash) {
    return (uint64_t)group << GROUP_SHIFT | hash >> HASH_SHIFT;
}

/* Where to go on after a cookie: hashes >= *ret_hash. False: this group is used up. */
static bool resume_hash(unsigned group, uint64_t after_cookie, uint64_t *ret_hash) {
    unsigned cookie_group = (unsigned)(after_cookie >> GROUP_SHIFT);
    if (cookie_group > group)
        return false;
    if (cookie_group < group) {
        *ret_hash = 0;
        return true;
    }
    uint64_t top = (after_cookie & ((UINT64_C(1) << GROUP_SHIFT) - 1)) + 1;
    if (top >> GROUP_SHIFT)
        return false;
    *ret_hash = top << HASH_SHIFT;
    return true;
}

/* One sorted stream of candidates, from both sources. */
struct candidate {
    uint64_t hash;
    bool gone;       /* a tombstone: hides the index's */
    bool from_index; /* the overlay wins over it */
    struct list_entry entry;
};

static int compare_candidates(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    int order = memcmp(&x->entry.key, &y->entry.key, sizeof(x->entry.key));
    if (order == 0 && x->entry.name_bytes != y->entry.name_bytes)
        order = x->entry.name_bytes < y->entry.name_bytes ? -1 : 1;
    if (order == 0)
        order = memcmp(x->entry.name, y->entry.name, x->entry.name_bytes);
    return order ? order : (int)x->from_index - (int)y->from_index;
}

static bool same_place(const struct candidate *a, const struct candidate *b) {
    return a->hash == b->hash && a->entry.name_bytes == b->entry.name_bytes &&
           memcmp(a->entry.name, b->entry.name, a->entry.name_bytes) == 0 &&
           (a->entry.name_bytes || blob_key_equal(&a->entry.key, &b->entry.key));
}

static void fill_name(const struct index_name *name, struct candidate *candidate) {
    struct list_entry *entry = &candidate->entry;
    candidate->hash = name->hash;
    entry->cookie = cookie_of(GROUP_NAMES, name->hash);
    entry->type = name->entry.type;
    entry->directory = name->entry;
    entry->name_bytes = name->name_bytes;
    memcpy(entry->name, name->name, sizeof(entry->name));
}

static void fill_blob(const struct index_blob *blob, struct candidate *candidate) {
    struct list_entry *entry = &candidate->entry;
    candidate->hash = blob_key_order64(&blob->key);
    entry->cookie = cookie_of(GROUP_KINDS + blob->key.kind, candidate->hash);
    entry->type = NAME_BLOB;
    entry->key = blob->key;
    entry->record = blob->record;
}

/* What one source scan found: up to `limit` hashes, beyond which more may follow. */
struct scan {
    struct candidate *candidates;
    size_t count;
    bool complete; /* the index has nothing after the last one */
};

static int gather_names(struct rank *rank, uint64_t directory, uint64_t hash, struct scan *scan) {
    AUTO_FREE struct overlay_name *fresh = NULL;
    AUTO_FREE struct index_name *stored = calloc(BATCH, sizeof(*stored));
    size_t fresh_count = 0, stored_count = 0;
    if (!stored)
        return -ENOMEM;
    /* The overlay first: what is committed in between is then found in both. */
    int result = overlay_list_names(rank->overlay, directory, hash, true, &fresh, &fresh_count);
    if (result == 0)
        result = index_list_names(rank->store->index, directory, hash, true, stored, BATCH,
                                  &stored_count);
    if (result < 0)
        return result;
    scan->complete = stored_count < BATCH / 2;
    uint64_t last = stored_count ? stored[stored_count - 1].hash : 0;
    scan->candidates = calloc(fresh_count + stored_count + 1, sizeof(*scan->candidates));
    if (!scan->candidates)
        return -ENOMEM;
    for (size_t i = 0; i < stored_count; i++) {
        fill_name(&stored[i], &scan->candidates[scan->count]);
        scan->candidates[scan->count++].from_index = true;
    }
    for (size_t i = 0; i < fresh_count; i++) {
        if (!scan->complete && fresh[i].name.hash > last)
            break;
        scan->candidates[scan->count].gone = fresh[i].gone;
        fill_name(&fresh[i].name, &scan->candidates[scan->count++]);
    }
    return 0;
}

static int gather_blobs(struct rank *rank, uint8_t kind, uint64_t hash, struct scan *scan) {
    AUTO_FREE struct overlay_blob *fresh = NULL;
    AUTO_FREE struct index_blob *stored = calloc(BATCH, sizeof(*stored));
    size_t fresh_count = 0, stored_count = 0;
    if (!stored)
        return -ENOMEM;
    int result = overlay_list_blobs(rank->overlay, kind, false, hash, true, &fresh, &fresh_count);
    if (result == 0)
        result = index_list_blobs(rank->store->index, rank->number, kind, false, hash, true, stored,
                                  BATCH, &stored_count);
    if (result < 0)
        return result;
    scan->complete = stored_count < BATCH / 2;
    uint64_t last = stored_count ? blob_key_order64(&stored[stored_count - 1].key) : 0;
    scan->candidates = calloc(fresh_count + stored_count + 1, sizeof(*scan->candidates));
    if (!scan->candidates)
        return -ENOMEM;
    for (size_t i = 0; i < stored_count; i++) {
        fill_blob(&stored[i], &scan->candidates[scan->count]);
        scan->candidates[scan->count++].from_index = true;
    }
    for (size_t i = 0; i < fresh_count; i++) {
        if (!scan->complete && blob_key_order64(&fresh[i].blob.key) > last)
            break;
        scan->candidates[scan->count].gone = fresh[i].gone;
        fill_blob(&fresh[i].blob, &scan->candidates[scan->count++]);
    }
    return 0;
}

/* Completes an entry; false: it is not there (dangling name, other epoch). */
static bool resolve(struct rank *rank, struct list_entry *entry, bool from_index) {
    if (entry->type == NAME_DIRECTORY)
        return true;
    if (entry->name_bytes) {
        entry->key = entry->directory.blob;
        return rank_get_blob(rank, &entry->key, &entry->record) == 0;
    }
    return !from_index || entry->record.epoch == atomic_load(&rank->epoch);
}

/*
 * Hands out sorted candidates; *ret_full when the array cannot take a whole group of one cookie.
 */
static size_t emit(struct rank *rank, struct scan *scan, struct list_entry *ret_entries,
                   size_t most, bool *ret_full) {
    size_t count = 0, group_start = 0;
    for (size_t i = 0; i < scan->count; i++) {
        struct candidate *candidate = &scan->candidates[i];
        bool hidden = i > 0 && same_place(candidate, &scan->candidates[i - 1]);
        if (hidden || candidate->gone || !resolve(rank, &candidate->entry, candidate->from_index))
            continue;
        if (count == 0 || ret_entries[count - 1].cookie != candidate->entry.cookie)
            group_start = count;
        if (count == most) {
            *ret_full = true;
            return group_start > 0 ? group_start : count;
        }
        ret_entries[count++] = candidate->entry;
    }
    return count;
}

/* One group from `hash` on. Goes on until something is found or the group ends. */
static int list_group(struct rank *rank, uint64_t directory, unsigned group, uint64_t hash,
                      struct list_entry *ret_entries, size_t most, size_t *ret_count,
                      bool *ret_full) {
    for (;;) {
        struct scan scan = {0};
        int result = group == GROUP_NAMES
                         ? gather_names(rank, directory, hash, &scan)
                         : gather_blobs(rank, (uint8_t)(group - GROUP_KINDS), hash, &scan);
        size_t count = 0;
        uint64_t last = 0;
        if (result == 0 && scan.count) {
            qsort(scan.candidates, scan.count, sizeof(*scan.candidates), compare_candidates);
            last = scan.candidates[scan.count - 1].hash;
            count = emit(rank, &scan, ret_entries, most, ret_full);
        }
        bool complete = scan.complete;
        free(scan.candidates);
        if (result < 0)
            return result;
        *ret_count = count;
        if (complete || *ret_full || count)
            return 0;
        hash = last + 1;
        if (hash == 0)
            return 0;
    }
}

int rank_list(struct rank *rank, uint64_t directory, uint64_t after_cookie,
              struct list_entry *ret_entries, size_t most, size_t *ret_count) {
    unsigned groups =
        directory == directory_root(rank->number) ? GROUP_KINDS + rank->budget_count : GROUP_KINDS;
    size_t total = 0;
    bool full = false;
    for (unsigned group = GROUP_NAMES; group < groups && !full && total < most; group++) {
        uint64_t hash;
        size_t count = 0;
        if (!resume_hash(group, after_cookie, &hash))
            continue;
        int result = list_group(rank, directory, group, hash, ret_entries + total, most - total,
                                &count, &full);
        if (result < 0)
            return result;
        total += count;
        if (count)
            break; /* the group may go on: the caller comes again with the last cookie */
    }
    *ret_count = total;
    return 0;
}
