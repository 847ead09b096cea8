/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What comes from outside, thrown at the function that reads it: libFuzzer with ASan and UBSan.
 * Each target is a program build/fuzz/NAME with its corpus in tests/fuzz/corpus/NAME.zip.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not an assert(): it holds in every build. */
#define FUZZ_CHECK(condition)                                                           \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                        \
		}                                                                       \
	} while (0)

/* One line for a person: not empty, nothing in it that moves a cursor. */
static inline void fuzz_check_message(const char *message)
{
	FUZZ_CHECK(*message);
	for (const char *c = message; *c; c++)
		FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
}

/* The input as a string, to be freed; NULL if it is longer than most. */
static inline char *fuzz_string(const uint8_t *data, size_t size, size_t most)
{
	char *text = size <= most ? malloc(size + 1) : NULL;

	if (!text)
		return NULL;
	memcpy(text, data, size);
	text[size] = '\0';
	return text;
}
