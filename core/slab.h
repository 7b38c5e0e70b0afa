/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slab is one sparse file of equal, 4 KiB-aligned slots. All file operations on slabs are here
 * and in the two engines behind struct slab_io (slab_uring.c, slab_posix.c): a simulator replaces
 * these objects at link time. O_DIRECT where the file system allows it, else buffered
 * (slab_is_direct).
 */
#ifndef CPL3_CORE_SLAB_H
#define CPL3_CORE_SLAB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/format.h"

struct slab;

enum slab_engine { SLAB_ENGINE_AUTO, SLAB_ENGINE_URING, SLAB_ENGINE_POSIX };

/* Opens (creates, 0600, unless read_only) `name` in the directory. -errno. The name of a new file
 * is durable at once (W1). */
int slab_open(int directory_fd, const char *name, uint32_t slot_bytes, uint32_t slots_max,
              bool read_only, struct slab **ret_slab);
void slab_close(struct slab *slab); /* NULL is fine */

/* Whether the directory's file system can punch holes (slab_punch); tried on a file without a name.
 * True as well when nothing can be tried. */
bool slab_can_punch(int directory_fd);

bool slab_is_direct(const struct slab *slab);
uint32_t slab_slot_bytes(const struct slab *slab);
/* Slots that the file reaches (its size / slot_bytes, rounded up, at most slots_max). */
int slab_slots_in_file(const struct slab *slab, uint32_t *ret_slots);
/* Bytes of disk blocks it occupies (st_blocks). */
int slab_disk_bytes(const struct slab *slab, uint64_t *ret_bytes);

/* One aligned 4 KiB read of the slot's last block into `block` (4 KiB aligned); the header is its
 * last 64 bytes. Past the end of the file it is zeros. Blocking. -errno of the disk. */
int slab_read_header(const struct slab *slab, uint32_t slot, void *block);

/* Makes the file reach over a row of slots, with blocks for all of them that read as zeros: writes
 * there neither extend the file nor allocate, which file systems do one at a time. -ENOSPC or
 * -EOPNOTSUPP (the file system cannot): none of them has blocks. */
int slab_allocate(struct slab *slab, uint32_t slot, uint32_t count);
/* Gives the slot's disk blocks back. -EOPNOTSUPP where the file system cannot. */
int slab_punch(struct slab *slab, uint32_t slot);
/* Cuts the file to so many slots; a shorter one stays as it is. */
int slab_truncate(struct slab *slab, uint32_t slots);
/* fdatasync: W1. */
int slab_sync(struct slab *slab);

/* requests, many in flight */

/*
 * One thread owns a slab_io and all calls on it except slab_io_wake: the one that submits or waits
 * first, whichever opened it (CHECK). With nothing in flight any thread may close it. A request and
 * its iovecs belong to the io from submit until slab_io_wait returns it. Offsets, lengths and
 * addresses are 4 KiB aligned (CHECK).
 */
struct slab_io;

enum { SLAB_PIECES_MAX = 8 };

struct slab_request {
    struct slab *slab;
    uint64_t offset; /* in the file */
    const struct iovec *pieces;
    uint32_t piece_count; /* 1..SLAB_PIECES_MAX */
    bool write;
    /* 0, or -errno; a short transfer is retried, then -EIO. Reads past the end deliver zeros. */
    int result;
    void *context;                      /* the caller's */
    struct slab_request *next;          /* the engine's own */
    uint64_t done_bytes;                /* the engine's own */
    struct iovec rest[SLAB_PIECES_MAX]; /* the engine's own: what is left after a short transfer */
};

/*
 * AUTO takes io_uring where the kernel lets us (EPERM, ENOSYS, ENOMEM: pread/pwrite threads, with a
 * smaller ring tried first). ret: -errno when the named engine cannot be had.
 */
int slab_io_open(enum slab_engine engine, unsigned depth, struct slab_io **ret_io);
void slab_io_close(struct slab_io *io);             /* waits for what is in flight; NULL is fine */
const char *slab_io_name(const struct slab_io *io); /* "io_uring" or "pread/pwrite" */

/* Queues a request; it starts now or with the next slab_io_wait. `depth` in flight at most: CHECK.
 */
void slab_io_submit(struct slab_io *io, struct slab_request *request);
unsigned slab_io_in_flight(const struct slab_io *io);
/*
 * Starts what is queued, then waits until a request is done, slab_io_wake was called, or timeout_ns
 * passed (0: does not wait; UINT64_MAX: for ever). Returns a done request, or NULL. Call again
 * with 0 for further ones.
 */
struct slab_request *slab_io_wait(struct slab_io *io, uint64_t timeout_ns);
/* Any thread: the owner's current or next slab_io_wait that may wait (timeout_ns > 0) returns NULL
 * as soon as no request is done. Cheap while the owner is awake. */
void slab_io_wake(struct slab_io *io);

#endif
