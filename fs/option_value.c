/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of single values. strtoul and strtod accept too much (signs, blanks, hex, nan). */
#include "fs/option_value.h"

#include <string.h>

#include "core/format.h"

enum { SHARE_DIGITS_MAX = 15 }; /* both parts of the quotient are exact in a double */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Digits from *text on, which is moved behind them. False: none, or too large. */
static bool take_digits(const char **text, unsigned base, uint64_t *ret_number) {
    uint64_t number = 0;
    const char *start = *text;
    for (; is_digit(**text) && (unsigned)(**text - '0') < base; (*text)++) {
        if (__builtin_mul_overflow(number, base, &number) ||
            __builtin_add_overflow(number, (uint64_t)(**text - '0'), &number))
            return false;
    }
    *ret_number = number;
    return *text != start;
}

bool option_value_number(const char *text, uint64_t *ret_number) {
    uint64_t number;
    if (!take_digits(&text, 10, &number) || *text != '\0')
        return false;
    *ret_number = number;
    return true;
}

bool option_value_size(const char *text, uint64_t *ret_bytes) {
    static const char letters[] = "KMGTkmgt";
    uint64_t bytes;
    if (!take_digits(&text, 10, &bytes))
        return false;
    if (*text != '\0') {
        const char *letter = strchr(letters, *text);
        if (!letter || text[1] != '\0')
            return false;
        unsigned power = (unsigned)(letter - letters) % 4 + 1;
        if (__builtin_mul_overflow(bytes, 1ull << (10 * power), &bytes))
            return false;
    }
    *ret_bytes = bytes;
    return true;
}

bool option_value_umask(const char *text, uint32_t *ret_umask) {
    uint64_t bits;
    if (!take_digits(&text, 8, &bits) || *text != '\0' || bits > 0777)
        return false;
    *ret_umask = (uint32_t)bits;
    return true;
}

bool option_value_share(const char *text, double *ret_share) {
    uint64_t parts;
    if (*text == '0')
        text++;
    if (*text++ != '.')
        return false;
    size_t digits = strlen(text);
    if (digits > SHARE_DIGITS_MAX || !take_digits(&text, 10, &parts) || *text != '\0' || parts == 0)
        return false;
    double whole = 1;
    while (digits-- > 0)
        whole *= 10;
    *ret_share = (double)parts / whole;
    return true;
}

bool option_value_seconds(const char *text, uint64_t *ret_ns) {
    const uint64_t second_ns = 1000000000;
    uint64_t seconds, ns, fraction_ns = 0;
    if (!take_digits(&text, 10, &seconds) || __builtin_mul_overflow(seconds, second_ns, &ns))
        return false;
    if (*text == '.') {
        const char *digits = ++text;
        if (!take_digits(&text, 10, &fraction_ns) || text - digits > 9)
            return false;
        for (ptrdiff_t count = text - digits; count < 9; count++)
            fraction_ns *= 10;
    }
    if (*text != '\0' || __builtin_add_overflow(ns, fraction_ns, &ns))
        return false;
    *ret_ns = ns;
    return true;
}

bool option_value_ranks(const char *text, uint16_t *ret_first, uint16_t *ret_last) {
    uint64_t first, last;
    if (!take_digits(&text, 10, &first))
        return false;
    last = first;
    if (*text == '-') {
        text++;
        if (!take_digits(&text, 10, &last))
            return false;
    }
    if (*text != '\0' || first > last || last >= RANKS_MAX)
        return false;
    *ret_first = (uint16_t)first;
    *ret_last = (uint16_t)last;
    return true;
}

bool option_value_choice(const char *text, const char *const choices[], unsigned *ret_choice) {
    for (unsigned i = 0; choices[i]; i++) {
        if (strcmp(text, choices[i]) == 0) {
            *ret_choice = i;
            return true;
        }
    }
    return false;
}
