/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table. `sync`, `ro` and `rw` are not in it: they are options of ours. Time stamp options are
 * accepted without effect: atime is the blob's last access and is kept by the store. `remount` is
 * unknown on purpose: it would have to change a running mount.
 */
#include "fs/generic_option.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const struct known_option {
    const char *name; /* ends in '=' if a value follows, in '-' if anything may follow */
    enum generic_option use;
} known_options[] = {
    {"dev", GENERIC_OPTION_PASSED},          {"nodev", GENERIC_OPTION_PASSED},
    {"suid", GENERIC_OPTION_PASSED},         {"nosuid", GENERIC_OPTION_PASSED},
    {"exec", GENERIC_OPTION_PASSED},         {"noexec", GENERIC_OPTION_PASSED},
    {"defaults", GENERIC_OPTION_IGNORED},    {"auto", GENERIC_OPTION_IGNORED},
    {"noauto", GENERIC_OPTION_IGNORED},      {"user", GENERIC_OPTION_IGNORED},
    {"user=", GENERIC_OPTION_IGNORED},       {"nouser", GENERIC_OPTION_IGNORED},
    {"users", GENERIC_OPTION_IGNORED},       {"nousers", GENERIC_OPTION_IGNORED},
    {"owner", GENERIC_OPTION_IGNORED},       {"noowner", GENERIC_OPTION_IGNORED},
    {"group", GENERIC_OPTION_IGNORED},       {"nogroup", GENERIC_OPTION_IGNORED},
    {"_netdev", GENERIC_OPTION_IGNORED},     {"nofail", GENERIC_OPTION_IGNORED},
    {"comment=", GENERIC_OPTION_IGNORED},    {"x-", GENERIC_OPTION_IGNORED},
    {"X-", GENERIC_OPTION_IGNORED},          {"async", GENERIC_OPTION_IGNORED},
    {"atime", GENERIC_OPTION_IGNORED},       {"noatime", GENERIC_OPTION_IGNORED},
    {"diratime", GENERIC_OPTION_IGNORED},    {"nodiratime", GENERIC_OPTION_IGNORED},
    {"relatime", GENERIC_OPTION_IGNORED},    {"norelatime", GENERIC_OPTION_IGNORED},
    {"strictatime", GENERIC_OPTION_IGNORED}, {"nostrictatime", GENERIC_OPTION_IGNORED},
    {"lazytime", GENERIC_OPTION_IGNORED},    {"nolazytime", GENERIC_OPTION_IGNORED},
    {"iversion", GENERIC_OPTION_IGNORED},    {"noiversion", GENERIC_OPTION_IGNORED},
    {"silent", GENERIC_OPTION_IGNORED},      {"loud", GENERIC_OPTION_IGNORED},
};

static bool matches(const char *option, const char *name) {
    size_t bytes = strlen(name);
    if (name[bytes - 1] == '=' || name[bytes - 1] == '-')
        return strncmp(option, name, bytes) == 0;
    return strcmp(option, name) == 0;
}

enum generic_option generic_option_find(const char *option) {
    for (size_t i = 0; i < sizeof known_options / sizeof known_options[0]; i++) {
        if (matches(option, known_options[i].name))
            return known_options[i].use;
    }
    return GENERIC_OPTION_UNKNOWN;
}
