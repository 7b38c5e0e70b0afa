/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways to write, fork, exec, dup, mmap, die and close: one function each, run in a process of its
 * own (the "writer") on a name that does not exist. The table says how the writer ends and what is
 * published when all is over (P2–P4). test_flush_sequences.c runs them.
 */
#ifndef CPL3_TESTS_MOUNT_FLUSH_SEQUENCES_H
#define CPL3_TESTS_MOUNT_FLUSH_SEQUENCES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum {
    ABSENT = -1,
    BLOCK = 4096,
    SEQUENCE_BROKEN = 90, /* exit status: the sequence itself could not be carried out */
    SEQUENCE_WRONG = 91,  /* it saw something wrong on its way */
};

struct sequence {
    const char *name;
    void (*run)(const char *path); /* returning is exit status 0 */
    int end;                       /* exit status, or -signal */
    long published;                /* bytes, or ABSENT */
    long published_pid0;           /* where the daemon cannot see who writes (limit of P4) */
    bool may_be_absent;            /* killed after the last write-back: a limit, either is right */
};

/* Each ends with an entry without a name. */
extern const struct sequence sequences_processes[];
extern const struct sequence sequences_exec[];
extern const struct sequence sequences_killed[];
extern const struct sequence sequences_requests[];
extern const struct sequence sequences_mmap[];

/* Helpers of the sequences; what fails ends the process with SEQUENCE_BROKEN. */
int sequence_create(const char *path, int flags); /* O_CREAT|O_TRUNC|flags */
void sequence_write(int fd, int blocks);          /* of 'x'; EIO is accepted: a dead handle */
void sequence_require(bool condition, const char *what);
void sequence_wait(int pid);
void *sequence_pause(void *unused) __attribute__((noreturn)); /* until killed; also for a thread */
const char *sequence_bytes(void);                             /* 64 KiB of 'x', page aligned */

#endif
