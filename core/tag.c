/* SPDX-License-Identifier: Apache-2.0 */
/* The file rank<N>/tag (see tag.h): one line, "cpl3 tag <string>". */
#include "core/tag.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/superblock.h"

#define TAG_NAME "tag"
#define TAG_FIRST "cpl3 tag "

enum { TEXT_BYTES_MAX = sizeof(TAG_FIRST) + TAG_BYTES_MAX + 1 };

int tag_read(int rank_directory_fd, char ret_tag[TAG_BYTES_MAX + 1]) {
    char text[TEXT_BYTES_MAX + 2]; /* one more than the longest, to see that it is longer */
    const size_t first = strlen(TAG_FIRST);
    int length = text_file_read(rank_directory_fd, TAG_NAME, text, sizeof(text));
    if (length == -ENOENT) {
        ret_tag[0] = '\0';
        return 0;
    }
    if (length < 0)
        return length;
    size_t bytes = (size_t)length;
    if (bytes < first + 2 || bytes > first + TAG_BYTES_MAX + 1 || strlen(text) != bytes ||
        memcmp(text, TAG_FIRST, first) != 0 || strchr(text, '\n') != text + bytes - 1)
        return -EBADMSG;
    memcpy(ret_tag, text + first, bytes - first - 1);
    ret_tag[bytes - first - 1] = '\0';
    return 0;
}

int tag_write(int rank_directory_fd, const char *tag) {
    char text[TEXT_BYTES_MAX + 2];
    if (tag[0]) {
        snprintf(text, sizeof(text), TAG_FIRST "%s\n", tag);
        return text_file_replace(rank_directory_fd, TAG_NAME, text);
    }
    if (unlinkat(rank_directory_fd, TAG_NAME, 0) < 0)
        return errno == ENOENT ? 0 : -errno;
    return fsync(rank_directory_fd) < 0 ? -errno : 0;
}
