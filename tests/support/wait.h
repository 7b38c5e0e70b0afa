/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How tests wait: for a condition, with a deadline. How long heavy tests run: CPL3_TEST_SECONDS.
 */
#ifndef CPL3_TESTS_SUPPORT_WAIT_H
#define CPL3_TESTS_SUPPORT_WAIT_H

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "core/clock.h"

/* Between two looks at a condition. */
static inline void wait_briefly(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* True as soon as the expression is; false if it is not within so many seconds. */
#define WAIT_UNTIL(condition, seconds)                                                             \
    ({                                                                                             \
        uint64_t wait_end_ = clock_monotonic_ns() + (uint64_t)((seconds)*1e9);                     \
        bool wait_met_;                                                                            \
        while (!(wait_met_ = (condition)) && clock_monotonic_ns() < wait_end_)                     \
            wait_briefly();                                                                        \
        wait_met_;                                                                                 \
    })

/* Seconds that a test of the kind "as much as time allows" may take. */
static inline double heavy_seconds(void) {
    const char *given = getenv("CPL3_TEST_SECONDS");
    double seconds = given ? strtod(given, NULL) : 0;
    return seconds > 0 ? seconds : 2;
}

#endif
