/* SPDX-License-Identifier: Apache-2.0 */
/* What reaches stderr: whole lines, of the wanted levels, that a name in them cannot forge. */
#include "core/log.h"

#include "core/check.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int saved_stderr, pipe_end;

static void redirect_stderr(void) {
    int ends[2];
    cr_assert_eq(pipe2(ends, O_NONBLOCK), 0);
    saved_stderr = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    pipe_end = ends[0];
}

/* What was printed since redirect_stderr. */
static const char *printed(void) {
    static char text[8192];
    fflush(stderr);
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    ssize_t bytes = read(pipe_end, text, sizeof(text) - 1);
    close(pipe_end);
    text[bytes > 0 ? bytes : 0] = '\0';
    return text;
}

Test(log, a_message_is_one_line_with_a_prefix) {
    redirect_stderr();
    log_error("rank %d: %s", 3, "trouble");
    cr_expect_str_eq(printed(), "cpl3: rank 3: trouble\n");
}

Test(log, only_levels_up_to_the_wanted_one_are_printed) {
    redirect_stderr();
    log_debug("a");
    log_notice("b");
    log_set_level(LOG_LEVEL_ERROR);
    log_notice("c");
    log_error("d");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("e");
    cr_expect_str_eq(printed(), "cpl3: b\ncpl3: d\ncpl3: e\n");
}

Test(log, control_characters_in_a_name_do_not_make_lines) {
    redirect_stderr();
    log_error("file %s", "a\ncpl3: forged\x1b[2J\x7f\tend \xc3\xa9");
    cr_expect_str_eq(printed(), "cpl3: file a?cpl3: forged?[2J??end \xc3\xa9\n");
}

Test(log, an_overlong_message_is_cut_and_says_so) {
    char name[6000];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    redirect_stderr();
    log_error("%s", name);
    const char *line = printed();
    size_t length = strlen(line);
    cr_assert_gt(length, 1000);
    cr_expect_lt(length, 4096, "longer than a pipe takes at once");
    cr_expect_str_eq(line + length - 5, "x...\n");
    cr_expect_eq(strchr(line, '\n'), line + length - 1);
}

Test(log, what_is_held_back_is_counted_and_told_later) {
    struct log_limit limit = {0};
    redirect_stderr();
    for (int i = 0; i < 5; i++)
        log_limited(&limit, "bad slot %d", i);
    limit.next_ns = 0; /* the second is over */
    log_limited(&limit, "bad slot %d", 5);
    limit.next_ns = 0;
    log_limited(&limit, "bad slot %d", 6);
    cr_expect_str_eq(printed(), "cpl3: bad slot 0\n"
                                "cpl3: (4 like the next were held back) bad slot 5\n"
                                "cpl3: bad slot 6\n");
}

Test(log, logging_keeps_errno) {
    redirect_stderr();
    close(STDERR_FILENO);
    errno = ENOTEMPTY;
    log_error("to nowhere");
    int kept = errno;
    printed();
    cr_expect_eq(kept, ENOTEMPTY);
}

/* last words */

static char fatal_directory[64];
static int fatal_fd = -1;

static void make_fatal_directory(void) {
    strcpy(fatal_directory, "/tmp/log-XXXXXX");
    cr_assert(mkdtemp(fatal_directory));
    fatal_fd = open(fatal_directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    log_keep_fatal_in(fatal_fd);
}

static void remove_fatal_directory(void) {
    log_keep_fatal_in(-1);
    unlinkat(fatal_fd, LOG_FATAL_NAME, 0);
    close(fatal_fd);
    rmdir(fatal_directory);
}

static void expect_kept(const char *wanted) {
    char text[4096] = "";
    int fd = openat(fatal_fd, LOG_FATAL_NAME, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_assert_geq(read(fd, text, sizeof(text) - 1), 0);
    close(fd);
    cr_expect_str_eq(text, wanted);
}

Test(log, the_first_fatal_line_is_kept_and_all_are_printed, .init = make_fatal_directory,
     .fini = remove_fatal_directory) {
    redirect_stderr();
    log_error("not fatal");
    log_fatal("the cause: %s", "a\nb");
    log_fatal("a consequence");
    log_last_words("another one");
    cr_expect_str_eq(printed(), "cpl3: not fatal\ncpl3: the cause: a?b\ncpl3: a consequence\n"
                                "cpl3: another one\n");
    expect_kept("the cause: a?b\n");
}

Test(log, last_words_are_kept_where_nobody_reads_stderr, .init = make_fatal_directory,
     .fini = remove_fatal_directory) {
    redirect_stderr();
    log_use_syslog(true);
    log_last_words("ended by SIGSEGV");
    log_use_syslog(false);
    cr_expect_str_eq(printed(), "");
    expect_kept("ended by SIGSEGV\n");
}

Test(log, a_failed_check_is_kept, .init = make_fatal_directory, .fini = remove_fatal_directory) {
    redirect_stderr();
    pid_t child = fork();
    if (child == 0)
        CHECK(2 + 2 == 5);
    waitpid(child, NULL, 0);
    const char *line = printed();
    cr_assert(strstr(line, "2 + 2 == 5"), "%s", line);
    expect_kept(line + strlen("cpl3: "));
}

Test(log, a_check_that_holds_does_nothing) {
    CHECK(1 + 1 == 2);
    CHECK_ON(ANY);
}

Test(log, a_failed_check_aborts, .signal = SIGABRT) {
    CHECK(1 + 1 == 3);
}

Test(log, what_belongs_to_the_write_thread_aborts_elsewhere, .signal = SIGABRT) {
    CHECK_ON(WRITER);
}
