/* SPDX-License-Identifier: Apache-2.0 */
/* The cpl3 mount: the client's file calls on rank 0 of a store of its own. */
#include "tests/bench/engine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/disk.h"
#include "tests/bench/sample.h"

enum { MEMORY_MIB = 1024 };

static void start(struct target *target, const char *cold_start) {
    char options[sizeof target->daemon_options + 32];
    snprintf(options, sizeof options, "%s,cold_start=%s", target->daemon_options, cold_start);
    daemon_start(&target->daemon, options);
    daemon_wait_touched(&target->daemon);
}

static void prepare(struct target *target, uint64_t capacity_bytes) {
    daemon_init(&target->daemon, target->base);
    strcpy(target->directory, target->daemon.rank);
    snprintf(target->daemon_options, sizeof target->daemon_options,
             "rank=0,size=%" PRIu64 "M,memory=%dM", capacity_bytes >> 20, MEMORY_MIB);
    disk_settle(target->base);
    start(target, "clear");
}

/* The slots are free again and have their blocks: what GC leaves behind. */
static void make_reusable(struct target *target) {
    daemon_control(&target->daemon, "clear");
    disk_settle(target->base);
}

static void commit(struct target *target) {
    daemon_control(&target->daemon, "commit");
}

static void drop_caches(struct target *target) {
    daemon_stop(&target->daemon);
    disk_settle(target->base);
    disk_drop_caches();
    start(target, "load");
    disk_drop_caches();
}

static void destroy(struct target *target) {
    daemon_stop(&target->daemon);
    disk_remove_tree(target->base);
}

static void put(struct worker *worker, uint64_t id) {
    files_put(worker, id, 0, false);
}

static void put_durable(struct worker *worker, uint64_t id) {
    files_put(worker, id, 0, true);
}

static void get(struct worker *worker, uint64_t id) {
    files_get(worker, id, 0);
}

static void get_direct(struct worker *worker, uint64_t id) {
    files_get(worker, id, O_DIRECT);
}

static uint64_t count_evictions(struct target *target) {
    return daemon_counter(&target->daemon, "evictions");
}

const struct engine engine_cpl3 = {
    .name = "cpl3",
    .measures = MEASURES_PAGES | MEASURES_HOT_GETS | MEASURES_DIRECT_GETS | MEASURES_NAMES |
                MEASURES_EVICTION,
    .huge_buffers = true,
    .prepare = prepare,
    .make_reusable = make_reusable,
    .sync = commit,
    .drop_caches = drop_caches,
    .destroy = destroy,
    .put = put,
    .put_durable = put_durable,
    .get = get,
    .get_direct = get_direct,
    .has = files_has,
    .count_evictions = count_evictions,
};
