/* SPDX-License-Identifier: GPL-2.0 */
/* Numbers and durations as they are given on the command line: taken to the letter or refused. */
#ifndef NT_NUMBERS_H
#define NT_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The decimal number in text[length], without sign or anything else in it, of at most max. */
bool nt_parse_number(const char *text, size_t length, uint64_t max, uint64_t *number);

/*
 * digits[.digits] in text[length] times unit_ns, exact to the ns. Returns 0 with *ns set, -EINVAL
 * if it is no number, -ERANGE if it is beyond 64 bits of ns.
 */
int nt_parse_decimal(const char *text, size_t length, uint64_t unit_ns, uint64_t *ns);

/* A decimal with a unit (ns, us, ms, s, m, h), as 250us or 1.5s. Returns as nt_parse_decimal(). */
int nt_parse_duration(const char *text, uint64_t *ns);

#endif /* NT_NUMBERS_H */
