/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's directory for tests of budgets, without the rank: real sparse slabs in a temporary
 * directory, filled by plain writes. The test plays the write thread.
 */
#ifndef CPL3_TESTS_SUPPORT_BUDGET_WORLD_H
#define CPL3_TESTS_SUPPORT_BUDGET_WORLD_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/budget.h"
#include "core/check.h"

enum { MIB = 1 << 20, MAX_FILE = 4 * MIB };

static char directory_path[4096];
static int directory_fd = -1;

static inline int remove_one(const char *path, const struct stat *status, int type,
                             struct FTW *walk) {
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

static inline void make_directory(void) {
    const char *top = getenv("TMPDIR");
    snprintf(directory_path, sizeof(directory_path), "%s/cpl3-budget-XXXXXX", top ? top : "/tmp");
    cr_assert(mkdtemp(directory_path));
    directory_fd = open(directory_path, O_RDONLY | O_DIRECTORY);
    cr_assert_geq(directory_fd, 0);
    thread_role = THREAD_WRITER;
}

static inline void remove_directory(void) {
    close(directory_fd);
    nftw(directory_path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline struct budget *open_any(uint64_t limit_bytes) {
    struct budget_options options = {.rank_directory_fd = directory_fd,
                                     .kind_name = "any",
                                     .limit_bytes = limit_bytes,
                                     .max_file_bytes = MAX_FILE};
    struct budget *budget;
    cr_assert_eq(budget_open(&options, &budget), 0);
    return budget;
}

static inline void make_file(const char *name, off_t bytes) {
    int fd = openat(directory_fd, name, O_RDWR | O_CREAT, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(ftruncate(fd, bytes), 0);
    close(fd);
}

static inline off_t file_bytes(const char *name) {
    struct stat status;
    return fstatat(directory_fd, name, &status, 0) == 0 ? status.st_size : -1;
}

/* What a write of the slot leaves on the disk. */
static inline void fill_slot(const struct pool *pool, uint32_t slot) {
    static char bytes[MAX_FILE + 2 * MIB];
    char name[64];
    if (pool->is_inline)
        return;
    snprintf(name, sizeof(name), "any-%u.slab", pool->slot_bytes);
    int fd = openat(directory_fd, name, O_RDWR);
    cr_assert_geq(fd, 0);
    cr_assert_eq(pwrite(fd, bytes, pool->slot_bytes, (off_t)slot * pool->slot_bytes),
                 (ssize_t)pool->slot_bytes);
    close(fd);
}

static inline uint32_t take_slot(struct budget *budget, struct pool *pool) {
    uint32_t slot;
    cr_assert(budget_take(pool));
    cr_assert_eq(budget_allocate_slot(budget, pool, &slot), 0);
    return slot;
}

#endif
