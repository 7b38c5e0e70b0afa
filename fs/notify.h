/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The notifier: the one thread that tells the kernel to forget names (W6). A notification takes the
 * lock of the directory in the kernel, which a client may hold while it waits for an answer of
 * ours; so nobody may send one from a handler or a thread that handlers wait for, and nobody ever
 * waits for this thread. Callers leave the name in a bounded queue, after the index or overlay
 * changed. What does not fit becomes one "forget everything" (FUSE_NOTIFY_INC_EPOCH, kernel
 * protocol >= 7.44; before that the kernel's time-outs of 10 s do it).
 *
 * Life: create (before the store is opened: its events may call in) → start (session mounted) →
 * stop (workers still answer, see notifier_stop) → destroy (after store_close). notify_ functions
 * may be called in all of that time, by any thread, with any locks held: they only queue. Before
 * start and after stop they do nothing (the kernel has cached nothing yet, or is losing the mount).
 * A NULL notifier is fine everywhere.
 */
#ifndef CPL3_FS_NOTIFY_H
#define CPL3_FS_NOTIFY_H

#include <stddef.h>
#include <stdint.h>

#include "fs/compat.h"

enum { NOTIFY_QUEUE_MAX = 65536 };

struct notifier;

/* How it speaks to the kernel; tests put their own here. Called on the notifier thread, no locks.
 */
struct notifier_output {
    int (*entry)(void *argument, uint64_t parent_node, const char *name, size_t name_bytes);
    int (*everything)(void *argument);
    void *argument;
};

int notifier_create(struct notifier **ret_notifier); /* -ENOMEM */
void notifier_destroy(struct notifier *notifier);    /* stopped or never started */

/* Starts the thread on the session. Both outlive notifier_stop. 0 or -errno. */
int notifier_start(struct notifier *notifier, struct fuse_session *session, struct compat *compat);
int notifier_start_output(struct notifier *notifier, const struct notifier_output *output);

/*
 * Drops what is queued and ends the thread. It may be inside a notification that waits for a lock
 * whose holder waits for an answer of ours: call this while requests are still being received and
 * answered (or after the connection is gone, which fails those requests). Stopped or not started:
 * nothing happens.
 */
void notifier_stop(struct notifier *notifier);

/* The kernel's dentry (parent_node, name) is looked up again at its next use. The name is copied;
 * at most 255 bytes. */
void notify_entry(struct notifier *notifier, uint64_t parent_node, const char *name,
                  size_t name_bytes);
/* All names. Replaces whatever is queued. */
void notify_everything(struct notifier *notifier);

/*
 * Calls back on the notifier thread when the kernel has been told of all that was queued before; at
 * once where nothing is ever sent, and at the latest when the notifier stops. Must not wait.
 */
struct notify_call {
    void (*sent)(struct notify_call *call);
    struct notify_call *next; /* the notifier's own, as is: */
    uint64_t due;
};
void notify_when_sent(struct notifier *notifier, struct notify_call *call);

struct notifier_counts {
    uint64_t entries;    /* sent */
    uint64_t everything; /* epochs sent */
    uint64_t overflows;  /* times that the queue was full */
    uint64_t queued;     /* waiting now */
};
void notifier_get_counts(struct notifier *notifier, struct notifier_counts *ret_counts);

#endif
