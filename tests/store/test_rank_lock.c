/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for a rank, and who is refused at once. The holder is this process in disguise: it has
 * the lock and writes what a holder would.
 */
#include "core/rank_lock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "tests/support/files.h"
#include "tests/support/freeze.h"
#include "tests/support/store_world.h"
#include "tests/support/wait.h"

enum { NO_DEVICE = 987654 };

static struct store_world world;
static int lock_fd;
static unsigned root_major, root_minor; /* a device that is mounted */

static void set_up(void) {
    struct stat root;
    char path[160];
    cr_assert_eq(stat("/", &root), 0);
    root_major = major(root.st_dev);
    root_minor = minor(root.st_dev);
    store_world_init(&world);
    cr_assert_eq(store_world_open(&world), 0);
    store_world_close(&world);
    snprintf(path, sizeof(path), "%s/rank0", world.path);
    lock_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(flock(lock_fd, LOCK_EX | LOCK_NB), 0, "closing the store freed the rank");
}

static void tear_down(void) {
    close(lock_fd);
    store_world_destroy(&world);
}

TestSuite(rank_lock, .init = set_up, .fini = tear_down, .timeout = 60);

static void write_holder(const char *format, ...) {
    char path[160], text[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    snprintf(path, sizeof(path), "%s/rank0/holder", world.path);
    cr_assert_eq(file_put_text(path, text), 0);
}

/* Gives the rank back as soon as the test's thread is waiting for it. */
static void *unlock_for_waiter(void *argument) {
    pid_t waiter = *(pid_t *)argument;
    bool waits = WAIT_UNTIL(is_inside_syscall(waiter, SYS_clock_nanosleep), 10);
    flock(lock_fd, LOCK_UN);
    return waits ? argument : NULL;
}

static void expect_waiting(void) {
    pthread_t thread;
    pid_t waiter = gettid();
    void *waited;
    pthread_create(&thread, NULL, unlock_for_waiter, &waiter);
    cr_expect_eq(store_preflight(&world.config), 0);
    pthread_join(thread, &waited);
    cr_expect(waited);
}

static void expect_refusal(double least_seconds, double most_seconds) {
    uint64_t start_ns = clock_monotonic_ns();
    cr_expect_eq(store_preflight(&world.config), -EBUSY);
    double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    cr_expect(seconds >= least_seconds && seconds < most_seconds, "after %.2f s", seconds);
}

Test(rank_lock, a_holder_that_serves_is_refused_at_once) {
    write_holder("%d serving %u:%u\n", getpid(), root_major, root_minor);
    expect_refusal(0, 0.5);
}

Test(rank_lock, a_holder_that_starts_is_refused_at_once) {
    write_holder("%d opening\n", getpid());
    expect_refusal(0, 0.5);
}

Test(rank_lock, a_holder_that_does_not_say_who_it_is_is_refused_soon) {
    expect_refusal(0.9, 5);
}

Test(rank_lock, a_holder_that_is_closing_is_waited_for) {
    write_holder("%d closing\n", getpid());
    expect_waiting();
}

Test(rank_lock, a_holder_whose_mount_is_gone_is_waited_for) {
    write_holder("%d serving 0:%u\n", getpid(), NO_DEVICE);
    expect_waiting();
}

Test(rank_lock, a_holder_that_is_dead_is_waited_for) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    write_holder("%d serving %u:%u\n", child, root_major, root_minor);
    cr_assert(WAIT_UNTIL(process_state(child) == 'Z', 10));
    expect_waiting(); /* for a zombie, as long as one of its threads is stuck */
    cr_assert_eq(flock(lock_fd, LOCK_EX | LOCK_NB), 0);
    waitpid(child, NULL, 0);
    expect_waiting();
}

Test(rank_lock, a_holder_that_goes_on_closing_is_refused_in_the_end) {
    write_holder("%d closing\n", getpid());
    expect_refusal(RANK_LOCK_WAIT_SECONDS, RANK_LOCK_WAIT_SECONDS + 5);
}

Test(rank_lock, the_server_of_a_mount_is_found_by_its_device) {
    pid_t found = 0, child = fork();
    if (child == 0)
        _exit(0);
    write_holder("%d serving 0:77\n", getpid());
    cr_expect_eq(store_find_server(world.path, 0, 77, &found), 0);
    cr_expect_eq(found, getpid());
    cr_expect_eq(store_find_server(world.path, 0, 78, &found), -ENOENT);
    cr_expect_eq(store_find_server("/no/such/store", 0, 77, &found), -ENOENT);
    waitpid(child, NULL, 0);
    write_holder("%d serving 0:77\n", child);
    cr_expect_eq(store_find_server(world.path, 0, 77, &found), -ESRCH);
    write_holder("%d closing\n", getpid());
    cr_expect_eq(store_find_server(world.path, 0, 77, &found), -ENOENT);
}

static void expect_holder(const char *words) {
    char path[160], wanted[96];
    snprintf(path, sizeof(path), "%s/rank0/holder", world.path);
    snprintf(wanted, sizeof(wanted), "%d %s\nsize %lu\n", getpid(), words, world.config.size_bytes);
    cr_expect(file_is_text(path, wanted), "not: %s", wanted);
}

Test(rank_lock, a_store_says_how_far_it_is) {
    flock(lock_fd, LOCK_UN);
    cr_assert_eq(store_world_open(&world), 0);
    expect_holder("opening");
    store_note_serving(world.store, 0, 77);
    expect_holder("serving 0:77");
    store_note_closing(world.store);
    expect_holder("closing");
}

/* last words */

Test(rank_lock, last_words_of_a_crash_are_told_by_the_next_opening_and_removed) {
    char path[160];
    flock(lock_fd, LOCK_UN);
    snprintf(path, sizeof(path), "%s/" LOG_FATAL_NAME, world.path);
    cr_assert_eq(store_world_open(&world), 0);
    log_fatal("rank %d: the sky fell", 0);
    cr_expect(file_is_text(path, "rank 0: the sky fell\n"));
    store_world_close(&world);
    cr_assert_eq(store_world_open(&world), 0);
    cr_expect_eq(access(path, F_OK), -1);
}
