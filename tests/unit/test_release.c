// SPDX-License-Identifier: GPL-2.0
// links:
#include "unit.h"
#include "release.h"

#define MSS 1448

static struct nt_held held;
static struct nt_tcp_state s;

/* 50 held bytes have gone out, nothing else has changed. */
static struct nt_tcp_state gone(void)
{
	return (struct nt_tcp_state){
		.snd_una = 0,
		.snd_nxt = 150,
		.write_seq = 150,
		.snd_sml = 150,
		.snd_wnd = 65535,
		.mss = MSS,
		.tcp_state = 1,
	};
}

static int set_up(void **state)
{
	held = (struct nt_held){
		.seq = 100,
		.end_seq = 150,
		.sml = 100,
		.una = 0,
		.wnd = 65535,
		.mss = MSS,
		.reason = NT_HOLD_NAGLE,
	};
	s = gone();
	return 0;
}

TEST(an_ack_of_the_small_segment_releases_a_nagle_hold)
{
	s.snd_una = 100;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_ACK);
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_ACK);
}

TEST(an_ack_of_less_does_not_release_a_nagle_hold)
{
	s.snd_una = 99;
	s.nonagle = s.nonagle_arg = NT_NAGLE_OFF;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_NODELAY);
}

TEST(an_attempt_after_the_ack_is_not_what_released_a_nagle_hold)
{
	s.snd_una = 100;
	s.push_one = NT_PUSH_ONE;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_ACK);
	s.push_one = NT_PUSH_ALL;
	s.nonagle_arg = NT_NAGLE_OFF | NT_NAGLE_PUSH;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_ACK);
	s.snd_una = 99;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_NODELAY);
}

TEST(the_release_by_ack_is_found_across_the_wrap_around)
{
	struct nt_held held = {
		.seq = 5, .sml = 5, .una = 0xfffffff0, .mss = MSS, .reason = NT_HOLD_NAGLE};
	struct nt_tcp_state s = {.snd_una = 5, .snd_nxt = 55, .mss = MSS};

	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_ACK);
	s.snd_una = 4;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_PUSH);
}

TEST(a_filled_segment_releases_a_nagle_hold)
{
	s.snd_nxt = held.seq + MSS;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_FULL_SEGMENT);
	s.snd_nxt--;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_PUSH);
	s.push_one = NT_PUSH_ONE;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_FULL_SEGMENT);
}

TEST(a_loss_probe_takes_the_tail_along)
{
	s.push_one = NT_PUSH_LOSS_PROBE;
	s.nonagle_arg = NT_NAGLE_OFF;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_LOSS_PROBE);
	held.timer_seen = NT_RELEASE_LOSS_PROBE;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_LOSS_PROBE);
}

TEST(setting_nodelay_releases_a_nagle_hold_and_uncorking_a_cork)
{
	s.nonagle = NT_NAGLE_OFF;
	s.nonagle_arg = NT_NAGLE_OFF | NT_NAGLE_PUSH;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_NODELAY);
	held.reason = NT_HOLD_CORK; /* uncork with TCP_NODELAY set: the same arguments */
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_UNCORK);
}

TEST(nodelay_on_a_corked_socket_pushes_what_is_queued)
{
	held.reason = NT_HOLD_CORK;
	s.nonagle = NT_NAGLE_OFF | NT_NAGLE_CORK;
	s.nonagle_arg = s.nonagle | NT_NAGLE_PUSH;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_NODELAY);
}

TEST(uncorking_without_nodelay_is_told_by_the_flag_that_is_gone)
{
	held.reason = NT_HOLD_CORK;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_UNCORK);
	s.snd_una = 100; /* an ACK that came meanwhile opens no cork */
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_UNCORK);
	s.nonagle = s.nonagle_arg = NT_NAGLE_CORK;
	s.snd_nxt = held.seq + MSS;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_FULL_SEGMENT);
}

TEST(the_last_part_releases_msg_more)
{
	held.reason = NT_HOLD_MSG_MORE;
	s.write_seq = s.snd_nxt = 160;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_UNCORK);
	s.write_seq = s.snd_nxt = held.seq + MSS;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_FULL_SEGMENT);
	s.snd_una = 100; /* an ACK asks without MSG_MORE */
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_ACK);
	/* with TCP_NODELAY any does, small segments out or not */
	s = gone();
	held.una = 10;
	held.sml = 60;
	s.snd_una = 50;
	s.nonagle = s.nonagle_arg = NT_NAGLE_OFF;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_ACK);
}

TEST(the_peers_segment_or_the_timer_lets_msg_more_go_where_nothing_was_written)
{
	held.reason = NT_HOLD_MSG_MORE;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_ACK);
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_ACK);
	/* with nothing in flight the probe timer may have, which makes no attempt */
	held.una = s.snd_una = held.seq;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_ACK);
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_TIMER);
	/* a timer that no program saw, and the ACK of what it sent; more may have been written
	 * since */
	for (s.snd_una = held.end_seq; s.write_seq <= held.end_seq + 1; s.write_seq++) {
		assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_TIMER);
		assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_TIMER);
	}
	s.snd_una++; /* they went with what was written since */
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_UNCORK);
}

TEST(a_loss_probe_is_told_by_what_it_left_behind)
{
	s.snd_una = 100;
	s.tlp_high_seq = 150;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_LOSS_PROBE);
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_LOSS_PROBE);
	s.tlp_high_seq = held.seq; /* it sent again what was sent before */
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_ACK);
}

TEST(a_forced_push_is_told)
{
	s.nonagle_arg = NT_NAGLE_PUSH;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_PUSH);
	held.reason = NT_HOLD_CORK;
	s.nonagle = NT_NAGLE_CORK; /* it opens no cork */
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_PUSH);
	s.nonagle = 0;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_UNCORK);
}

TEST(closing_sends_the_tail_with_the_fin)
{
	static const uint8_t closing[] = {NT_TCP_FIN_WAIT1, NT_TCP_LAST_ACK, NT_TCP_CLOSING};

	s.nonagle_arg = NT_NAGLE_OFF;
	for (size_t i = 0; i < sizeof(closing); i++) {
		s.tcp_state = closing[i];
		assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_CLOSE);
	}
}

TEST(the_fin_has_taken_the_tail_along_if_nothing_was_written_between)
{
	s.snd_una = s.write_seq = s.snd_nxt = 151;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_ACK);
	s.tcp_state = NT_TCP_CLOSE_WAIT;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_ACK);
	s.tcp_state = NT_TCP_CLOSE;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_CLOSE);
	s.write_seq = 152;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_ACK);
	s.write_seq = 151;
	s.snd_una = 150; /* so it was another segment */
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_ACK);
	s.snd_una = 151;
	s.fin_alone = true;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_ACK);
	s.fin_alone = false;
	held.reason = NT_HOLD_CWND; /* which holds a FIN too */
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_ACK);
}

TEST(the_probe_timer_is_told_by_who_saw_it)
{
	held.reason = NT_HOLD_CORK;
	held.timer_seen = NT_RELEASE_TIMER;
	s.nonagle = NT_NAGLE_CORK;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_TIMER);
	held.reason = NT_HOLD_MSG_MORE;
	s.nonagle = 0;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_TIMER);
}

TEST(the_program_that_kept_the_timer_waiting_may_send_first)
{
	held.timer_seen = NT_RELEASE_TIMER;
	held.reason = NT_HOLD_CORK;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_UNCORK);
	s.nonagle = NT_NAGLE_CORK;
	s.snd_nxt = held.seq + MSS;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_FULL_SEGMENT);
}

TEST(a_corked_segment_that_nobody_was_seen_to_send_is_the_probe_timers)
{
	held.reason = NT_HOLD_CORK;
	s.nonagle = NT_NAGLE_CORK;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_TIMER);
	s.tcp_state = NT_TCP_CLOSE_WAIT;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_TIMER);
	s.snd_nxt++; /* the timer sends what is queued, not what comes later */
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_UNCORK);
	s.snd_nxt = held.seq + MSS;
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_FULL_SEGMENT);
	s = gone();
	s.nonagle = NT_NAGLE_CORK;
	s.tcp_state = 7; /* TCP_CLOSE: close() pushes all */
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_CLOSE);
	s.tcp_state = 1;
	s.nonagle |= NT_NAGLE_OFF; /* setting TCP_NODELAY pushes too */
	assert_int_equal(nt_release_from_state(&held, &s), NT_RELEASE_NODELAY);
}

TEST(windows_are_opened_by_acks_and_queues_by_the_device)
{
	held.reason = NT_HOLD_RWND;
	s.snd_wnd = 70000;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_ACK);
	held.reason = NT_HOLD_CWND;
	s.snd_wnd = held.wnd;
	s.snd_una = 1;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_ACK);
	s.snd_una = 0; /* an ACK with SACK blocks and nothing else */
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_ACK);
	held.reason = NT_HOLD_TSO_DEFER; /* the next write filled it */
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_FULL_SEGMENT);
	held.reason = NT_HOLD_PACING;
	s.snd_una = 0;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_DEVICE);
	s.snd_una = 1; /* an ACK came during the pause, and did not end it */
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_DEVICE);
	s.snd_una = 0;
	held.reason = NT_HOLD_AUTOCORK;
	assert_int_equal(nt_release_from_attempt(&held, &s), NT_RELEASE_DEVICE);
}

UNIT_MAIN_WITH(set_up, NULL)
