/* SPDX-License-Identifier: Apache-2.0 */
/* README.md against the program: its options and its order rules are those of the code. */
#include "fs/options.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"

static char *read_text(const char *path) {
    FILE *file = fopen(path, "r"); /* tests run at the top of the tree */
    cr_assert(file, "%s cannot be opened", path);
    char *text = calloc(1, 1 << 17);
    size_t bytes = fread(text, 1, (1 << 17) - 1, file);
    cr_assert(bytes > 0 && bytes < (1 << 17) - 1);
    fclose(file);
    return text;
}

Test(readme, names_every_option) {
    AUTO_FREE char *text = read_text("README.md");
    size_t count;
    const struct option_entry *options = options_table(&count);
    for (size_t i = 0; i < count; i++) {
        char mention[64];
        snprintf(mention, sizeof mention, options[i].value ? "`%s=" : "`%s`", options[i].name);
        cr_expect(strstr(text, mention), "README.md does not name %s", options[i].name);
    }
}

Test(readme, lists_the_order_rules_that_writer_h_numbers) {
    AUTO_FREE char *text = read_text("README.md");
    AUTO_FREE char *header = read_text("core/writer.h");
    for (int rule = 1; rule <= 9; rule++) {
        char in_readme[32], in_header[32];
        snprintf(in_readme, sizeof in_readme, "\n- W%d ", rule);
        snprintf(in_header, sizeof in_header, "\n *  W%d ", rule);
        cr_expect_eq(strstr(text, in_readme) != NULL, rule <= 8);
        cr_expect_eq(strstr(header, in_header) != NULL, rule <= 8);
    }
}
