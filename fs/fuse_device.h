/* SPDX-License-Identifier: Apache-2.0 */
/*
 * May this process mount a FUSE file system? Each way in which a machine or a container forbids it
 * gets a line of its own. Nothing is changed.
 */
#ifndef CPL3_FS_FUSE_DEVICE_H
#define CPL3_FS_FUSE_DEVICE_H

#include <stdbool.h>

/* 0, or -errno after one log line: the device, the right to mount, and allow_other if wanted. */
int fuse_device_check(bool allow_other);

/* The effective capability (CAP_... of <linux/capability.h>). */
bool process_has_capability(int capability);

#endif
