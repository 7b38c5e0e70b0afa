/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that are hot (rule P7): somebody was told ESTALE through them less than 10 s ago, so
 * their next lookups get inodes of their own. The name is hot, not the file or the inode.
 */
#include "fs/file.h"
#include "fs/state.h"

#include <stdlib.h>
#include <string.h>

struct hot_name {
    UT_hash_handle by_place;
    uint64_t until_ns;  /* monotonic */
    struct place place; /* cut to its length */
};

/*
 * What is hot: in the rank's root, which always stays, the name there. Below, the name in whatever
 * directory: the one that it was in may have been replaced at the same path when the kernel looks
 * again.
 */
static void set_key(struct fs *fs, const struct place *place, struct place *ret_key) {
    const uint64_t any_directory = 0;
    const struct directory *directory = inode_find_directory(fs, place->directory);
    bool is_root = directory && directory->parent == 0;
    place_set(ret_key, is_root ? place->directory : any_directory, place->name);
}

static struct hot_name *find(struct fs *fs, const struct place *key) {
    struct hot_name *hot;
    HASH_FIND(by_place, fs->hot_names, key, place_key_bytes(strlen(key->name)), hot);
    return hot;
}

void file_heat(struct fs *fs, const struct file *file) {
    struct place key;
    set_key(fs, file->place, &key);
    struct hot_name *hot = find(fs, &key);
    if (!hot) {
        unsigned key_bytes = place_key_bytes(strlen(key.name));
        hot = malloc(sizeof *hot - sizeof hot->place + key_bytes + 1);
        if (!hot)
            return;
        memcpy(&hot->place, &key, key_bytes + 1);
        HASH_ADD(by_place, fs->hot_names, place, key_bytes, hot);
    }
    hot->until_ns = clock_monotonic_ns() + HOT_NAME_NS;
}

bool file_place_is_hot(struct fs *fs, const struct place *place) {
    struct place key;
    if (!fs->hot_names)
        return false;
    set_key(fs, place, &key);
    const struct hot_name *hot = find(fs, &key);
    return hot && clock_monotonic_ns() < hot->until_ns;
}

void file_cool(struct fs *fs, uint64_t now_ns) {
    struct hot_name *hot, *next;
    HASH_ITER (by_place, fs->hot_names, hot, next) {
        if (hot->until_ns > now_ns)
            continue;
        HASH_DELETE(by_place, fs->hot_names, hot);
        free(hot);
    }
}

void file_free_hot_names(struct fs *fs) {
    file_cool(fs, UINT64_MAX);
}
