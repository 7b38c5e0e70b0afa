/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay itself. Requests are dealt in the trace's order to whichever thread is free; a thread
 * owns its page buffer and histograms and adds its counts to the run's after each request.
 */
#include "tools/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/clock.h"
#include "tools/mount_stats.h"
#include "tools/page.h"
#include "tools/progress.h"
#include "tools/trace.h"

enum { COMPLAINTS_MAX = 10, NS_PER_MS = 1000 * 1000 };

struct run {
    /* fixed after the start */
    const struct replay_options *options;
    struct replay_result *result;
    int *directory_fds;
    int acknowledged_fd; /* O_APPEND, or -1 */
    uint64_t start_ns;
    struct progress *progress; /* any thread */

    atomic_bool stop; /* also within a request */
    pthread_mutex_t mutex;
    /* under the mutex, as are result->counts */
    struct trace *trace;
    bool ended; /* the trace: what was dealt is still replayed */
    uint64_t dealt;
    uint64_t first_timestamp_ms;
    unsigned complaints;
};

struct worker {
    struct run *run;
    pthread_t thread;
    struct trace_request request;
    char *page;                  /* block_bytes */
    struct replay_counts counts; /* of the current request */
    struct latency get, put;
};

/* what goes wrong */

[[gnu::format(printf, 2, 3)]] static void complain(struct run *run, const char *format, ...) {
    SCOPE_LOCK(&run->mutex);
    if (run->complaints++ >= COMPLAINTS_MAX)
        return;
    progress_clear(run->progress);
    fputs("cpl3 replay: ", stderr);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs(run->complaints == COMPLAINTS_MAX ? " (further ones are only counted)\n" : "\n", stderr);
}

/* Which block a worker is at. */
struct place {
    const char *directory;
    int directory_fd;
    uint64_t id;
    char name[PAGE_NAME_BYTES + 1];
};

static struct place place_of(const struct worker *worker, size_t block) {
    const struct replay_options *options = worker->run->options;
    unsigned directory = (unsigned)(block % options->directory_count);
    struct place place = {
        .directory = options->directories[directory],
        .directory_fd = worker->run->directory_fds[directory],
        .id = worker->request.blocks[block],
    };
    page_make_name(place.id, place.name);
    return place;
}

static void count_error(struct worker *worker, const struct place *place, const char *doing,
                        int error) {
    worker->counts.errors++;
    complain(worker->run, "%s/%s: %s: %s", place->directory, place->name, doing, strerror(error));
    if (error == ENOTCONN) /* the mount is gone: every further block would say the same */
        worker->run->stop = true;
}

static void check_page(struct worker *worker, const struct place *place, uint64_t file_bytes,
                       uint64_t got_bytes) {
    uint64_t page_bytes = worker->run->options->block_bytes;
    uint64_t wrong = page_count_wrong(place->id, page_bytes, worker->page, got_bytes);
    wrong += page_bytes - got_bytes;
    if (file_bytes > page_bytes)
        wrong += file_bytes - page_bytes;
    if (wrong == 0)
        return;
    worker->counts.wrong_bytes += wrong;
    complain(worker->run,
             "%s/%s: %" PRIu64 " wrong bytes (size %" PRIu64 ", read %" PRIu64 ", expected %" PRIu64
             ")",
             place->directory, place->name, wrong, file_bytes, got_bytes, page_bytes);
}

/* one block */

/* False: a miss (or an error, which is counted). */
static bool get_block(struct worker *worker, const struct place *place) {
    uint64_t start = clock_monotonic_ns();
    AUTO_CLOSE int fd = openat(place->directory_fd, place->name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT)
            count_error(worker, place, "open", errno);
        return false;
    }
    struct stat st;
    if (fstat(fd, &st) < 0) {
        count_error(worker, place, "fstat", errno);
        return false;
    }
    ssize_t got = read(fd, worker->page, worker->run->options->block_bytes);
    if (got < 0) {
        count_error(worker, place, "read", errno);
        return false;
    }
    close(fd);
    fd = -1;
    latency_record(&worker->get, clock_monotonic_ns() - start);
    worker->counts.hits++;
    worker->counts.bytes_read += (uint64_t)got;
    check_page(worker, place, (uint64_t)st.st_size, (uint64_t)got);
    return true;
}

/* NULL, or what failed with errno set. */
static const char *write_page(const struct worker *worker, int fd) {
    uint64_t bytes = worker->run->options->block_bytes;
    for (uint64_t done = 0; done < bytes;) {
        ssize_t written = write(fd, worker->page + done, bytes - done);
        if (written < 0)
            return "write";
        done += (uint64_t)written;
    }
    return worker->run->options->fsync && fsync(fd) < 0 ? "fsync" : NULL;
}

/* One write(2) to an O_APPEND file: whole lines, whichever thread comes when, also if killed. */
static void acknowledge(struct worker *worker, const struct place *place) {
    if (worker->run->acknowledged_fd < 0)
        return;
    char line[PAGE_NAME_BYTES + 2];
    int bytes = snprintf(line, sizeof(line), "%s\n", place->name);
    if (write(worker->run->acknowledged_fd, line, (size_t)bytes) != bytes)
        count_error(worker, place, "noting it as acknowledged", errno);
}

static void put_block(struct worker *worker, const struct place *place) {
    uint64_t page_bytes = worker->run->options->block_bytes;
    page_fill(place->id, page_bytes, worker->page, page_bytes);
    uint64_t start = clock_monotonic_ns();
    int fd =
        openat(place->directory_fd, place->name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return count_error(worker, place, "open for writing", errno);
    const char *failed = write_page(worker, fd);
    if (failed) {
        count_error(worker, place, failed, errno);
        close(fd);
        return;
    }
    acknowledge(worker, place);
    if (close(fd) < 0)
        return count_error(worker, place, "close", errno);
    latency_record(&worker->put, clock_monotonic_ns() - start);
    worker->counts.puts++;
    worker->counts.bytes_written += page_bytes;
}

/* False: it does not exist. */
static bool touch_block(struct worker *worker, const struct place *place) {
    static const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    if (utimensat(place->directory_fd, place->name, now, 0) < 0) {
        if (errno == ENOENT)
            return false;
        count_error(worker, place, "utimensat", errno);
        return true;
    }
    worker->counts.touches++;
    return true;
}

/* one request */

static void replay_request(struct worker *worker) {
    size_t count = worker->request.block_count;
    size_t block = 0;
    worker->counts.requests++;
    worker->counts.blocks += count;
    for (; block < count && !worker->run->stop; block++) {
        struct place place = place_of(worker, block);
        if (!get_block(worker, &place)) {
            put_block(worker, &place);
            break;
        }
    }
    for (block++; block < count && !worker->run->stop; block++) {
        struct place place = place_of(worker, block);
        if (!touch_block(worker, &place))
            put_block(worker, &place);
    }
}

static bool take_request(struct worker *worker) {
    struct run *run = worker->run;
    int error = 0;
    {
        SCOPE_LOCK(&run->mutex);
        if (run->stop || run->ended || run->dealt >= run->options->requests_max)
            return false;
        error = trace_next(run->trace, &worker->request);
        run->ended = error != 0;
        if (!error && run->dealt++ == 0)
            run->first_timestamp_ms = worker->request.timestamp_ms;
    }
    if (!error)
        return true;
    if (error != -ENODATA) {
        worker->counts.errors++;
        complain(run, "%s: %s", run->options->trace_path,
                 error == -EBADMSG ? trace_problem(run->trace) : strerror(-error));
    }
    return false;
}

static void wait_until_due(const struct worker *worker) {
    const struct run *run = worker->run;
    if (run->options->speed == 0 || worker->request.timestamp_ms < run->first_timestamp_ms)
        return;
    uint64_t offset_ms = worker->request.timestamp_ms - run->first_timestamp_ms;
    uint64_t due_ns =
        run->start_ns + (uint64_t)((double)offset_ms * NS_PER_MS / run->options->speed);
    struct timespec due = {.tv_sec = (time_t)(due_ns / 1000000000),
                           .tv_nsec = (long)(due_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
        ;
}

static void add_counts(struct replay_counts *into, const struct replay_counts *from) {
    into->requests += from->requests;
    into->blocks += from->blocks;
    into->hits += from->hits;
    into->puts += from->puts;
    into->touches += from->touches;
    into->bytes_read += from->bytes_read;
    into->bytes_written += from->bytes_written;
    into->wrong_bytes += from->wrong_bytes;
    into->errors += from->errors;
}

static void draw_progress(struct run *run) {
    SCOPE_LOCK(&run->mutex);
    const struct replay_counts *counts = &run->result->counts;
    double share = trace_share_read(run->trace);
    double of_limit = (double)counts->requests / (double)run->options->requests_max;
    double seconds = (double)(clock_monotonic_ns() - run->start_ns) / 1e9;
    double bytes = (double)(counts->bytes_read + counts->bytes_written);
    char text[160];
    snprintf(text, sizeof(text), "%" PRIu64 " requests, hit rate %.3f, %.2f GiB/s%s",
             counts->requests, counts->blocks ? (double)counts->hits / (double)counts->blocks : 0,
             seconds > 0 ? bytes / seconds / (1 << 30) : 0,
             counts->wrong_bytes || counts->errors ? ", FAILING" : "");
    progress_draw(run->progress, share > of_limit ? share : of_limit, text);
}

static void *worker_main(void *argument) {
    struct worker *worker = argument;
    struct run *run = worker->run;
    bool more;
    do {
        more = take_request(worker);
        if (more) {
            wait_until_due(worker);
            replay_request(worker);
        }
        {
            SCOPE_LOCK(&run->mutex);
            add_counts(&run->result->counts, &worker->counts);
        }
        worker->counts = (struct replay_counts){0};
        if (progress_is_due(run->progress))
            draw_progress(run);
    } while (more);
    return NULL;
}

/* the run */

static int refuse(const char *what, int error) {
    fprintf(stderr, "cpl3 replay: cannot open %s: %s\n", what, strerror(-error));
    return error;
}

static int open_files(struct run *run) {
    const struct replay_options *options = run->options;
    int error = trace_open(options->trace_path, &run->trace);
    if (error)
        return refuse(options->trace_path, error);
    run->directory_fds = malloc(options->directory_count * sizeof(int));
    if (!run->directory_fds)
        return refuse("the directories", -ENOMEM);
    for (unsigned i = 0; i < options->directory_count; i++)
        run->directory_fds[i] = -1;
    for (unsigned i = 0; i < options->directory_count; i++) {
        run->directory_fds[i] = open(options->directories[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (run->directory_fds[i] < 0)
            return refuse(options->directories[i], -errno);
    }
    if (options->acknowledged_path) {
        run->acknowledged_fd =
            open(options->acknowledged_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (run->acknowledged_fd < 0)
            return refuse(options->acknowledged_path, -errno);
    }
    return 0;
}

static void close_files(struct run *run) {
    trace_close(run->trace);
    for (unsigned i = 0; run->directory_fds && i < run->options->directory_count; i++)
        cleanup_close(&run->directory_fds[i]);
    free(run->directory_fds);
    cleanup_close(&run->acknowledged_fd);
}

/* The threads that could be started do the work; none is -errno. */
static int run_workers(struct run *run, struct worker *workers) {
    int error = 0;
    unsigned started = 0;
    for (; started < run->options->threads && !error; started++) {
        struct worker *worker = &workers[started];
        worker->run = run;
        worker->page = page_allocate(run->options->block_bytes);
        error = worker->page ? pthread_create(&worker->thread, NULL, worker_main, worker) : ENOMEM;
        if (error)
            free(worker->page);
    }
    if (error) {
        started--;
        run->stop = true;
        fprintf(stderr, "cpl3 replay: cannot start thread %u: %s\n", started + 1, strerror(error));
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        latency_merge(&run->result->get, &workers[i].get);
        latency_merge(&run->result->put, &workers[i].put);
        trace_request_free(&workers[i].request);
        free(workers[i].page);
    }
    return -error;
}

/* The sum over all directories; false when one of them does not tell. */
static bool read_evictions(const struct replay_options *options, uint64_t *ret_evictions) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < options->directory_count; i++) {
        uint64_t evictions;
        if (mount_stats_read(options->directories[i], "evictions", &evictions) != 0)
            return false;
        sum += evictions;
    }
    *ret_evictions = sum;
    return true;
}

int replay_run(const struct replay_options *options, struct replay_result *ret_result) {
    struct run run = {.options = options,
                      .result = ret_result,
                      .acknowledged_fd = -1,
                      .mutex = PTHREAD_MUTEX_INITIALIZER};
    AUTO_FREE struct worker *workers = calloc(options->threads, sizeof(*workers));
    int error = workers ? open_files(&run) : refuse("the threads' memory", -ENOMEM);
    if (!error) {
        uint64_t before, after;
        bool known = read_evictions(options, &before);
        run.progress = progress_open(stderr);
        run.start_ns = clock_monotonic_ns();
        error = run_workers(&run, workers);
        ret_result->elapsed_ns = clock_monotonic_ns() - run.start_ns;
        progress_close(run.progress);
        ret_result->evictions_known = known && read_evictions(options, &after);
        if (ret_result->evictions_known)
            ret_result->evictions = after - before;
    }
    close_files(&run);
    return error;
}
