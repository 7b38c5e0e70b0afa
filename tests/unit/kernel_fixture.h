/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session without a mount: a socket stands in the kernel's place, so tests say what the kernel
 * says.
 */
#ifndef CPL3_TESTS_UNIT_KERNEL_FIXTURE_H
#define CPL3_TESTS_UNIT_KERNEL_FIXTURE_H

#include <criterion/criterion.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/compat.h"
#include "fs/fs.h"

enum { ALLOW_MMAP_IN_FLAGS2 = 1 << 4, REQUEST_UNIQUE = 77, KERNEL_REQUESTS = 8 };

struct init_request {
    struct fuse_in_header header;
    struct fuse_init_in init;
};

struct init_reply {
    struct fuse_out_header header;
    struct fuse_init_out init;
};

static int kernel_fd;
static struct buffer_pool *request_memory;
static struct fs *fs;
static struct fuse_session *session;
static _Atomic int serving_calls;

static inline void on_serving(void *argument) {
    cr_assert(argument == &serving_calls);
    serving_calls++;
}

/* A session on one end of a socket pair that keeps message boundaries, as the device does. */
static inline void kernel_make_with(const struct fuse_lowlevel_ops *operations) {
    static char name[] = "test";
    char *argv[] = {name, NULL};
    struct fuse_args arguments = FUSE_ARGS_INIT(1, argv);
    const struct fs_options options = {.umask_bits = 077};
    int fds[2];
    char path[32];
    const uint64_t shares[BUFFER_SHARES] = {[BUFFER_REQUESTS] = KERNEL_REQUESTS << 20};
    cr_assert(fs_create(&options, &fs) == 0);
    cr_assert(buffer_pool_open(KERNEL_REQUESTS << 20, shares, false, &request_memory) == 0);
    cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    kernel_fd = fds[0];
    session = fuse_session_new(&arguments, operations, sizeof *operations, fs);
    fuse_opt_free_args(&arguments);
    cr_assert(session);
    snprintf(path, sizeof path, "/dev/fd/%d", fds[1]);
    cr_assert(fuse_session_mount(session, path) == 0);
    fs_get_compat(fs)->serving = on_serving;
    fs_get_compat(fs)->serving_argument = &serving_calls;
    cr_assert(compat_attach(session) == 0);
}

static inline void kernel_make(void) {
    static const struct fuse_lowlevel_ops operations = {.init = compat_init};
    kernel_make_with(&operations);
}

static inline void kernel_destroy(void) {
    fuse_session_destroy(session);
    fs_destroy(fs);
    buffer_pool_close(request_memory);
    close(kernel_fd);
}

static inline void send_init(uint32_t minor, uint32_t flags, uint32_t flags2) {
    struct init_request request = {
        .header = {.len = sizeof request, .opcode = FUSE_INIT, .unique = REQUEST_UNIQUE},
        .init = {.major = 7, .minor = minor, .flags = flags, .flags2 = flags2},
    };
    cr_assert(write(kernel_fd, &request, sizeof request) == sizeof request);
}

static inline struct init_reply receive_reply(void) {
    struct init_reply reply;
    cr_assert(read(kernel_fd, &reply, sizeof reply) == sizeof reply);
    cr_assert(reply.header.unique == REQUEST_UNIQUE && reply.header.error == 0);
    return reply;
}

/* One request of so many bytes goes to its handler. */
static inline void serve_one(size_t bytes) {
    struct compat_request request;
    cr_assert(compat_create_request(request_memory, &request) == 0);
    cr_assert(compat_receive(session, &request) == (int)bytes);
    compat_process(session, &request);
    compat_destroy_request(&request);
}

static inline struct init_reply handshake(uint32_t minor, uint32_t flags, uint32_t flags2) {
    send_init(minor, flags, flags2);
    serve_one(sizeof(struct init_request));
    return receive_reply();
}

#endif
