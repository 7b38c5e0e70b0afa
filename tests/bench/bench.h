/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suites of the benchmark. Each compares the engines in one run: within a repetition every
 * engine does the same, one after the other, in an order that is rotated from repetition to
 * repetition, so that what changes slowly (the disk, other users of the machine) hits all alike.
 */
#ifndef CPL3_TESTS_BENCH_BENCH_H
#define CPL3_TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/bench/client.h"
#include "tests/bench/engine.h"
#include "tests/bench/sample.h"

struct bench {
    const char *directory; /* of all engines; absolute */
    FILE *csv;
    struct client *client;
    unsigned repetitions;
    bool quick;
    uint64_t load_slots;
    struct target targets[ENGINES_MAX];
    size_t target_count;
};

/* The i-th target in the order of this repetition; NULL: it does not take part. */
static inline struct target *bench_turn(struct bench *bench, unsigned repetition, size_t i,
                                        enum measured measured) {
    struct target *target = &bench->targets[(i + repetition) % bench->target_count];
    return target->engine->measures & measured ? target : NULL;
}

struct target *bench_find_target(struct bench *bench, const struct engine *engine);

/* put, put + fsync, cold and hot get of all sizes, first fill and reuse. */
void suite_pages(struct bench *bench);
/* stat of present and absent names. */
void suite_stat(struct bench *bench);
/* Listings, `ls -l`, the time and the memory of a cold start with `load`. */
void suite_names(struct bench *bench);
/* Puts far past capacity against puts below it. */
void suite_sustained(struct bench *bench);
/* cpl3 only: FUSE requests per operation. Says so if strace is not there. */
void suite_requests(struct bench *bench);
/* More slots, threads, ranks. */
void suite_scale(struct bench *bench);
/* A request trace, flat out and at its own pace: tests/data's, or the file that BENCH_TRACE names.
 */
void suite_replay(struct bench *bench);

#endif
