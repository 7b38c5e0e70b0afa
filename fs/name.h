/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grammar of names: which file names are content hashes, which name a kind of payload, and what
 * a rank's directory is called. Only this module knows it. Everything else under a rank is a named
 * file. Pure functions, any thread.
 */
#ifndef CPL3_FS_NAME_H
#define CPL3_FS_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/blob.h"
#include "core/config.h"

/*
 * Whether a name directly under a rank is a content hash: an even number, 16 to 64, of lower-case
 * hex digits (kind 0), or those and `.<kind>` with a declared kind.
 */
bool name_parse_hash(const struct config *config, uint16_t rank, const char *name,
                     size_t name_bytes, struct blob_key *ret_key);
/* The name of a hash-named blob (NUL terminated); its length. 0: of a kind that is not declared. */
size_t name_format_hash(const struct config *config, const struct blob_key *key,
                        char ret_name[NAME_BYTES_MAX + 1]);

/* `rank<N>` without leading zeros, below RANKS_MAX. */
bool name_parse_rank(const char *name, size_t name_bytes, uint16_t *ret_rank);
size_t name_format_rank(uint16_t rank, char ret_name[NAME_BYTES_MAX + 1]);

/* st_ino of a blob's file: 63 bits, never one of the few that the mount's own inodes have. */
uint64_t name_file_number(const struct blob_key *key);

#endif
