/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to stderr or syslog. A line is one write(2), so lines of several threads never mix, and
 * no lock is taken (of ours): CHECK may report from anywhere. Names come from users, hence control
 * characters are shown as '?': a file name cannot forge a line.
 */
#include "core/log.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 2048 };

static const char line_prefix[] = "cpl3: ";
static const uint64_t limit_interval_ns = 1000000000;

/* Set before other threads start. */
static enum log_level level_max = LOG_LEVEL_NOTICE;
static atomic_bool to_syslog;
static atomic_int fatal_directory_fd = -1;
static atomic_flag fatal_is_kept = ATOMIC_FLAG_INIT;

void log_set_level(enum log_level level) {
    level_max = level;
}

void log_use_syslog(bool use) {
    if (use)
        openlog("cpl3", LOG_PID, LOG_DAEMON);
    else if (atomic_load(&to_syslog))
        closelog();
    atomic_store(&to_syslog, use);
}

static int syslog_priority(enum log_level level) {
    switch (level) {
    case LOG_LEVEL_ERROR:
        return LOG_ERR;
    case LOG_LEVEL_NOTICE:
        return LOG_NOTICE;
    case LOG_LEVEL_DEBUG:
        break;
    }
    return LOG_DEBUG;
}

/* A line that cannot be written is lost: there is nowhere left to say so. */
static void write_line(int fd, const char *line, size_t bytes) {
    ssize_t written;
    do
        written = write(fd, line, bytes);
    while (written < 0 && errno == EINTR);
}

static void hide_control_characters(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

/* Appends to line[used..]; what does not fit ends in "...". The bytes used. */
__attribute__((format(printf, 3, 0))) static size_t append(char *line, size_t used,
                                                           const char *format, va_list arguments) {
    size_t room = LINE_BYTES_MAX - 1 - used; /* the newline's byte is kept free */
    int wanted = vsnprintf(line + used, room, format, arguments);
    if (wanted < 0)
        return used;
    if ((size_t)wanted < room)
        return used + (size_t)wanted;
    memcpy(line + used + room - 4, "...", 4);
    return used + room - 1;
}

/* The whole line, with the prefix, the newline and a zero behind it. The bytes before the zero. */
__attribute__((format(printf, 3, 0))) static size_t format_line(char ret_line[LINE_BYTES_MAX + 1],
                                                                uint64_t held_back,
                                                                const char *format,
                                                                va_list arguments) {
    size_t used = sizeof(line_prefix) - 1;
    memcpy(ret_line, line_prefix, used);
    if (held_back)
        used +=
            (size_t)snprintf(ret_line + used, LINE_BYTES_MAX - used,
                             "(%llu like the next were held back) ", (unsigned long long)held_back);
    used = append(ret_line, used, format, arguments);
    ret_line[used] = '\0';
    hide_control_characters(ret_line);
    memcpy(ret_line + used, "\n", 2);
    return used + 1;
}

static void print_line(enum log_level level, const char *line, size_t bytes) {
    if (atomic_load_explicit(&to_syslog, memory_order_relaxed))
        syslog(syslog_priority(level), "%.*s", (int)(bytes - sizeof(line_prefix)),
               line + sizeof(line_prefix) - 1);
    else
        write_line(STDERR_FILENO, line, bytes);
}

__attribute__((format(printf, 3, 0))) static void print(enum log_level level, uint64_t held_back,
                                                        const char *format, va_list arguments) {
    int saved_errno = errno;
    char line[LINE_BYTES_MAX + 1];
    size_t bytes = format_line(line, held_back, format, arguments);
    print_line(level, line, bytes);
    errno = saved_errno;
}

#define PRINT_AT(level, held_back, format)                                                         \
    do {                                                                                           \
        if ((level) > level_max)                                                                   \
            break;                                                                                 \
        va_list arguments;                                                                         \
        va_start(arguments, format);                                                               \
        print(level, held_back, format, arguments);                                                \
        va_end(arguments);                                                                         \
    } while (0)

void log_error(const char *format, ...) {
    PRINT_AT(LOG_LEVEL_ERROR, 0, format);
}

void log_notice(const char *format, ...) {
    PRINT_AT(LOG_LEVEL_NOTICE, 0, format);
}

void log_debug(const char *format, ...) {
    PRINT_AT(LOG_LEVEL_DEBUG, 0, format);
}

void log_limited(struct log_limit *limit, const char *format, ...) {
    uint64_t now_ns = clock_monotonic_ns();
    uint64_t next_ns = atomic_load(&limit->next_ns);
    if (now_ns < next_ns ||
        !atomic_compare_exchange_strong(&limit->next_ns, &next_ns, now_ns + limit_interval_ns)) {
        atomic_fetch_add(&limit->held_back, 1);
        return;
    }
    PRINT_AT(LOG_LEVEL_ERROR, atomic_exchange(&limit->held_back, 0), format);
}

/* last words */

void log_keep_fatal_in(int directory_fd) {
    atomic_store(&fatal_directory_fd, directory_fd);
}

/* The first line is the cause, later ones are consequences. Only what a signal handler may call.
 * The prefix is left out. */
static void keep_fatal(const char *line, size_t bytes) {
    const size_t skip = sizeof(line_prefix) - 1;
    int directory_fd = atomic_load(&fatal_directory_fd);
    if (directory_fd < 0 || atomic_flag_test_and_set(&fatal_is_kept))
        return;
    int fd = openat(directory_fd, LOG_FATAL_NAME,
                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    write_line(fd, line + skip, bytes - skip);
    close(fd);
}

void log_fatal(const char *format, ...) {
    char line[LINE_BYTES_MAX + 1];
    va_list arguments;
    va_start(arguments, format);
    size_t bytes = format_line(line, 0, format, arguments);
    va_end(arguments);
    keep_fatal(line, bytes);
    print_line(LOG_LEVEL_ERROR, line, bytes);
}

void log_last_words(const char *words) {
    char line[LINE_BYTES_MAX];
    size_t used = sizeof(line_prefix) - 1, bytes = strlen(words), room = sizeof(line) - used - 1;
    memcpy(line, line_prefix, used);
    bytes = bytes < room ? bytes : room;
    memcpy(line + used, words, bytes);
    line[used + bytes] = '\n';
    keep_fatal(line, used + bytes + 1);
    if (!atomic_load(&to_syslog))
        write_line(STDERR_FILENO, line, used + bytes + 1);
}
