/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw numbers of the benchmark: one line of CSV a measurement, read by tests/bench/report. Also how
 * the program ends when something goes wrong: a number that cannot be trusted is never written.
 */
#ifndef CPL3_TESTS_BENCH_SAMPLE_H
#define CPL3_TESTS_BENCH_SAMPLE_H

#include <stdint.h>
#include <stdio.h>

struct sample {
    const char *operation;
    const char *engine;
    uint64_t object_bytes; /* 0: has no size */
    unsigned threads;
    unsigned repetition;
    uint64_t count;     /* operations, names, slots ... that the quantity is for, all together */
    double quantity;    /* all together */
    const char *unit;   /* "s", "bytes", "requests" */
    const char *detail; /* of what, where that is more than one thing; may be NULL */
};

void sample_write_head(FILE *csv);
void sample_write(FILE *csv, const struct sample *sample);

/* One line to stderr, exit 1. The daemon ends with this process (daemon.c). Any thread. */
__attribute__((noreturn, format(printf, 1, 2))) void give_up(const char *format, ...);

/* What is being measured, with the time since the start; to stderr. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

#endif
