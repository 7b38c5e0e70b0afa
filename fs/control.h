/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files in `.cpl3/`: stats, metrics and config to read, control to write. This module knows
 * their names, texts and commands; the inodes and handles that show them are the caller's.
 *
 * A reading open takes the whole text once (control_read_all) and serves every read from that, so a
 * reader sees one moment. Commands, one per write, a trailing newline allowed:
 *   clear        forget every blob of every mounted rank
 *   clear N      of rank N
 *   commit       make everything that is published durable
 */
#ifndef CPL3_FS_CONTROL_H
#define CPL3_FS_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "core/store.h"
#include "core/waiter.h"
#include "fs/fs.h"

enum { CONTROL_COMMAND_BYTES_MAX = 64 };

unsigned control_count(void);
const char *control_name(unsigned number);
/* Permission bits: 0444, or 0200 for `control`. */
uint32_t control_mode(unsigned number);

/* The text of a readable file; the caller frees it. -EACCES for `control`, -ENOMEM. */
int control_read_all(struct store *store, const struct fs_options *options, unsigned number,
                     char **ret_text, size_t *ret_bytes);

/*
 * Runs the command in `text`. 0: done. -EINPROGRESS: the waiter is woken with 0 or -errno when it
 * is done on all its ranks (the first error wins). -EINVAL: not a command (logged, with the allowed
 * ones). -ENOENT: no such rank here. -EROFS, -ENOMEM. Any thread; never waits.
 */
int control_write(struct store *store, const char *text, size_t bytes, struct waiter *waiter);

#endif
