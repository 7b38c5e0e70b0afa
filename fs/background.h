/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going into the background: the command that the user started waits until its child serves the
 * mount, then ends with 0; or with the child's code, after the child said why on stderr. Nothing
 * that does not survive a fork may be opened before (W8).
 */
#ifndef CPL3_FS_BACKGROUND_H
#define CPL3_FS_BACKGROUND_H

#include <stdbool.h>

struct background {
    int report_fd; /* -1: in the foreground, or reported already */
};

/*
 * Forks, unless foreground. The parent waits and never returns; the child goes on, in a session of
 * its own. 0, or -errno (no fork).
 */
int background_start(bool foreground, struct background *ret_background);

/*
 * The child serves: lets the parent end and leaves terminal and working directory. From here on
 * stderr is nowhere. -EPIPE: nobody waits any more (the command was interrupted): give up.
 */
int background_report_serving(struct background *background);

#endif
