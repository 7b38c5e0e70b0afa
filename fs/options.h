/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the command line asks for, in one table: names, defaults, allowed values and help. The
 * parser,
 * --help and the manual page (checked by a test) follow it. The command line is that of a mount(8)
 * helper: `STORE MOUNTPOINT [-f] [-v] [-o name=value,flag]...`.
 */
#ifndef CPL3_FS_OPTIONS_H
#define CPL3_FS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/config.h"

#define COLD_START_VARIABLE "SGLANG_CP_L3_COLD_START"

enum { OPTIONS_MESSAGE_BYTES = 1024 };

enum options_action { OPTIONS_MOUNT, OPTIONS_HELP, OPTIONS_VERSION_WANTED };

struct options {
    enum options_action action;
    struct config config; /* config.store_path is owned by these options */
    char *mountpoint;     /* as given; owned */
    char *mount_flags; /* comma-separated, for the kernel (nodev, noexec ...); owned, "" if none */
    bool foreground;
    bool verbose;
    bool allow_other;
    bool df_reclaimable; /* statfs counts what can be evicted as free */
    uint32_t uid, gid;   /* if given, owner of everything; else of the root and the ranks only */
    bool uid_given, gid_given;
    uint32_t umask; /* taken from the modes of all files and directories */
    unsigned threads;

    /* what was given, for defaults and checks that need to know */
    bool cold_start_given;
    bool threads_given;
};

/*
 * One option. parse sets the value in the options and returns NULL, or says in a few words what is
 * wrong with the text; a flag's parse is called with NULL.
 */
struct option_entry {
    const char *name;
    const char *value;        /* what stands behind the =, as shown to people; NULL: a flag */
    const char *default_text; /* as shown to people; NULL for flags: off */
    const char *allowed;      /* for messages: "option x=y: why; allowed: <this>" */
    const char *help;
    const char *(*parse)(struct options *options, const char *value);
};

const struct option_entry *options_table(size_t *ret_count);

/*
 * 0 and whole options, or -EINVAL (-ENOMEM) and one line in ret_message that names the option, the
 * value found and the values allowed; then there is nothing to free. environment_cold_start: the
 * value of COLD_START_VARIABLE, NULL if unset. memory_total_bytes: the machine's RAM. Reorders
 * argv.
 */
int options_parse(int argc, char **argv, const char *environment_cold_start,
                  uint64_t memory_total_bytes, struct options *ret_options,
                  char ret_message[OPTIONS_MESSAGE_BYTES]);
void options_free(struct options *options);

void options_print_help(FILE *out);
void options_print_version(FILE *out);

#endif
