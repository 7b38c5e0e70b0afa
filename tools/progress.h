/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A progress bar on a terminal, and nothing at all where there is none. Any thread may update it;
 * it redraws at most ten times a second.
 */
#ifndef CPL3_TOOLS_PROGRESS_H
#define CPL3_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

struct progress;

/* NULL when `out` is no terminal (or out of memory): all functions take that. */
struct progress *progress_open(FILE *out);
/* Clears the line. */
void progress_close(struct progress *progress);

/* True once per redraw interval, for one thread: make the text and call progress_draw. */
bool progress_is_due(struct progress *progress);
/* share: 0..1. */
void progress_draw(struct progress *progress, double share, const char *text);
/* Before printing a message: clears the line; the bar comes back with the next draw. */
void progress_clear(struct progress *progress);

#endif
