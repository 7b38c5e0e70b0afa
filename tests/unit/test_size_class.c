/* SPDX-License-Identifier: Apache-2.0 */
/* The grid of size classes and the names of slab files (core/size_class.h). */
#include "core/size_class.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(size_class, the_grid_rises_by_a_quarter_in_whole_blocks) {
    struct size_grid grid;
    size_grid_fill(&grid);
    static const uint32_t first[] = {8192, 12288, 16384, 20480, 28672, 32768, 40960, 49152, 61440};
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
        cr_assert_eq(grid.slot_bytes[i], first[i], "class %zu has %u bytes", i, grid.slot_bytes[i]);
    for (unsigned i = 1; i < grid.count; i++) {
        cr_assert_gt(grid.slot_bytes[i], grid.slot_bytes[i - 1]);
        cr_assert_eq(grid.slot_bytes[i] % BLOCK_BYTES, 0);
        cr_assert_leq(grid.slot_bytes[i], grid.slot_bytes[i - 1] * 1.25 + 2 * BLOCK_BYTES);
    }
    cr_assert_eq(grid.slot_bytes[grid.count - 1], SLOT_BYTES_MAX);
}

/* The grid is part of the format: a class that moves makes exact classes of old slabs. */
Test(size_class, each_class_is_the_rounded_power) {
    struct size_grid grid;
    size_grid_fill(&grid);
    unsigned found = 0;
    for (unsigned n = 0; found < grid.count - 1; n++) {
        uint64_t bytes = round_up_to_block((uint64_t)ceil(8192 * pow(1.25, n)));
        if (found > 0 && bytes == grid.slot_bytes[found - 1])
            continue;
        cr_assert_eq(grid.slot_bytes[found], bytes, "class %u is %u, not %lu", found,
                     grid.slot_bytes[found], (unsigned long)bytes);
        found++;
    }
}

Test(size_class, a_size_goes_to_the_smallest_class_that_holds_it) {
    struct size_grid grid;
    size_grid_fill(&grid);
    cr_assert_eq(size_grid_class_for(&grid, 1), 0);
    for (unsigned i = 0; i < grid.count; i++) {
        cr_assert_eq(size_grid_class_for(&grid, grid.slot_bytes[i]), i);
        cr_assert_eq(size_grid_class_for(&grid, grid.slot_bytes[i] - 1), i);
        if (i + 1 < grid.count)
            cr_assert_eq(size_grid_class_for(&grid, grid.slot_bytes[i] + 1), i + 1);
    }
}

Test(size_class, only_sizes_of_the_grid_are_on_it) {
    struct size_grid grid;
    size_grid_fill(&grid);
    cr_assert(size_grid_has(&grid, 8192));
    cr_assert(size_grid_has(&grid, SLOT_BYTES_MAX));
    cr_assert_not(size_grid_has(&grid, 4096));
    cr_assert_not(size_grid_has(&grid, 24576));
    cr_assert_not(size_grid_has(&grid, UINT32_MAX));
}

Test(size_class, a_slab_name_reads_back_as_it_was_made) {
    static const uint32_t sizes[] = {4096, 8192, 4198400, SLOT_BYTES_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char name[SLAB_NAME_BYTES_MAX];
        uint32_t slot_bytes = 0;
        slab_name_format("a_kind_name_of_thirty_one_bytes", sizes[i], name);
        cr_assert_eq(slab_name_parse(name, "a_kind_name_of_thirty_one_bytes", &slot_bytes),
                     SLAB_NAME_OURS);
        cr_assert_eq(slot_bytes, sizes[i]);
    }
    char name[SLAB_NAME_BYTES_MAX];
    slab_name_format("kv", 4198400, name);
    cr_assert_str_eq(name, "kv-4198400.slab");
}

Test(size_class, names_of_other_files_and_kinds_are_foreign) {
    uint32_t slot_bytes = 7;
    static const char *names[] = {"epoch",        ".",
                                  "..",           "any-8192",
                                  "kv-8192.slab", "anyx-8192.slab",
                                  "an-8192.slab", "any-8192.slab.tmp"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cr_assert_eq(slab_name_parse(names[i], "any", &slot_bytes), SLAB_NAME_FOREIGN, "%s",
                     names[i]);
    cr_assert_eq(slot_bytes, 7, "an out-parameter is untouched");
}

Test(size_class, names_that_no_budget_makes_are_strange) {
    uint32_t slot_bytes = 7;
    static const char *names[] = {
        ".slab",          "any.slab",
        "-8192.slab",     "any-.slab",
        "any-0.slab",     "any-08192.slab",
        "any-8193.slab",  "any-81x2.slab",
        "any--8192.slab", "any-+8192.slab",
        "any- 8192.slab", "any-4294967296.slab",
        "any-4097.slab",  "any-99999999999999999999.slab",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        /* "any--8192" is a well-formed name of the kind "any-", which is not this one. */
        enum slab_name expected =
            strcmp(names[i], "any--8192.slab") == 0 ? SLAB_NAME_FOREIGN : SLAB_NAME_STRANGE;
        cr_assert_eq(slab_name_parse(names[i], "any", &slot_bytes), expected, "%s", names[i]);
    }
    cr_assert_eq(slot_bytes, 7, "an out-parameter is untouched");
}
