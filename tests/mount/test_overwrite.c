/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hot names (P1, P6, P7): writers that overwrite, rename over and unlink one name as fast as they
 * can, against readers and stat. No error, no mix, no short read, no ESTALE; ENOENT only where
 * somebody unlinks. Each file says in its first words what it must hold. Runs CPL3_TEST_SECONDS.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"
#include "tests/support/wait.h"

enum {
    OVERWRITE = 1,   /* O_TRUNC on the name itself */
    RENAME_OVER = 2, /* a temp name, close, rename */
    RENAME_OPEN = 4, /* a temp name, rename, close */
    UNLINK = 8,
    BYTES_MAX = 65536,
    PROCESSES_MAX = 8,
    COMPLAINTS_MAX = 5,
};

struct scenario {
    const char what[48];
    unsigned ways; /* of writing */
    unsigned threads;
    unsigned writers, readers, watchers;
    bool own_pid_namespace, hash_name;
};

struct shared {
    _Atomic uint64_t last_id, written, read, absent, watched, wrong;
    uint64_t end_ns;
    char path[MOUNT_PATH_MAX];
    unsigned ways;
};

/* What a file begins with; the rest is the pattern of its id. */
struct head {
    uint64_t id, bytes;
};

static struct mount mount;
static struct shared *shared;

static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(overwrite, .fini = close_mount, .timeout = 300);

static void wrong(const char *what) {
    int error = errno;
    if (atomic_fetch_add(&shared->wrong, 1) < COMPLAINTS_MAX)
        fprintf(stderr, "overwrite: %s: %s\n", what, strerror(error));
}

static bool time_is_left(void) {
    return clock_monotonic_ns() < shared->end_ns;
}

/* writers */

/* Writes in one or two steps. */
static void fill_file(int fd, unsigned random) {
    static char bytes[BYTES_MAX];
    struct head head = {.id = atomic_fetch_add(&shared->last_id, 1) + 1,
                        .bytes = sizeof head + random % (BYTES_MAX - sizeof head)};
    if (random % 4 == 0)
        head.bytes = sizeof head + random % 4000;
    memcpy(bytes, &head, sizeof head);
    fill_pattern(bytes + sizeof head, head.bytes - sizeof head, head.id, 0);
    size_t first = random % 2 ? head.bytes : head.bytes / 2;
    if (write(fd, bytes, first) != (ssize_t)first ||
        write(fd, bytes + first, head.bytes - first) != (ssize_t)(head.bytes - first))
        wrong("write");
}

static unsigned choose_way(unsigned random) {
    unsigned ways = shared->ways & (OVERWRITE | RENAME_OVER | RENAME_OPEN);
    for (;; random++)
        if (ways & (1u << random % 3))
            return 1u << random % 3;
}

static void write_once(unsigned random) {
    char temp[MOUNT_PATH_MAX + 32];
    unsigned way = choose_way(random >> 8);
    snprintf(temp, sizeof temp, way == OVERWRITE ? "%s" : "%s.tmp%d", shared->path, getpid());
    int access = random & 16 ? O_WRONLY : O_RDWR;
    int fd = open(temp, access | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return wrong("open for writing");
    fill_file(fd, random);
    if (way == RENAME_OPEN && rename(temp, shared->path) != 0)
        wrong("rename before close");
    if (close(fd) != 0)
        wrong("close");
    if (way == RENAME_OVER && rename(temp, shared->path) != 0)
        wrong("rename");
    if ((shared->ways & UNLINK) && random % 16 == 3 && unlink(shared->path) != 0 && errno != ENOENT)
        wrong("unlink");
    atomic_fetch_add(&shared->written, 1);
}

static int write_until_the_end(void *unused) {
    (void)unused;
    unsigned random = (unsigned)getpid();
    while (time_is_left())
        write_once((unsigned)rand_r(&random));
    return 0;
}

/* readers */

static bool is_whole(const char *bytes, size_t count) {
    struct head head;
    if (count < sizeof head)
        return false;
    memcpy(&head, bytes, sizeof head);
    return head.bytes == count && is_pattern(bytes + sizeof head, count - sizeof head, head.id, 0);
}

static void read_mapped(int fd, size_t bytes, int kind) {
    char *mapped = mmap(NULL, bytes, PROT_READ, kind, fd, 0);
    if (mapped == MAP_FAILED)
        return wrong("mmap");
    if (!is_whole(mapped, bytes))
        wrong("a mapped file is not whole");
    munmap(mapped, bytes);
}

static void read_once(unsigned random) {
    static char bytes[BYTES_MAX + 1];
    AUTO_CLOSE int fd = open(shared->path, O_RDONLY | O_CLOEXEC | (random % 3 ? 0 : O_DIRECT));
    if (fd < 0) {
        if (errno != ENOENT || !(shared->ways & UNLINK))
            return wrong("open for reading");
        atomic_fetch_add(&shared->absent, 1);
        return;
    }
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size <= 0 || st.st_size > BYTES_MAX)
        return wrong("fstat of an open file");
    if (random % 5 == 0) {
        read_mapped(fd, (size_t)st.st_size, random % 2 ? MAP_PRIVATE : MAP_SHARED);
    } else {
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n != st.st_size)
            wrong("read is not fstat's size");
        else if (!is_whole(bytes, (size_t)n))
            wrong("a file is not whole");
    }
    atomic_fetch_add(&shared->read, 1);
}

static int read_until_the_end(void *unused) {
    (void)unused;
    unsigned random = (unsigned)getpid();
    while (time_is_left())
        read_once((unsigned)rand_r(&random));
    return 0;
}

static int watch_until_the_end(void *unused) {
    (void)unused;
    struct stat st;
    for (; time_is_left(); atomic_fetch_add(&shared->watched, 1))
        if (stat(shared->path, &st) != 0 && (errno != ENOENT || !(shared->ways & UNLINK)))
            wrong("stat");
    return 0;
}

/* scenarios */

ParameterizedTestParameters(overwrite, readers_see_whole_versions_and_no_errors) {
    static struct scenario scenarios[] = {
        {"overwrite", OVERWRITE, 8, 3, 3, 2, false, false},
        {"overwrite, 1 worker", OVERWRITE, 1, 2, 2, 1, false, false},
        {"overwrite, hash name, as pid 0", OVERWRITE, 8, 3, 3, 2, true, true},
        {"rename over", RENAME_OVER, 8, 3, 3, 2, false, false},
        {"rename before close", RENAME_OPEN, 8, 2, 3, 1, false, true},
        {"overwrite and rename", OVERWRITE | RENAME_OVER | RENAME_OPEN, 8, 3, 3, 2, true, false},
        {"unlink", OVERWRITE | UNLINK, 8, 3, 3, 2, false, true},
        {"everything", OVERWRITE | RENAME_OVER | RENAME_OPEN | UNLINK, 8, 3, 3, 2, false, false},
        {"everything, as pid 0", OVERWRITE | RENAME_OVER | RENAME_OPEN | UNLINK, 8, 3, 3, 2, true,
         true},
    };
    return cr_make_param_array(struct scenario, scenarios, sizeof scenarios / sizeof scenarios[0]);
}

static void run_processes(const struct scenario *s) {
    pid_t children[PROCESSES_MAX];
    unsigned count = 0;
    for (unsigned i = 0; i < s->writers; i++)
        children[count++] = child_start(write_until_the_end, NULL);
    for (unsigned i = 0; i < s->readers; i++)
        children[count++] = child_start(read_until_the_end, NULL);
    for (unsigned i = 0; i < s->watchers; i++)
        children[count++] = child_start(watch_until_the_end, NULL);
    while (count > 0)
        cr_expect_eq(child_wait(children[--count], heavy_seconds() + 30), 0, "%s", s->what);
}

ParameterizedTest(struct scenario *s, overwrite, readers_see_whole_versions_and_no_errors) {
    /* Memory enough that a disk which stops for some seconds makes no write wait for too long. */
    mount_open(&mount, &(struct mount_settings){.threads = s->threads,
                                                .options = "memory=256M",
                                                .own_pid_namespace = s->own_pid_namespace});
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *name = s->hash_name ? "00112233445566778899aabbccddeeff" : "page.bin";
    snprintf(shared->path, sizeof shared->path, "%s", mount_path(&mount, "%s", name));
    shared->ways = s->ways & ~(unsigned)UNLINK;
    write_once(1);
    shared->ways = s->ways;
    shared->end_ns = clock_monotonic_ns() + (uint64_t)(heavy_seconds() * 0.6e9);
    run_processes(s);
    fprintf(stderr, "overwrite: %s: %lu written, %lu read, %lu absent, %lu stats\n", s->what,
            shared->written, shared->read, shared->absent, shared->watched);
    cr_expect_eq(shared->wrong, 0, "%s: %lu errors", s->what, shared->wrong);
    cr_expect(shared->written > 1 && shared->read > 0 && shared->watched > 0, "%s", s->what);
    munmap(shared, sizeof *shared);
}

/* a size change under a reader */

Test(overwrite, truncate_by_name_leaves_a_mapped_reader_alone) {
    mount_open(&mount, NULL);
    enum { BYTES = 3 << 20 };
    const char *path = mount_path(&mount, "mapped");
    cr_assert_eq(file_put(path, BYTES, 1), 0);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (int kind = 0; kind < 2; kind++) {
        char *bytes = mmap(NULL, BYTES, PROT_READ, kind ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        cr_assert_neq(bytes, MAP_FAILED, "%s", strerror(errno));
        cr_expect_eq(truncate(path, 5000 - kind), 0, "%s", strerror(errno));
        cr_expect_eq(file_check(path, (size_t)(5000 - kind), 1), 0);
        cr_expect(is_pattern(bytes, BYTES, 1, 0), "no SIGBUS and no zeros");
        munmap(bytes, BYTES);
    }
}

/* one overwriter, one reader that waits for each close */

enum way { IN_PLACE, TEMP_CLOSE_RENAME, TEMP_RENAME_CLOSE, MAPPED_TEMP, MAPPED_IN_PLACE, WAYS };

struct turns {
    int to_reader[2], to_writer[2];
    const char *path;
    unsigned rounds;
    enum way way;
};

static size_t turn_bytes(unsigned round) {
    return 1 + round * 7 % 9000;
}

static int write_mapped(int fd, unsigned round) {
    size_t n = turn_bytes(round);
    if (ftruncate(fd, (off_t)n) != 0)
        return complain("ftruncate");
    char *bytes = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return complain("mmap");
    fill_pattern(bytes, n, round, 0);
    munmap(bytes, n);
    return 0;
}

static int write_plain(int fd, unsigned round) {
    static char bytes[9001];
    size_t n = turn_bytes(round);
    fill_pattern(bytes, n, round, 0);
    return write(fd, bytes, n) == (ssize_t)n ? 0 : complain("write");
}

static int overwrite_once(const struct turns *t, unsigned round) {
    char temp[MOUNT_PATH_MAX + 8];
    bool mapped = t->way == MAPPED_TEMP || t->way == MAPPED_IN_PLACE;
    bool in_place = t->way == IN_PLACE || t->way == MAPPED_IN_PLACE;
    snprintf(temp, sizeof temp, "%s%s", t->path, in_place ? "" : ".tmp");
    int truncate = t->way == MAPPED_IN_PLACE ? 0 : O_TRUNC;
    int fd = open(temp, O_RDWR | O_CREAT | O_CLOEXEC | truncate, 0600);
    if (fd < 0)
        return complain("open");
    int result = mapped ? write_mapped(fd, round) : write_plain(fd, round);
    if (t->way == TEMP_RENAME_CLOSE && rename(temp, t->path) != 0)
        return complain("rename");
    if (close(fd) != 0)
        return complain("close");
    if ((t->way == TEMP_CLOSE_RENAME || t->way == MAPPED_TEMP) && rename(temp, t->path) != 0)
        return complain("rename");
    return result;
}

static int overwrite_in_turns(void *argument) {
    const struct turns *t = argument;
    for (unsigned i = 1; i <= t->rounds; i++) {
        char byte = 'w';
        if (overwrite_once(t, i) != 0)
            return complain("round %u", i);
        if (write(t->to_reader[1], &byte, 1) != 1 || read(t->to_writer[0], &byte, 1) != 1)
            return complain("pipe");
    }
    return 0;
}

/* What was written through a mapping is published by RELEASE, a moment after close: until then it
 * is the version before. */
static void check_turn(const struct turns *t, unsigned round) {
    bool mapped = t->way == MAPPED_TEMP || t->way == MAPPED_IN_PLACE;
    if (round % 2 && !mapped)
        cr_assert_eq(file_size(t->path), turn_bytes(round), "way %d, round %u", t->way, round);
    size_t n;
    AUTO_FREE char *bytes = file_read(t->path, &n);
    cr_assert(bytes, "way %d, round %u: %s", t->way, round, strerror(errno));
    bool right = false;
    for (unsigned back = 0; !right && back < round && back <= (mapped ? 2 : 0); back++)
        right = n == turn_bytes(round - back) && is_pattern(bytes, n, round - back, 0);
    cr_assert(right, "way %d, round %u: %zu bytes of another version, or no version", t->way, round,
              n);
}

ParameterizedTestParameters(overwrite, what_one_process_closed_another_one_reads_and_stats) {
    static enum way ways[] = {IN_PLACE, TEMP_CLOSE_RENAME, TEMP_RENAME_CLOSE, MAPPED_TEMP,
                              MAPPED_IN_PLACE};
    return cr_make_param_array(enum way, ways, WAYS);
}

ParameterizedTest(enum way *way, overwrite, what_one_process_closed_another_one_reads_and_stats) {
    mount_open(&mount, &(struct mount_settings){.threads = 8});
    struct turns t = {.path = mount_path(&mount, "turns"), .rounds = 400, .way = *way};
    cr_assert(pipe(t.to_reader) == 0 && pipe(t.to_writer) == 0);
    pid_t writer = child_start(overwrite_in_turns, &t);
    for (unsigned i = 1; i <= t.rounds; i++) {
        char byte;
        cr_assert_eq(read(t.to_reader[0], &byte, 1), 1);
        check_turn(&t, i);
        cr_assert_eq(write(t.to_writer[1], "r", 1), 1);
    }
    cr_expect_eq(child_wait(writer, 20), 0);
    mount_wait_released(&mount);
    cr_expect_eq(file_check(t.path, turn_bytes(t.rounds), t.rounds), 0);
}
