/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole files for tests: contents that tell where they come from, written and checked in one call.
 * Nothing here asserts, so that children and threads may use it too. Errors are -errno.
 */
#ifndef CPL3_TESTS_SUPPORT_FILES_H
#define CPL3_TESTS_SUPPORT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes that depend on the seed and on the offset: no two blocks alike. */
void fill_pattern(void *buffer, size_t bytes, uint64_t seed, uint64_t offset);
bool is_pattern(const void *buffer, size_t bytes, uint64_t seed, uint64_t offset);

/* open(O_CREAT|O_TRUNC|O_WRONLY), write, close. */
int file_put(const char *path, size_t bytes, uint64_t seed);
/* 0: the file holds exactly this pattern. -EBADMSG: it does not. */
int file_check(const char *path, size_t bytes, uint64_t seed);
/* The rest of an open file, from its start, against the pattern. */
int file_check_fd(int fd, size_t bytes, uint64_t seed);

/* What open answers: 0 (closed again) or -errno. */
int file_open_result(const char *path, int flags);
/* stat's size, or -errno. */
off_t file_size(const char *path);
/* Writes a string over the file; 0 or -errno. */
int file_put_text(const char *path, const char *text);
/* The whole file, zero terminated (free it); NULL and errno. */
char *file_read(const char *path, size_t *ret_bytes);
/* Is the file exactly this text? */
bool file_is_text(const char *path, const char *text);

/* How often readdir gives this name; -errno. */
int directory_count_name(const char *directory, const char *name);
/* Entries without . and ..; -errno. */
int directory_count(const char *directory);
/* Bytes of disk below a directory (blocks * 512), of the files whose names end so (NULL: all). */
uint64_t directory_disk_bytes(const char *directory, const char *ending);

#endif
