/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between slab.c and the two engines, and used nowhere else. slab.c checks requests and counts
 * them; an engine moves bytes; what a transfer means for its request (short, failed, past the end
 * of the file) is decided once, in slab_request_advance.
 */
#ifndef CPL3_CORE_SLAB_IO_H
#define CPL3_CORE_SLAB_IO_H

#include <sys/types.h>

#include "core/slab.h"

struct slab_io_engine {
    const char *name;
    int (*open)(unsigned depth, struct slab_io **ret_io);
    void (*close)(struct slab_io *io); /* nothing is in flight */
    void (*submit)(struct slab_io *io, struct slab_request *request);
    struct slab_request *(*wait)(struct slab_io *io, uint64_t timeout_ns);
    void (*wake)(struct slab_io *io);
};

/* Each engine's own struct begins with one of these. */
struct slab_io {
    const struct slab_io_engine *engine; /* fixed after open, as depth; set by slab.c */
    unsigned depth;
    unsigned in_flight; /* the owner's: submitted and not returned by slab_io_wait */
};

extern const struct slab_io_engine slab_io_uring;
extern const struct slab_io_engine slab_io_posix;

int slab_fd(const struct slab *slab);

/* Fills request->rest with what is left to move (at least one byte); the number of pieces. */
unsigned slab_request_rest(struct slab_request *request);

/*
 * A transfer of `rest` at offset + done_bytes ended with this count or -errno. True: the request is
 * done and its result is set. False: start another transfer of what is left.
 */
bool slab_request_advance(struct slab_request *request, ssize_t transferred);

#endif
