/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at a path that may lie on a mount whose process does not answer, ever: a child looks, and
 * this process waits for it only so long. A child that hangs ends when the mount's connection does;
 * it holds nothing of ours.
 */
#ifndef CPL3_FS_PROBE_H
#define CPL3_FS_PROBE_H

#include <sys/types.h>

struct probe {
    pid_t child;
    int fd; /* where the child's findings come from */
};

/* Before any other thread exists. 0 or -errno. */
int probe_start(const char *path, struct probe *ret_probe);

/* First: the path, resolved (path_resolve's), which the caller frees. -ETIMEDOUT: something on the
 * way did not answer within wait_ms (0 and more). -errno. */
int probe_get_path(struct probe *probe, int wait_ms, char **ret_path);

/* Then: what statfs of it said, which the kernel asks the file system itself every time: 0 or
 * -errno. -ETIMEDOUT: nothing yet. */
int probe_get_answer(struct probe *probe, int wait_ms);

/* Ends the child if it can be ended. */
void probe_close(struct probe *probe);

#endif
