/* SPDX-License-Identifier: Apache-2.0 */
/* How a rank comes to life: its lock, its budgets, its threads. */
#include "core/rank_open.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/rank.h"
#include "core/superblock.h"
#include "core/writer.h"

/* budgets */

/* Of the space for undeclared files, this part is left to what the file system needs for slabs in
 * pieces: on ext4 a block of 4 KiB for at most 340 pieces, each a slot of 8 KiB or more. */
enum { METADATA_PART = 256 };

static uint64_t kind_slots(const struct config *config, const struct config_kind *kind) {
    if (kind->slots)
        return kind->slots;
    return config->size_bytes / 100 * kind->share_percent /
           slot_bytes_for_page(kind->payload_bytes);
}

/* What the declared kinds leave of `size`. False: more than there is. */
static bool kind0_bytes(const struct config *config, uint64_t *ret_bytes) {
    uint64_t left = config->size_bytes;
    for (unsigned i = 0; i < config->kind_count; i++) {
        uint64_t bytes = kind_slots(config, &config->kinds[i]) *
                         slot_bytes_for_page(config->kinds[i].payload_bytes);
        if (bytes > left)
            return false;
        left -= bytes;
    }
    *ret_bytes = left;
    return true;
}

int rank_check_budgets(struct config *config) {
    uint64_t left;
    for (unsigned i = 0; i < config->kind_count; i++)
        if (kind_slots(config, &config->kinds[i]) == 0) {
            log_error("payload=%s: size=%" PRIu64 " leaves it no slot of %" PRIu64 " bytes",
                      config->kinds[i].name, config->size_bytes,
                      slot_bytes_for_page(config->kinds[i].payload_bytes));
            return -EINVAL;
        }
    if (!kind0_bytes(config, &left)) {
        log_error("the declared payload kinds need more than size=%" PRIu64
                  "; give a larger size or fewer slots",
                  config->size_bytes);
        return -EINVAL;
    }
    /* Four of the largest files: room for one to be written while GC keeps a tenth free. */
    uint64_t largest = left / 4 / BLOCK_BYTES * BLOCK_BYTES;
    uint64_t from_memory = config->memory_bytes / 2;
    if (left < 1 << 20) {
        log_error("size=%" PRIu64 " leaves %" PRIu64 " bytes for undeclared files; at least 1 MiB "
                  "is needed",
                  config->size_bytes, left);
        return -EINVAL;
    }
    if (!config->max_file_given) {
        if (config->max_file_bytes > largest)
            config->max_file_bytes = largest;
        if (config->max_file_bytes > from_memory)
            config->max_file_bytes = from_memory;
    }
    if (config->max_file_bytes > largest) {
        log_error("max_file=%" PRIu64 " is more than a quarter of the space for undeclared files "
                  "(%" PRIu64 "); give a larger size or a smaller max_file",
                  config->max_file_bytes, left);
        return -EINVAL;
    }
    if (config->max_file_bytes > from_memory) {
        log_error("memory=%" PRIu64 " is less than twice max_file=%" PRIu64, config->memory_bytes,
                  config->max_file_bytes);
        return -EINVAL;
    }
    return 0;
}

static int open_budget(struct rank *rank, uint8_t kind) {
    const struct config *config = &rank->store->config;
    struct budget_options options = {.rank_directory_fd = rank->directory_fd,
                                     .kind = kind,
                                     .kind_name = "any",
                                     .max_file_bytes = config->max_file_bytes,
                                     .read_only = config->read_only};
    if (kind == 0) {
        CHECK(kind0_bytes(config, &options.limit_bytes));
        options.limit_bytes -= options.limit_bytes / METADATA_PART;
    } else {
        const struct config_kind *declared = &config->kinds[kind - 1];
        options.kind_name = declared->name;
        options.payload_bytes = declared->payload_bytes;
        options.slots = (uint32_t)kind_slots(config, declared);
    }
    int result = budget_open(&options, &rank->budgets[kind]);
    if (result < 0)
        return result;
    rank->budget_count = kind + 1u;
    return gc_create(&rank->gcs[kind]);
}

/* life */

int rank_open(struct rank *rank) {
    pthread_mutex_init(&rank->change_lock, NULL);
    rank->next_sequence = 1;
    rank->next_directory = 2;
    if (getrandom(&rank->id_prefix, sizeof(rank->id_prefix), 0) != sizeof(rank->id_prefix))
        return -EIO;
    int result = 0;
    for (unsigned kind = 0; result == 0 && kind <= rank->store->config.kind_count; kind++)
        result = open_budget(rank, (uint8_t)kind);
    if (result == 0)
        result = overlay_create(&rank->overlay);
    if (result == 0)
        result = touches_create(&rank->touches);
    if (result == 0)
        result = cold_start_run(rank);
    return result;
}

static void on_bad(void *argument, const struct blob_key *key, uint64_t sequence,
                   const char *reason) {
    struct rank *rank = argument;
    if (rank_drop_blob(rank, key, sequence))
        log_limited(&rank->bad_log, "rank %u: a blob of kind %u: %s; dropped, counted as a miss",
                    rank->number, key->kind, reason);
}

static void on_unpinned(void *argument, struct pool *pool, uint32_t slot) {
    struct rank *rank = argument;
    (void)pool;
    (void)slot;
    if (rank->writer)
        writer_note_unpinned(rank->writer);
}

int rank_start(struct rank *rank) {
    struct version_table_options options = {.rank = rank->number,
                                            .buffers = rank->store->buffers,
                                            .engine = rank->store->config.engine,
                                            .stats = &rank->stats,
                                            .on_bad = on_bad,
                                            .on_unpinned = on_unpinned,
                                            .argument = rank};
    int result = version_table_open(&options, &rank->versions);
    if (result == 0)
        result = writer_start(rank, rank->store->config.engine, &rank->writer);
    if (result < 0)
        log_error("rank %u: starting its threads (engine=%s): %s", rank->number,
                  rank->store->config.engine == SLAB_ENGINE_URING ? "uring" : "auto or posix",
                  strerror(-result));
    return result;
}

void rank_stop(struct rank *rank) {
    writer_stop(rank->writer);
    rank->writer = NULL;
}

void rank_close(struct rank *rank) {
    overlay_destroy(rank->overlay);
    version_table_close(rank->versions);
    touches_destroy(rank->touches);
    for (unsigned kind = 0; kind < PAYLOAD_KINDS_MAX; kind++) {
        gc_destroy(rank->gcs[kind]);
        budget_close(rank->budgets[kind]);
    }
}

uint16_t rank_number(const struct rank *rank) {
    return rank->number;
}

struct rank_stats *rank_get_stats(struct rank *rank) {
    return &rank->stats;
}

int rank_commit(struct rank *rank, struct waiter *waiter) {
    uint64_t last;
    {
        SCOPE_LOCK(&rank->change_lock);
        last = rank->last_asked;
    }
    if (last <= writer_durable_change(rank->writer))
        return 0;
    stats_add(&rank->stats, fsyncs, 1);
    writer_wait_commit(rank->writer, waiter, last);
    return -EINPROGRESS;
}

int rank_clear(struct rank *rank, struct waiter *waiter) {
    if (rank->store->config.read_only)
        return -EROFS;
    writer_wait_clear(rank->writer, waiter);
    return -EINPROGRESS;
}
