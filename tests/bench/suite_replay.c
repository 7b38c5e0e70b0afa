/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request trace replayed by `cpl3 replay`'s own code, through a cpl3 mount and through a plain
 * directory, both with room for all of it: equal work, and equal hits, but for blocks that another
 * thread is writing: a mount shows them when they are whole, a directory at once. Two passes: into
 * an empty engine, then again after caches were dropped, where every block is a hit and comes from
 * disk. Both flat out, and in a full run also the first seconds of the trace at its own pace.
 */
#include "tests/bench/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "tests/bench/disk.h"
#include "tools/replay.h"
#include "tools/trace.h"

static const char usual_trace[] = "tests/data/conversation-300.jsonl";
enum {
    BLOCK_BYTES = 256 << 10,
    SLOT_BYTES = BLOCK_BYTES + (4 << 10),
    PACED_MS = 30 * 1000,
    REQUESTS_QUICK = 100,
};

static const struct engine *const engines[] = {&engine_cpl3, &engine_ext4_buffered};
enum { ENGINES = sizeof engines / sizeof engines[0] };

/* The requests of a trace that are replayed. */
struct plan {
    const char *trace_path;
    uint64_t requests, paced_requests;
    uint64_t blocks; /* different ones */
};

/* the trace */

static int compare_ids(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static uint64_t count_different(uint64_t *ids, uint64_t count) {
    uint64_t different = 0;
    qsort(ids, count, sizeof *ids, compare_ids);
    for (uint64_t i = 0; i < count; i++)
        different += i == 0 || ids[i] != ids[i - 1];
    return different;
}

static struct plan read_plan(const struct bench *bench) {
    const char *chosen = getenv("BENCH_TRACE");
    struct plan plan = {.trace_path = chosen && *chosen ? chosen : usual_trace};
    struct trace *trace;
    struct trace_request request = {};
    AUTO_FREE uint64_t *ids = NULL;
    uint64_t count = 0, first_ms = 0;
    int error = trace_open(plan.trace_path, &trace);
    if (error)
        give_up("%s: %s", plan.trace_path, strerror(-error));
    while (!(bench->quick && plan.requests == REQUESTS_QUICK) &&
           (error = trace_next(trace, &request)) == 0) {
        ids = realloc(ids, (count + request.block_count + 1) * sizeof *ids);
        if (!ids)
            give_up("no memory for %s", plan.trace_path);
        memcpy(ids + count, request.blocks, request.block_count * sizeof *ids);
        count += request.block_count;
        if (plan.requests++ == 0)
            first_ms = request.timestamp_ms;
        if (request.timestamp_ms - first_ms < PACED_MS)
            plan.paced_requests = plan.requests;
    }
    if (error == -EBADMSG)
        give_up("%s: %s", plan.trace_path, trace_problem(trace));
    if (count == 0 || (error && error != -ENODATA))
        give_up("%s: %s", plan.trace_path, error == -ENODATA ? "no blocks" : strerror(-error));
    plan.blocks = count_different(ids, count);
    trace_request_free(&request);
    trace_close(trace);
    return plan;
}

/* one pass */

struct pass {
    const char *operation;
    unsigned repetition;
    uint64_t requests;
    double speed;
};

static void write_sample(struct bench *bench, const struct pass *pass, const struct engine *engine,
                         uint64_t count, double quantity, const char *unit, const char *detail) {
    sample_write(bench->csv, &(struct sample){.operation = pass->operation,
                                              .engine = engine->name,
                                              .object_bytes = BLOCK_BYTES,
                                              .threads = CLIENT_THREADS,
                                              .repetition = pass->repetition,
                                              .count = count,
                                              .quantity = quantity,
                                              .unit = unit,
                                              .detail = detail});
}

static void write_latency(struct bench *bench, const struct pass *pass, const struct engine *engine,
                          const struct latency *latency, const char *const details[3]) {
    static const double percents[] = {50, 99, 99.9};
    for (size_t i = 0; i < sizeof percents / sizeof percents[0] && latency->count > 0; i++)
        write_sample(bench, pass, engine, latency->count,
                     (double)latency_percentile_ns(latency, percents[i]) / 1e9, "s", details[i]);
}

/* Another thread may see a block of a plain directory halfway through writing: that is counted in
 * the report. In a mount it ends the program. */
static void replay(struct bench *bench, const struct plan *plan, const struct pass *pass,
                   struct target *target) {
    const struct engine *engine = target->engine;
    char *directories[] = {target->directory};
    struct replay_options options = {
        .trace_path = plan->trace_path,
        .directories = directories,
        .directory_count = 1,
        .block_bytes = BLOCK_BYTES,
        .threads = CLIENT_THREADS,
        .requests_max = pass->requests,
        .speed = pass->speed,
    };
    AUTO_FREE struct replay_result *result = calloc(1, sizeof *result);
    if (!result || replay_run(&options, result) != 0)
        give_up("%s: the replay did not start", engine->name);
    const struct replay_counts *counts = &result->counts;
    if (counts->errors > 0 || (engine == &engine_cpl3 && counts->wrong_bytes > 0))
        give_up("%s: the replay met %" PRIu64 " errors and %" PRIu64 " WRONG BYTES", engine->name,
                counts->errors, counts->wrong_bytes);
    write_sample(bench, pass, engine, counts->requests, (double)result->elapsed_ns / 1e9, "s",
                 "all");
    write_sample(bench, pass, engine, counts->blocks, (double)counts->hits, "blocks", "hits");
    write_sample(bench, pass, engine, counts->hits, (double)counts->wrong_bytes, "bytes",
                 "wrong bytes");
    write_latency(bench, pass, engine, &result->get,
                  (const char *const[]){"get p50", "get p99", "get p99.9"});
    write_latency(bench, pass, engine, &result->put,
                  (const char *const[]){"put p50", "put p99", "put p99.9"});
}

/* the suite */

static void prepare(const struct plan *plan, struct target *target) {
    target->engine->prepare(target, plan->blocks * SLOT_BYTES * 100 / 80 + (512ull << 20));
    if (target->engine->fills_page_cache)
        memory_touch(plan->blocks * BLOCK_BYTES / 8 * 9);
}

static void measure(struct bench *bench, const struct plan *plan, struct target *target,
                    unsigned repetition, bool paced) {
    struct pass pass = {
        .operation = paced ? "replay, 1x speed, empty" : "replay, flat out, empty",
        .repetition = repetition,
        .requests = paced ? plan->paced_requests : plan->requests,
        .speed = paced ? 1 : 0,
    };
    prepare(plan, target);
    replay(bench, plan, &pass, target);
    engine_settle(target);
    target->engine->drop_caches(target);
    pass.operation = paced ? "replay, 1x speed, from disk" : "replay, flat out, from disk";
    replay(bench, plan, &pass, target);
    target->engine->destroy(target);
}

void suite_replay(struct bench *bench) {
    struct plan plan = read_plan(bench);
    for (unsigned repetition = 0; repetition < bench->repetitions; repetition++) {
        say("repetition %u of %u: replay of %" PRIu64 " requests, flat out", repetition + 1,
            bench->repetitions, plan.requests);
        for (size_t i = 0; i < ENGINES; i++)
            measure(bench, &plan, bench_find_target(bench, engines[(i + repetition) % ENGINES]),
                    repetition, false);
    }
    for (size_t i = 0; i < ENGINES && !bench->quick; i++) {
        say("replay of %d s at 1x speed, twice: %s", PACED_MS / 1000, engines[i]->name);
        measure(bench, &plan, bench_find_target(bench, engines[i]), 0, true);
    }
}
