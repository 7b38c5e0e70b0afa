/* SPDX-License-Identifier: Apache-2.0 */
/* Resolving paths before anything is mounted or made. */
#include "fs/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/cleanup.h"

static void cut_trailing_slashes(char *path) {
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/')
        path[--bytes] = '\0';
}

/* The path does not exist: its directory, resolved, and its last component. */
static int resolve_new(char *path, char **ret_resolved) {
    char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return -ENOENT;
    if (slash)
        *slash = '\0';
    AUTO_FREE char *directory = realpath(!slash ? "." : slash == path ? "/" : path, NULL);
    if (!directory)
        return -errno;
    const char *between = strcmp(directory, "/") == 0 ? "" : "/";
    return asprintf(ret_resolved, "%s%s%s", directory, between, name) < 0 ? -ENOMEM : 0;
}

int path_resolve(const char *path, char **ret_resolved) {
    struct stat status;
    AUTO_FREE char *cut = strdup(path);
    if (!cut)
        return -ENOMEM;
    cut_trailing_slashes(cut);
    char *resolved = realpath(cut, NULL);
    if (resolved) {
        *ret_resolved = resolved;
        return 0;
    }
    int error = -errno;
    /* A dangling link is there and yet not: making something of that name would follow it. */
    if (error != -ENOENT || lstat(cut, &status) == 0)
        return error;
    return resolve_new(cut, ret_resolved);
}

static bool is_below_by_name(const char *inner, const char *outer) {
    size_t bytes = strlen(outer);
    if (strcmp(outer, "/") == 0)
        return true;
    return strncmp(inner, outer, bytes) == 0 && (inner[bytes] == '\0' || inner[bytes] == '/');
}

bool path_is_inside(const char *inner, const char *outer) {
    struct stat outside, here;
    if (is_below_by_name(inner, outer))
        return true;
    AUTO_FREE char *path = strdup(inner);
    if (!path || stat(outer, &outside) < 0)
        return false;
    for (;;) {
        if (stat(*path ? path : "/", &here) == 0 && here.st_dev == outside.st_dev &&
            here.st_ino == outside.st_ino)
            return true;
        char *slash = strrchr(path, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
}
