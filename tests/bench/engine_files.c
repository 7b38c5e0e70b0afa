/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain files in a directory, as engines without cpl3 keep them: through the page cache, and by
 * O_DIRECT from buffers of 4 KiB pages and of huge pages. The same calls serve the cpl3 mount.
 */
#include "tests/bench/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/disk.h"
#include "tests/bench/sample.h"

/* the client's calls */

static const char *path_of(struct worker *worker, uint64_t id) {
    engine_make_name(id, worker->path + worker->path_bytes);
    return worker->path;
}

void files_put(struct worker *worker, uint64_t id, int flags, bool durable) {
    const char *path = path_of(worker, id);
    engine_stamp(worker, id);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | flags, 0644);
    if (fd < 0)
        give_up("%s: open for writing: %m", path);
    for (size_t done = 0; done < worker->object_bytes;) {
        ssize_t n = write(fd, worker->buffer + done, worker->object_bytes - done);
        if (n <= 0)
            give_up("%s: write: %m", path);
        done += (size_t)n;
    }
    if (durable && fsync(fd) < 0)
        give_up("%s: fsync: %m", path);
    if (close(fd) < 0)
        give_up("%s: close after writing: %m", path);
}

void files_get(struct worker *worker, uint64_t id, int flags) {
    const char *path = path_of(worker, id);
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0)
        give_up("%s: open for reading: %m", path);
    for (size_t done = 0; done < worker->object_bytes;) {
        ssize_t n = read(fd, worker->buffer + done, worker->object_bytes - done);
        if (n < 0)
            give_up("%s: read: %m", path);
        if (n == 0)
            give_up("%s: ends after %zu of %zu bytes", path, done, worker->object_bytes);
        done += (size_t)n;
    }
    close(fd);
    engine_check_stamp(worker, id);
}

bool files_has(struct worker *worker, uint64_t id) {
    struct stat status;
    const char *path = path_of(worker, id);
    if (stat(path, &status) == 0)
        return true;
    if (errno != ENOENT)
        give_up("%s: stat: %m", path);
    return false;
}

/* ext4 */

/* As deep as the directory of a rank in the cpl3 mount: paths cost by their parts. */
static void prepare(struct target *target, uint64_t capacity_bytes) {
    static const char *const parts[] = {"/mnt", "/rank0"};
    disk_make_empty_directory(target->base);
    strcpy(target->directory, target->base);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        strcat(target->directory, parts[i]);
        disk_make_empty_directory(target->directory);
    }
    if (disk_free_bytes(target->base) < capacity_bytes)
        give_up("%s: less than %" PRIu64 " MiB free on the disk", target->base,
                capacity_bytes >> 20);
    disk_settle(target->base);
}

static void sync_files(struct target *target) {
    disk_sync(target->base);
}

static void drop_caches(struct target *target) {
    disk_settle(target->base);
    disk_drop_caches();
}

static void destroy(struct target *target) {
    disk_remove_tree(target->base);
}

static void put_buffered(struct worker *worker, uint64_t id) {
    files_put(worker, id, 0, false);
}

static void put_buffered_durable(struct worker *worker, uint64_t id) {
    files_put(worker, id, 0, true);
}

static void get_buffered(struct worker *worker, uint64_t id) {
    files_get(worker, id, 0);
}

static void put_direct(struct worker *worker, uint64_t id) {
    files_put(worker, id, O_DIRECT, false);
}

static void put_direct_durable(struct worker *worker, uint64_t id) {
    files_put(worker, id, O_DIRECT, true);
}

static void get_direct(struct worker *worker, uint64_t id) {
    files_get(worker, id, O_DIRECT);
}

/* Rewriting by O_TRUNC is what files_put does: nothing to make reusable. */
const struct engine engine_ext4_buffered = {
    .name = "ext4-buffered",
    .measures = MEASURES_PAGES | MEASURES_HOT_GETS | MEASURES_DIRECT_GETS | MEASURES_NAMES,
    .huge_buffers = true,
    .fills_page_cache = true,
    .prepare = prepare,
    .sync = sync_files,
    .drop_caches = drop_caches,
    .destroy = destroy,
    .put = put_buffered,
    .put_durable = put_buffered_durable,
    .get = get_buffered,
    .has = files_has,
};

const struct engine engine_ext4_direct_plain = {
    .name = "ext4-direct-plain",
    .measures = MEASURES_PAGES,
    .prepare = prepare,
    .sync = sync_files,
    .drop_caches = drop_caches,
    .destroy = destroy,
    .put = put_direct,
    .put_durable = put_direct_durable,
    .get = get_direct,
};

const struct engine engine_ext4_direct_huge = {
    .name = "ext4-direct-huge",
    .measures = MEASURES_PAGES | MEASURES_DIRECT_GETS,
    .huge_buffers = true,
    .prepare = prepare,
    .sync = sync_files,
    .drop_caches = drop_caches,
    .destroy = destroy,
    .put = put_direct,
    .put_durable = put_direct_durable,
    .get = get_direct,
};
