/* SPDX-License-Identifier: Apache-2.0 */
/* Text files of a store: superblock and epochs. */
#include "core/superblock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/format.h"
#include "core/log.h"
#include "core/rank.h"

#define SUPERBLOCK_NAME "superblock"
#define FIRST_LINE "cpl3 store, format "

static int write_all(int fd, const char *text, size_t bytes) {
    while (bytes) {
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -errno;
        text += written;
        bytes -= (size_t)written;
    }
    return 0;
}

int text_file_replace(int directory_fd, const char *name, const char *text) {
    char temp[64];
    snprintf(temp, sizeof(temp), ".%s.new", name);
    int result;
    {
        AUTO_CLOSE int fd =
            openat(directory_fd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0)
            return -errno;
        result = write_all(fd, text, strlen(text));
        if (result == 0 && fsync(fd) < 0)
            result = -errno;
    }
    if (result == 0 && renameat(directory_fd, temp, directory_fd, name) < 0)
        result = -errno;
    if (result == 0 && fsync(directory_fd) < 0)
        result = -errno;
    if (result < 0)
        unlinkat(directory_fd, temp, 0);
    return result;
}

int text_file_read(int directory_fd, const char *name, char *ret_text, size_t size) {
    AUTO_CLOSE int fd = openat(directory_fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t length = 0;
    while (length < size - 1) {
        ssize_t count = read(fd, ret_text + length, size - 1 - length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -errno;
        if (count == 0)
            break;
        length += (size_t)count;
    }
    ret_text[length] = '\0';
    return (int)length;
}

static int refuse(const char *path, const char *found, int error) {
    log_error("store %s: its superblock %s; nothing was changed. To make a new, empty store there: "
              "rm -r -- '%s' and mount again",
              path, found, path);
    return error;
}

int superblock_read(int directory_fd, const char *path, struct superblock *ret_superblock) {
    char text[512];
    int length = text_file_read(directory_fd, SUPERBLOCK_NAME, text, sizeof(text));
    if (length == -ENOENT)
        return -ENOENT;
    if (length < 0) {
        log_error("store %s: reading its superblock: %s", path, strerror(-length));
        return length;
    }
    unsigned format;
    int used = 0;
    if (memchr(text, '\0', (size_t)length) ||
        sscanf(text, FIRST_LINE "%u\n%n", &format, &used) != 1 || used == 0)
        return refuse(path, "is not one of cpl3 (another program's directory, or damaged)",
                      -EINVAL);
    if (format != FORMAT_VERSION) {
        char found[80];
        snprintf(found, sizeof(found), "says format %u, and this cpl3 reads only format %d", format,
                 FORMAT_VERSION);
        return refuse(path, found, -EPROTO);
    }
    struct superblock superblock = {0};
    int end = 0;
    if (sscanf(text + used, "uuid %36[0-9a-f-]\nsize %" SCNu64 "\ncreated %*[0-9TZ:-]\n%n",
               superblock.uuid, &superblock.size_bytes, &end) != 2 ||
        end == 0 || used + end != length || strlen(superblock.uuid) != 36)
        return refuse(path, "is damaged", -EINVAL);
    *ret_superblock = superblock;
    return 0;
}

static int make_uuid(char *ret_uuid, size_t size) {
    uint8_t b[16];
    if (getrandom(b, sizeof(b), 0) != sizeof(b))
        return -EIO;
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    snprintf(ret_uuid, size, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
    return 0;
}

int superblock_create(int directory_fd, uint64_t size_bytes, struct superblock *ret_superblock) {
    struct superblock superblock = {.size_bytes = size_bytes};
    int result = make_uuid(superblock.uuid, sizeof(superblock.uuid));
    if (result < 0)
        return result;
    time_t now = time(NULL);
    struct tm utc;
    char created[40], text[256];
    gmtime_r(&now, &utc);
    strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(text, sizeof(text), FIRST_LINE "%d\nuuid %s\nsize %" PRIu64 "\ncreated %s\n",
             FORMAT_VERSION, superblock.uuid, size_bytes, created);
    result = text_file_replace(directory_fd, SUPERBLOCK_NAME, text);
    if (result == 0)
        *ret_superblock = superblock;
    return result;
}

/* epochs */

int epoch_write(struct rank *rank, uint32_t epoch) {
    char text[64];
    snprintf(text, sizeof(text), "cpl3 epoch %" PRIu32 "\n", epoch);
    return text_file_replace(rank->directory_fd, "epoch", text);
}

int epoch_read(struct rank *rank, uint32_t *ret_epoch) {
    char text[64];
    int length = text_file_read(rank->directory_fd, "epoch", text, sizeof(text));
    uint32_t epoch;
    int end = 0;
    if (length <= 0 || sscanf(text, "cpl3 epoch %" SCNu32 "\n%n", &epoch, &end) != 1 ||
        end != length)
        return -ENOENT;
    *ret_epoch = epoch;
    return 0;
}
