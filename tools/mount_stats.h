/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a rank's counters as the mount publishes them: .cpl3/stats beside the rank's directory. */
#ifndef CPL3_TOOLS_MOUNT_STATS_H
#define CPL3_TOOLS_MOUNT_STATS_H

#include <stdint.h>

/* directory: a mounted rank<N>/. -ENOENT: no mount, or it has no such counter; other -errno. */
int mount_stats_read(const char *directory, const char *counter, uint64_t *ret_value);

#endif
