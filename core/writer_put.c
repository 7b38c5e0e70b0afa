/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the queue to the disk: a put gets a slot, joins the open group, and is written by vectored
 * O_DIRECT requests from the buffer in which it was staged. Only FREE slots are written (W2).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/clock.h"
#include "core/writer_internal.h"

static struct change *change_of(struct put *put) {
    return (struct change *)((char *)put - offsetof(struct change, put));
}

/* Says nothing about the slot, and may be over soon. */
static bool is_lack_of_space(int error) {
    return error == -ENOSPC || error == -EDQUOT;
}

void writer_withdraw(struct writer *writer, struct change *change, int error) {
    struct put *put = &change->put;
    struct rank *rank = writer->rank;
    CHECK_ON(WRITER);
    CHECK(!put->withdrawn);
    put->withdrawn = true;
    if (put->group)
        put->group->error = is_lack_of_space(error) ? -ENOSPC : -EIO;
    if (!put->has_slot)
        budget_give(put->pool);
    atomic_fetch_sub(&rank->pending_bytes, put->record.payload_bytes);
    stats_add(&rank->stats, withdrawn, 1);
    log_limited(&rank->space_log, "rank %u: writing a blob of %u bytes: %s; it is a miss now",
                rank->number, put->record.payload_bytes, strerror(-error));
    version_withdraw(put->version);
    rank_drop_blob(rank, &put->key, put->record.sequence);
}

/* slots */

/* 0; -EAGAIN: none yet; -ENOSPC: there will be none. */
static int find_slot(struct writer *writer, struct put *put) {
    struct pool *pool = put->pool;
    int result =
        gc_add_pool(writer_gc_of(writer, pool), pool->number, pool->slots_max, pool->slot_bytes);
    if (result == 0)
        result = budget_allocate_slot(pool->budget, pool, &put->slot);
    if (result == 0) {
        put->has_slot = true;
        return 0;
    }
    if (result != -ENOSPC)
        return result;
    /* The bytes are ours, but pinned or unpunchable slots hold them: one of this pool must go. */
    if (writer_evict(writer, writer->open, pool->budget, (int)pool->number, pool->slot_bytes))
        stats_add(&writer->rank->stats, gc_demand, 1);
    return writer->retiring_bytes[pool->kind] ? -EAGAIN : -ENOSPC;
}

static void begin_writing(struct writer *writer, struct put *put) {
    put->next_offset = 0;
    put->header_submitted = false;
    put->error = 0;
    put->next_writing = NULL;
    if (writer->writing_last)
        writer->writing_last->next_writing = put;
    else
        writer->writing_first = put;
    writer->writing_last = put;
}

void writer_admit(struct writer *writer) {
    CHECK_ON(WRITER);
    struct rank *rank = writer->rank;
    struct group *group = writer->open;
    while (writer->queue.first && group->changes.count < GROUP_CHANGES_MAX &&
           group->payload_bytes < GROUP_BYTES_MAX) {
        struct change *change = writer->queue.first;
        struct put *put = &change->put;
        if (put->version) {
            int result = find_slot(writer, put);
            if (result == -EAGAIN)
                return;
            put->group = group;
            group->payload_bytes += put->record.payload_bytes;
            if (result < 0)
                writer_withdraw(writer, change, result);
        }
        change_list_take(&writer->queue);
        change_list_add(&group->changes, change);
        if (change->drops && rank->store->events.blob_gone)
            rank->store->events.blob_gone(rank->store->events.argument, rank, &change->steps[0].key,
                                          &change->steps[0].record);
        if (!group->opened_ns)
            group->opened_ns = clock_monotonic_ns();
        if (put->has_slot && !put->pool->is_inline) {
            group->puts_in_flight++;
            begin_writing(writer, put);
        }
    }
}

/* writes */

/* Bytes of the slot that come from the payload's own blocks. */
static uint64_t body_bytes(const struct put *put) {
    return round_up_to_block(put->record.payload_bytes);
}

static void seal_header(struct put *put, struct slot_header *ret_raw) {
    struct blob_header header = {.key = put->key,
                                 .payload_checksum = put->record.payload_checksum,
                                 .sequence = put->record.sequence,
                                 .payload_bytes = put->record.payload_bytes};
    blob_header_seal(ret_raw, &header, put->record.epoch);
}

/* The last block of the body: zero padding, and the header if the body fills the slot. */
static void finish_body(struct put *put, struct buffer *buffer) {
    uint64_t body = body_bytes(put), payload = put->record.payload_bytes;
    CHECK(buffer_capacity_bytes(buffer) >= body);
    if (body > payload)
        buffer_zero(buffer, payload, body - payload);
    if (body == put->pool->slot_bytes) {
        struct slot_header header;
        seal_header(put, &header);
        buffer_write(buffer, body - HEADER_BYTES, &header, HEADER_BYTES);
        put->header_submitted = true;
    }
}

static void submit(struct writer *writer, struct put *put, struct write_request *request,
                   uint64_t offset_in_slot) {
    struct slab_request *io = &request->request;
    request->put = put;
    io->slab = atomic_load(&put->pool->slab);
    io->offset = (uint64_t)put->slot * put->pool->slot_bytes + offset_in_slot;
    io->pieces = request->pieces;
    io->write = true;
    io->context = request;
    put->in_flight++;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < io->piece_count; i++)
        bytes += request->pieces[i].iov_len;
    stats_add(&writer->rank->stats, slot_bytes_written, bytes);
    slab_io_submit(writer->io, io);
}

/* The next request of a put; false when all of it is submitted. */
static bool submit_next(struct writer *writer, struct put *put, struct write_request *request) {
    struct buffer *buffer = version_staged_buffer(put->version);
    uint64_t body = body_bytes(put);
    if (put->next_offset == 0 && body)
        finish_body(put, buffer);
    if (put->next_offset < body) {
        uint64_t bytes = body - put->next_offset;
        if (bytes > (uint64_t)WRITE_PIECES * BUFFER_SEGMENT_BYTES)
            bytes = (uint64_t)WRITE_PIECES * BUFFER_SEGMENT_BYTES;
        request->request.piece_count = (uint32_t)buffer_pieces(buffer, put->next_offset, bytes,
                                                               request->pieces, SLAB_PIECES_MAX);
        uint64_t offset = put->next_offset;
        put->next_offset += bytes;
        submit(writer, put, request, offset);
        return true;
    }
    if (put->header_submitted)
        return false;
    put->header_submitted = true;
    memset(request->header_block, 0, BLOCK_BYTES);
    seal_header(put,
                (struct slot_header *)((char *)request->header_block + BLOCK_BYTES - HEADER_BYTES));
    request->pieces[0] = (struct iovec){request->header_block, BLOCK_BYTES};
    request->request.piece_count = 1;
    submit(writer, put, request, put->pool->slot_bytes - BLOCK_BYTES);
    return true;
}

void writer_submit_writes(struct writer *writer) {
    CHECK_ON(WRITER);
    while (writer->writing_first && writer->free_requests) {
        struct put *put = writer->writing_first;
        struct write_request *request = writer->free_requests;
        if (!put->error && submit_next(writer, put, request)) {
            writer->free_requests = request->next_free;
            continue;
        }
        writer->writing_first = put->next_writing;
        if (!writer->writing_first)
            writer->writing_last = NULL;
        put->next_writing = NULL;
    }
}

static bool is_submitting(const struct writer *writer, const struct put *put) {
    return put->next_writing || writer->writing_last == put;
}

/* The slot that was refused goes back, one of the same pool that has its blocks takes its place. */
static bool take_backed_slot(struct writer *writer, struct put *put) {
    struct budget *budget = put->pool->budget;
    uint32_t refused = put->slot;
    if (!writer_evict_now(writer, put->pool, (int)put->pool->number) ||
        budget_allocate_slot(budget, put->pool, &put->slot) < 0) {
        put->slot = refused;
        return false;
    }
    budget_return_bare_slot(budget, put->pool, refused);
    return true;
}

/* The host's disk is full: the blocks come from this pool, or from any other one, that has some. */
static bool find_blocks(struct writer *writer, struct put *put) {
    struct budget *budget = put->pool->budget;
    if (++put->tries > PUT_TRIES_MAX)
        return false;
    if (!take_backed_slot(writer, put) && !budget_punch_free(budget, put->pool->slot_bytes) &&
        !(writer_evict_now(writer, put->pool, -1) &&
          budget_punch_free(budget, put->pool->slot_bytes)))
        return false;
    begin_writing(writer, put);
    return true;
}

void writer_give_slot_up(struct put *put, int error) {
    if (!is_lack_of_space(error)) {
        budget_quarantine_slot(put->pool->budget, put->pool, put->slot);
        return;
    }
    budget_return_bare_slot(put->pool->budget, put->pool, put->slot);
    put->has_slot = false;
}

static void finish_put(struct writer *writer, struct put *put) {
    if (put->error) {
        stats_add(&writer->rank->stats, write_errors, 1);
        if (is_lack_of_space(put->error) && find_blocks(writer, put))
            return;
        writer_give_slot_up(put, put->error);
        writer_withdraw(writer, change_of(put), put->error);
    }
    CHECK(put->group->puts_in_flight > 0);
    put->group->puts_in_flight--;
}

void writer_complete_write(struct writer *writer, struct slab_request *done) {
    CHECK_ON(WRITER);
    struct write_request *request = done->context;
    struct put *put = request->put;
    if (done->result < 0 && !put->error)
        put->error = done->result;
    CHECK(put->in_flight > 0);
    put->in_flight--;
    if (done->result == 0)
        writer_tell_progress(writer);
    request->next_free = writer->free_requests;
    writer->free_requests = request;
    writer_submit_writes(writer);
    if (put->in_flight == 0 && !is_submitting(writer, put))
        finish_put(writer, put);
}
