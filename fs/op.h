/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on a write handle, one after the other. An operation runs under the handle's lock;
 * when it has to wait it becomes the handle's running one, and those that come meanwhile queue
 * behind it (rules P2, P3 depend on the order of WRITE, FLUSH and RELEASE). A step can be run again
 * at any point: what it has got so far is in the handle and in the operation.
 */
#ifndef CPL3_FS_OP_H
#define CPL3_FS_OP_H

#include "fs/compat.h"
#include "fs/park.h"

struct handle;

enum op_kind {
    OP_WRITE,
    OP_RESIZE, /* ftruncate, fallocate */
    OP_FLUSH,
    OP_FSYNC,
    OP_RELEASE,
    OP_TRUNCATE, /* by name: resize, publish, close the handle made for it */
    OP_MAKE,     /* mknod: publish, close the handle made for it */
};

enum op_wait { WAIT_NOTHING, WAIT_LOAD, WAIT_SPACE, WAIT_MEMORY };

struct op {
    struct task task;
    struct handle *handle; /* a reference */
    fuse_req_t request;    /* NULL: nobody waits for the answer */
    enum op_kind kind;
    STAILQ_ENTRY(op) next;

    /* what is asked */
    pid_t pid; /* OP_WRITE, OP_FLUSH: the thread that asks; 0: not known */
    uint64_t lock_owner;
    bool killed;            /* the opener of a mapping is being killed (P4) */
    bool only_longer;       /* OP_RESIZE: never cuts */
    bool keep_size;         /* OP_RESIZE: only asks whether it would fit */
    bool wants_attributes;  /* OP_RESIZE: the answer is the attributes of `node` */
    bool append;            /* OP_WRITE: at the end, as the kernel knows it */
    uint64_t offset;        /* OP_WRITE */
    size_t count;           /* OP_WRITE */
    const char *bytes;      /* OP_WRITE: the request's, or copy */
    struct buffer *segment; /* OP_WRITE: whose first segment `bytes` is, and may be kept; or NULL */
    char *copy;             /* OP_WRITE that waits: malloc'ed */
    uint64_t size_bytes;    /* OP_RESIZE, OP_TRUNCATE */
    uint64_t node;          /* of whom attributes are the answer */
    /* OP_RESIZE by name that comes after its handle's RELEASE: answers instead. Without locks. */
    void (*again)(struct op *op);

    /* how far it is */
    enum op_wait wait;
    bool placed;             /* OP_WRITE: its offset is final */
    bool decided;            /* OP_FLUSH, OP_RELEASE: looked at its writers */
    bool publish;            /* and found that it publishes */
    bool resized;            /* OP_TRUNCATE */
    bool published;          /* it did */
    struct version *version; /* OP_FLUSH, OP_FSYNC: what has to be durable; a reference, or NULL */
    bool holding;            /* has a hold on the base's bytes */
    bool reserved;           /* task.reservation is ours */
    uint8_t reserved_kind;
    int result;
};

/* NULL: no memory (ENOMEM is the answer). Takes a reference to the handle. */
struct op *op_create(struct handle *handle, enum op_kind kind, fuse_req_t request);
/* Runs it, now or in its turn; answers it when done. */
void op_submit(struct op *op);

/* A WRITE that is about to wait keeps a copy of its payload, since the request's memory goes to the
 * next request. -ENOSPC: too much is kept already. */
int op_keep_payload(struct op *op);

/* Answers with 0 when all changes of the rank so far are durable, and EIO if this version (NULL:
 * none) could not be stored. */
void op_reply_when_durable(struct fs *fs, struct rank *rank, struct version *version,
                           fuse_req_t request);

#endif
