/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls to a mount and to the model of it (posix_model.h), compared one by one: errno, every
 * byte, size, mode, mtime and listing; at the end all again after a load. CPL3_TEST_OPERATIONS says
 * how many (a few thousand without it); SEED repeats a run. What failed is told with the calls
 * before it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/mount/posix_model.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/random.h"
#include "tests/support/wait.h"

enum {
    MIB = 1 << 20,
    MAX_FILE = 16 * MIB, /* of mount_open */
    LARGEST = 200000,    /* what is written, so that nothing is evicted */
    TOLD = 30,
    DEEPEST = 40, /* bytes of a path to which something is moved */
    CHECK_EVERY = 2000,
};

static struct mount mount;
static struct model model;
static uint64_t seed, state;
static char bytes[LARGEST];

static void open_mount(void) {
    seed = random_seed();
    state = seed;
    printf("SEED=%" PRIu64 "\n", seed);
    umask(0);
    mount_open(&mount,
               &(struct mount_settings){.threads = 4, .size = "512M", .options = "umask=0"});
    model.max_file_bytes = MAX_FILE;
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_random, .init = open_mount, .fini = close_mount, .timeout = 600);

static unsigned below(unsigned limit) {
    return (unsigned)(random_next(&state) % limit);
}

/* what was done, and whether it went as it has to */

static char told[TOLD][2 * MODEL_PATH_MAX + 200];
static unsigned told_count;

static void tell(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(told[told_count++ % TOLD], sizeof told[0], format, arguments);
    va_end(arguments);
}

static void expect(bool right, const char *format, ...) {
    char what[512];
    va_list arguments;
    if (right)
        return;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    for (unsigned i = told_count > TOLD ? told_count - TOLD : 0; i < told_count; i++)
        fprintf(stderr, "call %u: %s\n", i, told[i % TOLD]);
    cr_assert(false, "SEED=%" PRIu64 ", call %u: %s", seed, told_count - 1, what);
}

static int result_of(long returned) {
    return returned < 0 ? -errno : 0;
}

static void expect_result(int result, int expected) {
    expect(result == expected, "%s, not %s", strerror(-result), strerror(-expected));
}

/* names, handles and bytes by chance */

static const char *some_path(void) {
    static const char *const directories[] = {"", "", "", "", "d0/", "d1/", "d0/d2/", "d1/d2/"};
    static const char *const leaves[] = {"f0",
                                         "f1",
                                         "f2",
                                         "00000000000000000000000000000000",
                                         "00000000000000000000000000000001",
                                         "0000000000000002",
                                         "d0",
                                         "d1",
                                         "d2"};
    static char ring[4][MODEL_PATH_MAX];
    static unsigned next;
    char *path = ring[next++ % 4];
    if (model.entry_count > 0 && below(4) == 0) {
        snprintf(path, MODEL_PATH_MAX, "%s", model.entries[below(model.entry_count)].path);
        return path;
    }
    snprintf(path, MODEL_PATH_MAX, "%s%s", directories[below(8)], leaves[below(9)]);
    return path;
}

static const char *absolute(const char *path) {
    return mount_path(&mount, "%s", path);
}

static struct model_handle *some_handle(void) {
    return model.handle_count ? model.handles[below(model.handle_count)] : NULL;
}

static int some_fd(const struct model_handle *handle) {
    return handle->fds[below(handle->fd_count)];
}

static size_t some_size(void) {
    static const size_t edges[] = {0, 1, 4032, 4033, 4095, 4096, 4097, 65536, 131072, LARGEST};
    return below(3) ? below(9000) : edges[below(10)];
}

static size_t fill_some(void) {
    size_t count = some_size();
    fill_pattern(bytes, count, random_next(&state), 0);
    return count;
}

/* comparing */

static bool read_is(int fd, const char *wanted, size_t count) {
    static char room[MAX_FILE + 1];
    ssize_t n = pread(fd, room, sizeof room, 0);
    return n == (ssize_t)count && memcmp(room, wanted, count) == 0;
}

static void check_entry(const struct model_entry *entry) {
    struct stat st;
    const char *path = absolute(entry->path);
    const struct model_file *file = entry->file;
    expect(stat(path, &st) == 0, "%s: %s", entry->path, strerror(errno));
    expect(S_ISDIR(st.st_mode) == !file, "%s is of another type", entry->path);
    if (!file)
        return;
    if (file->mode_known)
        expect((st.st_mode & 07777) == file->mode, "%s: mode %o, not %o", entry->path, st.st_mode,
               file->mode);
    if (!file->current)
        return expect(file_open_result(path, O_RDONLY) == -ENOENT, "%s can be read", entry->path);
    if (file->staged == 0)
        expect(st.st_size == (off_t)file->current->bytes, "%s: %ld bytes, not %zu", entry->path,
               (long)st.st_size, file->current->bytes);
    if (file->staged == 0 && file->mtime_known)
        expect(st.st_mtim.tv_sec == file->mtime.tv_sec && st.st_mtim.tv_nsec == file->mtime.tv_nsec,
               "%s: mtime %ld", entry->path, st.st_mtim.tv_sec);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    expect(fd >= 0, "%s: %s", entry->path, strerror(errno));
    expect(read_is(fd, file->current->data, file->current->bytes), "%s: other bytes", entry->path);
}

static void check_listing(const char *directory) {
    unsigned wanted = 0;
    for (unsigned i = 0; i < model.entry_count; i++)
        wanted += model_is_listed(&model.entries[i], directory);
    const char *path = absolute(directory);
    int found = directory_count(path);
    expect(found == (int)wanted, "'%s' lists %d entries, not %u", directory, found, wanted);
    for (unsigned i = 0; i < model.entry_count; i++) {
        const struct model_entry *entry = &model.entries[i];
        const char *slash = strrchr(entry->path, '/');
        if (model_is_listed(entry, directory))
            expect(directory_count_name(path, slash ? slash + 1 : entry->path) == 1,
                   "'%s' does not list %s once", directory, entry->path);
    }
}

static void check_everything(void) {
    tell("compare everything");
    check_listing("");
    for (unsigned i = 0; i < model.entry_count; i++) {
        check_entry(&model.entries[i]);
        if (!model.entries[i].file)
            check_listing(model.entries[i].path);
    }
}

/* calls on names */

static void do_open(void) {
    static const int ways[] = {O_RDONLY, O_WRONLY, O_RDWR};
    const char *path = some_path();
    int flags = ways[below(3)];
    flags |= (below(2) ? O_CREAT : 0) | (below(5) ? 0 : O_EXCL) | (below(3) ? 0 : O_TRUNC);
    const struct model_entry *entry = model_find(&model, path);
    flags |= below(5) ? 0 : O_APPEND;
    if (below(5) == 0 && !(entry && !entry->file))
        flags |= O_DIRECT; /* which a directory cannot be opened with */
    if (!(flags & O_CREAT))
        flags &= ~O_EXCL; /* without a meaning there */
    if (model.handle_count == MODEL_HANDLES_MAX)
        return;
    mode_t mode = 0600 | below(0200);
    struct model_handle *handle = NULL;
    tell("open %s flags %o", path, flags);
    int fd = open(absolute(path), flags | O_CLOEXEC, mode);
    expect_result(result_of(fd), model_open(&model, path, flags, mode, &handle));
    if (handle)
        handle->fds[0] = fd;
    else if (fd >= 0)
        close(fd);
}

static void do_stat(void) {
    const char *path = some_path();
    struct stat st;
    tell("stat %s", path);
    int result = result_of(stat(absolute(path), &st)), expected = model_walk(&model, path);
    const struct model_entry *entry = model_find(&model, path);
    expect_result(result, expected < 0 ? expected : entry ? 0 : -ENOENT);
    if (result == 0)
        check_entry(entry);
}

static void do_unlink(void) {
    const char *path = some_path();
    tell("unlink %s", path);
    expect_result(result_of(unlink(absolute(path))), model_unlink(&model, path));
}

static void do_mkdir(void) {
    const char *path = some_path();
    tell("mkdir %s", path);
    if (strlen(path) > DEEPEST)
        return;
    if (path[strlen(path) - 2] == 'd' || below(10) == 0)
        expect_result(result_of(mkdir(absolute(path), 0700)), model_mkdir(&model, path));
}

static void do_rmdir(void) {
    const char *path = some_path();
    tell("rmdir %s", path);
    expect_result(result_of(rmdir(absolute(path))), model_rmdir(&model, path));
}

static void do_rename(void) {
    const char *from = some_path(), *to = some_path();
    bool replace = below(4);
    if (strlen(to) > DEEPEST)
        return; /* with all that is below it */
    tell("rename %s to %s%s", from, to, replace ? "" : ", not replacing");
    int result = result_of(renameat2(AT_FDCWD, absolute(from), AT_FDCWD, absolute(to),
                                     replace ? 0 : RENAME_NOREPLACE));
    expect_result(result, model_rename(&model, from, to, replace));
}

/* By name, of what is only staged: for which of several handles is not promised. */
static bool is_promised_to_truncate(const struct model_entry *entry) {
    return !entry || !entry->file || entry->file->current || entry->file->staged == 1;
}

static void do_truncate(void) {
    const char *path = some_path();
    size_t size = below(50) ? some_size() : MAX_FILE + 1;
    if (!is_promised_to_truncate(model_find(&model, path)))
        return;
    tell("truncate %s to %zu", path, size);
    expect_result(result_of(truncate(absolute(path), (off_t)size)),
                  model_truncate(&model, path, size));
}

static void do_chmod(void) {
    const char *path = some_path();
    mode_t mode = 0600 | below(0200);
    tell("chmod %s %o", path, mode);
    expect_result(result_of(chmod(absolute(path), mode)), model_chmod(&model, path, mode));
}

static void do_utimens(void) {
    const char *path = some_path();
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      {1 + below(2000000000), below(1000)}};
    tell("utimensat %s %ld", path, times[1].tv_sec);
    expect_result(result_of(utimensat(AT_FDCWD, absolute(path), times, 0)),
                  model_set_mtime(&model, path, times[1]));
}

static void do_list(void) {
    const char *path = below(3) ? "" : some_path();
    const struct model_entry *entry = model_find(&model, path);
    tell("list '%s'", path);
    if (!*path || (entry && !entry->file))
        check_listing(path);
}

/* calls on handles */

static void do_write(struct model_handle *handle, bool positioned) {
    size_t count = fill_some();
    size_t offset = positioned ? below(LARGEST) : handle->offset;
    if (positioned && below(300) == 0)
        offset = MAX_FILE;
    if (handle->bytes + count > MAX_FILE / 4 || offset + count > MAX_FILE / 4)
        count = count ? 1 : 0; /* nothing grows so large by chance */
    tell("%s %zu bytes at %zu to fd %d", positioned ? "pwrite" : "write", count, offset,
         handle->fds[0]);
    int fd = some_fd(handle);
    ssize_t n = positioned ? pwrite(fd, bytes, count, (off_t)offset) : write(fd, bytes, count);
    int result = result_of(n);
    expect_result(result, model_write(&model, handle, offset, bytes, count));
    expect(n < 0 || n == (ssize_t)count, "%zd bytes written of %zu", n, count);
    if (result == 0 && !positioned && count > 0)
        handle->offset = (handle->append ? handle->bytes : offset + count);
}

static void do_read(struct model_handle *handle) {
    static char room[LARGEST];
    size_t size, count = some_size(), offset = below(2) ? 0 : below(20000);
    const char *wanted = model_bytes(handle, &size);
    size_t left = offset < size ? size - offset : 0;
    size_t have = count < left ? count : left;
    tell("pread %zu bytes at %zu of fd %d", count, offset, handle->fds[0]);
    ssize_t n = pread(some_fd(handle), room, count, (off_t)offset);
    if (!handle->readable)
        return expect_result(result_of(n), -EBADF);
    if (handle->dead)
        return expect_result(result_of(n), count ? -EIO : 0);
    expect(n == (ssize_t)have, "%zd bytes, not %zu (%s)", n, have,
           n < 0 ? strerror(errno) : "read");
    expect(have == 0 || memcmp(room, wanted + offset, have) == 0, "other bytes");
}

static void do_fstat(struct model_handle *handle) {
    struct stat st;
    size_t size;
    model_bytes(handle, &size);
    tell("fstat fd %d", handle->fds[0]);
    expect(fstat(some_fd(handle), &st) == 0, "%s", strerror(errno));
    expect(handle->dead || st.st_size == (off_t)size, "%ld bytes, not %zu", (long)st.st_size, size);
}

static void do_resize(struct model_handle *handle) {
    size_t size = below(60) ? some_size() : MAX_FILE + 1;
    bool allocates = below(3) == 0 && size > 0;
    tell("%s fd %d to %zu", allocates ? "fallocate" : "ftruncate", handle->fds[0], size);
    int fd = some_fd(handle);
    int result =
        result_of(allocates ? fallocate(fd, 0, 0, (off_t)size) : ftruncate(fd, (off_t)size));
    expect_result(result, model_resize(&model, handle, size, allocates));
}

static void do_fsync(struct model_handle *handle) {
    tell("fsync fd %d", handle->fds[0]);
    expect_result(result_of(fsync(some_fd(handle))), model_fsync(handle));
}

static void do_futimens(struct model_handle *handle) {
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      {1 + below(2000000000), below(1000)}};
    if (!handle->writer || !handle->changed || handle->dead)
        return;
    tell("futimens fd %d %ld", handle->fds[0], times[1].tv_sec);
    expect(futimens(some_fd(handle), times) == 0, "%s", strerror(errno));
    model_set_handle_mtime(handle, times[1]);
}

static void do_dup(struct model_handle *handle) {
    if (handle->fd_count == MODEL_FDS_MAX)
        return;
    tell("dup fd %d", handle->fds[0]);
    int fd = fcntl(handle->fds[0], F_DUPFD_CLOEXEC, 0);
    expect(fd >= 0, "%s", strerror(errno));
    handle->fds[handle->fd_count++] = fd;
}

static bool nothing_else_is_open(void) {
    return mount_counter(&mount, "rank0.open_handles") == model.handle_count;
}

/* RELEASE comes after close has returned; and a name that nothing came of leaves the kernel's cache
 * a moment after that. */
static void do_close(struct model_handle *handle) {
    char path[MODEL_PATH_MAX] = "";
    bool last = handle->fd_count == 1, writer = handle->writer;
    for (unsigned i = 0; i < model.entry_count; i++)
        if (model.entries[i].file == handle->file)
            snprintf(path, sizeof path, "%s", model.entries[i].path);
    tell("close fd %d%s", handle->fds[0], last ? ", the last" : "");
    int result = result_of(close(handle->fds[handle->fd_count - 1]));
    expect_result(result, model_close(&model, handle));
    if (!last || !writer)
        return;
    expect(WAIT_UNTIL(nothing_else_is_open(), MOUNT_DEADLINE_SECONDS), "%lu are open, not %u",
           mount_counter(&mount, "rank0.open_handles"), model.handle_count);
    if (*path && !model_find(&model, path))
        expect(WAIT_UNTIL(file_size(absolute(path)) == -ENOENT, MOUNT_DEADLINE_SECONDS),
               "%s does not go", path);
}

static void do_on_handle(void (*call)(struct model_handle *handle)) {
    struct model_handle *handle = some_handle();
    if (handle)
        call(handle);
}

static void write_on(struct model_handle *handle) {
    do_write(handle, below(3) == 0);
}

/* choosing */

static const struct {
    unsigned weight;
    void (*on_name)(void);
    void (*on_handle)(struct model_handle *handle);
} calls[] = {
    {22, do_open, NULL},   {8, do_stat, NULL},   {6, do_unlink, NULL},   {4, do_mkdir, NULL},
    {2, do_rmdir, NULL},   {9, do_rename, NULL}, {3, do_truncate, NULL}, {2, do_chmod, NULL},
    {2, do_utimens, NULL}, {3, do_list, NULL},   {18, NULL, write_on},   {10, NULL, do_read},
    {3, NULL, do_fstat},   {4, NULL, do_resize}, {1, NULL, do_fsync},    {1, NULL, do_futimens},
    {3, NULL, do_dup},     {20, NULL, do_close},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

static void do_something(void) {
    unsigned sum = 0, i = 0;
    for (unsigned k = 0; k < CALLS; k++)
        sum += calls[k].weight;
    unsigned at = below(sum);
    while (at >= calls[i].weight)
        at -= calls[i++].weight;
    if (calls[i].on_name)
        calls[i].on_name();
    else
        do_on_handle(calls[i].on_handle);
}

static void close_everything(void) {
    while (model.handle_count > 0)
        do_close(model.handles[0]);
}

Test(posix_random, every_call_does_what_the_model_does) {
    const char *given = getenv("CPL3_TEST_OPERATIONS");
    long operations = given ? strtol(given, NULL, 10) : 4000;
    for (long i = 1; i <= operations; i++) {
        do_something();
        if (i % CHECK_EVERY == 0)
            check_everything();
    }
    close_everything();
    check_everything();
    cr_expect_eq(mount_counter(&mount, "rank0.evictions"), 0, "the model knows of none");
    mount_stop(&mount);
    mount_start(&mount, "cold_start=load");
    check_everything();
    model_destroy(&model);
}
