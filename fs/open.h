/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening files (rules P3, P5, P6, P7, P8): who gets which version, who has to look the name up
 * again, who waits a moment for a RELEASE, and the load that verifies the bytes before the answer.
 */
#ifndef CPL3_FS_OPEN_H
#define CPL3_FS_OPEN_H

#include <stdint.h>
#include <sys/queue.h>

#include "fs/compat.h"
#include "fs/park.h"

struct inode;

enum { OPEN_HELD_BACK_NS = 100000000 };

/* One OPEN, or a CREATE of a name that exists; or a truncation by name. */
struct opening {
    struct task task; /* the load */
    fuse_req_t request;
    struct inode *inode;
    struct handle *handle;   /* once it is decided */
    struct version *loading; /* verified before the answer; the handle's reference */
    struct fuse_file_info info;
    bool create;
    pid_t opener;      /* the process, if it opens O_RDWR */
    uint64_t until_ns; /* monotonic: held back no longer than that */
    /* a truncation: without locks, once it need not wait; frees the opening */
    void (*go_on)(struct opening *opening);
    uint64_t size_bytes;
    int result;
    TAILQ_ENTRY(opening) entry;
};
TAILQ_HEAD(open_list, opening);

/* NULL: no memory. `inode` stays: the kernel waits for our answer about it. */
struct opening *open_create(struct fs *fs, fuse_req_t request, struct inode *inode,
                            const struct fuse_file_info *info, pid_t opener);
/* Under fs->lock: decides. True: go on with open_proceed, without the lock. False: kept. */
bool open_decide(struct fs *fs, struct opening *opening);
/* Without locks: loads if that is wanted, and answers, now or later. */
void open_proceed(struct opening *opening);

/* Without locks. The kernel does not know of the handle (its answer did not arrive), so nobody will
 * release it; entry_counted: nor of the entry that came with it. */
void open_abandon(struct handle *handle, bool entry_counted);

/*
 * Looks at those held back: goes on with all that need not wait any more. When to come back
 * (monotonic; UINT64_MAX: nobody waits). Without locks.
 */
uint64_t open_run_waiting(struct fs *fs, uint64_t now_ns);

#endif
