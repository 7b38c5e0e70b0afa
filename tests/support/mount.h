/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real mount for one test: a temp directory with store/ and mnt/, the daemon in the foreground
 * with its log in a file, and the ways to end it. The daemon is $CPL3_DAEMON, else build/cpl3fs.
 *
 * Nothing is left behind, also when the test crashes or runs out of time: the daemon dies with the
 * test (PR_SET_PDEATHSIG), and a janitor process waits for the test's end to detach the mount and
 * to remove the directory. When an assertion fails, or the test dies, the daemon's log is printed
 * and kept in $CPL3_TEST_LOGS (else $TMPDIR, else /tmp).
 *
 * Everything here asserts for itself: a call that returns has done what it says. Only for the main
 * thread of the test process, never for its children (mount_path is for anybody).
 */
#ifndef CPL3_TESTS_SUPPORT_MOUNT_H
#define CPL3_TESTS_SUPPORT_MOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    MOUNT_PATH_MAX = 1024,
    MOUNT_DEADLINE_SECONDS = 20, /* for what takes milliseconds; generous for sanitizers */
};

struct mount_settings {
    const char *size;       /* NULL: 256M */
    const char *options;    /* further options, comma separated; NULL: none */
    const char *ranks;      /* NULL: 0 */
    unsigned threads;       /* 0: the daemon's choice */
    bool own_pid_namespace; /* the daemon sees every caller as pid 0 */
    bool stopped;           /* only the directories: the test starts the daemon */
};

struct mount {
    char base[256];
    char store[300];
    char point[300];
    char rank[300]; /* point/rank0 */
    char log[300];
    struct mount_settings settings;
    pid_t daemon;  /* 0: not running */
    pid_t janitor; /* 0: not open */
    pid_t owner;   /* the test's process */
};

void mount_open(struct mount *mount, const struct mount_settings *settings);
/* For .fini: ends the daemon if it runs (unless it exits 0, this aborts), removes everything. */
void mount_close(struct mount *mount);

/* Mounts again; options (NULL: none) are added to those of the settings. */
void mount_start(struct mount *mount, const char *options);
/* The same without waiting until the mount serves: it only stands in the mount table. */
void mount_launch(struct mount *mount, const char *options);
/* umount: the daemon exits 0. */
void mount_stop(struct mount *mount);
/* Sends the signal and waits: the wait status. The mount is gone. */
int mount_signal(struct mount *mount, int signal, unsigned seconds);
/* kill -9, and the dead mount is detached. */
void mount_kill(struct mount *mount);

/* Absolute path of something under rank0. Up to 16 results of a thread are valid at a time. */
const char *mount_path(const struct mount *mount, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A number from .cpl3/stats, such as "rank0.corrupt" or "open_handles". */
uint64_t mount_counter(const struct mount *mount, const char *name);
/* Writes a command to .cpl3/control: 0 or -errno. */
int mount_control(const struct mount *mount, const char *command);
/* All that is published is durable. */
void mount_commit(const struct mount *mount);
/* Until the daemon has answered every RELEASE: no file of the mount is open in it. */
void mount_wait_released(const struct mount *mount);
/* Is this directory a mount point? */
bool mount_is_mounted(const char *point);

/* Path of the daemon's program. */
const char *mount_daemon(void);

#endif
