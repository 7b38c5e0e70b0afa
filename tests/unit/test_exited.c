/* SPDX-License-Identifier: Apache-2.0 */
/* Rule P4: who is being killed by a signal, asked of real processes that are held as zombies. */
#include "fs/exited.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that runs `end`, dead but not reaped. */
static pid_t make_zombie(void (*end)(void)) {
    pid_t child = fork();
    if (child == 0) {
        end();
        _exit(0);
    }
    siginfo_t info;
    cr_assert_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    return child;
}

static void exit_with_3(void) {
    _exit(3);
}
static void kill_itself(void) {
    kill(getpid(), SIGKILL);
}
static void terminate_itself(void) {
    kill(getpid(), SIGTERM);
}

static bool is_killed_after(void (*end)(void)) {
    pid_t child = make_zombie(end);
    bool killed = exited_by_signal(child);
    waitpid(child, NULL, 0);
    return killed;
}

Test(exited, a_killed_process_is_seen_as_killed) {
    if (!exited_can_see_all())
        cr_skip_test("exit codes of other processes need root or CAP_SYS_PTRACE");
    cr_assert(is_killed_after(kill_itself));
    cr_assert(is_killed_after(terminate_itself));
}

Test(exited, an_exit_is_not_a_signal_whatever_its_code) {
    cr_assert(!is_killed_after(exit_with_3));
}

Test(exited, a_process_with_memory_is_not_being_killed) {
    cr_assert(!exited_by_signal(getpid()));
}

Test(exited, no_process_and_pid_0_are_not_being_killed) {
    pid_t child = make_zombie(kill_itself);
    waitpid(child, NULL, 0);
    cr_assert(!exited_by_signal(child));
    cr_assert(!exited_by_signal(0));
    cr_assert(!exited_by_signal(-1));
}

static void *get_process_of_this_thread(void *ret_process) {
    *(pid_t *)ret_process = exited_process_of((pid_t)syscall(SYS_gettid));
    return NULL;
}

Test(exited, a_thread_leads_to_its_process) {
    pthread_t thread;
    pid_t process = 0;
    cr_assert_eq(pthread_create(&thread, NULL, get_process_of_this_thread, &process), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(process, getpid());
    cr_assert_eq(exited_process_of(0), 0);
}

/* Fields 4-8, 10-51 do not matter. */
#define STAT(command, flags, code)                                                                 \
    "12 " command " Z 1 2 3 4 5 " flags                                                            \
    " 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 " \
    "0 0 0 0 0 0 0 " code "\n"

Test(exited, the_command_in_stat_may_look_like_anything) {
    cr_assert(exited_stat_tells_signal(STAT("(sh)", "4", "9")));
    cr_assert(exited_stat_tells_signal(STAT("(a) R 1 2) 3 (b))", "4194308", "15")));
    cr_assert(!exited_stat_tells_signal(STAT("(4 9)", "0", "9")));
}

Test(exited, both_the_exiting_flag_and_a_signal_are_needed) {
    cr_assert(!exited_stat_tells_signal(STAT("(sh)", "4", "0")));
    cr_assert(!exited_stat_tells_signal(STAT("(sh)", "4", "768")));
    cr_assert(!exited_stat_tells_signal(STAT("(sh)", "64", "9")));
    cr_assert(exited_stat_tells_signal(STAT("(sh)", "4", "139")), "a core dump sets bit 7");
}

Test(exited, a_text_that_is_not_stat_tells_nothing) {
    cr_assert(!exited_stat_tells_signal(""));
    cr_assert(!exited_stat_tells_signal("12 (sh) Z 1 2 3 4 5 4 0"));
    cr_assert(!exited_stat_tells_signal("no parenthesis 4 9"));
}
