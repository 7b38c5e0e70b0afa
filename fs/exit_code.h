/* SPDX-License-Identifier: Apache-2.0 */
/* How the program ends: scripts and service managers tell these apart. In the manual page too. */
#ifndef CPL3_FS_EXIT_CODE_H
#define CPL3_FS_EXIT_CODE_H

enum exit_code {
    EXIT_CODE_GOOD = 0,         /* mounted (background), or served until unmounted or told to end */
    EXIT_CODE_OPTIONS = 1,      /* the command line or the environment variable is not possible */
    EXIT_CODE_STORE = 2,        /* the store cannot be opened as asked */
    EXIT_CODE_MOUNT = 3,        /* FUSE or the mountpoint */
    EXIT_CODE_RANK_IN_USE = 4,  /* another process serves a rank of this store */
    EXIT_CODE_STOPPED_LATE = 5, /* told to end, but the disk did not answer in time (watchdog.h) */
};

#endif
