/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The write thread, one per rank: sole owner of the rank's pools, heaps, write transactions and
 * slab writes. Each turn: reap finished writes, take what arrived, move touched blobs in the LRU
 * order, collect above the watermark, give slots to waiting puts and submit their writes, commit a
 * group when it is due.
 *
 * A change goes   inbox -> queue -> group (its payload has a slot) -> committed -> settled.
 * At most two groups exist: the closing one, whose last writes are awaited and which is committed
 * next, and the open one, whose writes already run meanwhile.
 *
 * Order rules, cited by number where they are kept:
 *  W1 An index entry is committed only after its slot's bytes are durable.
 *  W2 A slot that is LIVE or pinned is never written.
 *  W3 The index entry is durably gone before its slot is freed.
 *  W4 A reader believes a slot only after pin, header, hash, sequence, length, epoch and checksum
 *     agree.
 *  W5 A crash at any point costs at most unpublished or uncommitted blobs; it leaves orphan slots,
 *     which cold start frees.
 *  W6 The write thread never waits for a FUSE thread. Kernel entries are invalidated by a notifier
 *     thread only, after the index changed.
 *  W7 Reads, writes and GC of one rank never touch another rank's slabs or records.
 *  W8 The store is opened after the fork into the background; threads, rings and LMDB do not
 * survive a fork.
 */
#ifndef CPL3_CORE_WRITER_H
#define CPL3_CORE_WRITER_H

#include <stdint.h>

#include "core/change.h"
#include "core/waiter.h"

struct rank;
struct writer;
struct reservation;

/* Starts the thread (after cold start). Stop: commits everything, then ends it. NULL is fine. */
int writer_start(struct rank *rank, enum slab_engine engine, struct writer **ret_writer);
void writer_stop(struct writer *writer);
const char *writer_engine_name(const struct writer *writer);

/* Under the rank's change lock, in order of change ids. */
void writer_enqueue(struct writer *writer, struct change *change);

/* Any thread. The waiter's request is answered by the write thread; see rank_commit, rank_clear and
 * rank_reserve. change_id: everything up to it must be durable. */
void writer_wait_commit(struct writer *writer, struct waiter *waiter, uint64_t change_id);
void writer_wait_clear(struct writer *writer, struct waiter *waiter);
void writer_wait_space(struct writer *writer, struct reservation *reservation);
/* Any thread. */
void writer_note_unpinned(struct writer *writer); /* a retired slot lost its last pin */
void writer_wake(struct writer *writer);
/* Any thread: the change id up to which everything is durable. */
uint64_t writer_durable_change(const struct writer *writer);
/* Any thread: true while index commits fail (the host's disk is full or broken). */
bool writer_is_failing(const struct writer *writer);
/* Runs `check` on the write thread between two turns and waits for it: for rank_verify. */
void writer_run_between_turns(struct writer *writer, void (*check)(void *argument), void *argument);

#endif
