/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libfuse and the kernel's FUSE protocol, as far as they differ between libfuse 3.14 and 3.18 and
 * between kernels: the only place that includes libfuse's header, that knows capability flags, and
 * that speaks the raw protocol where libfuse 3.14 does not do it: FUSE_DIRECT_IO_ALLOW_MMAP,
 * FUSE_NOTIFY_INC_EPOCH, READs longer than WRITEs, and FUSE_PARALLEL_DIROPS, which it has a
 * capability for and then never puts into its answer. Every file of fs/ includes this instead of
 * fuse_lowlevel.h.
 *
 * How it hooks in: the session's user data is `struct fs *` and libfuse hands that to its custom
 * I/O functions too, so struct fs holds one zeroed struct compat, and fs_get_compat() (defined
 * beside struct fs) gives it back. main.c sets the serving hook in it, then calls compat_attach()
 * after fuse_session_mount(). fs_operations has `.init = compat_init`.
 *
 * FUSE over io_uring (libfuse >= 3.18) replaces the read side: libfuse's own ring threads call the
 * handlers of fs_operations. No handler blocks or keeps per-thread state, so what that takes is a
 * mount option in main.c and no loop.c (compat_payload then finds no segment, and payloads are
 * copied); custom I/O stays for INIT, which always comes through the device.
 */
#ifndef CPL3_FS_COMPAT_H
#define CPL3_FS_COMPAT_H

#define FUSE_USE_VERSION 314

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <fuse3/fuse_lowlevel.h>

#include "core/buffer.h"

struct fs;

enum {
    COMPAT_WRITE_BYTES_MAX = 1 << 20, /* the payload of one WRITE */
    COMPAT_READ_BYTES_MAX = 16 << 20, /* of one READ; by fs.fuse.max_pages_limit mostly 1 MiB */
    COMPAT_BACKGROUND_MAX = 64,
};

struct compat {
    /* fixed before compat_attach: called once, on a worker thread, when the kernel has our answer
     * to INIT, that is: when the mount serves. Must not wait. */
    void (*serving)(void *argument);
    void *serving_argument;
    /* atomic: known from INIT on */
    _Atomic uint32_t kernel_minor; /* the kernel speaks 7.<minor>; 0 before INIT */
    _Atomic bool mmap_offered;     /* FUSE_DIRECT_IO_ALLOW_MMAP */
    _Atomic bool parallel_offered; /* FUSE_PARALLEL_DIROPS */
    _Atomic uint64_t init_unique;  /* of the INIT that waits for its answer; 0: none */
};

/* Defined by the owner of struct fs. */
struct compat *fs_get_compat(struct fs *fs);

/* The init operation of fs_operations; userdata is struct fs *. */
void compat_init(void *userdata, struct fuse_conn_info *conn);

/* After fuse_session_mount, before the first receive. 0 or -errno. */
int compat_attach(struct fuse_session *session);

uint32_t compat_kernel_minor(const struct compat *compat);
/* Files opened direct_io can be mapped MAP_SHARED; else the kernel answers ENODEV. */
bool compat_has_shared_mmap(const struct compat *compat);
/* The kernel knows FUSE_NOTIFY_INC_EPOCH. */
bool compat_has_epoch(const struct compat *compat);
/* Makes the kernel look up every cached name again at its next use. May block like any
 * notification: notifier thread only (W6). -EOPNOTSUPP, -errno. */
int compat_increase_epoch(struct compat *compat, struct fuse_session *session);

/*
 * What one worker receives into. The payload of a WRITE has a segment of the buffer pool to itself,
 * so a handler may keep that memory and leave other memory for it (buffer_exchange_segment).
 * Everything else, and the headers of a WRITE, lie in `buffer`, as libfuse expects.
 */
struct compat_request {
    struct fuse_buf buffer;
    struct buffer *payload; /* one segment of the share BUFFER_REQUESTS */
};

/* 0 or -ENOMEM. */
int compat_create_request(struct buffer_pool *pool, struct compat_request *ret_request);
void compat_destroy_request(struct compat_request *request);

/* fuse_session_receive_buf into it: its bytes; 0: the session ended; -errno. compat_process then
 * runs the handler, on the same thread. */
int compat_receive(struct fuse_session *session, struct compat_request *request);
void compat_process(struct fuse_session *session, struct compat_request *request);

/* Where the payload of the WRITE that this thread handles is, until its handler returns. `bytes` is
 * what libfuse gave the handler. *ret_segment: the buffer whose segment it fills from the start;
 * NULL: it is in no segment. */
const char *compat_payload(const char *bytes, struct buffer **ret_segment);

#endif
