/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the slot headers of a pool say, for the `load` cold start: read in the order of the slots,
 * many reads in flight, and kept as a 64-bit fingerprint a slot until the index has been asked.
 * Used before any thread of the rank exists.
 */
#ifndef CPL3_CORE_COLD_HEADERS_H
#define CPL3_CORE_COLD_HEADERS_H

#include "core/rank.h"

struct header_reader;

/* 4 MiB of memory and a slab_io. -errno. */
int header_reader_open(struct rank *rank, struct header_reader **ret_reader);
void header_reader_close(struct header_reader *reader); /* NULL is fine */

struct header_table {
    uint64_t *fingerprints; /* by slot; 0: no sound header under the rank's epoch, or taken */
    uint32_t slots;
};

/*
 * Reads the headers of all slots that the pool's file has (none without a file); sound ones raise
 * the rank's next_sequence, whatever the index says of them. What cannot be read is counted
 * (read_errors) and is not there. -errno: the file's size is not to be had, no memory.
 */
int header_reader_read(struct header_reader *reader, struct pool *pool,
                       struct header_table *ret_table);
void header_table_free(struct header_table *table); /* one of zeros is fine */

/* Does the slot hold exactly this header? It answers true once: a slot has one blob. */
bool header_table_take(struct header_table *table, uint32_t slot,
                       const struct blob_header *expected, uint32_t epoch);

#endif
