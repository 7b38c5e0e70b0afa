/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tag of a rank: which model, layout or weights version its pages are of, as the mount option
 * says. It stands in the text file rank<N>/tag, absent for the empty tag. `load` under another tag
 * starts the rank empty: pages of other weights are never served.
 */
#ifndef CPL3_CORE_TAG_H
#define CPL3_CORE_TAG_H

#include "core/config.h"

/*
 * 0, or -errno: -EBADMSG when the file is not one that tag_write made (then the tag is unknown, and
 * differs from every other).
 */
int tag_read(int rank_directory_fd, char ret_tag[TAG_BYTES_MAX + 1]);
/* Durably. For a rank that is empty: a crash before leaves the old tag and no pages. -errno. */
int tag_write(int rank_directory_fd, const char *tag);

#endif
