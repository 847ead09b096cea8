/* SPDX-License-Identifier: GPL-2.0 */
/* SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash that shows nothing of what it hashes to
 * who lacks the key. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NT_SIPHASH_KEY_LEN 16

/* Takes a key from what a file holds: 16 bytes, or 32 hexadecimal digits, which a line break may
 * follow. Returns false for anything else. */
bool nt_siphash_key(const char *text, size_t length, uint8_t key[NT_SIPHASH_KEY_LEN]);

uint64_t nt_siphash(const uint8_t key[NT_SIPHASH_KEY_LEN], const void *data, size_t length);
