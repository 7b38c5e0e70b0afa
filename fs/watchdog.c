/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that sleeps through every orderly stop. A thread of ours that the kernel does not let go
 * (it waits for the disk) still keeps what is left of the process; clients are free by then, since
 * the guardian aborts the connection first.
 */
#include "fs/watchdog.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "fs/exit_code.h"

/* Fixed before the thread starts. */
static const struct guardian *watchdog_guardian;
static const char *watchdog_mountpoint;

static _Atomic uint64_t progress;
static atomic_bool stopped;

static void sleep_ms(unsigned ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) != 0)
        continue;
}

static void *run_watchdog(void *argument) {
    unsigned waited_ms = 0;
    uint64_t before, now = atomic_load(&progress);
    do {
        before = now;
        sleep_ms(WATCHDOG_MS);
        waited_ms += WATCHDOG_MS;
        now = atomic_load(&progress);
    } while (now != before && waited_ms < WATCHDOG_MOST_MS);
    if (atomic_load(&stopped))
        return argument;
    guardian_abort(watchdog_guardian);
    alarm(1); /* a log that does not take the line ends the process as well */
    log_error("%s: stopping has taken %u ms: giving up; what was not committed yet is lost "
              "(misses, never wrong bytes). Does the disk of the store answer?",
              watchdog_mountpoint, waited_ms);
    _exit(EXIT_CODE_STOPPED_LATE);
}

void watchdog_note_progress(void) {
    atomic_fetch_add(&progress, 1);
}

void watchdog_stop(void) {
    atomic_store(&stopped, true);
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
