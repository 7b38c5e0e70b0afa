/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of mount options to values. Each takes the whole text or nothing (no leading blanks, signs
 * or trailing rubbish) and does not depend on the locale. Ranges are the caller's, except where a
 * range is part of the meaning.
 */
#ifndef CPL3_FS_OPTION_VALUE_H
#define CPL3_FS_OPTION_VALUE_H

#include <stdbool.h>
#include <stdint.h>

/* Decimal digits. */
bool option_value_number(const char *text, uint64_t *ret_number);
/* Bytes: decimal digits and perhaps one of K, M, G, T (powers of 1024; small letters too). */
bool option_value_size(const char *text, uint64_t *ret_bytes);
/* Octal digits, 0000 to 0777. */
bool option_value_umask(const char *text, uint32_t *ret_umask);
/* A decimal fraction strictly between 0 and 1, such as 0.85. */
bool option_value_share(const char *text, double *ret_share);
/* Seconds, decimal, perhaps with a fraction of up to 9 digits, such as 0.25. */
bool option_value_seconds(const char *text, uint64_t *ret_ns);
/* N or A-B with A <= B < RANKS_MAX. */
bool option_value_ranks(const char *text, uint16_t *ret_first, uint16_t *ret_last);
/* The place of the text in a list that NULL ends. */
bool option_value_choice(const char *text, const char *const choices[], unsigned *ret_choice);

#endif
