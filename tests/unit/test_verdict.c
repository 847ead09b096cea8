// SPDX-License-Identifier: GPL-2.0
// links:
#include "unit.h"
#include "verdict.h"

#define MSS 1448

/*
 * 100 bytes in flight that are small and not acknowledged, 50 bytes unsent behind them, Nagle on:
 * held. Each test changes one thing. `at` is where the sequence space begins, to be moved over its
 * wrap-around.
 */
static struct nt_tcp_state held_by_nagle_at(uint32_t at)
{
	return (struct nt_tcp_state){
		.snd_una = at,
		.snd_up = at,
		.snd_nxt = at + 100,
		.snd_sml = at + 100,
		.snd_wnd = 65535,
		.snd_cwnd = 10,
		.write_seq = at + 150,
		.packets_out = 1,
		.mss = MSS,
		.has_head = true,
		.head_last = true,
		.head_seq = at + 100,
		.head_end_seq = at + 150,
		.head_len = 50,
		.wstamp_ns = 1000,
		.clock_ns = 2000,
		.tcp_state = 1,
	};
}

static struct nt_tcp_state s;

static int set_up(void **state)
{
	s = held_by_nagle_at(1000);
	return 0;
}

static void set_head(uint32_t len)
{
	s.head_len = len;
	s.head_end_seq = s.head_seq + len;
	s.write_seq = s.head_end_seq;
}

TEST(an_empty_queue_holds_nothing)
{
	s.has_head = false;
	assert_int_equal(nt_verdict(&s), NT_HOLD_INVALID);
}

TEST(nagle_holds_anywhere_and_across_the_wrap_around_of_sequence_numbers)
{
	/* the wrap is far, and lies before, inside and behind what is in flight and what is held */
	static const uint32_t places[] = {0xffffffff, 0xffffff9c, 0xffffff9d,
					  0xffffff6a, 0xffffff80, 0x7fffffff,
					  0x80000000, 0,          1000};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		s = held_by_nagle_at(places[i]);
		assert_int_equal(nt_verdict(&s), NT_HOLD_NAGLE);
		s.snd_una = s.snd_up = s.snd_sml; /* acknowledged */
		assert_int_not_equal(nt_verdict(&s), NT_HOLD_NAGLE);
	}
}

TEST(minshall_sends_behind_full_segments_in_flight)
{
	/* what is in flight is full segments: the last small one was acknowledged long ago */
	s.snd_sml = s.snd_una - 500;
	assert_int_not_equal(nt_verdict(&s), NT_HOLD_NAGLE);
}

TEST(minshall_boundaries)
{
	s.snd_sml = s.snd_una; /* acknowledged to its last byte */
	assert_false(nt_minshall(&s));
	s.snd_sml = s.snd_una + 1;
	assert_true(nt_minshall(&s));
	s.snd_sml = s.snd_nxt;
	assert_true(nt_minshall(&s));
	s.snd_sml = s.snd_nxt + 1; /* a leftover of another age */
	assert_false(nt_minshall(&s));
}

TEST(nothing_in_flight_is_not_held_by_nagle)
{
	s.packets_out = 0;
	assert_int_equal(nt_verdict(&s), NT_HOLD_UNKNOWN);
}

TEST(one_byte_less_than_a_segment_is_held_and_a_full_one_is_not)
{
	set_head(MSS - 1);
	assert_int_equal(nt_verdict(&s), NT_HOLD_NAGLE);
	set_head(MSS);
	assert_int_equal(nt_verdict(&s), NT_HOLD_UNKNOWN);
}

TEST(more_than_a_segment_waits_for_tso_or_the_small_queue)
{
	set_head(MSS + 1);
	assert_int_equal(nt_verdict(&s), NT_HOLD_TSO_DEFER);
	s.throttled = true;
	assert_int_equal(nt_verdict(&s), NT_HOLD_TSQ);
	s.throttled = false;
	s.resuming = true;
	assert_int_equal(nt_verdict(&s), NT_HOLD_TSQ);
}

TEST(a_throttled_segment_that_nagle_lets_pass_is_held_by_the_small_queue)
{
	s.throttled = true;
	assert_int_equal(nt_verdict(&s), NT_HOLD_NAGLE); /* nagle is asked first */
	s.nonagle = s.nonagle_arg = NT_NAGLE_OFF;
	assert_int_equal(nt_verdict(&s), NT_HOLD_TSQ);
	s.throttled = false;
	assert_int_equal(nt_verdict(&s), NT_HOLD_UNKNOWN);
	s.queued_below = true;
	assert_int_equal(nt_verdict(&s), NT_HOLD_TSQ);
}

TEST(what_an_attempt_for_one_segment_leaves_is_not_held)
{
	s.push_one = NT_PUSH_ONE;
	s.nonagle_arg = NT_NAGLE_PUSH; /* tcp_push_one() */
	set_head(MSS);
	assert_int_equal(nt_verdict(&s), NT_HOLD_INVALID);
	set_head(3 * MSS);
	assert_int_equal(nt_verdict(&s), NT_HOLD_INVALID);
	s.queued_below = true; /* the one that it sent */
	assert_int_equal(nt_verdict(&s), NT_HOLD_INVALID);
	s.throttled = true;
	assert_int_equal(nt_verdict(&s), NT_HOLD_TSQ);
	s.packets_out = s.snd_cwnd;
	assert_int_equal(nt_verdict(&s), NT_HOLD_CWND);
}

TEST(a_corked_socket_is_held_by_cork_even_with_nothing_in_flight)
{
	s.nonagle = s.nonagle_arg = NT_NAGLE_CORK;
	s.packets_out = 0;
	assert_int_equal(nt_verdict(&s), NT_HOLD_CORK);
	s.nonagle = s.nonagle_arg = NT_NAGLE_CORK | NT_NAGLE_OFF; /* cork is the stronger */
	assert_int_equal(nt_verdict(&s), NT_HOLD_CORK);
}

TEST(msg_more_is_told_from_cork_and_asked_before_nagle)
{
	s.nonagle_arg = NT_NAGLE_CORK;
	assert_int_equal(nt_verdict(&s), NT_HOLD_MSG_MORE);
	s.nonagle = NT_NAGLE_OFF;
	assert_int_equal(nt_verdict(&s), NT_HOLD_MSG_MORE);
}

TEST(a_forced_push_is_held_by_none_of_them)
{
	s.nonagle_arg = NT_NAGLE_PUSH;
	assert_int_equal(nt_verdict(&s), NT_HOLD_UNKNOWN);
}

TEST(only_the_last_segment_of_the_queue_can_be_held_by_nagle)
{
	s.head_last = false;
	assert_int_equal(nt_verdict(&s), NT_HOLD_UNKNOWN);
	s.nonagle = s.nonagle_arg = NT_NAGLE_CORK;
	assert_int_equal(nt_verdict(&s), NT_HOLD_UNKNOWN);
}

TEST(a_fin_or_urgent_data_passes_nagle)
{
	s.head_fin = true;
	assert_int_equal(nt_verdict(&s), NT_HOLD_UNKNOWN);
	s = held_by_nagle_at(1000);
	s.snd_up = s.snd_una + 1;
	assert_int_equal(nt_verdict(&s), NT_HOLD_UNKNOWN);
}

TEST(the_congestion_window_is_asked_before_nagle)
{
	s.packets_out = 9;
	assert_int_equal(nt_verdict(&s), NT_HOLD_NAGLE);
	s.packets_out = 10;
	assert_int_equal(nt_verdict(&s), NT_HOLD_CWND);
	s.push_one = NT_PUSH_LOSS_PROBE; /* may exceed it by one */
	assert_int_equal(nt_verdict(&s), NT_HOLD_NAGLE);
}

TEST(sacked_and_lost_segments_are_not_in_flight_and_retransmitted_ones_are)
{
	s.packets_out = 12;
	s.left_out = 3;
	assert_int_equal(nt_verdict(&s), NT_HOLD_NAGLE);
	s.retrans_out = 1;
	assert_int_equal(nt_verdict(&s), NT_HOLD_CWND);
}

TEST(the_receive_window_is_asked_before_nagle)
{
	s.snd_wnd = 150; /* ends where the head ends */
	assert_int_equal(nt_verdict(&s), NT_HOLD_NAGLE);
	s.snd_wnd = 149;
	assert_int_equal(nt_verdict(&s), NT_HOLD_RWND);
	s.snd_wnd = 0;
	assert_int_equal(nt_verdict(&s), NT_HOLD_RWND);
}

TEST(of_a_long_head_only_its_first_segment_must_fit_the_receive_window)
{
	set_head(10 * MSS);
	s.snd_wnd = 100 + MSS;
	assert_int_equal(nt_verdict(&s), NT_HOLD_TSO_DEFER);
	s.snd_wnd--;
	assert_int_equal(nt_verdict(&s), NT_HOLD_RWND);
}

TEST(the_receive_window_wraps_too)
{
	s = held_by_nagle_at(0xffffffff - 120);
	s.snd_wnd = 150;
	assert_int_equal(nt_verdict(&s), NT_HOLD_NAGLE);
	s.snd_wnd = 149;
	assert_int_equal(nt_verdict(&s), NT_HOLD_RWND);
}

TEST(pacing_is_asked_first_of_all)
{
	s.pacing = true;
	s.packets_out = 100;
	s.wstamp_ns = s.clock_ns + 1;
	assert_int_equal(nt_verdict(&s), NT_HOLD_PACING);
	s.wstamp_ns = s.clock_ns;
	assert_int_equal(nt_verdict(&s), NT_HOLD_CWND);
	s.wstamp_ns = s.clock_ns + 1;
	s.pacing = false; /* the time is set, but fq does the pacing */
	assert_int_equal(nt_verdict(&s), NT_HOLD_CWND);
}

/* Its timer made the attempt, which asked the socket alone and not the write before. */
TEST(pacing_that_is_over_made_an_attempt_of_its_own)
{
	s.unpushed = true; /* the last write was with MSG_MORE */
	s.pacing = true;
	s.wstamp_ns = s.clock_ns + 5;
	assert_int_equal(nt_verdict_from_state(&s, true, s.wstamp_ns - 1), NT_HOLD_PACING);
	s.nonagle_arg = 0;
	assert_int_equal(nt_verdict_from_state(&s, true, s.wstamp_ns), NT_HOLD_NAGLE);
	assert_int_equal(s.clock_ns, s.wstamp_ns);
	assert_int_equal(nt_verdict_from_state(&s, true, s.wstamp_ns),
			 NT_HOLD_MSG_MORE); /* it did not wait */
	s.nonagle_arg = 0;
	assert_int_equal(nt_verdict_from_state(&s, false, s.wstamp_ns), NT_HOLD_NAGLE);
	s.pacing = false;
	s.wstamp_ns += 5;
	assert_int_equal(nt_verdict_from_state(&s, true, s.wstamp_ns), NT_HOLD_MSG_MORE);
	s.nonagle_arg = 0;
	s.unpushed = false;
	assert_int_equal(nt_verdict_from_state(&s, true, s.wstamp_ns), NT_HOLD_NAGLE);
	s.packets_out = 0;
	assert_int_equal(nt_verdict_from_state(&s, true, s.wstamp_ns), NT_HOLD_UNKNOWN);
	s.pacing = true;
	assert_int_equal(nt_verdict_from_state(&s, true, s.wstamp_ns),
			 NT_HOLD_PACING); /* it is about to make it */
}

UNIT_MAIN_WITH(set_up, NULL)
