// SPDX-License-Identifier: GPL-2.0
#include "base/numbers.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

bool nt_parse_number(const char *text, size_t length, uint64_t max, uint64_t *number)
{
	uint64_t n = 0;

	if (!length)
		return false;
	for (size_t i = 0; i < length; i++) {
		unsigned int digit = text[i] - '0';

		if (!isdigit((unsigned char)text[i]) || n > (max - digit) / 10)
			return false;
		n = 10 * n + digit;
	}
	*number = n;
	return n <= max;
}

int nt_parse_decimal(const char *text, size_t length, uint64_t unit_ns, uint64_t *ns)
{
	const char *dot = memchr(text, '.', length);
	size_t whole = dot ? (size_t)(dot - text) : length;
	uint64_t n, place = unit_ns;

	for (size_t i = 0; i < length; i++)
		if (!isdigit((unsigned char)text[i]) && text + i != dot)
			return -EINVAL;
	if (!whole || (dot && whole + 1 == length))
		return -EINVAL;
	if (!nt_parse_number(text, whole, UINT64_MAX / unit_ns - 1, &n))
		return -ERANGE;
	n *= unit_ns;
	for (size_t i = whole + 1; i < length; i++) {
		/*
		 * refuse digits finer than a ns, or than the unit divides: we would have to round
		 * them
		 */
		if ((!place || place % 10) && text[i] != '0')
			return -EINVAL;
		place /= 10;
		n += place * (text[i] - '0');
	}
	*ns = n;
	return 0;
}

int nt_parse_duration(const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {{"ns", 1},
		     {"us", 1000},
		     {"ms", 1000000},
		     {"s", 1000000000ULL},
		     {"m", 60000000000ULL},
		     {"h", 3600000000000ULL}};
	size_t length = strspn(text, "0123456789.");

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(text + length, units[i].name))
			return nt_parse_decimal(text, length, units[i].ns, ns);
	return -EINVAL;
}
