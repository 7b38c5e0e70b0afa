/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotten bytes on the disk (P8, W4): a flipped bit of a payload or of a header, found in the slab
 * by its content, is a miss. The name goes from stat and listing, the rest stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glob.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "core/format.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum { BYTES = 300000, GOOD = 1, BAD = 2 };
static const char *const names[] = {"page.bin", "00112233445566778899aabbccddeeff"};
enum { NAMES = sizeof names / sizeof names[0] };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(corruption, .init = open_mount, .fini = close_mount, .timeout = 60);

static void put_good_and_bad(void) {
    for (uint64_t i = 0; i < NAMES; i++)
        cr_assert_eq(file_put(mount_path(&mount, "%s", names[i]), BYTES, BAD + i), 0);
    cr_assert_eq(file_put(mount_path(&mount, "good"), BYTES, GOOD), 0);
    mount_commit(&mount);
}

static char *map_file(const char *path, size_t *ret_bytes) {
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    cr_assert(fd >= 0 && fstat(fd, &st) == 0, "%s: %s", path, strerror(errno));
    *ret_bytes = (size_t)st.st_size;
    char *bytes = mmap(NULL, *ret_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(bytes, MAP_FAILED);
    return bytes;
}

/* Flips one bit of the payload with this seed, or of the header behind it. */
static bool flip_in_file(const char *path, uint64_t seed, bool in_header) {
    char start[64];
    size_t bytes;
    fill_pattern(start, sizeof start, seed, 0);
    char *file = map_file(path, &bytes);
    char *payload = memmem(file, bytes, start, sizeof start);
    if (payload && in_header) {
        /* The header ends the slot: the next block that begins with its magic in its last bytes. */
        char *block = payload + slot_bytes_for_page(BYTES) - BLOCK_BYTES;
        while (memcmp(block + BLOCK_BYTES - HEADER_BYTES, HEADER_MAGIC, 3) != 0)
            block += BLOCK_BYTES;
        block[BLOCK_BYTES - HEADER_BYTES + offsetof(struct slot_header, sequence)] ^= 4;
    } else if (payload) {
        payload[BYTES / 3] ^= 1;
    }
    msync(file, bytes, MS_SYNC);
    munmap(file, bytes);
    return payload;
}

static void flip(uint64_t seed, bool in_header) {
    char pattern[400];
    glob_t slabs;
    snprintf(pattern, sizeof pattern, "%s/rank0/*.slab", mount.store);
    cr_assert_eq(glob(pattern, 0, NULL, &slabs), 0, "%s", pattern);
    bool found = false;
    for (size_t i = 0; i < slabs.gl_pathc && !found; i++)
        found = flip_in_file(slabs.gl_pathv[i], seed, in_header);
    globfree(&slabs);
    cr_assert(found, "the payload is in no slab");
}

static void expect_bad_is_gone(void) {
    for (int i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_expect_eq(file_open_result(path, O_RDONLY), -ENOENT, "%s", path);
        cr_expect_eq(file_size(path), -ENOENT);
        cr_expect_neq(access(path, F_OK), 0);
        cr_expect_eq(directory_count_name(mount.rank, names[i]), 0);
    }
    cr_expect_eq(file_check(mount_path(&mount, "good"), BYTES, GOOD), 0);
    cr_expect_eq(directory_count(mount.rank), 1);
}

static void expect_names_can_be_written_again(void) {
    for (uint64_t i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "%s", names[i]);
        cr_expect_eq(file_put(path, BYTES, 10 + i), 0);
        cr_expect_eq(file_check(path, BYTES, 10 + i), 0);
    }
}

Test(corruption, a_flipped_payload_bit_is_a_miss_after_a_load) {
    put_good_and_bad();
    mount_stop(&mount);
    for (uint64_t i = 0; i < NAMES; i++)
        flip(BAD + i, false);
    mount_start(&mount, "cold_start=load");
    cr_expect_eq(directory_count(mount.rank), NAMES + 1, "no payload is read by a load");
    expect_bad_is_gone();
    cr_expect_eq(mount_counter(&mount, "rank0.corrupt"), NAMES);
    expect_names_can_be_written_again();
}

Test(corruption, a_flipped_header_bit_is_a_miss_after_a_load) {
    put_good_and_bad();
    mount_stop(&mount);
    for (uint64_t i = 0; i < NAMES; i++)
        flip(BAD + i, true);
    mount_start(&mount, "cold_start=load");
    expect_bad_is_gone();
    expect_names_can_be_written_again();
}

/* What has been read to its end goes from the daemon's memory when something else needs it. */
static void push_out_of_memory(void) {
    enum { OTHERS = 8, OTHER_BYTES = 15 << 20 };
    for (uint64_t i = 0; i < NAMES; i++)
        cr_assert_eq(file_check(mount_path(&mount, "%s", names[i]), BYTES, BAD + i), 0);
    for (unsigned i = 0; i < OTHERS; i++)
        cr_assert_eq(file_put(mount_path(&mount, "other-%u", i), OTHER_BYTES, 100 + i), 0);
    mount_commit(&mount);
    for (unsigned i = 0; i < OTHERS; i++)
        cr_assert_eq(file_check(mount_path(&mount, "other-%u", i), OTHER_BYTES, 100 + i), 0);
    for (unsigned i = 0; i < OTHERS; i++)
        cr_assert_eq(unlink(mount_path(&mount, "other-%u", i)), 0);
}

Test(corruption, flips_while_mounted_are_misses_and_counted) {
    put_good_and_bad();
    push_out_of_memory();
    flip(BAD, false);
    flip(BAD + 1, true);
    expect_bad_is_gone();
    cr_expect_eq(mount_counter(&mount, "rank0.corrupt"), NAMES);
    expect_names_can_be_written_again();
}

Test(corruption, a_client_in_Python_gets_FileNotFoundError) {
    put_good_and_bad();
    mount_stop(&mount);
    for (uint64_t i = 0; i < NAMES; i++)
        flip(BAD + i, false);
    mount_start(&mount, "cold_start=load");
    static const char program[] = "import os, sys\n"
                                  "rank = sys.argv[1]\n"
                                  "for name in sys.argv[2:]:\n"
                                  "    assert name in os.listdir(rank)\n"
                                  "    try:\n"
                                  "        open(os.path.join(rank, name), \"rb\")\n"
                                  "        sys.exit(name + \" was opened\")\n"
                                  "    except FileNotFoundError:\n"
                                  "        pass\n"
                                  "    assert not os.path.exists(os.path.join(rank, name))\n"
                                  "    assert name not in os.listdir(rank)\n"
                                  "assert len(open(os.path.join(rank, \"good\"), \"rb\").read()) "
                                  "== 300000\n";
    cr_expect_eq(
        run_shell(20, NULL, "python3 -c '%s' '%s' %s %s", program, mount.rank, names[0], names[1]),
        0);
    cr_expect_eq(mount_counter(&mount, "rank0.corrupt"), NAMES);
}

Test(corruption, a_reader_that_has_the_file_open_goes_on_or_gets_no_bytes) {
    put_good_and_bad();
    const char *path = mount_path(&mount, "%s", names[0]);
    AUTO_CLOSE int reader = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(reader, 0);
    push_out_of_memory();
    flip(BAD, false);
    int result = file_check_fd(reader, BYTES, BAD);
    cr_expect(result == 0 || result == -ENOENT, "%s", strerror(-result));
    cr_expect_neq(result, -EBADMSG, "wrong or missing bytes");
}

Test(corruption, a_flipped_bit_in_an_inline_payload_is_a_miss) {
    enum { INLINE = 4000 };
    char index[400], start[64];
    size_t bytes;
    cr_assert_eq(file_put(mount_path(&mount, "inline"), INLINE, 77), 0);
    cr_assert_eq(file_put(mount_path(&mount, "good"), BYTES, GOOD), 0);
    mount_stop(&mount);
    snprintf(index, sizeof index, "%s/index/data.mdb", mount.store);
    char *file = map_file(index, &bytes);
    fill_pattern(start, sizeof start, 77, 0);
    char *at = memmem(file, bytes, start, sizeof start);
    cr_assert(at, "the payload is not in the index");
    for (; at; at = memmem(at + 64, bytes - (size_t)(at + 64 - file), start, sizeof start))
        at[200] ^= 8;
    msync(file, bytes, MS_SYNC);
    munmap(file, bytes);
    mount_start(&mount, "cold_start=load");
    cr_expect_eq(file_open_result(mount_path(&mount, "inline"), O_RDONLY), -ENOENT);
    cr_expect_eq(file_size(mount_path(&mount, "inline")), -ENOENT);
    cr_expect_eq(file_check(mount_path(&mount, "good"), BYTES, GOOD), 0);
}
