// SPDX-License-Identifier: GPL-2.0
// links: userspace/summary/window.c userspace/summary/aggregate.c
#include "unit.h"
#include "summary/window.h"

static void what_is_reported_is_half_a_window_old_at_least_and_a_whole_one_at_most(void **state)
{
	struct nt_stall stall = {.side = NT_SIDE_SENDER, .is_stall = true, .duration_ns = 1};
	struct nt_counts counts = {};
	struct nt_window w;

	nt_window_init(&w, 10, 100, &counts);
	nt_window_add(&w, &stall);
	assert_int_equal(nt_window_older(&w)->stalls.stalls, 1);
	assert_int_equal(nt_window_older(&w)->began_ns, 100);

	/* the other half knows the first stall too, and is the older one now */
	counts.totals.writes = 5;
	nt_window_turn(&w, 200, &counts);
	assert_int_equal(nt_window_older(&w)->stalls.stalls, 1);
	assert_int_equal(nt_window_older(&w)->began_ns, 100);
	nt_window_add(&w, &stall);
	assert_int_equal(nt_window_older(&w)->stalls.stalls, 2);

	/* the half that began at 200 has the second stall only */
	counts.totals.writes = 9;
	nt_window_turn(&w, 300, &counts);
	assert_int_equal(nt_window_older(&w)->stalls.stalls, 1);
	assert_int_equal(nt_window_older(&w)->began_ns, 200);
	assert_int_equal(nt_window_older(&w)->before.totals.writes, 5);

	nt_window_turn(&w, 400, &counts);
	assert_int_equal(nt_window_older(&w)->stalls.stalls, 0);
	assert_int_equal(nt_window_older(&w)->began_ns, 300);
	assert_int_equal(nt_window_older(&w)->before.totals.writes, 9);
	nt_window_clear(&w);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_is_reported_is_half_a_window_old_at_least_and_a_whole_one_at_most),
};

UNIT_MAIN(tests)
