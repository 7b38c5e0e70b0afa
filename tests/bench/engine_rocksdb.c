/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RocksDB with blob files, as a bounded cache of pages is kept in it: every value in a blob file,
 * FIFO compaction to the capacity (it drops the oldest files, whatever was read; it counts tables
 * and not the blobs that they lead to, so its bound is set by their ratio), no compression
 * (pages do not compress), checksums as by default, a block cache as large as cpl3's read cache.
 * Puts go through its log, as they do by default; put_durable syncs that.
 */
#include "tests/bench/engine.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rocksdb/c.h>

#include "core/cleanup.h"
#include "tests/bench/disk.h"
#include "tests/bench/sample.h"

#define MIB (1ull << 20)

enum { CACHE_MIB = 512, WRITE_BUFFER_MIB = 64, BLOB_FILE_MIB = 64 };

struct rocks {
    rocksdb_t *database;
    rocksdb_options_t *options;
    rocksdb_cache_t *cache;
    rocksdb_writeoptions_t *write, *write_durable;
    rocksdb_readoptions_t *read;
    uint64_t capacity_bytes;
    _Atomic uint64_t puts; /* of names that were never put before: only the suites past capacity */
};

static void check(const struct target *target, const char *what, char *error) {
    if (error)
        give_up("%s: %s: %s", target->base, what, error);
}

static rocksdb_options_t *make_options(const struct rocks *rocks) {
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_set_write_buffer_size(options, WRITE_BUFFER_MIB * MIB);
    rocksdb_options_set_max_write_buffer_number(options, 4);
    rocksdb_options_set_max_background_jobs(options, 4);
    rocksdb_options_set_max_open_files(options, -1); /* FIFO wants all */
    rocksdb_options_set_enable_blob_files(options, 1);
    rocksdb_options_set_min_blob_size(options, 4096);
    rocksdb_options_set_blob_file_size(options, BLOB_FILE_MIB * MIB);
    rocksdb_options_set_blob_compression_type(options, rocksdb_no_compression);
    rocksdb_options_set_blob_cache(options, rocks->cache);
    rocksdb_options_set_compaction_style(options, rocksdb_fifo_compaction);
    /* FIFO never merges: many files of the first level are no reason to stall. */
    rocksdb_options_set_level0_slowdown_writes_trigger(options, 1 << 20);
    rocksdb_options_set_level0_stop_writes_trigger(options, 1 << 20);
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom(10));
    rocksdb_block_based_options_set_block_cache(table, rocks->cache);
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_block_based_options_destroy(table);
    return options;
}

static void open_database(struct target *target) {
    struct rocks *rocks = target->rocks;
    char *error = NULL;
    rocks->cache = rocksdb_cache_create_lru(CACHE_MIB * MIB);
    rocks->options = make_options(rocks);
    rocks->database = rocksdb_open(rocks->options, target->directory, &error);
    check(target, "opening", error);
}

static void close_database(struct target *target) {
    struct rocks *rocks = target->rocks;
    rocksdb_close(rocks->database);
    rocksdb_options_destroy(rocks->options);
    rocksdb_cache_destroy(rocks->cache);
}

static void prepare(struct target *target, uint64_t capacity_bytes) {
    struct rocks *rocks = calloc(1, sizeof *rocks);
    if (!rocks)
        give_up("no memory");
    rocks->capacity_bytes = capacity_bytes;
    rocks->write = rocksdb_writeoptions_create();
    rocks->write_durable = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(rocks->write_durable, 1);
    rocks->read = rocksdb_readoptions_create();
    target->rocks = rocks;
    disk_make_empty_directory(target->base);
    strcpy(target->directory, target->base);
    strcat(target->directory, "/db");
    open_database(target);
}

static void make_reusable(struct target *target) {
    struct rocks *rocks = target->rocks;
    close_database(target);
    disk_remove_tree(target->directory);
    atomic_store(&rocks->puts, 0);
    open_database(target);
    disk_settle(target->base);
}

static void flush(struct target *target) {
    char *error = NULL;
    rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();
    rocksdb_flush(target->rocks->database, options, &error);
    rocksdb_flushoptions_destroy(options);
    check(target, "flushing", error);
    disk_sync(target->base);
}

static void drop_caches(struct target *target) {
    close_database(target);
    disk_settle(target->base);
    disk_drop_caches();
    open_database(target);
}

static void destroy(struct target *target) {
    struct rocks *rocks = target->rocks;
    close_database(target);
    rocksdb_writeoptions_destroy(rocks->write);
    rocksdb_writeoptions_destroy(rocks->write_durable);
    rocksdb_readoptions_destroy(rocks->read);
    free(rocks);
    target->rocks = NULL;
    disk_remove_tree(target->base);
}

/* Once for each write buffer put. */
static void fit_to_capacity(const struct target *target, uint64_t puts, size_t object_bytes) {
    const struct rocks *rocks = target->rocks;
    uint64_t tables_bytes = 0, blobs_bytes = 0;
    char bound[64], *error = NULL;
    const char *names[] = {"compaction_options_fifo"}, *values[] = {bound};
    if (puts % (WRITE_BUFFER_MIB * MIB / object_bytes + 1) != 0)
        return;
    rocksdb_property_int(rocks->database, "rocksdb.total-sst-files-size", &tables_bytes);
    rocksdb_property_int(rocks->database, "rocksdb.live-blob-file-size", &blobs_bytes);
    if (tables_bytes == 0 || blobs_bytes == 0)
        return;
    snprintf(bound, sizeof bound, "{max_table_files_size=%.0f;}",
             (double)rocks->capacity_bytes * (double)tables_bytes / (double)blobs_bytes);
    rocksdb_set_options(rocks->database, 1, names, values, &error);
    check(target, "setting the bound", error);
}

static void put_with(struct worker *worker, uint64_t id, rocksdb_writeoptions_t *options) {
    struct rocks *rocks = worker->target->rocks;
    char name[ENGINE_NAME_BYTES + 1], *error = NULL;
    engine_make_name(id, name);
    engine_stamp(worker, id);
    rocksdb_put(rocks->database, options, name, ENGINE_NAME_BYTES, (const char *)worker->buffer,
                worker->object_bytes, &error);
    check(worker->target, "put", error);
    uint64_t puts = atomic_fetch_add(&rocks->puts, 1);
    fit_to_capacity(worker->target, puts, worker->object_bytes);
}

static void put(struct worker *worker, uint64_t id) {
    put_with(worker, id, worker->target->rocks->write);
}

static void put_durable(struct worker *worker, uint64_t id) {
    put_with(worker, id, worker->target->rocks->write_durable);
}

/* Into the client's own buffer, as every engine delivers. */
static void get(struct worker *worker, uint64_t id) {
    struct rocks *rocks = worker->target->rocks;
    char name[ENGINE_NAME_BYTES + 1], *error = NULL;
    engine_make_name(id, name);
    rocksdb_pinnableslice_t *slice =
        rocksdb_get_pinned(rocks->database, rocks->read, name, ENGINE_NAME_BYTES, &error);
    check(worker->target, "get", error);
    size_t bytes = 0;
    const char *value = slice ? rocksdb_pinnableslice_value(slice, &bytes) : NULL;
    if (!value || bytes != worker->object_bytes)
        give_up("%s: object %" PRIu64 " has %zu bytes", worker->target->base, id, bytes);
    memcpy(worker->buffer, value, bytes);
    rocksdb_pinnableslice_destroy(slice);
    engine_check_stamp(worker, id);
}

static uint64_t count_evictions(struct target *target) {
    uint64_t keys = 0, puts = atomic_load(&target->rocks->puts);
    rocksdb_property_int(target->rocks->database, "rocksdb.estimate-num-keys", &keys);
    return puts > keys ? puts - keys : 0;
}

const struct engine engine_rocksdb = {
    .name = "rocksdb",
    .measures = MEASURES_PAGES | MEASURES_HOT_GETS | MEASURES_EVICTION,
    .huge_buffers = true,
    .fills_page_cache = true,
    .prepare = prepare,
    .make_reusable = make_reusable,
    .sync = flush,
    .drop_caches = drop_caches,
    .destroy = destroy,
    .put = put,
    .put_durable = put_durable,
    .get = get,
    .count_evictions = count_evictions,
};
