// SPDX-License-Identifier: GPL-2.0
// links: userspace/summary/series.c
#include <stdio.h>
#include <string.h>
#include "unit.h"
#include "summary/series.h"

#define MINUTE (60 * 1000 * MS)

static struct nt_stall stall_of(const char *comm, uint64_t duration_ns)
{
	struct nt_stall stall = {
		.side = NT_SIDE_SENDER,
		.is_stall = true,
		.duration_ns = duration_ns,
		.excess_ns = duration_ns / 2,
	};

	stall.sender.tgid = 1;
	strncpy(stall.sender.comm, comm, sizeof(stall.sender.comm) - 1);
	strcpy(stall.sender.cgroup, "/a.slice");
	stall.record.cause = NT_CAUSE_NAGLE_DELAYED_ACK;
	stall.record.evidence = NT_EVIDENCE_SEEN;
	return stall;
}

TEST(a_bound_belongs_to_its_bucket)
{
	static const uint64_t bounds_ms[] = {1,  5,   10,  20,  30,  35,  40,   45,  50,
					     75, 100, 150, 200, 250, 500, 1000, 2000};
	struct nt_series_set set;

	assert_int_equal(NT_BUCKETS, sizeof(bounds_ms) / sizeof(bounds_ms[0]));
	for (size_t i = 0; i < NT_BUCKETS; i++) {
		struct nt_stall below = stall_of("x", bounds_ms[i] * MS - 1);
		struct nt_stall at = stall_of("x", bounds_ms[i] * MS);
		struct nt_stall above = stall_of("x", bounds_ms[i] * MS + 1);

		nt_series_init(&set, 10, false);
		nt_series_add(&set, &below, 1);
		nt_series_add(&set, &at, 1);
		nt_series_add(&set, &above, 1);
		assert_int_equal(set.list->buckets[i], 2);
		if (i + 1 < NT_BUCKETS)
			assert_int_equal(set.list->buckets[i + 1], 1);
		assert_int_equal(set.list->stalls, 3);
		assert_int_equal(set.list->duration_ns, 3 * bounds_ms[i] * MS);
		nt_series_clear(&set);
	}
}

TEST(label_sets_are_told_apart)
{
	struct nt_stall s = stall_of("x", 40 * MS);
	struct nt_series_set set;

	nt_series_init(&set, 10, false);
	nt_series_add(&set, &s, 1);
	strcpy(s.sender.cgroup, "/b.slice"); /* not asked for */
	nt_series_add(&set, &s, 1);
	assert_int_equal(nt_series_count(&set), 1);
	s.side = NT_SIDE_RECEIVER;
	s.receiver = s.sender;
	nt_series_add(&set, &s, 1);
	s.record.cause = NT_CAUSE_CORK_CEILING;
	nt_series_add(&set, &s, 1);
	s.record.hold.reason = NT_HOLD_MSG_MORE; /* which this cause does not tell apart */
	nt_series_add(&set, &s, 1);
	s.record.evidence = NT_EVIDENCE_INFERRED;
	nt_series_add(&set, &s, 1);
	s.receiver.tgid = 0; /* its name is not known then */
	nt_series_add(&set, &s, 1);
	assert_int_equal(nt_series_count(&set), 5);
	s.record.cause = NT_CAUSE_DELAYED_ACK;
	nt_series_add(&set, &s, 1);
	s.record.hold.reason = NT_HOLD_SNDBUF;
	nt_series_add(&set, &s, 1);
	assert_int_equal(nt_series_count(&set), 7);
	nt_series_clear(&set);

	nt_series_init(&set, 10, true);
	s = stall_of("x", 40 * MS);
	nt_series_add(&set, &s, 1);
	strcpy(s.sender.cgroup, "/b.slice");
	nt_series_add(&set, &s, 1);
	assert_int_equal(nt_series_count(&set), 2);
	/* with cgroup v1 the path is the same for all */
	strcpy(s.sender.container.id, "6d1f");
	nt_series_add(&set, &s, 1);
	strcpy(s.sender.container.pod_uid, "3f2a");
	nt_series_add(&set, &s, 1);
	nt_series_add(&set, &s, 1);
	assert_int_equal(nt_series_count(&set), 4);
	nt_series_clear(&set);
}

TEST(a_name_is_what_stands_before_its_nul)
{
	struct nt_stall a = stall_of("x", MS), b = stall_of("x", MS);
	struct nt_series_set set;

	memset(b.sender.comm + 2, 'y', 5); /* left over from a longer name */
	nt_series_init(&set, 10, false);
	nt_series_add(&set, &a, 1);
	nt_series_add(&set, &b, 1);
	assert_int_equal(nt_series_count(&set), 1);
	nt_series_clear(&set);
}

TEST(beyond_the_limit_new_ones_are_others_and_counted)
{
	struct nt_stall of_that_name = stall_of("other", 40 * MS);
	struct nt_series_set set;
	char name[16];

	nt_series_init(&set, 100, false);
	for (int i = 0; i < 5000; i++) {
		struct nt_stall s = stall_of("", 40 * MS);

		snprintf(name, sizeof(name), "p%d", i);
		strcpy(s.sender.comm, name);
		nt_series_add(&set, &s, 1);
	}
	assert_int_equal(nt_series_count(&set), 100);
	assert_int_equal(set.folded, 4900);
	assert_int_equal(set.evicted, 0);
	assert_int_equal(set.others[NT_HOLD_NAGLE][0][NT_EVIDENCE_SEEN].stalls, 4900);
	assert_string_equal(set.others[NT_HOLD_NAGLE][0][NT_EVIDENCE_SEEN].key.comm, "other");
	nt_series_add(&set, &of_that_name, 1);
	assert_int_equal(set.others[NT_HOLD_NAGLE][0][NT_EVIDENCE_SEEN].stalls, 4901);
	assert_int_equal(set.folded, 4900);
	nt_series_clear(&set);
}

TEST(one_that_was_idle_makes_room_the_least_recent_first)
{
	struct nt_stall a = stall_of("a", MS), b = stall_of("b", MS), c = stall_of("c", MS);
	struct nt_series_set set;

	nt_series_init(&set, 2, false);
	nt_series_add(&set, &a, 0);
	nt_series_add(&set, &b, 1 * MINUTE);
	nt_series_add(&set, &a, 2 * MINUTE);
	nt_series_add(&set, &c, 16 * MINUTE - 1); /* b has a moment left */
	assert_int_equal(set.folded, 1);
	assert_int_equal(set.evicted, 0);
	nt_series_add(&set, &c, 16 * MINUTE);
	assert_int_equal(set.folded, 1);
	assert_int_equal(set.evicted, 1);
	assert_string_equal(set.list->key.comm, "a");
	assert_int_equal(set.list->stalls, 2);
	nt_series_clear(&set);
}

static struct nt_stall stall_by(uint64_t share, unsigned int name)
{
	char comm[NT_COMM_LEN];
	struct nt_stall stall;

	snprintf(comm, sizeof(comm), "%c%u", share == 1 ? 'a' : 'b', name);
	stall = stall_of(comm, 40 * MS);
	stall.record.sender.present = 1;
	stall.record.sender.share = share;
	return stall;
}

static bool has(const struct nt_series_set *set, const char *comm)
{
	for (const struct nt_series *s = set->list; s; s = s->hh.next)
		if (!strcmp(s->key.comm, comm))
			return true;
	return false;
}

TEST(names_of_one_user_do_not_push_out_those_of_another)
{
	struct nt_series_set set;
	struct nt_stall s;

	nt_series_init(&set, 10, false);
	for (unsigned int i = 0; i < 100; i++) {
		s = stall_by(1, i);
		nt_series_add(&set, &s, i);
	}
	assert_int_equal(set.folded, 90);
	for (unsigned int i = 0; i < 3; i++) {
		s = stall_by(2, i);
		nt_series_add(&set, &s, 200);
	}
	assert_int_equal(set.folded, 90);
	assert_int_equal(set.evicted, 3);
	for (unsigned int i = 0; i < 100; i++) {
		s = stall_by(1, 100 + i);
		nt_series_add(&set, &s, 300);
	}
	assert_int_equal(set.folded, 190);
	assert_int_equal(nt_series_count(&set), 10);
	assert_true(has(&set, "b0") && has(&set, "b1") && has(&set, "b2"));
	/* at most as many as the other has */
	for (unsigned int i = 3; i < 100; i++) {
		s = stall_by(2, i);
		nt_series_add(&set, &s, 400);
	}
	assert_int_equal(set.evicted, 5);
	assert_false(has(&set, "a4"));
	assert_true(has(&set, "a5") && has(&set, "a9"));
	nt_series_clear(&set);
}

UNIT_MAIN()
