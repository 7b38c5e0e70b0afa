/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaying a trace through mounted directories as a server would. For each request: open and read
 * its blocks in order up to the first miss; of the rest, touch those that exist and write the
 * others. Every byte read is compared with what the block must hold (tools/page.h).
 */
#ifndef CPL3_TOOLS_REPLAY_H
#define CPL3_TOOLS_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/latency.h"

enum { REPLAY_THREADS_MAX = 1024 };

struct replay_options {
    const char *trace_path;
    char *const *directories; /* block i of a request belongs to directory i mod the count */
    unsigned directory_count;
    uint64_t block_bytes;
    unsigned threads;
    uint64_t requests_max;
    double speed;                  /* 0: flat out; 1: as the trace's timestamps say */
    bool fsync;                    /* before each close */
    const char *acknowledged_path; /* NULL: none; else the names, as each fsync returns */
};

struct replay_counts {
    uint64_t requests;
    uint64_t blocks; /* references in those requests */
    uint64_t hits;
    uint64_t puts;
    uint64_t touches;
    uint64_t bytes_read, bytes_written;
    uint64_t wrong_bytes; /* missing and surplus ones too */
    uint64_t errors;
};

struct replay_result {
    struct replay_counts counts;
    uint64_t elapsed_ns;
    bool evictions_known;
    uint64_t evictions; /* during the replay, of all directories */
    struct latency get; /* of hits: open to close */
    struct latency put; /* open to close */
};

/* 0, or -errno after one line on stderr when it could not start. What goes wrong on the way is
 * counted in the result, and its first cases are told on stderr. ret_result starts zeroed. */
int replay_run(const struct replay_options *options, struct replay_result *ret_result);

#endif
