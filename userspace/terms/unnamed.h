/* SPDX-License-Identifier: GPL-2.0 */
#pragma once

/* Why a stack, or some of its frames, has no names. */
enum nt_unnamed {
	NT_NAMED = 0,
	NT_UNNAMED_DIED = 1,     /* the worker crashed, or somebody killed it or the keeper */
	NT_UNNAMED_DEADLINE = 2, /* the worker took too long, and the keeper killed it */
	NT_UNNAMED_LIMIT = 3,    /* the worker reached its limit of memory, CPU time or mappings */
	NT_UNNAMED_BUSY = 4,     /* others are being named, or the share of time is used up */
	NT_UNNAMED_GONE = 5,     /* the process had ended */
	NT_UNNAMED_REASONS = 6,
};
