/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits that rot while nothing is mounted, one in each of many pages (W4): bits of the header all,
 * of a payload one in every few bytes. Every page is a miss, and no miss counts as a hit. That
 * verification finds every bit is shown in tests/unit/test_verify.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "core/format.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"

enum {
    BYTES = 4097, /* the smallest page that has a slot */
    SLOT_BYTES = 8192,
    HEADER_BITS = 8 * HEADER_BYTES,
    PAYLOAD_STEP = 4,
    PAYLOAD_BITS = (BYTES + PAYLOAD_STEP - 1) / PAYLOAD_STEP,
    PAGES = HEADER_BITS + PAYLOAD_BITS,
    INLINE_BYTES = 512,
    INLINE_PAGES = INLINE_BYTES / 2,
    GOOD = PAGES,
};

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(cases_flips, .init = open_mount, .fini = close_mount, .timeout = 60);

static const char *page(unsigned i) {
    return mount_path(&mount, "%016x", i);
}

static char *map_in_store(const char *name, size_t *ret_bytes) {
    char path[400];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", mount.store, name);
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    cr_assert(fd >= 0 && fstat(fd, &st) == 0, "%s: %s", path, strerror(errno));
    *ret_bytes = (size_t)st.st_size;
    char *bytes = mmap(NULL, *ret_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(bytes, MAP_FAILED);
    return bytes;
}

/* Which page a slot holds: its name is the content hash in its header. */
static unsigned page_in_slot(const char *slot) {
    struct slot_header header;
    memcpy(&header, slot + SLOT_BYTES - HEADER_BYTES, sizeof header);
    unsigned i = 0;
    if (memcmp(header.magic, HEADER_MAGIC, sizeof header.magic) != 0)
        return GOOD;
    for (unsigned k = 0; k < 8; k++)
        i = i << 8 | header.hash[k];
    return i;
}

static void flip_slot(char *slot, unsigned i) {
    if (i < HEADER_BITS)
        slot[SLOT_BYTES - HEADER_BYTES + i / 8] ^= (char)(1 << i % 8);
    else if (i < PAGES)
        slot[(i - HEADER_BITS) * PAYLOAD_STEP] ^= (char)(1 << i % 8);
}

static unsigned flip_in_slab(void) {
    size_t bytes;
    unsigned flipped = 0;
    char *slab = map_in_store("rank0/any-8192.slab", &bytes);
    for (char *slot = slab; slot + SLOT_BYTES <= slab + bytes; slot += SLOT_BYTES) {
        unsigned i = page_in_slot(slot);
        flip_slot(slot, i);
        flipped += i < PAGES;
    }
    msync(slab, bytes, MS_SYNC);
    munmap(slab, bytes);
    return flipped;
}

static void expect_all_gone(unsigned pages) {
    uint64_t misses = mount_counter(&mount, "rank0.misses");
    for (unsigned i = 0; i < pages; i++) {
        cr_expect_eq(file_open_result(page(i), O_RDONLY), -ENOENT, "page %u", i);
        cr_expect_eq(file_size(page(i)), -ENOENT, "page %u", i);
    }
    cr_expect_eq(mount_counter(&mount, "rank0.hits"), 0, "nothing was answered");
    cr_expect_geq(mount_counter(&mount, "rank0.misses"), misses + pages);
    cr_expect_eq(directory_count(mount.rank), 1, "what was not flipped");
    cr_expect_eq(file_check(page(GOOD), BYTES, GOOD), 0);
    cr_expect_eq(mount_counter(&mount, "rank0.hits"), 1);
}

Test(cases_flips, any_bit_of_a_header_or_payload_makes_a_miss_that_is_no_hit) {
    for (unsigned i = 0; i <= GOOD; i++)
        cr_assert_eq(file_put(page(i), BYTES, i), 0);
    mount_stop(&mount);
    cr_assert_eq(flip_in_slab(), PAGES, "each page has one slot");
    mount_start(&mount, "cold_start=load");
    expect_all_gone(PAGES);
    cr_expect_geq(mount_counter(&mount, "rank0.corrupt"), PAYLOAD_BITS);
}

static void flip_in_index(unsigned i, char *index, size_t bytes) {
    char payload[INLINE_BYTES];
    fill_pattern(payload, sizeof payload, i, 0);
    char *at = memmem(index, bytes, payload, sizeof payload);
    cr_assert(at, "page %u is not in the index", i);
    for (; at; at = memmem(at + 1, bytes - (size_t)(at + 1 - index), payload, sizeof payload))
        at[2 * i] ^= (char)(1 << i % 8);
}

Test(cases_flips, any_bit_of_an_inline_payload_makes_a_miss_that_is_no_hit) {
    for (unsigned i = 0; i < INLINE_PAGES; i++)
        cr_assert_eq(file_put(page(i), INLINE_BYTES, i), 0);
    cr_assert_eq(file_put(page(GOOD), BYTES, GOOD), 0);
    mount_stop(&mount);
    size_t bytes;
    char *index = map_in_store("index/data.mdb", &bytes);
    for (unsigned i = 0; i < INLINE_PAGES; i++)
        flip_in_index(i, index, bytes);
    msync(index, bytes, MS_SYNC);
    munmap(index, bytes);
    mount_start(&mount, "cold_start=load");
    expect_all_gone(INLINE_PAGES);
    cr_expect_eq(mount_counter(&mount, "rank0.corrupt"), INLINE_PAGES);
}
