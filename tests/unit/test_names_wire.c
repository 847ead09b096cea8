// SPDX-License-Identifier: GPL-2.0
// links: userspace/names/wire.c userspace/names/symbols.c userspace/names/unwind.c userspace/names/mappings.c
// links: userspace/base/text.c
#include <stdlib.h>
#include <string.h>
#include "unit.h"
#include "names/wire.h"

static uint8_t bytes[NT_NAMES_REPLY_BYTES + 1];
static struct nt_names_reply head;
static struct nt_frame frames[NT_STACK_DEPTH];

static size_t encode(struct nt_frame *list, size_t n)
{
	const struct nt_names_reply h = {.number = 7, .why = NT_UNNAMED_LIMIT};

	return nt_names_encode(&h, list, n, bytes);
}

static int decode(size_t length)
{
	/* a copy that ends where it ends, for the sanitizer to see who reads on */
	uint8_t *copy = malloc(length ? length : 1);
	int err;

	memcpy(copy, bytes, length);
	err = nt_names_decode(copy, length, &head, frames);
	free(copy);
	return err;
}

TEST(what_was_encoded_is_decoded)
{
	struct nt_frame list[] = {{.ip = 1, .module = "/bin/x", .offset = 2, .symbol = "main"},
				  {.ip = UINT64_MAX},
				  {.ip = 3,
				   .module = "",
				   .symbol = "gr\xc3\xbc\xc3\x9f"
					     "e"}};

	assert_int_equal(decode(encode(list, 3)), 0);
	assert_int_equal(head.number, 7);
	assert_int_equal(head.why, NT_UNNAMED_LIMIT);
	assert_int_equal(head.n, 3);
	assert_string_equal(frames[0].module, "/bin/x");
	assert_int_equal(frames[0].offset, 2);
	assert_string_equal(frames[0].symbol, "main");
	assert_int_equal(frames[1].ip, UINT64_MAX);
	assert_null(frames[1].module);
	assert_null(frames[1].symbol);
	assert_string_equal(frames[2].module, "");
	assert_string_equal(frames[2].symbol, "gr\xc3\xbc\xc3\x9f"
					      "e");
	nt_frames_free(frames, 3);
}

TEST(a_long_name_is_cut_at_a_whole_character)
{
	char name[NT_NAME_BYTES + 8];
	struct nt_frame one = {.symbol = name};

	for (size_t ascii = 0; ascii < 4; ascii++) {
		memset(name, 'a', ascii);
		name[ascii] = '\0';
		while (strlen(name) + 4 < sizeof(name))
			strcat(name, "\xe2\x86\x92");
		assert_int_equal(decode(encode(&one, 1)), 0);
		assert_int_equal(strlen(frames[0].symbol), ascii + (NT_NAME_BYTES - ascii) / 3 * 3);
		nt_frames_free(frames, 1);
	}
}

TEST(names_have_so_much_room_in_all_and_the_outermost_go_without)
{
	struct nt_frame list[NT_STACK_DEPTH];
	const struct nt_names_reply fine = {.number = 7};
	char name[2 * NT_NAME_BYTES];
	size_t length, named = NT_NAMES_BYTES / NT_NAME_BYTES / 2;

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	for (size_t i = 0; i < NT_STACK_DEPTH; i++)
		list[i] = (struct nt_frame){.ip = i, .module = name, .symbol = name};
	length = nt_names_encode(&fine, list, NT_STACK_DEPTH, bytes);
	assert_int_equal(length, NT_NAMES_REPLY_BYTES);
	assert_int_equal(decode(length), 0);
	assert_int_equal(head.why, NT_UNNAMED_LIMIT);
	assert_int_equal(head.n, NT_STACK_DEPTH);
	for (size_t i = 0; i < NT_STACK_DEPTH; i++) {
		assert_int_equal(frames[i].ip, i);
		assert_int_equal(!!frames[i].module, i < named);
		assert_int_equal(!!frames[i].symbol, i < named);
	}
	nt_frames_free(frames, NT_STACK_DEPTH);
	length = nt_names_encode(&fine, list, named, bytes);
	assert_int_equal(decode(length), 0);
	assert_int_equal(head.why, NT_NAMED);
	nt_frames_free(frames, named);
}

UNIT_MAIN()
