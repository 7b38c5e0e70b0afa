/* SPDX-License-Identifier: Apache-2.0 */
/* Slab files on a real file system: making, measuring, cutting, punching, reading headers. */
#include "core/slab.h"

#include "core/slab_io.h"
#include "tests/unit/slab_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>

TestSuite(slab, .init = make_directory, .fini = remove_directory, .timeout = 60);

Test(slab, a_slab_is_created_private_and_empty) {
    umask(0);
    struct slab *slab = open_slab();
    struct stat status;
    cr_assert_eq(fstatat(directory_fd, "slab", &status, 0), 0);
    cr_expect_eq(status.st_mode & 07777, 0600);
    uint32_t slots;
    cr_expect_eq(slab_slots_in_file(slab, &slots), 0);
    cr_expect_eq(slots, 0);
    cr_expect_eq(slab_slot_bytes(slab), SLOT_BYTES);
    cr_expect_eq(slab_sync(slab), 0);
    slab_close(slab);
    slab_close(NULL);
}

Test(slab, read_only_creates_nothing) {
    struct slab *slab = NULL;
    cr_expect_eq(slab_open(directory_fd, "slab", SLOT_BYTES, SLOTS, true, &slab), -ENOENT);
    cr_expect_null(slab);
    cr_expect_eq(faccessat(directory_fd, "slab", F_OK, 0), -1);
}

Test(slab, slots_in_the_file_are_rounded_up_and_bounded) {
    struct slab *slab = open_slab();
    uint32_t slots;
    write_raw(2 * SLOT_BYTES, "x", 1);
    cr_expect_eq(slab_slots_in_file(slab, &slots), 0);
    cr_expect_eq(slots, 3);
    write_raw((off_t)SLOT_BYTES * (SLOTS + 5), "x", 1);
    cr_expect_eq(slab_slots_in_file(slab, &slots), 0);
    cr_expect_eq(slots, SLOTS);
    slab_close(slab);
}

Test(slab, truncating_only_ever_cuts) {
    struct slab *slab = open_slab();
    write_raw(5 * SLOT_BYTES, "x", 1);
    cr_expect_eq(slab_truncate(slab, 3), 0);
    cr_expect_eq(file_bytes(), 3 * SLOT_BYTES);
    cr_expect_eq(slab_truncate(slab, 10), 0);
    cr_expect_eq(file_bytes(), 3 * SLOT_BYTES);
    cr_expect_eq(slab_truncate(slab, 0), 0);
    cr_expect_eq(file_bytes(), 0);
    slab_close(slab);
}

Test(slab, punching_gives_just_this_slot_back) {
    struct slab *slab = open_slab();
    uint8_t *bytes = blocks(3 * SLOT_BYTES / BLOCK_BYTES);
    write_raw(0, bytes, 3 * SLOT_BYTES);
    cr_assert_eq(slab_sync(slab), 0);
    uint64_t before, after;
    cr_assert_eq(slab_disk_bytes(slab, &before), 0);
    int error = slab_punch(slab, 1);
    if (error == -EOPNOTSUPP)
        cr_skip_test("this file system cannot punch holes");
    cr_assert_eq(error, 0);
    cr_assert_eq(slab_disk_bytes(slab, &after), 0);
    cr_expect_eq(before - after, SLOT_BYTES);
    cr_expect_eq(file_bytes(), 3 * SLOT_BYTES);
    for (uint32_t slot = 0; slot < 3; slot++) {
        cr_assert_eq(slab_read_header(slab, slot, bytes), 0);
        cr_expect(is_all(bytes, BLOCK_BYTES, slot == 1 ? 0 : 0xaa), "slot %u", slot);
    }
    free(bytes);
    slab_close(slab);
}

Test(slab, a_header_is_the_last_block_of_its_slot) {
    struct slab *slab = open_slab();
    uint8_t *block = blocks(1);
    write_raw(3 * SLOT_BYTES - 2, "!?", 2);
    cr_assert_eq(slab_read_header(slab, 2, block), 0);
    cr_expect(is_all(block, BLOCK_BYTES - 2, 0));
    cr_expect_arr_eq(block + BLOCK_BYTES - 2, "!?", 2);
    memset(block, 1, BLOCK_BYTES);
    cr_assert_eq(slab_read_header(slab, 3, block), 0);
    cr_expect(is_all(block, BLOCK_BYTES, 0), "beyond the end");
    write_raw(5 * SLOT_BYTES - BLOCK_BYTES, "abc", 3);
    memset(block, 1, BLOCK_BYTES);
    cr_assert_eq(slab_read_header(slab, 4, block), 0);
    cr_expect_arr_eq(block, "abc", 3);
    cr_expect(is_all(block + 3, BLOCK_BYTES - 3, 0), "a file that ends inside the block");
    free(block);
    slab_close(slab);
}

Test(slab, a_slot_out_of_range_aborts, .signal = SIGABRT) {
    struct slab *slab = open_slab();
    remove_directory(); /* nothing runs after an abort */
    slab_punch(slab, SLOTS);
}

Test(slab, a_file_that_refuses_o_direct_is_read_buffered) {
    int proc_fd = open("/proc/self", O_RDONLY | O_DIRECTORY);
    struct slab *slab;
    cr_assert_eq(slab_open(proc_fd, "comm", BLOCK_BYTES, 1, true, &slab), 0);
    cr_expect_not(slab_is_direct(slab));
    char *block = (char *)blocks(1);
    char name[16];
    cr_assert_eq(prctl(PR_GET_NAME, name), 0);
    cr_assert_eq(slab_read_header(slab, 0, block), 0);
    cr_expect_arr_eq(block, name, strlen(name));
    free(block);
    slab_close(slab);
    close(proc_fd);
}

/* what a transfer means for its request */

Test(slab, a_short_transfer_goes_on_at_a_block_boundary) {
    struct slab *slab = open_slab();
    uint8_t *bytes = blocks(4);
    write_raw(0, bytes, 4 * BLOCK_BYTES);
    struct iovec pieces[] = {{bytes, BLOCK_BYTES}, {bytes + BLOCK_BYTES, 3 * BLOCK_BYTES}};
    struct slab_request request = {.slab = slab, .pieces = pieces, .piece_count = 2};
    for (int pass = 0; pass < 2; pass++) {
        request.write = pass == 1;
        request.done_bytes = 0;
        request.result = 1;
        cr_expect_not(slab_request_advance(&request, -EINTR));
        cr_expect_not(slab_request_advance(&request, -EAGAIN));
        cr_expect_eq(slab_request_rest(&request), 2);
        cr_expect_not(slab_request_advance(&request, 2 * BLOCK_BYTES + 512));
        cr_expect_eq(request.done_bytes, 2 * BLOCK_BYTES);
        cr_expect_eq(slab_request_rest(&request), 1);
        cr_expect_eq(request.rest[0].iov_base, bytes + 2 * BLOCK_BYTES);
        cr_expect_eq(request.rest[0].iov_len, 2 * BLOCK_BYTES);
        cr_expect_eq(request.result, 1, "not decided yet");
        cr_expect(slab_request_advance(&request, 2 * BLOCK_BYTES));
        cr_expect_eq(request.result, 0);
    }
    free(bytes);
    slab_close(slab);
}

Test(slab, a_transfer_that_gets_nowhere_is_eio) {
    struct slab *slab = open_slab();
    uint8_t *bytes = blocks(4);
    write_raw(0, bytes, 4 * BLOCK_BYTES);
    struct iovec piece = {bytes, 4 * BLOCK_BYTES};
    static const ssize_t short_of_a_block[] = {0, 512};
    for (int i = 0; i < 4; i++) {
        struct slab_request request = {
            .slab = slab, .pieces = &piece, .piece_count = 1, .write = i / 2};
        cr_expect_not(slab_request_advance(&request, BLOCK_BYTES));
        cr_expect(slab_request_advance(&request, short_of_a_block[i % 2]));
        cr_expect_eq(request.result, -EIO);
        cr_expect(is_all(bytes, 4 * BLOCK_BYTES, 0xaa), "no zeros before the end of the file");
    }
    free(bytes);
    slab_close(slab);
}
