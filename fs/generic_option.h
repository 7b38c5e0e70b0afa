/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options that mount(8), fstab and systemd hand to every file system's helper: which of them go
 * on to the kernel, and which mean nothing here and are only accepted.
 */
#ifndef CPL3_FS_GENERIC_OPTION_H
#define CPL3_FS_GENERIC_OPTION_H

enum generic_option {
    GENERIC_OPTION_UNKNOWN,
    GENERIC_OPTION_PASSED,  /* to the kernel's mount, as it is */
    GENERIC_OPTION_IGNORED, /* for mount(8), or without meaning for this file system */
};

/* One element of a -o list, with its value if it has one. */
enum generic_option generic_option_find(const char *option);

#endif
