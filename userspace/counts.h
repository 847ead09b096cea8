/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel side counted up to one moment, or between two. */
#ifndef NT_COUNTS_H
#define NT_COUNTS_H

#include "../bpf/nagletrace.h"

struct nt_counts {
	struct nt_totals totals;
	unsigned long long recursion_misses; /* a program was not run because it ran already */
};

/* Takes before off counts. */
void nt_counts_subtract(struct nt_counts *counts, const struct nt_counts *before);

/* All ways to lose a record, recursion too; a call stack that could not be taken is none. */
unsigned long long nt_counts_lost(const struct nt_counts *counts);

#endif /* NT_COUNTS_H */
