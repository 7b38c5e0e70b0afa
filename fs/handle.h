/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an open file is to us. A read handle holds one version. A write handle holds a staged
 * version (rule P2): all descriptors that share the open (dup, fork) share it, and nobody sees it
 * before it is published. A control handle holds the text of a file in .cpl3.
 *
 * Staged content is either `base` (a published version, unchanged so far: opened without O_TRUNC,
 * or just published) or, when base is NULL, the first size_bytes of `buffer` (NULL: all zeros of
 * length 0). The first change copies what it needs of the base (P6).
 */
#ifndef CPL3_FS_HANDLE_H
#define CPL3_FS_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "core/store.h"

struct fs;
struct file;
struct inode;
struct op;

enum handle_kind { HANDLE_READ, HANDLE_WRITE, HANDLE_CONTROL };

/* What a publish at RELEASE would be for. */
enum pending {
    PENDING_DATA = 1, /* written since the last publish */
    PENDING_MMAP = 2, /* some of that by mmap write-back, which no FLUSH publishes */
    PENDING_BARE = 4, /* created, truncated or resized since the last publish */
};

enum { HANDLE_OWNERS_MAX = 1024 };

struct handle {
    /* fixed after open */
    struct fs *fs;
    struct rank *rank;
    struct inode *inode; /* open: it stays */
    struct file *file;   /* a reference */
    enum handle_kind kind;
    struct version *version; /* HANDLE_READ: a reference */
    char *text;              /* HANDLE_CONTROL */
    size_t text_bytes;
    pid_t opener; /* HANDLE_WRITE opened O_RDWR: the process, for what mmap writes back */

    /* under fs->lock */
    TAILQ_ENTRY(handle) all;
    struct handle *next_staged; /* of the file */
    bool listed;                /* not closed yet */

    /* atomic */
    _Atomic unsigned references; /* the open itself, and each operation */
    _Atomic uint64_t size_bytes;
    _Atomic unsigned pending;     /* enum pending; changed under lock */
    _Atomic bool written;         /* ever */
    _Atomic bool durable;         /* written with O_SYNC or O_DSYNC: its FLUSH waits */
    _Atomic bool dead;            /* its writer was killed or a write failed */
    _Atomic int dead_error;       /* positive errno, which is the answer from then on */
    _Atomic bool cancelled;       /* unlinked or replaced by name: nothing will appear */
    _Atomic uint8_t payload_kind; /* of the file's key */
    _Atomic int64_t mtime_ns;     /* set explicitly after the last write; 0: not */
    _Atomic uint64_t changed_ns;  /* real time of the last change */
    _Atomic uint64_t flushed_ns;  /* monotonic, of the last FLUSH; 0: none */

    pthread_mutex_t lock;
    /* under lock */
    struct version *base;
    struct buffer *buffer;
    struct blob_hasher *hasher; /* of the buffer's first hashed_bytes; NULL: 0 of them */
    uint64_t hashed_bytes;
    bool flushed;               /* closed by somebody since the last change */
    uint64_t flushed_publishes; /* of the file until then */
    uint64_t *owners;           /* lock owners that wrote since the last publish */
    unsigned owner_count, owner_room;
    /* Where the kernel takes the end to be, and appends, unless it has asked since: its LOOKUP may
     * have told the size of another version or of what another handle stages. */
    uint64_t kernel_end;
    bool released;      /* its last operation has run */
    struct op *running; /* the operation that waits; later ones queue behind it */
    STAILQ_HEAD(op_queue, op) queue;
    /* under the park's lock */
    uint64_t counted_bytes; /* of the buffer, in park.staged_bytes */
};

TAILQ_HEAD(handle_list, handle);

/* Under fs->lock: opens the inode once more. Takes no version yet. NULL: no memory. */
struct handle *handle_open(struct fs *fs, struct inode *inode, enum handle_kind kind);
/* Under fs->lock: makes it the inode's writer. */
void handle_become_writer(struct handle *handle, pid_t opener);
/*
 * The end of an open, after its last operation: takes it off the file and the inode. A write
 * handle's inode becomes that of its version if that is still current (P6). Without locks.
 */
void handle_close(struct handle *handle);

void handle_ref(struct handle *handle);
void handle_unref(struct handle *handle); /* without locks */

/* Under its lock: whoever wrote since the last publish. */
void handle_add_owner(struct handle *handle, uint64_t owner);
bool handle_has_owner(const struct handle *handle, uint64_t owner);
/* Under its lock: nothing of what it holds will ever be published. */
void handle_kill(struct handle *handle, int error);

#endif
