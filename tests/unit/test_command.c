/* SPDX-License-Identifier: Apache-2.0 */
/* The command cpl3 itself: how it finds subcommands and what it answers without one. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "core/cleanup.h"
#include "tests/support/process.h"
#include "tools/commands.h"

/* $CPL3_TOOL with these arguments: what it prints, on either stream. */
static char *run(const char *arguments, int code) {
    const char *tool = getenv("CPL3_TOOL");
    char *output = NULL;
    int status = run_shell(20, &output, "exec '%s' %s", tool ? tool : "build/cpl3", arguments);
    cr_assert(WIFEXITED(status));
    cr_expect_eq(WEXITSTATUS(status), code, "cpl3 %s: %d\n%s", arguments, WEXITSTATUS(status),
                 output);
    return output;
}

static void expect_same(const char *one, const char *other) {
    AUTO_FREE char *first = run(one, EXIT_GOOD), *second = run(other, EXIT_GOOD);
    cr_expect_str_eq(first, second, "cpl3 %s and cpl3 %s", one, other);
}

Test(command, help_lists_the_subcommands_and_tells_of_each) {
    AUTO_FREE char *text = run("help", EXIT_GOOD);
    cr_expect(strstr(text, "\n  replay ") && strstr(text, "\n  verify "), "%s", text);
    expect_same("help", "--help");
    expect_same("help", "help help");
    expect_same("help verify", "verify --help");
    expect_same("help replay", "replay --help");
    AUTO_FREE char *verify = run("help verify", EXIT_GOOD);
    cr_expect(strstr(verify, "Usage: cpl3 verify"), "%s", verify);
}

Test(command, version_is_one_line) {
    AUTO_FREE char *text = run("--version", EXIT_GOOD);
    cr_expect_str_eq(text, "cpl3 " CPL3_VERSION "\n");
    expect_same("-V", "--version");
}

Test(command, what_is_not_known_is_named_and_changes_nothing) {
    static const char *const wrong[] = {"nothing", "help nothing", "--nothing"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        AUTO_FREE char *text = run(wrong[i], EXIT_USAGE);
        cr_expect(strstr(text, "no command '") && strstr(text, "nothing'"), "%s", text);
        cr_expect_eq(strchr(text, '\n') - text, (long)strlen(text) - 1, "one line: %s", text);
    }
    free(run("help replay extra", EXIT_USAGE));
    free(run("--version extra", EXIT_USAGE));
    free(run("--version >/dev/full", EXIT_BAD));
    free(run("help >/dev/full", EXIT_BAD));
    AUTO_FREE char *text = run("", EXIT_USAGE);
    cr_expect(strstr(text, "Usage: cpl3 "), "%s", text);
}
