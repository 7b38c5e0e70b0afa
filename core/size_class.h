/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixed grid of kind 0's size classes, 8 KiB x 1.25^n rounded up to 4 KiB, and the names of
 * slab files. The grid is part of the format: a slab whose slot size is on it belongs to a grid
 * class at every mount, any other one to an exact class. Pure arithmetic, any thread.
 */
#ifndef CPL3_CORE_SIZE_CLASS_H
#define CPL3_CORE_SIZE_CLASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/format.h"

enum { SIZE_CLASS_BYTES_MIN = 8192, SIZE_CLASSES_MAX = 64 };
/* The largest slot that a 32-bit size can name; the last class of the grid. */
#define SLOT_BYTES_MAX ((uint32_t)-BLOCK_BYTES)
#define PAYLOAD_BYTES_MAX (SLOT_BYTES_MAX - HEADER_BYTES)

struct size_grid {
    unsigned count;
    uint32_t slot_bytes[SIZE_CLASSES_MAX]; /* rising; the last is SLOT_BYTES_MAX */
};

void size_grid_fill(struct size_grid *ret_grid);
/* The number of the smallest class whose slots have at least so many bytes (<= SLOT_BYTES_MAX). */
unsigned size_grid_class_for(const struct size_grid *grid, uint32_t slot_bytes);
bool size_grid_has(const struct size_grid *grid, uint32_t slot_bytes);

enum { SLAB_NAME_BYTES_MAX = 48 }; /* a kind name of 31 bytes, '-', 10 digits, ".slab", NUL */

/* <kind_name>-<slot_bytes>.slab */
void slab_name_format(const char *kind_name, uint32_t slot_bytes,
                      char ret_name[SLAB_NAME_BYTES_MAX]);

enum slab_name {
    SLAB_NAME_FOREIGN, /* not a slab, or another kind's */
    SLAB_NAME_STRANGE, /* ends in .slab, but no budget makes such names */
    SLAB_NAME_OURS,
};
/* ret_slot_bytes: only for OURS; a multiple of 4 KiB, 4096..SLOT_BYTES_MAX. */
enum slab_name slab_name_parse(const char *name, const char *kind_name, uint32_t *ret_slot_bytes);

#endif
