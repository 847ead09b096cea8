/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counts how much each share uses of something bounded: of the list of owners, of the label sets,
 * of the connections of a report. A share is a user and cgroup (bpf/share.h). When there is no room
 * left, the largest share gives way, so that one user's millions cannot push anybody else out.
 *
 * A table of fixed size holds the counts. Two shares may fall into one place of it (one pair in a
 * thousand); they then count as one share.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NT_SHARES 1024

struct nt_shares {
	uint32_t count[NT_SHARES];
};

/* Returns the place of a share in the table. */
static inline unsigned int nt_share_place(uint64_t share)
{
	return (share * 0x9e3779b97f4a7c15ULL) >> 54;
}

/* Returns the place of the largest share; if several are equally large, of one of them. */
static inline unsigned int nt_shares_largest(const struct nt_shares *shares)
{
	unsigned int largest = 0;

	for (unsigned int i = 1; i < NT_SHARES; i++)
		if (shares->count[i] > shares->count[largest])
			largest = i;
	return largest;
}

/*
 * Returns the most that each share may have for all of them to have no more than total together,
 * where they have more now.
 */
static inline uint32_t nt_shares_limit(const struct nt_shares *shares, size_t total)
{
	uint32_t low = 0, high = shares->count[nt_shares_largest(shares)];

	while (high - low > 1) {
		uint32_t limit = low + (high - low) / 2;
		size_t sum = 0;

		for (unsigned int i = 0; i < NT_SHARES; i++)
			sum += shares->count[i] < limit ? shares->count[i] : limit;
		if (sum > total)
			high = limit;
		else
			low = limit;
	}
	return low;
}
