// SPDX-License-Identifier: GPL-2.0
// links: userspace/attach/counts.c userspace/output/slow.c userspace/output/advice.c userspace/base/text.c
// links: userspace/terms/words.c
#include <stdio.h>
#include <string.h>
#include "unit.h"
#include "../../bpf/judge.h"
#include "output/slow.h"

static void add(struct nt_counts *counts, const char *comm, unsigned int reason, uint64_t holds,
		uint64_t ms)
{
	struct nt_slow_row *row = &counts->slow[counts->n_slow++];

	strcpy(row->key.comm, comm);
	row->key.reason = reason;
	row->slow =
		(struct nt_slow){.holds = holds, .duration_ns = ms * MS, .since_ns = 1, .tgid = 7};
}

TEST(the_most_time_comes_first_and_less_than_the_least_is_left_out)
{
	static const uint64_t ms[] = {9, 40, 10, 70, 30, 60, 50};
	const struct nt_slow_row *chosen[NT_SLOW_ROWS];
	struct nt_counts counts = {0};

	for (size_t i = 0; i < sizeof(ms) / sizeof(ms[0]); i++)
		add(&counts, "x", NT_HOLD_NAGLE, 1, ms[i]);
	assert_int_equal(nt_slow_choose(&counts, 10 * MS, chosen), NT_SLOW_SHOWN);
	for (size_t i = 0; i < NT_SLOW_SHOWN; i++)
		assert_int_equal(chosen[i]->slow.duration_ns, (70 - 10 * i) * MS);
	counts.n_slow = 3;
	assert_int_equal(nt_slow_choose(&counts, 10 * MS, chosen), 2);
	assert_int_equal(chosen[1]->slow.duration_ns, 10 * MS);
}

TEST(a_report_of_an_interval_has_what_came_in_it)
{
	struct nt_counts before = {0}, counts = {0};

	add(&before, "same", NT_HOLD_NAGLE, 3, 60);
	add(&before, "more", NT_HOLD_NAGLE, 3, 60);
	add(&before, "anew", NT_HOLD_NAGLE, 9, 60);
	add(&counts, "more", NT_HOLD_RWND, 1, 200);
	add(&counts, "more", NT_HOLD_NAGLE, 5, 100);
	add(&counts, "same", NT_HOLD_NAGLE, 3, 60);
	add(&counts, "anew", NT_HOLD_NAGLE, 1, 70);
	counts.slow[counts.n_slow - 1].slow.since_ns = 2;
	nt_counts_subtract(&counts, &before);
	assert_int_equal(counts.n_slow, 3);
	assert_int_equal(counts.slow[2].slow.holds, 1);
	assert_int_equal(counts.slow[2].slow.duration_ns, 70 * MS);
	assert_int_equal(counts.slow[0].slow.holds, 1);
	assert_int_equal(counts.slow[1].slow.holds, 2);
	assert_int_equal(counts.slow[1].slow.duration_ns, 40 * MS);
}

TEST(each_reason_that_is_counted_has_its_advice)
{
	char text[NT_SLOW_TEXT], name[64];
	struct nt_counts counts = {0};

	for (unsigned int reason = 1; reason < NT_HOLD_REASONS; reason++) {
		if (!nt_costs_time(reason, NT_RELEASE_ACK))
			continue;
		add(&counts, "a\nb", reason, 1, 100);
		nt_slow_advise(&counts.slow[counts.n_slow - 1], text);
		assert_true(strlen(text) > 20);
	}
	assert_int_equal(counts.n_slow, 7);
	nt_slow_name(&counts.slow[0], name, sizeof(name));
	assert_string_equal(name, "a\\x0ab[7]");
	counts.slow[0].slow.tgid = 0;
	nt_slow_name(&counts.slow[0], name, sizeof(name));
	assert_string_equal(name, "a\\x0ab");
}

TEST(a_window_is_small_or_closed)
{
	struct nt_slow_row row = {.key.reason = NT_HOLD_RWND, .slow.mss = 1448};
	char text[NT_SLOW_TEXT];

	nt_slow_advise(&row, text);
	assert_non_null(strstr(text, "reads more slowly"));
	row.slow.window = 1000;
	nt_slow_advise(&row, text);
	assert_non_null(strstr(text, "smaller than a segment"));
}

UNIT_MAIN()
