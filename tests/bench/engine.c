/* SPDX-License-Identifier: Apache-2.0 */
/* The list of engines and what they have in common. */
#include "tests/bench/engine.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/disk.h"
#include "tests/bench/sample.h"

static const struct engine *const engines[] = {
    &engine_cpl3, &engine_ext4_buffered, &engine_ext4_direct_plain, &engine_ext4_direct_huge,
    &engine_raw,  &engine_ext4_lru,      &engine_rocksdb,
};
enum { ENGINES = sizeof engines / sizeof engines[0] };
static_assert(sizeof engines / sizeof engines[0] <= ENGINES_MAX);

size_t engine_make_targets(const char *directory, struct target ret_targets[ENGINES_MAX]) {
    for (size_t i = 0; i < ENGINES; i++) {
        struct target *target = &ret_targets[i];
        *target = (struct target){.engine = engines[i], .raw_fd = -1};
        int n = snprintf(target->base, sizeof target->base, "%s/%s", directory, engines[i]->name);
        if (n < 0 || (size_t)n + 64 > sizeof target->base)
            give_up("%s: too long a path", directory);
    }
    return ENGINES;
}

void engine_settle(struct target *target) {
    target->engine->sync(target);
    disk_settle(target->base);
}

/* The finalizer of splitmix64: names spread as those of real hashes do. */
static uint64_t scatter(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void engine_make_name(uint64_t id, char ret_name[ENGINE_NAME_BYTES + 1]) {
    snprintf(ret_name, ENGINE_NAME_BYTES + 1,
             "%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "%016" PRIx64, scatter(id * 4),
             scatter(id * 4 + 1), scatter(id * 4 + 2), scatter(id * 4 + 3));
}

void engine_stamp(struct worker *worker, uint64_t id) {
    uint64_t last = ~id;
    memcpy(worker->buffer, &id, sizeof id);
    memcpy(worker->buffer + worker->object_bytes - sizeof last, &last, sizeof last);
}

void engine_check_stamp(const struct worker *worker, uint64_t id) {
    uint64_t first, last;
    memcpy(&first, worker->buffer, sizeof first);
    memcpy(&last, worker->buffer + worker->object_bytes - sizeof last, sizeof last);
    if (first != id || last != ~id)
        give_up("%s: WRONG BYTES: object %" PRIu64 " of %zu bytes begins with %" PRIu64
                " and ends with %" PRIu64,
                worker->target->engine->name, id, worker->object_bytes, first, ~last);
}
