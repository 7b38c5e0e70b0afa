/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ground that the engines stand on: one directory on one disk, brought to rest between
 * measurements, and the memory of the machine. Ends the program on errors.
 */
#ifndef CPL3_TESTS_BENCH_DISK_H
#define CPL3_TESTS_BENCH_DISK_H

#include <stdint.h>

/* Page cache, dentries and inodes of the whole machine (what is dirty or mapped stays). */
void disk_drop_caches(void);

/* Returns when everything dirty on the directory's file system is written. */
void disk_sync(const char *directory);

/*
 * Writes everything dirty below the directory and waits until the disk has been idle for a moment
 * (discards of deleted files come late), at most half a second: others may use it.
 */
void disk_settle(const char *directory);

/* A directory that is empty, made if it is not there. */
void disk_make_empty_directory(const char *path);
void disk_remove_tree(const char *path); /* not there: nothing to do */

uint64_t disk_free_bytes(const char *directory);

/*
 * Uses so much memory and gives it back, so that what takes memory next (the page cache) finds it
 * touched. The first touch of a virtual machine's memory is many times slower than the next, and
 * hosts take free memory back within seconds: to be called right before a measurement.
 */
void memory_touch(uint64_t bytes);

#endif
