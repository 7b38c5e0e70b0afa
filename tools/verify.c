/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cpl3 verify`: reads every page that replay wrote and judges it by its name; and, after a crash,
 * checks that each name whose fsync had returned is there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/cleanup.h"
#include "tools/commands.h"
#include "tools/page.h"

static char command_name[] = "cpl3 verify";
static const char help[] =
    "Usage: cpl3 verify [--acknowledged FILE] DIR...\n"
    "\n"
    "Reads every file in the DIRs whose name cpl3 replay made and compares it with what that name\n"
    "stands for, size included. Other files are left alone.\n"
    "\n"
    "  --acknowledged FILE  also: each name in FILE must be in one of the DIRs\n"
    "  --help               this text\n"
    "\n"
    "Exit code: 0; 1 after wrong or missing pages or errors; 2 for wrong usage.\n";

struct verification {
    uint64_t good, wrong, bytes;
    uint64_t gone;  /* listed, but a miss at open: evicted, or dropped as bad: allowed */
    uint64_t other; /* not names of ours */
    uint64_t acknowledged, missing;
    uint64_t errors;
    char *page; /* page_capacity bytes */
    uint64_t page_capacity;
};

static void count_error(struct verification *verification, const char *directory, const char *name,
                        const char *doing) {
    fprintf(stderr, "cpl3 verify: %s/%s: %s: %s\n", directory, name, doing, strerror(errno));
    verification->errors++;
}

static bool reserve_page(struct verification *verification, uint64_t bytes) {
    if (bytes <= verification->page_capacity)
        return true;
    free(verification->page);
    verification->page = page_allocate(bytes);
    verification->page_capacity = verification->page ? bytes : 0;
    return verification->page != NULL;
}

/* The number of bytes read, up to `bytes`; -1 and errno. */
static int64_t read_whole(int fd, char *ret_bytes, uint64_t bytes) {
    uint64_t done = 0;
    while (done < bytes) {
        ssize_t got = read(fd, ret_bytes + done, bytes - done);
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (uint64_t)got;
    }
    return (int64_t)done;
}

static void judge_page(struct verification *verification, const char *directory, const char *name,
                       uint64_t id, uint64_t file_bytes, uint64_t got_bytes) {
    uint64_t wrong = page_count_wrong(id, file_bytes, verification->page, got_bytes);
    verification->bytes += got_bytes;
    /* Replay writes no empty page: one is a page that lost its bytes. */
    if (wrong == 0 && got_bytes == file_bytes && file_bytes > 0) {
        verification->good++;
        return;
    }
    verification->wrong++;
    fprintf(stderr,
            "cpl3 verify: %s/%s: wrong: size %" PRIu64 ", read %" PRIu64 ", %" PRIu64
            " of them differ\n",
            directory, name, file_bytes, got_bytes, wrong);
}

static void verify_page(struct verification *verification, int directory_fd, const char *directory,
                        const char *name, uint64_t id) {
    AUTO_CLOSE int fd = openat(directory_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        verification->gone++;
        return;
    }
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return count_error(verification, directory, name, "open");
    if (!reserve_page(verification, (uint64_t)st.st_size))
        return count_error(verification, directory, name, "memory for it");
    int64_t got = read_whole(fd, verification->page, (uint64_t)st.st_size);
    if (got < 0)
        return count_error(verification, directory, name, "read");
    judge_page(verification, directory, name, id, (uint64_t)st.st_size, (uint64_t)got);
}

static void verify_directory(struct verification *verification, const char *directory) {
    AUTO_CLOSEDIR DIR *listing = opendir(directory);
    if (!listing)
        return count_error(verification, directory, "", "open");
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(listing);
        if (!entry)
            break;
        uint64_t id;
        if (page_parse_name(entry->d_name, &id))
            verify_page(verification, dirfd(listing), directory, entry->d_name, id);
        else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            verification->other++;
    }
    if (errno)
        count_error(verification, directory, "", "list");
}

static bool exists_in_any(const char *name, char *const *directories, int count) {
    for (int i = 0; i < count; i++) {
        AUTO_FREE char *path = NULL;
        if (asprintf(&path, "%s/%s", directories[i], name) < 0) {
            path = NULL;
            return false;
        }
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

static void verify_acknowledged(struct verification *verification, const char *list,
                                char *const *directories, int count) {
    AUTO_FCLOSE FILE *file = fopen(list, "re");
    if (!file) {
        fprintf(stderr, "cpl3 verify: cannot open %s: %s\n", list, strerror(errno));
        verification->errors++;
        return;
    }
    AUTO_FREE char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, file) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        uint64_t id;
        if (!page_parse_name(line, &id)) {
            fprintf(stderr, "cpl3 verify: %s: '%s' is not a name of replay's\n", list, line);
            verification->errors++;
            continue;
        }
        verification->acknowledged++;
        if (!exists_in_any(line, directories, count)) {
            fprintf(stderr, "cpl3 verify: %s was acknowledged and is missing\n", line);
            verification->missing++;
        }
    }
}

static void print_summary(const struct verification *verification, bool with_acknowledged) {
    printf("pages ok         %" PRIu64 " (%.3f GiB read)\n", verification->good,
           (double)verification->bytes / (1 << 30));
    printf("pages wrong      %" PRIu64 "\n", verification->wrong);
    printf("gone meanwhile   %" PRIu64 "\n", verification->gone);
    printf("other files      %" PRIu64 "\n", verification->other);
    if (with_acknowledged)
        printf("acknowledged     %" PRIu64 ", of which %" PRIu64 " are missing\n",
               verification->acknowledged, verification->missing);
    printf("errors           %" PRIu64 "\n", verification->errors);
}

int command_verify(int argc, char **argv) {
    static const struct option long_options[] = {
        {"acknowledged", required_argument, NULL, 'a'}, {"help", no_argument, NULL, 'h'}, {0}};
    const char *acknowledged = NULL;
    int letter;
    argv[0] = command_name; /* getopt's messages begin with it */
    optind = 0;
    while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (letter == 'h') {
            fputs(help, stdout);
            return EXIT_GOOD;
        }
        if (letter != 'a')
            return EXIT_USAGE;
        acknowledged = optarg;
    }
    if (optind == argc) {
        fputs("cpl3 verify: at least one DIR is needed; see cpl3 verify --help\n", stderr);
        return EXIT_USAGE;
    }
    struct verification verification = {0};
    for (int i = optind; i < argc; i++)
        verify_directory(&verification, argv[i]);
    if (acknowledged)
        verify_acknowledged(&verification, acknowledged, argv + optind, argc - optind);
    free(verification.page);
    print_summary(&verification, acknowledged != NULL);
    return verification.wrong || verification.missing || verification.errors ? EXIT_BAD : EXIT_GOOD;
}
