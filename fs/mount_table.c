/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading mountinfo: `36 35 98:0 /root /mount/point options tags... - type source super-options`,
 * with blanks in paths as \040. Later lines lie on top of earlier ones.
 */
#include "fs/mount_table.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "core/cleanup.h"

/* Octal escapes of the kernel to bytes, in place. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from; to++) {
        unsigned byte;
        int used = 0;
        if (*from == '\\' && sscanf(from + 1, "%3o%n", &byte, &used) == 1 && used == 3) {
            *to = (char)byte;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* The next word, cut off; NULL if there is none. */
static char *take_word(char **rest) {
    char *word = strsep(rest, " \n");
    return word && *word ? word : NULL;
}

static void copy_cut(char *to, size_t bytes, const char *from) {
    snprintf(to, bytes, "%s", from);
}

bool mount_table_parse_line(char *line, const char **ret_path, struct mount_entry *ret_entry) {
    struct mount_entry entry;
    char *tail = strstr(line, " - ");
    if (!tail)
        return false;
    *tail = '\0';
    tail += 3;
    const char *device = NULL;
    char *path = NULL;
    for (unsigned field = 0; field < 5; field++) {
        path = take_word(&line);
        if (!path)
            return false;
        if (field == 2)
            device = path;
    }
    const char *type = take_word(&tail);
    char *source = type ? take_word(&tail) : NULL;
    if (!source || sscanf(device, "%u:%u", &entry.major, &entry.minor) != 2)
        return false;
    unescape(path);
    unescape(source);
    copy_cut(entry.type, sizeof entry.type, type);
    copy_cut(entry.source, sizeof entry.source, source);
    *ret_path = path;
    *ret_entry = entry;
    return true;
}

/* The last line that `matches` accepts: it lies on top. */
static int find_last(bool (*matches)(const char *path, const struct mount_entry *entry,
                                     const void *wanted),
                     const void *wanted, struct mount_entry *ret_entry) {
    AUTO_FCLOSE FILE *table = fopen("/proc/self/mountinfo", "re");
    if (!table)
        return -errno;
    AUTO_FREE char *line = NULL;
    size_t room = 0;
    int error = -ENOENT;
    while (getline(&line, &room, table) >= 0) {
        const char *path;
        struct mount_entry entry;
        if (!mount_table_parse_line(line, &path, &entry) || !matches(path, &entry, wanted))
            continue;
        *ret_entry = entry;
        error = 0;
    }
    return error;
}

static bool is_on_path(const char *path, const struct mount_entry *entry, const void *wanted) {
    (void)entry;
    return strcmp(path, wanted) == 0;
}

int mount_table_find(const char *path, struct mount_entry *ret_entry) {
    return find_last(is_on_path, path, ret_entry);
}

static bool is_device(const char *path, const struct mount_entry *entry, const void *wanted) {
    const dev_t *device = wanted;
    (void)path;
    return entry->major == major(*device) && entry->minor == minor(*device);
}

int mount_table_find_device(dev_t device, struct mount_entry *ret_entry) {
    return find_last(is_device, &device, ret_entry);
}

static int detach_by_helper(const char *path) {
    char *const arguments[] = {"fusermount3", "-u", "-q", "-z", "--", (char *)path, NULL};
    pid_t helper;
    int status;
    int error = posix_spawnp(&helper, arguments[0], NULL, NULL, arguments, environ);
    if (error)
        return -error;
    while (waitpid(helper, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

int mount_table_detach(const char *path, const struct mount_entry *entry) {
    struct mount_entry found;
    int error = mount_table_find(path, &found);
    if (error)
        return error;
    if (found.major != entry->major || found.minor != entry->minor)
        return -ENOENT;
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
        return 0;
    return errno == EPERM ? detach_by_helper(path) : -errno;
}
