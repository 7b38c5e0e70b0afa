/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measuring program behind `make bench`; tests/bench/run builds, starts it and reports.
 * Measures and writes CSV, judges nothing.
 *
 *   bench DIRECTORY CSV [-q] [-r REPETITIONS] [-s SUITE]... [-l SLOTS]
 */
#include "tests/bench/bench.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "tests/bench/disk.h"

enum {
    REPETITIONS = 5,
    REPETITIONS_QUICK = 3,
    LOAD_SLOTS = 200000,
    LOAD_SLOTS_QUICK = 30000,
    OBJECT_BYTES_MAX = 32 << 20,
    NUMBER_MAX = 2000000,
};
/* The largest step of suite_pages, all engines together. */
static const uint64_t free_bytes_least = 16ull << 30;

static const struct suite {
    const char *name;
    void (*run)(struct bench *bench);
} suites[] = {
    {"pages", suite_pages},         {"stat", suite_stat},         {"names", suite_names},
    {"sustained", suite_sustained}, {"requests", suite_requests}, {"scale", suite_scale},
    {"replay", suite_replay},
};
enum { SUITES = sizeof suites / sizeof suites[0] };

struct arguments {
    const char *directory, *csv;
    bool quick;
    bool chosen[SUITES], some_chosen;
    unsigned long repetitions, load_slots; /* 0: by default */
};

struct target *bench_find_target(struct bench *bench, const struct engine *engine) {
    for (size_t i = 0; i < bench->target_count; i++)
        if (bench->targets[i].engine == engine)
            return &bench->targets[i];
    give_up("engine %s is not measured", engine->name);
}

/* arguments */

static unsigned long parse_number(const char *text) {
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (*end != '\0' || number < 1 || number > NUMBER_MAX)
        give_up("%s: not a number from 1 to %d", text, NUMBER_MAX);
    return number;
}

static void choose_suite(struct arguments *arguments, const char *name) {
    for (unsigned i = 0; i < SUITES; i++) {
        if (strcmp(suites[i].name, name) == 0) {
            arguments->chosen[i] = arguments->some_chosen = true;
            return;
        }
    }
    give_up("%s: no such suite: pages, stat, names, sustained, requests, scale or replay", name);
}

static void parse(int argc, char **argv, struct arguments *arguments) {
    int option;
    while ((option = getopt(argc, argv, "qr:s:l:")) != -1) {
        if (option == 'q')
            arguments->quick = true;
        else if (option == 'r')
            arguments->repetitions = parse_number(optarg);
        else if (option == 's')
            choose_suite(arguments, optarg);
        else if (option == 'l')
            arguments->load_slots = parse_number(optarg);
        else
            give_up("unknown option; see tests/bench/run --help");
    }
    if (argc - optind != 2)
        give_up("usage: bench DIRECTORY CSV [-q] [-r REPETITIONS] [-s SUITE]... [-l SLOTS]");
    arguments->directory = argv[optind];
    arguments->csv = argv[optind + 1];
}

/* running */

static void run_suites(struct bench *bench, const struct arguments *arguments) {
    bench->client = client_create(OBJECT_BYTES_MAX);
    sample_write(bench->csv, &(struct sample){.operation = "client buffers in huge pages",
                                              .engine = "client",
                                              .count = 100,
                                              .quantity = client_huge_percent(bench->client),
                                              .unit = "%"});
    bench->target_count = engine_make_targets(bench->directory, bench->targets);
    for (unsigned i = 0; i < SUITES; i++)
        if (!arguments->some_chosen || arguments->chosen[i])
            suites[i].run(bench);
    client_destroy(bench->client);
}

int main(int argc, char **argv) {
    struct arguments arguments = {};
    struct bench bench = {};
    parse(argc, argv, &arguments);
    if (geteuid() != 0)
        give_up("only root can drop caches: run it as root");
    mkdir(arguments.directory, 0755);
    AUTO_FREE char *directory = realpath(arguments.directory, NULL);
    if (!directory)
        give_up("%s: %m", arguments.directory);
    uint64_t free_bytes = disk_free_bytes(directory);
    if (free_bytes < free_bytes_least)
        give_up("%s: %llu GiB are free, %llu are needed; use BENCH_DIR=", directory,
                (unsigned long long)(free_bytes >> 30),
                (unsigned long long)(free_bytes_least >> 30));
    AUTO_CLOSE int lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0)
        give_up("%s: %m; is another benchmark running there?", directory);
    bench.directory = directory;
    bench.quick = arguments.quick;
    bench.repetitions = arguments.repetitions ? (unsigned)arguments.repetitions
                        : bench.quick         ? REPETITIONS_QUICK
                                              : REPETITIONS;
    bench.load_slots = arguments.load_slots ? arguments.load_slots
                       : bench.quick        ? LOAD_SLOTS_QUICK
                                            : LOAD_SLOTS;
    AUTO_FCLOSE FILE *csv = fopen(arguments.csv, "we");
    if (!csv)
        give_up("%s: %m", arguments.csv);
    bench.csv = csv;
    sample_write_head(csv);
    run_suites(&bench, &arguments);
    say("measured");
    return 0;
}
