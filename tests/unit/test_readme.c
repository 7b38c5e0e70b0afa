/* SPDX-License-Identifier: Apache-2.0 */
/* README.md against the program: its options and its order rules are those of the code. */
#include "fs/options.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/cleanup.h"
#include "tests/support/files.h"

Test(readme, names_every_option) {
    AUTO_FREE char *text = file_read("README.md", NULL);
    cr_assert(text, "tests run at the top of the tree");
    size_t count;
    const struct option_entry *options = options_table(&count);
    for (size_t i = 0; i < count; i++) {
        char mention[64];
        snprintf(mention, sizeof mention, options[i].value ? "`%s=" : "`%s`", options[i].name);
        cr_expect(strstr(text, mention), "README.md does not name %s", options[i].name);
    }
}

Test(readme, lists_the_order_rules_that_writer_h_numbers) {
    AUTO_FREE char *text = file_read("README.md", NULL);
    AUTO_FREE char *header = file_read("core/writer.h", NULL);
    for (int rule = 1; rule <= 9; rule++) {
        char in_readme[32], in_header[32];
        snprintf(in_readme, sizeof in_readme, "\n- W%d ", rule);
        snprintf(in_header, sizeof in_header, "\n *  W%d ", rule);
        cr_expect_eq(strstr(text, in_readme) != NULL, rule <= 8);
        cr_expect_eq(strstr(header, in_header) != NULL, rule <= 8);
    }
}
