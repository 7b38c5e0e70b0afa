/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker threads: a fixed set, each with memory for one request, each receiving a request and
 * running its handler in turn, on libfuse's public calls. No handler parks a worker, so a fixed
 * number is enough and none is ever added. All workers read the one descriptor: replies come from
 * other threads as well, which a cloned descriptor does not allow.
 */
#ifndef CPL3_FS_LOOP_H
#define CPL3_FS_LOOP_H

#include "fs/compat.h"

enum { LOOP_THREADS_MAX = 64 };

struct loop;

/* The session is mounted and compat_attach'ed; it and the pool outlive the loop. Each thread takes
 * COMPAT_WRITE_BYTES_MAX of the share BUFFER_REQUESTS. 0 or -errno. */
int loop_start(struct fuse_session *session, struct buffer_pool *pool, unsigned threads,
               struct loop **ret_loop);

/* Becomes readable when a worker ended by itself: unmounted, connection aborted, or the device gave
 * an error. Owned by the loop. */
int loop_ended_fd(const struct loop *loop);

/*
 * Ends the workers: each finishes the request that it has, if any; what the kernel still queues
 * stays unanswered. Returns when all have ended and frees the loop. NULL is fine. Not on a worker.
 */
void loop_stop(struct loop *loop);

#endif
