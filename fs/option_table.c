/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of options and how each value becomes a field. Ranges of a single value are decided
 * here; what depends on several options is in options.c, what depends on the store in core.
 */
#include "fs/options.h"

#include <string.h>

#include "core/format.h"
#include "fs/option_value.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define TIB (1ull << 40)
#define COMMIT_NS_LEAST UINT64_C(1000000)
#define COMMIT_NS_MOST UINT64_C(300000000000)
#define SIZE_WORDS ", decimal with K, M, G or T (powers of 1024)"

static const char not_a_size[] = "not a size";
static const char out_of_range[] = "out of range";

static const char *parse_size_in(const char *value, uint64_t least, uint64_t most,
                                 uint64_t *ret_bytes) {
    uint64_t bytes;
    if (!option_value_size(value, &bytes))
        return not_a_size;
    if (bytes < least || bytes > most)
        return out_of_range;
    *ret_bytes = bytes;
    return NULL;
}

static const char *parse_rank(struct options *options, const char *value) {
    bool good = option_value_ranks(value, &options->config.rank_first, &options->config.rank_last);
    return good ? NULL : "not a rank or a row of ranks";
}

static const char *parse_size(struct options *options, const char *value) {
    return parse_size_in(value, MIB, 1024 * TIB, &options->config.size_bytes);
}

/* payload=NAME:BYTES:SLOTS|SHARE% */

static bool is_kind_name(const char *name) {
    if (name[0] < 'a' || name[0] > 'z' || strcmp(name, "any") == 0)
        return false;
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static const char *parse_kind_share(const char *text, struct config_kind *kind) {
    char digits[16];
    size_t bytes = strlen(text);
    uint64_t number;
    if (bytes == 0 || bytes >= sizeof digits)
        return "the number of slots or the share is missing or too long";
    memcpy(digits, text, bytes + 1);
    bool is_share = digits[bytes - 1] == '%';
    if (is_share)
        digits[bytes - 1] = '\0';
    if (!option_value_number(digits, &number))
        return "neither a number of slots nor a share in %";
    if (number < 1 || number > (is_share ? 100 : INT32_MAX))
        return is_share ? "the share is out of range" : "the number of slots is out of range";
    if (is_share)
        kind->share_percent = (unsigned)number;
    else
        kind->slots = (uint32_t)number;
    return NULL;
}

/* text is cut into its three fields. */
static const char *parse_kind_fields(char *text, struct config_kind *kind) {
    char *size = strchr(text, ':');
    char *share = size ? strchr(size + 1, ':') : NULL;
    if (!share)
        return "not NAME:BYTES:SLOTS or NAME:BYTES:SHARE%";
    *size++ = *share++ = '\0';
    if (!is_kind_name(text) || strlen(text) >= sizeof kind->name)
        return "the name is not possible";
    memcpy(kind->name, text, strlen(text) + 1);
    uint64_t payload_bytes;
    const char *wrong = parse_size_in(size, 1, 2048 * MIB, &payload_bytes);
    if (wrong)
        return wrong == not_a_size ? "BYTES is not a size" : "BYTES is out of range";
    kind->payload_bytes = (uint32_t)payload_bytes;
    return parse_kind_share(share, kind);
}

static const char *parse_payload(struct options *options, const char *value) {
    struct config *config = &options->config;
    struct config_kind kind = {0};
    char text[96];
    if (strlen(value) >= sizeof text)
        return "too long";
    memcpy(text, value, strlen(value) + 1);
    const char *wrong = parse_kind_fields(text, &kind);
    if (wrong)
        return wrong;
    for (unsigned i = 0; i < config->kind_count; i++) {
        if (strcmp(config->kinds[i].name, kind.name) == 0)
            return "the name is already declared";
    }
    if (config->kind_count == PAYLOAD_KINDS_MAX - 1)
        return "more than 15 payload kinds";
    config->kinds[config->kind_count++] = kind;
    return NULL;
}

/* the others */

static const char *parse_cold_start(struct options *options, const char *value) {
    static const char *const choices[] = {"clear", "load", NULL};
    unsigned choice;
    if (!option_value_choice(value, choices, &choice))
        return "unknown mode";
    options->config.cold_start = choice == 0 ? COLD_START_CLEAR : COLD_START_LOAD;
    options->cold_start_given = true;
    return NULL;
}

static const char *parse_gc_start(struct options *options, const char *value) {
    return option_value_share(value, &options->config.gc_start) ? NULL : "not such a share";
}

static const char *parse_gc_stop(struct options *options, const char *value) {
    return option_value_share(value, &options->config.gc_stop) ? NULL : "not such a share";
}

static const char *parse_tag(struct options *options, const char *value) {
    size_t bytes = strlen(value);
    if (bytes == 0)
        return "empty";
    if (bytes > TAG_BYTES_MAX)
        return "too long";
    for (const char *c = value; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return "it has a control character";
    }
    memcpy(options->config.tag, value, bytes + 1);
    return NULL;
}

static const char *parse_commit(struct options *options, const char *value) {
    uint64_t ns;
    if (!option_value_seconds(value, &ns))
        return "not a time in seconds";
    if (ns < COMMIT_NS_LEAST || ns > COMMIT_NS_MOST)
        return out_of_range;
    options->config.commit_ns = ns;
    return NULL;
}

static const char *parse_df(struct options *options, const char *value) {
    static const char *const choices[] = {"used", "reclaimable", NULL};
    unsigned choice;
    if (!option_value_choice(value, choices, &choice))
        return "unknown way to count";
    options->df_reclaimable = choice == 1;
    return NULL;
}

static const char *parse_sync(struct options *options, const char *value) {
    (void)value;
    options->config.sync = true;
    return NULL;
}

static const char *parse_memory(struct options *options, const char *value) {
    options->config.memory_given = true;
    return parse_size_in(value, 2 * MIB, 16 * TIB, &options->config.memory_bytes);
}

static const char *parse_max_file(struct options *options, const char *value) {
    options->config.max_file_given = true;
    return parse_size_in(value, 4 * KIB, 2048 * MIB, &options->config.max_file_bytes);
}

static const char *parse_threads(struct options *options, const char *value) {
    uint64_t threads;
    if (!option_value_number(value, &threads))
        return "not a number";
    if (threads < 1 || threads > 64)
        return out_of_range;
    options->threads = (unsigned)threads;
    options->threads_given = true;
    return NULL;
}

static const char *parse_engine(struct options *options, const char *value) {
    static const char *const choices[] = {"auto", "uring", "posix", NULL};
    static const enum slab_engine engines[] = {SLAB_ENGINE_AUTO, SLAB_ENGINE_URING,
                                               SLAB_ENGINE_POSIX};
    unsigned choice;
    if (!option_value_choice(value, choices, &choice))
        return "unknown engine";
    options->config.engine = engines[choice];
    return NULL;
}

static const char *parse_id(const char *value, uint32_t *ret_id) {
    uint64_t id;
    if (!option_value_number(value, &id))
        return "not a number";
    if (id >= UINT32_MAX)
        return out_of_range;
    *ret_id = (uint32_t)id;
    return NULL;
}

static const char *parse_uid(struct options *options, const char *value) {
    options->uid_given = true;
    return parse_id(value, &options->uid);
}

static const char *parse_gid(struct options *options, const char *value) {
    options->gid_given = true;
    return parse_id(value, &options->gid);
}

static const char *parse_umask(struct options *options, const char *value) {
    return option_value_umask(value, &options->umask) ? NULL : "not a umask";
}

static const char *parse_allow_other(struct options *options, const char *value) {
    (void)value;
    options->allow_other = true;
    return NULL;
}

static const char *parse_ro(struct options *options, const char *value) {
    (void)value;
    options->config.read_only = true;
    return NULL;
}

static const char *parse_rw(struct options *options, const char *value) {
    (void)value;
    options->config.read_only = false;
    return NULL;
}

/* clang-format off */
static const struct option_entry table[] = {
    {"rank", "N|A-B", "0", "N or A-B with 0 <= A <= B <= 1023",
     "the rank, or row of ranks, that this mount serves", parse_rank},
    {"size", "BYTES", "what the store was made with; for a new store, 80 % of the free space over its ranks",
     "1M to 1024T" SIZE_WORDS, "bound on the disk space of one rank", parse_size},
    {"payload", "NAME:BYTES:SLOTS|SHARE%", "none",
     "NAME of a-z, 0-9 and _ (up to 31, a letter first, not \"any\"), BYTES 1 to 2G, SLOTS from 1"
     " or SHARE 1% to 100% of size; up to 15 kinds, each name once",
     "declares a payload kind with slots of its own; may be repeated", parse_payload},
    {"cold_start", "clear|load", "clear", "clear, load",
     "what to do with what the disk already holds", parse_cold_start},
    {"tag", "STRING", "none", "1 to 255 bytes without control characters and commas",
     "model, layout or weights version; load under another tag starts empty", parse_tag},
    {"gc_start", "SHARE", "0.90", "above 0 and below 1, such as 0.90",
     "GC starts when a budget is fuller than this", parse_gc_start},
    {"gc_stop", "SHARE", "0.85", "above 0 and below gc_start, such as 0.85",
     "and stops when it is down to this", parse_gc_stop},
    {"sync", NULL, NULL, NULL,
     "close returns only when the file is durable", parse_sync},
    {"commit", "SECONDS", "0.1", "0.001 to 300, such as 0.5",
     "a closed file is durable after about this time", parse_commit},
    {"memory", "BYTES", "1/16 of RAM, at least 512M, at most 4G", "2M to 16T" SIZE_WORDS,
     "memory for payloads being written and read", parse_memory},
    {"threads", "N", "twice the cores, at least 4, at most 16", "1 to 64",
     "threads that answer requests", parse_threads},
    {"engine", "auto|uring|posix", "auto", "auto, uring, posix",
     "how the disk is read and written", parse_engine},
    {"max_file", "BYTES", "256M, at most memory/2 and a quarter of what payload kinds leave of size", "4K to 2G" SIZE_WORDS,
     "largest file; longer writes fail with EFBIG", parse_max_file},
    {"df", "used|reclaimable", "used", "used, reclaimable",
     "reclaimable: statfs counts what GC can evict as free", parse_df},
    {"uid", "N", "who makes a file owns it", "0 to 4294967294",
     "owner of everything; chown is EPERM then", parse_uid},
    {"gid", "N", "that of who makes a file", "0 to 4294967294",
     "group of everything; chgrp is EPERM then", parse_gid},
    {"umask", "OCTAL", "0077", "octal, 0000 to 0777",
     "permissions taken away from everything", parse_umask},
    {"allow_other", NULL, NULL, NULL,
     "other users may use the mount, as file permissions allow", parse_allow_other},
    {"ro", NULL, NULL, NULL,
     "read-only; implies cold_start=load", parse_ro},
    {"rw", NULL, NULL, NULL,
     "takes an earlier ro back", parse_rw},
};
/* clang-format on */

const struct option_entry *options_table(size_t *ret_count) {
    *ret_count = sizeof table / sizeof table[0];
    return table;
}
