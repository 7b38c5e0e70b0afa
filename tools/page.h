/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages that `cpl3 replay` writes and `cpl3 verify` checks: an id decides the name, and id and
 * size decide every byte, so that a file can be judged by its name alone. A truncated or grown page
 * differs from the start, because the size is part of the content's seed. Pure functions.
 */
#ifndef CPL3_TOOLS_PAGE_H
#define CPL3_TOOLS_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PAGE_NAME_BYTES = 32 };

/* 32 hex digits: the id through a bijective mix, then check digits. */
void page_make_name(uint64_t id, char ret_name[PAGE_NAME_BYTES + 1]);
/* False: not a name that page_make_name makes. */
bool page_parse_name(const char *name, uint64_t *ret_id);

/* The first `count` bytes of the page of so many bytes. */
void page_fill(uint64_t id, uint64_t page_bytes, void *ret_bytes, size_t count);
/* How many of the first `count` bytes differ from what that page holds. */
uint64_t page_count_wrong(uint64_t id, uint64_t page_bytes, const void *bytes, size_t count);

/* Memory for one page, in huge pages where there are some. free() it. NULL: out of memory. */
void *page_allocate(uint64_t page_bytes);

#endif
