/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of one rank, in one table: name, whether it only grows, help. `.cpl3/stats`,
 * `.cpl3/metrics` and the documents are checked against it. Relaxed atomics: any thread may add;
 * readers may see them a little apart.
 */
#ifndef CPL3_CORE_STATS_H
#define CPL3_CORE_STATS_H

#include <stdatomic.h>
#include <stdint.h>

/* clang-format off */
#define STATS_COUNTERS(X) \
    X(hits,              "opens for reading answered with verified bytes") \
    X(misses,            "opens or lookups of absent blobs") \
    X(bytes_read,        "payload bytes answered to readers") \
    X(bytes_written,     "payload bytes published") \
    X(publishes,         "versions published") \
    X(replaces,          "publishes that replaced an older version") \
    X(unlinks,           "blobs removed by clients") \
    X(evictions,         "blobs removed by GC") \
    X(evicted_bytes,     "slot bytes freed by GC") \
    X(gc_cycles,         "GC runs, each from above the high to the low watermark") \
    X(gc_demand,         "victims collected on demand: a burst outran GC") \
    X(corrupt,           "blobs dropped because they did not verify") \
    X(read_errors,       "disk read errors") \
    X(write_errors,      "disk write errors") \
    X(withdrawn,         "published blobs taken back because the disk failed") \
    X(commits,           "index transactions committed") \
    X(committed_changes, "changes in those transactions") \
    X(fsyncs,            "requests that waited for durability") \
    X(touches,           "access times moved") \
    X(loads,             "blobs read from slots") \
    X(cache_hits,        "loads answered from verified bytes in memory") \
    X(space_waits,       "closes that waited for GC") \
    X(memory_waits,      "writes that waited for staging memory") \
    X(no_space,          "requests refused with ENOSPC") \
    X(too_large,         "writes refused with EFBIG") \
    X(dead_writers,      "staged files dropped: the writer was killed or a write failed") \
    X(slot_bytes_written,"bytes written to slabs, headers and padding included") \
    X(clears,            "runtime clears")
/* clang-format on */

struct rank_stats {
#define X(name, help) _Atomic uint64_t name;
    STATS_COUNTERS(X)
#undef X
    _Atomic uint64_t open_handles; /* a gauge: files open through the mount */
};

#define stats_add(stats, counter, count)                                                           \
    atomic_fetch_add_explicit(&(stats)->counter, (count), memory_order_relaxed)
#define stats_get(stats, counter) atomic_load_explicit(&(stats)->counter, memory_order_relaxed)

#endif
