/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One blob on its way from its slot: which requests to send (1 MiB of payload each; the header's
 * block joins the last one where it comes right after, else it has its own; blocks of padding are
 * never read), and hashing the pieces in order as they land, in whatever order that is. Used by the
 * load thread only (loader.c); it submits nothing itself.
 */
#ifndef CPL3_CORE_LOAD_H
#define CPL3_CORE_LOAD_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/buffer.h"
#include "core/slab.h"
#include "core/verify.h"

enum {
    LOAD_WINDOW = 8, /* pieces of a blob in flight, or landed before an earlier one */
    LOAD_PIECE_BYTES = BUFFER_SEGMENT_BYTES,
};

struct version;

/* One request: a piece of the payload, perhaps with the header's block, or that block alone. */
struct load_piece {
    struct slab_request request;
    struct iovec iovecs[4];
    struct load *load;
    uint32_t number; /* of the payload's pieces; piece_count: the header's block alone */
};

struct load {
    alignas(BLOCK_BYTES) uint8_t header_block[BLOCK_BYTES];
    struct load_piece pieces[LOAD_WINDOW + 1]; /* number % LOAD_WINDOW; the last is the header's */
    struct verify verify;
    struct version *version; /* with a reference */
    struct buffer *buffer;   /* data_bytes of it */
    struct slab *slab;
    uint32_t slot_bytes;
    uint64_t slot_offset;  /* in the slab's file */
    uint32_t data_bytes;   /* payload, rounded up to blocks */
    uint32_t piece_count;  /* of the payload */
    uint32_t next_request; /* pieces before it were asked for */
    uint32_t next_hash;    /* pieces before it were hashed */
    uint32_t landed;       /* bit number % LOAD_WINDOW: landed, not hashed yet */
    bool header_is_due;    /* the header's block needs a request of its own, not made yet */
    unsigned in_flight;
    int result;                   /* the first error */
    struct load *previous, *next; /* the owner's lists */
};

/* The version settled in a slab, and as much memory as its payload takes in whole blocks. */
void load_begin(struct load *load, struct version *version, struct buffer *buffer);
bool load_has_request(const struct load *load);
/* The next request, to be submitted at once; load_has_request. */
struct slab_request *load_next_request(struct load *load);
struct load *load_of_request(const struct slab_request *request);
/* Takes a request back from the disk. True: the load is done, well or not (load->result). */
bool load_request_done(struct load *load, const struct slab_request *request);
/* Of a load done without error: NULL, or the reason why its bytes must not be believed (W4). */
const char *load_verify(const struct load *load);

#endif
