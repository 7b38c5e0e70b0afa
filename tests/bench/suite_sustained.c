/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts of ever new names into a store that is full, where GC has to make room, against the same
 * number of puts after a `clear`. Both reuse slots that have their blocks, and both times hold the
 * commit at the end, so that nothing is left for later.
 */
#include "tests/bench/bench.h"

#include "core/clock.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)

static const size_t sizes[] = {256 * KIB, 4 * MIB};
enum { PUTS_MIB = 1024, PUTS_MIB_QUICK = 512, ROUNDS_BETWEEN = 2 };

/* The store holds this many times what one measurement puts: below GC's low watermark. */
#define CAPACITY_ROUNDS 1.25

static double put_and_commit(struct bench *bench, const struct target *target,
                             const struct job *job) {
    uint64_t start_ns = clock_monotonic_ns();
    client_run(bench->client, target, job);
    daemon_control(&target->daemon, "commit");
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

/* job: in, with the next new id; out, with the next one. */
static void measure(struct bench *bench, struct target *target, struct job *job,
                    unsigned repetition) {
    target->engine->make_reusable(target);
    double below = put_and_commit(bench, target, job);
    job->first_id += job->count;
    for (unsigned round = 0; round < ROUNDS_BETWEEN; round++, job->first_id += job->count)
        put_and_commit(bench, target, job);
    uint64_t evictions = daemon_counter(&target->daemon, "evictions");
    double past = put_and_commit(bench, target, job);
    job->first_id += job->count;
    if (daemon_counter(&target->daemon, "evictions") == evictions)
        give_up("puts past capacity evicted nothing: the measurement is wrong");
    write_sample(bench, target, job, "put, below capacity", repetition, below);
    write_sample(bench, target, job, "put, far past capacity", repetition, past);
}

void suite_sustained(struct bench *bench) {
    struct target *target = bench_find_target(bench, &engine_cpl3);
    uint64_t put_bytes = (bench->quick ? PUTS_MIB_QUICK : PUTS_MIB) * MIB;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        say("puts past capacity, %zu KiB", (size_t)(sizes[i] / KIB));
        uint64_t count = put_bytes / sizes[i];
        struct job job = {.kind = JOB_PUT,
                          .threads = CLIENT_THREADS_MAX,
                          .object_bytes = sizes[i],
                          .ids = count,
                          .count = count};
        double capacity = (double)(count * (sizes[i] + 4 * KIB)) * CAPACITY_ROUNDS;
        target->engine->prepare(target, (uint64_t)capacity);
        /* Every slot gets its blocks. */
        for (unsigned round = 0; round < ROUNDS_BETWEEN; round++, job.first_id += count)
            put_and_commit(bench, target, &job);
        for (unsigned repetition = 0; repetition < bench->repetitions; repetition++)
            measure(bench, target, &job, repetition);
        target->engine->destroy(target);
    }
}
