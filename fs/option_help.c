/* SPDX-License-Identifier: Apache-2.0 */
/* What --help and --version print, from the table of options. */
#include "fs/options.h"

#include <string.h>

#include "fs/compat.h"

enum { NAME_COLUMN = 36 };

static const char usage[] =
    "Usage: mount.cpl3 STORE MOUNTPOINT [-f] [-v] [-o OPTION[,OPTION...]]...\n"
    "Mounts the cache of pages in the directory STORE on the directory MOUNTPOINT.\n"
    "\n"
    "  -f, --foreground   stays in the foreground, messages to stderr\n"
    "  -v, --verbose      says more\n"
    "      --help, --version\n"
    "\n"
    "Options (-o):\n";

static const char after_options[] =
    "\n"
    "BYTES take K, M, G or T (powers of 1024). Without cold_start=, the environment "
    "variable\n" COLD_START_VARIABLE
    " decides. The usual options of mount(8) and fstab are accepted.\n"
    "Unmount with umount MOUNTPOINT. The manual page is mount.cpl3(8).\n";

static void print_entry(FILE *out, const struct option_entry *entry) {
    int used = fprintf(out, "  %s%s%s", entry->name, entry->value ? "=" : "",
                       entry->value ? entry->value : "");
    fprintf(out, "%*s%s\n", used < NAME_COLUMN ? NAME_COLUMN - used : 1, "", entry->help);
    if (!entry->value)
        return;
    fprintf(out, "%*sallowed: %s\n", NAME_COLUMN, "", entry->allowed);
    fprintf(out, "%*sdefault: %s\n", NAME_COLUMN, "", entry->default_text);
}

void options_print_help(FILE *out) {
    size_t count;
    const struct option_entry *table = options_table(&count);
    fputs(usage, out);
    for (size_t i = 0; i < count; i++)
        print_entry(out, &table[i]);
    fputs(after_options, out);
}

void options_print_version(FILE *out) {
    fprintf(out, "cpl3 %s (libfuse %s, FUSE protocol 7)\n", CPL3_VERSION, fuse_pkgversion());
}
