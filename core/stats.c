/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store tells about itself: `key value` lines for people and scripts, Prometheus text, and
 * the options in force. All from the one table in stats.h and the gauges below.
 */
#include "core/stats.h"

#include <inttypes.h>

#include "core/rank.h"
#include "core/writer.h"

struct gauge {
    const char *name, *help;
    uint64_t value;
};

enum { GAUGES = 18 };

static void fill_gauges(struct rank *rank, struct gauge ret_gauges[GAUGES]) {
    struct rank_usage usage;
    rank_get_usage(rank, &usage);
    const struct cold_start_report *cold = &rank->cold_start;
    const struct gauge gauges[GAUGES] = {
        {"size_bytes", "the rank's bound on disk", usage.size_bytes},
        {"used_bytes", "bytes of slots promised to blobs", usage.taken_bytes},
        {"backed_bytes", "bytes that slabs and inline blobs occupy", usage.backed_bytes},
        {"evictable_bytes", "bytes of slots that GC could free now", usage.evictable_bytes},
        {"live_blobs", "blobs that can be read", usage.live_slots},
        {"free_slots", "slots of the commonest size that are free", usage.free_slots},
        {"pending_bytes", "published, not yet durable", usage.pending_bytes},
        {"directories", "directories", usage.directories},
        {"open_handles", "files open through the mount", stats_get(&rank->stats, open_handles)},
        {"cached_bytes", "verified bytes in memory", version_table_cached_bytes(rank->versions)},
        {"versions", "versions known in memory", version_table_count(rank->versions)},
        {"overlay_entries", "changes not yet committed", overlay_entries(rank->overlay)},
        {"epoch", "bumped by every clear", atomic_load(&rank->epoch)},
        {"commits_failing", "1 while the index cannot be written", writer_is_failing(rank->writer)},
        {"cold_start_load", "1 if this mount began with load", cold->loaded},
        {"cold_start_blobs", "blobs that the cold start brought back",
         cold->live_slots + cold->live_inline},
        {"cold_start_pruned", "stale records and names that the cold start dropped",
         cold->pruned_records + cold->pruned_names},
        {"cold_start_us", "time the cold start took, microseconds", cold->nanoseconds / 1000},
    };
    for (unsigned i = 0; i < GAUGES; i++)
        ret_gauges[i] = gauges[i];
}

static void print_store_stats(struct store *store, FILE *out) {
    struct index_usage index = {0};
    index_get_usage(store->index, &index);
    fprintf(out, "store.uuid %s\n", store->uuid);
    fprintf(out, "store.ranks %u\n", store->rank_count);
    static const char *const shares[BUFFER_SHARES] = {"staging", "reading", "requests"};
    for (int share = 0; share < BUFFER_SHARES; share++)
        fprintf(out, "memory.%s_bytes %" PRIu64 "\nmemory.%s_limit_bytes %" PRIu64 "\n",
                shares[share], buffer_pool_used_bytes(store->buffers, (enum buffer_share)share),
                shares[share], buffer_pool_share_bytes(store->buffers, (enum buffer_share)share));
    fprintf(out,
            "index.used_bytes %" PRIu64 "\nindex.file_bytes %" PRIu64 "\nindex.bound_bytes %" PRIu64
            "\nindex.blobs %" PRIu64 "\nindex.names %" PRIu64 "\nindex.readers %u\n",
            index.used_bytes, index.file_bytes, index.map_bytes, index.blobs, index.names,
            index.readers);
}

void store_print_stats(struct store *store, FILE *out) {
    print_store_stats(store, out);
    for (unsigned r = 0; r < store->rank_count; r++) {
        struct rank *rank = &store->ranks[r];
        struct gauge gauges[GAUGES];
        fill_gauges(rank, gauges);
        fprintf(out, "rank%u.engine %s\n", rank->number, writer_engine_name(rank->writer));
        for (unsigned i = 0; i < GAUGES; i++)
            fprintf(out, "rank%u.%s %" PRIu64 "\n", rank->number, gauges[i].name, gauges[i].value);
#define X(name, help)                                                                              \
    fprintf(out, "rank%u.%s %" PRIu64 "\n", rank->number, #name, stats_get(&rank->stats, name));
        STATS_COUNTERS(X)
#undef X
    }
}

/* One metric with its help, and a sample a rank. */
static void print_metric_head(FILE *out, const char *name, const char *suffix, const char *type,
                              const char *help) {
    fprintf(out, "# HELP cpl3_%s%s %s\n# TYPE cpl3_%s%s %s\n", name, suffix, help, name, suffix,
            type);
}

void store_print_metrics(struct store *store, FILE *out) {
#define X(name, help)                                                                              \
    print_metric_head(out, #name, "_total", "counter", help);                                      \
    for (unsigned r = 0; r < store->rank_count; r++)                                               \
        fprintf(out, "cpl3_%s_total{rank=\"%u\"} %" PRIu64 "\n", #name, store->ranks[r].number,    \
                stats_get(&store->ranks[r].stats, name));
    STATS_COUNTERS(X)
#undef X
    for (unsigned i = 0; i < GAUGES; i++)
        for (unsigned r = 0; r < store->rank_count; r++) {
            struct gauge gauges[GAUGES];
            fill_gauges(&store->ranks[r], gauges);
            if (r == 0)
                print_metric_head(out, gauges[i].name, "", "gauge", gauges[i].help);
            fprintf(out, "cpl3_%s{rank=\"%u\"} %" PRIu64 "\n", gauges[i].name,
                    store->ranks[r].number, gauges[i].value);
        }
}

void store_print_config(struct store *store, FILE *out) {
    const struct config *config = &store->config;
    static const char *const engines[] = {"auto", "uring", "posix"};
    fprintf(out, "store=%s\nuuid=%s\nrank=%u-%u\nsize=%" PRIu64 "\n", config->store_path,
            store->uuid, config->rank_first, config->rank_last, config->size_bytes);
    for (unsigned i = 0; i < config->kind_count; i++)
        fprintf(out, "payload=%s:%u:%" PRIu64 "\n", config->kinds[i].name,
                config->kinds[i].payload_bytes,
                budget_limit_bytes(store->ranks[0].budgets[i + 1]) /
                    slot_bytes_for_page(config->kinds[i].payload_bytes));
    fprintf(out, "cold_start=%s\ntag=%s\ngc_start=%.4g\ngc_stop=%.4g\ncommit=%.9g\n",
            config->cold_start == COLD_START_LOAD ? "load" : "clear", config->tag, config->gc_start,
            config->gc_stop, (double)config->commit_ns / 1e9);
    fprintf(out, "sync=%d\nro=%d\n", config->sync, config->read_only);
    fprintf(out, "memory=%" PRIu64 "\nmax_file=%" PRIu64 "\nengine=%s\n", config->memory_bytes,
            config->max_file_bytes, engines[config->engine]);
}
