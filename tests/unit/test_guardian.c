/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guardian without a mount: when it ends, and when it must not. What it is for, aborting a
 * connection, is in tests/mount/test_killed_daemon.c.
 */
#include "fs/guardian.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/connection.h"
#include "tests/support/freeze.h"
#include "tests/support/wait.h"

static const struct mount_entry no_connection = {.minor = 987654321, .type = "none"};

static struct guardian guardian;
static char first_word[] = "a program with a long name", second_word[] = "and an argument";

/* One behind the other, as the kernel gives them. */
static void start(const char *mountpoint) {
    static char memory[sizeof first_word + sizeof second_word];
    memcpy(memory, first_word, sizeof first_word);
    memcpy(memory + sizeof first_word, second_word, sizeof second_word);
    char *argv[] = {memory, memory + sizeof first_word, NULL};
    guardian_start(mountpoint, argv, &guardian);
}

static bool has_ended(pid_t process) {
    return (kill(process, 0) != 0 && errno == ESRCH) || process_state(process) == 'Z';
}

static bool is_readable(void) {
    struct pollfd wait = {.fd = guardian.fd, .events = POLLIN};
    return poll(&wait, 1, 0) == 1;
}

static void stop(void) {
    guardian_stop(&guardian);
}

TestSuite(guardian, .fini = stop, .timeout = 20);

Test(guardian, stopping_it_leaves_no_process) {
    start("/nowhere");
    pid_t pid = guardian.pid;
    cr_assert(pid > 0 && kill(pid, 0) == 0);
    guardian_stop(&guardian);
    cr_assert(kill(pid, 0) != 0 && errno == ESRCH, "it is there, or a zombie");
    cr_assert(guardian.pid == 0 && guardian.fd == -1);
    guardian_stop(&guardian); /* none: nothing happens */
}

Test(guardian, its_end_is_seen_and_it_is_reaped) {
    start("/nowhere");
    pid_t pid = guardian.pid;
    cr_assert(!is_readable());
    kill(pid, SIGKILL);
    cr_assert(WAIT_UNTIL(is_readable(), 10));
    guardian_bury(&guardian);
    cr_assert(kill(pid, 0) != 0 && errno == ESRCH);
    cr_assert(!guardian_watch(&guardian, &no_connection), "there is none");
    guardian_abort(&guardian);
}

Test(guardian, it_ends_when_told_to_abort) {
    start("/nowhere");
    guardian_abort(&guardian);
    cr_assert(WAIT_UNTIL(has_ended(guardian.pid), 10));
}

static void on_alarm(int number) {
    (void)number;
}

/* io_uring interrupts waits in the same way. */
Test(guardian, signals_do_not_cut_the_wait_for_its_answer_short) {
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {.it_interval = {.tv_usec = 50}, .it_value = {.tv_usec = 50}};
    start("/nowhere");
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 200; i++) {
        guardian_watch(&guardian, &no_connection);
        cr_assert(!is_readable(), "an answer that nobody took");
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
}

/* the death of the main thread */

static void *stay(void *unused) {
    pause();
    return unused;
}

/* A process whose main thread ends while another one stays, as if it were stuck. */
static pid_t make_half_dead(pid_t *shared_pid) {
    pid_t process = fork();
    if (process != 0)
        return process;
    pthread_t thread;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    start("/nowhere");
    pthread_create(&thread, NULL, stay, NULL);
    *shared_pid = guardian.pid;
    syscall(SYS_exit, 0); /* of this thread */
    _exit(1);
}

Test(guardian, it_ends_when_the_main_thread_does_whatever_the_others_do) {
    pid_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t process = make_half_dead(shared);
    cr_assert(WAIT_UNTIL(*(volatile pid_t *)shared != 0, 10));
    cr_assert(WAIT_UNTIL(has_ended(*shared), 10), "the guardian does not notice");
    cr_assert(kill(process, 0) == 0 && waitpid(process, NULL, WNOHANG) == 0,
              "the process was to be alive");
    kill(process, SIGKILL);
    waitpid(process, NULL, 0);
}

/* connections */

Test(connection, what_is_not_there_cannot_be_aborted) {
    int fd;
    struct mount_entry disk = {.major = 8, .minor = 1};
    cr_assert(connection_open_abort(&no_connection, &fd) < 0);
    cr_assert_eq(connection_open_abort(&disk, &fd), -EINVAL);
    cr_assert_eq(connection_abort("/no/such/mount", &no_connection), -ENOENT);
    cr_assert_eq(connection_abort("/", &no_connection), -ENOENT, "another mount lies there");
}
