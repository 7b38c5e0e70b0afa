/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blocks of an arena are free: a buddy allocator over units (4 KiB pages of the buffer pool)
 * that knows only numbers, no memory. A block of order n is 2^n units, aligned to its size; the
 * arena is a row of chunks of BUDDY_CHUNK_ORDER, beyond which nothing is merged. The lowest free
 * chunk is used first, so that huge pages that were touched are used again, and large blocks stay
 * together: blocks of less than half a chunk come from the high end.
 *
 * One thread at a time (the owner's lock). All operations are O(log units).
 */
#ifndef CPL3_CORE_BUDDY_H
#define CPL3_CORE_BUDDY_H

#include <stdbool.h>
#include <stdint.h>

enum { BUDDY_CHUNK_ORDER = 9 };

struct buddy;

/* All free. -ENOMEM; -EINVAL for 0 chunks or more than 2^20 of them. */
int buddy_create(uint32_t chunks, struct buddy **ret_buddy);
void buddy_destroy(struct buddy *buddy); /* NULL is fine */

/* False: no free block of this order (0..BUDDY_CHUNK_ORDER). */
bool buddy_allocate(struct buddy *buddy, unsigned order, uint32_t *ret_unit);
/* The block was given out with this order (CHECK, as far as can be seen). */
void buddy_free(struct buddy *buddy, uint32_t unit, unsigned order);
/* Takes this very block, which is free (CHECK). */
void buddy_claim(struct buddy *buddy, uint32_t unit, unsigned order);
/* Whether this very block is free as a whole. */
bool buddy_is_free(const struct buddy *buddy, uint32_t unit, unsigned order);

#endif
