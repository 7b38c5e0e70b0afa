/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a process is being killed by a signal (rule P4): then what it has half written must not
 * be published. Read from /proc; wherever that cannot be read (pid 0 of another pid namespace,
 * hidepid, exit codes of other users) the answer is no. Any thread, no locks; see exited.c for why
 * reading the wrong file at the wrong time would hang.
 */
#ifndef CPL3_FS_EXITED_H
#define CPL3_FS_EXITED_H

#include <stdbool.h>
#include <sys/types.h>

/* It is past giving up its memory, and a signal ends it. */
bool exited_by_signal(pid_t pid);
/* The process that a thread belongs to; 0: not known. */
pid_t exited_process_of(pid_t thread);
/* This process may see exit codes of all users: it is root or has CAP_SYS_PTRACE. */
bool exited_can_see_all(void);

/* The text of /proc/<pid>/stat: PF_EXITING is set and the exit code names a signal. */
bool exited_stat_tells_signal(const char *stat);

#endif
