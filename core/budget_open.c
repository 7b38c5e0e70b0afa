/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a budget: checks what it was asked for, takes over the slab files that the rank's
 * directory has, and makes the pools that a publication may need.
 */
#include "core/budget_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/log.h"

/* Inline slots have no file that tells how many a larger `size` had: room for 8 GiB of them. */
enum { INLINE_SLOTS_MIN = 1 << 20 };

static int open_failed(const struct budget *budget, const char *what, int error) {
    log_error("payload kind %s: cannot open its slabs: %s: %s", budget->kind_name, what,
              strerror(-error));
    return error;
}

/* A slab that the directory has: a pool with at least as many slots as the file reaches. */
static int open_existing(struct budget *budget, const char *name, uint32_t slot_bytes,
                         uint32_t slots_wanted, struct pool **ret_pool) {
    struct stat file;
    if (fstatat(budget->rank_directory_fd, name, &file, AT_SYMLINK_NOFOLLOW) < 0)
        return open_failed(budget, name, -errno);
    if (!S_ISREG(file.st_mode))
        return open_failed(budget, name, -EINVAL);
    uint64_t slots = ((uint64_t)file.st_size + slot_bytes - 1) / slot_bytes;
    if (slots > BUDGET_SLOTS_MAX)
        return open_failed(budget, name, -EFBIG);
    if (slots < slots_wanted)
        slots = slots_wanted;

    struct pool *pool;
    struct slab *slab;
    int r = budget_make_pool(budget, slot_bytes, (uint32_t)slots, &pool);
    if (r)
        return open_failed(budget, name, r);
    r = slab_open(budget->rank_directory_fd, name, slot_bytes, (uint32_t)slots, budget->read_only,
                  &slab);
    if (r) {
        budget_free_pool(pool);
        return open_failed(budget, name, r);
    }
    atomic_store(&pool->slab, slab);
    *ret_pool = pool;
    return 0;
}

/* A slab of kind 0 found in the directory. */
static int open_class(struct budget *budget, const char *name, uint32_t slot_bytes) {
    bool on_grid = size_grid_has(&budget->grid, slot_bytes);
    if (!on_grid && (slot_bytes < slot_bytes_for_page(BUDGET_EXACT_BYTES_MIN) ||
                     atomic_load(&budget->exact_count) == BUDGET_EXACT_POOLS_MAX)) {
        log_notice("slab %s: no size class has slots of %u bytes; the file is left alone", name,
                   slot_bytes);
        return 0;
    }
    struct pool *pool;
    int r = open_existing(budget, name, slot_bytes, budget_slots_within_limit(budget, slot_bytes),
                          &pool);
    if (r)
        return r;
    pool->exact = !on_grid;
    if (on_grid)
        budget->grid_pools[size_grid_class_for(&budget->grid, slot_bytes)] = pool;
    budget_publish_pool(budget, pool);
    return 0;
}

/* A slab of a declared kind found in the directory: there is one slot size. */
static int open_declared(struct budget *budget, const char *name, uint32_t slot_bytes,
                         const struct budget_options *options) {
    uint64_t expected = slot_bytes_for_page(options->payload_bytes);
    if (slot_bytes != expected) {
        log_error("payload kind %s: the store has %s with slots of %u bytes, but pages of %u bytes "
                  "need slots of %" PRIu64 " bytes",
                  budget->kind_name, name, slot_bytes, options->payload_bytes, expected);
        return -EINVAL;
    }
    struct pool *pool;
    int r = open_existing(budget, name, slot_bytes, options->slots, &pool);
    if (r)
        return r;
    budget_publish_pool(budget, pool);
    return 0;
}

static int open_found_file(struct budget *budget, const char *name,
                           const struct budget_options *options) {
    uint32_t slot_bytes;
    switch (slab_name_parse(name, budget->kind_name, &slot_bytes)) {
    case SLAB_NAME_FOREIGN:
        return 0;
    case SLAB_NAME_STRANGE:
        if (budget->kind == 0) /* one of the budgets says it */
            log_notice("slab %s: not a name that cpl3 makes; the file is left alone", name);
        return 0;
    case SLAB_NAME_OURS:
        return budget->kind == 0 ? open_class(budget, name, slot_bytes)
                                 : open_declared(budget, name, slot_bytes, options);
    }
    return 0;
}

static int open_found_files(struct budget *budget, const struct budget_options *options) {
    int fd = openat(budget->rank_directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return open_failed(budget, "the rank's directory", -errno);
    AUTO_CLOSEDIR DIR *directory = fdopendir(fd);
    if (!directory) {
        int error = -errno;
        close(fd);
        return open_failed(budget, "the rank's directory", error);
    }
    for (;;) {
        errno = 0;
        const struct dirent *found = readdir(directory);
        if (!found)
            return errno ? open_failed(budget, "the rank's directory", -errno) : 0;
        int r = open_found_file(budget, found->d_name, options);
        if (r)
            return r;
    }
}

int budget_drop_slab(struct budget *budget, struct pool *pool) {
    CHECK(pool->exact && !budget->read_only);
    CHECK(slot_pool_free_slots(pool->slots) == pool->slots_max);
    CHECK(slot_pool_backed_slots(pool->slots) == 0);
    struct slab *slab = atomic_load(&pool->slab);
    if (!slab)
        return 0;
    char name[SLAB_NAME_BYTES_MAX];
    slab_name_format(budget->kind_name, pool->slot_bytes, name);
    if (unlinkat(budget->rank_directory_fd, name, 0) < 0 && errno != ENOENT)
        return -errno;
    atomic_store(&pool->slab, NULL);
    slab_close(slab);
    return 0;
}

/* The exact class with the shortest slab, and how many have one. */
static int find_shortest(struct budget *budget, unsigned *ret_count, struct pool **ret_pool) {
    struct pool *shortest = NULL;
    uint64_t least = UINT64_MAX;
    unsigned count = 0, exact = atomic_load(&budget->exact_count);
    for (unsigned i = 0; i < exact; i++) {
        struct pool *pool = atomic_load(&budget->exact_pools[i]);
        const struct slab *slab = atomic_load(&pool->slab);
        uint32_t slots;
        int r = slab ? slab_slots_in_file(slab, &slots) : 0;
        if (r)
            return r;
        if (!slab)
            continue;
        count++;
        if ((uint64_t)slots * pool->slot_bytes < least) {
            least = (uint64_t)slots * pool->slot_bytes;
            shortest = pool;
        }
    }
    *ret_count = count;
    *ret_pool = shortest;
    return 0;
}

int budget_drop_surplus_slabs(struct budget *budget) {
    for (;;) {
        unsigned count;
        struct pool *pool;
        int r = find_shortest(budget, &count, &pool);
        if (r || count <= BUDGET_EXACT_CLASSES)
            return r;
        r = budget_drop_slab(budget, pool);
        if (r)
            return r;
    }
}

/* A pool without a slab; a class or a declared kind gets one at first use. */
static int add_empty_pool(struct budget *budget, uint32_t slot_bytes, uint32_t slots_max,
                          bool is_inline) {
    struct pool *pool;
    int r = budget_make_pool(budget, slot_bytes, slots_max, &pool);
    if (r)
        return open_failed(budget, "memory for its slots", r);
    pool->is_inline = is_inline;
    if (budget->kind == 0 && !is_inline)
        budget->grid_pools[size_grid_class_for(&budget->grid, slot_bytes)] = pool;
    budget_publish_pool(budget, pool);
    return 0;
}

static int open_classes(struct budget *budget, const struct budget_options *options) {
    uint32_t inline_slots = budget_slots_within_limit(budget, INLINE_COST_BYTES);
    if (inline_slots < INLINE_SLOTS_MIN)
        inline_slots = INLINE_SLOTS_MIN;
    int r = add_empty_pool(budget, INLINE_COST_BYTES, inline_slots, true);
    if (r)
        return r;
    size_grid_fill(&budget->grid);
    r = open_found_files(budget, options);
    if (r)
        return r;
    uint32_t largest = (uint32_t)slot_bytes_for_page(budget->payload_max);
    unsigned last = size_grid_class_for(&budget->grid, largest);
    for (unsigned i = 0; i <= last && r == 0; i++) {
        uint32_t slot_bytes = budget->grid.slot_bytes[i];
        if (!budget->grid_pools[i])
            r = add_empty_pool(budget, slot_bytes, budget_slots_within_limit(budget, slot_bytes),
                               false);
    }
    return r;
}

static int open_pools(struct budget *budget, const struct budget_options *options) {
    if (budget->kind == 0)
        return open_classes(budget, options);
    int r = open_found_files(budget, options);
    if (r || budget_pool_at(budget, 0))
        return r;
    return add_empty_pool(budget, (uint32_t)slot_bytes_for_page(options->payload_bytes),
                          options->slots, false);
}

static int check_options(const struct budget_options *options) {
    const char *name = options->kind_name;
    uint64_t payload_max = options->kind ? options->payload_bytes : options->max_file_bytes;
    CHECK(name[0] && strlen(name) < BUDGET_KIND_NAME_BYTES);
    if (payload_max == 0 || payload_max > PAYLOAD_BYTES_MAX) {
        log_error("payload kind %s: %" PRIu64 " bytes a page; 1 to %u are possible", name,
                  payload_max, PAYLOAD_BYTES_MAX);
        return -EINVAL;
    }
    if (options->kind && (options->slots == 0 || options->slots > BUDGET_SLOTS_MAX)) {
        log_error("payload kind %s: %u slots; 1 to %d are possible", name, options->slots,
                  BUDGET_SLOTS_MAX);
        return -EINVAL;
    }
    return 0;
}

int budget_open(const struct budget_options *options, struct budget **ret_budget) {
    int r = check_options(options);
    if (r)
        return r;
    struct budget *budget = calloc(1, sizeof(*budget));
    if (!budget) {
        log_error("payload kind %s: no memory", options->kind_name);
        return -ENOMEM;
    }
    budget->rank_directory_fd = options->rank_directory_fd;
    budget->kind = options->kind;
    budget->read_only = options->read_only;
    strcpy(budget->kind_name, options->kind_name);
    budget->payload_max = options->kind ? options->payload_bytes : options->max_file_bytes;
    budget->limit_bytes = options->kind
                              ? options->slots * slot_bytes_for_page(options->payload_bytes)
                              : options->limit_bytes;
    budget->can_punch = true;
    pthread_mutex_init(&budget->lock, NULL);
    if (!options->read_only && !slab_can_punch(options->rank_directory_fd))
        budget_note_unpunchable(budget);
    r = open_pools(budget, options);
    if (r) {
        budget_close(budget);
        return r;
    }
    *ret_budget = budget;
    return 0;
}

void budget_close(struct budget *budget) {
    if (!budget)
        return;
    struct pool *pool;
    for (unsigned i = 0; (pool = budget_pool_at(budget, i)); i++)
        budget_free_pool(pool);
    pthread_mutex_destroy(&budget->lock);
    free(budget);
}
