/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that sleeps through every orderly stop. A thread of ours that the kernel does not let go
 * (it waits for the disk) still keeps what is left of the process; clients are free by then, since
 * the guardian aborts the connection first.
 */
#include "fs/watchdog.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "fs/exit_code.h"

/* Fixed before the thread starts. */
static const struct guardian *watchdog_guardian;
static const char *watchdog_mountpoint;

static void *run_watchdog(void *argument) {
    struct timespec left = {.tv_sec = WATCHDOG_MS / 1000, .tv_nsec = WATCHDOG_MS % 1000 * 1000000L};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) != 0)
        continue;
    guardian_abort(watchdog_guardian);
    alarm(1); /* a log that does not take the line ends the process as well */
    log_error("%s: stopping takes longer than %d ms: giving up; what was not committed yet is lost "
              "(misses, never wrong bytes). Does the disk of the store answer?",
              watchdog_mountpoint, WATCHDOG_MS);
    _exit(EXIT_CODE_STOPPED_LATE);
    return argument;
}

void watchdog_start(const struct guardian *guardian, const char *mountpoint) {
    pthread_t thread;
    watchdog_guardian = guardian;
    watchdog_mountpoint = mountpoint;
    int error = pthread_create(&thread, NULL, run_watchdog, NULL);
    if (error)
        return log_error("%s: stopping without a watchdog: %s", mountpoint, strerror(error));
    pthread_setname_np(thread, "cpl3-watchdog");
    pthread_detach(thread);
}
