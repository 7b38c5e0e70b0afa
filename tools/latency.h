/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A histogram of durations for percentiles: 64 buckets per power of two, hence at most 1.6 % off at
 * any scale, in fixed memory. One owner; merge the owners' histograms at the end.
 */
#ifndef CPL3_TOOLS_LATENCY_H
#define CPL3_TOOLS_LATENCY_H

#include <stdint.h>

enum {
    LATENCY_SUB_BITS = 6,
    LATENCY_SUB_BUCKETS = 1 << LATENCY_SUB_BITS,
    LATENCY_BUCKETS = (64 - LATENCY_SUB_BITS + 1) * LATENCY_SUB_BUCKETS,
};

/* Starts zeroed. */
struct latency {
    uint64_t count;
    uint64_t longest_ns;
    uint64_t buckets[LATENCY_BUCKETS];
};

void latency_record(struct latency *latency, uint64_t ns);
void latency_merge(struct latency *into, const struct latency *from);
/* The duration that `percent` of all did not exceed; 0 when nothing was recorded. */
uint64_t latency_percentile_ns(const struct latency *latency, double percent);

#endif
