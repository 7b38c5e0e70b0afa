/* SPDX-License-Identifier: Apache-2.0 */
/* `cpl3 replay`: options, and the summary as text or JSON. The work is in replay_run.c. */
#include "tools/replay.h"

#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "tools/commands.h"
#include "tools/number.h"

#define GIB ((double)(UINT64_C(1) << 30))
#define BLOCK_BYTES_MAX (UINT64_C(1) << 30)

static char command_name[] = "cpl3 replay";
static const char help[] =
    "Usage: cpl3 replay [OPTION]... TRACE DIR...\n"
    "\n"
    "Replays a request trace (JSON lines with timestamp and hash_ids) through directories as a\n"
    "server would: of each request, reads the blocks in order until the first miss; of the rest,\n"
    "touches those that exist and writes the others. DIR... are the rank directories: block i of\n"
    "a request belongs to rank i mod their number. Every byte read is compared with what the\n"
    "block must hold. (In a plain directory another thread may be seen halfway through writing:\n"
    "with --threads above 1 wrong bytes there are to be expected. A cpl3 mount shows none.)\n"
    "\n"
    "  --block-bytes N      bytes of a block, with K, M or G (65536)\n"
    "  --threads N          requests in flight (1)\n"
    "  --ranks N            as many DIRs must be given (as many as there are)\n"
    "  --limit N            stop after so many requests (the whole trace)\n"
    "  --speed X            1 = at the trace's own pace, 2 = twice as fast (flat out)\n"
    "  --fsync              fsync each block before closing it\n"
    "  --acknowledged FILE  append the name of each block whose fsync returned (implies --fsync)\n"
    "  --json               the summary as JSON\n"
    "  --help               this text\n"
    "\n"
    "Exit code: 0; 1 after wrong bytes or errors; 2 for wrong usage.\n";

enum option_letter {
    OPTION_BLOCK_BYTES = 'b',
    OPTION_THREADS = 't',
    OPTION_RANKS = 'r',
    OPTION_LIMIT = 'l',
    OPTION_SPEED = 's',
    OPTION_FSYNC = 'f',
    OPTION_ACKNOWLEDGED = 'a',
    OPTION_JSON = 'j',
    OPTION_HELP = 'h',
};

static const struct option long_options[] = {
    {"block-bytes", required_argument, NULL, OPTION_BLOCK_BYTES},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"ranks", required_argument, NULL, OPTION_RANKS},
    {"limit", required_argument, NULL, OPTION_LIMIT},
    {"speed", required_argument, NULL, OPTION_SPEED},
    {"fsync", no_argument, NULL, OPTION_FSYNC},
    {"acknowledged", required_argument, NULL, OPTION_ACKNOWLEDGED},
    {"json", no_argument, NULL, OPTION_JSON},
    {"help", no_argument, NULL, OPTION_HELP},
    {0},
};

struct arguments {
    struct replay_options options;
    uint64_t ranks; /* 0: not given */
    bool json, help;
};

static bool refuse(const char *option, const char *allowed) {
    fprintf(stderr, "cpl3 replay: --%s '%s': %s\n", option, optarg, allowed);
    return false;
}

static bool take_option(int letter, struct arguments *arguments) {
    struct replay_options *options = &arguments->options;
    uint64_t number;
    switch (letter) {
    case OPTION_BLOCK_BYTES:
        return number_parse_bytes(optarg, 1, BLOCK_BYTES_MAX, &options->block_bytes) ||
               refuse("block-bytes", "must be 1 to 1G");
    case OPTION_THREADS:
        if (!number_parse(optarg, 1, REPLAY_THREADS_MAX, &number))
            return refuse("threads", "must be 1 to 1024");
        options->threads = (unsigned)number;
        return true;
    case OPTION_RANKS:
        return number_parse(optarg, 1, UINT32_MAX, &arguments->ranks) ||
               refuse("ranks", "must be a number from 1");
    case OPTION_LIMIT:
        return number_parse(optarg, 1, UINT64_MAX, &options->requests_max) ||
               refuse("limit", "must be a number from 1");
    case OPTION_SPEED:
        return number_parse_positive(optarg, &options->speed) ||
               refuse("speed", "must be a number above 0");
    case OPTION_FSYNC:
        options->fsync = true;
        return true;
    case OPTION_ACKNOWLEDGED:
        options->acknowledged_path = optarg;
        options->fsync = true;
        return true;
    case OPTION_JSON:
        arguments->json = true;
        return true;
    case OPTION_HELP:
        arguments->help = true;
        return true;
    default:
        return false; /* getopt has said why */
    }
}

static bool parse_arguments(int argc, char **argv, struct arguments *arguments) {
    int letter;
    argv[0] = command_name; /* getopt's messages begin with it */
    optind = 0;
    while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        if (!take_option(letter, arguments))
            return false;
    if (arguments->help)
        return true;
    if (argc - optind < 2) {
        fputs("cpl3 replay: a TRACE and at least one DIR are needed; see cpl3 replay --help\n",
              stderr);
        return false;
    }
    arguments->options.trace_path = argv[optind];
    arguments->options.directories = argv + optind + 1;
    arguments->options.directory_count = (unsigned)(argc - optind - 1);
    if (arguments->ranks && arguments->ranks != arguments->options.directory_count) {
        fprintf(stderr, "cpl3 replay: --ranks %" PRIu64 ": that many DIRs are needed, not %u\n",
                arguments->ranks, arguments->options.directory_count);
        return false;
    }
    return true;
}

/* summary */

static double hit_rate(const struct replay_counts *counts) {
    return counts->blocks ? (double)counts->hits / (double)counts->blocks : 0;
}

static double milliseconds(const struct latency *latency, double percent) {
    return (double)latency_percentile_ns(latency, percent) / 1e6;
}

static void print_latency(const char *what, const struct latency *latency) {
    if (latency->count)
        printf("%-16s p50 %.3f ms, p99 %.3f ms, p99.9 %.3f ms\n", what, milliseconds(latency, 50),
               milliseconds(latency, 99), milliseconds(latency, 99.9));
    else
        printf("%-16s none\n", what);
}

static void print_text(const struct replay_options *options, const struct replay_result *result) {
    const struct replay_counts *counts = &result->counts;
    double seconds = (double)result->elapsed_ns / 1e9;
    printf("requests         %" PRIu64 " in %.2f s; threads: %u, ranks: %u, block bytes: %" PRIu64
           "\n",
           counts->requests, seconds, options->threads, options->directory_count,
           options->block_bytes);
    printf("prefix hit rate  %.4f (%" PRIu64 " of %" PRIu64 " blocks)\n", hit_rate(counts),
           counts->hits, counts->blocks);
    printf("read             %.3f GiB\n", (double)counts->bytes_read / GIB);
    printf("written          %.3f GiB (%" PRIu64 " blocks; %" PRIu64 " touched)\n",
           (double)counts->bytes_written / GIB, counts->puts, counts->touches);
    print_latency("get", &result->get);
    print_latency("put", &result->put);
    if (result->evictions_known)
        printf("evictions        %" PRIu64 "\n", result->evictions);
    else
        puts("evictions        unknown: no .cpl3/stats beside the directories");
    printf("wrong bytes      %" PRIu64 "\n", counts->wrong_bytes);
    printf("errors           %" PRIu64 "\n", counts->errors);
}

static json_t *latency_json(const struct latency *latency) {
    return json_pack("{s:I, s:f, s:f, s:f}", "count", (json_int_t)latency->count, "p50",
                     milliseconds(latency, 50), "p99", milliseconds(latency, 99), "p99.9",
                     milliseconds(latency, 99.9));
}

static void print_json(const struct replay_options *options, const struct replay_result *result) {
    const struct replay_counts *counts = &result->counts;
    json_t *summary = json_pack(
        "{s:I, s:f, s:i, s:i, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I}",
        "requests", (json_int_t)counts->requests, "seconds", (double)result->elapsed_ns / 1e9,
        "threads", (int)options->threads, "ranks", (int)options->directory_count, "block_bytes",
        (json_int_t)options->block_bytes, "blocks", (json_int_t)counts->blocks, "hits",
        (json_int_t)counts->hits, "prefix_hit_rate", hit_rate(counts), "puts",
        (json_int_t)counts->puts, "touches", (json_int_t)counts->touches, "bytes_read",
        (json_int_t)counts->bytes_read, "bytes_written", (json_int_t)counts->bytes_written,
        "get_ms", latency_json(&result->get), "put_ms", latency_json(&result->put), "evictions",
        result->evictions_known ? json_integer((json_int_t)result->evictions) : json_null(),
        "wrong_bytes", (json_int_t)counts->wrong_bytes, "errors", (json_int_t)counts->errors);
    json_dumpf(summary, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(summary);
}

int command_replay(int argc, char **argv) {
    struct arguments arguments = {
        .options = {.block_bytes = 65536, .threads = 1, .requests_max = UINT64_MAX}};
    if (!parse_arguments(argc, argv, &arguments))
        return EXIT_USAGE;
    if (arguments.help) {
        fputs(help, stdout);
        return EXIT_GOOD;
    }
    AUTO_FREE struct replay_result *result = calloc(1, sizeof(*result));
    if (!result || replay_run(&arguments.options, result) != 0)
        return EXIT_BAD;
    if (arguments.json)
        print_json(&arguments.options, result);
    else
        print_text(&arguments.options, result);
    return result->counts.wrong_bytes || result->counts.errors ? EXIT_BAD : EXIT_GOOD;
}
