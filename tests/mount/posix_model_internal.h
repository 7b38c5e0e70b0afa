/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of the model share. */
#ifndef CPL3_TESTS_MOUNT_POSIX_MODEL_INTERNAL_H
#define CPL3_TESTS_MOUNT_POSIX_MODEL_INTERNAL_H

#include "tests/mount/posix_model.h"

/* Cut or filled with zeros to `bytes`. */
struct content *content_create(const char *data, size_t data_bytes, size_t bytes);
struct content *content_ref(struct content *content);
void content_unref(struct content *content);

void model_file_unref(struct model_file *file);
bool model_may_be_hash(const char *path);
struct model_entry *model_add(struct model *model, const char *path, struct model_file *file);
/* The one handle that writes a file without a version. */
struct model_handle *model_only_writer(struct model *model, const struct model_file *file);
/* However it was opened: by name. */
int model_resize_staged(const struct model *model, struct model_handle *handle, size_t bytes);

#endif
