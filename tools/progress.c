/* SPDX-License-Identifier: Apache-2.0 */
/* The bar: one line, redrawn in place, cut to the terminal's width. */
#include "tools/progress.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/clock.h"

enum { REDRAW_NS = 100 * 1000 * 1000, BAR_COLUMNS = 30, LINE_BYTES_MAX = 256 };

struct progress {
    FILE *out;
    _Atomic uint64_t next_ns; /* atomic: who moves it draws */
};

struct progress *progress_open(FILE *out) {
    if (!isatty(fileno(out)))
        return NULL;
    struct progress *progress = calloc(1, sizeof(*progress));
    if (progress)
        progress->out = out;
    return progress;
}

void progress_close(struct progress *progress) {
    progress_clear(progress);
    free(progress);
}

bool progress_is_due(struct progress *progress) {
    if (!progress)
        return false;
    uint64_t now = clock_monotonic_ns();
    uint64_t next = atomic_load(&progress->next_ns);
    return now >= next &&
           atomic_compare_exchange_strong(&progress->next_ns, &next, now + REDRAW_NS);
}

static size_t terminal_columns(FILE *out) {
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

void progress_draw(struct progress *progress, double share, const char *text) {
    if (!progress)
        return;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    char bar[BAR_COLUMNS + 1];
    memset(bar, ' ', BAR_COLUMNS);
    memset(bar, '#', (size_t)(share * BAR_COLUMNS));
    bar[BAR_COLUMNS] = '\0';
    char line[LINE_BYTES_MAX];
    snprintf(line, sizeof(line), "[%s] %3.0f %%  %s", bar, share * 100, text);
    /* One short of the width: a full line would wrap and could not be redrawn. */
    int width = (int)terminal_columns(progress->out) - 1;
    fprintf(progress->out, "\r\033[K%.*s", width, line);
    fflush(progress->out);
}

void progress_clear(struct progress *progress) {
    if (!progress)
        return;
    fputs("\r\033[K", progress->out);
    fflush(progress->out);
}
