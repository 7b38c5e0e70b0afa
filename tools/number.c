/* SPDX-License-Identifier: Apache-2.0 */
/* Strict parsing: no sign, no blanks, no overflow, nothing left over. */
#include "tools/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool parse_digits(const char *text, uint64_t *ret_number, const char **ret_rest) {
    if (!isdigit((unsigned char)*text))
        return false;
    char *rest;
    errno = 0;
    unsigned long long number = strtoull(text, &rest, 10);
    if (errno)
        return false;
    *ret_number = number;
    *ret_rest = rest;
    return true;
}

bool number_parse(const char *text, uint64_t least, uint64_t most, uint64_t *ret_number) {
    uint64_t number;
    const char *rest;
    if (!parse_digits(text, &number, &rest) || *rest || number < least || number > most)
        return false;
    *ret_number = number;
    return true;
}

bool number_parse_bytes(const char *text, uint64_t least, uint64_t most, uint64_t *ret_bytes) {
    static const char units[] = "KMGT";
    uint64_t bytes;
    const char *rest;
    if (!parse_digits(text, &bytes, &rest))
        return false;
    if (*rest) {
        const char *unit = strchr(units, toupper((unsigned char)*rest));
        if (!unit || rest[1])
            return false;
        unsigned shift = 10 * (unsigned)(unit - units + 1);
        if (bytes > UINT64_MAX >> shift)
            return false;
        bytes <<= shift;
    }
    if (bytes < least || bytes > most)
        return false;
    *ret_bytes = bytes;
    return true;
}

bool number_parse_positive(const char *text, double *ret_number) {
    if (!isdigit((unsigned char)*text))
        return false;
    char *rest;
    double number = strtod(text, &rest);
    if (*rest || !isfinite(number) || number <= 0)
        return false;
    *ret_number = number;
    return true;
}
