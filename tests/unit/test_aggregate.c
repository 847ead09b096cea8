// SPDX-License-Identifier: GPL-2.0
// links: userspace/aggregate.c
#include <string.h>
#include "unit.h"
#include "aggregate.h"

#define MS 1000000ULL

static struct nt_stall stall_of(pid_t tgid, uint16_t port, uint64_t duration_ns)
{
	struct nt_stall stall = {
		.side = NT_SIDE_SENDER,
		.is_stall = true,
		.duration_ns = duration_ns,
		.excess_ns = duration_ns,
	};

	stall.self.tgid = tgid;
	stall.record.cause = NT_CAUSE_NAGLE_DELAYED_ACK;
	stall.record.evidence = NT_EVIDENCE_SEEN;
	stall.record.pattern = NT_PATTERN_WRITE_WRITE_READ;
	stall.record.sender.tuple.local_port = port;
	return stall;
}

static void stalls_of_one_connection_are_summed(void **state)
{
	struct nt_aggregate a;
	struct nt_stall s = stall_of(1, 10, 40 * MS);

	(void)state;
	nt_aggregate_init(&a);
	for (int i = 0; i < 3; i++)
		assert_int_equal(nt_aggregate_add(&a, &s), 0);
	assert_int_equal(a.count, 1);
	assert_int_equal(a.stalls, 3);
	assert_int_equal(a.lost_ns, 120 * MS);
	assert_int_equal(a.connections[0]->count, 3);
	assert_int_equal(a.connections[0]->seen, 3);
	assert_int_equal(nt_connection_pattern(a.connections[0]), NT_PATTERN_WRITE_WRITE_READ);
	nt_aggregate_clear(&a);
}

static void connections_sides_causes_and_processes_are_told_apart(void **state)
{
	struct nt_aggregate a;
	struct nt_stall s = stall_of(1, 10, MS);

	(void)state;
	nt_aggregate_init(&a);
	nt_aggregate_add(&a, &s);
	s.record.sender.tuple.local_port = 11;
	nt_aggregate_add(&a, &s);
	s.self.tgid = 2;
	nt_aggregate_add(&a, &s);
	s.record.cause = NT_CAUSE_CORK_CEILING;
	nt_aggregate_add(&a, &s);
	s.side = NT_SIDE_RECEIVER;
	nt_aggregate_add(&a, &s);
	assert_int_equal(a.count, 5);
	nt_aggregate_clear(&a);
}

static void percentiles_are_exact_for_as_many_as_are_kept(void **state)
{
	struct nt_aggregate a;

	(void)state;
	nt_aggregate_init(&a);
	for (int i = 1; i <= 100; i++) {
		struct nt_stall s = stall_of(1, 10, (i * 37 % 101) * MS); /* 1 … 100 in disorder */

		nt_aggregate_add(&a, &s);
	}
	assert_int_equal(nt_connection_percentile(a.connections[0], 50), 50 * MS);
	assert_int_equal(nt_connection_percentile(a.connections[0], 99), 99 * MS);
	assert_int_equal(nt_connection_percentile(a.connections[0], 100), 100 * MS);
	assert_int_equal(a.connections[0]->max_ns, 100 * MS);
	nt_aggregate_clear(&a);
}

static void percentiles_of_many_are_near(void **state)
{
	struct nt_aggregate a;
	uint64_t p50;

	(void)state;
	nt_aggregate_init(&a);
	for (int i = 0; i < 100000; i++) {
		struct nt_stall s = stall_of(1, 10, (i % 1000) * MS);

		nt_aggregate_add(&a, &s);
	}
	p50 = nt_connection_percentile(a.connections[0], 50);
	assert_in_range(p50, 400 * MS, 600 * MS);
	nt_aggregate_clear(&a);
}

static void memory_is_bounded_and_what_is_folded_is_counted(void **state)
{
	struct nt_aggregate a;

	(void)state;
	nt_aggregate_init(&a);
	for (int i = 0; i < NT_MAX_CONNECTIONS + 5; i++) {
		struct nt_stall s = stall_of(1, i, MS);

		assert_int_equal(nt_aggregate_add(&a, &s), 0);
	}
	assert_int_equal(a.count, NT_MAX_CONNECTIONS);
	assert_int_equal(a.folded, 5);
	assert_int_equal(a.stalls, NT_MAX_CONNECTIONS + 5);
	assert_int_equal(a.lost_ns, (NT_MAX_CONNECTIONS + 5) * MS);
	nt_aggregate_clear(&a);
}

static void the_process_that_lost_most_comes_first(void **state)
{
	struct nt_stall list[] = {stall_of(1, 10, 30 * MS), stall_of(2, 20, 20 * MS),
				  stall_of(2, 21, 25 * MS), stall_of(3, 30, 1 * MS)};
	struct nt_aggregate a;

	(void)state;
	nt_aggregate_init(&a);
	for (size_t i = 0; i < 4; i++)
		nt_aggregate_add(&a, &list[i]);
	nt_aggregate_sort(&a);
	assert_int_equal(a.connections[0]->last.record.sender.tuple.local_port, 21);
	assert_int_equal(a.connections[1]->last.record.sender.tuple.local_port, 20);
	assert_int_equal(a.connections[2]->last.self.tgid, 1);
	assert_int_equal(a.connections[3]->last.self.tgid, 3);
	nt_aggregate_clear(&a);
}

static void a_peer_that_is_gone_by_the_last_stall_keeps_its_name(void **state)
{
	struct nt_aggregate a;
	struct nt_stall s = stall_of(1, 10, MS);

	(void)state;
	nt_aggregate_init(&a);
	s.peer.tgid = 77;
	nt_aggregate_add(&a, &s);
	s.peer.tgid = 0;
	nt_aggregate_add(&a, &s);
	assert_int_equal(a.connections[0]->last.peer.tgid, 77);
	nt_aggregate_clear(&a);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(stalls_of_one_connection_are_summed),
	cmocka_unit_test(connections_sides_causes_and_processes_are_told_apart),
	cmocka_unit_test(percentiles_are_exact_for_as_many_as_are_kept),
	cmocka_unit_test(percentiles_of_many_are_near),
	cmocka_unit_test(memory_is_bounded_and_what_is_folded_is_counted),
	cmocka_unit_test(the_process_that_lost_most_comes_first),
	cmocka_unit_test(a_peer_that_is_gone_by_the_last_stall_keeps_its_name),
};

UNIT_MAIN(tests)
