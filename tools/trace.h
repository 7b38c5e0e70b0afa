/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads request traces: one JSON object a line with `timestamp` (ms) and `hash_ids` (the ids of the
 * request's prefix blocks, in order). Line by line, so that a trace of any length takes no memory.
 * One thread at a time.
 */
#ifndef CPL3_TOOLS_TRACE_H
#define CPL3_TOOLS_TRACE_H

#include <stddef.h>
#include <stdint.h>

struct trace;

/* Starts zeroed; its memory is reused by each trace_next and freed by trace_request_free. */
struct trace_request {
    uint64_t timestamp_ms;
    uint64_t *blocks;
    size_t block_count;
    size_t block_capacity;
};

/* -errno of open. */
int trace_open(const char *path, struct trace **ret_trace);
void trace_close(struct trace *trace); /* NULL is fine */

/* The next request; empty lines are skipped. -ENODATA: the end. -EBADMSG: a line that is no request
 * (trace_problem says which and why). Other -errno of reading. */
int trace_next(struct trace *trace, struct trace_request *ret_request);
void trace_request_free(struct trace_request *request);

/* After -EBADMSG: `line 7: hash_ids[3] is not a number from 0`. Valid until the next call. */
const char *trace_problem(const struct trace *trace);
/* 0..1: how much of the file has been read. */
double trace_share_read(const struct trace *trace);

#endif
