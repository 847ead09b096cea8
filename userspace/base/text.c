// SPDX-License-Identifier: GPL-2.0
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

/* Two clocks that are read within this time are read at once. */
#define CLOCKS_APART_NS 5000

struct nt_duration nt_duration(uint64_t ns)
{
	static const struct {
		double unit_ns;
		const char *name;
	} units[] = {{1e3, "us"}, {1e6, "ms"}, {1e9, "s"}};
	size_t u = ns < 999500 ? 0 : ns < 999500000 ? 1 : 2;
	double value = ns / units[u].unit_ns;
	int decimals = u == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
	struct nt_duration duration;

	snprintf(duration.text, sizeof(duration.text), "%.*f %s", decimals, value, units[u].name);
	return duration;
}

/*
 * Finds the invisible characters that set the direction of the text behind them: with one in its
 * name, a process could make a line read as another.
 */
static bool turns_direction(uint32_t c)
{
	return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069);
}

/* Returns how many bytes a UTF-8 character has that begins with c. */
static size_t utf8_size(unsigned char c)
{
	return c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
}

size_t nt_utf8_decode(const char *text, size_t left, uint32_t *c)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *s = (const unsigned char *)text;
	size_t n = utf8_size(s[0]);

	*c = s[0];
	if (n == 1)
		return left > 0;
	if (n > left || s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	*c = s[0] & (0xff >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*c = *c << 6 | (s[i] & 0x3f);
	}
	return *c < smallest[n] || *c > 0x10ffff || (*c >= 0xd800 && *c <= 0xdfff) ? 0 : n;
}

/*
 * Finds the C0 and C1 controls, the separators of lines, and the characters that turn the
 * direction.
 */
static bool controls(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff ||
	       turns_direction(c);
}

/* Returns how many bytes the character at s has; 0 if it is invalid or not harmless. */
static size_t harmless_length(const char *s, size_t left)
{
	uint32_t c;
	size_t n = nt_utf8_decode(s, left, &c);

	return n && !controls(c) ? n : 0;
}

static void escape(const char *text, size_t length, bool again, char *out, size_t size)
{
	size_t at = 0;

	length = strnlen(text, length);
	for (size_t i = 0; i < length;) {
		size_t n = harmless_length(text + i, length - i);

		if (text[i] == '\\' && !again)
			n = 0;
		if (at + (n ? n : 4) >= size)
			break;
		if (n) {
			memcpy(out + at, text + i, n);
			at += n;
			i += n;
		} else {
			at += snprintf(out + at, size - at, "\\x%02x", (unsigned char)text[i]);
			i++;
		}
	}
	out[at] = '\0';
}

void nt_escape(const char *text, size_t length, char *out, size_t size)
{
	escape(text, length, false, out, size);
}

void nt_escape_again(const char *text, size_t length, char *out, size_t size)
{
	escape(text, length, true, out, size);
}

/* Counts the bytes at text that can be written unchanged; newlines can, if newlines_stay. */
static size_t plain_length(const char *text, size_t length, bool newlines_stay)
{
	size_t at = 0;

	while (at < length) {
		size_t n = harmless_length(text + at, length - at);

		if (!n && newlines_stay)
			n = text[at] == '\n';
		if (!n)
			break;
		at += n;
	}
	return at;
}

void nt_write_escaped(FILE *out, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		size_t n = plain_length(text + i, length - i, true);

		fwrite(text + i, 1, n, out);
		i += n;
		if (i < length)
			fprintf(out, "\\x%02x", (unsigned char)text[i]);
	}
}

void nt_write_json_escaped(FILE *out, const char *line, size_t length)
{
	for (size_t i = 0; i < length;) {
		size_t n = plain_length(line + i, length - i, false);
		uint32_t c;

		fwrite(line + i, 1, n, out);
		i += n;
		if (i == length)
			return;
		/*
		 * below 0x20 it is white space; the others occur only in strings, and all of them
		 * are in the basic plane
		 */
		n = nt_utf8_decode(line + i, length - i, &c);
		if (n && c < 0x20)
			fputc(' ', out);
		else
			fprintf(out, "\\u%04x", n ? c : NT_REPLACEMENT);
		i += n ? n : 1;
	}
}

static bool continues(char c)
{
	return (c & 0xc0) == 0x80;
}

size_t nt_whole_characters(const char *text, size_t n)
{
	size_t first = n;

	while (first && n - first < 4 && continues(text[first - 1]))
		first--;
	if (!first--)
		return n;
	/* bytes that are no UTF-8 stay as they are */
	return (unsigned char)text[first] >= 0xc2 && n - first < utf8_size(text[first]) ? first : n;
}

/*
 * Chooses an ASCII character that takes about as much ink, for each character that our own output
 * uses.
 */
static char ascii_of(const char *text)
{
	static const struct {
		const char *character;
		char ascii;
	} known[] = {{"→", '>'}, {"←", '<'}, {"▶", '>'}, {"◀", '<'}, {"…", '~'},
		     {"─", '-'}, {"│", '|'}, {"┃", '#'}, {"┆", ':'}, {"▁", '_'},
		     {"▂", '.'}, {"▃", ':'}, {"▄", '-'}, {"▅", '='}, {"▆", '+'},
		     {"▇", '*'}, {"█", '#'}, {"▼", 'v'}, {"▲", '^'}, {"·", '.'}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(text, known[i].character, strlen(known[i].character)))
			return known[i].ascii;
	return '?';
}

void nt_to_ascii(char *text)
{
	char *out = text;

	for (; *text; text++)
		if (!continues(*text))
			*out++ = *text & 0x80 ? ascii_of(text) : *text;
	*out = '\0';
}

size_t nt_utf8_encode(char *out, uint32_t c)
{
	static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	for (size_t i = n; --i;) {
		out[i] = 0x80 | (c & 0x3f);
		c >>= 6;
	}
	out[0] = first[n] | c;
	return n;
}

size_t nt_columns(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += !continues(*text);
	return n;
}

/* Returns the place where the n-th character begins. */
static char *character(char *text, size_t n)
{
	for (; *text; text++) {
		if (continues(*text))
			continue;
		if (!n--)
			break;
	}
	return text;
}

void nt_shorten(char *text, size_t columns)
{
	static const char ellipsis[] = "…";
	size_t all = nt_columns(text), head = columns / 2, tail;
	char *from, *to;

	if (all <= columns || columns < 2)
		return;
	tail = columns - head - 1;
	to = character(text, head);
	from = character(text, all - tail);
	/*
	 * the ellipsis takes three bytes; the two or more characters that it replaces may take only
	 * two
	 */
	if (from - to < (long)strlen(ellipsis)) {
		*to++ = '~';
	} else {
		memcpy(to, ellipsis, strlen(ellipsis));
		to += strlen(ellipsis);
	}
	memmove(to, from, strlen(from) + 1);
}

void nt_format_named(const char *name, int64_t pid, size_t columns, char *out, size_t size)
{
	char number[24] = "";
	size_t n;

	if (pid > 0)
		snprintf(number, sizeof(number), "[%" PRId64 "]", pid);
	n = strlen(number);
	snprintf(out, size - n, "%s", name);
	if (columns > n + 2)
		nt_shorten(out, columns - n);
	strcat(out, number);
}

void nt_write_padded(FILE *out, const char *text, size_t columns)
{
	size_t n = nt_columns(text);

	fprintf(out, "%s%*s", text, n < columns ? (int)(columns - n) : 0, "");
}

size_t nt_line_length(const char *text, size_t columns, bool cut)
{
	size_t fits = 0, at = 0, column = 0;

	for (; text[at] && (column < columns || continues(text[at]) || text[at] == ' '); at++) {
		if (text[at] == ' ')
			fits = at;
		column += !continues(text[at]);
	}
	if (!text[at])
		return at;
	if (fits)
		return fits;
	return cut ? at : strcspn(text, " ");
}

int64_t nt_time_of_day_ns(uint64_t mono_ns)
{
	struct timespec real;
	uint64_t before_ns, apart_ns, nearest_ns = UINT64_MAX;
	int64_t offset_ns = 0;

	/* between two readings another program may run */
	for (int i = 0; i < 5 && nearest_ns > CLOCKS_APART_NS; i++) {
		before_ns = nt_now_ns();
		clock_gettime(CLOCK_REALTIME, &real);
		apart_ns = nt_now_ns() - before_ns;
		if (apart_ns >= nearest_ns)
			continue;
		nearest_ns = apart_ns;
		offset_ns = real.tv_sec * (int64_t)NT_SECOND_NS + real.tv_nsec -
			    (int64_t)(before_ns + apart_ns / 2);
	}
	return (int64_t)((uint64_t)offset_ns + mono_ns);
}

void nt_format_clock(int64_t seconds, unsigned long us, char out[NT_CLOCK_LEN])
{
	time_t time = seconds;
	char hms[12];
	struct tm tm;

	localtime_r(&time, &tm);
	strftime(hms, sizeof(hms), "%H:%M:%S", &tm);
	snprintf(out, NT_CLOCK_LEN, "%s.%03lu", hms, us / 1000 % 1000);
}

void nt_format_utc(int64_t ns, char out[NT_UTC_LEN])
{
	time_t seconds = ns / 1000000000;
	struct tm tm;
	size_t n;

	gmtime_r(&seconds, &tm);
	n = strftime(out, NT_UTC_LEN, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, NT_UTC_LEN - n, ".%06uZ", (unsigned int)(ns % 1000000000 / 1000));
}

int nt_flush(FILE *out)
{
	errno = 0;
	if (!fflush(out) && !ferror(out))
		return 0;
	return errno ? -errno : -EIO;
}
