/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename: the two ends of one, for fs/rename.c, which changes names only, and fs/rename_copy.c,
 * where a content hash stops being the name of its bytes, so that they are put again under another
 * key.
 */
#ifndef CPL3_FS_RENAME_H
#define CPL3_FS_RENAME_H

#include "fs/compat.h"
#include "fs/file.h"

struct rename_request {
    uint64_t from_parent, to_parent; /* nodes */
    const char *from_name, *to_name;
    unsigned flags;
};

struct rename_ends {
    struct rank *rank;
    struct place from, to;
    struct found source, target;
};

/* Under fs->lock, all of them. */

/* 0; -EALREADY: both are the same, nothing to do; else the errno that is the answer. */
int rename_find_ends(struct fs *fs, const struct rename_request *request,
                     struct rename_ends *ret_ends);
/* 0: done. -EAGAIN: the bytes have to be put again (rename_start_copy). */
int rename_now(struct fs *fs, const struct rename_request *request);
/* Under which key a file is published at the target: the hash that the name says, or an id. */
void rename_target_key(struct fs *fs, const struct rename_ends *ends, const struct blob_key *old,
                       struct blob_key *ret_key);

/* Without locks; answers the request. */
void rename_start_copy(struct fs *fs, fuse_req_t request, const struct rename_request *asked);

#endif
