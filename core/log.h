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

/* Level: what is printed. To stderr until log_use_syslog(true). Before other threads start. */
void log_set_level(enum log_level level);
void log_use_syslog(bool use);

__attribute__((format(printf, 1, 2))) void log_error(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_notice(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_debug(const char *format, ...);
__attribute__((format(printf, 2, 3))) void log_limited(struct log_limit *limit, const char *format,
                                                       ...);

#endif
