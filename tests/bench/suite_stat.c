/* SPDX-License-Identifier: Apache-2.0 */
/* stat of names that the kernel knows: present ones, and ones that it knows to be absent. */
#include "tests/bench/bench.h"

enum { NAMES = 1000, STATS = 200000, PAGE_BYTES = 4096, ABSENT_ID = 1000000 };

static const unsigned thread_counts[] = {1, 4};

static void measure(struct bench *bench, struct target *target, unsigned repetition,
                    unsigned threads, bool present) {
    struct job job = {.kind = present ? JOB_HAS : JOB_HAS_NOT,
                      .threads = threads,
                      .object_bytes = PAGE_BYTES,
                      .first_id = present ? 0 : ABSENT_ID,
                      .ids = NAMES,
                      .count = NAMES};
    client_run(bench->client, target, &job);
    job.count = STATS;
    double seconds = client_run(bench->client, target, &job);
    sample_write(bench->csv,
                 &(struct sample){.operation = present ? "stat, cached" : "stat, known absent",
                                  .engine = target->engine->name,
                                  .threads = threads,
                                  .repetition = repetition,
                                  .count = STATS,
                                  .quantity = seconds,
                                  .unit = "s"});
}

static void measure_all(struct bench *bench, unsigned repetition, unsigned threads, bool present) {
    for (size_t i = 0; i < bench->target_count; i++) {
        struct target *target = bench_turn(bench, repetition, i, MEASURES_NAMES);
        if (target)
            measure(bench, target, repetition, threads, present);
    }
}

void suite_stat(struct bench *bench) {
    say("stat of cached and of known-absent names");
    const struct job fill = {
        .kind = JOB_PUT, .threads = 1, .object_bytes = PAGE_BYTES, .ids = NAMES, .count = NAMES};
    for (size_t i = 0; i < bench->target_count; i++) {
        struct target *target = bench_turn(bench, 0, i, MEASURES_NAMES);
        if (!target)
            continue;
        target->engine->prepare(target, 256ull << 20);
        client_run(bench->client, target, &fill);
        engine_settle(target);
    }
    for (unsigned repetition = 0; repetition < bench->repetitions; repetition++) {
        for (size_t i = 0; i < sizeof thread_counts / sizeof thread_counts[0]; i++) {
            measure_all(bench, repetition, thread_counts[i], true);
            measure_all(bench, repetition, thread_counts[i], false);
        }
    }
    for (size_t i = 0; i < bench->target_count; i++) {
        struct target *target = bench_turn(bench, 0, i, MEASURES_NAMES);
        if (target)
            target->engine->destroy(target);
    }
}
