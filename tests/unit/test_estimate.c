// SPDX-License-Identifier: GPL-2.0
// links: userspace/sample/estimate.c
#include <stdlib.h>
#include <string.h>
#include "unit.h"
#include "sample/estimate.h"

static struct nt_sampled held(__u64 sk, uint64_t age_ms)
{
	return (struct nt_sampled){
		.end = {.sk = sk, .present = 1, .min_rtt_us = 100},
		.silent_ns = age_ms * MS,
		.untouched_ns = age_ms * MS,
		.bytes = 7,
		.in_flight_bytes = 6,
		.mss = 1448,
		.reason = NT_HOLD_NAGLE,
	};
}

static struct nt_seen *add(struct nt_estimate *e, const struct nt_sampled *sampled)
{
	struct nt_seen *seen = nt_estimate_add(e, sampled);

	if (seen)
		seen->wanted = NT_WANTED_YES;
	return seen;
}

/* Plays stalls of the same duration with a pause after each, and looks once in each slot of time.
 */
static struct nt_excess play(struct nt_estimate *e, unsigned int stall_us, unsigned int pause_us,
			     unsigned int looks, unsigned int slot_us)
{
	srandom(1);
	for (unsigned int i = 0; i < looks; i++) {
		unsigned long long at = 1ULL * i * slot_us + random() % slot_us;
		unsigned int phase = at % (stall_us + pause_us);
		struct nt_sampled s = held(1, 0);

		e->looks++;
		if (phase >= stall_us)
			continue;
		s.silent_ns = s.untouched_ns = phase * 1000ULL;
		add(e, &s);
	}
	return nt_estimate_excess(e);
}

TEST(the_estimate_is_the_time_lost_each_second)
{
	/* the second and the third rhythm are those of the looks */
	static const unsigned int rounds[][3] = {
		{40000, 4000, 50000},  {40000, 10000, 50000},  {40000, 0, 40000},
		{40000, 60000, 50000}, {44000, 400, 80000},    {30100, 100, 50000},
		{200000, 1000, 50000}, {40000, 360000, 20000},
	};

	for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
		struct nt_estimate e = {};
		struct nt_excess excess = play(&e, rounds[i][0], rounds[i][1], 3000, rounds[i][2]);
		double truth = 1e6 * (rounds[i][0] - 100) / (rounds[i][0] + rounds[i][1]);

		assert_true(excess.us + excess.error_us > truth &&
			    excess.us - excess.error_us < truth);
		assert_true(excess.us > 0.9 * truth && excess.us < 1.1 * truth);
		nt_estimate_clear(&e);
	}
}

TEST(what_was_never_seen_takes_less_than_its_error)
{
	struct nt_estimate e = {.looks = 100};
	struct nt_excess excess = nt_estimate_excess(&e);

	assert_int_equal(excess.us, 0);
	assert_int_equal(excess.error_us, 30000);
	e.looks = 0;
	excess = nt_estimate_excess(&e);
	assert_int_equal(excess.us + excess.error_us, 0);
}

/* Looks that all fall between 15 and 30 ms count double. */
TEST(no_connection_loses_more_than_a_second_a_second)
{
	struct nt_estimate e = {.looks = 3};
	struct nt_sampled one = held(1, 20), other = held(2, 20);

	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(nt_seen_excess(add(&e, &one), 3).us, i ? 1000000 : 666666);
		add(&e, &other);
	}
	assert_int_equal(nt_estimate_excess(&e).us, 2000000);
	nt_estimate_clear(&e);
}

TEST(an_ack_is_late_when_a_prompt_one_would_have_come)
{
	struct nt_sampled s = held(1, 20);

	assert_int_equal(nt_sampled_late_ns(&s), 20 * MS - 100000);
	s.end.min_rtt_us = 19000;
	assert_int_equal(nt_sampled_late_ns(&s), MS);
	s.end.min_rtt_us = 20000;
	assert_int_equal(nt_sampled_late_ns(&s), 0);
	s = held(1, 20);
	s.end.min_rtt_us = 0; /* nobody knows what is late */
	assert_int_equal(nt_sampled_late_ns(&s), 0);
	s = held(1, 20);
	s.recovering = 1;
	assert_int_equal(nt_sampled_late_ns(&s), 0);
	s = held(1, 20);
	s.in_flight_bytes = 2 * s.mss - 1;
	assert_int_not_equal(nt_sampled_late_ns(&s), 0);
	s.in_flight_bytes++; /* no receiver delays the ACK of two full segments */
	assert_int_equal(nt_sampled_late_ns(&s), 0);
}

TEST(only_nagles_holds_are_stalls)
{
	for (unsigned int reason = 0; reason < NT_HOLD_REASONS; reason++) {
		struct nt_sampled s = held(1, 200);
		struct nt_estimate e = {.looks = 1};

		s.reason = reason;
		assert_int_equal(nt_seen_stalls(add(&e, &s)), reason == NT_HOLD_NAGLE);
		assert_int_equal(!!nt_estimate_excess(&e).us, reason == NT_HOLD_NAGLE);
		nt_estimate_clear(&e);
	}
}

TEST(a_look_counts_from_15_ms_on_and_double_up_to_30)
{
	static const struct {
		unsigned int age_us, weight;
	} looks[] = {{1000, 0}, {15099, 0}, {15100, 2}, {30099, 2}, {30100, 1}, {500000, 1}};

	for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
		struct nt_estimate e = {.looks = 1};
		struct nt_sampled s = held(1, 0);

		s.silent_ns = s.untouched_ns = looks[i].age_us * 1000ULL;
		assert_int_equal(nt_seen_late(add(&e, &s)).weight, looks[i].weight);
		nt_estimate_clear(&e);
	}
}

TEST(a_hold_that_may_be_younger_than_the_silence_counts_once)
{
	struct nt_estimate e = {.looks = 1};
	struct nt_sampled s = held(1, 25);

	s.untouched_ns = 5 * MS; /* the application wrote 5 ms ago */
	assert_int_equal(nt_seen_late(add(&e, &s)).weight, 1);
	assert_int_equal(add(&e, &s)->longest_ns, 5 * MS);
	nt_estimate_clear(&e);
}

TEST(a_connection_that_is_often_a_little_late_has_a_slow_path)
{
	struct nt_estimate e = {.looks = 100};
	struct nt_sampled s = held(1, 25); /* less a round trip */
	struct nt_seen *seen = NULL;

	for (int i = 0; i < NT_SEEN_ENOUGH - 1; i++)
		seen = add(&e, &s);
	assert_true(nt_seen_stalls(seen));
	seen = add(&e, &s);
	assert_false(nt_seen_stalls(seen));
	assert_int_equal(nt_estimate_excess(&e).us, 0);
	s = held(1, 26);
	seen = add(&e, &s);
	assert_true(nt_seen_stalls(seen));
	nt_estimate_clear(&e);
}

TEST(a_hold_that_data_ends_is_no_stall)
{
	struct nt_estimate e = {.looks = 100};
	struct nt_sampled s = held(1, 35);
	struct nt_seen *seen;

	seen = add(&e, &s);
	assert_true(nt_seen_stalls(seen)); /* nobody knows what ends it */
	s.silent_ns += MS;
	assert_int_equal(nt_seen_late(add(&e, &s)).looks, 2);
	s.data_came++;
	assert_false(nt_seen_stalls(add(&e, &s)));
	s.data_came++;
	assert_false(nt_seen_stalls(add(&e, &s)));
	assert_int_equal(nt_estimate_excess(&e).us, 0);
	/* this one a delayed ACK ends, and the reply comes after it */
	s.data_came++;
	s.acks_came++;
	seen = add(&e, &s);
	assert_true(nt_seen_stalls(seen));
	assert_int_equal(nt_seen_late(seen).looks, 1);
	assert_int_equal(nt_estimate_excess(&e).us, 10000);
	nt_estimate_clear(&e);
}

TEST(a_connection_that_stalls_is_shown_with_its_stalls)
{
	struct nt_sampled corked = held(1, 180), stalled = held(1, 35);
	struct nt_estimate e = {.looks = 10};
	struct nt_seen *seen;

	corked.reason = NT_HOLD_CORK;
	seen = add(&e, &corked);
	assert_int_equal(seen->last.reason, NT_HOLD_CORK);
	assert_int_equal(seen->longest_ns, 180 * MS);
	add(&e, &stalled);
	add(&e, &corked);
	assert_int_equal(seen->last.reason, NT_HOLD_NAGLE);
	assert_int_equal(seen->longest_ns, 35 * MS);
	assert_int_equal(seen->looks, 3);
	nt_estimate_clear(&e);
}

TEST(sock_diag_tells_a_cork_by_what_it_holds_with_nothing_in_flight)
{
	struct nt_sampled s = held(1, 35), idle = held(1, 100);
	struct nt_estimate e = {.looks = 10};

	idle.reason = NT_HOLD_UNKNOWN;
	idle.in_flight_bytes = 0;
	assert_true(nt_seen_stalls(add(&e, &s)));
	assert_false(nt_seen_stalls(add(&e, &idle)));
	nt_estimate_clear(&e);
}

TEST(what_the_user_did_not_ask_for_does_not_count)
{
	struct nt_estimate e = {.looks = 2};
	struct nt_sampled one = held(1, 35), two = held(2, 35);
	struct nt_seen **list;
	size_t count;

	add(&e, &one);
	add(&e, &two)->wanted = NT_WANTED_NO;
	assert_int_equal(nt_estimate_excess(&e).us, 500000);
	list = nt_estimate_sorted(&e, &count);
	assert_int_equal(count, 1);
	assert_int_equal(list[0]->key.sk, 1);
	free(list);
	nt_estimate_clear(&e);
}

TEST(those_that_lose_most_come_first)
{
	struct nt_estimate e = {.looks = 9};
	struct nt_sampled corked = held(1, 35), once = held(2, 35), twice = held(3, 35);
	struct nt_seen **list;
	size_t count;

	corked.reason = NT_HOLD_CORK;
	for (int i = 0; i < 9; i++)
		add(&e, &corked);
	add(&e, &once);
	add(&e, &twice);
	add(&e, &twice);
	list = nt_estimate_sorted(&e, &count);
	assert_int_equal(count, 3);
	assert_int_equal(list[0]->key.sk, 3);
	assert_int_equal(list[1]->key.sk, 2);
	assert_int_equal(list[2]->key.sk, 1);
	free(list);
	nt_estimate_clear(&e);
}

TEST(memory_is_bounded_and_says_what_it_left_out)
{
	struct nt_estimate e = {.looks = 1};

	for (int i = 0; i < NT_MOST_SEEN + 5; i++) {
		struct nt_sampled s = held(i, 35);

		assert_int_equal(add(&e, &s) != NULL, i < NT_MOST_SEEN);
	}
	assert_int_equal(e.folded, 5);
	nt_estimate_clear(&e);
	assert_null(e.seen);
}

static bool knows(const struct nt_estimate *e, __u64 sk)
{
	const struct nt_seen *seen = e->seen;

	while (seen && seen->key.sk != sk)
		seen = seen->hh.next;
	return seen;
}

/* Connections that nobody asked for make room, and those that never waited for a late ACK. */
TEST(connections_that_lose_no_time_make_room)
{
	struct nt_estimate e = {.looks = 1};
	struct nt_sampled s;

	for (int i = 0; i < NT_MOST_SEEN; i++) {
		s = held(i, i % 2 ? 35 : 1);
		add(&e, &s)->wanted = i == 7 ? NT_WANTED_NO : NT_WANTED_YES;
	}
	for (int i = 0; i < NT_MOST_SEEN / 2 + 3; i++) {
		s = held(NT_MOST_SEEN + i, 35);
		assert_int_equal(add(&e, &s) != NULL, i <= NT_MOST_SEEN / 2);
		assert_true(!knows(&e, 0) && knows(&e, 1) && knows(&e, 7) == (i < 4));
	}
	assert_int_equal(e.folded, 2);
	nt_estimate_clear(&e);
}

static struct nt_sampled corked(uint64_t untouched_ms)
{
	struct nt_sampled s = held(1, 0);

	s.reason = NT_HOLD_CORK;
	s.in_flight_bytes = 0;
	s.untouched_ns = untouched_ms * MS;
	return s;
}

TEST(a_late_ack_or_a_long_cork_is_suspicious)
{
	struct nt_sampled s = held(1, 16);

	assert_true(nt_sampled_is_suspicious(&s));
	assert_int_equal(nt_sampled_weight(&s), 2);
	s = held(1, 15);
	assert_false(nt_sampled_is_suspicious(&s));
	s = held(1, 100);
	s.recovering = 1;
	assert_false(nt_sampled_is_suspicious(&s) || nt_sampled_may_stall_in(&s, 30 * MS));
	s = corked(100);
	assert_true(nt_sampled_is_suspicious(&s));
	assert_int_equal(nt_sampled_weight(&s), 0); /* no delayed ACK's */
	s = corked(99);
	assert_false(nt_sampled_is_suspicious(&s));
	s = held(1, 100);
	s.reason = NT_HOLD_CWND;
	assert_false(nt_sampled_is_suspicious(&s));
}

TEST(a_young_hold_may_look_late_soon_unless_the_path_is_long)
{
	struct nt_sampled s = held(1, 0);

	assert_true(nt_sampled_may_stall_in(&s, 30 * MS));
	s.end.min_rtt_us = 15000;
	assert_true(nt_sampled_may_stall_in(&s, 30 * MS));
	s.end.min_rtt_us = 15001;
	assert_false(nt_sampled_may_stall_in(&s, 30 * MS));
	s.end.min_rtt_us = 0;
	assert_false(nt_sampled_may_stall_in(&s, 30 * MS));
}

UNIT_MAIN()
