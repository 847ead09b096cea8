/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The stalls of late: two aggregates, of which each begins anew when the other is half a window
 * old. So the older one covers between half a window and a whole one.
 */
#ifndef NT_WINDOW_H
#define NT_WINDOW_H

#include "summary/aggregate.h"
#include "attach/counts.h"

struct nt_window_half {
	struct nt_aggregate stalls;
	struct nt_counts before; /* the counts when it began */
	uint64_t began_ns;       /* CLOCK_MONOTONIC, as all times here */
};

struct nt_window {
	struct nt_window_half halves[2];
	unsigned int older;
};

/* Begins the window at now_ns; counts are those of the kernel side at that time. */
void nt_window_init(struct nt_window *window, size_t max_connections, uint64_t now_ns,
		    const struct nt_counts *counts);
void nt_window_clear(struct nt_window *window);

void nt_window_add(struct nt_window *window, const struct nt_stall *stall);

/*
 * The older half begins anew, and the other one becomes the older. The caller calls this each half
 * a window.
 */
void nt_window_turn(struct nt_window *window, uint64_t now_ns, const struct nt_counts *counts);

/* Returns the half to report. */
const struct nt_window_half *nt_window_older(const struct nt_window *window);

#endif /* NT_WINDOW_H */
