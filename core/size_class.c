/* SPDX-License-Identifier: Apache-2.0 */
/* The grid of size classes and the names of slab files (see size_class.h). */
#include "core/size_class.h"

#include <stdio.h>
#include <string.h>

#include "core/check.h"

void size_grid_fill(struct size_grid *ret_grid) {
    /* 16 fractional bits, so that the grid is the same on every machine. */
    uint64_t fixed = (uint64_t)SIZE_CLASS_BYTES_MIN << 16;
    unsigned count = 0;
    uint64_t bytes = 0;
    while (bytes < SLOT_BYTES_MAX) {
        uint64_t next = round_up_to_block((fixed + 0xffff) >> 16);
        if (next > SLOT_BYTES_MAX)
            next = SLOT_BYTES_MAX;
        CHECK(count < SIZE_CLASSES_MAX);
        if (next > bytes) /* the smallest steps can round to the same size */
            ret_grid->slot_bytes[count++] = (uint32_t)next;
        bytes = next;
        fixed += fixed / 4;
    }
    ret_grid->count = count;
}

unsigned size_grid_class_for(const struct size_grid *grid, uint32_t slot_bytes) {
    CHECK(slot_bytes <= SLOT_BYTES_MAX);
    unsigned low = 0, high = grid->count - 1;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (grid->slot_bytes[middle] < slot_bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool size_grid_has(const struct size_grid *grid, uint32_t slot_bytes) {
    return slot_bytes <= SLOT_BYTES_MAX &&
           grid->slot_bytes[size_grid_class_for(grid, slot_bytes)] == slot_bytes;
}

void slab_name_format(const char *kind_name, uint32_t slot_bytes,
                      char ret_name[SLAB_NAME_BYTES_MAX]) {
    int length = snprintf(ret_name, SLAB_NAME_BYTES_MAX, "%s-%u.slab", kind_name, slot_bytes);
    CHECK(length > 0 && length < SLAB_NAME_BYTES_MAX);
}

/* Decimal digits without leading zeros; false: anything else, or no slot size of ours. */
static bool parse_slot_bytes(const char *digits, size_t count, uint32_t *ret_slot_bytes) {
    if (count == 0 || count > 10 || digits[0] == '0')
        return false;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return false;
        bytes = bytes * 10 + (uint64_t)(digits[i] - '0');
    }
    if (bytes > SLOT_BYTES_MAX || bytes % BLOCK_BYTES != 0)
        return false;
    *ret_slot_bytes = (uint32_t)bytes;
    return true;
}

enum slab_name slab_name_parse(const char *name, const char *kind_name, uint32_t *ret_slot_bytes) {
    static const char suffix[] = ".slab";
    size_t length = strlen(name), suffix_length = sizeof(suffix) - 1;
    if (length < suffix_length || strcmp(name + length - suffix_length, suffix) != 0)
        return SLAB_NAME_FOREIGN;
    const char *dash = strrchr(name, '-');
    if (!dash || dash == name)
        return SLAB_NAME_STRANGE;
    uint32_t slot_bytes;
    if (!parse_slot_bytes(dash + 1, length - suffix_length - (size_t)(dash + 1 - name),
                          &slot_bytes))
        return SLAB_NAME_STRANGE;
    size_t kind_length = strlen(kind_name);
    if ((size_t)(dash - name) != kind_length || strncmp(name, kind_name, kind_length) != 0)
        return SLAB_NAME_FOREIGN;
    *ret_slot_bytes = slot_bytes;
    return SLAB_NAME_OURS;
}
