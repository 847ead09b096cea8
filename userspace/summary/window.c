// SPDX-License-Identifier: GPL-2.0
#include "summary/window.h"

static void begin(struct nt_window_half *half, uint64_t now_ns, const struct nt_counts *counts)
{
	nt_aggregate_clear(&half->stalls);
	half->before = *counts;
	half->began_ns = now_ns;
}

void nt_window_init(struct nt_window *window, size_t max_connections, uint64_t now_ns,
		    const struct nt_counts *counts)
{
	window->older = 0;
	for (size_t i = 0; i < 2; i++) {
		nt_aggregate_init(&window->halves[i].stalls, max_connections);
		begin(&window->halves[i], now_ns, counts);
	}
}

void nt_window_clear(struct nt_window *window)
{
	for (size_t i = 0; i < 2; i++)
		nt_aggregate_clear(&window->halves[i].stalls);
}

void nt_window_add(struct nt_window *window, const struct nt_stall *stall)
{
	nt_aggregate_add(&window->halves[!window->older].stalls, stall);
}

void nt_window_turn(struct nt_window *window, uint64_t now_ns, const struct nt_counts *counts)
{
	struct nt_window_half *older = &window->halves[window->older];

	window->older = !window->older;
	begin(older, now_ns, counts);
}

void nt_window_sum(const struct nt_window *window, struct nt_window_half *recent)
{
	const struct nt_window_half *older = &window->halves[window->older];

	recent->before = older->before;
	recent->began_ns = older->began_ns;
	nt_aggregate_init(&recent->stalls, older->stalls.most);
	nt_aggregate_merge(&recent->stalls, &older->stalls);
	nt_aggregate_merge(&recent->stalls, &window->halves[!window->older].stalls);
}
