/* SPDX-License-Identifier: GPL-2.0 */
/* Numbers, names and addresses as people read them; text from outside made harmless. */
#ifndef NT_TEXT_H
#define NT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "../bpf/nagletrace.h"

#define NT_ADDRESS_LEN    64 /* "[IPv6]:port" with its NUL */
#define NT_ESCAPED_LEN(n) (4 * (n) + 1)

/* "312 us", "40.3 ms", "2.10 s": three figures, at most 8 columns up to 999 s. */
void nt_format_duration(uint64_t ns, char *out, size_t size);

/*
 * Copies text of at most length bytes (or up to its NUL) so that it can break no line and no
 * terminal: control characters and bytes that are not UTF-8 become \xNN.
 */
void nt_escape(const char *text, size_t length, char *out, size_t size);

/* Likewise what another nagletrace has escaped: a backslash stays what it is. */
void nt_escape_again(const char *text, size_t length, char *out, size_t size);

/* For terminals without UTF-8: what is not ASCII becomes one character for each of its own. */
void nt_to_ascii(char *text);

/* "127.0.0.1:8000", "[::1]:8000" */
void nt_format_address(const struct nt_tuple *tuple, bool local, char *out, size_t size);

/* Shortens UTF-8 text to at most columns characters, with an ellipsis in its middle. */
void nt_shorten(char *text, size_t columns);

/* The time of day (ns since 1970) of a time of CLOCK_MONOTONIC. */
int64_t nt_time_of_day_ns(uint64_t mono_ns);

/* Writes out what is buffered. 0, or -errno if it or anything before could not be written. */
int nt_flush(FILE *out);

#endif /* NT_TEXT_H */
