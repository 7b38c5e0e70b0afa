/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mount: the seam between main.c, which owns options, session, loop and notifier, and the
 * modules that answer requests. The session's user data is the struct fs.
 *
 * Life: fs_create → store_open with fs_events → fs_attach → fs_start → requests → (no more requests
 * come) fs_stop → store_close → fs_destroy. Between fs_start and fs_stop any thread may run
 * handlers.
 */
#ifndef CPL3_FS_FS_H
#define CPL3_FS_FS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/store.h"
#include "fs/compat.h"
#include "fs/notify.h"

struct fs;

struct fs_options {
    uid_t uid; /* owner of the root and of the ranks' directories */
    gid_t gid;
    bool uid_given, gid_given; /* then also the owner of everything else, and chown is EPERM */
    uint32_t umask_bits;       /* taken from all modes */
    bool allow_other;
    bool df_reclaimable; /* statfs counts what can be evicted as free */
    unsigned threads;    /* that answer requests */
};

int fs_create(const struct fs_options *options, struct fs **ret_fs); /* -ENOMEM */
/* For store_open; the fs outlives the store. */
struct store_events fs_events(struct fs *fs);
/* The notifier may be NULL. */
void fs_attach(struct fs *fs, struct store *store, struct notifier *notifier);
int fs_start(struct fs *fs); /* starts the park thread; -errno */
/*
 * No requests come any more. Answers those that are parked, publishes what handles hold that was
 * flushed, drops what was not, and gives all versions and memory back to the store. Waits for the
 * store at most WAIT_MAX_SECONDS.
 */
void fs_stop(struct fs *fs);
void fs_destroy(struct fs *fs); /* after store_close; NULL is fine */

extern const struct fuse_lowlevel_ops fs_operations;

#endif
