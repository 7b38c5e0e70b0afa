/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The notifier without a kernel: an output of the test's own records what would be sent, and can
 * hold the notifier inside a notification for as long as a test likes (W6: nobody waits for it).
 */
#include "fs/notify.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "tests/support/wait.h"

static struct notifier *notifier;
static sem_t sent;     /* posted when a notification was recorded */
static sem_t may_pass; /* with `gated`: each notification takes one before it returns */
static _Atomic bool gated;
static int answer;
static bool on_notifier_thread;
static struct {
    uint64_t parent_node;
    char name[256];
    size_t name_bytes;
} last_entry;

static void record(void) {
    on_notifier_thread = thread_role == THREAD_NOTIFIER;
    sem_post(&sent);
    if (gated)
        sem_wait(&may_pass);
}

static int record_entry(void *argument, uint64_t parent_node, const char *name, size_t name_bytes) {
    (void)argument;
    last_entry.parent_node = parent_node;
    last_entry.name_bytes = name_bytes;
    snprintf(last_entry.name, sizeof last_entry.name, "%s", name);
    record();
    return answer;
}

static int record_everything(void *argument) {
    (void)argument;
    record();
    return answer;
}

static void start(void) {
    static const struct notifier_output output = {record_entry, record_everything, NULL};
    cr_assert(notifier_start_output(notifier, &output) == 0);
}

static void make(void) {
    sem_init(&sent, 0, 0);
    sem_init(&may_pass, 0, 0);
    cr_assert(notifier_create(&notifier) == 0);
}

static void destroy(void) {
    gated = false;
    sem_post(&may_pass);
    notifier_stop(notifier);
    notifier_destroy(notifier);
}

static struct notifier_counts counts(void) {
    struct notifier_counts now;
    notifier_get_counts(notifier, &now);
    return now;
}

TestSuite(notify, .init = make, .fini = destroy, .timeout = 20);

Test(notify, a_name_reaches_the_kernel_on_the_notifier_thread) {
    start();
    const char *name = "0123456789abcdef-and-more";
    notify_entry(notifier, 42, name, 16);
    sem_wait(&sent);
    cr_assert(last_entry.parent_node == 42 && last_entry.name_bytes == 16);
    cr_assert_str_eq(last_entry.name, "0123456789abcdef");
    cr_assert(on_notifier_thread);
}

Test(notify, errors_of_the_kernel_do_not_stop_it) {
    answer = -ENOENT;
    start();
    notify_entry(notifier, 1, "a", 1);
    notify_everything(notifier);
    notify_entry(notifier, 1, "b", 1);
    sem_wait(&sent);
    notifier_stop(notifier);
    cr_assert(counts().everything == 0);
}

Test(notify, callers_do_not_wait_while_a_notification_blocks) {
    gated = true;
    start();
    notify_entry(notifier, 1, "first", 5);
    sem_wait(&sent); /* and stays inside */
    for (int i = 0; i < 1000; i++)
        notify_entry(notifier, 1, "later", 5);
    cr_assert(counts().queued == 1000);
    gated = false;
    sem_post(&may_pass);
    for (int i = 0; i < 1000; i++)
        sem_wait(&sent);
}

Test(notify, an_overflow_becomes_one_notification_of_everything) {
    gated = true;
    start();
    notify_entry(notifier, 1, "first", 5);
    sem_wait(&sent);
    for (int i = 0; i < NOTIFY_QUEUE_MAX; i++)
        notify_entry(notifier, 1, "name", 4);
    cr_assert(counts().queued == NOTIFY_QUEUE_MAX && counts().overflows == 0);
    notify_entry(notifier, 1, "one too many", 12);
    notify_entry(notifier, 1, "covered by everything", 21);
    cr_assert(counts().queued == 1 && counts().overflows == 1);
    gated = false;
    sem_post(&may_pass);
    sem_wait(&sent);
    notify_entry(notifier, 7, "after", 5);
    sem_wait(&sent);
    cr_assert(last_entry.parent_node == 7);
    notifier_stop(notifier);
    cr_assert(counts().everything == 1 && counts().entries == 2);
}

Test(notify, everything_swallows_the_names_that_wait) {
    gated = true;
    start();
    notify_entry(notifier, 1, "first", 5);
    sem_wait(&sent);
    notify_entry(notifier, 1, "second", 6);
    notify_everything(notifier);
    notify_everything(notifier);
    cr_assert(counts().queued == 1);
}

Test(notify, before_start_and_after_stop_nothing_is_sent_or_kept) {
    notify_entry(notifier, 1, "early", 5);
    notify_everything(notifier);
    cr_assert(counts().queued == 0);
    start();
    notifier_stop(notifier);
    notify_entry(notifier, 1, "late", 4);
    cr_assert(counts().queued == 0 && counts().entries == 0);
}

static void *stop_notifier(void *argument) {
    (void)argument;
    notifier_stop(notifier);
    return NULL;
}

Test(notify, stopping_drops_what_waits) {
    gated = true;
    start();
    notify_entry(notifier, 1, "first", 5);
    sem_wait(&sent); /* and stays inside */
    for (int i = 0; i < 10; i++)
        notify_entry(notifier, 1, "never sent", 10);
    pthread_t stopper;
    cr_assert(pthread_create(&stopper, NULL, stop_notifier, NULL) == 0);
    cr_assert(WAIT_UNTIL(counts().queued == 0, 10));
    sem_post(&may_pass);
    pthread_join(stopper, NULL);
    cr_assert(counts().entries == 1);
}

Test(notify, no_notifier_is_fine) {
    notify_entry(NULL, 1, "x", 1);
    notify_everything(NULL);
    notifier_stop(NULL);
    notifier_destroy(NULL);
}

Test(notify, a_name_of_more_than_255_bytes_is_our_bug, .signal = SIGABRT) {
    char name[256];
    memset(name, 'a', sizeof name);
    notify_entry(notifier, 1, name, sizeof name);
}
