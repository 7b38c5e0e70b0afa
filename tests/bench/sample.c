/* SPDX-License-Identifier: Apache-2.0 */
/* CSV lines, progress and the end on errors: see sample.h. */
#include "tests/bench/sample.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "core/clock.h"

void sample_write_head(FILE *csv) {
    fprintf(csv, "operation,engine,object_bytes,threads,repetition,count,quantity,unit,detail\n");
}

void sample_write(FILE *csv, const struct sample *sample) {
    int written = fprintf(csv, "\"%s\",%s,%" PRIu64 ",%u,%u,%" PRIu64 ",%.9g,%s,%s\n",
                          sample->operation, sample->engine, sample->object_bytes, sample->threads,
                          sample->repetition, sample->count, sample->quantity, sample->unit,
                          sample->detail ? sample->detail : "");
    if (written < 0 || fflush(csv) != 0)
        give_up("writing the samples: %m");
}

void give_up(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _Exit(1);
}

void say(const char *format, ...) {
    static uint64_t start_ns;
    if (start_ns == 0)
        start_ns = clock_monotonic_ns();
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%5.0f s  ", (double)(clock_monotonic_ns() - start_ns) / 1e9);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}
