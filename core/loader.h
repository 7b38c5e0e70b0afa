/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's load thread: takes versions from the table's queue, gets memory for each (evicting idle
 * bytes), reads the slot in requests of 1 MiB, up to 8 in flight a blob and 32 in all, hashes the
 * pieces in order as they land, verifies (W4) and wakes the waiters. It also ends waits that last
 * too long and frees bytes that are idle too long. It owns its slab_io and all loads in work.
 */
#ifndef CPL3_CORE_LOADER_H
#define CPL3_CORE_LOADER_H

struct version_table;
struct loader;

/* Returns when the thread is ready to load, or with its error. */
int loader_open(struct version_table *table, struct loader **ret_loader);
/* Ends the thread when the loads in work and in the queue are done. NULL is fine. */
void loader_close(struct loader *loader);
/* Any thread: the queue, the memory or a deadline has changed. */
void loader_wake(struct loader *loader);

#endif
