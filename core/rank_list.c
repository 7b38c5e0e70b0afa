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

enum { HASH_SHIFT = 6, GROUP_SHIFT = 58, BATCH = 64 };
enum { GROUP_NAMES = 1, GROUP_KINDS = 2 };

/* Behind all tops of hashes. */
#define TOPS_END (UINT64_C(1) << GROUP_SHIFT)

static uint64_t cookie_of(unsigned group, uint64_t hash) {
    return (uint64_t)group << GROUP_SHIFT | hash >> HASH_SHIFT;
}

/* The top of the hashes to go on at after a cookie. TOPS_END: this group is used up. */
static uint64_t resume_top(unsigned group, uint64_t after_cookie) {
    unsigned cookie_group = (unsigned)(after_cookie >> GROUP_SHIFT);
    if (cookie_group > group)
        return TOPS_END;
    return cookie_group < group ? 0 : (after_cookie & (TOPS_END - 1)) + 1;
}

/*
 * What both sources have of a group from some place on, sorted, at most `most` of each. What has
 * end_top or more is left to the next scan: a source that was not read to its end may have more
 * of that.
 */
struct scan {
    struct rank *rank;
    uint64_t directory;
    unsigned group;
    size_t most, fresh_count, stored_count;
    uint64_t end_top;
    union {
        struct {
            struct overlay_name fresh[BATCH];
            struct index_name stored[BATCH];
        } names; /* GROUP_NAMES */
        struct {
            struct overlay_blob fresh[BATCH];
            struct index_blob stored[BATCH];
        } blobs;
    };
};

/* An item's place in its group. */
struct spot {
    uint64_t hash;
    const void *bytes;
    size_t size;
};

static struct spot spot_of_name(const struct index_name *name) {
    return (struct spot){name->hash, name->name, name->name_bytes};
}

static struct spot spot_of_blob(const struct blob_key *key) {
    return (struct spot){blob_key_order64(key), key->hash, key->hash_bytes};
}

static struct spot fresh_spot(const struct scan *scan, size_t i) {
    return scan->group == GROUP_NAMES ? spot_of_name(&scan->names.fresh[i].name)
                                      : spot_of_blob(&scan->blobs.fresh[i].blob.key);
}

static struct spot stored_spot(const struct scan *scan, size_t i) {
    return scan->group == GROUP_NAMES ? spot_of_name(&scan->names.stored[i])
                                      : spot_of_blob(&scan->blobs.stored[i].key);
}

static int compare_spots(const struct spot *a, const struct spot *b) {
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    int order = memcmp(a->bytes, b->bytes, a->size < b->size ? a->size : b->size);
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

/* reading the sources */

/* The overlay first: what is committed in between is then found in both. */
static int read_sources(struct scan *scan, uint64_t hash) {
    struct overlay *overlay = scan->rank->overlay;
    struct index *index = scan->rank->store->index;
    uint8_t kind = (uint8_t)(scan->group - GROUP_KINDS);
    bool names = scan->group == GROUP_NAMES;
    int result = names ? overlay_list_names(overlay, scan->directory, hash, scan->names.fresh,
                                            scan->most, &scan->fresh_count)
                       : overlay_list_blobs(overlay, kind, false, hash, scan->blobs.fresh,
                                            scan->most, &scan->fresh_count);
    if (result < 0)
        return result;
    return names ? index_list_names(index, scan->directory, hash, true, scan->names.stored,
                                    scan->most, &scan->stored_count)
                 : index_list_blobs(index, scan->rank->number, kind, false, hash, true,
                                    scan->blobs.stored, scan->most, &scan->stored_count);
}

/* The last top of a source that may have more; one that shares it with all that was found is
 * listed nevertheless, since waiting for the rest would be for ever. */
static void limit(struct scan *scan, uint64_t start_top, uint64_t last_hash) {
    uint64_t top = last_hash >> HASH_SHIFT;
    if (top == start_top)
        top++;
    if (top < scan->end_top)
        scan->end_top = top;
}

static int run_scan(struct scan *scan, uint64_t start_top) {
    int result = read_sources(scan, start_top << HASH_SHIFT);
    if (result < 0)
        return result;
    scan->end_top = TOPS_END;
    if (scan->fresh_count == scan->most)
        limit(scan, start_top, fresh_spot(scan, scan->fresh_count - 1).hash);
    /* The index leaves out what shares the last hash with more than fits. */
    if (scan->stored_count > 0 && scan->stored_count >= scan->most / 2)
        limit(scan, start_top, stored_spot(scan, scan->stored_count - 1).hash);
    return 0;
}

/* answering */

static void fill_name(const struct index_name *name, struct list_entry *entry) {
    entry->type = name->entry.type;
    entry->directory = name->entry;
    entry->name_bytes = name->name_bytes;
    memcpy(entry->name, name->name, name->name_bytes + 1u);
}

static void fill_blob(const struct index_blob *blob, struct list_entry *entry) {
    entry->type = NAME_BLOB;
    entry->key = blob->key;
    entry->record = blob->record;
    entry->name_bytes = 0;
    entry->name[0] = '\0';
}

static void fill(const struct scan *scan, bool from_fresh, size_t i, struct list_entry *entry) {
    if (scan->group == GROUP_NAMES)
        fill_name(from_fresh ? &scan->names.fresh[i].name : &scan->names.stored[i], entry);
    else
        fill_blob(from_fresh ? &scan->blobs.fresh[i].blob : &scan->blobs.stored[i], entry);
}

/* Completes an entry; false: it is not there (dangling name, other epoch). */
static bool resolve(struct rank *rank, struct list_entry *entry, bool from_fresh) {
    if (entry->type == NAME_DIRECTORY)
        return true;
    if (entry->name_bytes) {
        entry->key = entry->directory.blob;
        return rank_get_blob(rank, &entry->key, &entry->record) == 0;
    }
    uint64_t touched_ns = touches_latest_ns(rank->touches, entry->record.sequence);
    if (touched_ns > entry->record.last_access_ns)
        entry->record.last_access_ns = touched_ns;
    return from_fresh || entry->record.epoch == atomic_load(&rank->epoch);
}

static bool is_gone(const struct scan *scan, size_t fresh) {
    return scan->group == GROUP_NAMES ? scan->names.fresh[fresh].gone
                                      : scan->blobs.fresh[fresh].gone;
}

/* Which source has the next place: negative: the overlay, positive: the index, 0: both. */
static int find_next(const struct scan *scan, size_t fresh, size_t stored, uint64_t *ret_hash) {
    struct spot a = {0}, b = {0};
    if (fresh < scan->fresh_count)
        a = fresh_spot(scan, fresh);
    if (stored < scan->stored_count)
        b = stored_spot(scan, stored);
    int order = !a.bytes ? 1 : !b.bytes ? -1 : compare_spots(&a, &b);
    *ret_hash = order <= 0 ? a.hash : b.hash;
    return order;
}

/*
 * Merges the sources; the overlay wins over the index. *ret_full when the array cannot take a whole
 * group of one cookie.
 */
static size_t answer(const struct scan *scan, struct list_entry *ret_entries, size_t most,
                     bool *ret_full) {
    size_t fresh = 0, stored = 0, count = 0, group_start = 0;
    while (fresh < scan->fresh_count || stored < scan->stored_count) {
        uint64_t hash;
        int order = find_next(scan, fresh, stored, &hash);
        if (hash >> HASH_SHIFT >= scan->end_top)
            break;
        size_t item = order <= 0 ? fresh : stored;
        fresh += order <= 0;
        stored += order >= 0;
        if (order <= 0 && is_gone(scan, item))
            continue;
        uint64_t cookie = cookie_of(scan->group, hash);
        bool same_cookie = count > 0 && ret_entries[count - 1].cookie == cookie;
        if (count == most) {
            *ret_full = true;
            return same_cookie && group_start > 0 ? group_start : count;
        }
        fill(scan, order <= 0, item, &ret_entries[count]);
        ret_entries[count].cookie = cookie;
        if (!resolve(scan->rank, &ret_entries[count], order <= 0))
            continue;
        if (!same_cookie)
            group_start = count;
        count++;
    }
    return count;
}

/* One group from a top on. Goes on until something is found or the group ends. */
static int list_group(struct scan *scan, uint64_t top, struct list_entry *ret_entries, size_t most,
                      size_t *ret_count, bool *ret_full) {
    while (top < TOPS_END && !*ret_full && *ret_count == 0) {
        int result = run_scan(scan, top);
        if (result < 0)
            return result;
        *ret_count = answer(scan, ret_entries, most, ret_full);
        top = scan->end_top;
    }
    return 0;
}

int rank_list(struct rank *rank, uint64_t directory, uint64_t after_cookie,
              struct list_entry *ret_entries, size_t most, size_t *ret_count) {
    unsigned groups =
        directory == directory_root(rank->number) ? GROUP_KINDS + rank->budget_count : GROUP_KINDS;
    AUTO_FREE struct scan *scan = malloc(sizeof *scan);
    size_t count = 0;
    bool full = most == 0;
    if (!scan)
        return -ENOMEM;
    scan->rank = rank;
    scan->directory = directory;
    scan->most = most < BATCH ? most + 1 : BATCH;
    /* What is left of a group, and the next groups, are for the next call with the last cookie. */
    for (unsigned group = GROUP_NAMES; group < groups && !full && count == 0; group++) {
        scan->group = group;
        int result =
            list_group(scan, resume_top(group, after_cookie), ret_entries, most, &count, &full);
        if (result < 0)
            return result;
    }
    *ret_count = count;
    return 0;
}
