/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Parses the numbers and durations of the command line strictly: anything but an exact match is
 * refused.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses text[length] as a decimal number of at most max; refuses a sign or other characters. */
bool nt_parse_number(const char *text, size_t length, uint64_t max, uint64_t *number);

/*
 * Parses digits[.digits] in text[length] and multiplies it by unit_ns, exact to the ns. Returns 0
 * with *ns set, -EINVAL if it is no number, -ERANGE if it does not fit into 64 bits of ns.
 */
int nt_parse_decimal(const char *text, size_t length, uint64_t unit_ns, uint64_t *ns);

/*
 * Parses a decimal with a unit (ns, us, ms, s, m, h), such as 250us or 1.5s. Returns as
 * nt_parse_decimal() does.
 */
int nt_parse_duration(const char *text, uint64_t *ns);
