// SPDX-License-Identifier: GPL-2.0
// links: userspace/numbers.c
/* Numbers and durations against a reading of the same text by 128 bits and strspn(). */
#include <errno.h>
#include <string.h>
#include "fuzz.h"
#include "numbers.h"

#define DIGITS "0123456789"

/* Values beyond this are beyond 64 bits whatever follows. */
#define HUGE ((unsigned __int128)1 << 100)

static unsigned __int128 digits(const char *text, size_t length)
{
	unsigned __int128 value = 0;

	for (size_t i = 0; i < length && value < HUGE; i++)
		value = value * 10 + (unsigned int)(text[i] - '0');
	return value;
}

static void check_number(const char *text, size_t length, uint64_t max)
{
	uint64_t number = 0;
	bool taken = nt_parse_number(text, length, max, &number);
	bool is_one = length && strspn(text, DIGITS) == length;

	FUZZ_CHECK(taken == (is_one && digits(text, length) <= max));
	FUZZ_CHECK(!taken || number == digits(text, length));
}

/* Returns its result; whole nanoseconds are checked, a rest of less than one may go either way. */
static int check_decimal(const char *text, size_t length, uint64_t unit_ns)
{
	size_t whole = strspn(text, DIGITS), part = 0;
	uint64_t ns = 0;
	int result = nt_parse_decimal(text, length, unit_ns, &ns);

	FUZZ_CHECK(!result || result == -EINVAL || result == -ERANGE);
	if (result)
		return result;
	if (whole < length) {
		FUZZ_CHECK(text[whole] == '.');
		part = strspn(text + whole + 1, DIGITS);
		FUZZ_CHECK(part && whole + 1 + part == length);
	}
	FUZZ_CHECK(whole && digits(text, whole) * unit_ns <= ns);
	FUZZ_CHECK(ns <= digits(text, whole) * unit_ns + unit_ns);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t units[] = {1, 1000, 1000000, 1000000000, 3600000000000ULL};
	uint64_t max = UINT64_MAX, ns;
	char *text;
	int result;

	if (size < 2)
		return 0;
	max >>= data[0] % 64;
	text = strndup((const char *)data + 2, size - 2);
	if (!text)
		return 0;
	check_number(text, strlen(text), max);
	check_decimal(text, strlen(text), units[data[1] % 5]);
	result = nt_parse_duration(text, &ns);
	FUZZ_CHECK(!result || result == -EINVAL || result == -ERANGE);
	free(text);
	return 0;
}
