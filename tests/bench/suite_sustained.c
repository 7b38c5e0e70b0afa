/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts of ever new names into a full store, where room has to be made, against the same number of
 * puts after everything was removed. In cpl3 both reuse slots that have their blocks. All times
 * hold the sync at the end, so that nothing is left for later.
 */
#include "tests/bench/bench.h"

#include "core/clock.h"
#include "tests/bench/disk.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)

static const size_t sizes[] = {256 * KIB, 4 * MIB};
enum { PUTS_MIB = 1024, PUTS_MIB_QUICK = 512, ROUNDS_BETWEEN = 2 };

/* The store holds this many times what one round puts: below the low watermark. */
#define CAPACITY_ROUNDS 1.25

/* Puts and syncs; ids go on from round to round and are the same for all engines. */
static double run_round(struct bench *bench, struct target *target, struct job *job) {
    if (target->engine->fills_page_cache)
        memory_touch(job->count * job->object_bytes / 8 * 9);
    uint64_t start_ns = clock_monotonic_ns();
    client_run(bench->client, target, job);
    target->engine->sync(target);
    job->first_id += job->count;
    return (double)(clock_monotonic_ns() - start_ns) / 1e9;
}

static void write_sample(struct bench *bench, const struct target *target, const struct job *job,
                         const char *operation, unsigned repetition, double seconds) {
    sample_write(bench->csv, &(struct sample){.operation = operation,
                                              .engine = target->engine->name,
                                              .object_bytes = job->object_bytes,
                                              .threads = job->threads,
                                              .repetition = repetition,
                                              .count = job->count,
                                              .quantity = seconds,
                                              .unit = "s"});
}

static void measure(struct bench *bench, struct target *target, struct job job,
                    unsigned repetition) {
    const struct engine *engine = target->engine;
    engine->make_reusable(target);
    double below = run_round(bench, target, &job);
    for (unsigned round = 0; round < ROUNDS_BETWEEN; round++)
        run_round(bench, target, &job);
    uint64_t evictions = engine->count_evictions(target);
    double past = run_round(bench, target, &job);
    if (engine->count_evictions(target) == evictions)
        give_up("%s: puts past capacity evicted nothing", engine->name);
    write_sample(bench, target, &job, "put, below capacity", repetition, below);
    write_sample(bench, target, &job, "put, far past capacity", repetition, past);
}

static void measure_size(struct bench *bench, struct job job) {
    struct target *target;
    double capacity = (double)(job.count * (job.object_bytes + 4 * KIB)) * CAPACITY_ROUNDS;
    for (size_t i = 0; i < bench->target_count; i++) {
        if (!(target = bench_turn(bench, 0, i, MEASURES_EVICTION)))
            continue;
        target->engine->prepare(target, (uint64_t)capacity);
        /* Every slot gets its blocks. */
        struct job first = job;
        for (unsigned round = 0; round < ROUNDS_BETWEEN; round++)
            run_round(bench, target, &first);
    }
    for (unsigned repetition = 0; repetition < bench->repetitions; repetition++) {
        job.first_id += job.count * (ROUNDS_BETWEEN + 2); /* names of its own */
        for (size_t i = 0; i < bench->target_count; i++)
            if ((target = bench_turn(bench, repetition, i, MEASURES_EVICTION)))
                measure(bench, target, job, repetition);
    }
    for (size_t i = 0; i < bench->target_count; i++)
        if ((target = bench_turn(bench, 0, i, MEASURES_EVICTION)))
            target->engine->destroy(target);
}

void suite_sustained(struct bench *bench) {
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        say("puts past capacity, %zu KiB", (size_t)(sizes[i] / KIB));
        uint64_t count = (bench->quick ? PUTS_MIB_QUICK : PUTS_MIB) * MIB / sizes[i];
        measure_size(bench, (struct job){.kind = JOB_PUT,
                                         .threads = CLIENT_THREADS,
                                         .object_bytes = sizes[i],
                                         .ids = count,
                                         .count = count});
    }
}
