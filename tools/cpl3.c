/* SPDX-License-Identifier: Apache-2.0 */
/* The cpl3 command: finds the subcommand in a table and hands over. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/commands.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"replay", command_replay, "replay a request trace through mounted directories"},
    {"verify", command_verify, "check the pages that replay wrote, byte by byte"},
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *out) {
    fputs("Usage: cpl3 COMMAND [OPTION]... [ARGUMENT]...\n\nCommands:\n", out);
    for (unsigned i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\n`cpl3 help COMMAND` tells more; `cpl3 --version` which one this is.\n", out);
}

static int run(const char *name, int argc, char **argv) {
    for (unsigned i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc, argv);
    fprintf(stderr, "cpl3: no command '%s'; `cpl3 help` lists them\n", name);
    return EXIT_USAGE;
}

/* What was printed is not there when the disk is full: that is no success. */
static int end_of_output(void) {
    return fflush(stdout) == 0 ? EXIT_GOOD : EXIT_BAD;
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

static int refuse(const char *command, const char *argument) {
    fprintf(stderr, "cpl3 %s: one argument too many: %s\n", command, argument);
    return EXIT_USAGE;
}

static int help(int argc, char **argv) {
    if (argc > 2)
        return refuse(argv[0], argv[2]);
    if (argc == 2 && !is_help(argv[1]))
        return run(argv[1], 2, (char *[]){argv[1], "--help", NULL});
    print_help(stdout);
    return end_of_output();
}

static int version(int argc, char **argv) {
    if (argc > 1)
        return refuse(argv[0], argv[1]);
    puts("cpl3 " CPL3_VERSION);
    return end_of_output();
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *first = argv[1];
    if (is_help(first))
        return help(argc - 1, argv + 1);
    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0)
        return version(argc - 1, argv + 1);
    return run(first, argc - 1, argv + 1);
}
