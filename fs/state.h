/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one mount, for the modules that answer requests.
 *
 * Locks, in order: a handle's lock (its staged bytes and the order of its operations), fs->lock
 * (inodes, files, names, which handle is where), the park's own lock. fs->lock may be held across
 * core's table functions (lookup, publish, unlink, rename, list: microseconds), never across copies
 * of payload, waiting or replies.
 */
#ifndef CPL3_FS_STATE_H
#define CPL3_FS_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/store.h"
#include "fs/compat.h"
#include "fs/file.h"
#include "fs/fs.h"
#include "fs/handle.h"
#include "fs/inode.h"
#include "fs/notify.h"
#include "fs/open.h"
#include "fs/park.h"

/* Entries, attributes and absence are believed this long, if nothing invalidates them before. */
#define KNOWN_SECONDS 10.0

struct hot_name;

struct fs {
    /* fixed after attach */
    struct fs_options options;
    struct store *store;
    const struct config *config;
    struct notifier *notifier;
    struct compat compat;
    int64_t created_ns; /* real time */

    pthread_mutex_t lock;
    /* under lock */
    uint64_t next_node;
    struct inode *inodes;
    struct directory *directories;
    struct file *files;
    struct hot_name *hot_names;
    struct inode_list pins; /* unopened private inodes that pin a version, oldest first */
    unsigned pin_count;
    struct handle_list handles;     /* all that are open */
    struct open_list waiting_opens; /* kept back by P3's 100 ms */

    struct park park;
    _Atomic uint64_t next_too_large_ns; /* monotonic: one message a minute */
    atomic_flag long_name_told;
};

static inline struct fs *fs_of(fuse_req_t request) {
    return fuse_req_userdata(request);
}
static inline uint32_t fs_mode(const struct fs *fs, uint32_t mode) {
    return mode & 07777 & ~fs->options.umask_bits;
}

#endif
