/* SPDX-License-Identifier: Apache-2.0 */
/* The two cold starts, between cold_start.c (which one, and what is always done) and cold_load.c.
 */
#ifndef CPL3_CORE_COLD_START_H
#define CPL3_CORE_COLD_START_H

#include "core/rank.h"

/* Rebuilds pools and GC from headers and index under rank->epoch, and prunes what leads nowhere. */
int cold_load(struct rank *rank);

/* Deletes a row of blobs (and the names that stand for them) in bounded transactions. */
int cold_delete_blobs(struct rank *rank, const struct blob_key *keys, size_t count);

/* Deletes all of the rank's records, directories included. */
int cold_delete_rank(struct rank *rank);

#endif
