/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes uthash survive a shortage of memory instead of ending the program: HASH_ADD then leaves
 * hh.tbl NULL. Makes it expand sooner: where a bucket may have 10 entries, the default, a look
 * passes over two to three, and each costs a miss in the cache. Hashes eight bytes at once, since a
 * label set has 400 of them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/clock.h"

/* Multiplies and folds; no defence against keys that somebody chooses: tables of these are small.
 */
static inline unsigned int nt_hash(const void *key, size_t bytes)
{
	const uint64_t odd = 0x9e3779b97f4a7c15ULL;
	const unsigned char *at = key;
	uint64_t hash = bytes, word;

	for (; bytes >= sizeof(word); bytes -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		hash = (hash ^ word) * odd;
		hash ^= hash >> 32;
	}
	word = 0;
	memcpy(&word, at, bytes);
	hash = (hash ^ word) * odd;
	return hash ^ hash >> 32;
}

#define HASH_NONFATAL_OOM               1
#define HASH_FUNCTION(key, bytes, hash) ((hash) = nt_hash(key, bytes))
#include <uthash.h>

#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 5U

/* How long an entry keeps its place in the order of a table: to move it costs more than to find it.
 */
#define NT_RENEW_NS NT_SECOND_NS
