/* SPDX-License-Identifier: Apache-2.0 */
/* Directories: trees, listings that change while they are read, names, what may be removed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"

#define HASH "00112233445566778899aabbccddeeff"
enum { KEPT = 600 };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(directories, .init = open_mount, .fini = close_mount, .timeout = 60);

static void make_directory(const char *name) {
    cr_assert_eq(mkdir(mount_path(&mount, "%s", name), 0700), 0, "mkdir %s: %s", name,
                 strerror(errno));
}

static int remove_directory(const char *name) {
    return rmdir(mount_path(&mount, "%s", name)) == 0 ? 0 : -errno;
}

static void put(const char *name, uint64_t seed) {
    int result = file_put(mount_path(&mount, "%s", name), 5000, seed);
    cr_assert_eq(result, 0, "%s: %s", name, strerror(-result));
}

Test(directories, four_levels_hold_files_at_each) {
    const char *const levels[] = {"model-a", "model-a/r0", "model-a/r0/abc",
                                  "model-a/r0/abc/de_g0"};
    for (int i = 0; i < 4; i++) {
        char file[256];
        make_directory(levels[i]);
        cr_expect(mkdir(mount_path(&mount, "%s", levels[i]), 0700) != 0 && errno == EEXIST);
        snprintf(file, sizeof file, "%s/0123456789abcdef.bin", levels[i]);
        put(file, (uint64_t)i);
    }
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < 4; i++) {
            const char *directory = mount_path(&mount, "%s", levels[i]);
            cr_expect_eq(directory_count(directory), i == 3 ? 1 : 2, "%s", levels[i]);
            cr_expect_eq(file_check(mount_path(&mount, "%s/0123456789abcdef.bin", levels[i]), 5000,
                                    (uint64_t)i),
                         0);
        }
        mount_stop(&mount);
        mount_start(&mount, "cold_start=load");
    }
}

Test(directories, a_path_through_a_file_or_an_absent_directory_is_an_error) {
    put("file", 1);
    cr_expect_eq(file_open_result(mount_path(&mount, "file/x"), O_CREAT | O_WRONLY), -ENOTDIR);
    cr_expect_eq(file_open_result(mount_path(&mount, "absent/x"), O_CREAT | O_WRONLY), -ENOENT);
    cr_expect(mkdir(mount_path(&mount, "absent/x"), 0700) != 0 && errno == ENOENT);
    cr_expect(mkdir(mount_path(&mount, "file"), 0700) != 0 && errno == EEXIST);
    make_directory("d");
    cr_expect_eq(file_open_result(mount_path(&mount, "d"), O_WRONLY), -EISDIR);
    cr_expect(unlink(mount_path(&mount, "d")) != 0 && (errno == EISDIR || errno == EPERM));
    cr_expect_eq(remove_directory("file"), -ENOTDIR);
}

Test(directories, only_an_empty_one_is_removed) {
    make_directory("d");
    make_directory("d/e");
    cr_expect_eq(remove_directory("d"), -ENOTEMPTY);
    cr_expect_eq(remove_directory("d/e"), 0);
    put("d/f", 1);
    cr_expect_eq(remove_directory("d"), -ENOTEMPTY);
    cr_expect_eq(unlink(mount_path(&mount, "d/f")), 0);
    cr_expect_eq(remove_directory("d"), 0);
    cr_expect_eq(remove_directory("d"), -ENOENT);
    cr_expect_eq(directory_count(mount.rank), 0);
}

Test(directories, one_with_a_file_that_is_being_written_is_not_removed) {
    make_directory("d");
    const char *path = mount_path(&mount, "d/f");
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_expect_eq(write(fd, "x", 1), 1);
    cr_expect_eq(directory_count(mount_path(&mount, "d")), 0, "it is not listed");
    cr_expect_eq(remove_directory("d"), -ENOTEMPTY);
    close(fd);
    cr_expect(file_is_text(path, "x"));
}

Test(directories, a_new_one_after_rmdir_is_seen_by_who_stands_in_the_old_one) {
    make_directory("d");
    cr_assert_eq(chdir(mount_path(&mount, "d")), 0);
    for (int i = 0; i < 300; i++) {
        cr_assert_eq(remove_directory("d"), 0, "round %d", i);
        cr_assert_eq(file_size(mount_path(&mount, "d")), -ENOENT, "round %d", i);
        make_directory("d");
        put("d/x", (uint64_t)i);
        cr_assert_eq(file_check(mount_path(&mount, "d/x"), 5000, (uint64_t)i), 0, "round %d", i);
        cr_assert_eq(unlink(mount_path(&mount, "d/x")), 0);
    }
    cr_assert_eq(chdir("/"), 0);
}

/* names */

Test(directories, names_of_255_bytes_work_and_of_256_do_not) {
    char name[300];
    memset(name, 'n', sizeof name);
    name[255] = 0;
    put(name, 1);
    cr_expect_eq(directory_count_name(mount.rank, name), 1);
    name[0] = 'd';
    make_directory(name);
    const char *path = mount_path(&mount, "%s", name);
    char inside[600];
    snprintf(inside, sizeof inside, "%s/%s", name, name);
    put(inside, 2);
    cr_expect_eq(rename(mount_path(&mount, "%s", inside), mount_path(&mount, "short")), 0);
    cr_expect_eq(file_check(mount_path(&mount, "short"), 5000, 2), 0);
    cr_expect_eq(rmdir(path), 0);
    name[255] = 'n';
    name[256] = 0;
    path = mount_path(&mount, "%s", name);
    cr_expect_eq(file_open_result(path, O_CREAT | O_WRONLY), -ENAMETOOLONG);
    cr_expect_eq(file_size(path), -ENAMETOOLONG);
    cr_expect(rename(mount_path(&mount, "short"), path) != 0 && errno == ENAMETOOLONG);
}

Test(directories, names_are_kept_byte_for_byte) {
    const char *const names[] = {"with space",
                                 "%2Fquoted%",
                                 "\xff\xfe bytes",
                                 "-dash",
                                 "...",
                                 "new\nline",
                                 "ABCDEF0123456789",
                                 "0123456789abcdef0",
                                 "0123456789ABCDEF",
                                 "0123456789abcde"};
    enum { NAMES = sizeof names / sizeof names[0] };
    for (int i = 0; i < NAMES; i++)
        put(names[i], (uint64_t)i);
    for (int i = 0; i < NAMES; i++) {
        cr_expect_eq(file_check(mount_path(&mount, "%s", names[i]), 5000, (uint64_t)i), 0);
        cr_expect_eq(directory_count_name(mount.rank, names[i]), 1, "%s", names[i]);
    }
    cr_expect_eq(directory_count(mount.rank), NAMES);
}

Test(directories, a_hex_name_is_a_directory_or_a_hash_and_never_both) {
    make_directory(HASH);
    cr_expect_eq(file_put(mount_path(&mount, HASH), 10, 1), -EISDIR);
    put(HASH "/layer.safetensors", 1);
    cr_expect_eq(directory_count_name(mount.rank, HASH), 1);
    cr_expect_eq(unlink(mount_path(&mount, HASH "/layer.safetensors")), 0);
    cr_expect_eq(remove_directory(HASH), 0);
    put(HASH, 2);
    cr_expect(mkdir(mount_path(&mount, HASH), 0700) != 0 && errno == EEXIST);
    cr_expect_eq(file_check(mount_path(&mount, HASH), 5000, 2), 0);
    cr_expect_eq(directory_count_name(mount.rank, HASH), 1);
}

/* listings */

/* The next entry that is not . or .. */
static struct dirent *next_entry(DIR *dir) {
    struct dirent *entry;
    do
        entry = readdir(dir);
    while (entry && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")));
    return entry;
}

Test(directories, a_listing_tells_types_and_inode_numbers) {
    make_directory("d");
    put("f", 1);
    put(HASH, 2);
    AUTO_CLOSEDIR DIR *dir = opendir(mount.rank);
    int seen = 0;
    for (struct dirent *entry; (entry = next_entry(dir));) {
        struct stat st;
        cr_expect_eq(fstatat(dirfd(dir), entry->d_name, &st, 0), 0);
        cr_expect_eq(entry->d_type, S_ISDIR(st.st_mode) ? DT_DIR : DT_REG, "%s", entry->d_name);
        cr_expect_eq(entry->d_ino, st.st_ino, "%s", entry->d_name);
        cr_expect_eq(S_ISDIR(st.st_mode), !strcmp(entry->d_name, "d"));
        seen++;
    }
    cr_expect_eq(seen, 3);
}

static void put_many(const char *format, int count) {
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, format, i);
        cr_assert_eq(file_put(mount_path(&mount, "%s", name), 10, 1), 0, "%s", name);
    }
}

static int change_directory_until_killed(void *unused) {
    (void)unused;
    for (unsigned i = 0;; i++) {
        const char *path = mount_path(&mount, i % 3 ? "changing-%u" : "%016x", i % 100);
        if (file_put(path, 10, 1) != 0 || unlink(path) != 0)
            return complain("%s", path);
    }
}

static void count_kept(DIR *dir, unsigned *seen) {
    for (struct dirent *entry; (entry = next_entry(dir));) {
        unsigned i;
        if (sscanf(entry->d_name, "kept-%u", &i) == 1 && i < KEPT)
            seen[i]++;
    }
}

Test(directories, what_stays_is_listed_once_while_other_names_come_and_go) {
    put_many("kept-%d", KEPT);
    pid_t changer = child_start(change_directory_until_killed, NULL);
    for (int round = 0; round < 20; round++) {
        unsigned seen[KEPT] = {0};
        AUTO_CLOSEDIR DIR *dir = opendir(mount.rank);
        count_kept(dir, seen);
        for (int i = 0; i < KEPT; i++)
            cr_assert_eq(seen[i], 1, "round %d: kept-%d is listed %u times", round, i, seen[i]);
    }
    kill(changer, SIGKILL);
    child_wait(changer, 20);
}

Test(directories, everything_can_be_unlinked_while_listing) {
    put_many("name-%d", 300);
    put_many("%016x", 300);
    AUTO_CLOSEDIR DIR *dir = opendir(mount.rank);
    for (struct dirent *entry; (entry = next_entry(dir));)
        cr_expect_eq(unlinkat(dirfd(dir), entry->d_name, 0), 0, "%s: %s", entry->d_name,
                     strerror(errno));
    cr_expect_eq(directory_count(mount.rank), 0);
}

Test(directories, rewinddir_starts_again_with_what_is_there) {
    put_many("name-%d", 50);
    AUTO_CLOSEDIR DIR *dir = opendir(mount.rank);
    while (next_entry(dir)) {
    }
    put("later", 1);
    unlink(mount_path(&mount, "name-7"));
    rewinddir(dir);
    int count = 0, later = 0, gone = 0;
    for (struct dirent *entry; (entry = next_entry(dir)); count++) {
        later += !strcmp(entry->d_name, "later");
        gone += !strcmp(entry->d_name, "name-7");
    }
    cr_expect(later == 1 && gone == 0, "later %d, gone %d", later, gone);
    cr_expect_eq(count, 50);
}

Test(directories, seekdir_goes_on_where_telldir_was) {
    enum { NAMES = 700 };
    put_many("name-%d", NAMES);
    AUTO_CLOSEDIR DIR *dir = opendir(mount.rank);
    long places[NAMES];
    char names[NAMES][32];
    int count = 0;
    for (struct dirent *entry; (entry = next_entry(dir)); count++) {
        snprintf(names[count], sizeof names[count], "%.31s", entry->d_name);
        places[count] = telldir(dir); /* after this entry */
    }
    cr_assert_eq(count, NAMES);
    for (int i = 0; i + 1 < count; i += 41) {
        seekdir(dir, places[i]);
        struct dirent *entry = next_entry(dir);
        cr_assert(entry && !strcmp(entry->d_name, names[i + 1]), "after entry %d", i);
    }
    seekdir(dir, places[count - 1]);
    cr_expect_null(next_entry(dir));
}

Test(directories, two_listings_of_one_directory_do_not_disturb_each_other) {
    put_many("name-%d", 400);
    AUTO_CLOSEDIR DIR *a = opendir(mount.rank);
    AUTO_CLOSEDIR DIR *b = opendir(mount.rank);
    int count_a = 0, count_b = 0;
    for (;;) {
        bool more_a = next_entry(a), more_b = next_entry(b) && next_entry(b);
        count_a += more_a;
        count_b += 2 * more_b;
        if (!more_a && !more_b)
            break;
    }
    cr_expect_eq(count_a, 400);
    cr_expect_eq(count_b, 400);
}

Test(directories, modes_are_kept) {
    make_directory("d");
    cr_expect_eq(chmod(mount_path(&mount, "d"), 0500), 0, "%s", strerror(errno));
    struct stat st;
    cr_expect(stat(mount_path(&mount, "d"), &st) == 0 && (st.st_mode & 0700) == 0500);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    cr_expect(stat(mount_path(&mount, "d"), &st) == 0 && (st.st_mode & 0700) == 0500);
}
