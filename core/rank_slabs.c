/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slab files that do not fit this mount's payload kinds. They would hold disk space that nothing
 * accounts for, so they are either a reason to refuse (`load`: the options are probably wrong) or
 * go
 * (`clear`: their content is void anyway).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/rank_open.h"

/* "<kind>-<slot bytes>.slab", as budget_open makes them. */
static bool parse_slab_name(const char *name, char *ret_kind, size_t size, uint64_t *ret_bytes) {
    const char *dash = strrchr(name, '-');
    int end = 0;
    if (!dash || (size_t)(dash - name) >= size || dash == name ||
        sscanf(dash + 1, "%" SCNu64 ".slab%n", ret_bytes, &end) != 1 || !end || dash[1 + end])
        return false;
    memcpy(ret_kind, name, (size_t)(dash - name));
    ret_kind[dash - name] = '\0';
    return true;
}

static const struct config_kind *find_kind(const struct config *config, const char *name) {
    for (unsigned i = 0; i < config->kind_count; i++)
        if (strcmp(config->kinds[i].name, name) == 0)
            return &config->kinds[i];
    return NULL;
}

static int refuse(struct rank *rank, const char *name, const char *kind,
                  const struct config_kind *declared) {
    if (declared)
        log_error("rank %u: the store holds %s, but payload=%s:%u needs slots of %" PRIu64
                  " bytes; mount with the page size it was made with, or with cold_start=clear",
                  rank->number, name, kind, declared->payload_bytes,
                  slot_bytes_for_page(declared->payload_bytes));
    else
        log_error("rank %u: the store holds %s, but this mount declares no payload kind '%s'; add "
                  "payload=%s:..., or mount with cold_start=clear",
                  rank->number, name, kind, kind);
    return -EINVAL;
}

static int check_slab(struct rank *rank, const char *name) {
    const struct config *config = &rank->store->config;
    char kind[32];
    uint64_t slot_bytes;
    if (!parse_slab_name(name, kind, sizeof(kind), &slot_bytes) || strcmp(kind, "any") == 0)
        return 0;
    const struct config_kind *declared = find_kind(config, kind);
    if (declared && slot_bytes_for_page(declared->payload_bytes) == slot_bytes)
        return 0;
    if (config->cold_start == COLD_START_LOAD && !rank->cold_start.empty_because[0])
        return refuse(rank, name, kind, declared);
    log_notice(
        "rank %u: %s is removed: the rank starts empty, and its payload kind is not declared",
        rank->number, name);
    return unlinkat(rank->directory_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int rank_check_slabs(struct rank *rank) {
    int fd = openat(rank->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    AUTO_CLOSEDIR DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return -ENOMEM;
    }
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(dir));)
        result = check_slab(rank, entry->d_name);
    return result;
}
