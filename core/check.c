/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens when one of our own rules does not hold: one line that says where, what and on which
 * kind of thread, then abort(), so that a core file shows the rest. A crash costs a cache at most
 * what was not committed (rule W5); running on could cost wrong bytes.
 */
#include "core/check.h"

#include "core/log.h"

#include <stdlib.h>

_Thread_local enum thread_role thread_role = THREAD_ANY;

static const char *role_name(enum thread_role role) {
    switch (role) {
    case THREAD_ANY:
        return "any";
    case THREAD_WRITER:
        return "writer";
    case THREAD_LOADER:
        return "loader";
    case THREAD_NOTIFIER:
        return "notifier";
    }
    return "unknown";
}

void check_failed(const char *file, int line, const char *condition) {
    log_fatal("%s:%d: check failed on thread role %s: %s; aborting", file, line,
              role_name(thread_role), condition);
    abort();
}
