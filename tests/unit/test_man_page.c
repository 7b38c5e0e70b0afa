/* SPDX-License-Identifier: Apache-2.0 */
/* The manual page and --help against the table of options: nothing missing, nothing invented. */
#include "fs/options.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char page_path[] = "fs/mount.cpl3.8"; /* tests run at the top of the tree */

static char *read_page(void) {
    FILE *file = fopen(page_path, "r");
    cr_assert(file, "%s cannot be opened", page_path);
    char *text = calloc(1, 1 << 17);
    size_t bytes = fread(text, 1, (1 << 17) - 1, file);
    cr_assert(bytes > 0 && bytes < (1 << 17) - 1);
    fclose(file);
    return text;
}

/* What follows the heading, up to the next one; cut out of the page. */
static char *cut_section(char *page, const char *heading) {
    char line[64];
    snprintf(line, sizeof line, "\n.SH %s\n", heading);
    char *section = strstr(page, line);
    cr_assert(section, "no section %s", heading);
    section += strlen(line);
    char *end = strstr(section, "\n.SH ");
    if (end)
        *end = '\0';
    return section;
}

/* "\n.TP\n.BI size= bytes\n..." → the option's name, and its text up to the next tag. */
struct tagged {
    char name[32];
    char text[2048];
};

static const char *next_tagged(const char *section, struct tagged *ret_tagged) {
    const char *tag = strstr(section, ".TP\n");
    if (!tag)
        return NULL;
    tag = strchr(tag + 4, ' ');
    cr_assert(tag);
    size_t bytes = strspn(++tag, "abcdefghijklmnopqrstuvwxyz_");
    cr_assert(bytes > 0 && bytes < sizeof ret_tagged->name);
    memcpy(ret_tagged->name, tag, bytes);
    ret_tagged->name[bytes] = '\0';
    const char *end = strstr(tag, ".TP\n");
    const char *general = strstr(tag, ".PP\n"); /* the text after the last option */
    if (!end || (general && general < end))
        end = general;
    size_t room = sizeof ret_tagged->text - 1, text_bytes = end ? (size_t)(end - tag) : strlen(tag);
    cr_assert(text_bytes < room);
    memcpy(ret_tagged->text, tag, text_bytes);
    ret_tagged->text[text_bytes] = '\0';
    for (char *c = ret_tagged->text; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    return tag;
}

static const struct option_entry *find(const char *name) {
    size_t count;
    const struct option_entry *table = options_table(&count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    return NULL;
}

Test(man_page, documents_each_option_once_with_its_default) {
    char *page = read_page();
    const char *section = cut_section(page, "OPTIONS");
    struct tagged tagged;
    size_t documented = 0, count;
    options_table(&count);
    while ((section = next_tagged(section, &tagged))) {
        const struct option_entry *entry = find(tagged.name);
        cr_assert(entry, "the page documents %s, which is no option", tagged.name);
        documented++;
        bool takes_value = tagged.text[strlen(tagged.name)] == '=';
        cr_assert(takes_value == (entry->value != NULL), "%s", tagged.name);
        if (!entry->value)
            continue;
        char wanted[256];
        snprintf(wanted, sizeof wanted, "Default: %s", entry->default_text);
        cr_assert(strstr(tagged.text, wanted), "%s: no \"%s\" in \"%s\"", tagged.name, wanted,
                  tagged.text);
    }
    cr_assert(documented == count, "%zu of %zu options are documented", documented, count);
    free(page);
}

Test(man_page, names_the_environment_variable_and_each_exit_status) {
    char *page = read_page();
    cr_assert(strstr(page, "\n.B " COLD_START_VARIABLE "\n"));
    const char *statuses = cut_section(page, "EXIT STATUS");
    for (char code = '0'; code <= '5'; code++) {
        char wanted[] = ".TP\n.B ?\n";
        wanted[7] = code;
        cr_assert(strstr(statuses, wanted), "exit status %c", code);
    }
    free(page);
}

Test(man_page, help_shows_each_option_with_default_and_allowed_values) {
    char *text = NULL;
    size_t bytes, count;
    FILE *out = open_memstream(&text, &bytes);
    options_print_help(out);
    fclose(out);
    const struct option_entry *table = options_table(&count);
    for (size_t i = 0; i < count; i++) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "\n  %s%s", table[i].name, table[i].value ? "=" : " ");
        const char *line = strstr(text, wanted);
        cr_assert(line, "%s is not in --help", table[i].name);
        cr_assert(strstr(line, table[i].help));
        if (table[i].value)
            cr_assert(strstr(line, table[i].default_text) && strstr(line, table[i].allowed));
    }
    free(text);
}
