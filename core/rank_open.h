/* SPDX-License-Identifier: Apache-2.0 */
/* The life of one rank, for store.c, between rank_lock and rank_unlock: open (with its cold start),
 * start, stop, close. */
#ifndef CPL3_CORE_RANK_OPEN_H
#define CPL3_CORE_RANK_OPEN_H

#include "core/rank.h"

/* Do the payload kinds, size, max_file and memory fit together? -EINVAL after one log line.
 * Resolves max_file when it was not given. Changes nothing else. */
int rank_check_budgets(struct config *config);

/* Slabs of payload kinds that this mount does not declare, or declares with another page size:
 * `load` refuses (-EINVAL after a log line), `clear` removes them. The rank is locked. */
int rank_check_slabs(struct rank *rank);

/* Opens the index for all ranks of this process; a damaged one is replaced if nobody else uses it.
 * All ranks are locked, no thread exists. */
int rank_open_index(struct store *store);

/* Pools, heaps, overlay, and the cold start. No thread exists yet. */
int rank_open(struct rank *rank);
/* Load and write thread. */
int rank_start(struct rank *rank);
/* Commits everything and ends the write thread. */
void rank_stop(struct rank *rank);
void rank_close(struct rank *rank);

#endif
