/* SPDX-License-Identifier: Apache-2.0 */
/* The histogram's buckets: exact below 64 ns, then the top 7 bits of the value choose the bucket.
 */
#include "tools/latency.h"

static unsigned bucket_of(uint64_t ns) {
    if (ns < LATENCY_SUB_BUCKETS)
        return (unsigned)ns;
    unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - LATENCY_SUB_BITS;
    return shift * LATENCY_SUB_BUCKETS + (unsigned)(ns >> shift);
}

/* The largest value of a bucket. */
static uint64_t bucket_last_ns(unsigned bucket) {
    if (bucket < LATENCY_SUB_BUCKETS)
        return bucket;
    unsigned shift = bucket / LATENCY_SUB_BUCKETS - 1;
    uint64_t top = bucket % LATENCY_SUB_BUCKETS + LATENCY_SUB_BUCKETS;
    return ((top + 1) << shift) - 1;
}

void latency_record(struct latency *latency, uint64_t ns) {
    latency->count++;
    latency->buckets[bucket_of(ns)]++;
    if (ns > latency->longest_ns)
        latency->longest_ns = ns;
}

void latency_merge(struct latency *into, const struct latency *from) {
    into->count += from->count;
    if (from->longest_ns > into->longest_ns)
        into->longest_ns = from->longest_ns;
    for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

uint64_t latency_percentile_ns(const struct latency *latency, double percent) {
    if (latency->count == 0)
        return 0;
    double exact = percent / 100 * (double)latency->count;
    uint64_t wanted = (uint64_t)exact;
    if ((double)wanted < exact)
        wanted++;
    uint64_t seen = 0;
    unsigned bucket = 0;
    for (; bucket < LATENCY_BUCKETS - 1; bucket++) {
        seen += latency->buckets[bucket];
        if (seen > 0 && seen >= wanted)
            break;
    }
    uint64_t last = bucket_last_ns(bucket);
    return last < latency->longest_ns ? last : latency->longest_ns;
}
