// SPDX-License-Identifier: GPL-2.0
#include "protocol/json_scan.h"

#include <string.h>

#include "base/numbers.h"
#include "base/text.h"

/*
 * The limits of a number's parts, in digits: 2^64 has 20. An exponent of two digits cannot leave
 * the range of a double, which reaches 1e308, and none of our numbers has an exponent.
 */
#define MOST_DIGITS   20
#define MOST_EXPONENT 2

/*
 * Bytes that json-c 0.16 allocates on a 64-bit machine, as malloc() counts them: for a value (64)
 * and its place in a growing list (24), besides that for a list (80), for an object with its table
 * of 16 keys (720), and for a key (128). We must know before json-c parses: 16 MiB of `[{},{},…]`
 * become 4 GiB, and json-c has no bound. tests/unit/test_json_scan.c measures what json-c takes,
 * and fails where these are less.
 */
#define VALUE_BYTES  90
#define LIST_BYTES   80
#define OBJECT_BYTES 720
#define KEY_BYTES    130

struct scanner {
	struct nt_json_scan *scan;
	char *at, *end; /* the rest of the line; it ends with a NUL, which no rule accepts */
	unsigned int depth;
};

static bool scan_value(struct scanner *s, const struct nt_json_value *key,
		       struct nt_json_value *value);

static void skip_space(struct scanner *s)
{
	while (*s->at == ' ' || *s->at == '\t' || *s->at == '\r')
		s->at++;
}

static bool take(struct scanner *s, char c)
{
	skip_space(s);
	if (*s->at != c)
		return false;
	s->at++;
	return true;
}

/* ---- strings ---- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads four hexadecimal digits; -1: there are none. */
static int32_t hex(const char *s)
{
	int32_t number = 0;

	for (size_t i = 0; i < 4; i++) {
		int digit = hex_digit(s[i]);

		if (digit < 0)
			return -1;
		number = number << 4 | digit;
	}
	return number;
}

static bool scan_escape(struct scanner *s)
{
	if (*s->at == 'u') {
		if (hex(s->at + 1) < 0)
			return false;
		s->at += 5;
		return true;
	}
	return *s->at && strchr("\"\\/bfnrt", *s->at++);
}

static bool scan_string(struct scanner *s, struct nt_json_value *string)
{
	if (!take(s, '"'))
		return false;
	string->type = NT_JSON_STRING;
	string->at = s->at;
	while (*s->at != '"') {
		uint32_t c;
		size_t n = nt_utf8_decode(s->at, s->end - s->at, &c);

		if (!n || c < 0x20)
			return false;
		s->at += n;
		if (c == '\\' && !scan_escape(s))
			return false;
	}
	string->length = s->at++ - string->at;
	return true;
}

/* ---- numbers and words ---- */

static size_t scan_digits(struct scanner *s)
{
	const char *from = s->at;

	while (*s->at >= '0' && *s->at <= '9')
		s->at++;
	return s->at - from;
}

static bool scan_exponent(struct scanner *s)
{
	size_t n;

	if (*s->at != 'e' && *s->at != 'E')
		return true;
	s->at++;
	if (*s->at == '+' || *s->at == '-')
		s->at++;
	n = scan_digits(s);
	return n && n <= MOST_EXPONENT;
}

static bool scan_number(struct scanner *s, struct nt_json_value *number)
{
	const char *first;
	size_t n;

	number->type = NT_JSON_NUMBER;
	number->at = s->at;
	s->at += *s->at == '-';
	first = s->at;
	n = scan_digits(s);
	if (!n || n > MOST_DIGITS || (*first == '0' && n > 1))
		return false;
	if (*s->at == '.') {
		s->at++;
		n = scan_digits(s);
		if (!n || n > MOST_DIGITS)
			return false;
	}
	if (!scan_exponent(s))
		return false;
	number->length = s->at - number->at;
	return true;
}

static bool scan_word(struct scanner *s, struct nt_json_value *value)
{
	static const struct {
		const char *word;
		enum nt_json_type type;
	} words[] = {{"null", NT_JSON_NULL}, {"true", NT_JSON_BOOL}, {"false", NT_JSON_BOOL}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t length = strlen(words[i].word);

		if (strncmp(s->at, words[i].word, length))
			continue;
		*value = (struct nt_json_value){words[i].type, s->at, length};
		s->at += length;
		return true;
	}
	return scan_number(s, value);
}

/* ---- lists and objects ---- */

static bool says(const struct nt_json_value *string, const char *text)
{
	return string->length == strlen(text) && !memcmp(string->at, text, string->length);
}

/* Returns how many elements we keep of the list under that key. */
static size_t kept_of(const struct scanner *s, const struct nt_json_value *key)
{
	for (size_t i = 0; key && i < s->scan->n_trims; i++)
		if (says(key, s->scan->trims[i].key))
			return s->scan->trims[i].keep;
	return SIZE_MAX;
}

static bool scan_list(struct scanner *s, const struct nt_json_value *key)
{
	size_t keep = kept_of(s, key), tree_bytes;
	struct nt_json_value element;
	char *from = s->at; /* behind the last element that we keep */

	tree_bytes = s->scan->tree_bytes += LIST_BYTES;
	if (take(s, ']'))
		return true;
	for (size_t n = 1;; n++) {
		bool more;

		if (!scan_value(s, NULL, &element))
			return false;
		if (n <= keep) {
			from = s->at;
			tree_bytes = s->scan->tree_bytes;
		}
		more = take(s, ',');
		if (!more && *s->at != ']')
			return false;
		if (!more)
			break;
	}
	memset(from, ' ', s->at - from);
	s->scan->tree_bytes = tree_bytes;
	s->at++;
	return true;
}

static void keep_member(struct nt_json_scan *scan, const struct nt_json_value *key,
			const struct nt_json_value *value)
{
	for (size_t i = 0; i < scan->n_members; i++)
		if (says(key, scan->members[i].key))
			scan->members[i].value = *value;
}

static bool scan_object(struct scanner *s)
{
	struct nt_json_value key, value;

	s->scan->tree_bytes += OBJECT_BYTES;
	if (take(s, '}'))
		return true;
	do {
		if (!scan_string(s, &key) || !take(s, ':') || !scan_value(s, &key, &value))
			return false;
		s->scan->tree_bytes += KEY_BYTES + key.length;
		if (s->depth == 1)
			keep_member(s->scan, &key, &value);
	} while (take(s, ','));
	return take(s, '}');
}

static bool scan_nested(struct scanner *s, const struct nt_json_value *key,
			struct nt_json_value *value)
{
	bool good;

	value->type = *s->at == '{' ? NT_JSON_OBJECT : NT_JSON_LIST;
	value->at = s->at++;
	if (s->depth == NT_JSON_DEPTH)
		return false;
	s->depth++;
	good = value->type == NT_JSON_OBJECT ? scan_object(s) : scan_list(s, key);
	s->depth--;
	value->length = s->at - value->at;
	return good;
}

static bool scan_value(struct scanner *s, const struct nt_json_value *key,
		       struct nt_json_value *value)
{
	bool good;

	skip_space(s);
	if (*s->at == '{' || *s->at == '[')
		good = scan_nested(s, key, value);
	else if (*s->at == '"')
		good = scan_string(s, value);
	else
		good = scan_word(s, value);
	if (value->type != NT_JSON_OBJECT && value->type != NT_JSON_LIST)
		s->scan->tree_bytes += value->length;
	s->scan->tree_bytes += VALUE_BYTES;
	return good;
}

bool nt_json_scan(struct nt_json_scan *scan, char *line, size_t length)
{
	struct scanner s = {.scan = scan, .at = line, .end = line + length};
	struct nt_json_value all;

	scan->tree_bytes = 0;
	for (size_t i = 0; i < scan->n_members; i++)
		scan->members[i].value = (struct nt_json_value){0};
	skip_space(&s);
	if (*s.at != '{' || !scan_value(&s, NULL, &all))
		return false;
	skip_space(&s);
	return s.at == s.end;
}

/* ---- values ---- */

/* Decodes the escape at s and sets *length to its length. */
static uint32_t escaped(const char *s, size_t *length)
{
	static const char letters[] = "bfnrt", means[] = "\b\f\n\r\t";
	const char *letter;
	int32_t c, low;

	*length = 2;
	if (s[1] != 'u') {
		letter = strchr(letters, s[1]);
		return letter ? (uint32_t)means[letter - letters] : (unsigned char)s[1];
	}
	*length = 6;
	c = hex(s + 2);
	if (c < 0xd800 || c > 0xdfff)
		return c;
	low = c < 0xdc00 && s[6] == '\\' && s[7] == 'u' ? hex(s + 8) : -1;
	if (low < 0xdc00 || low > 0xdfff)
		return NT_REPLACEMENT;
	*length = 12;
	return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

size_t nt_json_unescape(struct nt_json_value *string)
{
	char *from = string->at, *end = from + string->length, *to = from;

	while (from < end) {
		size_t length;

		if (*from != '\\') {
			*to++ = *from++;
			continue;
		}
		/* an escape is never shorter than the character that it stands for */
		to += nt_utf8_encode(to, escaped(from, &length));
		from += length;
	}
	*to = '\0';
	string->length = to - string->at;
	return string->length;
}

bool nt_json_is(const struct nt_json_value *value, const char *text)
{
	return value->type == NT_JSON_STRING && says(value, text);
}

bool nt_json_whole(const struct nt_json_value *value, uint64_t *number)
{
	return value->type == NT_JSON_NUMBER &&
	       nt_parse_number(value->at, value->length, UINT64_MAX, number);
}
