// SPDX-License-Identifier: GPL-2.0
// links:
#include "unit.h"
#include "../../bpf/judge.h"

static struct nt_stall_facts f;

/* The textbook stall: 43.9 ms held by Nagle, released by the ACK that the receiver's timer sent. */
static int set_up(void **state)
{
	f = (struct nt_stall_facts){
		.duration_ns = 43900000,
		.silent_ns = 43900000,
		.pending_in_hold_ns = 43800000,
		.delack_limit_ns = 200 * MS,
		.in_flight_bytes = 6,
		.silent_bytes = 6,
		.mss = 1448,
		.way_us = 35,
		.reason = NT_HOLD_NAGLE,
		.release = NT_RELEASE_ACK,
		.late_release = NT_ACK_TIMER,
		.pure_ack = true,
	};
	return 0;
}

static void expect(enum nt_cause cause, enum nt_evidence evidence)
{
	enum nt_evidence got;

	assert_int_equal(nt_stall_cause(&f, &got), cause);
	assert_int_equal(got, evidence);
}

TEST(a_hold_released_by_the_timers_ack_is_a_stall_seen)
{
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_SEEN);
	f.duration_ns = 4 * MS; /* a receiver with a small limit: seen is seen */
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_SEEN);
}

TEST(an_ack_that_carried_data_is_no_stall)
{
	f.pure_ack = false;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	f.late_release = NT_ACK_INVALID;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
}

TEST(only_an_ack_releases_into_a_stall)
{
	for (unsigned int release = NT_RELEASE_FULL_SEGMENT; release < NT_RELEASES; release++) {
		f.release = release;
		expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	}
}

TEST(no_other_reason_is_ever_called_nagle)
{
	for (unsigned int reason = NT_HOLD_CORK; reason < NT_HOLD_REASONS; reason++) {
		f.reason = reason;
		if (reason == NT_HOLD_MSG_MORE || reason == NT_HOLD_CWND ||
		    reason == NT_HOLD_SNDBUF || reason == NT_HOLD_LINGER)
			expect(NT_CAUSE_DELAYED_ACK, NT_EVIDENCE_SEEN);
		else
			expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
		assert_int_equal(nt_may_stall(reason, false), reason <= NT_HOLD_MSG_MORE ||
								      reason == NT_HOLD_SNDBUF ||
								      reason == NT_HOLD_LINGER);
	}
}

TEST(time_is_lost_where_the_program_did_not_take_it)
{
	for (unsigned int release = 0; release < NT_RELEASES; release++) {
		bool waited = release == NT_RELEASE_ACK || release == NT_RELEASE_TIMER ||
			      release == NT_RELEASE_LOSS_PROBE;

		assert_int_equal(nt_costs_time(NT_HOLD_NAGLE, release), waited);
		assert_true(nt_costs_time(NT_HOLD_AUTOCORK, release));
		assert_true(nt_costs_time(NT_HOLD_RWND, release));
		assert_true(nt_costs_time(NT_HOLD_TSQ, release));
		assert_false(nt_costs_time(NT_HOLD_CORK, release));
		assert_false(nt_costs_time(NT_HOLD_SNDBUF, release));
	}
}

TEST(a_congestion_window_stalls_if_little_is_in_flight_and_nothing_lost)
{
	assert_true(nt_may_stall(NT_HOLD_CWND, true));
	assert_false(nt_may_stall(NT_HOLD_RWND, true));
	f.reason = NT_HOLD_CWND;
	f.in_flight_bytes = 2 * f.mss - 1;
	expect(NT_CAUSE_DELAYED_ACK, NT_EVIDENCE_SEEN);
	f.in_flight_bytes++;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	f.in_flight_bytes = 1;
	f.recovering = true;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
}

TEST(from_one_end_it_takes_30_ms_beyond_the_round_trip)
{
	f.late_release = NT_ACK_INVALID;
	f.way_us = 20000;
	f.duration_ns = 50 * MS;
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_INFERRED);
	f.duration_ns--;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
}

TEST(from_one_end_acks_that_keep_coming_explain_the_wait)
{
	f.late_release = NT_ACK_INVALID;
	f.duration_ns = 300 * MS;
	f.silent_ns = 30 * MS;
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_INFERRED);
	f.silent_ns--;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
}

TEST(an_ack_that_was_on_its_way_already_is_not_what_the_hold_waited_for)
{
	f.way_us = 0;
	f.duration_ns = 4 * MS;
	f.pending_in_hold_ns = 2 * MS;
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_SEEN);
	f.pending_in_hold_ns--;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
}

TEST(from_one_end_nobody_delays_the_ack_of_two_full_segments)
{
	f.late_release = NT_ACK_INVALID;
	f.silent_bytes = 2 * 1448 - 1;
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_INFERRED);
	f.silent_bytes++;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	f.late_release = NT_ACK_TIMER; /* a program saw that the receiver's timer fired */
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_SEEN);
}

TEST(from_one_end_a_smaller_limit_in_force_counts)
{
	f.late_release = NT_ACK_INVALID;
	f.way_us = 100;
	f.delack_limit_ns = 5 * MS;
	f.duration_ns = 5 * MS + 100000;
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_INFERRED);
	f.duration_ns--;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	/* unless jitter may be as long */
	f.way_us = 1250;
	f.duration_ns = 10 * MS;
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_INFERRED);
	f.way_us++;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	f.duration_ns = NT_INFER_NS + 2 * MS;
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_INFERRED);
}

TEST(from_one_end_nothing_is_late_before_a_round_trip_was_measured)
{
	f.late_release = NT_ACK_INVALID;
	f.way_us = 0;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	f.late_release = NT_ACK_TIMER;
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_SEEN);
}

TEST(loss_recovery_explains_a_delay_from_one_end)
{
	f.late_release = NT_ACK_INVALID;
	f.duration_ns = 210 * MS;
	f.recovering = true;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
}

TEST(a_pending_ack_that_the_reader_sent_must_have_come_too_late)
{
	f.late_release = NT_ACK_READ;
	f.pending_ns = 30 * MS;
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_SEEN);
	f.pending_ns--;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	f.blurred = true; /* it may have been long enough, and what the sender felt decides */
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_SEEN);
	f.blurred = false;
	/* long, but not for the receiver's sake */
	f.duration_ns = 300 * MS;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
}

TEST(the_ack_of_a_locked_socket_left_later_than_its_timer_says)
{
	f.late_release = NT_ACK_TIMER;
	f.duration_ns = 160 * MS;
	f.pending_in_hold_ns = 40 * MS;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	f.locked = NT_LOCK_SEEN;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	f.locked = NT_LOCK_UNSEEN;
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_SEEN);
	/* written when that ACK was due */
	f.pending_in_hold_ns = 30 * MS - 1;
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	f.pending_in_hold_ns++;
	expect(NT_CAUSE_NAGLE_DELAYED_ACK, NT_EVIDENCE_SEEN);
}

TEST(a_hold_shorter_than_the_round_trip_lost_nothing)
{
	f.duration_ns = 35 * 1000 - 1;
	assert_int_equal(nt_excess_ns(&f), 0);
	f.duration_ns += 2;
	assert_int_equal(nt_excess_ns(&f), 1);
}

TEST(a_prompt_ack_takes_what_is_left_of_a_round_trip)
{
	assert_int_equal(nt_way_us(50000, 0), 50000);
	assert_int_equal(nt_way_us(50000, 20000), 30000);
	/* later, the ACK may have been on its way back already */
	assert_int_equal(nt_way_us(50000, 25000), 25000);
	assert_int_equal(nt_way_us(50000, INT32_MAX), 25000);
	assert_int_equal(nt_way_us(1, INT32_MAX), 1);
	assert_int_equal(nt_way_us(200, -48000), 48200); /* fq keeps them */
	assert_int_equal(nt_way_us(0, -48000), 0);
	assert_int_equal(nt_way_us(0, 20000), 0); /* nobody knows it */
}

TEST(a_cork_that_the_probe_timer_ended_is_a_cork_ceiling)
{
	f.release = NT_RELEASE_TIMER;
	f.late_release = NT_ACK_INVALID;
	f.reason = NT_HOLD_CORK;
	expect(NT_CAUSE_CORK_CEILING, NT_EVIDENCE_SEEN);
	f.reason = NT_HOLD_MSG_MORE;
	expect(NT_CAUSE_CORK_CEILING, NT_EVIDENCE_SEEN);
	f.release = NT_RELEASE_ACK;
	f.late_release = NT_ACK_TIMER;
	expect(NT_CAUSE_DELAYED_ACK, NT_EVIDENCE_SEEN);
	f.silent_bytes = 0; /* nothing was in flight: that ACK is of these bytes themselves */
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	f.release = NT_RELEASE_TIMER;
	f.reason = NT_HOLD_RWND; /* a probe into a closed window */
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
	f.reason = NT_HOLD_CORK;
	f.release = NT_RELEASE_UNCORK; /* long, but as the application wanted it */
	expect(NT_CAUSE_INVALID, NT_EVIDENCE_INVALID);
}

/* sent and received before the hold */
TEST(handshakes_take_turns_and_messages_in_parts_do_not)
{
	assert_true(nt_in_handshake(1, 1));  /* the first answer, in two parts */
	assert_true(nt_in_handshake(2, 3));  /* a TLS server's certificates, a ticket */
	assert_true(nt_in_handshake(4, 4));  /* the same after a hello that it had repeated */
	assert_true(nt_in_handshake(3, 3));  /* a client's hello, Finished, preface of HTTP/2 */
	assert_false(nt_in_handshake(3, 2)); /* the second answer, in two parts */
	assert_false(nt_in_handshake(3, 1)); /* the second request, in two parts */
	assert_false(nt_in_handshake(5, 5));
}

TEST(patterns_are_told_apart)
{
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_NAGLE_DELAYED_ACK),
			 NT_PATTERN_WRITE_WRITE_READ);
	f.writes = 1;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_NAGLE_DELAYED_ACK),
			 NT_PATTERN_WRITE_WRITE_READ);
	f.writes = 2;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_DELAYED_ACK), NT_PATTERN_SEVERAL_WRITES);
	f.unanswered = true;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_NAGLE_DELAYED_ACK), NT_PATTERN_ONE_WAY);
	f.rest = true;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_NAGLE_DELAYED_ACK), NT_PATTERN_REPLY_TAIL);
	f.rest = f.unanswered = false;
	f.in_flight_bytes = f.mss;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_NAGLE_DELAYED_ACK), NT_PATTERN_REPLY_TAIL);
	f.handshake = true;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_NAGLE_DELAYED_ACK),
			 NT_PATTERN_HANDSHAKE_FLIGHT);
	f.handshake = false;
	f.nodelay = true;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_NAGLE_DELAYED_ACK),
			 NT_PATTERN_HANDSHAKE_FLIGHT);
	f.locked = true;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_NAGLE_DELAYED_ACK), NT_PATTERN_LOCKED_SOCKET);
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_CORK_CEILING), NT_PATTERN_CORK_CEILING);
	f.reason = NT_HOLD_AUTOCORK;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_INVALID), NT_PATTERN_AUTOCORK);
	f.reason = NT_HOLD_CWND;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_INVALID), NT_PATTERN_INVALID);
}

/* What released a small segment that did not stall: a prompt ACK, or the peer's next message. */
TEST(an_ack_with_a_late_message_is_no_clock)
{
	f.late_release = NT_ACK_INVALID;
	f.duration_ns = 35000 + NT_INFER_NS - 1;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_INVALID), NT_PATTERN_ACK_CLOCKED);
	f.duration_ns++; /* and something else says that it was no delayed ACK */
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_INVALID), NT_PATTERN_INVALID);
	f.pure_ack = false; /* nobody is sure what it carried */
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_INVALID), NT_PATTERN_INVALID);
	f.ack_with_data = true;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_INVALID), NT_PATTERN_PIGGYBACKED_ACK);
	f.recovering = true; /* loss explains the wait */
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_INVALID), NT_PATTERN_INVALID);
	f.recovering = false;
	f.duration_ns = 35000 + NT_PROMPT_NS;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_INVALID), NT_PATTERN_PIGGYBACKED_ACK);
	f.duration_ns--;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_INVALID), NT_PATTERN_ACK_CLOCKED);
	f.release = NT_RELEASE_PUSH;
	assert_int_equal(nt_hold_pattern(&f, NT_CAUSE_INVALID), NT_PATTERN_INVALID);
}

UNIT_MAIN_WITH(set_up, NULL)
