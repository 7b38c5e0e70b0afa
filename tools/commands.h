/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands of cpl3, one file each. They get their own name as argv[0], and answer the exit
 * code: 0, 1 = something is wrong with what they looked at, 2 = they were called wrongly. */
#ifndef CPL3_TOOLS_COMMANDS_H
#define CPL3_TOOLS_COMMANDS_H

enum { EXIT_GOOD = 0, EXIT_BAD = 1, EXIT_USAGE = 2 };

int command_replay(int argc, char **argv);
int command_verify(int argc, char **argv);

#endif
