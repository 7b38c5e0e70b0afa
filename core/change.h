/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One change to a rank: a few steps on blobs and names that become visible together (overlay) and
 * durable together (one index transaction), and at most one payload to be written. Built by the
 * thread that asks, under the rank's change lock; from the enqueue on the write thread's.
 */
#ifndef CPL3_CORE_CHANGE_H
#define CPL3_CORE_CHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/budget.h"
#include "core/index.h"
#include "core/overlay.h"
#include "core/version.h"

enum step_kind {
    STEP_PUT_BLOB,    /* the change's payload under `key` */
    STEP_UPDATE_BLOB, /* attributes and name of `key`'s current version, from `record` */
    STEP_DELETE_BLOB, /* `key`, if it (still) has `sequence`; 0: whatever it has */
    STEP_PUT_NAME,    /* `name` stands for `entry` */
    STEP_DELETE_NAME, /* `name`, if it (still) stands for the blob `key`; no key: whatever it is */
};

struct step {
    enum step_kind kind;
    struct blob_key key;
    uint64_t sequence;
    union {
        struct blob_record record;
        struct {
            uint64_t directory;
            uint8_t name_bytes;
            char name[NAME_BYTES_MAX + 1];
            struct name_entry entry;
        };
    };
};

enum { CHANGE_STEPS_MAX = 8 };

struct group; /* core/writer_internal.h */

/* The payload of a change on its way to the disk: the write thread's from the enqueue on. */
struct put {
    struct version *version; /* a reference; NULL: the change has no payload */
    struct pool *pool;       /* its bytes are taken (budget_take) */
    struct blob_record record;
    struct blob_key key;
    struct group *group; /* that it is committed with */
    struct put *next_writing;
    uint64_t next_offset; /* in the slot: what is submitted already */
    uint32_t slot;
    unsigned in_flight; /* requests */
    unsigned tries;
    int error; /* of a request */
    bool has_slot;
    bool header_submitted;
    bool withdrawn; /* could not be stored */
};

struct change {
    uint64_t id; /* rising per rank */
    struct change *next;
    bool from_gc; /* not asked for by anybody: nobody waits for it to be durable */
    bool drops;   /* steps[0] deletes a blob that no client removed; its record is in the step */
    struct put put;
    unsigned step_count;
    struct step steps[]; /* CHANGE_STEPS_MAX of them */
};

/* Room for up to CHANGE_STEPS_MAX steps. NULL: no memory. */
struct change *change_create(void);
/* Drops the version's reference. NULL is fine. */
void change_destroy(struct change *change);

void change_put_blob(struct change *change, const struct blob_key *key);
void change_update_blob(struct change *change, const struct blob_key *key,
                        const struct blob_record *record);
void change_delete_blob(struct change *change, const struct blob_key *key, uint64_t sequence);
void change_put_name(struct change *change, uint64_t directory, const char *name, size_t name_bytes,
                     const struct name_entry *entry);
/* key NULL: whatever the name stands for. */
void change_delete_name(struct change *change, uint64_t directory, const char *name,
                        size_t name_bytes, const struct blob_key *key);

/* Makes the steps visible, in order. Under the change lock; the change has its id and, with a
 * payload, its version and record. */
void change_apply_to_overlay(const struct change *change, struct overlay *overlay);
/* Runtime clear: names of blobs that the change would set are deleted instead. */
void change_drop_blob_names(struct change *change);
/* After the commit. */
void change_settle_in_overlay(const struct change *change, struct overlay *overlay);

#endif
