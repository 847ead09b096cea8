/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The stalls of late: those of the present half of a window, and of the half before. Together they
 * cover between half a window and a whole one.
 */
#pragma once

#include "summary/aggregate.h"
#include "attach/counts.h"

struct nt_window_half {
	struct nt_aggregate stalls;
	struct nt_counts before; /* what the kernel side had counted when it began */
	uint64_t began_ns;       /* CLOCK_MONOTONIC, as all times here */
};

struct nt_window {
	struct nt_window_half halves[2];
	unsigned int older; /* the place of the half before */
};

/* Begins the window at now_ns; counts are those of the kernel side at that time. */
void nt_window_init(struct nt_window *window, size_t max_connections, uint64_t now_ns,
		    const struct nt_counts *counts);
void nt_window_clear(struct nt_window *window);

void nt_window_add(struct nt_window *window, const struct nt_stall *stall);

/* Begins the next half: the present one becomes the half before. The caller calls it each half a
 * window. */
void nt_window_turn(struct nt_window *window, uint64_t now_ns, const struct nt_counts *counts);

/* Sums both halves into *recent, which begins where the half before began. The caller clears
 * recent->stalls. */
void nt_window_sum(const struct nt_window *window, struct nt_window_half *recent);
