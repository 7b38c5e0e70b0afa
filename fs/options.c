/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: flags, the two paths and -o lists, looked up in the table (option_table.c).
 * Then defaults that depend on other options or on the machine, and the checks across options.
 * Everything here happens before anything is touched.
 */
#include "fs/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "fs/compat.h"
#include "fs/generic_option.h"
#include "fs/option_value.h"

static const uint64_t memory_least_bytes = 512ull << 20;
static const uint64_t memory_most_bytes = 4ull << 30;
static const uint64_t max_file_most_bytes = 256ull << 20;

enum { NAME_DISTANCE_MAX = 2, THREADS_LEAST = 4, THREADS_MOST = 16 };

/* One line, whatever the values quoted in it hold. */
[[gnu::format(printf, 2, 3)]] static int refuse(char *message, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, OPTIONS_MESSAGE_BYTES, format, arguments);
    va_end(arguments);
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return -EINVAL;
}

/* unknown names */

static size_t least_of(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Edits (insert, delete, replace) from one name to the other. */
static size_t name_distance(const char *a, const char *b) {
    enum { BYTES_MAX = 24 };
    size_t row[BYTES_MAX + 1];
    size_t a_bytes = strlen(a), b_bytes = strlen(b);
    if (a_bytes > BYTES_MAX || b_bytes > BYTES_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= b_bytes; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_bytes; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_bytes; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least_of(replaced, least_of(row[j], row[j - 1]) + 1);
        }
    }
    return row[b_bytes];
}

static const char *nearest_name(const char *name) {
    size_t count, best = NAME_DISTANCE_MAX + 1;
    const struct option_entry *table = options_table(&count);
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t distance = name_distance(name, table[i].name);
        if (distance < best && distance < strlen(table[i].name)) {
            best = distance;
            nearest = table[i].name;
        }
    }
    return nearest;
}

static int refuse_unknown(char *message, const char *name) {
    char names[512] = "";
    size_t count, used = 0;
    const struct option_entry *table = options_table(&count);
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 table[i].name);
    const char *nearest = nearest_name(name);
    if (nearest)
        return refuse(message, "unknown option %s: did you mean %s? allowed: %s", name, nearest,
                      names);
    return refuse(message, "unknown option %s; allowed: %s, and those of mount(8)", name, names);
}

/* -o lists */

static int add_mount_flag(struct options *options, const char *flag) {
    char *longer;
    const char *comma = *options->mount_flags ? "," : "";
    if (asprintf(&longer, "%s%s%s", options->mount_flags, comma, flag) < 0)
        return -ENOMEM;
    free(options->mount_flags);
    options->mount_flags = longer;
    return 0;
}

static const struct option_entry *find_entry(const char *name) {
    size_t count;
    const struct option_entry *table = options_table(&count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    return NULL;
}

static int parse_own(struct options *options, const struct option_entry *entry, const char *value,
                     char *message) {
    if (!entry->value && value)
        return refuse(message, "option %s=%s: it takes no value; allowed: %s", entry->name, value,
                      entry->name);
    if (entry->value && !value)
        return refuse(message, "option %s: the value is missing; allowed: %s=%s, %s", entry->name,
                      entry->name, entry->value, entry->allowed);
    const char *wrong = entry->parse(options, value);
    if (wrong)
        return refuse(message, "option %s=%s: %s; allowed: %s", entry->name, value, wrong,
                      entry->allowed);
    return 0;
}

static int parse_one(struct options *options, char *element, char *message) {
    enum generic_option use = generic_option_find(element);
    if (use == GENERIC_OPTION_PASSED)
        return add_mount_flag(options, element);
    if (use == GENERIC_OPTION_IGNORED)
        return 0;
    char *value = strchr(element, '=');
    if (value)
        *value++ = '\0';
    const struct option_entry *entry = find_entry(element);
    return entry ? parse_own(options, entry, value, message) : refuse_unknown(message, element);
}

/* Cuts up a copy: the arguments stay as they were given, for `ps`. */
static int parse_list(struct options *options, const char *list, char *message) {
    AUTO_FREE char *copy = strdup(list);
    if (!copy)
        return -ENOMEM;
    char *rest = copy, *element;
    while ((element = strsep(&rest, ","))) {
        int error = *element ? parse_one(options, element, message) : 0;
        if (error)
            return error;
    }
    return 0;
}

/* the command line */

static int parse_paths(struct options *options, int count, char **paths, char *message) {
    if (count < 2)
        return refuse(message, "%s missing; usage: mount.cpl3 STORE MOUNTPOINT [-o OPTION,...]",
                      count == 0 ? "store and mountpoint are" : "the mountpoint is");
    if (count > 2)
        return refuse(message,
                      "one argument too many: %s; usage: mount.cpl3 STORE MOUNTPOINT"
                      " [-o OPTION,...]",
                      paths[2]);
    if (*paths[0] == '\0' || *paths[1] == '\0')
        return refuse(message, "the store and the mountpoint cannot be empty");
    options->config.store_path = strdup(paths[0]);
    options->mountpoint = strdup(paths[1]);
    return options->config.store_path && options->mountpoint ? 0 : -ENOMEM;
}

static int parse_flag(struct options *options, int flag, char **argv, char *message) {
    switch (flag) {
    case 'f':
        options->foreground = true;
        return 0;
    case 'v':
        options->verbose = true;
        return 0;
    case 'h':
        options->action = OPTIONS_HELP;
        return 0;
    case 'V':
        options->action = OPTIONS_VERSION_WANTED;
        return 0;
    case 'o':
        return parse_list(options, optarg, message);
    case 'n': /* these three come from mount(8) and change nothing here */
    case 's':
    case 't':
        return 0;
    case ':':
        return refuse(message, "%s needs a value", argv[optind - 1]);
    default:
        return refuse(message, "unknown flag %s; allowed: -f, -v, -o OPTION,..., --help, --version",
                      optopt && optopt != 'h' ? (char[]){'-', (char)optopt, '\0'}
                                              : argv[optind - 1]);
    }
}

static int parse_command_line(struct options *options, int argc, char **argv, char *message) {
    static const struct option flags[] = {
        {"foreground", no_argument, NULL, 'f'},
        {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {0},
    };
    int flag;
    optind = 0; /* starts over, also after an earlier call */
    opterr = 0;
    while ((flag = getopt_long(argc, argv, ":fvo:nst:hV", flags, NULL)) != -1) {
        int error = parse_flag(options, flag, argv, message);
        if (error || options->action != OPTIONS_MOUNT)
            return error;
    }
    return parse_paths(options, argc - optind, argv + optind, message);
}

/* defaults and checks across options */

static int resolve_cold_start(struct options *options, const char *environment, char *message) {
    struct config *config = &options->config;
    if (!options->cold_start_given && environment) {
        const struct option_entry *entry = find_entry("cold_start");
        const char *wrong = entry->parse(options, environment);
        options->cold_start_given = false;
        if (wrong)
            return refuse(message, "environment %s=%s: %s; allowed: %s", COLD_START_VARIABLE,
                          environment, wrong, entry->allowed);
    }
    if (!config->read_only)
        return 0;
    if (options->cold_start_given && config->cold_start == COLD_START_CLEAR)
        return refuse(message, "option cold_start=clear: not with ro, which changes nothing; "
                               "allowed: cold_start=load");
    config->cold_start = COLD_START_LOAD;
    return 0;
}

static void set_default_memory(struct config *config, uint64_t memory_total_bytes) {
    if (config->memory_given)
        return;
    uint64_t bytes = memory_total_bytes / 16;
    if (bytes < memory_least_bytes)
        bytes = memory_least_bytes;
    config->memory_bytes = least_of(bytes, memory_most_bytes);
}

static void set_default_max_file(struct config *config) {
    if (config->max_file_given)
        return;
    uint64_t bytes = least_of(max_file_most_bytes, config->memory_bytes / 2);
    if (config->size_bytes)
        bytes = least_of(bytes, config->size_bytes / 4);
    config->max_file_bytes = bytes / BLOCK_BYTES * BLOCK_BYTES;
}

static int check_memory(const struct config *config, uint64_t memory_total_bytes, char *message) {
    uint64_t memory_bytes = config->memory_bytes;
    if (config->memory_given && memory_bytes > memory_total_bytes)
        return refuse(message,
                      "option memory: %llu bytes are more than this machine's RAM; "
                      "allowed: up to %llu",
                      (unsigned long long)memory_bytes, (unsigned long long)memory_total_bytes);
    if (memory_bytes / 2 < config->max_file_bytes)
        return refuse(message,
                      "option max_file: %llu bytes need memory of twice that, and memory is %llu; "
                      "allowed: max_file up to %llu, or a larger memory",
                      (unsigned long long)config->max_file_bytes, (unsigned long long)memory_bytes,
                      (unsigned long long)memory_bytes / 2);
    for (unsigned i = 0; i < config->kind_count; i++) {
        const struct config_kind *kind = &config->kinds[i];
        if (memory_bytes / 2 < kind->payload_bytes)
            return refuse(message,
                          "option payload=%s: %u bytes need memory of twice that, and memory is "
                          "%llu; allowed: up to %llu bytes, or a larger memory",
                          kind->name, kind->payload_bytes, (unsigned long long)memory_bytes,
                          (unsigned long long)memory_bytes / 2);
    }
    return 0;
}

static int check_size(const struct config *config, char *message) {
    if (config->size_bytes && config->max_file_bytes > config->size_bytes)
        return refuse(message,
                      "option max_file: %llu bytes are more than size, which is %llu; "
                      "allowed: up to size",
                      (unsigned long long)config->max_file_bytes,
                      (unsigned long long)config->size_bytes);
    unsigned percent = 0;
    for (unsigned i = 0; i < config->kind_count; i++)
        percent += config->kinds[i].share_percent;
    if (percent > 100)
        return refuse(message, "option payload: the shares add up to %u%%; allowed: up to 100%%",
                      percent);
    return 0;
}

static int check_watermarks(const struct config *config, char *message) {
    if (config->gc_stop < config->gc_start)
        return 0;
    return refuse(message,
                  "option gc_stop: %.4g is not below gc_start, which is %.4g; allowed: "
                  "gc_stop < gc_start",
                  config->gc_stop, config->gc_start);
}

static int resolve(struct options *options, const char *environment, uint64_t memory_total_bytes,
                   char *message) {
    struct config *config = &options->config;
    int error = resolve_cold_start(options, environment, message);
    if (error)
        return error;
    set_default_memory(config, memory_total_bytes);
    set_default_max_file(config);
    if (!options->threads_given) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        size_t threads = cores > 0 ? 2 * (size_t)cores : THREADS_LEAST;
        threads = least_of(threads, THREADS_MOST);
        options->threads = threads < THREADS_LEAST ? THREADS_LEAST : (unsigned)threads;
    }
    config->request_bytes = (uint64_t)options->threads * COMPAT_WRITE_BYTES_MAX;
    error = check_memory(config, memory_total_bytes, message);
    if (!error)
        error = check_size(config, message);
    return error ? error : check_watermarks(config, message);
}

int options_parse(int argc, char **argv, const char *environment_cold_start,
                  uint64_t memory_total_bytes, struct options *ret_options,
                  char ret_message[OPTIONS_MESSAGE_BYTES]) {
    struct options options = {
        .config = {.gc_start = 0.90, .gc_stop = 0.85, .commit_ns = CONFIG_COMMIT_NS_DEFAULT},
        .uid = geteuid(),
        .gid = getegid(),
        .umask = 0077,
        .mount_flags = strdup(""),
    };
    int error = options.mount_flags ? 0 : -ENOMEM;
    if (!error)
        error = parse_command_line(&options, argc, argv, ret_message);
    if (!error && options.action == OPTIONS_MOUNT)
        error = resolve(&options, environment_cold_start, memory_total_bytes, ret_message);
    if (error == -ENOMEM)
        refuse(ret_message, "out of memory");
    if (error)
        options_free(&options);
    else
        *ret_options = options;
    return error;
}

void options_free(struct options *options) {
    free(options->config.store_path);
    free(options->mountpoint);
    free(options->mount_flags);
    *options = (struct options){0};
}
