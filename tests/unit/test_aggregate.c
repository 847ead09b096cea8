// SPDX-License-Identifier: GPL-2.0
// links: userspace/summary/aggregate.c userspace/summary/groups.c
#include <stdio.h>
#include <stdlib.h>
#include "unit.h"
#include "summary/groups.h"

static struct nt_aggregate a, earlier, later;

static int set_up(void **state)
{
	nt_aggregate_init(&a, NT_MAX_CONNECTIONS);
	return 0;
}

static int tear_down(void **state)
{
	nt_aggregate_clear(&a);
	nt_aggregate_clear(&earlier);
	nt_aggregate_clear(&later);
	return 0;
}

static struct nt_stall stall_of(pid_t tgid, uint16_t port, uint64_t duration_ns)
{
	struct nt_stall stall = {
		.side = NT_SIDE_SENDER,
		.is_stall = true,
		.duration_ns = duration_ns,
		.excess_ns = duration_ns,
	};

	stall.sender.tgid = tgid;
	stall.record.cause = NT_CAUSE_NAGLE_DELAYED_ACK;
	stall.record.evidence = NT_EVIDENCE_SEEN;
	stall.record.pattern = NT_PATTERN_WRITE_WRITE_READ;
	stall.record.sender.tuple.local_port = port;
	return stall;
}

TEST(stalls_of_one_connection_are_summed)
{
	struct nt_stall s = stall_of(1, 10, 40 * MS);

	for (int i = 0; i < 3; i++)
		assert_int_equal(nt_aggregate_add(&a, &s), 0);
	assert_int_equal(nt_aggregate_count(&a), 1);
	assert_int_equal(a.stalls, 3);
	assert_int_equal(a.excess_ns, 120 * MS);
	assert_int_equal(a.connections->count, 3);
	assert_int_equal(a.connections->seen, 3);
	assert_int_equal(nt_connection_pattern(a.connections), NT_PATTERN_WRITE_WRITE_READ);
}

TEST(connections_sides_causes_reasons_and_processes_are_told_apart)
{
	struct nt_stall s = stall_of(1, 10, MS);

	nt_aggregate_add(&a, &s);
	s.record.sender.tuple.local_port = 11;
	nt_aggregate_add(&a, &s);
	s.sender.tgid = 2;
	nt_aggregate_add(&a, &s);
	s.record.cause = NT_CAUSE_CORK_CEILING;
	nt_aggregate_add(&a, &s);
	s.side = NT_SIDE_RECEIVER;
	nt_aggregate_add(&a, &s);
	assert_int_equal(nt_aggregate_count(&a), 5);
	s.record.cause = NT_CAUSE_DELAYED_ACK;
	s.record.hold.reason = NT_HOLD_SNDBUF;
	nt_aggregate_add(&a, &s);
	s.record.hold.reason = NT_HOLD_LINGER;
	nt_aggregate_add(&a, &s);
	assert_int_equal(nt_aggregate_count(&a), 7);
}

TEST(percentiles_are_exact_for_as_many_as_are_kept)
{
	for (int i = 1; i <= 100; i++) {
		struct nt_stall s = stall_of(1, 10, (i * 37 % 101) * MS); /* 1 … 100 in disorder */

		nt_aggregate_add(&a, &s);
	}
	assert_int_equal(nt_percentile(&a.connections, 1, 50), 50 * MS);
	assert_int_equal(nt_percentile(&a.connections, 1, 99), 99 * MS);
	assert_int_equal(nt_percentile(&a.connections, 1, 100), 100 * MS);
	assert_int_equal(a.connections->max_ns, 100 * MS);
}

TEST(percentiles_of_many_are_near)
{
	uint64_t p50;

	for (int i = 0; i < 100000; i++) {
		struct nt_stall s = stall_of(1, 10, (i % 1000) * MS);

		nt_aggregate_add(&a, &s);
	}
	p50 = nt_percentile(&a.connections, 1, 50);
	assert_in_range(p50, 400 * MS, 600 * MS);
}

/* Adds the stalls of durations (ms) from to until to one connection. */
static void add_durations(struct nt_aggregate *a, uint16_t port, int from, int until)
{
	for (int i = from; i < until; i++) {
		struct nt_stall s = stall_of(1, port, i * MS);

		s.record.time_ns = i * NT_SECOND_NS;
		assert_int_equal(nt_aggregate_add(a, &s), 0);
	}
}

TEST(what_is_merged_is_as_if_it_were_added)
{
	struct nt_connection *c;

	nt_aggregate_init(&earlier, 2);
	nt_aggregate_init(&later, 2);
	nt_aggregate_init(&a, 2);
	add_durations(&earlier, 10, 1, 51);
	add_durations(&earlier, 11, 51, 52);
	add_durations(&later, 10, 61, 111);
	nt_aggregate_merge(&a, &earlier);
	nt_aggregate_merge(&a, &later);
	assert_int_equal(a.stalls, 101);
	assert_int_equal(a.excess_ns, earlier.excess_ns + later.excess_ns);
	assert_int_equal(nt_aggregate_count(&a), 2);
	assert_int_equal(a.connections->key.tuple.local_port, 11);
	c = a.connections->hh.next;
	assert_int_equal(c->key.tuple.local_port, 10);
	assert_int_equal(c->count, 100);
	assert_int_equal(c->seen, 100);
	assert_int_equal(c->patterns[NT_PATTERN_WRITE_WRITE_READ], 100);
	assert_int_equal(c->first_ns, NT_SECOND_NS);
	assert_int_equal(c->first_excess_ns, MS);
	assert_int_equal(c->last.record.time_ns, 110 * NT_SECOND_NS);
	assert_int_equal(c->max_ns, 110 * MS);
	assert_int_equal(nt_percentile(&c, 1, 50), 50 * MS);
	assert_int_equal(nt_percentile(&c, 1, 51), 61 * MS);

	/* no more than two connections find room: the least recently stalled one is folded */
	nt_aggregate_clear(&later);
	add_durations(&later, 12, 200, 203);
	nt_aggregate_merge(&a, &later);
	assert_int_equal(nt_aggregate_count(&a), 2);
	assert_int_equal(a.connections->key.tuple.local_port, 10);
	assert_int_equal(a.folded, 1);
	assert_int_equal(a.stalls, 104);
}

TEST(what_stalled_later_too_does_not_make_room_when_merged)
{
	nt_aggregate_init(&earlier, 2);
	nt_aggregate_init(&later, 2);
	add_durations(&earlier, 10, 1, 2);
	add_durations(&earlier, 11, 2, 3);
	add_durations(&later, 10, 3, 4);
	add_durations(&later, 12, 4, 5);
	add_durations(&later, 10, 6, 7); /* 12 is before it in the order */
	nt_aggregate_merge(&earlier, &later);
	assert_int_equal(nt_aggregate_count(&earlier), 2);
	assert_int_equal(earlier.folded, 1);
	assert_int_equal(earlier.connections->key.tuple.local_port, 12);
	assert_int_equal(((struct nt_connection *)earlier.connections->hh.next)->count, 3);
}

/* Adds a stall of each of count connections of one user. */
static void add_connections(struct nt_aggregate *a, uint64_t share, int count)
{
	for (int i = 0; i < count; i++) {
		struct nt_stall s = stall_of(share, i, MS);

		s.record.sender.present = 1;
		s.record.sender.share = share;
		assert_int_equal(nt_aggregate_add(a, &s), 0);
	}
}

TEST(users_share_the_room_of_what_is_merged)
{
	int of_first = 0;

	nt_aggregate_init(&earlier, 10);
	nt_aggregate_init(&later, 10);
	add_connections(&earlier, 1, 10);
	add_connections(&later, 2, 10);
	nt_aggregate_merge(&later, &earlier);
	assert_int_equal(nt_aggregate_count(&later), 10);
	assert_int_equal(later.folded, 10);
	for (struct nt_connection *c = later.connections; c; c = c->hh.next)
		of_first += c->key.tgid == 1;
	assert_int_equal(of_first, 5);
}

TEST(of_more_durations_than_are_kept_each_part_gives_its_share)
{
	uint64_t p75;

	nt_aggregate_init(&earlier, 1);
	nt_aggregate_init(&later, 1);
	add_durations(&earlier, 10, 1000, 4000);
	add_durations(&later, 10, 0, 1000);
	nt_aggregate_merge(&earlier, &later);
	assert_int_equal(nt_percentile(&earlier.connections, 1, 25) < 1000 * MS, true);
	assert_int_equal(nt_percentile(&earlier.connections, 1, 26) >= 1000 * MS, true);
	p75 = nt_percentile(&earlier.connections, 1, 75);
	assert_in_range(p75, 2700 * MS, 3300 * MS);
}

TEST(the_least_recently_stalled_goes_first_and_is_counted)
{
	struct nt_stall list[] = {stall_of(1, 10, MS), stall_of(1, 11, MS), stall_of(1, 12, MS)};

	nt_aggregate_init(&a, 2);
	for (int i = 0; i < 3; i++)
		nt_aggregate_add(&a, &list[0]);
	nt_aggregate_add(&a, &list[1]);
	list[0].record.time_ns = NT_SECOND_NS; /* the order is that of seconds */
	nt_aggregate_add(&a, &list[0]);
	nt_aggregate_add(&a, &list[2]); /* pushes 11 out, which stalled before 10 did last */
	assert_int_equal(nt_aggregate_count(&a), 2);
	assert_int_equal(a.connections->key.tuple.local_port, 10);
	assert_int_equal(a.connections->count, 4);
	assert_int_equal(a.folded, 1);
	nt_aggregate_add(&a, &list[1]); /* pushes 10 out; begins anew */
	assert_int_equal(a.folded, 5);
	assert_int_equal(a.stalls, 7);
	assert_int_equal(a.excess_ns, 7 * MS);
}

TEST(a_million_stalls_take_no_more_memory_than_the_first_thousands)
{
	const int many = 1000000, connections = 5000;
	size_t before = 0;

	for (int i = 0; i < many; i++) {
		struct nt_stall s = stall_of(1 + i % 50, 1 + i % connections, MS);

		assert_int_equal(nt_aggregate_add(&a, &s), 0);
		if (i == many / 100)
			before = __sanitizer_get_current_allocated_bytes();
	}
	assert_true(before > NT_MAX_CONNECTIONS * sizeof(struct nt_connection));
	assert_in_range(__sanitizer_get_current_allocated_bytes(), 1, before);
	assert_int_equal(nt_aggregate_count(&a), NT_MAX_CONNECTIONS);
	assert_int_equal(a.folded, many - NT_MAX_CONNECTIONS);
}

TEST(connections_of_one_user_do_not_push_out_those_of_another)
{
	struct nt_stall mine = stall_of(1, 1, MS), theirs = stall_of(2, 0, MS);
	bool kept = false;

	mine.record.sender.present = theirs.record.sender.present = 1;
	mine.record.sender.share = 1;
	theirs.record.sender.share = 2;
	nt_aggregate_init(&a, 10);
	nt_aggregate_add(&a, &mine);
	for (unsigned int i = 0; i < 1000; i++) {
		theirs.record.sender.tuple.local_port = i;
		nt_aggregate_add(&a, &theirs);
	}
	assert_int_equal(nt_aggregate_count(&a), 10);
	assert_int_equal(a.folded, 991);
	for (struct nt_connection *c = a.connections; c; c = c->hh.next)
		kept |= c->key.tgid == 1;
	assert_true(kept);
	/* of equal shares none takes from the other */
	for (unsigned int i = 0; i < 100; i++) {
		mine.record.sender.tuple.local_port = i;
		nt_aggregate_add(&a, &mine);
	}
	assert_int_equal(a.shares.count[nt_share_place(1)], 5);
	assert_int_equal(a.shares.count[nt_share_place(2)], 5);
}

TEST(the_process_that_lost_most_comes_first)
{
	struct nt_stall stalls[] = {stall_of(1, 10, 30 * MS), stall_of(2, 20, 20 * MS),
				    stall_of(3, 30, 1 * MS), stall_of(2, 21, 25 * MS)};
	const uint16_t order[] = {21, 20, 10, 30};
	struct nt_connection **list;

	assert_null(nt_aggregate_sorted(&a));
	for (size_t i = 0; i < 4; i++)
		nt_aggregate_add(&a, &stalls[i]);
	list = nt_aggregate_sorted(&a);
	assert_non_null(list);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(list[i]->key.tuple.local_port, order[i]);
	free(list);
}

TEST(the_costliest_connection_comes_first_whose_ever_it_is)
{
	struct nt_connection **list;
	struct nt_stall s;

	for (uint16_t port = 1; port <= 10; port++) {
		s = stall_of(1, port, 1000 * MS);
		nt_aggregate_add(&a, &s);
	}
	s = stall_of(2, 1, 9000 * MS);
	nt_aggregate_add(&a, &s);
	list = nt_aggregate_costly(&a);
	assert_int_equal(list[0]->key.tgid, 2);
	assert_int_equal(list[1]->key.tgid, 1);
	free(list);
}

TEST(percentiles_of_all_weigh_each_connection_by_its_stalls)
{
	struct nt_stall few = stall_of(1, 10, 200 * MS), many = stall_of(1, 11, 40 * MS);

	assert_int_equal(nt_aggregate_percentile(&a, 50), 0);
	nt_aggregate_add(&a, &few);
	assert_int_equal(nt_aggregate_percentile(&a, 50), 200 * MS);
	nt_aggregate_add(&a, &many);
	nt_aggregate_add(&a, &many);
	assert_int_equal(nt_aggregate_percentile(&a, 66), 40 * MS);
	assert_int_equal(nt_aggregate_percentile(&a, 67), 200 * MS);
	/* 256 of 1000 durations are kept: each stands for four */
	for (int i = 2; i < 1000; i++)
		nt_aggregate_add(&a, &many);
	for (int i = 1; i < 200; i++)
		nt_aggregate_add(&a, &few);
	assert_int_equal(nt_aggregate_percentile(&a, 83), 40 * MS);
	assert_int_equal(nt_aggregate_percentile(&a, 84), 200 * MS);
}

TEST(a_peer_that_is_gone_by_the_last_stall_keeps_its_name)
{
	struct nt_stall s = stall_of(1, 10, MS);

	s.receiver.tgid = 77;
	nt_aggregate_add(&a, &s);
	s.receiver.tgid = 0;
	nt_aggregate_add(&a, &s);
	assert_int_equal(a.connections->last.receiver.tgid, 77);
	nt_aggregate_clear(&a);

	nt_aggregate_init(&a, NT_MAX_CONNECTIONS);
	s.side = NT_SIDE_RECEIVER;
	s.receiver.tgid = 77;
	nt_aggregate_add(&a, &s);
	s.sender.tgid = 0;
	nt_aggregate_add(&a, &s);
	assert_int_equal(a.connections->key.tgid, 77);
	assert_int_equal(a.connections->last.sender.tgid, 1);
}

static void add_named(struct nt_aggregate *a, const char *comm, pid_t tgid, uint16_t port,
		      unsigned int pattern, uint64_t duration_ns)
{
	struct nt_stall s = stall_of(tgid, port, duration_ns);

	snprintf(s.sender.comm, sizeof(s.sender.comm), "%s", comm);
	s.record.pattern = pattern;
	nt_aggregate_add(a, &s);
}

TEST(connections_with_one_problem_are_one_group)
{
	struct nt_groups groups;

	assert_int_equal(nt_groups_make(&groups, &a), 0);
	assert_int_equal(groups.count, 0);
	nt_groups_free(&groups);
	for (int i = 0; i < 30; i++) /* three processes of ten connections */
		add_named(&a, "git", 1 + i % 3, 100 + i, NT_PATTERN_SEVERAL_WRITES,
			  (i == 17 ? 43 : 40) * MS);
	add_named(&a, "git", 1, 200, NT_PATTERN_REPLY_TAIL, 41 * MS);
	add_named(&a, "java", 9, 300, NT_PATTERN_SEVERAL_WRITES, 1000 * MS);
	add_named(&a, "java", 9, 300, NT_PATTERN_SEVERAL_WRITES, 1000 * MS);
	assert_int_equal(nt_groups_make(&groups, &a), 0);
	assert_int_equal(groups.count, 3);
	assert_int_equal(groups.list[0].count, 1);
	assert_int_equal(groups.list[0].stalls, 2);
	assert_int_equal(groups.list[1].count, 30);
	assert_int_equal(groups.list[1].processes, 3);
	assert_int_equal(groups.list[1].stalls, 30);
	assert_int_equal(groups.list[1].seen, 30);
	assert_int_equal(groups.list[1].excess_ns, 1203 * MS);
	assert_int_equal(groups.list[1].max_ns, 43 * MS);
	assert_int_equal(groups.list[1].pattern, NT_PATTERN_SEVERAL_WRITES);
	assert_int_equal(groups.list[1].connections[0]->key.tuple.local_port, 117);
	assert_int_equal(nt_percentile(groups.list[1].connections, 30, 50), 40 * MS);
	assert_int_equal(nt_percentile(groups.list[1].connections, 30, 99), 43 * MS);
	assert_int_equal(groups.list[2].pattern, NT_PATTERN_REPLY_TAIL);
	nt_groups_free(&groups);
}

UNIT_MAIN_WITH(set_up, tear_down)
