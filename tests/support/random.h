/* SPDX-License-Identifier: Apache-2.0 */
/* Randomness that can be repeated: a generator with 64 bits of state, seeded by $SEED. */
#ifndef CPL3_TESTS_SUPPORT_RANDOM_H
#define CPL3_TESTS_SUPPORT_RANDOM_H

#include <stdint.h>
#include <stdlib.h>

#include "core/clock.h"

/* $SEED, else one of the clock; never 0. The test prints it. */
static inline uint64_t random_seed(void) {
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : clock_monotonic_ns();
    return seed ? seed : 1;
}

static inline uint64_t random_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
