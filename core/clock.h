/* SPDX-License-Identifier: Apache-2.0 */
/* The two clocks: monotonic for waits and deadlines, real time for what people see and LRU. */
#ifndef CPL3_CORE_CLOCK_H
#define CPL3_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static inline uint64_t clock_monotonic_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}
static inline uint64_t clock_real_ns(void) {
    return clock_ns(CLOCK_REALTIME);
}

#endif
