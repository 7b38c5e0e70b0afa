/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts and gets. One repetition of a size: every engine starts empty and has never written its
 * space; first fill, durable first fill, cold and hot gets of what was put; then slots and files
 * are written again, with and without fsync. Each step is done by all engines before the next.
 */
#include "tests/bench/bench.h"

#include <inttypes.h>

#include "tests/bench/disk.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)

static const unsigned thread_counts[] = {1, 4};
enum { THREAD_COUNTS = sizeof thread_counts / sizeof thread_counts[0] };

/* Objects of one measurement, so that it takes about 0.3 to 1 s on a disk of 1 to 4 GB/s. */
struct page_plan {
    size_t object_bytes;
    uint64_t puts;         /* also of a cold get */
    uint64_t durable_puts; /* an fsync costs about half a millisecond */
    uint64_t hot_objects;  /* fit into any read cache */
    uint64_t hot_gets;
    bool quick;
};
static const struct page_plan plans[] = {
    {64 * KIB, 4096, 512, 512, 8192, false}, {256 * KIB, 2048, 384, 256, 4096, true},
    {1 * MIB, 640, 256, 64, 1536, false},    {4 * MIB, 192, 96, 16, 384, true},
    {32 * MIB, 24, 12, 4, 48, false},
};
enum { PLANS = sizeof plans / sizeof plans[0] };

/* Ids of the sets of one size; one set for each number of threads. */
static uint64_t put_set(const struct page_plan *plan, unsigned number) {
    return number * plan->puts;
}
static uint64_t durable_set(const struct page_plan *plan, unsigned number) {
    return THREAD_COUNTS * plan->puts + number * plan->durable_puts;
}

/* All sets, below GC's low watermark with room for what is published and not yet written, and the
 * larger slots. */
static uint64_t capacity_bytes(const struct page_plan *plan) {
    uint64_t slots = THREAD_COUNTS * (plan->puts + plan->durable_puts);
    return slots * (plan->object_bytes + 4 * KIB) * 100 / 80 + 512 * MIB;
}

/* One step by all engines. warm: the objects are got once before, unmeasured. */
struct step {
    const char *operation;
    struct job job;
    enum measured measured; /* by the engines that are part of this */
    bool cold, warm;
};

static void measure(struct bench *bench, const struct step *step, struct target *target,
                    unsigned repetition) {
    const struct engine *engine = target->engine;
    const struct job *job = &step->job;
    if (step->cold && engine->drop_caches)
        engine->drop_caches(target);
    struct job once = *job;
    once.count = job->ids;
    if (step->warm)
        client_run(bench->client, target, &once);
    else if (engine->fills_page_cache)
        memory_touch(job->count * job->object_bytes / 8 * 9);
    double seconds = client_run(bench->client, target, job);
    if (job->kind == JOB_PUT || job->kind == JOB_PUT_DURABLE)
        engine_settle(target);
    sample_write(bench->csv, &(struct sample){.operation = step->operation,
                                              .engine = engine->name,
                                              .object_bytes = job->object_bytes,
                                              .threads = job->threads,
                                              .repetition = repetition,
                                              .count = job->count,
                                              .quantity = seconds,
                                              .unit = "s"});
}

static void measure_all(struct bench *bench, const struct step *step, unsigned repetition) {
    for (size_t i = 0; i < bench->target_count; i++) {
        struct target *target = bench_turn(bench, repetition, i, step->measured);
        if (target)
            measure(bench, step, target, repetition);
    }
}

static void put_all(struct bench *bench, const struct page_plan *plan, unsigned repetition,
                    const char *operation, bool durable) {
    for (unsigned i = 0; i < THREAD_COUNTS; i++) {
        uint64_t count = durable ? plan->durable_puts : plan->puts;
        struct step step = {
            .operation = operation,
            .measured = MEASURES_PAGES,
            .job = {.kind = durable ? JOB_PUT_DURABLE : JOB_PUT,
                    .threads = thread_counts[i],
                    .object_bytes = plan->object_bytes,
                    .first_id = durable ? durable_set(plan, i) : put_set(plan, i),
                    .ids = count,
                    .count = count},
        };
        measure_all(bench, &step, repetition);
    }
}

static void get_all(struct bench *bench, const struct page_plan *plan, unsigned repetition,
                    const char *operation, enum measured measured, bool hot) {
    for (unsigned i = 0; i < THREAD_COUNTS; i++) {
        struct step step = {
            .operation = operation,
            .measured = measured,
            .cold = !hot,
            .warm = hot,
            .job = {.kind = measured == MEASURES_DIRECT_GETS ? JOB_GET_DIRECT : JOB_GET,
                    .threads = thread_counts[i],
                    .object_bytes = plan->object_bytes,
                    .first_id = put_set(plan, i),
                    .ids = hot ? plan->hot_objects : plan->puts,
                    .count = hot ? plan->hot_gets : plan->puts},
        };
        measure_all(bench, &step, repetition);
    }
}

static void repeat(struct bench *bench, const struct page_plan *plan, unsigned repetition) {
    struct target *target;
    for (size_t i = 0; i < bench->target_count; i++)
        if ((target = bench_turn(bench, repetition, i, MEASURES_PAGES)))
            target->engine->prepare(target, capacity_bytes(plan));
    put_all(bench, plan, repetition, "put, first fill", false);
    put_all(bench, plan, repetition, "put + fsync, first fill", true);
    get_all(bench, plan, repetition, "cold get", MEASURES_PAGES, false);
    get_all(bench, plan, repetition, "hot get", MEASURES_HOT_GETS, true);
    if (plan->object_bytes >= MIB) { /* smaller ones are a single READ in any case */
        get_all(bench, plan, repetition, "cold get, O_DIRECT", MEASURES_DIRECT_GETS, false);
        get_all(bench, plan, repetition, "hot get, O_DIRECT", MEASURES_DIRECT_GETS, true);
    }
    for (size_t i = 0; i < bench->target_count; i++)
        if ((target = bench_turn(bench, repetition, i, MEASURES_PAGES)) &&
            target->engine->make_reusable)
            target->engine->make_reusable(target);
    put_all(bench, plan, repetition, "put, reuse", false);
    put_all(bench, plan, repetition, "put + fsync, reuse", true);
    for (size_t i = 0; i < bench->target_count; i++)
        if ((target = bench_turn(bench, repetition, i, MEASURES_PAGES)))
            target->engine->destroy(target);
    disk_settle(bench->directory);
}

/* The repetitions are outside: a disturbance of a minute spoils one of each size, not one size. */
void suite_pages(struct bench *bench) {
    for (unsigned repetition = 0; repetition < bench->repetitions; repetition++) {
        for (unsigned i = 0; i < PLANS; i++) {
            struct page_plan plan = plans[i];
            if (bench->quick && !plan.quick)
                continue;
            if (bench->quick) {
                plan.puts /= 2;
                plan.durable_puts /= 2;
                plan.hot_gets /= 2;
            }
            say("repetition %u of %u: pages of %zu KiB", repetition + 1, bench->repetitions,
                (size_t)(plan.object_bytes / KIB));
            repeat(bench, &plan, repetition);
        }
    }
}
