/* SPDX-License-Identifier: Apache-2.0 */
/* Test pages: a name gives its id back, and every kind of wrong content is seen. */
#include "tools/page.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 4096 + 13 };

Test(page, a_name_gives_its_id_back) {
    static const uint64_t ids[] = {0, 1, 2, 182789, UINT64_C(1) << 63, UINT64_MAX};
    char name[PAGE_NAME_BYTES + 1];
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        uint64_t id = 99;
        page_make_name(ids[i], name);
        cr_expect_eq(strlen(name), PAGE_NAME_BYTES);
        cr_expect_eq(strspn(name, "0123456789abcdef"), PAGE_NAME_BYTES);
        cr_expect(page_parse_name(name, &id));
        cr_expect_eq(id, ids[i]);
    }
}

Test(page, a_name_with_any_digit_changed_is_not_ours) {
    char name[PAGE_NAME_BYTES + 1];
    uint64_t id;
    for (unsigned i = 0; i < PAGE_NAME_BYTES; i++) {
        page_make_name(12345, name);
        name[i] = name[i] == 'a' ? 'b' : 'a';
        cr_expect_not(page_parse_name(name, &id), "digit %u", i);
    }
    page_make_name(12345, name);
    name[PAGE_NAME_BYTES - 1] = '\0';
    cr_expect_not(page_parse_name(name, &id), "too short");
    cr_expect_not(page_parse_name("", &id));
    cr_expect_not(page_parse_name("stats", &id));
}

Test(page, what_was_filled_is_right_at_any_length) {
    char *page = page_allocate(PAGE_BYTES);
    for (size_t bytes = 0; bytes <= 300; bytes++) {
        page_fill(7, bytes, page, bytes);
        cr_expect_eq(page_count_wrong(7, bytes, page, bytes), 0);
    }
    free(page);
}

Test(page, each_changed_byte_is_counted) {
    char *page = page_allocate(PAGE_BYTES);
    page_fill(7, PAGE_BYTES, page, PAGE_BYTES);
    for (size_t at = 0; at < PAGE_BYTES; at++) {
        page[at] ^= 0x10;
        cr_expect_eq(page_count_wrong(7, PAGE_BYTES, page, PAGE_BYTES), 1, "at %zu", at);
        page[at] ^= 0x10;
    }
    page[0] ^= 1;
    page[2000] ^= 1;
    page[PAGE_BYTES - 1] ^= 1;
    cr_expect_eq(page_count_wrong(7, PAGE_BYTES, page, PAGE_BYTES), 3);
    free(page);
}

/* Bytes of two words may agree by chance, words as a whole do not: ask for most of the bytes. */
Test(page, another_id_another_size_or_a_shift_is_wrong_nearly_everywhere) {
    char *page = page_allocate(PAGE_BYTES);
    uint64_t most = PAGE_BYTES * 8 / 10;
    page_fill(7, PAGE_BYTES, page, PAGE_BYTES);
    for (uint64_t other = 1; other <= 100; other++) {
        cr_expect_gt(page_count_wrong(7 + other, PAGE_BYTES, page, PAGE_BYTES), most);
        cr_expect_gt(page_count_wrong(7, PAGE_BYTES + other, page, PAGE_BYTES), most);
        size_t rest = PAGE_BYTES - 8 * other;
        cr_expect_gt(page_count_wrong(7, PAGE_BYTES, page + 8 * other, rest), rest * 8 / 10);
    }
    free(page);
}
