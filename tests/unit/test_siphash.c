// SPDX-License-Identifier: GPL-2.0
// links: userspace/base/siphash.c
/* The hash behind ack_id gives what the reference implementation gives; and its key, from a file.
 */
#include <string.h>
#include "unit.h"
#include "base/siphash.h"

/* The reference's vectors (vectors_sip64): key 00 01 … 0f, the message 00 01 … of that length. */
static const struct {
	size_t length;
	uint64_t hash;
} vectors[] = {
	{0, 0x726fdb47dd0e0e31ULL},  {1, 0x74f839c593dc67fdULL},  {2, 0x0d6c8009d9a94f5aULL},
	{3, 0x85676696d7fb7e2dULL},  {4, 0xcf2794e0277187b7ULL},  {5, 0x18765564cd99a68dULL},
	{6, 0xcbc9466e58fee3ceULL},  {7, 0xab0200f58b01d137ULL},  {8, 0x93f5f5799a932462ULL},
	{9, 0x9e0082df0ba9e4b0ULL},  {10, 0x7a5dbbc594ddb9f3ULL}, {11, 0xf4b32f46226bada7ULL},
	{12, 0x751e8fbc860ee5fbULL}, {13, 0x14ea5627c0843d90ULL}, {14, 0xf723ca908e7af2eeULL},
	{15, 0xa129ca6149be45e5ULL},
};

TEST(the_reference_vectors_hold)
{
	uint8_t key[NT_SIPHASH_KEY_LEN], message[16];

	for (unsigned int i = 0; i < 16; i++)
		key[i] = message[i] = i;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
		assert_int_equal(nt_siphash(key, message, vectors[i].length), vectors[i].hash);
}

TEST(a_key_is_16_bytes_or_32_digits)
{
	static const char digits[] = "000102030405060708090a0b0C0D0E0F\r\n";
	const char zeros[NT_SIPHASH_KEY_LEN] = {};
	uint8_t key[NT_SIPHASH_KEY_LEN];

	for (size_t length = 32; length <= 34; length += 2) {
		memset(key, 0xff, sizeof(key));
		assert_true(nt_siphash_key(digits, length, key));
		for (unsigned int i = 0; i < sizeof(key); i++)
			assert_int_equal(key[i], i);
	}
	assert_true(nt_siphash_key(zeros, sizeof(zeros), key));
	assert_memory_equal(key, zeros, sizeof(key));
}

TEST(anything_else_is_no_key)
{
	static const char *const texts[] = {
		"",
		"0123456789abcde",
		"0123456789abcdef\n",
		"000102030405060708090a0b0c0d0e0",
		"000102030405060708090a0b0c0d0e0g",
		"000102030405060708090a0b0c0d0e0f\n\n",
		"000102030405060708090a0b0c0d0e0f0f",
	};
	uint8_t key[NT_SIPHASH_KEY_LEN];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_false(nt_siphash_key(texts[i], strlen(texts[i]), key));
}

UNIT_MAIN()
