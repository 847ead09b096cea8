// SPDX-License-Identifier: GPL-2.0
// links: userspace/protocol/json_scan.c userspace/base/numbers.c userspace/base/text.c
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <json-c/json.h>
#include "unit.h"
#include "protocol/json_scan.h"

static struct nt_json_member member;
static char *line;

static int tear_down(void **state)
{
	free(line);
	line = NULL;
	return 0;
}

/* The value of "a" in the text; false: it is refused. */
static bool scan(const char *text)
{
	struct nt_json_scan scan = {.members = &member, .n_members = 1};

	free(line);
	line = strdup(text);
	member = (struct nt_json_member){.key = "a"};
	return nt_json_scan(&scan, line, strlen(line));
}

TEST(what_rfc_8259_allows_is_taken)
{
	static const char *const good[] = {
		"{}",
		" { } ",
		"{\"a\":1}",
		"{\"a\":-0.5e-10,\"b\":[],\"c\":[1 , 2]}",
		"{\"a\":18446744073709551615}",
		"{\"a\":[[[[[[[1]]]]]]]}",
		"{\"a\":null,\"b\":true,\"c\":false}",
		"{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e4\\ud83d\\ude00 ä€😀\x7f\"}",
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		if (!scan(good[i]))
			fail_msg("refused: %s", good[i]);
}

TEST(all_else_is_refused)
{
	static const char *const bad[] = {
		"",
		" ",
		"1",
		"null",
		"\"a\"",
		"[]",
		"{",
		"}",
		"{}}",
		"{}{}",
		"{} x",
		"{\"a\"}",
		"{\"a\":}",
		"{\"a\":1,}",
		"{,\"a\":1}",
		"{a:1}",
		"{'a':1}",
		"{\"a\":'b'}",
		"{\"a\":[1,]}",
		"{\"a\":[,1]}",
		"{\"a\":[1 2]}",
		"{\"a\":[1}",
		"{\"a\":1]}",
		"{\"a\":1/* no */}",
		"{\"a\":NaN}",
		"{\"a\":Infinity}",
		"{\"a\":-}",
		"{\"a\":+1}",
		"{\"a\":01}",
		"{\"a\":.5}",
		"{\"a\":5.}",
		"{\"a\":1e}",
		"{\"a\":0x1}",
		"{\"a\":TRUE}",
		"{\"a\":1e400}",
		"{\"a\":-1e999}",
		"{\"a\":123456789012345678901}",
		"{\"a\":0.123456789012345678901}",
		"{\"a\":\"b}",
		"{\"a\":\"\\\"}",
		"{\"a\":\"\\x41\"}",
		"{\"a\":\"\\u12\"}",
		"{\"a\":\"\\u123g\"}",
		"{\"a\":\"\x1b\"}",
		"{\"a\":\"\t\"}",
		"{\"a\":\"\xff\"}",
		"{\"a\":\"\xc0\x9b\"}",
		"{\"a\":\"\xed\xa0\x80\"}",
		"{\"a\":\"\xe2\x82\"}",
		"{\"a\":[[[[[[[[1]]]]]]]]}",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (scan(bad[i]))
			fail_msg("taken: %s", bad[i]);
}

TEST(a_nul_ends_no_line)
{
	char text[] = "{\"a\":1}\0{\"a\":2}";
	struct nt_json_scan scan = {0};

	assert_true(nt_json_scan(&scan, text, strlen(text)));
	assert_false(nt_json_scan(&scan, text, sizeof(text) - 1));
}

static void assert_text(const char *json, const char *wanted, size_t length)
{
	assert_true(scan(json));
	assert_int_equal(member.value.type, NT_JSON_STRING);
	assert_int_equal(nt_json_unescape(&member.value), length);
	assert_memory_equal(member.value.at, wanted, length + 1);
}

TEST(strings_mean_what_their_escapes_say)
{
	assert_text("{\"a\":\"\"}", "", 0);
	assert_text("{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t", 8);
	assert_text("{\"a\":\"\\u0041\\u00e4\\u20ac\\ud83d\\ude00\"}", "Aä€😀", 10);
	assert_text("{\"a\":\"\\u00E4\"}", "ä", 2);
	assert_text("{\"a\":\"x\\u0000y\"}", "x\0y", 3);
	assert_text("{\"a\":\"\\ud83d\"}", "\xef\xbf\xbd", 3);
	assert_text("{\"a\":\"\\ud83d\\u0041\"}",
		    "\xef\xbf\xbd"
		    "A",
		    4);
	assert_text("{\"a\":\"\\ude00\\ud83d\"}", "\xef\xbf\xbd\xef\xbf\xbd", 6);
}

TEST(of_keys_that_come_twice_the_last_one_counts)
{
	uint64_t number;

	assert_true(scan("{\"a\":1,\"b\":{\"a\":2},\"c\":[{\"a\":3}],\"a\":4,\"d\":5}"));
	assert_true(nt_json_whole(&member.value, &number));
	assert_int_equal(number, 4);
	assert_true(scan("{\"a\":1,\"a\":null}"));
	assert_int_equal(member.value.type, NT_JSON_NULL);
	assert_true(scan("{\"b\":1}"));
	assert_int_equal(member.value.type, NT_JSON_ABSENT);
}

TEST(only_whole_numbers_are_whole)
{
	static const char *const others[] = {"-1",   "1.0", "1e3", "\"1\"", "18446744073709551616",
					     "null", "[1]"};
	uint64_t number;
	char text[64];

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		snprintf(text, sizeof(text), "{\"a\":%s}", others[i]);
		assert_true(scan(text));
		assert_false(nt_json_whole(&member.value, &number));
	}
	assert_true(scan("{\"a\":18446744073709551615}"));
	assert_true(nt_json_whole(&member.value, &number));
	assert_int_equal(number, UINT64_MAX);
}

/* What json-c takes the text for when it was shortened. */
static void assert_trimmed(const char *text, const char *wanted)
{
	static const struct nt_json_trim trims[] = {{"none", 0}, {"two", 2}};
	struct nt_json_scan scan = {.trims = trims, .n_trims = 2};
	struct json_object *o;
	char *copy = strdup(text);

	assert_true(nt_json_scan(&scan, copy, strlen(copy)));
	assert_int_equal(strlen(copy), strlen(text));
	o = json_tokener_parse(copy);
	assert_string_equal(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN), wanted);
	json_object_put(o);
	free(copy);
}

TEST(lists_are_shortened_where_they_lie)
{
	assert_trimmed("{\"none\":[1,2],\"two\":[1,2,3,4],\"all\":[1,2,3]}",
		       "{\"none\":[],\"two\":[1,2],\"all\":[1,2,3]}");
	assert_trimmed("{\"two\":[],\"none\":[]}", "{\"two\":[],\"none\":[]}");
	assert_trimmed("{\"two\":[ 1 , 2 ],\"none\":[ 1 ]}", "{\"two\":[1,2],\"none\":[]}");
	assert_trimmed("{\"all\":[{\"two\":[{\"none\":[1]},[2],\"]\"]}]}",
		       "{\"all\":[{\"two\":[{\"none\":[]},[2]]}]}");
	assert_trimmed("{\"two\":{\"none\":7},\"none\":\"[1]\"}",
		       "{\"two\":{\"none\":7},\"none\":\"[1]\"}");
}

/* So many times the piece, with a number in it if it wants one, in a list or object. */
static char *repeated(const char *before, const char *piece, const char *after)
{
	char *text;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	fputs(before, out);
	for (int i = 0; i < 30000; i++)
		fprintf(out, piece, i);
	fputs(after, out);
	fclose(out);
	return text;
}

/* The bound on a tree is one only if it is not said to be smaller than it is. */
TEST(the_size_of_a_tree_is_known_before_it_is_made)
{
	static const char *const pieces[][3] = {
		{"{\"a\":[", "{},", "{}]}"},        {"{\"a\":[", "[],", "[]]}"},
		{"{\"a\":[", "0,", "0]}"},          {"{\"a\":[", "\"%d\",", "0]}"},
		{"{", "\"%d\":0,", "\"a\":0}"},     {"{\"a\":[", "{\"a\":{\"b\":[%d]}},", "0]}"},
		{"{\"a\":\"", "xxxxxxxxxx", "\"}"}, {"{\"a\":[", "null,", "0]}"},
	};

	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		char *text = repeated(pieces[i][0], pieces[i][1], pieces[i][2]);
		struct nt_json_scan scan = {0};
		struct json_object *o;
		size_t before;

		assert_true(nt_json_scan(&scan, text, strlen(text)));
		before = __sanitizer_get_current_allocated_bytes();
		o = json_tokener_parse(text);
		assert_non_null(o);
		assert_in_range(__sanitizer_get_current_allocated_bytes() - before, 1,
				scan.tree_bytes);
		json_object_put(o);
		free(text);
	}
}

UNIT_MAIN_WITH(NULL, tear_down)
