/* SPDX-License-Identifier: Apache-2.0 */
/* Rule P3: what a close would publish, by name, by what happened to the handle. */
#include "fs/publish.h"

#include "fs/state.h"

#include <criterion/criterion.h>

static struct file named_file(void) {
    return (struct file){.attached = true, .key = {.named = 1, .hash_bytes = 16}};
}
static struct file hash_file(void) {
    return (struct file){.attached = true, .key = {.hash_bytes = 16}};
}

static bool is_due(struct file *file, unsigned pending, uint64_t size, bool written) {
    struct handle handle = {.file = file};
    atomic_store(&handle.pending, pending);
    atomic_store(&handle.size_bytes, size);
    atomic_store(&handle.written, written);
    return publish_is_due(&handle);
}

Test(publish, a_named_file_is_published_for_its_creation_alone) {
    struct file file = named_file();
    cr_assert(is_due(&file, PENDING_BARE, 0, false));
    cr_assert(is_due(&file, PENDING_DATA, 10, true));
    cr_assert(!is_due(&file, 0, 10, true), "nothing came after the last publish");
}

Test(publish, an_empty_hash_named_file_is_never_published) {
    struct file file = hash_file();
    cr_assert(!is_due(&file, PENDING_BARE, 0, false));
    cr_assert(!is_due(&file, PENDING_DATA | PENDING_BARE, 0, true));
}

Test(publish, a_hash_named_file_that_was_not_written_keeps_its_old_version) {
    struct file file = hash_file();
    cr_assert(!is_due(&file, PENDING_BARE, 100, false));
    cr_assert(is_due(&file, PENDING_DATA, 100, true));
    cr_assert(is_due(&file, PENDING_BARE, 100, true), "resized after it was written");
}

Test(publish, cancelled_dead_and_detached_writers_publish_nothing) {
    struct file file = named_file();
    struct handle handle = {.file = &file};
    atomic_store(&handle.pending, PENDING_DATA);
    cr_assert(publish_is_due(&handle));
    atomic_store(&handle.cancelled, true);
    cr_assert(!publish_is_due(&handle));
    atomic_store(&handle.cancelled, false);
    atomic_store(&handle.dead, true);
    cr_assert(!publish_is_due(&handle));
    atomic_store(&handle.dead, false);
    file.attached = false;
    cr_assert(!publish_is_due(&handle));
}
