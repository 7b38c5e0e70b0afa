/* SPDX-License-Identifier: Apache-2.0 */
/* The histogram against the percentiles of the very values that went in. */
#include "tools/latency.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct latency *new_latency(void) {
    struct latency *latency = calloc(1, sizeof(*latency));
    cr_assert(latency);
    return latency;
}

static void expect_close(uint64_t found, uint64_t exact) {
    cr_expect(found >= exact && (double)found <= (double)exact * 1.016 + 1, "found %lu, exact %lu",
              (unsigned long)found, (unsigned long)exact);
}

Test(latency, nothing_recorded_is_zero) {
    struct latency *latency = new_latency();
    cr_expect_eq(latency_percentile_ns(latency, 50), 0);
    free(latency);
}

Test(latency, percentiles_are_at_most_two_percent_high_and_never_low) {
    struct latency *latency = new_latency();
    for (uint64_t ns = 1; ns <= 100000; ns++)
        latency_record(latency, ns * 37);
    expect_close(latency_percentile_ns(latency, 50), 50000 * 37);
    expect_close(latency_percentile_ns(latency, 99), 99000 * 37);
    expect_close(latency_percentile_ns(latency, 99.9), 99900 * 37);
    cr_expect_eq(latency_percentile_ns(latency, 100), 100000 * 37);
    cr_expect_eq(latency_percentile_ns(latency, 0), 37);
    free(latency);
}

Test(latency, any_duration_has_a_bucket) {
    for (unsigned shift = 0; shift < 64; shift++) {
        for (int around = -1; around <= 1; around++) {
            uint64_t ns = (UINT64_C(1) << shift) + (uint64_t)(int64_t)around;
            struct latency *latency = new_latency();
            latency_record(latency, ns);
            latency_record(latency, UINT64_MAX);
            expect_close(latency_percentile_ns(latency, 50), ns);
            cr_expect_eq(latency_percentile_ns(latency, 100), UINT64_MAX);
            free(latency);
        }
    }
}

Test(latency, merging_is_recording_both) {
    struct latency *fast = new_latency(), *slow = new_latency();
    for (unsigned i = 0; i < 99; i++)
        latency_record(fast, 10);
    latency_record(slow, 1000000);
    latency_merge(fast, slow);
    cr_expect_eq(fast->count, 100);
    cr_expect_eq(latency_percentile_ns(fast, 99), 10);
    cr_expect_eq(latency_percentile_ns(fast, 99.9), 1000000);
    free(fast);
    free(slow);
}
