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

static struct hot_name *find(struct fs *fs, const struct place *place) {
    struct hot_name *hot;
    HASH_FIND(by_place, fs->hot_names, place, place_key_bytes(strlen(place->name)), hot);
    return hot;
}

static void heat(struct fs *fs, const struct place *place) {
    struct hot_name *hot = find(fs, place);
    if (!hot) {
        unsigned key_bytes = place_key_bytes(strlen(place->name));
        hot = malloc(sizeof *hot - sizeof hot->place + key_bytes + 1);
        if (!hot)
            return;
        memcpy(&hot->place, place, key_bytes + 1);
        HASH_ADD(by_place, fs->hot_names, place, key_bytes, hot);
    }
    hot->until_ns = clock_monotonic_ns() + HOT_NAME_NS;
}

/* The directory of a file that lost its name may have gone, too, and another one stand at the end
 * of the same path: there the name is hot as well. */
static const uint64_t any_directory = 0;

void file_heat(struct fs *fs, const struct file *file) {
    struct place anywhere;
    heat(fs, file->place);
    if (file->attached)
        return;
    place_set(&anywhere, any_directory, file->place->name);
    heat(fs, &anywhere);
}

static bool is_hot(struct fs *fs, const struct place *place) {
    const struct hot_name *hot = find(fs, place);
    return hot && clock_monotonic_ns() < hot->until_ns;
}

bool file_place_is_hot(struct fs *fs, const struct place *place) {
    struct place anywhere;
    if (!fs->hot_names)
        return false;
    place_set(&anywhere, any_directory, place->name);
    return is_hot(fs, place) || is_hot(fs, &anywhere);
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
