/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slot states and free lists. A slot's word decides everything that another thread may ask about it
 * (rule W2: what is LIVE or pinned is never written):
 *
 *   bits 0..39  low bits of the sequence under which it was published
 *   bits 40..42 enum slot_state
 *   bit  43     backed: its disk blocks exist (or are about to)
 *   bits 44..63 pins
 *
 * Zero is a bare free slot, so a fresh mapping needs no initialisation. Free slots are in one of
 * three places: the list of backed ones (last freed first: its blocks are the likeliest to be in a
 * device's cache), the list of punched ones, and everything from `fresh` on, which was never used.
 */
#include "core/slot_pool.h"

#include "core/check.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SEQUENCE_MASK ((UINT64_C(1) << 40) - 1)
#define STATE_SHIFT 40
#define STATE_MASK (UINT64_C(7) << STATE_SHIFT)
#define BACKED (UINT64_C(1) << 43)
#define PIN_SHIFT 44
#define PIN_ONE (UINT64_C(1) << PIN_SHIFT)
#define PIN_MASK (~UINT64_C(0) << PIN_SHIFT)

/* End of a list; no slot has this number (slots_max is at most UINT32_MAX). */
#define NO_SLOT UINT32_MAX

enum { FRESH_SLOTS_VERIFIED = 512 };

struct slot_list {
    uint32_t first; /* NO_SLOT: empty */
    uint32_t count;
};

struct slot_pool {
    uint32_t slots_max;          /* fixed after creation */
    _Atomic uint64_t *words;     /* slots_max of them; atomic */
    uint32_t *next;              /* links of the free lists; the write thread's own, as are: */
    struct slot_list backed;     /* FREE with blocks */
    struct slot_list punched;    /* FREE, bare, below fresh */
    uint32_t fresh;              /* slots from here on were never used */
    _Atomic uint32_t free_slots; /* written by the write thread, read by any, as are: */
    _Atomic uint32_t backed_free_slots;
    _Atomic uint32_t backed_slots;
};

static enum slot_state word_state(uint64_t word) {
    return (enum slot_state)((word & STATE_MASK) >> STATE_SHIFT);
}

static uint64_t word_with_state(uint64_t word, enum slot_state state) {
    return (word & ~STATE_MASK) | (uint64_t)state << STATE_SHIFT;
}

static uint32_t word_pins(uint64_t word) {
    return (uint32_t)(word >> PIN_SHIFT);
}

static _Atomic uint64_t *word_of(const struct slot_pool *pool, uint32_t slot) {
    CHECK(slot < pool->slots_max);
    return &pool->words[slot];
}

/* Only the write thread writes them: a load and a store are enough. */
static void counter_add(_Atomic uint32_t *counter, int32_t difference) {
    uint32_t value = atomic_load_explicit(counter, memory_order_relaxed);
    CHECK(difference >= 0 || value >= (uint32_t)-difference);
    atomic_store_explicit(counter, value + (uint32_t)difference, memory_order_relaxed);
}

static void list_push(struct slot_pool *pool, struct slot_list *list, uint32_t slot) {
    pool->next[slot] = list->first;
    list->first = slot;
    list->count++;
}

static uint32_t list_pop(struct slot_pool *pool, struct slot_list *list) {
    CHECK(list->count > 0 && list->first < pool->fresh);
    uint32_t slot = list->first;
    list->first = pool->next[slot];
    list->count--;
    return slot;
}

static void *map_lazily(uint64_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int slot_pool_create(uint32_t slots_max, struct slot_pool **ret_pool) {
    if (slots_max == 0)
        return -EINVAL;
    struct slot_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return -ENOMEM;
    pool->slots_max = slots_max;
    pool->words = map_lazily(slots_max * sizeof(*pool->words));
    pool->next = map_lazily(slots_max * sizeof(*pool->next));
    if (!pool->words || !pool->next) {
        slot_pool_destroy(pool);
        return -ENOMEM;
    }
    pool->backed.first = pool->punched.first = NO_SLOT;
    pool->free_slots = slots_max;
    *ret_pool = pool;
    return 0;
}

void slot_pool_destroy(struct slot_pool *pool) {
    if (!pool)
        return;
    if (pool->words)
        munmap((void *)pool->words, pool->slots_max * sizeof(*pool->words));
    if (pool->next)
        munmap(pool->next, pool->slots_max * sizeof(*pool->next));
    free(pool);
}

/* transitions: the write thread */

static void take_from_backed(struct slot_pool *pool, uint32_t *ret_slot) {
    uint32_t slot = list_pop(pool, &pool->backed);
    _Atomic uint64_t *word = word_of(pool, slot);
    CHECK(atomic_load(word) == BACKED);
    atomic_store(word, word_with_state(BACKED, SLOT_WRITING));
    counter_add(&pool->free_slots, -1);
    counter_add(&pool->backed_free_slots, -1);
    *ret_slot = slot;
}

static void take_from_bare(struct slot_pool *pool, uint32_t *ret_slot) {
    uint32_t slot = pool->punched.count > 0 ? list_pop(pool, &pool->punched) : pool->fresh++;
    _Atomic uint64_t *word = word_of(pool, slot);
    CHECK(atomic_load(word) == 0);
    atomic_store(word, word_with_state(BACKED, SLOT_WRITING));
    counter_add(&pool->free_slots, -1);
    counter_add(&pool->backed_slots, 1);
    *ret_slot = slot;
}

int slot_pool_allocate(struct slot_pool *pool, uint32_t *ret_slot) {
    if (pool->backed.count > 0)
        take_from_backed(pool, ret_slot);
    else if (pool->punched.count > 0 || pool->fresh < pool->slots_max)
        take_from_bare(pool, ret_slot);
    else
        return -ENOSPC;
    return 0;
}

int slot_pool_take_backed(struct slot_pool *pool, uint32_t *ret_slot) {
    if (pool->backed.count == 0)
        return -ENOENT;
    take_from_backed(pool, ret_slot);
    return 0;
}

uint32_t slot_pool_fresh_slots(const struct slot_pool *pool, uint32_t *ret_first) {
    *ret_first = pool->fresh;
    return pool->slots_max - pool->fresh;
}

void slot_pool_back_fresh(struct slot_pool *pool, uint32_t count) {
    CHECK(count <= pool->slots_max - pool->fresh);
    uint32_t first = pool->fresh;
    pool->fresh += count;
    for (uint32_t slot = pool->fresh; slot-- > first;) {
        _Atomic uint64_t *word = word_of(pool, slot);
        CHECK(atomic_load(word) == 0);
        atomic_store(word, BACKED);
        list_push(pool, &pool->backed, slot);
    }
    counter_add(&pool->backed_free_slots, (int32_t)count);
    counter_add(&pool->backed_slots, (int32_t)count);
}

void slot_pool_free(struct slot_pool *pool, uint32_t slot) {
    _Atomic uint64_t *word = word_of(pool, slot);
    uint64_t old = atomic_load(word);
    CHECK(word_state(old) == SLOT_WRITING || word_state(old) == SLOT_RETIRING);
    CHECK(word_pins(old) == 0);
    atomic_store(word, BACKED);
    list_push(pool, &pool->backed, slot);
    counter_add(&pool->free_slots, 1);
    counter_add(&pool->backed_free_slots, 1);
}

void slot_pool_free_bare(struct slot_pool *pool, uint32_t slot) {
    _Atomic uint64_t *word = word_of(pool, slot);
    uint64_t old = atomic_load(word);
    CHECK(word_state(old) == SLOT_WRITING && word_pins(old) == 0);
    atomic_store(word, 0);
    list_push(pool, &pool->punched, slot);
    counter_add(&pool->free_slots, 1);
    counter_add(&pool->backed_slots, -1);
}

void slot_pool_publish(struct slot_pool *pool, uint32_t slot, uint64_t sequence) {
    _Atomic uint64_t *word = word_of(pool, slot);
    uint64_t old = atomic_load(word);
    CHECK(word_state(old) == SLOT_WRITING && word_pins(old) == 0);
    atomic_store(word, word_with_state(BACKED | (sequence & SEQUENCE_MASK), SLOT_LIVE));
}

/* Pins come and go while the state changes, hence a loop. The word as it was. */
static uint64_t change_state(_Atomic uint64_t *word, bool from_live_only, enum slot_state to) {
    uint64_t old = atomic_load(word);
    do {
        enum slot_state state = word_state(old);
        CHECK(state == SLOT_LIVE ||
              (!from_live_only && (state == SLOT_WRITING || state == SLOT_RETIRING)));
    } while (!atomic_compare_exchange_weak(word, &old, word_with_state(old, to)));
    return old;
}

bool slot_pool_retire(struct slot_pool *pool, uint32_t slot) {
    return word_pins(change_state(word_of(pool, slot), true, SLOT_RETIRING)) == 0;
}

void slot_pool_quarantine(struct slot_pool *pool, uint32_t slot) {
    change_state(word_of(pool, slot), false, SLOT_BAD);
}

/* pins: any thread */

bool slot_pool_pin(struct slot_pool *pool, uint32_t slot, uint64_t sequence) {
    _Atomic uint64_t *word = word_of(pool, slot);
    uint64_t wanted = word_with_state(sequence & SEQUENCE_MASK, SLOT_LIVE);
    uint64_t old = atomic_load(word);
    do {
        if ((old & (SEQUENCE_MASK | STATE_MASK)) != wanted || (old & PIN_MASK) == PIN_MASK)
            return false;
    } while (!atomic_compare_exchange_weak(word, &old, old + PIN_ONE));
    return true;
}

/* Retiring and the last unpin race; each is one step on the word, so exactly one of them sees a
 * RETIRING slot without pins. */
bool slot_pool_unpin(struct slot_pool *pool, uint32_t slot) {
    uint64_t old = atomic_fetch_sub(word_of(pool, slot), PIN_ONE);
    CHECK(word_pins(old) > 0);
    return word_pins(old) == 1 && word_state(old) == SLOT_RETIRING;
}

/* whole pools: the write thread, or before there is one */

static void set_counters(struct slot_pool *pool, uint32_t occupied) {
    atomic_store(&pool->backed_slots, pool->fresh - pool->punched.count);
    atomic_store(&pool->backed_free_slots, pool->backed.count);
    atomic_store(&pool->free_slots, pool->slots_max - occupied);
}

void slot_pool_reset(struct slot_pool *pool) {
    pool->backed = pool->punched = (struct slot_list){.first = NO_SLOT};
    for (uint32_t slot = pool->fresh; slot-- > 0;) {
        uint64_t old = atomic_load(&pool->words[slot]);
        CHECK(word_pins(old) == 0);
        atomic_store(&pool->words[slot], old & BACKED);
        list_push(pool, old & BACKED ? &pool->backed : &pool->punched, slot);
    }
    set_counters(pool, 0);
}

void slot_pool_rebuild_from_allocated(struct slot_pool *pool, const struct slot_occupied *occupied,
                                      size_t count, uint32_t slots_backed) {
    CHECK(slots_backed <= pool->slots_max && count <= slots_backed);
    CHECK(atomic_load(&pool->free_slots) == pool->slots_max);
    for (uint32_t slot = 0; slot < pool->fresh; slot++)
        atomic_store(&pool->words[slot], 0);
    for (size_t i = 0; i < count; i++) {
        CHECK(occupied[i].slot < slots_backed);
        _Atomic uint64_t *word = word_of(pool, occupied[i].slot);
        CHECK(atomic_load(word) == 0); /* no duplicates */
        atomic_store(word,
                     word_with_state(BACKED | (occupied[i].sequence & SEQUENCE_MASK), SLOT_LIVE));
    }
    pool->fresh = slots_backed;
    pool->backed = pool->punched = (struct slot_list){.first = NO_SLOT};
    for (uint32_t slot = slots_backed; slot-- > 0;)
        if (atomic_load(&pool->words[slot]) == 0) {
            atomic_store(&pool->words[slot], BACKED);
            list_push(pool, &pool->backed, slot);
        }
    set_counters(pool, (uint32_t)count);
}

/* questions: any thread */

enum slot_state slot_pool_state(const struct slot_pool *pool, uint32_t slot) {
    return word_state(atomic_load(word_of(pool, slot)));
}

uint32_t slot_pool_pins(const struct slot_pool *pool, uint32_t slot) {
    return word_pins(atomic_load(word_of(pool, slot)));
}

uint32_t slot_pool_slots_max(const struct slot_pool *pool) {
    return pool->slots_max;
}

uint32_t slot_pool_free_slots(const struct slot_pool *pool) {
    return atomic_load_explicit(&pool->free_slots, memory_order_relaxed);
}

uint32_t slot_pool_backed_free_slots(const struct slot_pool *pool) {
    return atomic_load_explicit(&pool->backed_free_slots, memory_order_relaxed);
}

uint32_t slot_pool_backed_slots(const struct slot_pool *pool) {
    return atomic_load_explicit(&pool->backed_slots, memory_order_relaxed);
}

/* checking */

/* Every slot of a list is free in just this way; with as many words like that as the list is long,
 * the list holds each of them once. */
static void verify_list(const struct slot_pool *pool, const struct slot_list *list, uint64_t word) {
    uint32_t slot = list->first;
    for (uint32_t i = 0; i < list->count; i++) {
        CHECK(slot < pool->fresh);
        CHECK(atomic_load(&pool->words[slot]) == word);
        slot = pool->next[slot];
    }
    CHECK(slot == NO_SLOT);
}

void slot_pool_verify(const struct slot_pool *pool) {
    uint32_t bare = 0, backed_free = 0;
    CHECK(pool->fresh <= pool->slots_max);
    for (uint32_t slot = 0; slot < pool->fresh; slot++) {
        uint64_t word = atomic_load(&pool->words[slot]);
        CHECK(word_state(word) <= SLOT_BAD);
        if (word_state(word) == SLOT_FREE) {
            CHECK((word & ~BACKED) == 0);
            word &BACKED ? backed_free++ : bare++;
        } else {
            CHECK(word & BACKED);
            CHECK(word_state(word) != SLOT_WRITING || (word & (PIN_MASK | SEQUENCE_MASK)) == 0);
        }
    }
    for (uint32_t i = 0; i < FRESH_SLOTS_VERIFIED && i < pool->slots_max - pool->fresh; i++)
        CHECK(atomic_load(&pool->words[pool->fresh + i]) == 0);
    CHECK(backed_free == pool->backed.count && bare == pool->punched.count);
    verify_list(pool, &pool->backed, BACKED);
    verify_list(pool, &pool->punched, 0);
    CHECK(slot_pool_backed_free_slots(pool) == backed_free);
    CHECK(slot_pool_backed_slots(pool) == pool->fresh - bare);
    CHECK(slot_pool_free_slots(pool) == backed_free + bare + (pool->slots_max - pool->fresh));
}
