/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The notifier's queue and thread (W6). The queue is a ring of names; one flag stands for "all
 * names" and swallows the ring. A failed notification is never an error: ENOENT says that the
 * kernel has no such entry, anything else that the mount is going away.
 */
#include "fs/notify.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/format.h"

enum notifier_state { NOTIFIER_CREATED, NOTIFIER_RUNNING, NOTIFIER_STOPPING };

struct queued_name {
    uint64_t parent_node;
    size_t name_bytes;
    char *name; /* the queue's, zero terminated: libfuse sends the terminator too */
};

struct notifier {
    pthread_mutex_t mutex; /* never held across a notification */
    pthread_cond_t queued;
    pthread_t thread;
    /* fixed after start */
    struct notifier_output output;
    struct fuse_session *session;
    struct compat *compat;
    /* under mutex */
    enum notifier_state state;
    bool everything;
    size_t first, count; /* in names, a ring */
    struct notifier_counts counts;
    struct queued_name names[NOTIFY_QUEUE_MAX];
    uint64_t done;             /* of what was ever queued: sent, or covered by an epoch */
    struct notify_call *calls; /* first come, first called */
};

int notifier_create(struct notifier **ret_notifier) {
    struct notifier *notifier = calloc(1, sizeof *notifier);
    if (!notifier)
        return -ENOMEM;
    pthread_mutex_init(&notifier->mutex, NULL);
    pthread_cond_init(&notifier->queued, NULL);
    *ret_notifier = notifier;
    return 0;
}

static void drop_names(struct notifier *notifier) {
    for (; notifier->count > 0; notifier->count--) {
        free(notifier->names[notifier->first].name);
        notifier->first = (notifier->first + 1) % NOTIFY_QUEUE_MAX;
        notifier->done++;
    }
}

void notifier_destroy(struct notifier *notifier) {
    if (!notifier)
        return;
    CHECK(notifier->state != NOTIFIER_RUNNING);
    drop_names(notifier);
    pthread_cond_destroy(&notifier->queued);
    pthread_mutex_destroy(&notifier->mutex);
    free(notifier);
}

/* callers' side */

static void queue_everything(struct notifier *notifier) {
    drop_names(notifier);
    notifier->everything = true;
}

/* A name behind a waiting "everything" is covered by it: the caller's change came first. */
static void queue_name(struct notifier *notifier, uint64_t parent_node, const char *name,
                       size_t name_bytes) {
    if (notifier->everything)
        return;
    char *copy = notifier->count < NOTIFY_QUEUE_MAX ? strndup(name, name_bytes) : NULL;
    if (!copy) { /* full, or no memory: what cannot be named is covered by everything */
        notifier->counts.overflows++;
        return queue_everything(notifier);
    }
    size_t last = (notifier->first + notifier->count) % NOTIFY_QUEUE_MAX;
    notifier->names[last] = (struct queued_name){parent_node, name_bytes, copy};
    notifier->count++;
}

void notify_entry(struct notifier *notifier, uint64_t parent_node, const char *name,
                  size_t name_bytes) {
    CHECK(name_bytes <= NAME_BYTES_MAX);
    if (!notifier)
        return;
    SCOPE_LOCK(&notifier->mutex);
    if (notifier->state != NOTIFIER_RUNNING)
        return;
    queue_name(notifier, parent_node, name, name_bytes);
    pthread_cond_signal(&notifier->queued);
}

void notify_everything(struct notifier *notifier) {
    if (!notifier)
        return;
    SCOPE_LOCK(&notifier->mutex);
    if (notifier->state != NOTIFIER_RUNNING)
        return;
    queue_everything(notifier);
    pthread_cond_signal(&notifier->queued);
}

void notify_when_sent(struct notifier *notifier, struct notify_call *call) {
    if (notifier) {
        SCOPE_LOCK(&notifier->mutex);
        if (notifier->state == NOTIFIER_RUNNING) {
            struct notify_call **last = &notifier->calls;
            while (*last)
                last = &(*last)->next;
            call->next = NULL;
            call->due = notifier->done + notifier->count + notifier->everything;
            *last = call;
            pthread_cond_signal(&notifier->queued);
            return;
        }
    }
    call->sent(call);
}

void notifier_get_counts(struct notifier *notifier, struct notifier_counts *ret_counts) {
    *ret_counts = (struct notifier_counts){0};
    if (!notifier)
        return;
    SCOPE_LOCK(&notifier->mutex);
    *ret_counts = notifier->counts;
    ret_counts->queued = notifier->count + notifier->everything;
}

/* the notifier's side */

static void send_everything(struct notifier *notifier) {
    notifier->everything = false;
    pthread_mutex_unlock(&notifier->mutex);
    int error = notifier->output.everything(notifier->output.argument);
    pthread_mutex_lock(&notifier->mutex);
    notifier->counts.everything += error == 0;
    notifier->done++;
}

static void send_first_name(struct notifier *notifier) {
    struct queued_name queued = notifier->names[notifier->first];
    notifier->first = (notifier->first + 1) % NOTIFY_QUEUE_MAX;
    notifier->count--;
    pthread_mutex_unlock(&notifier->mutex);
    notifier->output.entry(notifier->output.argument, queued.parent_node, queued.name,
                           queued.name_bytes);
    free(queued.name);
    pthread_mutex_lock(&notifier->mutex);
    notifier->counts.entries++;
    notifier->done++;
}

/* Under the mutex, which is left meanwhile. */
static void run_first_call(struct notifier *notifier) {
    struct notify_call *call = notifier->calls;
    notifier->calls = call->next;
    pthread_mutex_unlock(&notifier->mutex);
    call->sent(call);
    pthread_mutex_lock(&notifier->mutex);
}

static void *run_notifier(void *argument) {
    struct notifier *notifier = argument;
    thread_role = THREAD_NOTIFIER;
    SCOPE_LOCK(&notifier->mutex);
    while (notifier->state == NOTIFIER_RUNNING) {
        if (notifier->calls && notifier->calls->due <= notifier->done)
            run_first_call(notifier);
        else if (notifier->everything)
            send_everything(notifier);
        else if (notifier->count > 0)
            send_first_name(notifier);
        else
            pthread_cond_wait(&notifier->queued, &notifier->mutex);
    }
    while (notifier->calls)
        run_first_call(notifier);
    return NULL;
}

int notifier_start_output(struct notifier *notifier, const struct notifier_output *output) {
    SCOPE_LOCK(&notifier->mutex);
    CHECK(notifier->state == NOTIFIER_CREATED);
    notifier->output = *output;
    notifier->state = NOTIFIER_RUNNING; /* the thread waits for the mutex */
    int error = -pthread_create(&notifier->thread, NULL, run_notifier, notifier);
    if (error)
        notifier->state = NOTIFIER_CREATED;
    else
        pthread_setname_np(notifier->thread, "cpl3-notify");
    return error;
}

void notifier_stop(struct notifier *notifier) {
    if (!notifier)
        return;
    {
        SCOPE_LOCK(&notifier->mutex);
        if (notifier->state != NOTIFIER_RUNNING)
            return;
        notifier->state = NOTIFIER_STOPPING;
        notifier->everything = false;
        drop_names(notifier);
        pthread_cond_signal(&notifier->queued);
    }
    pthread_join(notifier->thread, NULL);
}

/* to the kernel */

static int send_entry_to_kernel(void *argument, uint64_t parent_node, const char *name,
                                size_t name_bytes) {
    CHECK_ON(NOTIFIER);
    struct notifier *notifier = argument;
    return fuse_lowlevel_notify_inval_entry(notifier->session, parent_node, name, name_bytes);
}

static int send_everything_to_kernel(void *argument) {
    CHECK_ON(NOTIFIER);
    struct notifier *notifier = argument;
    return compat_increase_epoch(notifier->compat, notifier->session);
}

int notifier_start(struct notifier *notifier, struct fuse_session *session, struct compat *compat) {
    notifier->session = session;
    notifier->compat = compat;
    struct notifier_output output = {
        .entry = send_entry_to_kernel,
        .everything = send_everything_to_kernel,
        .argument = notifier,
    };
    return notifier_start_output(notifier, &output);
}
