// SPDX-License-Identifier: GPL-2.0
// links: userspace/summary/window.c userspace/summary/aggregate.c
#include "unit.h"
#include "summary/window.h"

/* Checks what a report would sum. */
static void check(const struct nt_window *w, uint64_t began_ns, uint64_t stalls, uint64_t writes)
{
	struct nt_window_half recent;

	nt_window_sum(w, &recent);
	assert_int_equal(recent.began_ns, began_ns);
	assert_int_equal(recent.stalls.stalls, stalls);
	assert_int_equal(recent.before.totals.writes, writes);
	nt_aggregate_clear(&recent.stalls);
}

TEST(what_is_reported_is_half_a_window_old_at_least_and_a_whole_one_at_most)
{
	struct nt_stall stall = {.side = NT_SIDE_SENDER, .is_stall = true, .duration_ns = 1};
	struct nt_counts counts = {};
	struct nt_window w;

	nt_window_init(&w, 10, 100, &counts);
	nt_window_add(&w, &stall);
	check(&w, 100, 1, 0);

	counts.totals.writes = 5;
	nt_window_turn(&w, 200, &counts);
	check(&w, 100, 1, 0);
	nt_window_add(&w, &stall);
	check(&w, 100, 2, 0);

	/* the half that began at 200 has the second stall only */
	counts.totals.writes = 9;
	nt_window_turn(&w, 300, &counts);
	check(&w, 200, 1, 5);

	nt_window_turn(&w, 400, &counts);
	check(&w, 300, 0, 9);
	nt_window_clear(&w);
}

UNIT_MAIN()
