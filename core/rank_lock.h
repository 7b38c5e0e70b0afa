/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process per rank: an flock on the rank's directory itself, so that it is the same one by
 * whatever path it is reached. The file `holder` beside the slabs says who holds it and how far
 * that process is (a read-only one does not say): `<pid> opening`, `<pid> serving <major>:<minor>`
 * (st_dev of its mount) or `<pid> closing`, and in a second line `size <bytes>`. It is for people
 * and for the next one, who waits for a holder that is about to go, is refused at once by one that
 * stays, and leaves other ranks the space that they were promised.
 */
#ifndef CPL3_CORE_RANK_LOCK_H
#define CPL3_CORE_RANK_LOCK_H

#include <sys/types.h>

#include "core/rank.h"

enum { RANK_LOCK_WAIT_SECONDS = 10 };

/*
 * Is the rank free? Changes nothing. 0, or -EBUSY after a log line that names the holder: at once
 * if it serves, else when it has not gone within RANK_LOCK_WAIT_SECONDS.
 */
int rank_try_lock(const struct config *config, int store_fd, uint16_t number);

/* Makes the rank's directory and locks it for this process. -EBUSY as above. */
int rank_lock(struct rank *rank, struct store *store, uint16_t number);
/* The last thing that a process does with its rank. */
void rank_unlock(struct rank *rank);

/* `size` of the living process that holds the rank of this directory; 0: there is none, or it
 * writes nothing. */
uint64_t rank_holder_size_bytes(int rank_directory_fd);

/* What the holder, this process, is doing. */
void rank_note_serving(struct rank *rank, unsigned major, unsigned minor);
void rank_note_closing(struct rank *rank);

/* Which process, still alive, serves the mount on this device out of the store. -ENOENT: no rank
 * names it; -ESRCH: that process has ended, or is ending and only waits for its threads. */
int rank_find_server(const char *store_path, unsigned major, unsigned minor, pid_t *ret_pid);

#endif
