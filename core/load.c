/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of one load and the order of its bytes. */
#include "core/load.h"

#include <string.h>

#include "core/check.h"
#include "core/version_internal.h"

void load_begin(struct load *load, struct version *version, struct buffer *buffer) {
    const struct pool *pool = version->pool;
    CHECK(!pool->is_inline);
    load->version = version;
    load->buffer = buffer;
    load->slab = atomic_load(&pool->slab);
    CHECK(load->slab);
    load->slot_bytes = pool->slot_bytes;
    load->slot_offset = (uint64_t)version->slot * pool->slot_bytes;
    load->data_bytes = (uint32_t)round_up_to_block(version->payload_bytes);
    CHECK(load->data_bytes <= load->slot_bytes);
    load->piece_count = (load->data_bytes + LOAD_PIECE_BYTES - 1) / LOAD_PIECE_BYTES;
    load->next_request = 0;
    load->next_hash = 0;
    load->landed = 0;
    load->header_is_due =
        load->piece_count == 0 || load->data_bytes + BLOCK_BYTES < load->slot_bytes;
    load->in_flight = 0;
    load->result = 0;
    struct blob_header expected = {
        .key = version->key,
        .payload_checksum = version->payload_checksum,
        .sequence = version->sequence,
        .payload_bytes = version->payload_bytes,
    };
    verify_begin(&load->verify, &expected, version->epoch);
}

bool load_has_request(const struct load *load) {
    if (load->result < 0)
        return false;
    return load->header_is_due || (load->next_request < load->piece_count &&
                                   load->next_request - load->next_hash < LOAD_WINDOW);
}

static uint64_t piece_offset(uint32_t number) {
    return (uint64_t)number * LOAD_PIECE_BYTES;
}

/* Bytes of this piece when all pieces together have so many. */
static uint64_t piece_bytes(uint32_t number, uint64_t total_bytes) {
    uint64_t left_bytes = total_bytes - piece_offset(number);
    return left_bytes < LOAD_PIECE_BYTES ? left_bytes : LOAD_PIECE_BYTES;
}

static struct iovec header_iovec(struct load *load) {
    return (struct iovec){.iov_base = load->header_block, .iov_len = BLOCK_BYTES};
}

static struct load_piece *prepare_header(struct load *load) {
    struct load_piece *piece = &load->pieces[LOAD_WINDOW];
    piece->number = load->piece_count;
    piece->iovecs[0] = header_iovec(load);
    piece->request = (struct slab_request){
        .offset = load->slot_offset + load->slot_bytes - BLOCK_BYTES,
        .piece_count = 1,
    };
    load->header_is_due = false;
    return piece;
}

static struct load_piece *prepare_payload(struct load *load) {
    uint32_t number = load->next_request++;
    struct load_piece *piece = &load->pieces[number % LOAD_WINDOW];
    uint64_t offset = piece_offset(number);
    piece->number = number;
    size_t iovecs = buffer_pieces(load->buffer, offset, piece_bytes(number, load->data_bytes),
                                  piece->iovecs, 3);
    CHECK(iovecs == 1);
    if (number + 1 == load->piece_count && load->data_bytes + BLOCK_BYTES == load->slot_bytes)
        piece->iovecs[iovecs++] = header_iovec(load);
    piece->request = (struct slab_request){
        .offset = load->slot_offset + offset,
        .piece_count = (uint32_t)iovecs,
    };
    return piece;
}

struct slab_request *load_next_request(struct load *load) {
    CHECK(load_has_request(load));
    struct load_piece *piece = load->header_is_due ? prepare_header(load) : prepare_payload(load);
    piece->load = load;
    piece->request.slab = load->slab;
    piece->request.pieces = piece->iovecs;
    piece->request.context = piece;
    load->in_flight++;
    return &piece->request;
}

struct load *load_of_request(const struct slab_request *request) {
    const struct load_piece *piece = request->context;
    return piece->load;
}

static void hash_landed(struct load *load) {
    while (load->landed & (1u << load->next_hash % LOAD_WINDOW)) {
        uint32_t number = load->next_hash++;
        load->landed &= ~(1u << number % LOAD_WINDOW);
        const struct load_piece *piece = &load->pieces[number % LOAD_WINDOW];
        verify_payload(&load->verify, piece->iovecs[0].iov_base,
                       piece_bytes(number, load->version->payload_bytes));
    }
}

bool load_request_done(struct load *load, const struct slab_request *request) {
    const struct load_piece *piece = request->context;
    CHECK(load->in_flight > 0);
    load->in_flight--;
    if (request->result < 0 && load->result == 0)
        load->result = request->result;
    if (load->result == 0 && piece->number < load->piece_count) {
        load->landed |= 1u << piece->number % LOAD_WINDOW;
        hash_landed(load);
    }
    if (load->in_flight > 0)
        return false;
    return load->result < 0 || (load->next_hash == load->piece_count && !load->header_is_due);
}

const char *load_verify(const struct load *load) {
    struct slot_header header;
    if (load->data_bytes == load->slot_bytes)
        buffer_read(load->buffer, load->slot_bytes - HEADER_BYTES, &header, sizeof header);
    else
        memcpy(&header, load->header_block + BLOCK_BYTES - HEADER_BYTES, sizeof header);
    return verify_end(&load->verify, &header);
}
