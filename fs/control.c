/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of `.cpl3/`: one table. A command over several ranks starts on each of them and leaves
 * one waiter per rank; the last that comes back answers for all.
 */
#include "fs/control.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/log.h"

/* Those that concern the mount; the store prints its own. */
static void print_options(const struct fs_options *options, FILE *out) {
    fprintf(out, "threads=%u\ndf=%s\numask=%04o\nallow_other=%d\n", options->threads,
            options->df_reclaimable ? "reclaimable" : "used", options->umask_bits,
            options->allow_other);
    if (options->uid_given)
        fprintf(out, "uid=%u\n", options->uid);
    if (options->gid_given)
        fprintf(out, "gid=%u\n", options->gid);
}

static const struct control_file {
    const char *name;
    uint32_t mode;
    void (*print)(struct store *store, FILE *out); /* NULL: not readable */
    void (*print_more)(const struct fs_options *options, FILE *out);
} control_files[] = {
    {"stats", 0444, store_print_stats, NULL},
    {"metrics", 0444, store_print_metrics, NULL},
    {"config", 0444, store_print_config, print_options},
    {"control", 0200, NULL, NULL},
};

unsigned control_count(void) {
    return sizeof control_files / sizeof control_files[0];
}

const char *control_name(unsigned number) {
    CHECK(number < control_count());
    return control_files[number].name;
}

uint32_t control_mode(unsigned number) {
    CHECK(number < control_count());
    return control_files[number].mode;
}

int control_read_all(struct store *store, const struct fs_options *options, unsigned number,
                     char **ret_text, size_t *ret_bytes) {
    CHECK(number < control_count());
    if (!control_files[number].print)
        return -EACCES;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return -ENOMEM;
    control_files[number].print(store, out);
    if (control_files[number].print_more)
        control_files[number].print_more(options, out);
    bool failed = ferror(out);
    if (fclose(out) != 0 || failed) {
        free(text);
        return -ENOMEM;
    }
    *ret_text = text;
    *ret_bytes = bytes;
    return 0;
}

/* commands over several ranks */

struct command;

struct rank_waiter {
    struct waiter waiter; /* first: core gives it back by this address */
    struct command *command;
};

struct command {
    struct waiter *caller;
    atomic_int first_error; /* 0: none yet */
    atomic_uint waiting;    /* ranks that have not come back, plus the starter itself */
    struct rank_waiter ranks[];
};

static void note_result(struct command *command, int result) {
    int none = 0;
    if (result != 0)
        atomic_compare_exchange_strong(&command->first_error, &none, result);
}

static bool is_last(struct command *command) {
    return atomic_fetch_sub(&command->waiting, 1) == 1;
}

static void on_rank_done(struct waiter *waiter, int result) {
    struct command *command = ((struct rank_waiter *)waiter)->command;
    note_result(command, result);
    if (!is_last(command))
        return;
    struct waiter *caller = command->caller;
    result = atomic_load(&command->first_error);
    free(command);
    caller->wake(caller, result);
}

/*
 * Runs `operation` on the ranks first..last. The starter counts as one of those waited for, so that
 * the command cannot end, and the caller not be woken, while ranks are still being started; if all
 * came back by then, the answer is the return value.
 */
static int run_on_ranks(struct store *store, uint16_t first, uint16_t last,
                        int (*operation)(struct rank *, struct waiter *), struct waiter *caller) {
    unsigned count = last - first + 1u;
    struct command *command = calloc(1, sizeof *command + count * sizeof command->ranks[0]);
    if (!command)
        return -ENOMEM;
    command->caller = caller;
    atomic_store(&command->waiting, count + 1);
    for (unsigned i = 0; i < count; i++) {
        struct rank_waiter *rank = &command->ranks[i];
        *rank = (struct rank_waiter){.waiter.wake = on_rank_done, .command = command};
        int result = operation(store_rank(store, (uint16_t)(first + i)), &rank->waiter);
        if (result == -EINPROGRESS)
            continue;
        note_result(command, result);
        bool last_one = is_last(command);
        CHECK(!last_one);
    }
    if (!is_last(command))
        return -EINPROGRESS;
    int result = atomic_load(&command->first_error);
    free(command);
    return result;
}

/* the command language */

/* A decimal rank number, nothing else. */
static bool parse_rank(const char *text, uint16_t *ret_rank) {
    unsigned rank = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 4 || text[digits] != '\0')
        return false;
    for (size_t i = 0; i < digits; i++)
        rank = rank * 10 + (unsigned)(text[i] - '0');
    *ret_rank = (uint16_t)rank;
    return true;
}

static int refuse(const char *text) {
    static struct log_limit limit;
    log_limited(&limit,
                ".cpl3/control: unknown command '%.32s'; allowed: clear, clear RANK, commit", text);
    return -EINVAL;
}

static int run_clear_rank(struct store *store, uint16_t rank, struct waiter *waiter) {
    if (!store_rank(store, rank))
        return -ENOENT;
    return run_on_ranks(store, rank, rank, rank_clear, waiter);
}

int control_write(struct store *store, const char *text, size_t bytes, struct waiter *waiter) {
    char command[CONTROL_COMMAND_BYTES_MAX + 1];
    if (bytes > CONTROL_COMMAND_BYTES_MAX || memchr(text, '\0', bytes))
        return refuse("(too long, or with a zero byte)");
    if (bytes > 0 && text[bytes - 1] == '\n')
        bytes--;
    memcpy(command, text, bytes);
    command[bytes] = '\0';
    const struct config *config = store_config(store);
    uint16_t rank;
    if (strcmp(command, "clear") == 0)
        return run_on_ranks(store, config->rank_first, config->rank_last, rank_clear, waiter);
    if (strncmp(command, "clear ", 6) == 0 && parse_rank(command + 6, &rank))
        return run_clear_rank(store, rank, waiter);
    if (strcmp(command, "commit") == 0)
        return run_on_ranks(store, config->rank_first, config->rank_last, rank_commit, waiter);
    return refuse(command);
}
