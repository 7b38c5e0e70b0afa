/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that write through a shared mapping: WRITEs without an owner, published by RELEASE. */
#include "tests/mount/flush_sequences.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAP_BYTES = 2 * BLOCK };

static int create_sized(const char *path) {
    int fd = sequence_create(path, O_RDWR);
    sequence_require(ftruncate(fd, MAP_BYTES) == 0, "ftruncate");
    return fd;
}

static char *map(int fd) {
    char *bytes = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    sequence_require(bytes != MAP_FAILED, "mmap");
    return bytes;
}

static void unmapped_then_closed(const char *path) {
    int fd = create_sized(path);
    char *bytes = map(fd);
    memset(bytes, 'm', MAP_BYTES);
    munmap(bytes, MAP_BYTES);
    close(fd);
}

static void closed_then_written_and_unmapped(const char *path) {
    int fd = create_sized(path);
    char *bytes = map(fd);
    close(fd);
    memset(bytes, 'm', MAP_BYTES);
    munmap(bytes, MAP_BYTES);
}

static void closed_half_written(const char *path) {
    int fd = create_sized(path);
    char *bytes = map(fd);
    memset(bytes, 'm', BLOCK);
    close(fd);
    memset(bytes, 'm', MAP_BYTES);
    munmap(bytes, MAP_BYTES);
}

static void child_exits_while_mapped(const char *path) {
    int fd = create_sized(path);
    char *bytes = map(fd);
    memset(bytes, 'm', BLOCK);
    int child = fork();
    if (child == 0)
        _exit(0);
    sequence_wait(child);
    memset(bytes, 'm', MAP_BYTES);
    munmap(bytes, MAP_BYTES);
    close(fd);
}

static void exit_without_munmap(const char *path) {
    int fd = create_sized(path);
    char *bytes = map(fd);
    close(fd);
    memset(bytes, 'm', MAP_BYTES);
    _exit(0);
}

static void killed_while_mapped_and_open(const char *path) {
    int fd = create_sized(path);
    memset(map(fd), 'm', BLOCK);
    kill(getpid(), SIGKILL);
}

/* close has written the pages back: nothing of the killed process is left to see. */
static void killed_after_write_back(const char *path) {
    int fd = create_sized(path);
    memset(map(fd), 'm', BLOCK);
    close(fd);
    kill(getpid(), SIGKILL);
}

static void killed_closed_with_dirty_pages(const char *path) {
    int fd = create_sized(path);
    char *bytes = map(fd);
    close(fd);
    memset(bytes, 'm', BLOCK);
    kill(getpid(), SIGKILL);
}

const struct sequence sequences_mmap[] = {
    {"unmapped_then_closed", unmapped_then_closed, 0, 8192, 8192, 0},
    {"closed_then_written_and_unmapped", closed_then_written_and_unmapped, 0, 8192, 8192, 0},
    {"closed_half_written", closed_half_written, 0, 8192, 8192, 0},
    {"child_exits_while_mapped", child_exits_while_mapped, 0, 8192, 8192, 0},
    {"exit_without_munmap", exit_without_munmap, 0, 8192, 8192, 0},
    {"killed_while_mapped_and_open", killed_while_mapped_and_open, -SIGKILL, ABSENT, 8192, 0},
    {"killed_after_write_back", killed_after_write_back, -SIGKILL, 8192, 8192, true},
    {"killed_closed_with_dirty_pages", killed_closed_with_dirty_pages, -SIGKILL, ABSENT, 8192, 0},
    {0},
};
