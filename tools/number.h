/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers on the command line. The whole text must be the number; on false nothing is changed. */
#ifndef CPL3_TOOLS_NUMBER_H
#define CPL3_TOOLS_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

bool number_parse(const char *text, uint64_t least, uint64_t most, uint64_t *ret_number);
/* Also with K, M, G or T (powers of 1024). */
bool number_parse_bytes(const char *text, uint64_t least, uint64_t most, uint64_t *ret_bytes);
/* A decimal fraction > 0. */
bool number_parse_positive(const char *text, double *ret_number);

#endif
