/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client does that bounds a plain directory by itself: files through the page cache, an LRU
 * list of all names in its memory, and unlink of the coldest above a high watermark until a low one
 * is reached (cpl3's defaults). Free of what a real one pays beyond: it survives no restart, knows
 * of no other process, and checks nothing that it reads.
 */
#include "tests/bench/engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uthash.h>
#include <utlist.h>

#include "core/cleanup.h"
#include "tests/bench/disk.h"
#include "tests/bench/sample.h"

enum { BLOCK_BYTES = 4096 };

struct entry {
    uint64_t id;
    uint64_t bytes; /* on disk */
    struct entry *previous, *next;
    UT_hash_handle hh;
};

struct lru {
    pthread_mutex_t lock;
    uint64_t high_bytes, low_bytes; /* fixed after prepare */
    /* under lock */
    uint64_t used_bytes;
    uint64_t evictions;
    struct entry *coldest; /* head of the list */
    struct entry *by_id;
};

/* the list: under lock */

static void add_hottest(struct lru *lru, uint64_t id, uint64_t bytes) {
    struct entry *entry;
    HASH_FIND(hh, lru->by_id, &id, sizeof id, entry);
    if (entry) {
        DL_DELETE2(lru->coldest, entry, previous, next);
    } else {
        entry = calloc(1, sizeof *entry);
        if (!entry)
            give_up("no memory");
        entry->id = id;
        entry->bytes = bytes;
        lru->used_bytes += bytes;
        HASH_ADD(hh, lru->by_id, id, sizeof entry->id, entry);
    }
    DL_APPEND2(lru->coldest, entry, previous, next);
}

/* Takes the coldest out until no more than that is used; a list linked by `next`. */
static struct entry *take_victims(struct lru *lru, uint64_t most_bytes) {
    struct entry *victims = NULL;
    while (lru->coldest && lru->used_bytes > most_bytes) {
        struct entry *entry = lru->coldest;
        DL_DELETE2(lru->coldest, entry, previous, next);
        HASH_DEL(lru->by_id, entry);
        lru->used_bytes -= entry->bytes;
        lru->evictions++;
        LL_PREPEND(victims, entry);
    }
    return victims;
}

static void remove_files(const char *directory, struct entry *victims) {
    char path[ENGINE_PATH_MAX];
    struct entry *entry, *following;
    LL_FOREACH_SAFE(victims, entry, following) {
        char name[ENGINE_NAME_BYTES + 1];
        engine_make_name(entry->id, name);
        snprintf(path, sizeof path, "%s/%s", directory, name);
        if (unlink(path) < 0)
            give_up("%s: unlink: %m", path);
        free(entry);
    }
}

/* the engine */

static void prepare(struct target *target, uint64_t capacity_bytes) {
    engine_ext4_buffered.prepare(target, capacity_bytes);
    struct lru *lru = calloc(1, sizeof *lru);
    if (!lru)
        give_up("no memory");
    pthread_mutex_init(&lru->lock, NULL);
    lru->high_bytes = capacity_bytes / 100 * 90;
    lru->low_bytes = capacity_bytes / 100 * 85;
    target->lru = lru;
}

static void make_reusable(struct target *target) {
    struct lru *lru = target->lru;
    struct entry *victims;
    {
        SCOPE_LOCK(&lru->lock);
        victims = take_victims(lru, 0);
    }
    remove_files(target->directory, victims);
    disk_settle(target->base);
}

static void sync_files(struct target *target) {
    disk_sync(target->base);
}

static void destroy(struct target *target) {
    make_reusable(target);
    pthread_mutex_destroy(&target->lru->lock);
    free(target->lru);
    target->lru = NULL;
    engine_ext4_buffered.destroy(target);
}

static void put(struct worker *worker, uint64_t id) {
    struct lru *lru = worker->target->lru;
    struct entry *victims = NULL;
    files_put(worker, id, 0, false);
    {
        SCOPE_LOCK(&lru->lock);
        add_hottest(lru, id, (worker->object_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES);
        if (lru->used_bytes > lru->high_bytes)
            victims = take_victims(lru, lru->low_bytes);
    }
    remove_files(worker->target->directory, victims);
}

static uint64_t count_evictions(struct target *target) {
    SCOPE_LOCK(&target->lru->lock);
    return target->lru->evictions;
}

const struct engine engine_ext4_lru = {
    .name = "ext4-lru",
    .measures = MEASURES_EVICTION,
    .huge_buffers = true,
    .fills_page_cache = true,
    .prepare = prepare,
    .make_reusable = make_reusable,
    .sync = sync_files,
    .destroy = destroy,
    .put = put,
    .count_evictions = count_evictions,
};
