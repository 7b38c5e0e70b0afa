/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does not get slower when there is more of it: operations in stores of ever more slots, many
 * client threads, and ranks, of one mount and of a mount each, which share nothing but the index
 * file's one writer.
 */
#include "tests/bench/bench.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "core/clock.h"
#include "tests/bench/disk.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)

/* Pages that take a slot each, the smallest there is. */
enum { SMALL_BYTES = 8000, SMALL_SLOT_BYTES = 8192, OPERATIONS = 4000 };
enum { RANKS_MAX = 8, RANK_PUTS = 256, RANK_PUTS_DURABLE = 64, MANY_OBJECTS = 2048 };

static void write_sample(struct bench *bench, const char *operation, const char *engine,
                         const struct job *job, unsigned repetition, double seconds,
                         const char *detail) {
    sample_write(bench->csv, &(struct sample){.operation = operation,
                                              .engine = engine,
                                              .object_bytes = job->object_bytes,
                                              .threads = job->threads,
                                              .repetition = repetition,
                                              .count = job->count,
                                              .quantity = seconds,
                                              .unit = "s",
                                              .detail = detail});
}

/* slots */

static void measure_slots(struct bench *bench, struct target *target, uint64_t slots) {
    char detail[32];
    struct job job = {.kind = JOB_PUT,
                      .threads = CLIENT_THREADS,
                      .object_bytes = SMALL_BYTES,
                      .ids = slots,
                      .count = slots};
    target->engine->prepare(
        target,
        (slots + (bench->repetitions + 1) * OPERATIONS) * SMALL_SLOT_BYTES * 100 / 80 + 256 * MIB);
    client_run(bench->client, target, &job);
    engine_settle(target);
    snprintf(detail, sizeof detail, "%" PRIu64 " slots", slots);
    job.threads = 1;
    for (unsigned repetition = 0; repetition < bench->repetitions; repetition++) {
        job.kind = JOB_GET;
        job.first_id = 0;
        job.ids = slots;
        job.count = OPERATIONS;
        double seconds = client_run(bench->client, target, &job);
        write_sample(bench, "get by slots", target->engine->name, &job, repetition, seconds,
                     detail);
        job.kind = JOB_PUT;
        job.first_id = slots + repetition * OPERATIONS;
        job.ids = OPERATIONS;
        seconds = client_run(bench->client, target, &job);
        write_sample(bench, "put by slots", target->engine->name, &job, repetition, seconds,
                     detail);
        engine_settle(target);
    }
    target->engine->destroy(target);
}

/* many threads */

static void measure_threads(struct bench *bench, struct target *target) {
    static const unsigned counts[] = {CLIENT_THREADS, CLIENT_THREADS_MAX};
    struct job job = {.object_bytes = 256 * KIB, .ids = MANY_OBJECTS, .count = MANY_OBJECTS};
    target->engine->prepare(target, 2 * MANY_OBJECTS * (job.object_bytes + 4 * KIB));
    for (unsigned repetition = 0; repetition < bench->repetitions; repetition++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            job.threads = counts[i];
            job.kind = JOB_PUT;
            double seconds = client_run(bench->client, target, &job);
            write_sample(bench, "put by threads", target->engine->name, &job, repetition, seconds,
                         NULL);
            engine_settle(target);
            target->engine->drop_caches(target);
            job.kind = JOB_GET;
            seconds = client_run(bench->client, target, &job);
            write_sample(bench, "get by threads", target->engine->name, &job, repetition, seconds,
                         NULL);
        }
    }
    target->engine->destroy(target);
}

/* ranks */

/* One store; `mounts` of them, each with its part of the ranks. */
struct ranks {
    unsigned count, mounts;
    struct daemon daemons[RANKS_MAX];
    char paths[RANKS_MAX][DAEMON_PATH_MAX + 16];
    const char *directories[RANKS_MAX];
};

static void mount_ranks(const struct target *target, struct ranks *ranks) {
    unsigned each = ranks->count / ranks->mounts;
    disk_make_empty_directory(target->base);
    for (unsigned m = 0; m < ranks->mounts; m++) {
        struct daemon *daemon = &ranks->daemons[m];
        char directory[DAEMON_PATH_MAX], options[128];
        if (snprintf(directory, sizeof directory, "%s/%u", target->base, m) >=
            (int)sizeof directory - 32)
            give_up("%s: too long a path", target->base);
        daemon_init(daemon, directory);
        strcpy(daemon->store, ranks->daemons[0].store);
        snprintf(options, sizeof options, "rank=%u-%u,size=512M,memory=%uM", m * each,
                 (m + 1) * each - 1, 128 * each);
        daemon_start(daemon, options);
        daemon_wait_touched(daemon);
        for (unsigned r = m * each; r < (m + 1) * each; r++) {
            snprintf(ranks->paths[r], sizeof ranks->paths[r], "%s/rank%u", daemon->point, r);
            ranks->directories[r] = ranks->paths[r];
        }
    }
}

static void measure_ranks(struct bench *bench, const struct target *target, unsigned count,
                          unsigned mounts) {
    struct ranks ranks = {.count = count, .mounts = mounts};
    const char *detail = mounts == 1 ? "one mount" : "a mount each";
    struct job job = {
        .threads = count, .object_bytes = 256 * KIB, .directories = ranks.directories};
    mount_ranks(target, &ranks);
    for (unsigned repetition = 0; repetition < bench->repetitions; repetition++) {
        for (int durable = 0; durable < 2; durable++) {
            job.kind = durable ? JOB_PUT_DURABLE : JOB_PUT;
            job.ids = job.count = (uint64_t)count * (durable ? RANK_PUTS_DURABLE : RANK_PUTS);
            job.first_id = durable ? 1000000 : 0;
            uint64_t start_ns = clock_monotonic_ns();
            client_run(bench->client, target, &job);
            for (unsigned m = 0; m < mounts; m++)
                daemon_control(&ranks.daemons[m], "commit");
            double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
            write_sample(bench, durable ? "put + fsync by ranks" : "put by ranks", "cpl3", &job,
                         repetition, seconds, detail);
        }
    }
    for (unsigned m = 0; m < mounts; m++)
        daemon_stop(&ranks.daemons[m]);
    disk_remove_tree(target->base);
}

void suite_scale(struct bench *bench) {
    static const uint64_t slots[] = {10000, 100000, 1000000};
    struct target *target = bench_find_target(bench, &engine_cpl3);
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        if (slots[i] > bench->load_slots)
            break;
        say("stores of %" PRIu64 " slots", slots[i]);
        measure_slots(bench, target, slots[i]);
    }
    say("%d client threads", CLIENT_THREADS_MAX);
    measure_threads(bench, target);
    measure_threads(bench, bench_find_target(bench, &engine_ext4_buffered));
    for (unsigned count = 1; count <= RANKS_MAX; count *= 2) {
        say("%u ranks", count);
        measure_ranks(bench, target, count, 1);
        if (count > 1)
            measure_ranks(bench, target, count, count);
    }
}
