/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real store in a temporary directory, without FUSE: put and get as one call each, that wait for
 * what core answers later. For tests/store and the stress programs.
 */
#ifndef CPL3_TESTS_STORE_WORLD_H
#define CPL3_TESTS_STORE_WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/store.h"

struct store_world {
    char directory[64]; /* holds the store */
    char path[96];
    struct config config; /* change before store_world_open */
    struct store *store;
    struct rank *rank; /* the first one */
    _Atomic uint64_t gone_events, cleared_events;
};

/* A fresh directory and a small configuration: 64 MiB, kind 0 only, clear. Aborts on trouble. */
void store_world_init(struct store_world *world);
/* 0 or what store_open says. */
int store_world_open(struct store_world *world);
void store_world_close(struct store_world *world);
/* Closes and opens again with this cold start. */
void store_world_reopen(struct store_world *world, enum cold_start cold_start);
/* Closes if open, removes everything. */
void store_world_destroy(struct store_world *world);

/* A waiter that a test thread can wait on. */
struct blocking_waiter {
    struct waiter waiter;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
    int result;
};
void blocking_waiter_init(struct blocking_waiter *waiter);
/* What the call answered, or if -EINPROGRESS what came later. */
int blocking_waiter_result(struct blocking_waiter *waiter, int answered);

struct blob_key hash_key(uint16_t rank, uint64_t number);
/* What payload `number` of `bytes` holds, in `version`. */
void fill_payload(uint8_t *ret_bytes, size_t bytes, uint64_t number, uint64_t version);

/* Publishes fill_payload under hash_key; 0 or -errno. */
int world_put(struct rank *rank, uint64_t number, size_t bytes, uint64_t version);
int world_put_named(struct rank *rank, uint64_t directory, const char *name, uint64_t number,
                    size_t bytes, uint64_t version, struct blob_key *ret_key);
/* Reads it whole: 0, -ENOENT, or what the load said; *ret_bytes malloc'ed. */
int world_get(struct rank *rank, const struct blob_key *key, uint8_t **ret_bytes, size_t *ret_size);
/* True: there, with exactly these bytes. Aborts on wrong bytes. False: a miss. */
bool world_has(struct rank *rank, uint64_t number, size_t bytes, uint64_t version);
void world_commit(struct rank *rank);
int world_clear(struct rank *rank);
/* CHECKs and counts disagreements (printed). */
uint64_t world_verify(struct rank *rank);

#endif
