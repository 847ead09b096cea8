// SPDX-License-Identifier: GPL-2.0
#include "attach/counts.h"

#include <string.h>

/* Leaves the rows that have grown. A row that made room meanwhile has begun anew. */
static void subtract_slow(struct nt_counts *counts, const struct nt_counts *before)
{
	size_t n = 0;

	for (size_t i = 0; i < counts->n_slow; i++) {
		struct nt_slow_row row = counts->slow[i];

		for (size_t j = 0; j < before->n_slow; j++) {
			const struct nt_slow_row *old = &before->slow[j];

			if (memcmp(&old->key, &row.key, sizeof(row.key)) ||
			    row.slow.since_ns != old->slow.since_ns)
				continue;
			row.slow.holds -= old->slow.holds;
			row.slow.duration_ns -= old->slow.duration_ns;
		}
		if (row.slow.holds)
			counts->slow[n++] = row;
	}
	counts->n_slow = n;
}

void nt_counts_subtract(struct nt_counts *counts, const struct nt_counts *before)
{
	const size_t words = sizeof(counts->totals) / sizeof(__u64);

	for (size_t i = 0; i < words; i++)
		((__u64 *)&counts->totals)[i] -= ((const __u64 *)&before->totals)[i];
	subtract_slow(counts, before);
	counts->recursion_misses -= before->recursion_misses;
	counts->contradicted -= before->contradicted;
	counts->unowned -= before->unowned;
	/* it may have become known meanwhile, and has counted all since the start */
	counts->audited &= before->audited;
	counts->unseen -= before->unseen;
	counts->attached_ns -= before->attached_ns;
	counts->sampled_excess_ns -= before->sampled_excess_ns;
	for (size_t i = 0; i < NT_UNNAMED_REASONS; i++)
		counts->unnamed[i] -= before->unnamed[i];
}

unsigned long long nt_counts_dropped(const struct nt_counts *counts)
{
	unsigned long long dropped = counts->recursion_misses;

	for (size_t i = 0; i < NT_DROPPED_WAYS; i++)
		dropped += counts->totals.dropped[i];
	return dropped - counts->totals.dropped[NT_DROPPED_STACK] -
	       counts->totals.dropped[NT_DROPPED_LATE_ACK];
}
