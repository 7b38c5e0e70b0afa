/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to stderr or syslog. A line is one write(2), so lines of several threads never mix, and
 * no lock is taken: CHECK may report from anywhere. Names come from users, hence control characters
 * are shown as '?': a file name cannot forge a line.
 */
#include "core/log.h"

#include "core/clock.h"

#include <errno.h>
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
static bool to_syslog;

void log_set_level(enum log_level level) {
    level_max = level;
}

void log_use_syslog(bool use) {
    if (use)
        openlog("cpl3", LOG_PID, LOG_DAEMON);
    else if (to_syslog)
        closelog();
    to_syslog = use;
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
static void write_line(const char *line, size_t bytes) {
    ssize_t written;
    do
        written = write(STDERR_FILENO, line, bytes);
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

__attribute__((format(printf, 3, 0))) static void print(enum log_level level, uint64_t held_back,
                                                        const char *format, va_list arguments) {
    int saved_errno = errno;
    char line[LINE_BYTES_MAX];
    size_t used = sizeof(line_prefix) - 1;
    memcpy(line, line_prefix, used);
    if (held_back)
        used +=
            (size_t)snprintf(line + used, LINE_BYTES_MAX - used,
                             "(%llu like the next were held back) ", (unsigned long long)held_back);
    used = append(line, used, format, arguments);
    line[used] = '\0';
    hide_control_characters(line);
    if (to_syslog) {
        syslog(syslog_priority(level), "%s", line + sizeof(line_prefix) - 1);
    } else {
        line[used] = '\n';
        write_line(line, used + 1);
    }
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
