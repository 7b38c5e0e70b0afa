/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing what a handle has staged (rules P2, P3, P6, P9, P10): whether there is anything to
 * publish, the wait for space, and the one step in which it appears.
 */
#ifndef CPL3_FS_PUBLISH_H
#define CPL3_FS_PUBLISH_H

#include <stdbool.h>

struct handle;
struct op;

/* Under fs->lock: a publish would change what readers of the name see. An empty hash-named file is
 * never published, nor is a hash-named one that was not written. */
bool publish_is_due(const struct handle *handle);

/* Under the handle's lock, at a FLUSH: what RELEASE publishes later is as old as this. */
void publish_note_flush(struct handle *handle);

/*
 * Under the handle's lock. 0: published, or there is nothing to publish; -EINPROGRESS: call again
 * when the operation goes on; -ENOSPC, -EFBIG, other -errno: not published.
 */
int publish_step(struct op *op);

#endif
