/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both engines on a real file system: each engine test runs once with io_uring and once with
 * threads, and must give the same results.
 */
#include "core/slab.h"

#include "core/clock.h"
#include "tests/unit/slab_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { DEPTH = 16 };

TestSuite(slab_io, .init = make_directory, .fini = remove_directory, .timeout = 60);

/* requests, with both engines */

static struct slab_io *open_io(enum slab_engine engine, unsigned depth) {
    struct slab_io *io;
    cr_assert_eq(slab_io_open(engine, depth, &io), 0);
    return io;
}

static bool has_uring(void) {
    struct slab_io *io;
    if (slab_io_open(SLAB_ENGINE_URING, 1, &io) != 0)
        return false;
    slab_io_close(io);
    return true;
}

/* The body runs as two tests. */
#define ENGINE_TEST(name, ...)                                                                     \
    static void name(enum slab_engine engine);                                                     \
    Test(slab_io, name##_with_io_uring, ##__VA_ARGS__) {                                           \
        if (!has_uring())                                                                          \
            cr_skip_test("io_uring is not allowed here");                                          \
        name(SLAB_ENGINE_URING);                                                                   \
    }                                                                                              \
    Test(slab_io, name##_with_threads, ##__VA_ARGS__) {                                            \
        name(SLAB_ENGINE_POSIX);                                                                   \
    }                                                                                              \
    static void name(enum slab_engine engine)

static int run(struct slab_io *io, struct slab *slab, bool write, uint64_t offset,
               struct iovec *pieces, uint32_t count) {
    struct slab_request request = {
        .slab = slab, .offset = offset, .pieces = pieces, .piece_count = count, .write = write};
    slab_io_submit(io, &request);
    cr_assert_eq(slab_io_wait(io, UINT64_MAX), &request);
    cr_assert_eq(slab_io_in_flight(io), 0);
    return request.result;
}

static int run_one(struct slab_io *io, struct slab *slab, bool write, uint64_t offset, void *bytes,
                   size_t count) {
    return run(io, slab, write, offset, &(struct iovec){bytes, count}, 1);
}

ENGINE_TEST(what_is_written_is_read_back) {
    struct slab_io *io = open_io(engine, 1);
    struct slab *slab = open_slab();
    uint8_t *out = blocks(9), *in = blocks(9);
    for (size_t i = 0; i < 9u * BLOCK_BYTES; i++)
        out[i] = (uint8_t)(i * 131 + i / 4096);
    struct iovec to[SLAB_PIECES_MAX],
        from[2] = {{in, BLOCK_BYTES}, {in + BLOCK_BYTES, 8 * BLOCK_BYTES}};
    for (int i = 0; i < SLAB_PIECES_MAX; i++)
        to[i] = (struct iovec){out + i * BLOCK_BYTES, i == 7 ? 2 * BLOCK_BYTES : BLOCK_BYTES};
    cr_assert_eq(run(io, slab, true, SLOT_BYTES, to, SLAB_PIECES_MAX), 0);
    cr_assert_eq(run(io, slab, false, SLOT_BYTES, from, 2), 0);
    cr_expect_arr_eq(in, out, 9 * BLOCK_BYTES);
    cr_expect_eq(file_bytes(), SLOT_BYTES + 9 * BLOCK_BYTES);
    free(in);
    free(out);
    slab_close(slab);
    slab_io_close(io);
}

ENGINE_TEST(many_requests_in_flight_all_come_back_once) {
    struct slab_io *io = open_io(engine, DEPTH);
    struct slab *slab = open_slab();
    uint8_t *memory = blocks(DEPTH);
    struct slab_request requests[DEPTH];
    struct iovec pieces[DEPTH];
    for (int pass = 0; pass < 10; pass++) {
        bool write = pass % 2 == 0;
        for (unsigned i = 0; i < DEPTH; i++) {
            memset(memory + i * BLOCK_BYTES, write ? (int)i + pass : 0xff, BLOCK_BYTES);
            pieces[i] = (struct iovec){memory + i * BLOCK_BYTES, BLOCK_BYTES};
            requests[i] = (struct slab_request){.slab = slab,
                                                .offset = i * (uint64_t)SLOT_BYTES,
                                                .pieces = &pieces[i],
                                                .piece_count = 1,
                                                .write = write};
            slab_io_submit(io, &requests[i]);
        }
        cr_assert_eq(slab_io_in_flight(io), DEPTH);
        unsigned seen = 0;
        for (unsigned i = 0; i < DEPTH; i++) {
            struct slab_request *done = slab_io_wait(io, UINT64_MAX);
            cr_assert_eq(done->result, 0);
            seen |= 1u << (done - requests);
        }
        cr_assert_eq(seen, (1u << DEPTH) - 1);
        cr_assert_eq(slab_io_in_flight(io), 0);
        for (unsigned i = 0; i < DEPTH; i++)
            cr_assert(
                is_all(memory + i * BLOCK_BYTES, BLOCK_BYTES, (uint8_t)((int)i + pass - !write)));
    }
    free(memory);
    slab_close(slab);
    slab_io_close(io);
}

ENGINE_TEST(reads_beyond_the_end_are_zeros) {
    struct slab_io *io = open_io(engine, 1);
    struct slab *slab = open_slab();
    uint8_t *bytes = blocks(4);
    cr_assert_eq(run_one(io, slab, false, 0, bytes, 4 * BLOCK_BYTES), 0, "an empty file");
    cr_expect(is_all(bytes, 4 * BLOCK_BYTES, 0));
    static const size_t ends[] = {1, 511, 512, 4095, 4096, 4097, 8192, 3 * 4096 + 77};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        cr_assert_eq(slab_truncate(slab, 0), 0);
        memset(bytes, 0xaa, 4 * BLOCK_BYTES);
        write_raw(0, bytes, ends[i]);
        struct iovec pieces[] = {{bytes, BLOCK_BYTES}, {bytes + BLOCK_BYTES, 3 * BLOCK_BYTES}};
        memset(bytes, 0x55, 4 * BLOCK_BYTES);
        cr_assert_eq(run(io, slab, false, 0, pieces, 2), 0);
        cr_expect(is_all(bytes, ends[i], 0xaa), "file of %zu bytes", ends[i]);
        cr_expect(is_all(bytes + ends[i], 4 * BLOCK_BYTES - ends[i], 0), "after %zu", ends[i]);
    }
    free(bytes);
    slab_close(slab);
    slab_io_close(io);
}

ENGINE_TEST(a_short_write_is_continued_and_its_error_told) {
    struct slab_io *io = open_io(engine, 1);
    struct slab *slab = open_slab();
    uint8_t *bytes = blocks(4);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {2 * BLOCK_BYTES, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct iovec pieces[] = {{bytes, BLOCK_BYTES}, {bytes + BLOCK_BYTES, 3 * BLOCK_BYTES}};
    int result = run(io, slab, true, 0, pieces, 2);
    setrlimit(RLIMIT_FSIZE, &none);
    cr_expect_eq(result, -EFBIG);
    cr_expect_eq(file_bytes(), 2 * BLOCK_BYTES);
    free(bytes);
    slab_close(slab);
    slab_io_close(io);
}

ENGINE_TEST(a_full_disk_is_enospc) {
    struct slab_io *io = open_io(engine, 1);
    int dev_fd = open("/dev", O_RDONLY | O_DIRECTORY);
    struct slab *slab;
    cr_assert_eq(slab_open(dev_fd, "full", BLOCK_BYTES, 1, false, &slab), 0);
    uint8_t *bytes = blocks(1);
    cr_expect_eq(run_one(io, slab, true, 0, bytes, BLOCK_BYTES), -ENOSPC);
    free(bytes);
    slab_close(slab);
    close(dev_fd);
    slab_io_close(io);
}

ENGINE_TEST(a_file_that_takes_nothing_is_eio) {
    struct slab_io *io = open_io(engine, 1);
    struct slab *slab;
    int proc_fd = open("/proc/self", O_RDONLY | O_DIRECTORY);
    cr_assert_eq(slab_open(proc_fd, "mem", BLOCK_BYTES, 1, true, &slab), 0);
    uint8_t *bytes = blocks(1);
    cr_expect_eq(run_one(io, slab, false, 0, bytes, BLOCK_BYTES), -EIO, "no page at address 0");
    free(bytes);
    slab_close(slab);
    close(proc_fd);
    slab_io_close(io);
}

ENGINE_TEST(writing_a_read_only_slab_is_ebadf) {
    struct slab_io *io = open_io(engine, 1);
    slab_close(open_slab());
    struct slab *slab;
    cr_assert_eq(slab_open(directory_fd, "slab", SLOT_BYTES, SLOTS, true, &slab), 0);
    uint8_t *bytes = blocks(1);
    cr_expect_eq(run_one(io, slab, true, 0, bytes, BLOCK_BYTES), -EBADF);
    cr_expect_eq(file_bytes(), 0);
    free(bytes);
    slab_close(slab);
    slab_io_close(io);
}

ENGINE_TEST(closing_waits_for_what_is_in_flight) {
    struct slab_io *io = open_io(engine, DEPTH);
    struct slab *slab = open_slab();
    uint8_t *bytes = blocks(1);
    struct iovec piece = {bytes, BLOCK_BYTES};
    struct slab_request requests[DEPTH];
    for (unsigned i = 0; i < DEPTH; i++) {
        requests[i] = (struct slab_request){.slab = slab,
                                            .offset = i * (uint64_t)BLOCK_BYTES,
                                            .pieces = &piece,
                                            .piece_count = 1,
                                            .write = true};
        slab_io_submit(io, &requests[i]);
    }
    slab_io_wake(io);
    slab_io_close(io);
    slab_close(slab);
    cr_expect_eq(file_bytes(), DEPTH * BLOCK_BYTES);
    free(bytes);
    slab_io_close(NULL);
}

ENGINE_TEST(more_than_depth_in_flight_aborts, .signal = SIGABRT) {
    struct slab_io *io = open_io(engine, 1);
    struct slab *slab = open_slab();
    struct iovec piece = {blocks(1), BLOCK_BYTES};
    struct slab_request requests[2];
    remove_directory(); /* nothing runs after an abort */
    for (int i = 0; i < 2; i++) {
        requests[i] = (struct slab_request){.slab = slab, .pieces = &piece, .piece_count = 1};
        slab_io_submit(io, &requests[i]);
    }
}

ENGINE_TEST(an_unaligned_request_aborts, .signal = SIGABRT) {
    struct slab *slab = open_slab();
    remove_directory();
    run_one(open_io(engine, 1), slab, false, 512, blocks(1), BLOCK_BYTES);
}

/* waiting and waking */

ENGINE_TEST(a_wait_ends_with_its_timeout_and_not_before) {
    struct slab_io *io = open_io(engine, 1);
    cr_expect_null(slab_io_wait(io, 0));
    uint64_t start_ns = clock_monotonic_ns();
    cr_expect_null(slab_io_wait(io, 20000000));
    cr_expect_geq(clock_monotonic_ns() - start_ns, 20000000);
    slab_io_close(io);
}

ENGINE_TEST(a_wake_before_the_wait_is_not_lost) {
    struct slab_io *io = open_io(engine, 1);
    slab_io_wake(io);
    slab_io_wake(io);
    cr_expect_null(slab_io_wait(io, 0), "this one does not wait");
    cr_expect_null(slab_io_wait(io, UINT64_MAX));
    uint64_t start_ns = clock_monotonic_ns();
    cr_expect_null(slab_io_wait(io, 20000000));
    cr_expect_geq(clock_monotonic_ns() - start_ns, 20000000, "both wakes were used up");
    slab_io_close(io);
}

struct waker {
    struct slab_io *io;
    _Atomic uint64_t given;
    _Atomic uint64_t seen;
};

enum { WAKES = 500 };

/* Each wake only after the last one was seen: if one is lost, both stand still. */
static void *wake_often(void *argument) {
    struct waker *waker = argument;
    for (uint64_t i = 1; i <= WAKES; i++) {
        while (atomic_load(&waker->seen) < i - 1)
            sched_yield();
        atomic_store(&waker->given, i);
        slab_io_wake(waker->io);
    }
    return NULL;
}

ENGINE_TEST(no_wake_of_another_thread_is_lost) {
    struct slab_io *io = open_io(engine, 4);
    struct slab *slab = open_slab();
    struct waker waker = {.io = io};
    struct iovec piece = {blocks(1), BLOCK_BYTES};
    struct slab_request request = {.slab = slab, .pieces = &piece, .piece_count = 1};
    pthread_t thread;
    pthread_create(&thread, NULL, wake_often, &waker);
    while (atomic_load(&waker.seen) < WAKES) {
        if (atomic_load(&waker.seen) % 3 == 0 && slab_io_in_flight(io) == 0)
            slab_io_submit(io, &request);
        struct slab_request *done = slab_io_wait(io, UINT64_MAX);
        if (done)
            cr_assert_eq(done->result, 0);
        atomic_store(&waker.seen, atomic_load(&waker.given));
    }
    pthread_join(thread, NULL);
    slab_io_close(io);
    slab_close(slab);
    free(piece.iov_base);
}

static void *read_a_block(void *argument) {
    struct slab_io *io = argument;
    struct slab *slab = open_slab();
    uint8_t *block = blocks(1);
    int result = run_one(io, slab, false, 0, block, BLOCK_BYTES);
    free(block);
    slab_close(slab);
    return (void *)(intptr_t)result;
}

ENGINE_TEST(an_io_may_be_opened_here_and_used_there) {
    struct slab_io *io = open_io(engine, 1);
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, read_a_block, io);
    pthread_join(thread, &result);
    cr_expect_eq((intptr_t)result, 0);
    slab_io_close(io);
}

/* choosing an engine */

/* From here on this process's calls of `number` with a first argument above `above` fail. */
static void forbid(long number, uint32_t above, int error) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, above, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        cr_skip_test("seccomp filters are not allowed here");
}

static void expect_threads_instead(int error) {
    struct slab_io *io = NULL;
    cr_expect_eq(slab_io_open(SLAB_ENGINE_URING, DEPTH, &io), -error);
    cr_expect_null(io);
    io = open_io(SLAB_ENGINE_AUTO, DEPTH);
    cr_expect_str_eq(slab_io_name(io), "pread/pwrite");
    cr_expect_eq((intptr_t)read_a_block(io), 0);
    slab_io_close(io);
}

Test(slab_io, auto_takes_io_uring_where_it_is_allowed) {
    if (!has_uring())
        cr_skip_test("io_uring is not allowed here");
    struct slab_io *io = open_io(SLAB_ENGINE_AUTO, DEPTH);
    cr_expect_str_eq(slab_io_name(io), "io_uring");
    slab_io_close(io);
}

Test(slab_io, where_rings_are_forbidden_auto_takes_threads) {
    forbid(SYS_io_uring_setup, 0, EPERM);
    expect_threads_instead(EPERM);
}

Test(slab_io, a_ring_that_may_not_be_entered_is_no_ring) {
    if (!has_uring())
        cr_skip_test("io_uring is not allowed here");
    forbid(SYS_io_uring_enter, 0, EACCES);
    expect_threads_instead(EACCES);
}

Test(slab_io, with_little_memory_a_smaller_ring_does_all_the_same) {
    if (!has_uring())
        cr_skip_test("io_uring is not allowed here");
    forbid(SYS_io_uring_setup, 8, ENOMEM);
    enum { MANY = 100 };
    struct slab_io *io = open_io(SLAB_ENGINE_URING, MANY);
    struct slab *slab = open_slab();
    struct iovec piece = {blocks(1), BLOCK_BYTES};
    static struct slab_request requests[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        requests[i] = (struct slab_request){.slab = slab,
                                            .offset = i * (uint64_t)BLOCK_BYTES,
                                            .pieces = &piece,
                                            .piece_count = 1,
                                            .write = true};
        slab_io_submit(io, &requests[i]);
    }
    for (unsigned i = 0; i < MANY; i++)
        cr_assert_eq(slab_io_wait(io, UINT64_MAX)->result, 0);
    cr_expect_eq(file_bytes(), MANY * BLOCK_BYTES);
    slab_io_close(io);
    slab_close(slab);
    free(piece.iov_base);
}
