/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight processes on shared names for CPL3_TEST_SECONDS. Each version tells whose it is, how long
 * and what its bytes are, so any read proves that it is one whole version, or absent; what is
 * truncated by name is a prefix of one. No call gives an error that its neighbours do not explain.
 * At the end the daemon is up, nothing is left open or staged, and all can be found and removed.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/random.h"
#include "tests/support/wait.h"

enum {
    PROCESSES = 8,
    MAGIC = 0x56455253,
    LARGEST = 300000,
    CUT_NAMES = 4,       /* of those that are truncated by name, */
    CUT_BYTES = 200,     /* to less than that */
    FILLING = 150000,    /* bytes of each name at the start */
    DIRECTORIES = 3,     /* that come and go */
    EXTRA_SECONDS = 60,  /* for the slowest process to notice that time is up */
    ENTRIES_MAX = 20000, /* a listing that goes on for ever */
};

struct header {
    uint32_t magic;
    uint32_t name;
    uint32_t writer;
    uint32_t bytes; /* with this header */
    uint64_t sequence;
    uint64_t seed; /* of the bytes after it */
};

static struct mount mount;
static unsigned names;
static uint64_t seed;

/* one version */

static uint64_t seed_of(uint32_t writer, uint64_t sequence) {
    return (uint64_t)writer << 48 ^ sequence * 0x9e3779b97f4a7c15u;
}

static uint32_t fill_version(char *room, uint32_t name, uint32_t writer, uint64_t sequence,
                             uint32_t bytes) {
    struct header header = {MAGIC, name, writer, bytes, sequence, seed_of(writer, sequence)};
    memcpy(room, &header, sizeof header);
    fill_pattern(room + sizeof header, bytes - sizeof header, header.seed, 0);
    return bytes;
}

static bool is_version(const char *room, size_t bytes, uint32_t name, bool prefix) {
    struct header header;
    if (prefix && bytes < CUT_BYTES)
        return true; /* it may have grown again by a truncation, with zeros */
    if (bytes < sizeof header)
        return false;
    memcpy(&header, room, sizeof header);
    return header.magic == MAGIC && header.name == name &&
           (prefix ? bytes <= header.bytes : bytes == header.bytes) &&
           header.seed == seed_of(header.writer, header.sequence) &&
           is_pattern(room + sizeof header, bytes - sizeof header, header.seed, 0);
}

/* the processes */

struct worker {
    uint32_t me;
    uint64_t sequence;
    uint64_t random;
    char room[LARGEST + 1];
};

static unsigned below(struct worker *w, unsigned limit) {
    return (unsigned)(random_next(&w->random) % limit);
}

static const char *shared_path(unsigned name) {
    return mount_path(&mount, name % 2 ? "page-%u.bin" : "%032x", name);
}

static const char *cut_path(unsigned name) {
    return mount_path(&mount, "cut-%u", name);
}

static uint32_t next_version(struct worker *w, uint32_t name) {
    uint32_t bytes = (uint32_t)sizeof(struct header);
    bytes += below(w, 4) ? below(w, 20000) : below(w, LARGEST - bytes);
    return fill_version(w->room, name, w->me, ++w->sequence, bytes);
}

/* In one write or in pieces; 0 or -errno. */
static int write_version(struct worker *w, const char *path, uint32_t bytes, int flags) {
    AUTO_CLOSE int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC | flags, 0600);
    uint32_t piece = below(w, 2) ? bytes : 1 + bytes / 3;
    if (fd < 0)
        return -errno;
    for (uint32_t done = 0; done < bytes; done += piece) {
        uint32_t count = bytes - done < piece ? bytes - done : piece;
        if (write(fd, w->room + done, count) != (ssize_t)count)
            return -errno;
    }
    if (below(w, 50) == 0 && fsync(fd) != 0)
        return -errno;
    int closing = fd;
    fd = -1;
    return close(closing) == 0 ? 0 : -errno;
}

static int put_by_rename(struct worker *w) {
    unsigned name = below(w, names);
    const char *temporary = mount_path(&mount, ".tmp-%u", w->me);
    int result = write_version(w, temporary, next_version(w, name), O_TRUNC);
    if (result == 0 && rename(temporary, shared_path(name)) != 0)
        result = -errno;
    /* In a small store a closed temporary may be evicted like any other file. */
    return result == -ENOENT ? 0 : result;
}

static int put_in_place(struct worker *w) {
    unsigned name = below(w, names);
    return write_version(w, shared_path(name), next_version(w, name), O_TRUNC);
}

static int put_to_cut(struct worker *w) {
    unsigned name = below(w, CUT_NAMES);
    return write_version(w, cut_path(name), next_version(w, name), O_TRUNC);
}

static int cut(struct worker *w) {
    int result = truncate(cut_path(below(w, CUT_NAMES)), below(w, CUT_BYTES)) == 0 ? 0 : -errno;
    return result == -ENOENT ? 0 : result;
}

static int read_and_check(struct worker *w, const char *path, unsigned name, bool prefix) {
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    ssize_t n = read(fd, w->room, sizeof w->room);
    if (n < 0 || fstat(fd, &st) != 0)
        return -errno;
    if (n != st.st_size || !is_version(w->room, (size_t)n, name, prefix))
        return complain("%s: %zd bytes read of %ld are no whole version", path, n,
                        (long)st.st_size);
    return 0;
}

static int get(struct worker *w) {
    unsigned name = below(w, names);
    return read_and_check(w, shared_path(name), name, false);
}

static int get_cut(struct worker *w) {
    unsigned name = below(w, CUT_NAMES);
    return read_and_check(w, cut_path(name), name, true);
}

static int remove_one(struct worker *w) {
    return unlink(shared_path(below(w, names))) == 0 || errno == ENOENT ? 0 : -errno;
}

static int ask_for_one(struct worker *w) {
    struct stat st;
    if (stat(shared_path(below(w, names)), &st) != 0)
        return errno == ENOENT ? 0 : -errno;
    return S_ISREG(st.st_mode) ? 0 : complain("mode %o", st.st_mode);
}

static int list(struct worker *w) {
    AUTO_CLOSEDIR DIR *dir = opendir(mount.rank);
    int count = 0;
    (void)w;
    if (!dir)
        return -errno;
    for (errno = 0; readdir(dir) && count < ENTRIES_MAX; count++) {
    }
    return count < ENTRIES_MAX ? -errno : complain("the listing does not end");
}

static int use_directory(struct worker *w) {
    const char *path = mount_path(&mount, "directory-%u", below(w, DIRECTORIES));
    char file[MOUNT_PATH_MAX + 16];
    snprintf(file, sizeof file, "%s/file", path);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return -errno;
    int result = write_version(w, file, next_version(w, 0), O_TRUNC);
    if (result != 0 && result != -ENOENT)
        return result;
    if (unlink(file) != 0 && errno != ENOENT)
        return -errno;
    return rmdir(path) == 0 || errno == ENOENT || errno == ENOTEMPTY ? 0 : -errno;
}

static int create_exclusively(struct worker *w) {
    const char *path = mount_path(&mount, "lock-%u", below(w, 3));
    int result = write_version(w, path, next_version(w, 0), O_EXCL);
    if (result == -EEXIST)
        return 0;
    return result == 0 && unlink(path) != 0 && errno != ENOENT ? -errno : result;
}

static const struct {
    unsigned weight;
    int (*call)(struct worker *w);
    const char *what;
} calls[] = {
    {14, put_by_rename, "put by rename"},
    {14, put_in_place, "overwrite"},
    {40, get, "get"},
    {8, remove_one, "unlink"},
    {8, ask_for_one, "stat"},
    {1, list, "list"},
    {3, put_to_cut, "put of what is cut"},
    {3, cut, "truncate"},
    {4, get_cut, "get of what is cut"},
    {3, use_directory, "directory"},
    {3, create_exclusively, "exclusive creation"},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

static int work(void *argument) {
    static struct worker w;
    uint64_t end = clock_monotonic_ns() + (uint64_t)(heavy_seconds() * 1e9);
    w.me = (uint32_t)(uintptr_t)argument;
    w.random = seed + w.me;
    unsigned sum = 0;
    for (unsigned k = 0; k < CALLS; k++)
        sum += calls[k].weight;
    while (clock_monotonic_ns() < end) {
        unsigned at = below(&w, sum), i = 0;
        while (at >= calls[i].weight)
            at -= calls[i++].weight;
        int result = calls[i].call(&w);
        errno = result < 0 ? -result : 0;
        if (result != 0)
            return complain("%s, version %" PRIu64, calls[i].what, w.sequence);
    }
    return 0;
}

/* the test */

struct store_size {
    char size[16];
    unsigned names;
    bool evicts;
};
static struct store_size sizes[] = {{"512M", 40, false}, {"64M", 900, true}};

static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_processes, .fini = close_mount, .timeout = 300);

static void expect_order_afterwards(void) {
    static const char *const none[] = {
        "rank0.corrupt",  "rank0.read_errors",  "rank0.write_errors",  "rank0.withdrawn",
        "rank0.no_space", "rank0.dead_writers", "memory.staging_bytes"};
    mount_wait_released(&mount);
    mount_commit(&mount);
    cr_expect(WAIT_UNTIL(mount_counter(&mount, "memory.staging_bytes") == 0, 20),
              "what nobody writes any more is still staged");
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        cr_expect_eq(mount_counter(&mount, none[i]), 0, "%s", none[i]);
    cr_expect_eq(run_shell(60, NULL, "find '%s' -type f -exec md5sum {} + >/dev/null", mount.rank),
                 0);
    cr_expect_eq(run_shell(60, NULL, "rm -rf '%s'/* '%s'/.tmp-*", mount.rank, mount.rank), 0);
    cr_expect_eq(directory_count(mount.rank), 0);
}

static void fill_store(void) {
    static struct worker w = {.random = 1};
    for (unsigned name = 0; name < names; name++) {
        fill_version(w.room, name, 100, name, FILLING);
        cr_assert_eq(write_version(&w, shared_path(name), FILLING, O_TRUNC), 0);
    }
}

ParameterizedTestParameters(posix_processes, eight_see_whole_versions_and_nothing_else) {
    return cr_make_param_array(struct store_size, sizes, sizeof sizes / sizeof sizes[0]);
}

ParameterizedTest(struct store_size *s, posix_processes,
                  eight_see_whole_versions_and_nothing_else) {
    pid_t children[PROCESSES];
    seed = random_seed();
    printf("SEED=%" PRIu64 "\n", seed);
    names = s->names;
    mount_open(&mount, &(struct mount_settings){.threads = 8, .size = s->size});
    fill_store();
    for (uintptr_t i = 0; i < PROCESSES; i++)
        children[i] = child_start(work, (void *)(i + 1));
    for (int i = 0; i < PROCESSES; i++)
        cr_expect_eq(child_wait(children[i], heavy_seconds() + EXTRA_SECONDS), 0, "SEED=%" PRIu64,
                     seed);
    cr_expect_eq(mount_counter(&mount, "rank0.evictions") > 0, s->evicts);
    expect_order_afterwards();
}

static int work_in_directories(void *argument) {
    static struct worker w;
    uint64_t end = clock_monotonic_ns() + (uint64_t)(heavy_seconds() * 1e9);
    w.me = (uint32_t)(uintptr_t)argument;
    w.random = seed + w.me;
    while (clock_monotonic_ns() < end) {
        int result = use_directory(&w);
        errno = -result;
        if (result != 0)
            return complain("version %" PRIu64, w.sequence);
    }
    return 0;
}

/* A second ESTALE for one call, since its file stands in a new directory, would reach the client.
 */
Test(posix_processes, directories_come_and_go_with_the_files_in_them) {
    pid_t children[PROCESSES];
    seed = random_seed();
    printf("SEED=%" PRIu64 "\n", seed);
    mount_open(&mount, &(struct mount_settings){.threads = 8, .size = "64M"});
    for (uintptr_t i = 0; i < PROCESSES; i++)
        children[i] = child_start(work_in_directories, (void *)(i + 1));
    for (int i = 0; i < PROCESSES; i++)
        cr_expect_eq(child_wait(children[i], heavy_seconds() + EXTRA_SECONDS), 0, "SEED=%" PRIu64,
                     seed);
    expect_order_afterwards();
}

/* One process: what it reads is the version that it put last, never an older one. */
Test(posix_processes, in_a_small_store_a_name_is_its_last_version_or_absent) {
    enum { NAMES = 600, PUTS = 1200 };
    static uint64_t last[NAMES];
    static struct worker w;
    unsigned found = 0;
    seed = w.random = random_seed();
    printf("SEED=%" PRIu64 "\n", seed);
    mount_open(&mount, &(struct mount_settings){.threads = 4, .size = "64M"});
    for (int i = 0; i < PUTS; i++) {
        unsigned name = below(&w, NAMES);
        uint32_t bytes = 50000 + below(&w, 200000);
        fill_version(w.room, name, 1, ++w.sequence, bytes);
        cr_assert_eq(write_version(&w, shared_path(name), bytes, O_TRUNC), 0, "%u", name);
        last[name] = w.sequence;
        name = below(&w, NAMES);
        size_t count = 0;
        AUTO_FREE char *now = file_read(shared_path(name), &count);
        cr_assert(now || errno == ENOENT, "SEED=%" PRIu64 ": %s", seed, strerror(errno));
        if (!now)
            continue;
        found++;
        cr_assert(is_version(now, count, name, false), "SEED=%" PRIu64 ", put %d", seed, i);
        cr_assert_eq(((struct header *)now)->sequence, last[name], "SEED=%" PRIu64 ", put %d", seed,
                     i);
    }
    cr_expect_gt(found, PUTS / 20);
    cr_expect_gt(mount_counter(&mount, "rank0.evictions"), 0);
    expect_order_afterwards();
}
