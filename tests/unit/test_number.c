/* SPDX-License-Identifier: Apache-2.0 */
/* Command line numbers: exactly a number in range, or refused with nothing changed. */
#include "tools/number.h"

#include <criterion/criterion.h>

Test(number, whole_numbers_within_range) {
    uint64_t number = 99;
    cr_expect(number_parse("0", 0, 10, &number) && number == 0);
    cr_expect(number_parse("10", 0, 10, &number) && number == 10);
    cr_expect(number_parse("18446744073709551615", 0, UINT64_MAX, &number));
    cr_expect_eq(number, UINT64_MAX);
}

Test(number, anything_else_is_refused_and_changes_nothing) {
    static const char *const bad[] = {"",  "-1", "+1",  " 1",  "1 ", "1x",
                                      "x", "11", "0x5", "1.0", "1K", "18446744073709551616"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint64_t number = 99;
        cr_expect_not(number_parse(bad[i], 0, 10, &number), "'%s'", bad[i]);
        cr_expect_eq(number, 99);
    }
}

Test(number, bytes_take_binary_units) {
    uint64_t bytes;
    cr_expect(number_parse_bytes("512", 0, UINT64_MAX, &bytes) && bytes == 512);
    cr_expect(number_parse_bytes("64k", 0, UINT64_MAX, &bytes) && bytes == 65536);
    cr_expect(number_parse_bytes("3M", 0, UINT64_MAX, &bytes) && bytes == 3 << 20);
    cr_expect(number_parse_bytes("2G", 0, UINT64_MAX, &bytes) && bytes == UINT64_C(2) << 30);
    cr_expect(number_parse_bytes("16777215T", 0, UINT64_MAX, &bytes));
    cr_expect_eq(bytes, UINT64_C(16777215) << 40);
    static const char *const bad[] = {"", "K", "1KB", "1 K", "1P", "16777216T", "-1K", "2K"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_expect_not(number_parse_bytes(bad[i], 0, i == 7 ? 2047 : UINT64_MAX, &bytes), "'%s'",
                      bad[i]);
}

Test(number, positive_fractions) {
    double number;
    cr_expect(number_parse_positive("0.5", &number) && number == 0.5);
    cr_expect(number_parse_positive("10", &number) && number == 10);
    static const char *const bad[] = {"", "0", "0.0", "-1", "nan", "inf", "1e999", "1x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_expect_not(number_parse_positive(bad[i], &number), "'%s'", bad[i]);
}
