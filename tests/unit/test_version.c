/* SPDX-License-Identifier: Apache-2.0 */
/* The table of versions: references and pins, settling, and which bytes stay in memory. */
#include "core/version.h"

#include <criterion/criterion.h>
#include <signal.h>

#include "tests/support/version_world.h"

enum { SLOT_BYTES = 68 << 10, PAYLOAD_BYTES = 64 << 10, MIB = 1 << 20 };

static struct world world;

static void open_world(void) {
    world_open(&world, &(struct world_options){.slot_bytes = SLOT_BYTES, .slots = 64});
}

static void close_world(void) {
    world_close(&world);
}

TestSuite(version, .init = open_world, .fini = close_world, .timeout = 60);

static uint32_t pins(const struct world_blob *blob) {
    return slot_pool_pins(world.pool.slots, blob->record.slot);
}

/* references and pins */

Test(version, a_version_pins_its_slot_once_however_many_hold_it) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    struct version *first = world_must_acquire(&world, &blob),
                   *second = world_must_acquire(&world, &blob);
    cr_expect_eq(first, second);
    cr_expect_eq(pins(&blob), 1);
    version_unref(version_ref(first));
    version_unref(first);
    cr_expect_eq(pins(&blob), 1);
    version_unref(second);
    cr_expect_eq(pins(&blob), 0);
    cr_expect_eq(version_table_count(world.table), 0);
    free(blob.payload);
}

Test(version, knows_what_the_record_said) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    struct version *version = world_must_acquire(&world, &blob);
    cr_expect(blob_key_equal(version_key(version), &blob.key));
    cr_expect_eq(version_sequence(version), blob.record.sequence);
    cr_expect_eq(version_payload_bytes(version), PAYLOAD_BYTES);
    cr_expect_eq(version_payload_checksum(version), blob.record.payload_checksum);
    cr_expect_not(version_is_withdrawn(version));
    version_unref(version);
    free(blob.payload);
}

Test(version, acquiring_what_the_slot_no_longer_holds_is_stale) {
    struct world_blob old = world_put(&world, PAYLOAD_BYTES);
    struct version *version = NULL;
    cr_assert(slot_pool_retire(world.pool.slots, old.record.slot));
    cr_expect_eq(world_acquire(&world, &old, &version), -ESTALE);
    slot_pool_free(world.pool.slots, old.record.slot);
    struct world_blob fresh = world_put(&world, PAYLOAD_BYTES);
    cr_assert_eq(fresh.record.slot, old.record.slot);
    cr_expect_eq(world_acquire(&world, &old, &version), -ESTALE);
    cr_expect_null(version);
    cr_expect_eq(pins(&fresh), 0);
    free(old.payload);
    free(fresh.payload);
}

Test(version, an_idle_version_has_to_win_its_pin_again) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    world_cache(&world, &blob);
    cr_expect_eq(pins(&blob), 0);
    struct version *version = world_must_acquire(&world, &blob);
    cr_expect_eq(pins(&blob), 1);
    cr_expect(world_is_cached(version));
    version_unref(version);
    cr_assert(slot_pool_retire(world.pool.slots, blob.record.slot));
    cr_expect_gt(version_table_cached_bytes(world.table), 0);
    cr_expect_eq(world_acquire(&world, &blob, &version), -ESTALE);
    cr_expect_eq(version_table_cached_bytes(world.table), 0);
    cr_expect_eq(version_table_count(world.table), 0);
    free(blob.payload);
}

Test(version, a_slot_retired_while_held_is_told_once_when_the_last_holder_goes) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    struct version *version = world_must_acquire(&world, &blob);
    version_ref(version);
    cr_assert_not(slot_pool_retire(world.pool.slots, blob.record.slot));
    world_forget(&world, blob.record.sequence);
    cr_expect_eq(world_load(version), 0); /* its bytes are still there */
    cr_expect(world_same_bytes(version, &blob));
    version_drop_bytes(version);
    version_unref(version);
    cr_expect_eq(atomic_load(&world.unpinned), 0);
    version_unref(version);
    cr_expect_eq(atomic_load(&world.unpinned), 1);
    cr_expect_eq(atomic_load(&world.unpinned_slot), blob.record.slot);
    cr_expect_eq(version_table_count(world.table), 0);
    slot_pool_free(world.pool.slots, blob.record.slot);
    free(blob.payload);
}

Test(version, forgetting_drops_idle_bytes) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    world_cache(&world, &blob);
    cr_expect_eq(version_table_count(world.table), 1);
    world_forget(&world, blob.record.sequence);
    cr_expect_eq(version_table_count(world.table), 0);
    cr_expect_eq(buffer_pool_used_bytes(world.buffers, BUFFER_READING), 0);
    world_forget(&world, blob.record.sequence);
    cr_expect_eq(atomic_load(&world.unpinned), 0);
    free(blob.payload);
}

Test(version, a_record_that_cannot_be_right_is_refused) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES), wrong = blob;
    struct version *version = NULL;
    wrong.record.slot = world.pool.slots_max;
    cr_expect_eq(world_acquire(&world, &wrong, &version), -EBADMSG);
    wrong = blob;
    wrong.record.payload_bytes = SLOT_BYTES - HEADER_BYTES + 1;
    cr_expect_eq(world_acquire(&world, &wrong, &version), -EBADMSG);

    struct version *right = world_must_acquire(&world, &blob);
    wrong = blob;
    wrong.key.hash[15] ^= 1;
    cr_expect_eq(world_acquire(&world, &wrong, &version), -EBADMSG);
    wrong = blob;
    wrong.record.payload_checksum ^= 1;
    cr_expect_eq(world_acquire(&world, &wrong, &version), -EBADMSG);
    cr_expect_eq(pins(&blob), 1);
    version_unref(right);
    cr_expect_eq(pins(&blob), 0);
    free(blob.payload);
}

Test(version, closing_the_table_under_a_holder_aborts, .signal = SIGABRT) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    world_must_acquire(&world, &blob);
    version_table_close(world.table);
}

Test(version, giving_back_a_version_with_held_bytes_aborts, .signal = SIGABRT) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    struct version *version = world_must_acquire(&world, &blob);
    cr_expect_eq(world_load(version), 0);
    version_unref(version);
}

Test(version, dropping_bytes_without_a_hold_aborts, .signal = SIGABRT) {
    struct world_blob blob = world_put(&world, PAYLOAD_BYTES);
    struct version *version = world_must_acquire(&world, &blob);
    version_drop_bytes(version);
}

/* inline blobs */

Test(version, a_small_blob_comes_with_its_bytes_in_one_piece) {
    struct world_blob blob = world_put_inline(&world, 1000);
    struct version *version = world_must_acquire(&world, &blob);
    struct world_waiter waiter;
    world_waiter_init(&waiter);
    cr_assert_eq(version_load(version, &waiter.waiter), 0);
    cr_expect(world_same_bytes(version, &blob));
    struct iovec piece;
    cr_expect_eq(version_pieces(version, 10, 20, &piece, 1), 1);
    cr_expect_eq(piece.iov_len, 20);
    cr_expect_arr_eq(piece.iov_base, blob.payload + 10, 20);
    cr_expect_eq(version_pieces(version, 1000, 0, &piece, 1), 0);
    version_table_drop_cache(world.table);
    cr_expect(world_same_bytes(version, &blob));
    version_drop_bytes(version);
    version_unref(version);
    cr_expect_eq(version_table_count(world.table), 0);
    cr_expect_eq(slot_pool_pins(world.inline_pool.slots, blob.record.slot), 0);
    free(blob.payload);
}

Test(version, a_small_blob_of_no_bytes_verifies) {
    struct world_blob blob = world_put_inline(&world, 0);
    struct version *version = world_must_acquire(&world, &blob);
    cr_expect_eq(world_load(version), 0);
    cr_expect(world_same_bytes(version, &blob));
    version_drop_bytes(version);
    version_unref(version);
    free(blob.payload);
}

Test(version, small_bytes_that_do_not_verify_are_refused) {
    struct world_blob blob = world_put_inline(&world, 1000);
    struct version *version = NULL;
    blob.payload[999] ^= 1;
    cr_expect_eq(world_acquire(&world, &blob, &version), -EBADMSG);
    cr_expect_eq(slot_pool_pins(world.inline_pool.slots, blob.record.slot), 0);
    blob.payload[999] ^= 1;
    blob.record.payload_bytes = INLINE_BYTES_MAX + 1;
    cr_expect_eq(world_acquire(&world, &blob, &version), -EBADMSG);
    cr_expect_eq(version_table_count(world.table), 0);
    free(blob.payload);
}

Test(version, a_small_blob_pins_its_virtual_slot_while_held) {
    struct world_blob blob = world_put_inline(&world, 1000);
    struct version *version = world_must_acquire(&world, &blob);
    cr_assert_not(slot_pool_retire(world.inline_pool.slots, blob.record.slot));
    version_unref(version);
    cr_expect_eq(atomic_load(&world.unpinned), 1);
    cr_expect_eq(world_acquire(&world, &blob, &version), -ESTALE);
    free(blob.payload);
}

Test(version, a_small_staged_blob_settles_in_the_inline_pool) {
    struct world_blob blob = world_put_inline(&world, 100);
    struct version *version;
    cr_assert_eq(
        version_create_staged(world.table, &blob.key, &blob.record, NULL, blob.payload, &version),
        0);
    cr_expect_null(version_staged_buffer(version));
    cr_expect(world_same_bytes(version, &blob));
    thread_role = THREAD_WRITER;
    version_settle(version, &world.inline_pool, blob.record.slot);
    cr_expect_eq(slot_pool_pins(world.inline_pool.slots, blob.record.slot), 1);
    cr_expect_eq(world_load(version), 0);
    cr_expect(world_same_bytes(version, &blob));
    version_drop_bytes(version);
    version_unref(version);
    cr_expect_eq(slot_pool_pins(world.inline_pool.slots, blob.record.slot), 0);
    free(blob.payload);
}

/* staged, settled, withdrawn */

Test(version, staged_bytes_are_readable_and_stay_until_settled) {
    struct world_blob blob;
    struct version *version = world_stage(&world, &blob, PAYLOAD_BYTES), *other;
    cr_expect_not_null(version_staged_buffer(version));
    version_table_drop_cache(world.table);
    cr_expect_eq(world_load(version), 0);
    cr_expect(world_same_bytes(version, &blob));
    version_drop_bytes(version);
    cr_assert_eq(world_acquire(&world, &blob, &other), 0);
    cr_expect_eq(other, version);
    version_unref(other);
    cr_expect_gt(buffer_pool_used_bytes(world.buffers, BUFFER_STAGING), 0);
    cr_expect_eq(stats_get(&world.stats, cache_hits), 1);
    version_unref(version);
    cr_expect_eq(buffer_pool_used_bytes(world.buffers, BUFFER_STAGING), 0);
    cr_expect_eq(version_table_count(world.table), 0);
    free(blob.payload);
}

Test(version, settling_pins_the_slot_and_moves_the_bytes_to_the_reading_share) {
    struct world_blob blob;
    struct version *version = world_stage(&world, &blob, PAYLOAD_BYTES);
    world_settle(&world, &blob, version);
    cr_expect_eq(pins(&blob), 1);
    cr_expect_null(version_staged_buffer(version));
    cr_expect_eq(buffer_pool_used_bytes(world.buffers, BUFFER_STAGING), 0);
    cr_expect_eq(version_table_cached_bytes(world.table), PAYLOAD_BYTES);
    version_unref(version);
    cr_expect_eq(pins(&blob), 0);
    version = world_must_acquire(&world, &blob);
    cr_expect_eq(world_load(version), 0);
    cr_expect(world_same_bytes(version, &blob));
    cr_expect_eq(stats_get(&world.stats, loads), 0);
    version_drop_bytes(version);
    version_unref(version);
    free(blob.payload);
}

Test(version, settled_bytes_come_back_from_the_slot) {
    struct world_blob blob;
    struct version *version = world_stage(&world, &blob, PAYLOAD_BYTES);
    world_settle(&world, &blob, version);
    version_table_drop_cache(world.table);
    cr_expect_eq(version_table_cached_bytes(world.table), 0);
    cr_expect_eq(buffer_pool_used_bytes(world.buffers, BUFFER_READING), 0);
    cr_expect_eq(world_load(version), 0);
    cr_expect(world_same_bytes(version, &blob));
    cr_expect_eq(stats_get(&world.stats, loads), 1);
    version_drop_bytes(version);
    version_unref(version);
    free(blob.payload);
}

Test(version, withdrawn_bytes_stay_for_those_who_hold_them) {
    struct world_blob blob;
    struct version *version = world_stage(&world, &blob, PAYLOAD_BYTES), *other = NULL;
    version_ref(version);
    thread_role = THREAD_WRITER;
    version_withdraw(version);
    cr_expect(version_is_withdrawn(version));
    version_unref(version);
    cr_expect_eq(world_acquire(&world, &blob, &other), -ESTALE);
    cr_expect_eq(world_load(version), 0);
    cr_expect(world_same_bytes(version, &blob));
    version_drop_bytes(version);
    version_unref(version);
    cr_expect_eq(buffer_pool_used_bytes(world.buffers, BUFFER_STAGING), 0);
    cr_expect_eq(version_table_count(world.table), 0);
    free(blob.payload);
}

Test(version, settling_in_a_slot_of_another_sequence_aborts, .signal = SIGABRT) {
    struct world_blob other = world_put(&world, PAYLOAD_BYTES), blob;
    struct version *version = world_stage(&world, &blob, PAYLOAD_BYTES);
    thread_role = THREAD_WRITER;
    version_settle(version, &world.pool, other.record.slot);
}

Test(version, settling_on_another_thread_than_the_write_thread_aborts, .signal = SIGABRT) {
    struct world_blob other = world_put(&world, PAYLOAD_BYTES), blob;
    struct version *version = world_stage(&world, &blob, PAYLOAD_BYTES);
    version_settle(version, &world.pool, other.record.slot);
}
