/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between buffer_pool.c, which owns the memory and the accounts of the shares, and buffer.c, which
 * owns the shape of one buffer. Others use core/buffer.h.
 */
#ifndef CPL3_CORE_BUFFER_POOL_H
#define CPL3_CORE_BUFFER_POOL_H

#include "core/buffer.h"

enum { BUFFER_BLOCK_BYTES_MIN = 4096 };

/* A row of blocks: all BUFFER_SEGMENT_BYTES but the last, which is a power of two from 4 KiB. */
struct buffer_blocks {
    uint8_t **addresses;
    size_t count;
    uint32_t last_bytes;
};

/*
 * All or nothing: the blocks, charged to the share. With `grown`, a block of grown_bytes that the
 * share has been charged for already, blocks->addresses[0] takes its place: its charge is credited,
 * and the new block may contain the old one (which then is not given back, and its bytes must be
 * moved with memmove). -ENOMEM.
 */
int buffer_pool_take(struct buffer_pool *pool, enum buffer_share share,
                     const struct buffer_blocks *blocks, uint8_t *grown, uint32_t grown_bytes);
/* Gives memory back and takes so many bytes off the share's account (fewer than the blocks have if
 * their charge was credited), then tells whoever wants to know. */
void buffer_pool_give(struct buffer_pool *pool, enum buffer_share share,
                      const struct buffer_blocks *blocks, uint64_t uncharged_bytes);
/* False: no room in `to`. */
bool buffer_pool_move_charge(struct buffer_pool *pool, enum buffer_share from, enum buffer_share to,
                             uint64_t bytes);

#endif
