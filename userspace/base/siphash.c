// SPDX-License-Identifier: GPL-2.0
#include "base/siphash.h"

#include <endian.h>
#include <string.h>

static uint64_t rotated(uint64_t word, unsigned int bits)
{
	return word << bits | word >> (64 - bits);
}

static uint64_t little_endian(const uint8_t bytes[8])
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return le64toh(word);
}

static void rounds(uint64_t v[4], unsigned int n)
{
	while (n--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotated(v[1], 13) ^ v[0];
		v[3] = rotated(v[3], 16) ^ v[2];
		v[0] = rotated(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotated(v[1], 17) ^ v[2];
		v[3] = rotated(v[3], 21) ^ v[0];
		v[2] = rotated(v[2], 32);
	}
}

static void take(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	rounds(v, 2);
	v[0] ^= word;
}

static int digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *found = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;

	return found ? (int)(found - digits) : -1;
}

bool nt_siphash_key(const char *text, size_t length, uint8_t key[NT_SIPHASH_KEY_LEN])
{
	if (length == NT_SIPHASH_KEY_LEN) {
		memcpy(key, text, length);
		return true;
	}
	if (length > 2 * NT_SIPHASH_KEY_LEN && text[length - 1] == '\n')
		length--;
	if (length > 2 * NT_SIPHASH_KEY_LEN && text[length - 1] == '\r')
		length--;
	if (length != 2 * NT_SIPHASH_KEY_LEN)
		return false;
	for (size_t i = 0; i < NT_SIPHASH_KEY_LEN; i++) {
		int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		key[i] = high << 4 | low;
	}
	return true;
}

uint64_t nt_siphash(const uint8_t key[NT_SIPHASH_KEY_LEN], const void *data, size_t length)
{
	const uint64_t k0 = little_endian(key), k1 = little_endian(key + 8);
	uint64_t v[4] = {k0 ^ 0x736f6d6570736575ULL, k1 ^ 0x646f72616e646f6dULL,
			 k0 ^ 0x6c7967656e657261ULL, k1 ^ 0x7465646279746573ULL};
	const uint8_t *at = data;
	uint8_t last[8] = {};

	last[7] = length;
	for (; length >= 8; length -= 8, at += 8)
		take(v, little_endian(at));
	memcpy(last, at, length);
	take(v, little_endian(last));
	v[2] ^= 0xff;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
