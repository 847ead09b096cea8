/* SPDX-License-Identifier: GPL-2.0 */
/* Formats numbers and names for people, and makes text from outside harmless. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NT_ESCAPED_LEN(n) (4 * (n) + 1)

struct nt_duration {
	char text[24];
};

/* Returns "312 us", "40.3 ms" or "2.10 s": three figures, at most 8 columns up to 999 s. */
struct nt_duration nt_duration(uint64_t ns);

/*
 * Copies text of at most length bytes (or up to its NUL) so that it can break no line and no
 * terminal: control characters and bytes that are not UTF-8 become \xNN.
 */
void nt_escape(const char *text, size_t length, char *out, size_t size);

/* Does the same to text that another nagletrace has escaped already: a backslash stays as it is. */
void nt_escape_again(const char *text, size_t length, char *out, size_t size);

#define NT_REPLACEMENT 0xfffd /* stands for bytes that are no character */

/*
 * Write text that a nagletrace has rendered, and replace what is not harmless in it. The first
 * takes text of length bytes, in which newlines stay too. The second takes one line of JSON, which
 * keeps its meaning; bytes that are not UTF-8 become U+FFFD.
 */
void nt_write_escaped(FILE *out, const char *text, size_t length);
void nt_write_json_escaped(FILE *out, const char *line, size_t length);

/*
 * Returns how many bytes the UTF-8 character at s has, of which left bytes are there, and sets *c
 * to its number; 0 if there is no valid character (RFC 3629).
 */
size_t nt_utf8_decode(const char *s, size_t left, uint32_t *c);
/*
 * Returns how many bytes of text[n] form whole characters, where a limit cut the text off behind
 * them.
 */
size_t nt_whole_characters(const char *text, size_t n);

/* Replaces each character that is not ASCII by one that is, for terminals without UTF-8. */
void nt_to_ascii(char *text);

/* Writes a character as UTF-8, without a NUL. Returns how many bytes it takes: 4 at most. */
size_t nt_utf8_encode(char *out, uint32_t c);

/* Returns how many columns of a terminal UTF-8 text takes, if each of its characters takes one. */
size_t nt_columns(const char *text);

/* Shortens UTF-8 text to at most columns characters, with an ellipsis in its middle. */
void nt_shorten(char *text, size_t columns);

/*
 * Writes "java[4242]", or the name alone where pid is 0 or less. Shortens a long name to fit into
 * columns (0: any number), never the number. out has room for 24 bytes besides the name.
 */
void nt_format_named(const char *name, int64_t pid, size_t columns, char *out, size_t size);

/* Writes text, and blanks up to that many columns. */
void nt_write_padded(FILE *out, const char *text, size_t columns);

/*
 * Returns how many bytes of text, broken at a blank, fit into columns: one word at least, which is
 * cut only if cut is set.
 */
size_t nt_line_length(const char *text, size_t columns, bool cut);

/* Converts a time of CLOCK_MONOTONIC to the time of day (ns since 1970). */
int64_t nt_time_of_day_ns(uint64_t mono_ns);

/* Writes the local time of day, from seconds since 1970 and us of that second, as "20:15:03.123".
 */
#define NT_CLOCK_LEN 16
void nt_format_clock(int64_t seconds, unsigned long us, char out[NT_CLOCK_LEN]);

/* Writes a time of day (ns since 1970) as "2026-11-28T02:45:42.123456Z". */
#define NT_UTC_LEN 28
void nt_format_utc(int64_t ns, char out[NT_UTC_LEN]);

/* Returns the ending of the noun that n counts: "" or "s". */
static inline const char *nt_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* Flushes the buffer of out. Returns 0, or -errno if this or an earlier write failed. */
int nt_flush(FILE *out);
