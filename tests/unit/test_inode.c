/* SPDX-License-Identifier: Apache-2.0 */
/* Node ids, what the kernel's lookups keep alive, directories, and hot names, without a mount. */
#include "fs/inode.h"

#include "fs/state.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct fs *create_fs(void) {
    const struct fs_options options = {.umask_bits = 0077};
    struct fs *fs;
    cr_assert_eq(fs_create(&options, &fs), 0);
    return fs;
}

static struct inode *add_directory(struct fs *fs, uint64_t id, uint64_t parent, const char *name) {
    const struct name_entry entry = {.type = NAME_DIRECTORY, .directory = id, .mode = 0755};
    struct inode *inode = inode_get_directory(fs, NULL, parent, name, &entry);
    cr_assert(inode);
    inode->lookups++;
    return inode;
}

Test(inode, node_ids_are_never_used_twice) {
    struct fs *fs = create_fs();
    uint64_t first = add_directory(fs, 10, 1, "a")->node;
    inode_forget(fs, inode_find(fs, first), 1);
    cr_assert_null(inode_find(fs, first));
    uint64_t second = add_directory(fs, 10, 1, "a")->node;
    cr_assert_gt(second, first);
    fs_destroy(fs);
}

Test(inode, a_directory_keeps_its_inode_until_the_last_lookup_is_forgotten) {
    struct fs *fs = create_fs();
    struct inode *inode = add_directory(fs, 10, 1, "a");
    cr_assert_eq(add_directory(fs, 10, 1, "a"), inode);
    uint64_t node = inode->node;
    inode_forget(fs, inode, 1);
    cr_assert_eq(inode_find(fs, node), inode);
    inode_forget(fs, inode, 1);
    cr_assert_null(inode_find(fs, node));
    cr_assert_null(inode_find_directory(fs, 10));
    fs_destroy(fs);
}

Test(inode, forgetting_more_than_was_looked_up_is_survived) {
    struct fs *fs = create_fs();
    struct inode *inode = add_directory(fs, 10, 1, "a");
    inode_forget(fs, inode, 1000);
    cr_assert_null(inode_find_directory(fs, 10));
    inode_forget(fs, inode_find(fs, FUSE_ROOT_ID), 1000);
    cr_assert_not_null(inode_find(fs, FUSE_ROOT_ID), "the root always stays");
    fs_destroy(fs);
}

Test(inode, a_directory_is_below_its_parents_and_itself) {
    struct fs *fs = create_fs();
    add_directory(fs, 10, 1, "a");
    add_directory(fs, 11, 10, "b");
    struct inode *c = add_directory(fs, 12, 11, "c");
    cr_assert(inode_is_below(fs, 12, 10));
    cr_assert(inode_is_below(fs, 12, 12));
    cr_assert(!inode_is_below(fs, 10, 12));
    cr_assert_eq(inode_move_directory(c->directory, 1, "moved"), 0);
    cr_assert(!inode_is_below(fs, 12, 10));
    cr_assert_str_eq(c->directory->name, "moved");
    fs_destroy(fs);
}

Test(inode, a_removed_directory_gives_its_id_up_but_stays_for_who_is_in_it) {
    struct fs *fs = create_fs();
    struct inode *inode = add_directory(fs, 10, 1, "a");
    inode_remove_directory(fs, 10);
    cr_assert_null(inode_find_directory(fs, 10));
    cr_assert_eq(inode_find(fs, inode->node), inode);
    cr_assert(inode->directory->removed);
    inode_forget(fs, inode, 1);
    fs_destroy(fs);
}

static struct place place_of(uint64_t directory, const char *name) {
    struct place place;
    place_set(&place, directory, name);
    return place;
}

Test(inode, a_name_is_hot_for_a_while_and_no_other_name_is) {
    struct fs *fs = create_fs();
    struct place root = place_of(1, "x"), other = place_of(1, "xy"), below = place_of(5, "x"),
                 beside = place_of(6, "x");
    struct file in_root = {.place = &root}, in_below = {.place = &below};
    add_directory(fs, 1, 0, "a rank's root");
    cr_assert(!file_place_is_hot(fs, &root));
    file_heat(fs, &in_root);
    cr_assert(file_place_is_hot(fs, &root));
    cr_assert(!file_place_is_hot(fs, &other));
    cr_assert(!file_place_is_hot(fs, &below));
    file_heat(fs, &in_below);
    cr_assert(file_place_is_hot(fs, &below));
    cr_assert(file_place_is_hot(fs, &beside), "it may stand where the other directory stood");
    cr_assert(!file_place_is_hot(fs, &other));
    fs_destroy(fs);
}

Test(inode, names_cool_down_after_their_time_and_not_before) {
    struct fs *fs = create_fs();
    struct place here = place_of(5, "x");
    const struct file file = {.place = &here};
    uint64_t before_ns = clock_monotonic_ns();
    file_heat(fs, &file);
    file_cool(fs, before_ns);
    file_cool(fs, before_ns + UINT64_C(5000000000)); /* a daemon that was stopped for so long */
    cr_assert(file_place_is_hot(fs, &here));
    file_cool(fs, clock_monotonic_ns() + HOT_NAME_NS);
    cr_assert(!file_place_is_hot(fs, &here));
    fs_destroy(fs);
}
