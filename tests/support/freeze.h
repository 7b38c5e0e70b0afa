/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping single threads of the daemon, as a debugger does: what others do meanwhile, and what a
 * kill finds, is then no matter of luck. Only for a daemon that is the test's own child.
 */
#ifndef CPL3_TESTS_SUPPORT_FREEZE_H
#define CPL3_TESTS_SUPPORT_FREEZE_H

#include <stdbool.h>
#include <sys/types.h>

enum { FREEZE_MAX = 64 };

struct freeze {
    pid_t threads[FREEZE_MAX];
    unsigned count;
};

/* Stops the threads whose name begins so, but never the main thread; adds them to the set. The
 * number of them. */
unsigned freeze_threads(pid_t process, const char *name, struct freeze *freeze);
/* They go on. */
void freeze_end(struct freeze *freeze);
/* They were killed: the process is not over before we have taken note of that. */
void freeze_reap(struct freeze *freeze);

/* The state of a process or thread as in /proc/<id>/status: 'R', 'S', 'D', 'Z' ...; 0: none. */
char process_state(pid_t id);
/* The thread of that name, 0 if there is none. */
pid_t thread_named(pid_t process, const char *name);
/* The child of that name, 0 if there is none. */
pid_t child_named(pid_t process, const char *name);
/* Is it inside this system call and waits? */
bool is_inside_syscall(pid_t id, long number);

#endif
