// SPDX-License-Identifier: GPL-2.0
// links: userspace/capture/standby.c
#include <stdlib.h>
#include "unit.h"
#include "capture/standby.h"

#define S     (1000 * MS)
#define QUIET (300 * S)
#define US    1000ULL

/* One connection: from begin_ns on it is held for stall_ns, once in each period_ns. */
struct host {
	uint64_t begin_ns, stall_ns, period_ns;
	uint64_t look_cpu_ns;
	uint64_t cpu_ns; /* of all looks */
};

/* A look at that host, as the daemon makes one of it. */
static struct nt_standby_look look_at(struct host *host, uint64_t now_ns)
{
	const uint64_t late_ns = 15 * MS;
	struct nt_standby_look look = {.cpu_ns = host->look_cpu_ns};
	uint64_t age_ns = (now_ns - host->begin_ns) % host->period_ns;

	host->cpu_ns += look.cpu_ns;
	if (now_ns < host->begin_ns || age_ns >= host->stall_ns)
		return look;
	look.suspicious = age_ns >= late_ns;
	look.young = !look.suspicious;
	look.weight = !look.suspicious ? 0 : age_ns < 2 * late_ns ? 2 : 1;
	return look;
}

/* Looks when it is due, until the hooks are to be attached or until_ns. Returns when that was. */
static uint64_t play(struct nt_standby *s, struct host *host, uint64_t until_ns)
{
	while (nt_standby_due_ns(s) < until_ns) {
		uint64_t now = nt_standby_due_ns(s);
		struct nt_standby_look look = look_at(host, now);

		if (nt_standby_looked(s, &look, now))
			return now;
	}
	return until_ns;
}

static struct nt_standby begun(uint64_t seed)
{
	struct nt_standby s;

	nt_standby_begin(&s, QUIET, 10 * S, seed * 0x9e3779b97f4a7c15ULL);
	return s;
}

static struct host host_of(uint64_t stall_ns, uint64_t period_ns)
{
	return (struct host){.begin_ns = 10 * S,
			     .stall_ns = stall_ns,
			     .period_ns = period_ns,
			     .look_cpu_ns = 200 * US};
}

/* ---- the states ---- */

TEST(it_begins_with_nothing_attached)
{
	struct nt_standby s = begun(1);

	assert_int_equal(s.state, NT_STANDBY_WAITING);
	assert_string_equal(nt_standby_word(s.state), "standby");
	assert_string_equal(nt_standby_word(NT_STANDBY_ATTACHED), "attached");
	assert_null(nt_standby_word(NT_STANDBY_OFF));
	assert_true(nt_standby_due_ns(&s) >= 10 * S &&
		    nt_standby_due_ns(&s) < 10 * S + NT_STANDBY_SLOT_NS);
	assert_false(nt_standby_is_quiet(&s, UINT64_MAX));
	assert_int_equal(nt_standby_spent_ns(&s, NT_STANDBY_WAITING, 12 * S), 2 * S);
	assert_int_equal(nt_standby_spent_ns(&s, NT_STANDBY_ATTACHED, 12 * S), 0);
}

TEST(it_detaches_when_it_was_quiet_since_the_last_stall)
{
	struct nt_standby s = begun(1);

	nt_standby_attached(&s, 20 * S);
	assert_int_equal(s.state, NT_STANDBY_ATTACHED);
	assert_int_equal(nt_standby_due_ns(&s), 20 * S + QUIET);
	nt_standby_stalled(&s, 50 * S);
	nt_standby_stalled(&s, 40 * S); /* its record came later */
	assert_false(nt_standby_is_quiet(&s, 50 * S + QUIET - 1));
	assert_true(nt_standby_is_quiet(&s, 50 * S + QUIET));
	assert_int_equal(nt_standby_due_ns(&s), 50 * S + QUIET);
	nt_standby_detached(&s, 50 * S + QUIET);
	assert_int_equal(s.state, NT_STANDBY_WAITING);
	assert_int_equal(s.changes, 2);
	assert_int_equal(s.false_alarms, 0);
	assert_true(nt_standby_due_ns(&s) >= 50 * S + QUIET);
	assert_int_equal(nt_standby_spent_ns(&s, NT_STANDBY_WAITING, 51 * S + QUIET), 11 * S);
	assert_int_equal(nt_standby_spent_ns(&s, NT_STANDBY_ATTACHED, 51 * S + QUIET),
			 30 * S + QUIET);
}

TEST(an_alarm_without_a_stall_is_counted)
{
	struct nt_standby s = begun(1);

	nt_standby_attached(&s, 20 * S);
	assert_true(nt_standby_is_quiet(&s, 20 * S + QUIET));
	nt_standby_detached(&s, 20 * S + QUIET);
	assert_int_equal(s.false_alarms, 1);
	nt_standby_attached(&s, 400 * S);
	nt_standby_stalled(&s, 401 * S);
	nt_standby_detached(&s, 401 * S + QUIET);
	assert_int_equal(s.false_alarms, 1);
	assert_int_equal(s.changes, 4);
}

TEST(a_look_that_fails_counts_for_nothing)
{
	struct nt_standby s = begun(1);

	assert_false(nt_standby_looked(&s, &(struct nt_standby_look){.failed = true}, MS));
	assert_true(s.cannot_look && !s.looks);
	assert_false(nt_standby_looked(&s, &(struct nt_standby_look){}, nt_standby_due_ns(&s)));
	assert_true(!s.cannot_look && s.looks == 1);
	/* what it found before it failed may have the hooks attached, which see */
	assert_true(nt_standby_looked(&s,
				      &(struct nt_standby_look){.failed = true, .suspicious = true},
				      nt_standby_due_ns(&s)));
	nt_standby_attached(&s, S);
	assert_false(s.cannot_look);
}

TEST(what_cannot_be_attached_is_tried_again_only_later)
{
	struct host host = host_of(S, S); /* late at nearly all times */
	struct nt_standby s = begun(1);
	uint64_t first, second;

	first = play(&s, &host, 20 * S);
	assert_true(first < 12 * S);
	nt_standby_attach_failed(&s, first);
	assert_true(s.cannot_attach && !s.cannot_look);
	assert_int_equal(s.state, NT_STANDBY_WAITING);
	second = play(&s, &host, 60 * S);
	assert_true(second >= first + NT_STANDBY_RETRY_NS);
	assert_true(second < first + NT_STANDBY_RETRY_NS + S);
	/* meanwhile the estimate alone tells: nearly a second is lost each second */
	assert_true(s.sampled_excess_ns > 9 * (second - first) / 10);
	nt_standby_attached(&s, second);
	assert_false(s.cannot_attach);
	assert_int_equal(s.attach_failures, 1);
	assert_int_equal(s.changes, 1);
}

TEST(times_in_both_states_add_up_and_never_go_back)
{
	struct nt_standby s = begun(1);
	uint64_t now = 10 * S, before[2] = {};

	srandom(1);
	for (int i = 0; i < 1000; i++) {
		uint64_t waited, attached;

		now += random() % S;
		if (i % 3 == 1)
			nt_standby_attached(&s, now);
		else if (i % 3 == 2)
			nt_standby_detached(&s, now);
		waited = nt_standby_spent_ns(&s, NT_STANDBY_WAITING, now);
		attached = nt_standby_spent_ns(&s, NT_STANDBY_ATTACHED, now);
		assert_int_equal(waited + attached, now - 10 * S);
		assert_true(waited >= before[0] && attached >= before[1]);
		before[0] = waited;
		before[1] = attached;
	}
	assert_int_equal(s.changes, 666);
}

/* ---- how soon it finds what ---- */

/* Returns the share of hosts on which the stalls are found within that time. */
static double found_within(uint64_t stall_ns, uint64_t period_ns, uint64_t look_cpu_ns,
			   uint64_t within_ns)
{
	const unsigned int hosts = 4000;
	unsigned int found = 0;

	for (unsigned int i = 0; i < hosts; i++) {
		struct nt_standby s = begun(i + 1);
		struct host host = host_of(stall_ns, period_ns);

		host.look_cpu_ns = look_cpu_ns;
		/* they begin when they like */
		host.begin_ns += (i * 7919ULL * MS) % (30 * S);
		found += play(&s, &host, host.begin_ns + within_ns) < host.begin_ns + within_ns;
	}
	return 1.0 * found / hosts;
}

TEST(a_connection_that_stalls_on_each_request_is_found_within_two_seconds)
{
	assert_true(found_within(40 * MS, 41 * MS, 200 * US, 2 * S) > 0.999);
	/* it thinks for 10 ms between two requests */
	assert_true(found_within(40 * MS, 50 * MS, 200 * US, 2 * S) > 0.99);
}

TEST(one_stall_a_second_is_found_within_a_minute)
{
	double fast = found_within(40 * MS, 1009 * MS, 200 * US, 60 * S);
	double slow = found_within(40 * MS, 1009 * MS, MS, 60 * S);
	double slower = found_within(40 * MS, 1009 * MS, 10 * MS, 60 * S);

	print_message(
		"found in 60 s: %.3f with two looks a second, %.3f with one, %.3f with one in 10 s\n",
		fast, slow, slower);
	/* 1 - 0.96^120 = 0.993 */
	assert_true(fast > 0.985);
	/* a look takes 1 ms, so one in a second has to do: 1 - 0.96^60 = 0.91 */
	assert_true(slow > 0.9);
	/* a host of 20,000 sockets: 1 - 0.96^6 = 0.22 */
	assert_true(slower > 0.15 && slower < 0.35);
}

TEST(stalls_in_step_with_the_looks_are_found_too)
{
	assert_true(found_within(40 * MS, NT_STANDBY_SLOT_NS, 200 * US, 60 * S) > 0.99);
	assert_true(found_within(40 * MS, 2 * NT_STANDBY_SLOT_NS, 200 * US, 60 * S) > 0.985);
}

/* ---- what it costs, and what it estimates ---- */

TEST(looks_take_less_than_a_thousandth_of_a_cpu)
{
	static const uint64_t costs[] = {50 * US, 450 * US, MS, 20 * MS, 300 * MS};

	for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++) {
		/* each look is followed by two more: there is always a young hold */
		struct host host = host_of(14 * MS, 14 * MS);
		struct nt_standby s = begun(i + 1);

		host.look_cpu_ns = costs[i];
		assert_int_equal(play(&s, &host, 20000 * S), 20000 * S);
		/* but for the first slot, whose cost nobody knows */
		assert_true(1000 * (host.cpu_ns - 3 * costs[i]) <= 20000 * S);
		assert_int_equal(s.look_cpu_ns, host.cpu_ns);
		assert_int_equal(s.looks * costs[i], host.cpu_ns);
		if (costs[i] < 100 * US) /* two slots a second, of three looks each */
			assert_in_range(s.looks, 6 * 19900, 6 * 20000);
	}
}

TEST(a_young_hold_is_looked_at_again_soon_and_not_for_ever)
{
	struct nt_standby_look young = {.young = true, .cpu_ns = 100 * US};
	struct nt_standby s = begun(3);
	uint64_t at = nt_standby_due_ns(&s);

	for (int i = 1; i <= NT_STANDBY_AGAIN_TIMES; i++) {
		assert_false(nt_standby_looked(&s, &young, at));
		assert_int_equal(nt_standby_due_ns(&s), at + NT_STANDBY_AGAIN_NS);
		at = nt_standby_due_ns(&s);
	}
	assert_false(nt_standby_looked(&s, &young, at));
	assert_true(nt_standby_due_ns(&s) >= 10 * S + NT_STANDBY_SLOT_NS);
	assert_int_equal(s.looks, 1 + NT_STANDBY_AGAIN_TIMES);
	assert_int_equal(s.sampled_excess_ns, 0);
}

/* In the mean looks estimate what is lost until the hooks are attached, and half a slot after. */
static double host_share(uint64_t period_ns)
{
	return 40.0 * MS / period_ns;
}

TEST(the_estimate_until_it_attaches_is_right_in_the_mean)
{
	static const uint64_t periods[] = {41 * MS, 200 * MS, 1009 * MS};

	for (size_t i = 0; i < sizeof(periods) / sizeof(periods[0]); i++) {
		double lost = 0, estimated = 0, half_a_slot;

		for (unsigned int n = 0; n < 20000; n++) {
			struct nt_standby s = begun(n + 1);
			struct host host = host_of(40 * MS, periods[i]);
			uint64_t end;

			host.begin_ns = 11 * S;
			end = play(&s, &host, 100000 * S);
			lost += 1.0 * (end - host.begin_ns) * host.stall_ns / host.period_ns;
			estimated += s.sampled_excess_ns;
		}
		print_message("lost until attached: %.0f ms, estimated %.0f ms\n",
			      lost / 20000 / MS, estimated / 20000 / MS);
		half_a_slot = 20000.0 * NT_STANDBY_SLOT_NS / 2 * host_share(periods[i]);
		assert_true(estimated > 0.95 * lost && estimated < 1.05 * (lost + half_a_slot));
	}
}

UNIT_MAIN()
