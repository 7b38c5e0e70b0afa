/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the FUSE requests that a daemon receives, by opcode: strace on its reads of /dev/fuse
 * shows the first bytes of each request.
 */
#ifndef CPL3_TESTS_BENCH_STRACE_H
#define CPL3_TESTS_BENCH_STRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { STRACE_OPCODES = 64, STRACE_PATH_MAX = 640 };

struct strace {
    pid_t pid;
    char log[STRACE_PATH_MAX];
};

/* Attached to all threads of the daemon when it returns. False: strace is not installed, or may
 * not trace; nothing runs then. */
bool strace_start(struct strace *strace, pid_t daemon, const char *directory);
/* Ends it: the requests since the start. */
void strace_stop(struct strace *strace, uint64_t ret_counts[STRACE_OPCODES]);

/* NULL: none of those that count. */
const char *strace_opcode_name(unsigned opcode);

#endif
