/* SPDX-License-Identifier: Apache-2.0 */
/* Flags of open(2), modes at creation, access(2), and races for the exclusive creation of a name.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"

#define HASH "00112233445566778899aabbccddeeff"
enum { RACERS = 16, ROUNDS = 40, PROCESSES = 8 };

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 8, .options = "umask=0"});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_open, .init = open_mount, .fini = close_mount, .timeout = 60);

static const char *published(const char *name) {
    const char *path = mount_path(&mount, "%s", name);
    cr_assert_eq(file_put(path, 5000, 1), 0);
    mount_wait_released(&mount);
    return path;
}

static mode_t mode_of(const char *path) {
    struct stat st;
    cr_assert_eq(stat(path, &st), 0, "%s: %s", path, strerror(errno));
    return st.st_mode & 07777;
}

/* flags */

Test(posix_open, reading_with_O_TRUNC_empties_a_named_file) {
    const char *path = published("file");
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_TRUNC | O_CLOEXEC);
    cr_assert_geq(fd, 0, "%s", strerror(errno));
    char byte;
    cr_expect_eq(read(fd, &byte, 1), 0);
    cr_expect(write(fd, "x", 1) < 0 && errno == EBADF);
    close(fd);
    fd = -1;
    mount_wait_released(&mount);
    off_t size = file_size(path);
    cr_expect_eq(size, 0, "%ld", (long)size);
}

Test(posix_open, what_a_directory_can_be_opened_for) {
    const char *path = mount_path(&mount, "directory");
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_expect_eq(file_open_result(path, O_RDONLY), 0);
    cr_expect_eq(file_open_result(path, O_RDONLY | O_DIRECTORY), 0);
    cr_expect_eq(file_open_result(path, O_PATH), 0);
    cr_expect_eq(file_open_result(path, O_WRONLY), -EISDIR);
    cr_expect_eq(file_open_result(path, O_RDWR), -EISDIR);
    cr_expect_eq(file_open_result(path, O_RDONLY | O_CREAT), -EISDIR);
    cr_expect_eq(file_open_result(path, O_WRONLY | O_CREAT | O_EXCL), -EEXIST);
    cr_expect_eq(file_open_result(path, O_RDONLY | O_TRUNC), -EISDIR);
    cr_expect_eq(file_open_result(path, O_RDONLY | O_CREAT | O_DIRECTORY), -EINVAL);
}

Test(posix_open, what_a_file_cannot_be_opened_as) {
    const char *path = published("file");
    cr_expect_eq(file_open_result(path, O_RDONLY | O_DIRECTORY), -ENOTDIR);
    cr_expect_eq(file_open_result(path, O_PATH | O_DIRECTORY), -ENOTDIR);
    cr_expect_eq(file_open_result(mount_path(&mount, "file/"), O_RDONLY), -ENOTDIR);
    cr_expect_eq(file_open_result(mount_path(&mount, "new/"), O_CREAT | O_WRONLY), -EISDIR);
    cr_expect_eq(file_open_result(mount_path(&mount, "new"), O_RDONLY), -ENOENT);
    cr_expect_eq(file_open_result(path, O_CREAT | O_EXCL | O_RDONLY), -EEXIST);
}

Test(posix_open, flags_without_a_meaning_here_do_no_harm) {
    const int flags[] = {O_NOFOLLOW, O_NONBLOCK, O_NOATIME, O_NOCTTY, O_SYNC,
                         O_DSYNC,    O_ASYNC,    O_CLOEXEC, O_DIRECT, O_LARGEFILE};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        const char *path = mount_path(&mount, "file-%zu", i);
        AUTO_CLOSE int fd = open(path, O_CREAT | O_RDWR | flags[i], 0600);
        cr_assert_geq(fd, 0, "flag %o: %s", flags[i], strerror(errno));
        cr_expect_eq(write(fd, "bytes", 5), 5, "flag %o: %s", flags[i], strerror(errno));
        close(fd);
        fd = open(path, O_RDONLY | flags[i]);
        char room[8];
        cr_expect_eq(read(fd, room, 8), 5, "flag %o: %s", flags[i], strerror(errno));
        cr_expect(memcmp(room, "bytes", 5) == 0);
    }
}

/* Not each write: a file is durable as a whole, from its close. */
Test(posix_open, a_file_written_with_O_SYNC_is_durable_when_it_is_closed) {
    const int flags[] = {O_SYNC, O_DSYNC};
    for (int i = 0; i < 2; i++) {
        int fd = open(mount_path(&mount, "file-%d", i), O_CREAT | O_WRONLY | flags[i], 0600);
        cr_assert_geq(fd, 0);
        cr_expect_eq(write(fd, "one", 3), 3);
        cr_expect_eq(write(fd, "two", 3), 3);
        cr_expect_eq(close(fd), 0);
    }
    mount_kill(&mount);
    mount_start(&mount, "cold_start=load");
    for (int i = 0; i < 2; i++)
        cr_expect(file_is_text(mount_path(&mount, "file-%d", i), "onetwo"), "flag %o", flags[i]);
}

Test(posix_open, a_descriptor_with_O_PATH_names_the_file_and_no_more) {
    const char *path = published("file");
    AUTO_CLOSE int fd = open(path, O_PATH | O_CLOEXEC);
    struct stat st;
    char byte, link[64];
    cr_assert_geq(fd, 0);
    cr_expect(fstat(fd, &st) == 0 && st.st_size == 5000);
    cr_expect(read(fd, &byte, 1) < 0 && errno == EBADF);
    cr_expect(ftruncate(fd, 0) < 0 && errno == EBADF);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    cr_expect_eq(file_check(link, 5000, 1), 0);
    cr_expect_eq(unlink(path), 0);
    cr_expect(fstat(fd, &st) == 0 || errno == ESTALE || errno == ENOENT);
}

Test(posix_open, O_PATH_of_a_directory_is_a_place_to_start_from) {
    cr_assert_eq(mkdir(mount_path(&mount, "directory"), 0700), 0);
    AUTO_CLOSE int dir = open(mount_path(&mount, "directory"), O_PATH | O_CLOEXEC);
    AUTO_CLOSE int fd = openat(dir, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0, "%s", strerror(errno));
    cr_expect_eq(write(fd, "x", 1), 1);
    close(fd);
    fd = -1;
    cr_expect_eq(renameat(dir, "file", dir, "moved"), 0);
    cr_expect(file_is_text(mount_path(&mount, "directory/moved"), "x"));
    cr_expect_eq(unlinkat(dir, "moved", 0), 0);
}

/* modes and access */

Test(posix_open, the_umask_of_the_process_is_taken_from_new_modes) {
    const mode_t masks[] = {0, 022, 027, 077, 0777};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        const char *file = mount_path(&mount, "file-%zu", i);
        const char *directory = mount_path(&mount, "directory-%zu", i);
        umask(masks[i]);
        AUTO_CLOSE int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
        cr_assert_geq(fd, 0);
        cr_expect_eq(mode_of(file), 0666 & ~masks[i]);
        close(fd);
        fd = -1;
        mount_wait_released(&mount);
        cr_expect_eq(mode_of(file), 0666 & ~masks[i]);
        cr_expect_eq(mkdir(directory, 0777), 0);
        cr_expect_eq(mode_of(directory), 0777 & ~masks[i]);
    }
}

Test(posix_open, a_file_created_without_permissions_is_still_written_by_its_creator) {
    const char *path = mount_path(&mount, "file");
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0);
    cr_assert_geq(fd, 0, "%s", strerror(errno));
    cr_expect_eq(write(fd, "x", 1), 1);
    close(fd);
    cr_expect_eq(mode_of(path), 0);
}

Test(posix_open, set_id_and_sticky_bits_are_kept) {
    const char *file = published("file"), *directory = mount_path(&mount, "directory");
    cr_assert_eq(mkdir(directory, 0700), 0);
    cr_expect_eq(chmod(file, 06755), 0);
    cr_expect_eq(chmod(directory, 01777), 0);
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    cr_expect_eq(mode_of(file), 06755);
    cr_expect_eq(mode_of(directory), 01777);
}

Test(posix_open, access_tells_what_is_there) {
    const char *path = published("file");
    cr_expect_eq(access(path, F_OK), 0);
    cr_expect_eq(access(path, R_OK | W_OK), 0);
    cr_expect(access(mount_path(&mount, "absent"), F_OK) < 0 && errno == ENOENT);
    cr_expect(access(mount_path(&mount, "file/x"), F_OK) < 0 && errno == ENOTDIR);
    cr_expect_eq(faccessat(AT_FDCWD, path, R_OK, AT_EACCESS), 0);
}

/* races */

struct race {
    pthread_barrier_t start;
    char path[MOUNT_PATH_MAX];
    _Atomic int won, wrong;
};

static void *create_exclusively(void *argument) {
    struct race *race = argument;
    pthread_barrier_wait(&race->start);
    int fd = open(race->path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0)
        race->won++;
    else if (errno != EEXIST)
        race->wrong = errno;
    if (fd >= 0 && (write(fd, "x", 1) != 1 || close(fd) != 0))
        race->wrong = errno;
    return NULL;
}

Test(posix_open, of_16_threads_that_create_exclusively_one_wins) {
    for (int round = 0; round < ROUNDS; round++) {
        struct race race = {0};
        pthread_t threads[RACERS];
        pthread_barrier_init(&race.start, NULL, RACERS);
        snprintf(race.path, sizeof race.path, "%s",
                 mount_path(&mount, round % 2 ? "%08x" HASH : "%d", round));
        for (int i = 0; i < RACERS; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, create_exclusively, &race), 0);
        for (int i = 0; i < RACERS; i++)
            pthread_join(threads[i], NULL);
        cr_assert_eq(race.wrong, 0, "round %d: %s", round, strerror(race.wrong));
        cr_assert_eq(race.won, 1, "round %d: %d winners", round, race.won);
        cr_assert(file_is_text(race.path, "x"));
    }
}

static int make_all_names(void *argument) {
    const char *kind = argument;
    int won = 0;
    for (int i = 0; i < 200; i++) {
        const char *path = mount_path(&mount, "%s-%d", kind, i);
        int fd = strcmp(kind, "file") ? mkdir(path, 0700)
                                      : open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            return complain("%s", path);
        won += fd >= 0;
        if (fd > 0)
            close(fd);
    }
    return dprintf(STDOUT_FILENO, "%d\n", won) > 0 ? 0 : 1;
}

/* Each says how many it won on a pipe. */
static int names_won(const char *kind) {
    pid_t children[PROCESSES];
    int ends[2], saved = dup(STDOUT_FILENO), sum = 0;
    char text[1024] = "";
    cr_assert_eq(pipe(ends), 0);
    dup2(ends[1], STDOUT_FILENO);
    for (int i = 0; i < PROCESSES; i++)
        children[i] = child_start(make_all_names, (void *)kind);
    dup2(saved, STDOUT_FILENO);
    close(ends[1]);
    for (int i = 0; i < PROCESSES; i++)
        cr_expect_eq(child_wait(children[i], 50), 0);
    for (size_t have = 0; have < sizeof text - 1;) {
        ssize_t n = read(ends[0], text + have, sizeof text - 1 - have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    char *at = text;
    for (int won, n; sscanf(at, "%d\n%n", &won, &n) == 1; at += n)
        sum += won;
    close(ends[0]);
    close(saved);
    return sum;
}

Test(posix_open, of_8_processes_that_make_200_names_each_name_has_one_maker) {
    cr_expect_eq(names_won("file"), 200);
    cr_expect_eq(names_won("directory"), 200);
    mount_wait_released(&mount);
    cr_expect_eq(directory_count(mount.rank), 400);
}
