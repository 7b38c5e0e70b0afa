/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client program: some threads that put, get or look for objects of an engine, each its part of
 * the ids, and the time from the first one's start to the last one's end. Its buffers are faulted
 * in when it is made.
 */
#ifndef CPL3_TESTS_BENCH_CLIENT_H
#define CPL3_TESTS_BENCH_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "tests/bench/engine.h"

/* Threads beyond the usual ones get their buffers at first use, for objects of up to
 * CLIENT_MANY_BYTES. */
enum { CLIENT_THREADS = 4, CLIENT_THREADS_MAX = 64, CLIENT_MANY_BYTES = 1 << 20 };

struct client;

struct client *client_create(size_t object_bytes_max);
void client_destroy(struct client *client);
/* Bytes of the client's buffers that are huge pages, of those that should be, in percent. */
unsigned client_huge_percent(const struct client *client);

enum job_kind { JOB_PUT, JOB_PUT_DURABLE, JOB_GET, JOB_GET_DIRECT, JOB_HAS, JOB_HAS_NOT };

struct job {
    enum job_kind kind;
    unsigned threads;
    size_t object_bytes;
    const char *const *directories; /* one a thread; NULL: all in the target's */
    uint64_t first_id;
    uint64_t ids; /* different ones */
    uint64_t
        count; /* operations; above `ids`, they go round. Gets and looks are in scattered order */
};

/* The seconds. An absent object that should be there, or the reverse, ends the program. */
double client_run(struct client *client, const struct target *target, const struct job *job);

#endif
