/* SPDX-License-Identifier: Apache-2.0 */
/* FUSE requests of each operation, counted outside of all timing. */
#include <linux/fuse.h>

#include "tests/bench/bench.h"
#include "tests/bench/strace.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)

enum { OBJECTS = 100 };

struct count {
    const char *operation;
    enum job_kind kind;
    size_t object_bytes;
    uint64_t first_id;
    bool cold;
};

/* Small objects, then large ones. The order matters: each reads what was put before. */
static const struct count counts[] = {
    {"put", JOB_PUT, 64 * KIB, 0, false},
    {"put + fsync", JOB_PUT_DURABLE, 64 * KIB, 1000, false},
    {"put over an existing name", JOB_PUT, 64 * KIB, 0, false},
    {"get, name unknown to the kernel", JOB_GET, 64 * KIB, 0, true},
    {"get, name known", JOB_GET, 64 * KIB, 0, false},
    {"stat, name unknown to the kernel", JOB_HAS, 64 * KIB, 1000, false},
    {"stat, name known", JOB_HAS, 64 * KIB, 1000, false},
    {"stat, absent, first time", JOB_HAS_NOT, 64 * KIB, 9000, false},
    {"stat, absent, again", JOB_HAS_NOT, 64 * KIB, 9000, false},
    {"put", JOB_PUT, 4 * MIB, 2000, false},
    {"put + fsync", JOB_PUT_DURABLE, 4 * MIB, 3000, false},
    {"get, name unknown to the kernel", JOB_GET, 4 * MIB, 2000, true},
    {"get, name known", JOB_GET, 4 * MIB, 2000, false},
};

static void write_sample(struct bench *bench, const struct count *count, uint64_t requests,
                         const char *opcode) {
    sample_write(bench->csv, &(struct sample){.operation = count->operation,
                                              .engine = engine_cpl3.name,
                                              .object_bytes = count->object_bytes,
                                              .threads = 1,
                                              .count = OBJECTS,
                                              .quantity = (double)requests,
                                              .unit = "requests",
                                              .detail = opcode});
}

static bool count_requests(struct bench *bench, struct target *target, const struct count *count) {
    struct strace strace;
    uint64_t requests[STRACE_OPCODES];
    const struct job job = {.kind = count->kind,
                            .threads = 1,
                            .object_bytes = count->object_bytes,
                            .first_id = count->first_id,
                            .ids = OBJECTS,
                            .count = OBJECTS};
    if (count->cold)
        target->engine->drop_caches(target);
    if (!strace_start(&strace, target->daemon.pid, bench->directory))
        return false;
    client_run(bench->client, target, &job);
    strace_stop(&strace, requests);
    if (count->kind == JOB_PUT && requests[FUSE_WRITE] == 0)
        give_up("strace does not show how the daemon reads its requests");
    write_sample(bench, count, 0, "any"); /* also where there are none */
    for (unsigned opcode = 0; opcode < STRACE_OPCODES; opcode++)
        if (requests[opcode] > 0 && strace_opcode_name(opcode))
            write_sample(bench, count, requests[opcode], strace_opcode_name(opcode));
    return true;
}

void suite_requests(struct bench *bench) {
    struct target *target = bench_find_target(bench, &engine_cpl3);
    say("counting FUSE requests");
    target->engine->prepare(target, 2048 * MIB);
    bool counted = true;
    for (size_t i = 0; counted && i < sizeof counts / sizeof counts[0]; i++)
        counted = count_requests(bench, target, &counts[i]);
    if (!counted)
        say("FUSE requests are not counted: strace is not installed or may not trace");
    target->engine->destroy(target);
}
