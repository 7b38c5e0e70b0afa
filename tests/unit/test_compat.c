/* SPDX-License-Identifier: Apache-2.0 */
/* The conversation at INIT: what is noted from the request and how the answer is amended. */
#include "tests/unit/kernel_fixture.h"

#include <errno.h>
#include <string.h>

TestSuite(compat, .init = kernel_make, .fini = kernel_destroy, .timeout = 20);

Test(compat, shared_mmap_is_asked_for_where_the_kernel_offers_it) {
    struct init_reply reply = handshake(45, FUSE_INIT_EXT | FUSE_MAX_PAGES, ALLOW_MMAP_IN_FLAGS2);
    cr_assert(reply.init.flags & FUSE_INIT_EXT);
    cr_assert(reply.init.flags2 == ALLOW_MMAP_IN_FLAGS2);
    cr_assert(compat_has_shared_mmap(fs_get_compat(fs)));
}

Test(compat, shared_mmap_is_not_asked_for_where_it_is_not_offered) {
    struct init_reply reply = handshake(45, FUSE_INIT_EXT | FUSE_MAX_PAGES, 0);
    cr_assert(!(reply.init.flags2 & ALLOW_MMAP_IN_FLAGS2));
    cr_assert(!compat_has_shared_mmap(fs_get_compat(fs)));
}

Test(compat, flags2_counts_only_with_the_extended_init) {
    struct init_reply reply = handshake(36, FUSE_MAX_PAGES, ALLOW_MMAP_IN_FLAGS2);
    cr_assert(!(reply.init.flags2 & ALLOW_MMAP_IN_FLAGS2));
    cr_assert(!compat_has_shared_mmap(fs_get_compat(fs)));
}

Test(compat, requests_are_as_large_as_designed_and_only_wanted_flags_are_on) {
    uint32_t offered = FUSE_INIT_EXT | FUSE_MAX_PAGES | FUSE_ASYNC_READ | FUSE_ASYNC_DIO |
                       FUSE_PARALLEL_DIROPS | FUSE_ATOMIC_O_TRUNC | FUSE_WRITEBACK_CACHE |
                       FUSE_AUTO_INVAL_DATA | FUSE_SPLICE_READ | FUSE_DO_READDIRPLUS |
                       FUSE_READDIRPLUS_AUTO;
    struct init_reply reply = handshake(45, offered, 0);
    uint32_t wanted = FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS |
                      FUSE_ATOMIC_O_TRUNC | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO;
    cr_assert((reply.init.flags & wanted) == wanted, "%x is off", wanted & ~reply.init.flags);
    cr_assert(!(reply.init.flags & (FUSE_WRITEBACK_CACHE | FUSE_AUTO_INVAL_DATA)));
    cr_assert(reply.init.max_write == 1 << 20 && reply.init.max_pages == 4096);
    cr_assert(reply.init.max_background == 64);
}

Test(compat, a_kernel_that_offers_nothing_is_not_refused) {
    struct init_reply reply = handshake(31, FUSE_MAX_PAGES, 0);
    cr_assert(!(reply.init.flags & (FUSE_ASYNC_DIO | FUSE_DO_READDIRPLUS | FUSE_PARALLEL_DIROPS)));
}

Test(compat, the_mount_serves_once_init_is_answered) {
    cr_assert(serving_calls == 0 && compat_kernel_minor(fs_get_compat(fs)) == 0);
    handshake(45, FUSE_INIT_EXT, 0);
    cr_assert(serving_calls == 1 && compat_kernel_minor(fs_get_compat(fs)) == 45);
}

Test(compat, an_epoch_is_sent_only_to_kernels_that_know_it) {
    handshake(43, FUSE_INIT_EXT, 0);
    cr_assert(compat_increase_epoch(fs_get_compat(fs), session) == -EOPNOTSUPP);
}

Test(compat, an_epoch_is_a_bare_notification) {
    handshake(44, FUSE_INIT_EXT, 0);
    cr_assert(compat_increase_epoch(fs_get_compat(fs), session) == 0);
    struct fuse_out_header header;
    cr_assert(read(kernel_fd, &header, sizeof header) == sizeof header);
    cr_assert(header.len == sizeof header && header.error == 8 && header.unique == 0);
}

/* requests, as their handlers see them */

enum { PAYLOAD_BYTES = 100000, FORGETS = 100, LONG_NAME_BYTES = 200 };

static char payload[PAYLOAD_BYTES];
static struct buffer *kept; /* what the WRITE handler keeps the payload in */
static unsigned forgotten;
static char looked_up[LONG_NAME_BYTES + 1];

static void on_write(fuse_req_t request, fuse_ino_t node, const char *bytes, size_t count,
                     off_t offset, struct fuse_file_info *info) {
    (void)node, (void)offset, (void)info;
    struct buffer *segment;
    const char *received = compat_payload(bytes, &segment);
    cr_assert(segment && (uintptr_t)received % 4096 == 0);
    cr_assert(count == PAYLOAD_BYTES && memcmp(received, payload, count) == 0);
    cr_assert(buffer_exchange_segment(kept, 0, segment));
    fuse_reply_write(request, count);
}

static void on_forgets(fuse_req_t request, size_t count, struct fuse_forget_data *forgets) {
    for (size_t i = 0; i < count; i++)
        cr_assert(forgets[i].ino == i + 2 && forgets[i].nlookup == i);
    forgotten = (unsigned)count;
    fuse_reply_none(request);
}

static void on_lookup(fuse_req_t request, fuse_ino_t node, const char *name) {
    (void)node;
    snprintf(looked_up, sizeof looked_up, "%s", name);
    fuse_reply_err(request, ENOENT);
}

static void make_requests(void) {
    static const struct fuse_lowlevel_ops operations = {
        .init = compat_init, .write = on_write, .forget_multi = on_forgets, .lookup = on_lookup};
    kernel_make_with(&operations);
    cr_assert(buffer_create(request_memory, BUFFER_REQUESTS, 1 << 20, &kept) == 0);
    handshake(45, FUSE_INIT_EXT, 0);
}

static void destroy_requests(void) {
    buffer_destroy(kept);
    kernel_destroy();
}

TestSuite(compat_requests, .init = make_requests, .fini = destroy_requests, .timeout = 20);

static void send_request(uint32_t opcode, const void *arguments, size_t argument_bytes,
                         const void *rest, size_t rest_bytes) {
    struct fuse_in_header header = {.opcode = opcode, .unique = REQUEST_UNIQUE, .nodeid = 1};
    struct iovec pieces[] = {
        {&header, sizeof header}, {(void *)arguments, argument_bytes}, {(void *)rest, rest_bytes}};
    size_t bytes = sizeof header + argument_bytes + rest_bytes;
    header.len = (uint32_t)bytes;
    cr_assert(writev(kernel_fd, pieces, 3) == (ssize_t)bytes);
    serve_one(bytes);
}

Test(compat_requests, the_payload_of_a_write_is_in_a_segment_that_its_handler_can_keep) {
    struct fuse_write_in arguments = {.size = PAYLOAD_BYTES};
    for (int seed = 1; seed < 4; seed++) {
        static char after[PAYLOAD_BYTES];
        for (size_t i = 0; i < PAYLOAD_BYTES; i++)
            payload[i] = (char)((size_t)seed * i >> 3);
        send_request(FUSE_WRITE, &arguments, sizeof arguments, payload, PAYLOAD_BYTES);
        buffer_read(kept, 0, after, PAYLOAD_BYTES);
        cr_expect(memcmp(after, payload, PAYLOAD_BYTES) == 0);
    }
}

Test(compat_requests, what_is_longer_than_the_headers_of_a_write_is_whole) {
    struct fuse_batch_forget_in arguments = {.count = FORGETS};
    struct fuse_forget_one forgets[FORGETS];
    for (uint64_t i = 0; i < FORGETS; i++)
        forgets[i] = (struct fuse_forget_one){.nodeid = i + 2, .nlookup = i};
    send_request(FUSE_BATCH_FORGET, &arguments, sizeof arguments, forgets, sizeof forgets);
    cr_expect_eq(forgotten, FORGETS);
    for (size_t bytes = 1; bytes <= LONG_NAME_BYTES; bytes++) {
        char name[LONG_NAME_BYTES + 1] = "";
        memset(name, 'a' + (int)(bytes % 26), bytes);
        send_request(FUSE_LOOKUP, name, bytes + 1, NULL, 0);
        cr_expect_str_eq(looked_up, name);
    }
}

Test(compat_requests, without_memory_there_is_no_request) {
    struct compat_request requests[KERNEL_REQUESTS];
    unsigned made = 0;
    while (made < KERNEL_REQUESTS && compat_create_request(request_memory, &requests[made]) == 0)
        made++;
    cr_expect_eq(made, KERNEL_REQUESTS - 1, "one segment is kept by the test");
    while (made > 0)
        compat_destroy_request(&requests[--made]);
}
