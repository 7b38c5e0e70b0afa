/* SPDX-License-Identifier: Apache-2.0 */
/* The cpl3 command: finds the subcommand in a table and hands over. */
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
    fputs("\n`cpl3 COMMAND --help` tells more.\n", out);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return EXIT_GOOD;
    }
    for (unsigned i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "cpl3: no command '%s'; `cpl3 help` lists them\n", argv[1]);
    return EXIT_USAGE;
}
