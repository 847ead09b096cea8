/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Checks whether a line from outside is JSON that we can use, in place and without allocating.
 * json-c cannot check this for us: it accepts raw control characters, NaN and other kinds of
 * quotes, and builds a tree that is up to 270 times as large as the line.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The deepest record has five levels (a snapshot, its connections, one of them, its stack, a
 * frame); a later version of the protocol may add some. */
#define NT_JSON_DEPTH 8

enum nt_json_type {
	NT_JSON_ABSENT,
	NT_JSON_NULL,
	NT_JSON_BOOL,
	NT_JSON_NUMBER,
	NT_JSON_STRING,
	NT_JSON_LIST,
	NT_JSON_OBJECT,
};

/* A value in the line; for a string, the bytes between its quotes. */
struct nt_json_value {
	enum nt_json_type type;
	char *at;
	size_t length;
};

/*
 * A key of the outermost object that the caller looks for. If a key comes twice, the last one
 * counts, as with json-c.
 */
struct nt_json_member {
	const char *key;
	struct nt_json_value value;
};

/* Lists under this key, at any level, keep their first elements: spaces replace the others. */
struct nt_json_trim {
	const char *key;
	size_t keep;
};

struct nt_json_scan {
	struct nt_json_member *members; /* the keys to look for */
	size_t n_members;
	const struct nt_json_trim *trims;
	size_t n_trims;
	size_t tree_bytes; /* out: memory that json-c's tree of the line takes, at least */
};

/*
 * Is the line, of length bytes and a NUL behind them, one object by RFC 8259, at most NT_JSON_DEPTH
 * levels deep, in valid UTF-8, with numbers that fit into a double? Fills in the members; those
 * that are missing become NT_JSON_ABSENT.
 */
bool nt_json_scan(struct nt_json_scan *scan, char *line, size_t length);

/*
 * Decodes a string in place and puts a NUL behind it. NUL may be among its characters; half of a
 * surrogate pair becomes U+FFFD. Returns the string's length.
 */
size_t nt_json_unescape(struct nt_json_value *string);

/* Is the value a string with this text, written without an escape? */
bool nt_json_is(const struct nt_json_value *value, const char *text);

/* Reads a whole number, 0 or more; returns false for anything else. */
bool nt_json_whole(const struct nt_json_value *value, uint64_t *number);
