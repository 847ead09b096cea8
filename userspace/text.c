// SPDX-License-Identifier: GPL-2.0
#include "text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void nt_format_duration(uint64_t ns, char *out, size_t size)
{
	static const struct {
		double unit_ns;
		const char *name;
	} units[] = {{1e3, "us"}, {1e6, "ms"}, {1e9, "s"}};
	size_t u = ns < 999500 ? 0 : ns < 999500000 ? 1 : 2;
	double value = ns / units[u].unit_ns;
	int decimals = u == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;

	snprintf(out, size, "%.*f %s", decimals, value, units[u].name);
}

/* Unseen, they set the direction of what follows: a name could make a line read as another. */
static bool turns_direction(uint32_t c)
{
	return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069);
}

/* Bytes of the UTF-8 character at s, 0 if there is no valid printable one (RFC 3629, without C1
 * controls). */
static size_t utf8_length(const unsigned char *s, size_t left)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	uint32_t c;

	if (n == 1)
		return s[0] >= 0x20 && s[0] != 0x7f;
	if (n > left || s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	c = s[0] & (0xff >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < smallest[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) || c < 0xa0)
		return 0;
	return c == 0x2028 || c == 0x2029 || c == 0xfeff || turns_direction(c) ? 0 : n;
}

static void escape(const char *text, size_t length, bool again, char *out, size_t size)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t at = 0;

	length = strnlen(text, length);
	for (size_t i = 0; i < length;) {
		size_t n = utf8_length(s + i, length - i);

		if (s[i] == '\\' && !again)
			n = 0;
		if (at + (n ? n : 4) >= size)
			break;
		if (n) {
			memcpy(out + at, s + i, n);
			at += n;
			i += n;
		} else {
			at += snprintf(out + at, size - at, "\\x%02x", s[i]);
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

static bool continues(char c)
{
	return (c & 0xc0) == 0x80;
}

/* What stands for the characters that our own output has, by how much ink they take. */
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

void nt_format_address(const struct nt_tuple *tuple, bool local, char *out, size_t size)
{
	const void *address = local ? tuple->local_addr : tuple->remote_addr;
	unsigned int port = local ? tuple->local_port : tuple->remote_port;
	char host[INET6_ADDRSTRLEN] = "?";

	inet_ntop(tuple->family, address, host, sizeof(host));
	snprintf(out, size, tuple->family == AF_INET6 ? "[%s]:%u" : "%s:%u", host, port);
}

static size_t columns_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += !continues(*text);
	return n;
}

/* The place where the n-th character begins. */
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
	size_t all = columns_of(text), head = columns / 2, tail;
	char *from, *to;

	if (all <= columns || columns < 2)
		return;
	tail = columns - head - 1;
	to = character(text, head);
	from = character(text, all - tail);
	/* the ellipsis takes three bytes and stands for at least two characters, perhaps of one
	 * byte */
	if (from - to < (long)strlen(ellipsis)) {
		*to++ = '~';
	} else {
		memcpy(to, ellipsis, strlen(ellipsis));
		to += strlen(ellipsis);
	}
	memmove(to, from, strlen(from) + 1);
}

int64_t nt_time_of_day_ns(uint64_t mono_ns)
{
	struct timespec mono, real;

	clock_gettime(CLOCK_MONOTONIC, &mono);
	clock_gettime(CLOCK_REALTIME, &real);
	return (real.tv_sec - mono.tv_sec) * 1000000000LL + real.tv_nsec - mono.tv_nsec + mono_ns;
}

int nt_flush(FILE *out)
{
	errno = 0;
	if (!fflush(out) && !ferror(out))
		return 0;
	return errno ? -errno : -EIO;
}
