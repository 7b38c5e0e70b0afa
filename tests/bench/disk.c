/* SPDX-License-Identifier: Apache-2.0 */
/* Disk and memory between measurements: see disk.h. */
#include "tests/bench/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/clock.h"
#include "tests/bench/sample.h"

enum {
    IDLE_NS = 30 * 1000 * 1000,
    IDLE_MOST_NS = 500 * 1000 * 1000,
    TREE_FDS = 16,
};

void disk_drop_caches(void) {
    AUTO_CLOSE int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "3", 1) != 1)
        give_up("/proc/sys/vm/drop_caches: %m; caches can be dropped by root only");
}

/* All fields of the disk's statistics in one number that changes with every request. False: the
 * file system does not lie on one block device. */
static bool read_activity(dev_t device, uint64_t *ret_activity) {
    char path[64];
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/stat", major(device), minor(device));
    AUTO_FCLOSE FILE *file = fopen(path, "re");
    uint64_t field, sum = 0;
    if (!file)
        return false;
    while (fscanf(file, "%" SCNu64, &field) == 1)
        sum = sum * 31 + field;
    *ret_activity = sum;
    return true;
}

void disk_sync(const char *directory) {
    AUTO_CLOSE int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || syncfs(fd) < 0)
        give_up("syncing %s: %m", directory);
}

void disk_settle(const char *directory) {
    struct stat status;
    uint64_t before, after;
    disk_sync(directory);
    if (stat(directory, &status) < 0)
        give_up("%s: %m", directory);
    uint64_t end_ns = clock_monotonic_ns() + IDLE_MOST_NS;
    bool known = read_activity(status.st_dev, &before);
    while (known && clock_monotonic_ns() < end_ns) {
        nanosleep(&(struct timespec){.tv_nsec = IDLE_NS}, NULL);
        if (!read_activity(status.st_dev, &after) || after == before)
            return;
        before = after;
    }
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place) {
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

void disk_remove_tree(const char *path) {
    if (nftw(path, remove_entry, TREE_FDS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0 &&
        errno != ENOENT)
        give_up("removing %s: %m", path);
}

void disk_make_empty_directory(const char *path) {
    disk_remove_tree(path);
    if (mkdir(path, 0755) < 0)
        give_up("making %s: %m", path);
}

uint64_t disk_free_bytes(const char *directory) {
    struct statvfs status;
    if (statvfs(directory, &status) < 0)
        give_up("%s: %m", directory);
    return (uint64_t)status.f_bavail * status.f_frsize;
}

void memory_touch(uint64_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        give_up("mapping %" PRIu64 " bytes: %m", bytes);
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes);
    munmap(memory, bytes);
}
