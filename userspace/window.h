/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What happened lately: two aggregates, each begun anew when the other is half a window old. The
 * older one has seen between half a window and a whole one.
 */
#ifndef NT_WINDOW_H
#define NT_WINDOW_H

#include "aggregate.h"
#include "counts.h"

struct nt_window_half {
	struct nt_aggregate stalls;
	struct nt_counts before; /* when it began */
	uint64_t began_ns;       /* CLOCK_MONOTONIC, as all times here */
};

struct nt_window {
	struct nt_window_half halves[2];
	unsigned int older;
};

/* Begins at now_ns, with what the kernel side had counted by then. */
void nt_window_init(struct nt_window *window, size_t max_connections, uint64_t now_ns,
		    const struct nt_counts *counts);
void nt_window_clear(struct nt_window *window);

void nt_window_add(struct nt_window *window, const struct nt_stall *stall);

/* To be called each half a window: the older half begins anew, the other one is the older now. */
void nt_window_turn(struct nt_window *window, uint64_t now_ns, const struct nt_counts *counts);

/* What there is to report. */
const struct nt_window_half *nt_window_older(const struct nt_window *window);

#endif /* NT_WINDOW_H */
