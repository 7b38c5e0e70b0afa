/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages for people. A message says what was being done, to what, why it failed and what happens
 * now. Nothing is logged per request; what can repeat goes through a struct log_limit.
 */
#ifndef CPL3_CORE_LOG_H
#define CPL3_CORE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_NOTICE, LOG_LEVEL_DEBUG };

/* At most one message a second, of level ERROR; what was held back is counted and told with the
 * next one. Zero-initialised. */
struct log_limit {
    _Atomic uint64_t next_ns;
    _Atomic uint64_t held_back;
};

/* Level: what is printed. Before other threads start. */
void log_set_level(enum log_level level);
/* To stderr until log_use_syslog(true). Any thread. */
void log_use_syslog(bool use);

__attribute__((format(printf, 1, 2))) void log_error(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_notice(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_debug(const char *format, ...);
__attribute__((format(printf, 2, 3))) void log_limited(struct log_limit *limit, const char *format,
                                                       ...);

/*
 * Before this process ends against its will. Printed as an error and, since nobody may be listening
 * to a process in the background, kept as well: the first such line goes to the file LOG_FATAL_NAME
 * of the directory that log_keep_fatal_in named, for whoever opens that directory next.
 */
#define LOG_FATAL_NAME "last-fatal"
__attribute__((format(printf, 1, 2))) void log_fatal(const char *format, ...);
/* The same, from a signal handler; not printed to syslog. */
void log_last_words(const char *words);
/* -1: nowhere. The descriptor stays the caller's, open until this is called again. */
void log_keep_fatal_in(int directory_fd);

#endif
