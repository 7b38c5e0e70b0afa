/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that are hot (rule P7): somebody was told ESTALE through them less than a second ago, so
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

static struct hot_name *find(struct fs *fs, const struct place *place) {
    struct hot_name *hot;
    HASH_FIND(by_place, fs->hot_names, place, place_key_bytes(strlen(place->name)), hot);
    return hot;
}

void file_heat(struct fs *fs, const struct file *file) {
    struct hot_name *hot = find(fs, file->place);
    if (!hot) {
        unsigned key_bytes = place_key_bytes(file_name_bytes(file));
        hot = malloc(sizeof *hot - sizeof hot->place + key_bytes + 1);
        if (!hot)
            return;
        memcpy(&hot->place, file->place, key_bytes + 1);
        HASH_ADD(by_place, fs->hot_names, place, key_bytes, hot);
    }
    hot->until_ns = clock_monotonic_ns() + HOT_NAME_NS;
}

bool file_place_is_hot(struct fs *fs, const struct place *place) {
    const struct hot_name *hot = find(fs, place);
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
