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
    cr_assert(reply.init.max_write == 1 << 20 && reply.init.max_pages == 256);
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

Test(compat, the_payload_of_a_write_starts_on_a_page) {
    struct fuse_buf buffer;
    cr_assert(compat_create_request_buffer(&buffer) == 0);
    size_t headers = sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in);
    cr_assert(((uintptr_t)buffer.mem + headers) % 4096 == 0);
    memset(buffer.mem, 1, COMPAT_WRITE_BYTES_MAX + 4096); /* ASan sees if it is too small */
    compat_free_request_buffer(&buffer);
    compat_free_request_buffer(&buffer);
}
