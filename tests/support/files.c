/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files for tests: see files.h. */
#include "tests/support/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"

static uint64_t pattern_word(uint64_t seed, uint64_t index) {
    uint64_t x = seed * 0x9e3779b97f4a7c15u + index + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void fill_pattern(void *buffer, size_t bytes, uint64_t seed, uint64_t offset) {
    uint8_t *out = buffer;
    for (size_t done = 0; done < bytes;) {
        uint64_t at = offset + done;
        uint64_t word = pattern_word(seed, at / 8);
        size_t skip = at % 8;
        size_t n = 8 - skip < bytes - done ? 8 - skip : bytes - done;
        memcpy(out + done, (uint8_t *)&word + skip, n);
        done += n;
    }
}

bool is_pattern(const void *buffer, size_t bytes, uint64_t seed, uint64_t offset) {
    const uint8_t *in = buffer;
    uint8_t expected[4096];
    for (size_t done = 0; done < bytes;) {
        size_t n = bytes - done < sizeof expected ? bytes - done : sizeof expected;
        fill_pattern(expected, n, seed, offset + done);
        if (memcmp(expected, in + done, n) != 0)
            return false;
        done += n;
    }
    return true;
}

static int write_all(int fd, const void *buffer, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)buffer + done, bytes - done);
        if (n < 0)
            return -errno;
        done += (size_t)n;
    }
    return 0;
}

static int put_bytes(const char *path, const void *buffer, size_t bytes) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    int result = write_all(fd, buffer, bytes);
    if (close(fd) != 0 && result == 0)
        result = -errno;
    return result;
}

int file_put(const char *path, size_t bytes, uint64_t seed) {
    AUTO_FREE char *buffer = malloc(bytes + 1);
    if (!buffer)
        return -ENOMEM;
    fill_pattern(buffer, bytes, seed, 0);
    return put_bytes(path, buffer, bytes);
}

int file_put_text(const char *path, const char *text) {
    return put_bytes(path, text, strlen(text));
}

int file_check_fd(int fd, size_t bytes, uint64_t seed) {
    AUTO_FREE char *buffer = malloc(bytes + 1);
    if (!buffer)
        return -ENOMEM;
    size_t have = 0;
    while (have < bytes + 1) {
        ssize_t n = pread(fd, buffer + have, bytes + 1 - have, (off_t)have);
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        have += (size_t)n;
    }
    return have == bytes && is_pattern(buffer, bytes, seed, 0) ? 0 : -EBADMSG;
}

int file_check(const char *path, size_t bytes, uint64_t seed) {
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (st.st_size != (off_t)bytes)
        return -EBADMSG;
    return file_check_fd(fd, bytes, seed);
}

int file_open_result(const char *path, int flags) {
    AUTO_CLOSE int fd = open(path, flags | O_CLOEXEC, 0644);
    return fd < 0 ? -errno : 0;
}

off_t file_size(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : -errno;
}

char *file_read(const char *path, size_t *ret_bytes) {
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    size_t have = 0, room = 1 << 16;
    char *buffer = malloc(room + 1);
    for (ssize_t n; buffer && (n = read(fd, buffer + have, room - have)) != 0;) {
        if (n < 0) {
            free(buffer);
            return NULL;
        }
        have += (size_t)n;
        if (have < room)
            continue;
        room *= 2;
        char *more = realloc(buffer, room + 1);
        if (!more)
            free(buffer);
        buffer = more;
    }
    if (!buffer)
        return NULL;
    buffer[have] = 0;
    if (ret_bytes)
        *ret_bytes = have;
    return buffer;
}

bool file_is_text(const char *path, const char *text) {
    size_t bytes;
    AUTO_FREE char *have = file_read(path, &bytes);
    return have && bytes == strlen(text) && memcmp(have, text, bytes) == 0;
}

/* All entries (name NULL), or those of one name. */
static int count_entries(const char *directory, const char *name) {
    AUTO_CLOSEDIR DIR *dir = opendir(directory);
    if (!dir)
        return -errno;
    int count = 0;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? -errno : count;
        bool own = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
        count += name ? !strcmp(entry->d_name, name) : !own;
    }
}

int directory_count_name(const char *directory, const char *name) {
    return count_entries(directory, name);
}

int directory_count(const char *directory) {
    return count_entries(directory, NULL);
}

static bool ends_with(const char *name, const char *ending) {
    size_t n = strlen(name), m = strlen(ending);
    return n >= m && strcmp(name + n - m, ending) == 0;
}

uint64_t directory_disk_bytes(const char *directory, const char *ending) {
    AUTO_CLOSEDIR DIR *dir = opendir(directory);
    uint64_t bytes = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[4096];
        struct stat st;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (lstat(path, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            bytes += directory_disk_bytes(path, ending);
        else if (!ending || ends_with(entry->d_name, ending))
            bytes += (uint64_t)st.st_blocks * 512;
    }
    return bytes;
}
