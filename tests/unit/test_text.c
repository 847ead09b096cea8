// SPDX-License-Identifier: GPL-2.0
// links: userspace/base/text.c userspace/terms/tuple.c userspace/terms/words.c
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include "unit.h"
#include "base/text.h"
#include "terms/words.h"
#include "terms/tuple.h"

static void expect_duration(uint64_t ns, const char *expected)
{
	assert_string_equal(nt_duration(ns).text, expected);
}

TEST(durations_have_three_figures_and_the_unit_that_fits)
{
	expect_duration(0, "0 us");
	expect_duration(312000, "312 us");
	expect_duration(999499, "999 us");
	expect_duration(999500, "1.00 ms");
	expect_duration(4217000, "4.22 ms");
	expect_duration(9994999, "9.99 ms");
	expect_duration(9995000, "10.0 ms");
	expect_duration(40312000, "40.3 ms");
	expect_duration(213400000, "213 ms");
	expect_duration(999500000, "1.00 s");
	expect_duration(30000000000, "30.0 s");
}

static void expect_escaped(const char *text, size_t length, const char *expected)
{
	char out[NT_ESCAPED_LEN(64)];

	nt_escape(text, length, out, sizeof(out));
	assert_string_equal(out, expected);
}

TEST(names_cannot_break_a_line_or_a_terminal)
{
	expect_escaped("java", 16, "java");
	expect_escaped("a b", 16, "a b");
	expect_escaped("a\nb", 16, "a\\x0ab");
	expect_escaped("\033[2Jx", 16, "\\x1b[2Jx");
	expect_escaped("\\x41", 16, "\\x5cx41"); /* what looks escaped is told from what is */
	expect_escaped("\x7f", 16, "\\x7f");
}

TEST(utf8_stays_and_what_is_not_utf8_is_escaped)
{
	expect_escaped("größe", 16, "größe");
	expect_escaped("\xff\xfe", 16, "\\xff\\xfe");
	expect_escaped("a\xc3", 16,
		       "a\\xc3"); /* cut off in the middle, as the kernel does to names */
	expect_escaped("\xc0\xaf", 16, "\\xc0\\xaf");          /* overlong */
	expect_escaped("\xed\xa0\x80", 16, "\\xed\\xa0\\x80"); /* a surrogate */
	expect_escaped("\xc2\x9b"
		       "2J",
		       16, "\\xc2\\x9b2J"); /* a C1 control: begins a terminal sequence */
}

TEST(what_turns_the_direction_of_a_line_is_escaped)
{
	expect_escaped("\u061c", 16, "\\xd8\\x9c");
	expect_escaped("\u200e", 16, "\\xe2\\x80\\x8e");
	expect_escaped("\u200f", 16, "\\xe2\\x80\\x8f");
	expect_escaped("\u202a", 16, "\\xe2\\x80\\xaa");
	expect_escaped("\u202e", 16, "\\xe2\\x80\\xae");
	expect_escaped("\u2066", 16, "\\xe2\\x81\\xa6");
	expect_escaped("\u2069", 16, "\\xe2\\x81\\xa9");
	expect_escaped("\u061b \u061d \u200d \u2010 \u2030 \u2065 \u206a", 32,
		       "\u061b \u061d \u200d \u2010 \u2030 \u2065 \u206a");
}

TEST(what_was_escaped_once_stays_as_it_is_and_is_no_less_harmless)
{
	char out[64];

	nt_escape_again("a\\x0ab größe", 32, out, sizeof(out));
	assert_string_equal(out, "a\\x0ab größe");
	nt_escape_again("a\033[2J\xff", 32, out, sizeof(out));
	assert_string_equal(out, "a\\x1b[2J\\xff");
}

TEST(without_utf8_each_character_is_one)
{
	char text[] = ":1 → 127.0.0.1:2 … größe ▁█┃", plain[] = "plain";

	nt_to_ascii(text);
	assert_string_equal(text, ":1 > 127.0.0.1:2 ~ gr??e _##");
	nt_to_ascii(plain);
	assert_string_equal(plain, "plain");
}

TEST(a_name_without_nul_ends_at_its_length)
{
	expect_escaped("0123456789abcdefGARBAGE", 16, "0123456789abcdef");
}

TEST(an_escaped_name_never_overruns_its_room)
{
	char out[8];

	nt_escape("abc\001\002", 5, out, sizeof(out));
	assert_string_equal(out, "abc\\x01");
	nt_escape("abcdefghij", 10, out, sizeof(out));
	assert_true(strlen(out) < sizeof(out));
}

typedef void write_text(FILE *out, const char *text, size_t length);

static void expect_written(write_text *write, const char *text, const char *expected)
{
	char *written;
	size_t length;
	FILE *out = open_memstream(&written, &length);

	write(out, text, strlen(text));
	fclose(out);
	assert_string_equal(written, expected);
	free(written);
}

TEST(rendered_text_keeps_its_newlines_and_its_escapes)
{
	expect_written(nt_write_escaped, "a \\x1b\n  b → ä\n", "a \\x1b\n  b → ä\n");
	expect_written(nt_write_escaped, "\x1b[2J\a\r\t\x7f\n", "\\x1b[2J\\x07\\x0d\\x09\\x7f\n");
	expect_written(nt_write_escaped, "\xc2\x9b\xe2\x80\xae\xff",
		       "\\xc2\\x9b\\xe2\\x80\\xae\\xff");
}

TEST(a_line_of_json_means_the_same_when_it_is_harmless)
{
	expect_written(nt_write_json_escaped, "{\"a\":\"\\u001b → ä\"}", "{\"a\":\"\\u001b → ä\"}");
	expect_written(nt_write_json_escaped,
		       "{\"a\":\"\x7f\xc2\x9b\xe2\x80\xae\xe2\x80\xa8\xef\xbb\xbf\"}",
		       "{\"a\":\"\\u007f\\u009b\\u202e\\u2028\\ufeff\"}");
	expect_written(nt_write_json_escaped, "{\"a\":\"b\xe2\x86\"}",
		       "{\"a\":\"b\\ufffd\\ufffd\"}");
	expect_written(nt_write_json_escaped, "{\r\t\"a\":1}\r", "{  \"a\":1} ");
}

TEST(addresses_of_both_families)
{
	struct nt_tuple t = {.family = AF_INET, .local_port = 8000, .remote_port = 65535};
	char text[NT_ADDRESS_LEN];

	inet_pton(AF_INET, "127.0.0.1", t.local_addr);
	nt_format_address(&t, true, text, sizeof(text));
	assert_string_equal(text, "127.0.0.1:8000");
	t.family = AF_INET6;
	inet_pton(AF_INET6, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", t.remote_addr);
	nt_format_address(&t, false, text, sizeof(text));
	assert_string_equal(text, "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535");
}

TEST(long_text_is_shortened_in_its_middle)
{
	char fits[] = ":51234 → 127.0.0.1:8000", text[] = "0123456789abcdef";
	char umlauts[] = "ääääääääää";

	nt_shorten(fits, 23);
	assert_string_equal(fits, ":51234 → 127.0.0.1:8000");
	nt_shorten(text, 9);
	assert_string_equal(text, "0123…cdef");
	nt_shorten(umlauts, 5);
	assert_string_equal(umlauts, "ää…ää");
}

TEST(a_name_gives_way_to_its_number)
{
	char out[64];

	nt_format_named("java", 42, 0, out, sizeof(out));
	assert_string_equal(out, "java[42]");
	nt_format_named("kernel (cifsd)", -7, 0, out, sizeof(out));
	assert_string_equal(out, "kernel (cifsd)");
	nt_format_named("bücherwurm", 123456, 12, out, sizeof(out));
	assert_string_equal(out, "bü…m[123456]");
}

TEST(a_line_ends_at_a_blank_or_is_one_word)
{
	assert_int_equal(nt_line_length("one two", 7, false), 7);
	assert_int_equal(nt_line_length("one two", 6, false), 3);
	assert_int_equal(nt_line_length("one two", 3, false), 3);
	assert_int_equal(nt_line_length("Größe zwei", 5, false), 7);
	assert_int_equal(nt_line_length("aaaaaaaa two", 4, false), 8);
	assert_int_equal(nt_line_length("aaaaaaaa two", 4, true), 4);
}

TEST(what_is_cut_off_ends_with_a_whole_character)
{
	static const char text[] =
		"a\xc3\xbc\xe2\x86\x92\xf0\x9f\x98\x80z"; /* 1, 2, 3, 4 bytes, 1 */
	static const size_t whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};

	for (size_t n = 0; n < sizeof(text); n++)
		assert_int_equal(nt_whole_characters(text, n), whole[n]);
	/* what is no UTF-8 stays, for it is escaped where it is written */
	assert_int_equal(nt_whole_characters("\x80\x80\x80\x80\x80", 5), 5);
	assert_int_equal(nt_whole_characters("a\xff", 2), 1);
	assert_int_equal(nt_whole_characters("\x80", 1), 1);
}

TEST(every_value_has_its_word_and_no_other_has)
{
	for (unsigned int i = 1; i < NT_HOLD_REASONS; i++)
		assert_non_null(nt_hold_reason_word(i));
	for (unsigned int i = 1; i < NT_RELEASES; i++)
		assert_non_null(nt_release_word(i));
	for (unsigned int i = 1; i < NT_ACK_RELEASES; i++)
		assert_non_null(nt_ack_release_word(i));
	for (unsigned int i = 1; i < NT_ACK_REASONS; i++)
		assert_non_null(nt_ack_reason_word(i));
	for (unsigned int i = 1; i < NT_CAUSES; i++)
		assert_non_null(nt_cause_word(i));
	for (unsigned int i = 1; i < NT_EVIDENCES; i++)
		assert_non_null(nt_evidence_word(i));
	for (unsigned int i = 1; i < NT_PATTERNS; i++)
		assert_non_null(nt_pattern_word(i));
	for (unsigned int i = 0; i < NT_DROPPED_WAYS; i++)
		assert_non_null(nt_dropped_word(i));
	for (unsigned int i = 1; i < NT_UNNAMED_REASONS; i++)
		assert_non_null(nt_unnamed_word(i));
	assert_null(nt_hold_reason_word(0));
	assert_null(nt_hold_reason_word(NT_HOLD_REASONS));
	assert_null(nt_release_word(255));
}

UNIT_MAIN()
