/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of slab files and of the engines share: a slab in a directory of its own. */
#ifndef CPL3_TESTS_UNIT_SLAB_FIXTURE_H
#define CPL3_TESTS_UNIT_SLAB_FIXTURE_H

#include "core/slab.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SLOT_BYTES = 4 * BLOCK_BYTES, SLOTS = 64 };

static char directory[256];
static int directory_fd = -1; /* of the one slab, "slab" */

static inline void make_directory(void) {
    const char *base = getenv("TMPDIR");
    snprintf(directory, sizeof(directory), "%s/cpl3-slab-XXXXXX", base ? base : "/tmp");
    cr_assert(mkdtemp(directory));
    directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_geq(directory_fd, 0);
}

static inline void remove_directory(void) {
    unlinkat(directory_fd, "slab", 0);
    close(directory_fd);
    rmdir(directory);
}

static inline struct slab *open_slab(void) {
    struct slab *slab;
    cr_assert_eq(slab_open(directory_fd, "slab", SLOT_BYTES, SLOTS, false, &slab), 0);
    return slab;
}

static inline uint8_t *blocks(unsigned count) {
    uint8_t *memory = aligned_alloc(BLOCK_BYTES, count * (size_t)BLOCK_BYTES);
    cr_assert(memory);
    memset(memory, 0xaa, count * (size_t)BLOCK_BYTES);
    return memory;
}

static inline bool is_all(const uint8_t *bytes, size_t count, uint8_t value) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

/* Behind the slab's back. */
static inline void write_raw(off_t offset, const void *bytes, size_t count) {
    int fd = openat(directory_fd, "slab", O_WRONLY | O_CREAT, 0600);
    cr_assert_eq(pwrite(fd, bytes, count, offset), (ssize_t)count);
    close(fd);
}

static inline off_t file_bytes(void) {
    struct stat status;
    cr_assert_eq(fstatat(directory_fd, "slab", &status, 0), 0);
    return status.st_size;
}

#endif
