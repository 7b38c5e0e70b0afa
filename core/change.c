/* SPDX-License-Identifier: Apache-2.0 */
/* Building changes and showing them to lookups. What a step does to the index is in commit.c. */
#include "core/change.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"

struct change *change_create(void) {
    return calloc(1, sizeof(struct change) + CHANGE_STEPS_MAX * sizeof(struct step));
}

void change_destroy(struct change *change) {
    if (!change)
        return;
    version_unref(change->put.version);
    free(change);
}

static struct step *add_step(struct change *change, enum step_kind kind) {
    CHECK(change->step_count < CHANGE_STEPS_MAX);
    struct step *step = &change->steps[change->step_count++];
    step->kind = kind;
    return step;
}

void change_put_blob(struct change *change, const struct blob_key *key) {
    add_step(change, STEP_PUT_BLOB)->key = *key;
}

void change_update_blob(struct change *change, const struct blob_key *key,
                        const struct blob_record *record) {
    struct step *step = add_step(change, STEP_UPDATE_BLOB);
    step->key = *key;
    step->record = *record;
}

void change_delete_blob(struct change *change, const struct blob_key *key, uint64_t sequence) {
    struct step *step = add_step(change, STEP_DELETE_BLOB);
    step->key = *key;
    step->sequence = sequence;
}

static struct step *add_name_step(struct change *change, enum step_kind kind, uint64_t directory,
                                  const char *name, size_t name_bytes) {
    CHECK(name_bytes > 0 && name_bytes <= NAME_BYTES_MAX);
    struct step *step = add_step(change, kind);
    step->directory = directory;
    step->name_bytes = (uint8_t)name_bytes;
    memcpy(step->name, name, name_bytes);
    return step;
}

void change_put_name(struct change *change, uint64_t directory, const char *name, size_t name_bytes,
                     const struct name_entry *entry) {
    add_name_step(change, STEP_PUT_NAME, directory, name, name_bytes)->entry = *entry;
}

void change_delete_name(struct change *change, uint64_t directory, const char *name,
                        size_t name_bytes, const struct blob_key *key) {
    struct step *step = add_name_step(change, STEP_DELETE_NAME, directory, name, name_bytes);
    if (key)
        step->key = *key;
}

/* A failed allocation of a few hundred bytes in the middle of a change has no honest way back. */
void change_apply_to_overlay(const struct change *change, struct overlay *overlay) {
    for (unsigned i = 0; i < change->step_count; i++) {
        const struct step *step = &change->steps[i];
        int result = 0;
        switch (step->kind) {
        case STEP_PUT_BLOB:
            result = overlay_put_blob(overlay, &step->key, &change->put.record, change->put.version,
                                      change->id);
            break;
        case STEP_UPDATE_BLOB:
            result = overlay_put_blob(overlay, &step->key, &step->record, NULL, change->id);
            break;
        case STEP_DELETE_BLOB:
            result = overlay_remove_blob(overlay, &step->key, change->id);
            break;
        case STEP_PUT_NAME:
            result = overlay_put_name(overlay, step->directory, step->name, step->name_bytes,
                                      &step->entry, change->id);
            break;
        case STEP_DELETE_NAME:
            result = overlay_remove_name(overlay, step->directory, step->name, step->name_bytes,
                                         change->id);
            break;
        }
        CHECK(result == 0);
    }
}

void change_drop_blob_names(struct change *change) {
    for (unsigned i = 0; i < change->step_count; i++) {
        struct step *step = &change->steps[i];
        if (step->kind == STEP_PUT_NAME && step->entry.type == NAME_BLOB)
            step->kind = STEP_DELETE_NAME;
    }
}

void change_settle_in_overlay(const struct change *change, struct overlay *overlay) {
    for (unsigned i = 0; i < change->step_count; i++) {
        const struct step *step = &change->steps[i];
        if (step->kind == STEP_PUT_NAME || step->kind == STEP_DELETE_NAME)
            overlay_settle_name(overlay, step->directory, step->name, step->name_bytes, change->id);
        else
            overlay_settle_blob(overlay, &step->key, change->id);
    }
}
