/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mount finds after an unmount, a SIGTERM and a kill -9 of the one before, with clear and
 * with load; and after damage to the index and the slabs.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum { FILES = 40, WRITERS = 4, NUMBERS = 4000, SMALL_FILES = 3000 };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 8});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(cold_start_mount, .init = open_mount, .fini = close_mount, .timeout = 120);

/* Inline ones, odd sizes, exact pages; hash names, named files, files in a directory. */
static const char *path_of(unsigned i) {
    static const char *const formats[] = {"%016x", "named %u.bin", "d/%u", "%032x.tmp"};
    return mount_path(&mount, formats[i % 4], i);
}

static size_t bytes_of(unsigned i) {
    static const size_t sizes[] = {100, 4096, 4097, 70272, 500000, 65536, 2000};
    return sizes[i % 7];
}

static void put_files(void) {
    mkdir(mount_path(&mount, "d"), 0700);
    for (unsigned i = 0; i < FILES; i++)
        cr_assert_eq(file_put(path_of(i), bytes_of(i), i), 0, "%s", path_of(i));
}

static void expect_files(void) {
    for (unsigned i = 0; i < FILES; i++) {
        int result = file_check(path_of(i), bytes_of(i), i);
        cr_assert_eq(result, 0, "%s: %s", path_of(i), strerror(-result));
    }
    cr_expect_eq(directory_count(mount.rank), FILES - FILES / 4 + 1);
    cr_expect_eq(directory_count(mount_path(&mount, "d")), FILES / 4);
}

static void expect_empty(void) {
    cr_expect_eq(directory_count(mount.rank), 0);
    for (unsigned i = 0; i < FILES; i++)
        cr_expect_eq(file_open_result(path_of(i), O_RDONLY), -ENOENT, "%s", path_of(i));
    struct statvfs v;
    cr_expect(statvfs(mount.rank, &v) == 0 && v.f_bfree == v.f_blocks, "all is free");
}

/* Whether the daemon's log of this start says it. */
static bool log_says(const char *words) {
    AUTO_FREE char *text = file_read(mount.log, NULL);
    return text && strstr(text, words);
}

/* after an unmount */

Test(cold_start_mount, load_brings_back_everything) {
    put_files();
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    expect_files();
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    expect_files();
}

Test(cold_start_mount, load_keeps_the_order_of_last_access) {
    put_files();
    for (unsigned i = FILES; i-- > 0;) /* the last becomes the coldest */
        cr_assert_eq(file_check(path_of(i), bytes_of(i), i), 0);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    struct timespec last = {0};
    for (unsigned i = FILES; i-- > 0;) {
        struct stat st;
        cr_assert_eq(stat(path_of(i), &st), 0);
        cr_expect(st.st_atim.tv_sec > last.tv_sec ||
                      (st.st_atim.tv_sec == last.tv_sec && st.st_atim.tv_nsec > last.tv_nsec),
                  "%s was read after the one before", path_of(i));
        last = st.st_atim;
    }
}

Test(cold_start_mount, clear_is_the_default_and_leaves_nothing) {
    put_files();
    mount_stop(&mount);
    mount_start(&mount, NULL);
    expect_empty();
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    expect_empty();
}

Test(cold_start_mount, the_environment_chooses_unless_the_option_does) {
    put_files();
    mount_stop(&mount);
    setenv("SGLANG_CP_L3_COLD_START", "load", 1);
    mount_start(&mount, NULL);
    expect_files();
    mount_stop(&mount);
    mount_start(&mount, "cold_start=clear");
    expect_empty();
    unsetenv("SGLANG_CP_L3_COLD_START");
}

Test(cold_start_mount, read_only_implies_load_and_takes_no_change) {
    put_files();
    mount_stop(&mount);
    mount_start(&mount, "ro");
    expect_files();
    cr_expect_eq(file_open_result(path_of(1), O_WRONLY), -EROFS);
    cr_expect_eq(file_open_result(mount_path(&mount, "new"), O_CREAT | O_WRONLY), -EROFS);
    cr_expect(unlink(path_of(1)) != 0 && errno == EROFS, "%s", strerror(errno));
    cr_expect(mkdir(mount_path(&mount, "e"), 0700) != 0 && errno == EROFS);
    cr_expect_eq(mount_control(&mount, "clear"), -EROFS);
    expect_files();
}

Test(cold_start_ranks, clearing_one_leaves_the_others, .fini = close_mount, .timeout = 60) {
    mount_open(&mount, &(struct mount_settings){.ranks = "0-1", .size = "64M"});
    put_files();
    cr_assert_eq(file_put(mount_path(&mount, "../rank1/f"), 50000, 1), 0);
    mount_stop(&mount);
    mount.settings.ranks = "1";
    mount_start(&mount, NULL);
    char rank1[400];
    snprintf(rank1, sizeof rank1, "%s/rank1", mount.point);
    cr_expect_eq(directory_count(rank1), 0);
    mount_stop(&mount);
    mount.settings.ranks = "0-1";
    mount_start(&mount, "cold_start=load");
    expect_files();
    cr_expect_eq(directory_count(rank1), 0);
}

/* after SIGTERM and kill -9 under writers */

struct progress {
    _Atomic unsigned acknowledged[WRITERS]; /* files below this number are closed (and fsynced) */
    bool fsync;
};
static struct progress *progress;
static unsigned writer_number;

static const char *written_path(unsigned writer, unsigned i) {
    return mount_path(&mount, i % 2 ? "%04x%012x" : "w%u-%u", writer, i);
}

static size_t written_bytes(unsigned i) {
    return 1 + i * 7919u % 30000;
}

static int put_numbered(unsigned i) {
    static char bytes[30001];
    size_t n = written_bytes(i);
    fill_pattern(bytes, n, i, 0);
    int fd = open(written_path(writer_number, i), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int result = write(fd, bytes, n) == (ssize_t)n ? 0 : -errno;
    if (result == 0 && progress->fsync && fsync(fd) != 0)
        result = -errno;
    if (close(fd) != 0 && result == 0)
        result = -errno;
    return result;
}

/* Until the mount is gone. Numbers above NUMBERS start over: each file has one possible content. */
static int write_until_unmounted(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < NUMBERS; i++) {
        if (put_numbered(i) != 0)
            return 0;
        atomic_store(&progress->acknowledged[writer_number], i + 1);
    }
    return 0;
}

static void start_writers(pid_t *ret_writers, bool with_fsync, unsigned least) {
    progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    progress->fsync = with_fsync;
    for (writer_number = 0; writer_number < WRITERS; writer_number++)
        ret_writers[writer_number] = child_start(write_until_unmounted, NULL);
    for (unsigned w = 0; w < WRITERS; w++)
        cr_assert(WAIT_UNTIL(progress->acknowledged[w] >= least, 30), "the writers do not get on");
}

static void wait_for_writers(const pid_t *writers) {
    for (unsigned w = 0; w < WRITERS; w++)
        cr_expect_eq(child_wait(writers[w], 20), 0);
}

/* All that is there is right; `all_acknowledged`: and all that was acknowledged is there. */
static void check_written(bool all_acknowledged) {
    unsigned present = 0, acknowledged = 0;
    for (unsigned w = 0; w < WRITERS; w++) {
        for (unsigned i = 0; i < NUMBERS; i++) {
            int result = file_check(written_path(w, i), written_bytes(i), i);
            bool must = all_acknowledged && i < progress->acknowledged[w];
            cr_assert(result == 0 || (result == -ENOENT && !must), "writer %u, file %u: %s", w, i,
                      strerror(-result));
            present += result == 0;
        }
        acknowledged += progress->acknowledged[w];
    }
    fprintf(stderr, "cold_start_mount: %u acknowledged, %u present\n", acknowledged, present);
    cr_expect_eq(directory_count(mount.rank), (int)present);
}

Test(cold_start_mount, SIGTERM_under_writers_ends_in_time_and_loses_nothing_that_was_closed) {
    pid_t writers[WRITERS];
    start_writers(writers, false, 100);
    int status = mount_signal(&mount, SIGTERM, 5);
    cr_expect_eq(status, 0, "wait status 0x%x", (unsigned)status);
    wait_for_writers(writers);
    mount_start(&mount, "cold_start=load");
    check_written(true);
}

static int put_small_files(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < SMALL_FILES; i++)
        if (file_put(mount_path(&mount, "small/%u", i), 60, i) != 0)
            return 1;
    return 0;
}

Test(cold_start_mount, an_unmount_with_thousands_of_changes_to_commit_loses_none) {
    cr_assert_eq(mkdir(mount_path(&mount, "small"), 0700), 0);
    cr_assert_eq(child_wait(child_start(put_small_files, NULL), 60), 0);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    for (unsigned i = 0; i < SMALL_FILES; i++)
        cr_assert_eq(file_check(mount_path(&mount, "small/%u", i), 60, i), 0, "file %u", i);
}

Test(cold_start_mount, SIGINT_ends_it_as_well) {
    put_files();
    cr_expect_eq(mount_signal(&mount, SIGINT, 5), 0);
    mount_start(&mount, "cold_start=load");
    expect_files();
}

Test(cold_start_mount, SIGTERM_with_open_files_ends_in_time) {
    put_files();
    int fds[8];
    for (unsigned i = 0; i < 8; i++) {
        fds[i] = open(path_of(i), i % 2 ? O_RDONLY : O_RDWR);
        cr_assert_geq(fds[i], 0);
    }
    int staged = open(mount_path(&mount, "half"), O_CREAT | O_WRONLY, 0600);
    cr_assert_eq(write(staged, "half", 4), 4);
    cr_expect_eq(mount_signal(&mount, SIGTERM, 5), 0);
    for (unsigned i = 0; i < 8; i++)
        close(fds[i]);
    close(staged);
    mount_start(&mount, "cold_start=load");
    expect_files();
}

Test(cold_start_mount, after_kill_9_what_was_fsynced_is_there_and_all_is_right) {
    pid_t writers[WRITERS];
    start_writers(writers, true, 10);
    mount_kill(&mount);
    wait_for_writers(writers);
    mount_start(&mount, "cold_start=load");
    check_written(true);
    cr_expect_eq(file_put(mount_path(&mount, "next"), 100000, 1), 0);
    cr_expect_eq(file_check(mount_path(&mount, "next"), 100000, 1), 0);
}

Test(cold_start_sync, after_kill_9_all_that_was_closed_is_there, .fini = close_mount,
     .timeout = 60) {
    pid_t writers[WRITERS];
    mount_open(&mount, &(struct mount_settings){.options = "sync"});
    start_writers(writers, false, 10);
    mount_kill(&mount);
    wait_for_writers(writers);
    mount_start(&mount, "cold_start=load");
    check_written(true);
}

Test(cold_start_mount, after_kill_9_under_fast_writers_no_byte_is_wrong) {
    pid_t writers[WRITERS];
    start_writers(writers, false, 200);
    mount_kill(&mount);
    wait_for_writers(writers);
    mount_start(&mount, "cold_start=load");
    check_written(false);
}

Test(cold_start_mount, after_kill_9_clear_is_empty_and_stays_so) {
    put_files();
    mount_commit(&mount);
    mount_kill(&mount);
    mount_start(&mount, NULL);
    expect_empty();
    mount_kill(&mount);
    mount_start(&mount, "cold_start=load");
    expect_empty();
}

/* after damage */

Test(cold_start_mount, without_its_index_a_rank_starts_empty) {
    put_files();
    mount_stop(&mount);
    cr_assert_eq(run_shell(20, NULL, "rm -r '%s/index'", mount.store), 0);
    mount_start(&mount, "cold_start=load");
    expect_empty();
    put_files();
    expect_files();
}

Test(cold_start_mount, a_damaged_index_costs_its_records_and_never_a_wrong_byte) {
    put_files();
    mount_stop(&mount);
    cr_assert_eq(run_shell(20, NULL, "cp -a '%s' '%s.good'", mount.store, mount.store), 0);
    const char *const damages[] = {
        "truncate -s 4096 index/data.mdb",
        "truncate -s 40960 index/data.mdb",
        "dd if=/dev/urandom of=index/data.mdb bs=4096 seek=0 count=2 conv=notrunc status=none",
        "dd if=/dev/urandom of=index/data.mdb bs=4096 seek=3 count=4 conv=notrunc status=none",
        "dd if=/dev/urandom of=index/data.mdb bs=512 seek=100 count=1 conv=notrunc status=none",
    };
    for (unsigned k = 0; k < sizeof damages / sizeof damages[0]; k++) {
        cr_assert_eq(run_shell(20, NULL, "rm -r '%s' && cp -a '%s.good' '%s' && cd '%s' && %s",
                               mount.store, mount.store, mount.store, mount.store, damages[k]),
                     0);
        mount_start(&mount, "cold_start=load");
        for (unsigned i = 0; i < FILES; i++) {
            int result = file_check(path_of(i), bytes_of(i), i);
            cr_assert(result == 0 || result == -ENOENT, "%s: %s: %s", damages[k], path_of(i),
                      strerror(-result));
        }
        cr_expect_eq(file_put(mount_path(&mount, "next"), 100000, 1), 0, "%s", damages[k]);
        cr_expect_eq(file_check(mount_path(&mount, "next"), 100000, 1), 0, "%s", damages[k]);
        mount_stop(&mount);
    }
    cr_expect(log_says("rank 0"), "it says what it did");
}

Test(cold_start_mount, damaged_slabs_give_misses_and_right_bytes) {
    put_files();
    mount_stop(&mount);
    cr_assert_eq(run_shell(20, NULL,
                           "for f in '%s'/rank0/*.slab; do "
                           "dd if=/dev/urandom of=$f bs=1000 seek=33 count=90 conv=notrunc "
                           "status=none; done",
                           mount.store),
                 0);
    mount_start(&mount, "cold_start=load");
    unsigned missing = 0;
    for (unsigned i = 0; i < FILES; i++) {
        int result = file_check(path_of(i), bytes_of(i), i);
        cr_expect(result == 0 || result == -ENOENT, "%s: %s", path_of(i), strerror(-result));
        missing += result == -ENOENT;
    }
    cr_expect_gt(missing, 0, "the damage hit nothing");
    put_files();
    expect_files();
}
