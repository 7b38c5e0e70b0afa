/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bad input: the daemon says in one line what is wrong, exits non-zero at once and has changed
 * nothing. And the ways to start that are not bad: in the background, over a dead mount.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "core/cleanup.h"
#include "fs/exit_code.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum { ANY_CODE = -1, REFUSAL_SECONDS = 5 };

static struct mount mount_;

static void open_stopped(void) {
    mount_open(&mount_, &(struct mount_settings){.stopped = true});
}
static void close_mount(void) {
    mount_close(&mount_);
}
TestSuite(options_mount, .init = open_stopped, .fini = close_mount, .timeout = 60);

/* Everything that a start could change. */
static char *snapshot(void) {
    char *output = NULL;
    run_shell(20, &output,
              "cd '%s' && find store mnt -printf '%%p %%y %%s %%T@ %%i\\n' | sort && "
              "find store -type f -exec md5sum {} + | sort",
              mount_.base);
    return output;
}

static unsigned count_lines(const char *text) {
    unsigned lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

/* Runs the daemon with these arguments: refused with one line that holds the words. */
static void expect_refusal(const char *before, const char *arguments, int code, const char *words) {
    AUTO_FREE char *store_before = snapshot();
    AUTO_FREE char *output = NULL;
    int status =
        run_shell(REFUSAL_SECONDS, &output, "%s exec '%s' %s", before, mount_daemon(), arguments);
    cr_assert_neq(status, -1, "%s: not refused within %d s", arguments, REFUSAL_SECONDS);
    int found = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    cr_expect(code == ANY_CODE ? found > 0 : found == code, "%s: exit code %d, not %d\n%s",
              arguments, found, code, output);
    cr_expect_eq(count_lines(output), 1, "%s: not one line:\n%s", arguments, output);
    cr_expect(strstr(output, words), "%s: no \"%s\" in: %s", arguments, words, output);
    AUTO_FREE char *store_after = snapshot();
    cr_expect_str_eq(store_after, store_before, "%s: something was changed", arguments);
    cr_expect_not(mount_is_mounted(mount_.point), "%s: mounted", arguments);
}

static void expect_options_refusal(const char *options, int code, const char *words) {
    char arguments[1500];
    snprintf(arguments, sizeof arguments, "'%s' '%s' -f -o %s", mount_.store, mount_.point,
             options);
    expect_refusal("", arguments, code, words);
}

static void expect_start_refusal(int code, const char *words) {
    expect_options_refusal("rank=0,size=64M,memory=64M,max_file=4M,cold_start=load", code, words);
}

/* the command line */

struct bad_option {
    char options[96];
    char words[32];
    int code;
};

ParameterizedTestParameters(options_mount, an_impossible_option_is_refused_by_name) {
    static struct bad_option bad[] = {
        {"rnak=0", "rank", EXIT_CODE_OPTIONS},
        {"commit=5m", "0.001 to 300", EXIT_CODE_OPTIONS},
        {"df=all", "used, reclaimable", EXIT_CODE_OPTIONS},
        {"tag=", "1 to 255", EXIT_CODE_OPTIONS},
        {"rank", "rank", EXIT_CODE_OPTIONS},
        {"rank=5-2", "rank", EXIT_CODE_OPTIONS},
        {"rank=x", "rank", EXIT_CODE_OPTIONS},
        {"rank=1024", "1023", EXIT_CODE_OPTIONS},
        {"size=0", "size", EXIT_CODE_OPTIONS},
        {"size=12Q", "size", EXIT_CODE_OPTIONS},
        {"size=-5M", "size", EXIT_CODE_OPTIONS},
        {"size=500T", "size", ANY_CODE},
        {"size=64M,max_file=128M", "max_file", ANY_CODE},
        {"size=64M,memory=8M,max_file=16M", "memory", ANY_CODE},
        {"cold_start=maybe", "clear, load", EXIT_CODE_OPTIONS},
        {"cold_start=", "clear, load", EXIT_CODE_OPTIONS},
        {"gc_start=1.5", "gc_start", EXIT_CODE_OPTIONS},
        {"gc_start=0.5,gc_stop=0.6", "gc_stop", EXIT_CODE_OPTIONS},
        {"engine=fast", "auto, uring, posix", EXIT_CODE_OPTIONS},
        {"threads=0", "threads", EXIT_CODE_OPTIONS},
        {"umask=999", "umask", EXIT_CODE_OPTIONS},
        {"uid=-1", "uid", EXIT_CODE_OPTIONS},
        {"sync=yes", "sync", EXIT_CODE_OPTIONS},
        {"payload=kv", "payload", EXIT_CODE_OPTIONS},
        {"payload=KV:4M:10", "payload", EXIT_CODE_OPTIONS},
        {"payload=kv:0:10", "payload", EXIT_CODE_OPTIONS},
        {"payload=kv:4M:200%", "payload", EXIT_CODE_OPTIONS},
        {"payload=kv:4M:10,payload=kv:8M:10", "payload", EXIT_CODE_OPTIONS},
        {"size=64M,memory=64M,payload=kv:4M:1000", "payload", ANY_CODE},
    };
    return cr_make_param_array(struct bad_option, bad, sizeof bad / sizeof bad[0]);
}

ParameterizedTest(struct bad_option *bad, options_mount, an_impossible_option_is_refused_by_name) {
    expect_options_refusal(bad->options, bad->code, bad->words);
}

Test(options_mount, a_wrong_command_line_is_refused) {
    char arguments[1000];
    expect_refusal("", "", EXIT_CODE_OPTIONS, "missing");
    snprintf(arguments, sizeof arguments, "'%s'", mount_.store);
    expect_refusal("", arguments, EXIT_CODE_OPTIONS, "mountpoint");
    snprintf(arguments, sizeof arguments, "'%s' '%s' more", mount_.store, mount_.point);
    expect_refusal("", arguments, EXIT_CODE_OPTIONS, "more");
    snprintf(arguments, sizeof arguments, "'%s' '%s' -x", mount_.store, mount_.point);
    expect_refusal("", arguments, EXIT_CODE_OPTIONS, "-x");
}

Test(options_mount, an_unknown_mode_in_the_environment_is_refused_by_name) {
    char arguments[1000];
    snprintf(arguments, sizeof arguments, "'%s' '%s' -f -o size=64M", mount_.store, mount_.point);
    expect_refusal("SGLANG_CP_L3_COLD_START=maybe", arguments, EXIT_CODE_OPTIONS,
                   "SGLANG_CP_L3_COLD_START");
}

/* the store */

static void make_store(void) {
    mount_start(&mount_, NULL);
    cr_assert_eq(file_put(mount_path(&mount_, "f"), 100000, 1), 0);
    mount_stop(&mount_);
}

static void put_superblock(const char *text) {
    char path[400];
    snprintf(path, sizeof path, "%s/superblock", mount_.store);
    cr_assert_eq(file_put_text(path, text), 0);
}

Test(options_mount, a_foreign_or_damaged_superblock_is_refused) {
    make_store();
    put_superblock("something else\n");
    expect_start_refusal(EXIT_CODE_STORE, "superblock");
    put_superblock("");
    expect_start_refusal(EXIT_CODE_STORE, "superblock");
    put_superblock("cpl3 store");
    expect_start_refusal(EXIT_CODE_STORE, "superblock");
}

Test(options_mount, another_format_is_refused_with_the_way_to_a_new_store) {
    make_store();
    cr_assert_eq(run_shell(20, NULL, "sed -i 's/format 1/format 2/' '%s/superblock'", mount_.store),
                 0);
    expect_start_refusal(EXIT_CODE_STORE, "format");
    expect_start_refusal(EXIT_CODE_STORE, "rm -r");
}

Test(options_mount, a_store_that_is_no_directory_is_refused) {
    cr_assert_eq(rmdir(mount_.store), 0);
    cr_assert_eq(file_put_text(mount_.store, "a file"), 0);
    expect_start_refusal(ANY_CODE, "store");
}

/* the mountpoint */

Test(options_mount, an_absent_or_used_mountpoint_is_refused) {
    char path[400];
    cr_assert_eq(rmdir(mount_.point), 0);
    expect_start_refusal(EXIT_CODE_MOUNT, mount_.point);
    cr_assert_eq(file_put_text(mount_.point, "a file"), 0);
    expect_start_refusal(EXIT_CODE_MOUNT, "not a directory");
    cr_assert(unlink(mount_.point) == 0 && mkdir(mount_.point, 0700) == 0);
    snprintf(path, sizeof path, "%s/file", mount_.point);
    cr_assert_eq(file_put_text(path, "in the way"), 0);
    expect_start_refusal(EXIT_CODE_MOUNT, "not empty");
}

Test(options_mount, store_and_mountpoint_inside_one_another_are_refused) {
    char arguments[1000];
    snprintf(arguments, sizeof arguments, "'%s/store' '%s' -f -o size=64M", mount_.point,
             mount_.point);
    expect_refusal("", arguments, ANY_CODE, mount_.point);
    snprintf(arguments, sizeof arguments, "'%s' '%s' -f -o size=64M", mount_.point, mount_.point);
    expect_refusal("", arguments, ANY_CODE, mount_.point);
    snprintf(arguments, sizeof arguments, "'%s' '%s' -f -o size=64M", mount_.base, mount_.point);
    expect_refusal("", arguments, ANY_CODE, mount_.point);
}

Test(options_mount, a_store_on_its_own_mount_is_refused) {
    char other[400], arguments[1000];
    mount_start(&mount_, NULL);
    snprintf(other, sizeof other, "%s/other", mount_.base);
    mkdir(other, 0700);
    mkdir(mount_path(&mount_, "store"), 0700);
    snprintf(arguments, sizeof arguments, "'%s/store' '%s' -f -o size=64M,memory=64M,max_file=4M",
             mount_.rank, other);
    AUTO_FREE char *output = NULL;
    int status = run_shell(REFUSAL_SECONDS, &output, "exec '%s' %s", mount_daemon(), arguments);
    cr_expect(status != -1 && WIFEXITED(status) && WEXITSTATUS(status) != 0, "%s", output);
    cr_expect_not(mount_is_mounted(other));
    cr_expect_eq(directory_count(mount_path(&mount_, "store")), 0);
}

/* a rank in use */

Test(options_mount, a_rank_in_use_is_refused_with_the_pid_of_its_holder) {
    char other[400], pid[32];
    mount_start(&mount_, NULL);
    cr_assert_eq(file_put(mount_path(&mount_, "f"), 100000, 1), 0);
    snprintf(other, sizeof other, "%s/other", mount_.base);
    mkdir(other, 0700);
    AUTO_FREE char *output = NULL;
    int status = run_shell(REFUSAL_SECONDS, &output,
                           "exec '%s' '%s' '%s' -f -o rank=0,memory=64M,max_file=4M",
                           mount_daemon(), mount_.store, other);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_RANK_IN_USE, "0x%x %s", status,
              output);
    snprintf(pid, sizeof pid, "%d", mount_.daemon);
    cr_expect(strstr(output, pid), "no %s in: %s", pid, output);
    cr_expect_eq(count_lines(output), 1, "%s", output);
    cr_expect_not(mount_is_mounted(other));
    cr_expect_eq(file_check(mount_path(&mount_, "f"), 100000, 1), 0);
}

Test(options_mount, a_mountpoint_in_use_is_refused) {
    char store[400];
    mount_start(&mount_, NULL);
    snprintf(store, sizeof store, "%s/store2", mount_.base);
    mkdir(store, 0700);
    AUTO_FREE char *output = NULL;
    int status = run_shell(REFUSAL_SECONDS, &output,
                           "exec '%s' '%s' '%s' -f -o size=64M,memory=64M,max_file=4M",
                           mount_daemon(), store, mount_.point);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_MOUNT, "0x%x %s", status,
              output);
    cr_expect_eq(directory_count(store), 0);
}

/* starts that work */

static bool can_mount_again(void) {
    AUTO_FREE char *output = NULL;
    return run_shell(REFUSAL_SECONDS, &output,
                     "exec '%s' '%s' '%s' -o rank=0,size=256M,memory=64M,max_file=16M,"
                     "cold_start=load",
                     mount_daemon(), mount_.store, mount_.point) == 0;
}

Test(options_mount, in_the_background_it_returns_when_the_mount_serves) {
    cr_assert(can_mount_again());
    cr_expect_eq(file_put(mount_path(&mount_, "f"), 100000, 1), 0);
    cr_expect_eq(umount2(mount_.point, 0), 0, "%s", strerror(errno));
    /* The process goes on until all is durable, and holds the rank until then. */
    cr_assert(WAIT_UNTIL(can_mount_again(), MOUNT_DEADLINE_SECONDS));
    cr_expect_eq(file_check(mount_path(&mount_, "f"), 100000, 1), 0);
    cr_expect_eq(umount2(mount_.point, 0), 0, "%s", strerror(errno));
}

Test(options_mount, an_unmount_right_after_the_mount_is_no_error) {
    for (int i = 0; i < 20; i++) {
        mount_launch(&mount_, NULL);
        mount_stop(&mount_); /* asserts that it exits 0 */
    }
}

Test(options_mount, a_dead_earlier_mount_is_detached) {
    mount_start(&mount_, NULL);
    cr_assert_eq(file_put(mount_path(&mount_, "f"), 100000, 1), 0);
    mount_commit(&mount_);
    kill(mount_.daemon, SIGKILL);
    waitpid(mount_.daemon, NULL, 0);
    mount_.daemon = 0;
    cr_assert(mount_is_mounted(mount_.point), "the dead mount is still there");
    cr_assert(can_mount_again());
    cr_expect_eq(file_check(mount_path(&mount_, "f"), 100000, 1), 0);
    cr_expect_eq(umount2(mount_.point, 0), 0, "%s", strerror(errno));
    cr_expect_not(mount_is_mounted(mount_.point));
}

Test(options_mount, help_and_version_are_printed_and_succeed) {
    AUTO_FREE char *help = NULL;
    cr_expect_eq(run_shell(REFUSAL_SECONDS, &help, "exec '%s' --help", mount_daemon()), 0);
    cr_expect(strstr(help, "cold_start") && strstr(help, "gc_start"), "%s", help);
    AUTO_FREE char *version = NULL;
    cr_expect_eq(run_shell(REFUSAL_SECONDS, &version, "exec '%s' --version", mount_daemon()), 0);
    cr_expect(strstr(version, "cpl3"), "%s", version);
}
