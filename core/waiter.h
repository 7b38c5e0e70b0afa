/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a request waits without holding a thread: it leaves a waiter and goes away; whoever completes
 * it calls wake exactly once, on its own thread, without holding any lock of core's. The waiter
 * belongs to core from the call that answered -EINPROGRESS until wake is called.
 */
#ifndef CPL3_CORE_WAITER_H
#define CPL3_CORE_WAITER_H

#include <stdint.h>

struct waiter {
    void (*wake)(struct waiter *waiter, int result); /* 0 or -errno */
    /* core's own while it waits */
    struct waiter *next;
    uint64_t deadline_ns; /* monotonic */
    uint64_t value;
    const void *what;
};

enum { WAIT_MAX_SECONDS = 5 };

#endif
