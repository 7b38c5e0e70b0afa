/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's superblock and the ranks' epoch files: small human-readable texts, written whole by
 * temp file, fsync, rename, fsync of the directory. Whatever is not exactly understood is refused.
 */
#ifndef CPL3_CORE_SUPERBLOCK_H
#define CPL3_CORE_SUPERBLOCK_H

#include <stddef.h>
#include <stdint.h>

struct superblock {
    char uuid[40];
    uint64_t size_bytes; /* per rank, as the store was made */
};

/*
 * 0; -ENOENT: there is none; -EINVAL (not a superblock of ours) or -EPROTO (another format), after
 * one log line with what was found and the command that makes a new store. `path` is for messages.
 */
int superblock_read(int directory_fd, const char *path, struct superblock *ret_superblock);
/* A new one with a fresh UUID. -errno. */
int superblock_create(int directory_fd, uint64_t size_bytes, struct superblock *ret_superblock);

/* Replaces a file in one durable step. -errno. */
int text_file_replace(int directory_fd, const char *name, const char *text);
/* Up to size - 1 bytes, NUL terminated. The count or -errno. */
int text_file_read(int directory_fd, const char *name, char *ret_text, size_t size);

#endif
