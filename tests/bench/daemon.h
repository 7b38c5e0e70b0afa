/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cpl3 mount under measurement: started in the foreground as a child, so that its pid is known
 * and it ends (and unmounts) when this program does. Ends the program on errors, naming the
 * daemon's log. Main thread only.
 */
#ifndef CPL3_TESTS_BENCH_DAEMON_H
#define CPL3_TESTS_BENCH_DAEMON_H

#include <stdint.h>
#include <sys/types.h>

enum { DAEMON_PATH_MAX = 512 };

struct daemon {
    pid_t pid; /* 0: not running */
    char store[DAEMON_PATH_MAX];
    char point[DAEMON_PATH_MAX];
    char rank[DAEMON_PATH_MAX + 8]; /* point/rank0 */
    char log[DAEMON_PATH_MAX];
};

/* Store, mountpoint and log will be below the directory. A mount that an earlier run left there is
 * detached; what lies there is removed. */
void daemon_init(struct daemon *daemon, const char *directory);

/* Mounts. The seconds from the start of the program until the mount answers. */
double daemon_start(struct daemon *daemon, const char *options);
/* Waits until the daemon has faulted its payload memory in. */
void daemon_wait_touched(const struct daemon *daemon);
/* Unmounts and waits for the end; everything is committed. Not running: nothing to do. */
void daemon_stop(struct daemon *daemon);

/* A command of .cpl3/control; done when it returns. */
void daemon_control(const struct daemon *daemon, const char *command);
/* A counter of rank 0 in .cpl3/stats. */
uint64_t daemon_counter(const struct daemon *daemon, const char *name);

struct daemon_memory {
    uint64_t resident_bytes;  /* VmRSS: with the pages of the index that are mapped */
    uint64_t anonymous_bytes; /* RssAnon: the process's own */
};
void daemon_get_memory(const struct daemon *daemon, struct daemon_memory *ret_memory);

#endif
