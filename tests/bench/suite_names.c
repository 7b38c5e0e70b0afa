/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many names: a listing, `ls -l` with nothing in memory, and for cpl3 the cold start with `load`
 * that comes before it: its time, and the memory that a slot takes. The listed directory has as
 * many names in every engine; what cpl3 loads beyond them lies in a directory beside.
 */
#include "tests/bench/bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "core/cleanup.h"
#include "core/clock.h"
#include "tests/bench/disk.h"

/* Pages that take a slot each, the smallest there is. */
enum { PAGE_BYTES = 8000, SLOT_BYTES = 8192, NAMES = 100000, NAMES_QUICK = 20000 };

static uint64_t count_names(const struct bench *bench) {
    return bench->quick ? NAMES_QUICK : NAMES;
}

/* filling */

static void fill(struct bench *bench, struct target *target, uint64_t first_id, uint64_t count) {
    const struct job job = {.kind = JOB_PUT,
                            .threads = CLIENT_THREADS,
                            .object_bytes = PAGE_BYTES,
                            .first_id = first_id,
                            .ids = count,
                            .count = count};
    client_run(bench->client, target, &job);
}

static void prepare(struct bench *bench, struct target *target) {
    uint64_t names = count_names(bench);
    bool loads = target->engine == &engine_cpl3;
    uint64_t slots = loads ? bench->load_slots : names;
    target->engine->prepare(target, slots * SLOT_BYTES * 100 / 80 + (256ull << 20));
    fill(bench, target, 0, names);
    if (loads && slots > names) {
        struct target beside = *target;
        strcat(beside.directory, "/beside"); /* there is room: engine_make_targets */
        if (mkdir(beside.directory, 0755) < 0)
            give_up("%s: %m", beside.directory);
        fill(bench, &beside, names, slots - names);
    }
    engine_settle(target);
}

/* listing */

struct listing {
    char path[ENGINE_PATH_MAX]; /* the directory and a slash; the name goes behind it */
    size_t path_bytes;
    bool no_context, no_acl; /* unknown here: not asked for again */
    uint64_t names;
};

/* After a call for an extended attribute: true if there are none in this file system. */
static bool is_unsupported(const struct listing *listing, ssize_t result) {
    if (result >= 0 || errno == ENODATA)
        return false;
    if (errno != EOPNOTSUPP)
        give_up("%s: extended attributes: %m", listing->path);
    return true;
}

static void look_at_entry(struct listing *listing) {
    struct statx status = {};
    char context[255];
    if (statx(AT_FDCWD, listing->path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
              STATX_MODE | STATX_NLINK | STATX_UID | STATX_GID | STATX_MTIME | STATX_SIZE,
              &status) < 0)
        give_up("%s: statx: %m", listing->path);
    if (status.stx_size != PAGE_BYTES)
        give_up("%s: %llu bytes", listing->path, (unsigned long long)status.stx_size);
    if (!listing->no_context)
        listing->no_context = is_unsupported(
            listing, lgetxattr(listing->path, "security.selinux", context, sizeof context));
    if (!listing->no_acl)
        listing->no_acl =
            is_unsupported(listing, getxattr(listing->path, "system.posix_acl_access", NULL, 0));
}

/*
 * One pass of readdir, all names kept. With `look`, the calls of `ls -l` in its order (GNU
 * coreutils 9.1, by strace): each entry is looked at, by its whole path, when readdir returned it,
 * so that the entries of one buffer of 32 KiB are looked at before the next buffer is read; the
 * kernel's choice between READDIR and READDIRPLUS hangs on that. Sorting and printing are left out.
 */
static double list(const struct bench *bench, const struct target *target, bool look) {
    struct listing listing = {};
    uint64_t most = count_names(bench);
    int n = snprintf(listing.path, sizeof listing.path, "%s/", target->directory);
    if (n < 0 || (size_t)n + ENGINE_NAME_BYTES >= sizeof listing.path)
        give_up("%s: too long a path", target->directory);
    listing.path_bytes = (size_t)n;
    AUTO_FREE char(*kept)[ENGINE_NAME_BYTES + 1] = calloc(most, sizeof *kept);
    if (!kept)
        give_up("no memory");
    memset(kept, 1, most * sizeof *kept);
    uint64_t start_ns = clock_monotonic_ns();
    AUTO_CLOSEDIR DIR *directory = opendir(target->directory);
    if (!directory)
        give_up("%s: %m", target->directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strlen(entry->d_name) != ENGINE_NAME_BYTES)
            continue;
        strcpy(listing.path + listing.path_bytes, entry->d_name);
        if (look)
            look_at_entry(&listing);
        if (listing.names < most)
            memcpy(kept[listing.names], entry->d_name, sizeof *kept);
        listing.names++;
    }
    double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    if (listing.names != most)
        give_up("%s: %" PRIu64 " of %" PRIu64 " names are listed", target->directory, listing.names,
                most);
    return seconds;
}

static void write_sample(struct bench *bench, const char *operation, const struct engine *engine,
                         unsigned repetition, uint64_t count, double quantity, const char *unit) {
    sample_write(bench->csv, &(struct sample){.operation = operation,
                                              .engine = engine->name,
                                              .threads = 1,
                                              .repetition = repetition,
                                              .count = count,
                                              .quantity = quantity,
                                              .unit = unit});
}

static void measure_listing(struct bench *bench, struct target *target, unsigned repetition) {
    uint64_t names = count_names(bench);
    double cold = list(bench, target, true);
    write_sample(bench, "ls -l, cold", target->engine, repetition, names, cold, "s");
    double warm = list(bench, target, false);
    write_sample(bench, "listing", target->engine, repetition, names, warm, "s");
}

/* load */

struct load_result {
    double seconds;
    struct daemon_memory memory;
};

static struct load_result remount(struct target *target) {
    struct load_result result;
    char options[sizeof target->daemon_options + 32];
    snprintf(options, sizeof options, "%s,cold_start=load", target->daemon_options);
    daemon_stop(&target->daemon);
    disk_settle(target->base);
    disk_drop_caches();
    result.seconds = daemon_start(&target->daemon, options);
    daemon_wait_touched(&target->daemon);
    daemon_get_memory(&target->daemon, &result.memory);
    return result;
}

/* What a mount of an empty store takes, to be taken off. */
static struct load_result load_nothing(struct target *target) {
    target->engine->prepare(target, 256ull << 20);
    struct load_result result = remount(target);
    target->engine->destroy(target);
    return result;
}

static void measure_load(struct bench *bench, struct target *target, unsigned repetition,
                         const struct load_result *nothing) {
    struct load_result loaded = remount(target);
    uint64_t slots = bench->load_slots;
    double anonymous =
        (double)loaded.memory.anonymous_bytes - (double)nothing->memory.anonymous_bytes;
    double resident = (double)loaded.memory.resident_bytes - (double)nothing->memory.resident_bytes;
    write_sample(bench, "load", target->engine, repetition, slots,
                 loaded.seconds - nothing->seconds, "s");
    write_sample(bench, "memory of a slot", target->engine, repetition, slots, resident, "bytes");
    write_sample(bench, "memory of a slot, without index pages", target->engine, repetition, slots,
                 anonymous, "bytes");
}

void suite_names(struct bench *bench) {
    struct target *target;
    struct target *cpl3 = bench_find_target(bench, &engine_cpl3);
    struct load_result nothing = load_nothing(cpl3);
    say("filling directories of %" PRIu64 " names, and cpl3 with %" PRIu64 " slots",
        count_names(bench), bench->load_slots);
    for (size_t i = 0; i < bench->target_count; i++)
        if ((target = bench_turn(bench, 0, i, MEASURES_NAMES)))
            prepare(bench, target);
    for (unsigned repetition = 0; repetition < bench->repetitions; repetition++) {
        say("repetition %u of %u: load, ls -l, listing", repetition + 1, bench->repetitions);
        for (size_t i = 0; i < bench->target_count; i++) {
            if (!(target = bench_turn(bench, repetition, i, MEASURES_NAMES)))
                continue;
            if (target == cpl3)
                measure_load(bench, target, repetition, &nothing);
            else
                engine_settle(target);
            disk_drop_caches();
            measure_listing(bench, target, repetition);
        }
    }
    for (size_t i = 0; i < bench->target_count; i++)
        if ((target = bench_turn(bench, 0, i, MEASURES_NAMES)))
            target->engine->destroy(target);
}
