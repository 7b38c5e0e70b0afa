/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory behind buffers: one mapping of huge pages, a buddy allocator that says which parts are
 * free, an account for each share, and the thread that faults the memory in. A share is bounded by
 * its account, in bytes of blocks; since the shares' sum fits the pool, memory is short only when
 * small blocks keep larger ones apart. Then the next free of any share is worth another try, not
 * only one of the share that failed.
 */
#include "core/buffer_pool.h"

#include "core/buddy.h"
#include "core/check.h"
#include "core/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

enum { CHUNK_BYTES = BUFFER_BLOCK_BYTES_MIN << BUDDY_CHUNK_ORDER };
static_assert(CHUNK_BYTES == 2 << 20);

struct share {
    uint64_t limit_bytes;          /* fixed after open */
    _Atomic uint64_t used_bytes;   /* written under lock, read by any thread */
    void (*freed)(void *argument); /* fixed before threads start */
    void *argument;
    atomic_bool wanted;
};

struct buffer_pool {
    /* fixed after open */
    uint8_t *memory; /* aligned to CHUNK_BYTES */
    uint64_t bytes;
    void *map;
    uint64_t map_bytes;
    bool touching;
    pthread_t toucher;

    atomic_bool stop;       /* the toucher */
    atomic_bool fragmented; /* an allocation failed though its share had room */
    struct share shares[BUFFER_SHARES];
    pthread_mutex_t lock;
    struct buddy *buddy; /* under lock */
};

/* Faults the pool in by whole huge pages. Contents are untouched, so it never races with the users
 * of the memory. Kernels before 5.14 cannot: there, memory is faulted in at its first use. */
static void *touch_memory(void *argument) {
    struct buffer_pool *pool = argument;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (uint64_t done = 0; done < pool->bytes && !atomic_load(&pool->stop);) {
        if (madvise(pool->memory + done, CHUNK_BYTES, MADV_POPULATE_WRITE) == 0)
            done += CHUNK_BYTES;
        else if (errno != EINTR && errno != EAGAIN)
            break;
    }
    return NULL;
}

static int map_memory(struct buffer_pool *pool) {
    pool->map_bytes = pool->bytes + CHUNK_BYTES;
    pool->map = mmap(NULL, pool->map_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool->map == MAP_FAILED)
        return -ENOMEM;
    uintptr_t aligned = ((uintptr_t)pool->map + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
    pool->memory = (uint8_t *)aligned;
    madvise(pool->memory, pool->bytes, MADV_HUGEPAGE); /* a wish; slower without */
    madvise(pool->memory, pool->bytes, MADV_DONTDUMP); /* gigabytes of payload in a core file */
    ASAN_POISON_MEMORY_REGION(pool->memory, pool->bytes);
    return 0;
}

static void unmap_memory(struct buffer_pool *pool) {
    ASAN_UNPOISON_MEMORY_REGION(pool->memory, pool->bytes);
    munmap(pool->map, pool->map_bytes);
}

static int allocate_pool(uint64_t bytes, struct buffer_pool **ret_pool) {
    struct buffer_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return -ENOMEM;
    pool->bytes = bytes;
    int error = bytes / CHUNK_BYTES > UINT32_MAX
                    ? -EINVAL
                    : buddy_create((uint32_t)(bytes / CHUNK_BYTES), &pool->buddy);
    if (error == 0)
        error = map_memory(pool);
    if (error != 0) {
        buddy_destroy(pool->buddy);
        free(pool);
        return error;
    }
    pthread_mutex_init(&pool->lock, NULL);
    *ret_pool = pool;
    return 0;
}

int buffer_pool_open(uint64_t bytes, const uint64_t share_bytes[BUFFER_SHARES], bool touch,
                     struct buffer_pool **ret_pool) {
    uint64_t left = bytes;
    for (int share = 0; share < BUFFER_SHARES; share++) {
        if (share_bytes[share] > left)
            return -EINVAL;
        left -= share_bytes[share];
    }
    if (bytes == 0 || bytes > UINT64_MAX / 2)
        return -EINVAL;
    struct buffer_pool *pool;
    int error = allocate_pool((bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES, &pool);
    if (error != 0)
        return error;
    for (int share = 0; share < BUFFER_SHARES; share++)
        pool->shares[share].limit_bytes = share_bytes[share];
    /* Without the thread everything works, only the first use of the memory is slower. */
    pool->touching = touch && pthread_create(&pool->toucher, NULL, touch_memory, pool) == 0;
    if (pool->touching)
        pthread_setname_np(pool->toucher, "cpl3-touch");
    *ret_pool = pool;
    return 0;
}

void buffer_pool_close(struct buffer_pool *pool) {
    if (!pool)
        return;
    for (int share = 0; share < BUFFER_SHARES; share++)
        CHECK(atomic_load(&pool->shares[share].used_bytes) == 0);
    atomic_store(&pool->stop, true);
    if (pool->touching)
        pthread_join(pool->toucher, NULL);
    unmap_memory(pool);
    buddy_destroy(pool->buddy);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* who is told of freed memory */

void buffer_pool_on_free(struct buffer_pool *pool, enum buffer_share share, void (*freed)(void *),
                         void *argument) {
    pool->shares[share].freed = freed;
    pool->shares[share].argument = argument;
}

void buffer_pool_want(struct buffer_pool *pool, enum buffer_share share) {
    atomic_store(&pool->shares[share].wanted, true);
}

static void tell(struct share *share) {
    if (atomic_load(&share->wanted) && atomic_exchange(&share->wanted, false) && share->freed)
        share->freed(share->argument);
}

/* Without the lock. */
static void tell_of_free(struct buffer_pool *pool, enum buffer_share freed) {
    bool all = atomic_load(&pool->fragmented) && atomic_exchange(&pool->fragmented, false);
    for (int share = 0; share < BUFFER_SHARES; share++)
        if (all || share == (int)freed)
            tell(&pool->shares[share]);
}

/* accounts: under lock */

static bool charge(struct share *share, uint64_t bytes) {
    uint64_t used = atomic_load(&share->used_bytes);
    if (used + bytes > share->limit_bytes)
        return false;
    atomic_store(&share->used_bytes, used + bytes);
    return true;
}

static void uncharge(struct share *share, uint64_t bytes) {
    uint64_t used = atomic_load(&share->used_bytes);
    CHECK(used >= bytes);
    atomic_store(&share->used_bytes, used - bytes);
}

uint64_t buffer_pool_used_bytes(const struct buffer_pool *pool, enum buffer_share share) {
    return atomic_load(&pool->shares[share].used_bytes);
}

uint64_t buffer_pool_share_bytes(const struct buffer_pool *pool, enum buffer_share share) {
    return pool->shares[share].limit_bytes;
}

bool buffer_pool_move_charge(struct buffer_pool *pool, enum buffer_share from, enum buffer_share to,
                             uint64_t bytes) {
    {
        SCOPE_LOCK(&pool->lock);
        if (!charge(&pool->shares[to], bytes))
            return false;
        uncharge(&pool->shares[from], bytes);
    }
    tell_of_free(pool, from);
    return true;
}

/* memory: under lock */

static unsigned order_of(uint32_t bytes) {
    CHECK(bytes >= BUFFER_BLOCK_BYTES_MIN && bytes <= BUFFER_SEGMENT_BYTES);
    CHECK((bytes & (bytes - 1)) == 0);
    return (unsigned)__builtin_ctz(bytes / BUFFER_BLOCK_BYTES_MIN);
}

static uint32_t unit_of(const struct buffer_pool *pool, const uint8_t *address) {
    CHECK(address >= pool->memory && address < pool->memory + pool->bytes);
    return (uint32_t)((uint64_t)(address - pool->memory) / BUFFER_BLOCK_BYTES_MIN);
}

static uint8_t *address_of(const struct buffer_pool *pool, uint32_t unit) {
    return pool->memory + (uint64_t)unit * BUFFER_BLOCK_BYTES_MIN;
}

static uint32_t block_bytes(const struct buffer_blocks *blocks, size_t i) {
    return i + 1 < blocks->count ? (uint32_t)BUFFER_SEGMENT_BYTES : blocks->last_bytes;
}

static uint8_t *allocate_block(struct buffer_pool *pool, uint32_t bytes) {
    uint32_t unit;
    if (!buddy_allocate(pool->buddy, order_of(bytes), &unit))
        return NULL;
    ASAN_UNPOISON_MEMORY_REGION(address_of(pool, unit), bytes);
    return address_of(pool, unit);
}

static void free_block(struct buffer_pool *pool, uint8_t *address, uint32_t bytes) {
    ASAN_POISON_MEMORY_REGION(address, bytes);
    buddy_free(pool->buddy, unit_of(pool, address), order_of(bytes));
}

/* The block of new_bytes around an old one, if all the rest of it is free. */
static uint8_t *grow_block(struct buffer_pool *pool, uint8_t *old, uint32_t old_bytes,
                           uint32_t new_bytes) {
    unsigned old_order = order_of(old_bytes), new_order = order_of(new_bytes);
    uint32_t old_unit = unit_of(pool, old);
    uint32_t new_unit = old_unit & ~((1u << new_order) - 1);
    buddy_free(pool->buddy, old_unit, old_order);
    if (!buddy_is_free(pool->buddy, new_unit, new_order)) {
        buddy_claim(pool->buddy, old_unit, old_order);
        return NULL;
    }
    buddy_claim(pool->buddy, new_unit, new_order);
    ASAN_UNPOISON_MEMORY_REGION(address_of(pool, new_unit), new_bytes);
    return address_of(pool, new_unit);
}

/* The opposite of grow_block. */
static void shrink_block(struct buffer_pool *pool, uint8_t *address, uint32_t new_bytes,
                         uint8_t *old, uint32_t old_bytes) {
    free_block(pool, address, new_bytes);
    buddy_claim(pool->buddy, unit_of(pool, old), order_of(old_bytes));
    ASAN_UNPOISON_MEMORY_REGION(old, old_bytes);
}

static bool allocate_blocks(struct buffer_pool *pool, const struct buffer_blocks *blocks,
                            uint8_t *grown, uint32_t grown_bytes) {
    uint8_t *in_place = NULL;
    size_t done = 0;
    if (grown) {
        in_place = grow_block(pool, grown, grown_bytes, block_bytes(blocks, 0));
        if (in_place)
            blocks->addresses[done++] = in_place;
    }
    for (; done < blocks->count; done++) {
        uint8_t *address = allocate_block(pool, block_bytes(blocks, done));
        if (!address)
            break;
        blocks->addresses[done] = address;
    }
    if (done == blocks->count)
        return true;
    while (done-- > (in_place ? 1 : 0))
        free_block(pool, blocks->addresses[done], block_bytes(blocks, done));
    if (in_place)
        shrink_block(pool, in_place, block_bytes(blocks, 0), grown, grown_bytes);
    return false;
}

static uint64_t blocks_bytes(const struct buffer_blocks *blocks) {
    return blocks->count == 0
               ? 0
               : (blocks->count - 1) * (uint64_t)BUFFER_SEGMENT_BYTES + blocks->last_bytes;
}

int buffer_pool_take(struct buffer_pool *pool, enum buffer_share share,
                     const struct buffer_blocks *blocks, uint8_t *grown, uint32_t grown_bytes) {
    uint64_t charged_bytes = blocks_bytes(blocks) - grown_bytes;
    SCOPE_LOCK(&pool->lock);
    if (!charge(&pool->shares[share], charged_bytes))
        return -ENOMEM;
    if (!allocate_blocks(pool, blocks, grown, grown_bytes)) {
        uncharge(&pool->shares[share], charged_bytes);
        atomic_store(&pool->fragmented, true);
        return -ENOMEM;
    }
    return 0;
}

void buffer_pool_give(struct buffer_pool *pool, enum buffer_share share,
                      const struct buffer_blocks *blocks, uint64_t uncharged_bytes) {
    {
        SCOPE_LOCK(&pool->lock);
        for (size_t i = 0; i < blocks->count; i++)
            free_block(pool, blocks->addresses[i], block_bytes(blocks, i));
        uncharge(&pool->shares[share], uncharged_bytes);
    }
    tell_of_free(pool, share);
}
