/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assertions that stay on in production. CHECK is for our own state only: a failed one is a bug of
 * cpl3, prints where and what, and aborts. What comes from the disk, the kernel, a user or another
 * process never reaches a CHECK. CHECK_ON proves which thread runs a function that has one owner.
 */
#ifndef CPL3_CORE_CHECK_H
#define CPL3_CORE_CHECK_H

enum thread_role {
    THREAD_ANY,      /* main, FUSE workers, tests */
    THREAD_WRITER,   /* a rank's write thread */
    THREAD_LOADER,   /* a rank's load thread */
    THREAD_NOTIFIER, /* sends invalidations to the kernel */
};

extern _Thread_local enum thread_role thread_role;

__attribute__((noreturn, cold)) void check_failed(const char *file, int line,
                                                  const char *condition);

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0))                                                     \
            check_failed(__FILE__, __LINE__, #condition);                                          \
    } while (0)

#define CHECK_ON(role) CHECK(thread_role == THREAD_##role)

#endif
