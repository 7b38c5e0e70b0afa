/* SPDX-License-Identifier: Apache-2.0 */
/* `rank<N>.<counter> <value>` lines; the rank is the last part of the directory's real path. */
#include "tools/mount_stats.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"

static int find_line(FILE *file, const char *key, uint64_t *ret_value) {
    size_t key_bytes = strlen(key);
    char line[256];
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, key, key_bytes) == 0 && line[key_bytes] == ' ' &&
            sscanf(line + key_bytes, "%" SCNu64, ret_value) == 1)
            return 0;
    return -ENOENT;
}

int mount_stats_read(const char *directory, const char *counter, uint64_t *ret_value) {
    AUTO_FREE char *path = realpath(directory, NULL);
    if (!path)
        return -errno;
    char *slash = strrchr(path, '/');
    char key[NAME_MAX + 1];
    char stats[PATH_MAX];
    int key_bytes = snprintf(key, sizeof(key), "%s.%s", slash + 1, counter);
    int stats_bytes = snprintf(stats, sizeof(stats), "%.*s/.cpl3/stats", (int)(slash - path), path);
    if ((size_t)key_bytes >= sizeof(key) || (size_t)stats_bytes >= sizeof(stats))
        return -ENAMETOOLONG;
    AUTO_FCLOSE FILE *file = fopen(stats, "re");
    if (!file)
        return -errno;
    return find_line(file, key, ret_value);
}
