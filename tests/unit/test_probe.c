/* SPDX-License-Identifier: Apache-2.0 */
/* What a child finds at a path. One that does not answer: tests/mount/test_killed_daemon.c. */
#include "fs/probe.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/cleanup.h"

enum { WAIT_MS = 10000 };

TestSuite(probe, .timeout = 20);

Test(probe, tells_the_resolved_path_and_that_it_answers) {
    struct probe probe;
    AUTO_FREE char *path = NULL;
    cr_assert_eq(probe_start("/usr/../usr/./bin/..//", &probe), 0);
    cr_assert_eq(probe_get_path(&probe, WAIT_MS, &path), 0);
    cr_assert_str_eq(path, "/usr");
    cr_assert_eq(probe_get_answer(&probe, WAIT_MS), 0);
    probe_close(&probe);
}

Test(probe, tells_the_errors_of_both) {
    struct probe probe;
    char *path = NULL;
    cr_assert_eq(probe_start("/usr/no/such/place", &probe), 0);
    cr_assert_eq(probe_get_path(&probe, WAIT_MS, &path), -ENOENT);
    probe_close(&probe);
    cr_assert_eq(probe_start("/usr/no-such-place", &probe), 0);
    cr_assert_eq(probe_get_path(&probe, WAIT_MS, &path), 0, "the last component may be missing");
    cr_assert_eq(probe_get_answer(&probe, WAIT_MS), -ENOENT);
    probe_close(&probe);
    free(path);
}

Test(probe, a_relative_path_is_that_of_this_process) {
    struct probe probe;
    AUTO_FREE char *path = NULL;
    cr_assert_eq(chdir("/usr"), 0);
    cr_assert_eq(probe_start(".", &probe), 0);
    cr_assert_eq(probe_get_path(&probe, WAIT_MS, &path), 0);
    cr_assert_str_eq(path, "/usr");
    probe_close(&probe);
}
