/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of one buffer: its row of segments, growing and trimming it, and moving bytes in and
 * out. All segments but the last are whole (1 MiB), so an offset finds its segment by a shift.
 */
#include "core/buffer.h"

#include "core/buffer_pool.h"
#include "core/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct buffer {
    struct buffer_pool *pool; /* fixed */
    enum buffer_share share;
    uint64_t capacity_bytes;
    uint8_t **segments; /* segment_count of them */
    size_t segment_count;
};

/* Segments of a capacity, and the size of the last one. */
static void shape(uint64_t capacity_bytes, size_t *ret_count, uint32_t *ret_last_bytes) {
    *ret_count = (size_t)((capacity_bytes + BUFFER_SEGMENT_BYTES - 1) / BUFFER_SEGMENT_BYTES);
    uint64_t last_wanted = capacity_bytes - (uint64_t)(*ret_count - 1) * BUFFER_SEGMENT_BYTES;
    uint32_t last = BUFFER_BLOCK_BYTES_MIN;
    while (last < last_wanted)
        last *= 2;
    *ret_last_bytes = last;
}

static uint64_t shaped_bytes(size_t count, uint32_t last_bytes) {
    return (uint64_t)(count - 1) * BUFFER_SEGMENT_BYTES + last_bytes;
}

static uint32_t last_segment_bytes(const struct buffer *buffer) {
    return (uint32_t)(buffer->capacity_bytes -
                      (uint64_t)(buffer->segment_count - 1) * BUFFER_SEGMENT_BYTES);
}

int buffer_create(struct buffer_pool *pool, enum buffer_share share, uint64_t capacity_bytes,
                  struct buffer **ret_buffer) {
    struct buffer *buffer = calloc(1, sizeof(*buffer));
    if (!buffer)
        return -ENOMEM;
    buffer->pool = pool;
    buffer->share = share;
    int error = buffer_reserve(buffer, capacity_bytes);
    if (error != 0) {
        buffer_destroy(buffer);
        return error;
    }
    *ret_buffer = buffer;
    return 0;
}

void buffer_destroy(struct buffer *buffer) {
    if (!buffer)
        return;
    buffer_trim(buffer, 0);
    free(buffer->segments);
    free(buffer);
}

/* A larger block has taken the place of a small last one; it may contain it. */
static void move_segment(struct buffer *buffer, uint8_t *old, uint32_t old_bytes,
                         uint8_t *replacement, uint32_t replacement_bytes) {
    bool contains_old = old >= replacement && old < replacement + replacement_bytes;
    memmove(replacement, old, old_bytes);
    if (!contains_old)
        buffer_pool_give(buffer->pool, buffer->share, &(struct buffer_blocks){&old, 1, old_bytes},
                         0);
}

int buffer_reserve(struct buffer *buffer, uint64_t capacity_bytes) {
    if (capacity_bytes <= buffer->capacity_bytes)
        return 0;
    if (capacity_bytes > buffer_pool_share_bytes(buffer->pool, buffer->share))
        return -ENOMEM;
    size_t count;
    uint32_t last_bytes;
    shape(capacity_bytes, &count, &last_bytes);
    uint8_t **segments = realloc(buffer->segments, count * sizeof(*segments));
    if (!segments)
        return -ENOMEM;
    buffer->segments = segments;

    bool grows = buffer->segment_count > 0 && last_segment_bytes(buffer) < BUFFER_SEGMENT_BYTES;
    size_t kept = buffer->segment_count - grows;
    uint8_t *old = grows ? segments[kept] : NULL;
    uint32_t old_bytes = grows ? last_segment_bytes(buffer) : 0;
    struct buffer_blocks blocks = {segments + kept, count - kept, last_bytes};
    int error = buffer_pool_take(buffer->pool, buffer->share, &blocks, old, old_bytes);
    if (error != 0) {
        if (grows)
            segments[kept] = old;
        return error;
    }
    if (grows)
        move_segment(buffer, old, old_bytes, segments[kept],
                     blocks.count > 1 ? (uint32_t)BUFFER_SEGMENT_BYTES : last_bytes);
    buffer->segment_count = count;
    buffer->capacity_bytes = shaped_bytes(count, last_bytes);
    return 0;
}

void buffer_trim(struct buffer *buffer, uint64_t capacity_bytes) {
    size_t kept = (size_t)((capacity_bytes + BUFFER_SEGMENT_BYTES - 1) / BUFFER_SEGMENT_BYTES);
    if (capacity_bytes >= buffer->capacity_bytes || kept >= buffer->segment_count)
        return;
    struct buffer_blocks beyond = {buffer->segments + kept, buffer->segment_count - kept,
                                   last_segment_bytes(buffer)};
    uint64_t left_bytes = (uint64_t)kept * BUFFER_SEGMENT_BYTES;
    buffer_pool_give(buffer->pool, buffer->share, &beyond, buffer->capacity_bytes - left_bytes);
    buffer->segment_count = kept;
    buffer->capacity_bytes = left_bytes;
}

static bool has_whole_segment(const struct buffer *buffer, size_t segment) {
    return segment < buffer->segment_count && (segment + 1 < buffer->segment_count ||
                                               last_segment_bytes(buffer) == BUFFER_SEGMENT_BYTES);
}

bool buffer_exchange_segment(struct buffer *buffer, uint64_t offset, struct buffer *other) {
    CHECK(offset % BUFFER_SEGMENT_BYTES == 0 && buffer->pool == other->pool);
    size_t segment = (size_t)(offset / BUFFER_SEGMENT_BYTES);
    if (!has_whole_segment(buffer, segment) || !has_whole_segment(other, 0))
        return false;
    uint8_t *memory = buffer->segments[segment];
    buffer->segments[segment] = other->segments[0];
    other->segments[0] = memory;
    return true;
}

bool buffer_move_to_share(struct buffer *buffer, enum buffer_share share) {
    if (share == buffer->share)
        return true;
    if (!buffer_pool_move_charge(buffer->pool, buffer->share, share, buffer->capacity_bytes))
        return false;
    buffer->share = share;
    return true;
}

uint64_t buffer_capacity_for(uint64_t capacity_bytes) {
    size_t count;
    uint32_t last_bytes;
    shape(capacity_bytes, &count, &last_bytes);
    return shaped_bytes(count, last_bytes);
}

uint64_t buffer_capacity_bytes(const struct buffer *buffer) {
    return buffer->capacity_bytes;
}

/* bytes */

static void check_range(const struct buffer *buffer, uint64_t offset, uint64_t count) {
    CHECK(offset <= buffer->capacity_bytes && count <= buffer->capacity_bytes - offset);
}

/* The first piece of a range within the capacity, which is not empty. */
static struct iovec piece_at(const struct buffer *buffer, uint64_t offset, uint64_t count) {
    uint64_t inside = offset % BUFFER_SEGMENT_BYTES;
    uint64_t room = BUFFER_SEGMENT_BYTES - inside;
    return (struct iovec){
        .iov_base = buffer->segments[offset / BUFFER_SEGMENT_BYTES] + inside,
        .iov_len = (size_t)(count < room ? count : room),
    };
}

void buffer_write(struct buffer *buffer, uint64_t offset, const void *bytes, size_t count) {
    check_range(buffer, offset, count);
    for (const uint8_t *from = bytes; count > 0;) {
        struct iovec piece = piece_at(buffer, offset, count);
        memcpy(piece.iov_base, from, piece.iov_len);
        from += piece.iov_len;
        offset += piece.iov_len;
        count -= piece.iov_len;
    }
}

void buffer_zero(struct buffer *buffer, uint64_t offset, uint64_t count) {
    check_range(buffer, offset, count);
    while (count > 0) {
        struct iovec piece = piece_at(buffer, offset, count);
        memset(piece.iov_base, 0, piece.iov_len);
        offset += piece.iov_len;
        count -= piece.iov_len;
    }
}

void buffer_read(const struct buffer *buffer, uint64_t offset, void *ret_bytes, size_t count) {
    check_range(buffer, offset, count);
    for (uint8_t *to = ret_bytes; count > 0;) {
        struct iovec piece = piece_at(buffer, offset, count);
        memcpy(to, piece.iov_base, piece.iov_len);
        to += piece.iov_len;
        offset += piece.iov_len;
        count -= piece.iov_len;
    }
}

size_t buffer_pieces(const struct buffer *buffer, uint64_t offset, uint64_t count,
                     struct iovec *ret_pieces, size_t most) {
    check_range(buffer, offset, count);
    size_t found = 0;
    while (count > 0) {
        CHECK(found < most);
        ret_pieces[found] = piece_at(buffer, offset, count);
        offset += ret_pieces[found].iov_len;
        count -= ret_pieces[found].iov_len;
        found++;
    }
    return found;
}
