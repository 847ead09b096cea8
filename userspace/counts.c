// SPDX-License-Identifier: GPL-2.0
#include "counts.h"

#include <stddef.h>

void nt_counts_subtract(struct nt_counts *counts, const struct nt_counts *before)
{
	const size_t words = sizeof(counts->totals) / sizeof(__u64);

	for (size_t i = 0; i < words; i++)
		((__u64 *)&counts->totals)[i] -= ((const __u64 *)&before->totals)[i];
	counts->recursion_misses -= before->recursion_misses;
}

unsigned long long nt_counts_lost(const struct nt_counts *counts)
{
	unsigned long long lost = counts->recursion_misses;

	for (size_t i = 0; i < NT_LOST_WAYS; i++)
		lost += i == NT_LOST_STACK ? 0 : counts->totals.lost[i];
	return lost;
}
