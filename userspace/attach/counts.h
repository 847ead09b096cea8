/* SPDX-License-Identifier: GPL-2.0 */
/* The counts of the kernel side up to one moment, or between two. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "bpf/nagletrace.h"
#include "terms/unnamed.h"

struct nt_slow_row {
	struct nt_slow_key key;
	struct nt_slow slow;
};

struct nt_counts {
	struct nt_totals totals;
	/* holds that cost time and were no stall, in no order */
	struct nt_slow_row slow[NT_SLOW_ROWS];
	size_t n_slow;
	/* how often the kernel skipped a program that ran already on that CPU */
	unsigned long long recursion_misses;
	/* stalls that one end showed, and that the other end's silence contradicted */
	unsigned long long contradicted;
	/* ends of stalls whose process we did not find: no room, or it was gone */
	unsigned long long unowned;
	unsigned long long unseen; /* timers that sent a delayed ACK, unseen by our programs */
	bool audited;              /* unseen is known */
	/* with --standby: how long the hooks were attached, and what looks estimate of the rest */
	unsigned long long attached_ns, sampled_excess_ns;
	/* sockets of the processes asked for, at most at one time: no hook follows them */
	unsigned int untraced[NT_UNTRACED_KINDS];
	bool names;                                     /* we name stacks, and unnamed is known */
	unsigned long long unnamed[NT_UNNAMED_REASONS]; /* stacks that stayed without names */
};

/* Subtracts before from counts. */
void nt_counts_subtract(struct nt_counts *counts, const struct nt_counts *before);

/*
 * Sums all ways in which a record is dropped, recursion too; a call stack that could not be taken
 * does not count.
 */
unsigned long long nt_counts_dropped(const struct nt_counts *counts);
