/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is compared: an engine keeps objects by id, and all engines are driven by one client program
 * (client.c). To add one: an engine_<name>.c with its table, a line in engine.c, and its name
 * among those in report.py.
 *
 * Functions end the program on errors. NULL in a table: the engine has nothing to do there.
 */
#ifndef CPL3_TESTS_BENCH_ENGINE_H
#define CPL3_TESTS_BENCH_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/bench/daemon.h"

struct lru;
struct raw_queue;
struct rocks;
struct target;

enum { ENGINE_PATH_MAX = DAEMON_PATH_MAX + 128, ENGINE_NAME_BYTES = 64 };

/* One thread of the client and what it works with. */
struct worker {
    const struct target *target;
    unsigned number;
    uint8_t *buffer; /* of one object, faulted in; of huge pages if the engine says so */
    size_t object_bytes;
    char path[ENGINE_PATH_MAX]; /* the target's directory and a slash; the name goes behind it */
    size_t path_bytes;          /* of directory and slash */
    struct raw_queue *queue;    /* engine_raw's */
};

enum measured {
    MEASURES_PAGES = 1,        /* puts and cold gets */
    MEASURES_HOT_GETS = 2,     /* it has a read cache */
    MEASURES_NAMES = 4,        /* stat and listings */
    MEASURES_EVICTION = 8,     /* it keeps to its capacity by itself */
    MEASURES_DIRECT_GETS = 16, /* for clients that open O_DIRECT, or what they are compared with */
};

struct engine {
    const char *name;
    unsigned measures;     /* enum measured: the suites that it is part of */
    bool huge_buffers;     /* the client's buffers are of huge pages, else of 4 KiB pages */
    bool fills_page_cache; /* memory for it is touched before a measurement */

    /* An empty engine with room for so many bytes of objects, its memory touched, in state `fresh`:
     * nothing of its space was ever written. */
    void (*prepare)(struct target *target, uint64_t capacity_bytes);
    /* Every slot or file that was written may be written again: state `reused`. */
    void (*make_reusable)(struct target *target);
    /* Returns when everything that was put is on disk. */
    void (*sync)(struct target *target);
    /* Nothing of the objects is in memory. Not timed. */
    void (*drop_caches)(struct target *target);
    void (*destroy)(struct target *target);

    /* Not timed, on the worker's thread. */
    void (*open_worker)(struct worker *worker);
    void (*close_worker)(struct worker *worker);
    /* Timed. put_durable returns when the object is. */
    void (*put)(struct worker *worker, uint64_t id);
    void (*put_durable)(struct worker *worker, uint64_t id);
    void (*get)(struct worker *worker, uint64_t id);
    void (*get_direct)(struct worker *worker, uint64_t id); /* NULL: like get */
    bool (*has)(struct worker *worker, uint64_t id);
    /* Objects that were removed to keep to the capacity, since prepare. */
    uint64_t (*count_evictions)(struct target *target);
    /* Timed: waits for what the worker has in flight. */
    void (*finish)(struct worker *worker);
};

/* An engine at its place. */
struct target {
    const struct engine *engine;
    char base[DAEMON_PATH_MAX]; /* everything of it lies below */
    char directory[DAEMON_PATH_MAX + 64];
    struct daemon daemon; /* engine_cpl3's */
    char daemon_options[128];
    int raw_fd; /* engine_raw's */
    uint64_t raw_bytes;
    struct lru *lru;     /* engine_ext4_lru's */
    struct rocks *rocks; /* engine_rocksdb's */
};

extern const struct engine engine_cpl3;
extern const struct engine engine_ext4_buffered;
extern const struct engine engine_ext4_direct_plain;
extern const struct engine engine_ext4_direct_huge;
extern const struct engine engine_raw;
extern const struct engine engine_ext4_lru;
extern const struct engine engine_rocksdb;

enum { ENGINES_MAX = 8 };

/* The targets of all engines below a directory; prepared by whoever measures. */
size_t engine_make_targets(const char *directory, struct target ret_targets[ENGINES_MAX]);
/* Everything is on disk and the disk is at rest. Not to be timed. */
void engine_settle(struct target *target);

/* The name of an object: 64 hex digits. */
void engine_make_name(uint64_t id, char ret_name[ENGINE_NAME_BYTES + 1]);

/* The client's way with files (engine_files.c); flags: 0 or O_DIRECT. */
void files_put(struct worker *worker, uint64_t id, int flags, bool durable);
void files_get(struct worker *worker, uint64_t id, int flags);
bool files_has(struct worker *worker, uint64_t id);

/* Every object carries its id at its start and end: a get that returns anything else ends the
 * program. */
void engine_stamp(struct worker *worker, uint64_t id);
void engine_check_stamp(const struct worker *worker, uint64_t id);

#endif
