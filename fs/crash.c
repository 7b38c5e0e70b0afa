/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handler for the signals that dump a core. It runs on any thread in any state, so it calls only
 * what may be called then: send, write, open.
 */
#include "fs/crash.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"

static const struct {
    int number;
    const char *last_words;
} signals[] = {
    {SIGABRT, "ended by SIGABRT"},
    {SIGBUS, "ended by SIGBUS (an access to memory or to a mapped file failed)"},
    {SIGFPE, "ended by SIGFPE (arithmetic)"},
    {SIGILL, "ended by SIGILL (an instruction that this processor does not have)"},
    {SIGQUIT, "ended by SIGQUIT"},
    {SIGSEGV, "ended by SIGSEGV (a wild pointer)"},
    {SIGSYS, "ended by SIGSYS (a forbidden system call)"},
    {SIGTRAP, "ended by SIGTRAP"},
    {SIGXCPU, "ended by SIGXCPU (the limit of processor time)"},
};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

/* Fixed after crash_install. */
static const struct guardian *crash_guardian;
static pid_t crash_process;
static struct sigaction before[SIGNALS];

/* The instruction itself raised it, and raises it again when the handler returns. */
static bool comes_again(int number, const siginfo_t *info) {
    return info->si_code > 0 &&
           (number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE);
}

static void on_crash(int number, siginfo_t *info, void *context) {
    int saved_errno = errno;
    (void)context;
    size_t i = 0;
    while (i < SIGNALS - 1 && signals[i].number != number)
        i++;
    if (getpid() == crash_process) {
        guardian_abort(crash_guardian);
        log_last_words(signals[i].last_words);
    }
    sigaction(number, &before[i], NULL);
    if (!comes_again(number, info))
        raise(number); /* comes when the handler returns, until then it is blocked */
    errno = saved_errno;
}

void crash_install(const struct guardian *guardian) {
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO};
    crash_guardian = guardian;
    crash_process = getpid();
    for (size_t i = 0; i < SIGNALS; i++)
        sigaction(signals[i].number, &action, &before[i]);
}
