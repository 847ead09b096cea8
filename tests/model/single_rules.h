/* SPDX-License-Identifier: GPL-2.0 */
/* Tests rules by themselves, at their limits, on a socket and a hold laid out by hand. */
#pragma once

#include "single_calls.h"

/* A test that begins with the programs of one family. */
#define RULE(hooks, name)                                          \
	static void name##_with_programs(void);                    \
	TEST(name)                                                 \
	{                                                          \
		begin(&(struct setting){.family = hooks});         \
		name##_with_programs();                            \
	}                                                          \
	static void name##_with_programs(void)

static struct tcp tcp_at_hand(struct endpoint *e)
{
	return tcp_of(sock_of(e), true);
}

static struct hold *hold_at_hand(struct endpoint *e)
{
	struct tcp t = tcp_at_hand(e);

	return hold_find(&t, true);
}

static void tick_begins(void)
{
	world_delay(world.tick_ns - world.now_ns % world.tick_ns);
}

/* ---- when a tail is looked at ---- */

static void large_tail_waits_a_millisecond(u32 tail, bool waits)
{
	struct endpoint *e = endpoint_with_tail(0, tail);

	e->tp.snd_wnd = 0;
	attempt_fails(e);
	assert_int_equal(hold_at_hand(e)->held.reason, NT_HOLD_RWND);
	e->tp.write_seq += 10;
	world_delay(LARGE_TAIL_NS - 1);
	attempt_fails(e);
	assert_int_equal(hold_at_hand(e)->held.end_seq == e->tp.write_seq, !waits);
	world_delay(waits);
	attempt_fails(e);
	assert_int_equal(hold_at_hand(e)->held.end_seq, e->tp.write_seq);
	endpoint_leaves(e);
}

/* An ACK moves the socket on another CPU, while a program looks at it. */
static void another_cpu_acknowledges(void)
{
	host.on_clock = NULL;
	looked_at->tp.snd_una += 40;
}

static void another_cpu_sends(void)
{
	struct packet *head = tcp_send_head(looked_at);

	host.on_clock = NULL;
	cb_of(head)->seq += 1448;
	head->skb.len -= 1448;
	looked_at->tp.snd_nxt += 1448;
}

static void write_is_looked_at_again(u32 tail, void (*meanwhile)(void))
{
	struct endpoint *e = endpoint_with_tail(100, tail);
	struct hold *h;

	if (tail > 1448)
		e->tp.snd_wnd = 0;
	looked_at = e;
	host.on_clock = meanwhile;
	hook_send_length(e, tail);
	assert_null(host.on_clock);
	h = hold_at_hand(e);
	assert_non_null(h);
	assert_int_equal(h->held.una, e->tp.snd_una);
	assert_int_equal(h->held.seq, e->tp.snd_nxt);
	assert_int_equal(h->writes, 1);
	endpoint_leaves(e);
}

/* An ACK ends the hold on another CPU while a program names its writer; another socket's takes its memory. */
static void another_cpu_takes_the_memory(void)
{
	host.on_read = NULL;
	hold_at_hand(looked_at)->sk++;
}

RULE(FUNCTION, writer_is_not_named_in_another_hold)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	struct hold *h;
	struct tcp t = tcp_at_hand(e);

	looked_at = e;
	attempt_fails(e);
	h = hold_at_hand(e);
	host.pid_tgid = 7ULL << 32 | 7;
	host.on_read = another_cpu_takes_the_memory;
	hold_note_writer(h, t.sk, NULL, 50);
	assert_null(host.on_read);
	assert_int_equal(h->writer.tgid, 0);
	assert_int_equal(h->writes, 0);
	hold_note_writer(h, t.sk, NULL, 50);
	assert_int_equal(h->written, 0);
	h->sk = (u64)t.sk;
	hold_note_writer(h, t.sk, NULL, 50);
	assert_int_equal(h->writer.tgid, 7);
	assert_int_equal(h->writes, 1);
	host.pid_tgid = 0;
	endpoint_leaves(e);
}

/* The attempt of this write went unseen, and left nothing: the next look at the hold finds its end. */
RULE(FUNCTION, write_without_tail_is_not_looked_at)
{
	struct endpoint *e = endpoint_with_tail(100, 50);

	attempt_fails(e);
	hook_sendmsg_exit(e, 50);
	assert_int_equal(hold_at_hand(e)->writes, 1);
	e->tp.write_seq += 50;
	tail_goes(e);
	hook_sendmsg_exit(e, 50);
	assert_int_equal(n_told, 0);
	assert_int_equal(hold_at_hand(e)->writes, 1);
	endpoint_leaves(e);
}

static void it_was_held(struct endpoint *e, u32 writes, u32 written)
{
	struct hold h = {.writes = writes, .written = written, .held = {.seq = e->tp.snd_una, .mss = 1448}};
	u32 write_seq = e->tp.write_seq;

	e->tp.write_seq = e->tp.snd_nxt; /* as they were when it went */
	note_mixed(&h, sock_of(e), e->tp.write_seq);
	e->tp.write_seq = write_seq;
}

/* Returns what is told to be in flight, which one write has written; spoil: what else is so. It was held before, with
 * so many bytes of so many writes; 0: it was not. */
static u32 flight_told(void (*spoil)(struct endpoint *e, struct rb_node *sent), u32 writes, u32 written)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	struct rb_node sent = {};
	u32 told;

	sock_of(e)->tcp_rtx_queue.rb_node = &sent;
	e->tp.first_tx_mstamp = e->tp.delivered_mstamp = 2000;
	e->tp.rack.mstamp = 1000;
	e->tp.rack.rtt_us = 1000 - ACK_SENDS_US;
	if (spoil)
		spoil(e, &sent);
	if (writes)
		it_was_held(e, writes, written);
	attempt_fails(e);
	hook_sendmsg_exit(e, 50);
	told = hold_at_hand(e)->flight;
	endpoint_leaves(e);
	return told;
}

static void two_buffers(struct endpoint *e, struct rb_node *sent)
{
	sent->rb_left = sent;
}

static void two_buffers_the_second_higher(struct endpoint *e, struct rb_node *sent)
{
	sent->rb_right = sent;
}

static void a_part_is_acknowledged(struct endpoint *e, struct rb_node *sent)
{
	e->tp.delivered_mstamp++;
}

static void it_left_as_an_ack_came(struct endpoint *e, struct rb_node *sent)
{
	e->tp.rack.rtt_us++;
}

/* Bytes longer than a segment were held before what is in flight, up to held_end, and went. */
static void longer_ones_were_held(struct endpoint *e, u32 held_end)
{
	struct hold h = {.held = {.seq = e->tp.snd_una - 3000, .mss = 1448}};
	u32 write_seq = e->tp.write_seq;

	e->tp.write_seq = held_end;
	note_mixed(&h, sock_of(e), e->tp.snd_una);
	e->tp.write_seq = write_seq;
}

/* What is in flight was held with them, and went after them. */
static void it_was_held_with_more_before(struct endpoint *e, struct rb_node *sent)
{
	longer_ones_were_held(e, e->tp.snd_nxt);
	it_was_held(e, 0, 0);
}

/* They all went; what is in flight was written after that, by two writes. */
static void it_was_held_after_a_longer_message(struct endpoint *e, struct rb_node *sent)
{
	longer_ones_were_held(e, e->tp.snd_una);
	it_was_held(e, 2, 100);
}

static void another_was_held_before(struct endpoint *e, struct rb_node *sent)
{
	bucket_note_mixed(sock_of(e)->__sk_common.skc_hash, e->tp.snd_una - 1, e->tp.snd_una, true, false);
}

static void another_sockets_was_held(struct endpoint *e, struct rb_node *sent)
{
	bucket_note_mixed(sock_of(e)->__sk_common.skc_hash + BUCKETS, e->tp.snd_una, e->tp.snd_nxt, true, false);
}

static void its_tail_waits_for_no_ack(struct endpoint *e, struct rb_node *sent)
{
	e->tp.snd_wnd = 0;
}

static void no_buffer(struct endpoint *e, struct rb_node *sent)
{
	sock_of(e)->tcp_rtx_queue.rb_node = NULL;
}

RULE(FUNCTION, what_is_in_flight_is_one_write_if_it_left_alone)
{
	assert_int_equal(flight_told(NULL, 0, 0), FLIGHT_ONE_WRITE);
	assert_int_equal(flight_told(two_buffers, 0, 0), FLIGHT_UNSURE);
	assert_int_equal(flight_told(two_buffers_the_second_higher, 0, 0), FLIGHT_UNSURE);
	assert_int_equal(flight_told(a_part_is_acknowledged, 0, 0), FLIGHT_REST);
	assert_int_equal(flight_told(it_left_as_an_ack_came, 0, 0), FLIGHT_UNSURE);
	assert_int_equal(flight_told(NULL, 2, 100), FLIGHT_UNSURE);    /* it was two writes */
	assert_int_equal(flight_told(NULL, 1, 3000), FLIGHT_REST);     /* it was a part of one */
	assert_int_equal(flight_told(NULL, 2, 3000), FLIGHT_UNSURE);   /* it was a part of two */
	assert_int_equal(flight_told(NULL, 1, 60), FLIGHT_UNSURE);     /* one of its writes went unseen */
	assert_int_equal(flight_told(it_was_held_with_more_before, 0, 0), FLIGHT_REST);
	assert_int_equal(flight_told(it_was_held_after_a_longer_message, 0, 0), FLIGHT_UNSURE);
	assert_int_equal(flight_told(NULL, 1, 100), FLIGHT_ONE_WRITE); /* it was one write */
	assert_int_equal(flight_told(another_was_held_before, 0, 0), FLIGHT_ONE_WRITE);
	assert_int_equal(flight_told(another_sockets_was_held, 0, 0), FLIGHT_ONE_WRITE);
	assert_int_equal(flight_told(no_buffer, 0, 0), FLIGHT_UNSURE);
	assert_int_equal(flight_told(its_tail_waits_for_no_ack, 0, 0), FLIGHT_UNSURE);
}

/* ---- which hold is a socket's ---- */

RULE(FUNCTION, dissolved_connection_leaves_no_hold)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	u32 *hash = &sock_of(e)->__sk_common.skc_hash, before = *hash % BUCKETS, after;
	struct hold *h;

	attempt_fails(e);
	h = hold_at_hand(e);
	h->sk = 0; /* a program is about to fill it */
	assert_null(hold_at_hand(e));
	h->sk = (u64)sock_of(e);
	assert_ptr_equal(hold_at_hand(e), h);
	after = ++*hash % BUCKETS;
	buckets[after].holds = 1; /* another socket's */
	assert_null(hold_at_hand(e));
	world_delay(MS);
	attempt_fails(e);
	assert_int_equal(hold_at_hand(e)->begin_ns, world.now_ns);
	assert_int_equal(buckets[before].holds, 0);
	assert_int_equal(buckets[after].holds, 2);
	buckets[after].holds--;
	endpoint_leaves(e);
	assert_int_equal(buckets[after].holds, 0);
}

/* ---- why there is a tail ---- */

RULE(FUNCTION, writes_cause_an_attempt_unless_the_device_or_pacing_does)
{
	struct nt_tcp_state s = {.snd_una = 1, .write_seq = 9};
	struct hold h = {.held = {.una = 1, .end_seq = 9}};

	assert_true(last_was_write(NULL, &s));
	assert_false(holds_on(NULL, &s));
	for (u8 reason = NT_HOLD_NAGLE; reason < NT_HOLD_REASONS; reason++) {
		h.held.reason = reason;
		s.snd_una = 1;
		assert_int_equal(last_was_write(&h, &s), reason != NT_HOLD_AUTOCORK && reason != NT_HOLD_TSQ &&
								 reason != NT_HOLD_PACING);
		assert_int_equal(holds_on(&h, &s), reason == NT_HOLD_NAGLE || reason == NT_HOLD_CORK);
		s.snd_una = 2;
		assert_false(last_was_write(&h, &s));
		assert_false(holds_on(&h, &s));
		s.write_seq = 10;
		assert_true(last_was_write(&h, &s));
		s.write_seq = 9;
	}
}

static const struct nt_tcp_state throttled_write = {
	.clock_ns = 1, .snd_wnd = 1000, .snd_cwnd = 10, .write_seq = 50, .mss = 100, .head_end_seq = 50,
	.head_len = 50, .head_last = true, .has_head = true, .throttled = true,
};

RULE(FUNCTION, device_corks_a_small_last_segment)
{
	struct nt_tcp_state s = throttled_write;
	struct hold h = {.held = {.reason = NT_HOLD_AUTOCORK, .end_seq = 50}};

	assert_int_equal(tail_reason(NULL, &s, true), NT_HOLD_AUTOCORK);
	assert_int_equal(s.clock_ns, world.now_ns);
	s = throttled_write;
	assert_int_equal(tail_reason(&h, &s, true), NT_HOLD_AUTOCORK);
	assert_int_equal(s.clock_ns, 1); /* it goes on */
	h.held.reason = NT_HOLD_CWND;
	assert_int_equal(tail_reason(&h, &s, true), NT_HOLD_AUTOCORK);
	assert_int_equal(s.clock_ns, world.now_ns);
	s = throttled_write;
	assert_int_equal(tail_reason(&h, &s, false), NT_HOLD_TSQ);
	assert_int_equal(s.clock_ns, 1);
	h.held.reason = NT_HOLD_CORK; /* goes on to hold what it held */
	assert_int_equal(tail_reason(&h, &s, true), NT_HOLD_TSQ);
	s = throttled_write;
	s.head_len = 99;
	assert_int_equal(tail_reason(NULL, &s, true), NT_HOLD_AUTOCORK);
	s.head_len = 100;
	assert_int_equal(tail_reason(NULL, &s, true), NT_HOLD_TSQ);
	s = throttled_write;
	s.head_last = false;
	assert_int_equal(tail_reason(NULL, &s, true), NT_HOLD_TSQ);
	s = throttled_write;
	s.throttled = false;
	s.snd_wnd = 49;
	assert_int_equal(tail_reason(NULL, &s, true), NT_HOLD_RWND);
	assert_int_equal(s.clock_ns, 1);
}

/* Pacing was over when its timer allowed the bytes, if they are the same ones. */
static u64 pacing_lasted(u8 reason, u32 seq, u64 wstamp_ns)
{
	struct endpoint *e = endpoint_with_tail(0, 50);
	struct nt_tcp_state s = {.clock_ns = 5000, .wstamp_ns = wstamp_ns, .snd_nxt = 7};
	struct hold h = {.held = {.reason = reason, .seq = seq}, .begin_ns = 1000};
	struct tcp t = tcp_at_hand(e);
	u64 before = totals_here()->hold_ns[reason], lasted;

	hold_switch(&h, &t, &s, NT_HOLD_CWND, true);
	lasted = totals_here()->hold_ns[reason] - before;
	assert_int_equal(h.begin_ns, 1000 + lasted);
	endpoint_leaves(e);
	return lasted;
}

RULE(FUNCTION, pacing_ends_by_its_timer)
{
	assert_int_equal(pacing_lasted(NT_HOLD_PACING, 7, 3000), 2000);
	assert_int_equal(pacing_lasted(NT_HOLD_PACING, 7, 1001), 1);
	assert_int_equal(pacing_lasted(NT_HOLD_PACING, 7, 1000), 4000);
	assert_int_equal(pacing_lasted(NT_HOLD_PACING, 7, 6000), 4000);
	assert_int_equal(pacing_lasted(NT_HOLD_PACING, 8, 3000), 4000);
	assert_int_equal(pacing_lasted(NT_HOLD_TSQ, 7, 3000), 4000);
}

RULE(FUNCTION, other_bytes_await_no_timer)
{
	struct endpoint *e = endpoint_with_tail(0, 5000);
	struct nt_tcp_state s;
	struct tcp t = tcp_at_hand(e);
	struct hold *h;

	e->tp.snd_wnd = 0;
	attempt_fails(e);
	h = hold_at_hand(e);
	h->held.timer_seen = NT_RELEASE_LOSS_PROBE;
	h->flight = FLIGHT_ONE_WRITE;
	h->writes = 3;
	tcp_read_state(&s, &t, true);
	hold_note(h, &t, &s, NT_HOLD_RWND, true);
	assert_int_equal(h->held.timer_seen, NT_RELEASE_LOSS_PROBE);
	assert_int_equal(h->flight, FLIGHT_ONE_WRITE);
	assert_int_equal(h->writes, 3);
	s.snd_nxt++;
	hold_note(h, &t, &s, NT_HOLD_RWND, true);
	assert_int_equal(h->held.timer_seen, 0);
	assert_int_equal(h->flight, FLIGHT_UNSURE);
	assert_int_equal(h->writes, 0);
	/* what is left of one write has its writer */
	h->writes = 1;
	h->written = h->write_bytes = 5000;
	s.snd_nxt++;
	hold_note(h, &t, &s, NT_HOLD_RWND, true);
	assert_true(h->writes == 1 && h->written == 5000 && h->write_bytes == 5000);
	s.snd_nxt++;
	s.write_seq++;
	hold_note(h, &t, &s, NT_HOLD_RWND, true);
	assert_true(!h->writes && !h->written && !h->write_bytes);
	endpoint_leaves(e);
}

/* ---- what a segment does ---- */

RULE(FUNCTION, attempts_may_go_unseen)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	struct hold h = {.held = {.reason = NT_HOLD_NAGLE, .seq = e->tp.snd_nxt, .end_seq = e->tp.write_seq}};
	struct tcp t = tcp_at_hand(e);
	unsigned long *flags = &sock_of(e)->sk_tsq_flags;

	assert_true(attempt_unseen(NULL, &t, true));
	for (u8 reason = NT_HOLD_NAGLE; reason < NT_HOLD_REASONS; reason++) {
		bool device = reason == NT_HOLD_AUTOCORK || reason == NT_HOLD_TSQ;

		h.held.reason = reason;
		assert_int_equal(attempt_unseen(&h, &t, true), reason != NT_HOLD_NAGLE && reason != NT_HOLD_MSG_MORE);
		e->tp.nonagle = NT_NAGLE_CORK;
		assert_int_equal(attempt_unseen(&h, &t, true), reason != NT_HOLD_NAGLE && reason != NT_HOLD_MSG_MORE &&
								       reason != NT_HOLD_CORK);
		for (*flags = 1; *flags < 8; *flags <<= 1)
			assert_int_equal(attempt_unseen(&h, &t, true),
					 reason != NT_HOLD_NAGLE && reason != NT_HOLD_MSG_MORE &&
						 reason != NT_HOLD_CORK && !device);
		*flags = e->tp.nonagle = 0;
	}
	h.held.reason = NT_HOLD_NAGLE;
	h.held.end_seq--;
	assert_true(attempt_unseen(&h, &t, true));
	e->tp.write_seq = e->tp.snd_nxt + 1448;
	assert_false(attempt_unseen(&h, &t, true));
	assert_false(attempt_unseen(NULL, &t, true));
	e->tp.snd_nxt++; /* what it held has gone */
	assert_true(attempt_unseen(&h, &t, true));
	e->tp.write_seq = e->tp.snd_nxt + 50;
	endpoint_leaves(e);
}

/* The write's attempt went unseen: Nagle held the tail, however busy the device is as a segment finds it. */
RULE(FUNCTION, segment_finds_what_a_write_left)
{
	struct endpoint *e = endpoint_with_tail(100, 50);

	sock_of(e)->sk_tsq_flags = NT_TSQ_THROTTLED;
	segment_comes(e, 0, e->tp.snd_una + 40, tcp_stamp(e));
	assert_int_equal(hold_at_hand(e)->held.reason, NT_HOLD_NAGLE);
	assert_int_equal(hold_at_hand(e)->ack, e->tp.snd_una + 40);
	sock_of(e)->sk_tsq_flags = 0;
	endpoint_leaves(e);
}

RULE(FUNCTION, ack_releases_what_nagle_holds)
{
	struct nt_tcp_state s = {.head_end_seq = 150, .snd_wnd = 50};
	struct hold h = {.held = {.sml = 100}};

	for (u8 reason = NT_HOLD_NAGLE; reason < NT_HOLD_REASONS; reason++) {
		bool small = reason == NT_HOLD_NAGLE || reason == NT_HOLD_MSG_MORE;

		h.held.reason = reason;
		s.snd_wnd = 50;
		assert_int_equal(ack_will_release(&h, &s, 100), small);
		assert_int_equal(ack_will_release(&h, &s, 101), small);
		s.snd_wnd = 51;
		assert_false(ack_will_release(&h, &s, 99));
		s.snd_wnd = 49;
		assert_false(ack_will_release(&h, &s, 100));
		s.nonagle = NT_NAGLE_OFF;
		assert_int_equal(ack_will_release(&h, &s, 99), reason == NT_HOLD_MSG_MORE);
		s.nonagle = 0;
	}
}

/* What waits for a congestion window of one segment goes once nothing is in flight. */
RULE(FUNCTION, last_ack_opens_a_small_window)
{
	struct nt_tcp_state s = {.snd_nxt = 100, .head_end_seq = 150, .snd_wnd = 50};
	struct hold h = {.held = {.sml = 100, .reason = NT_HOLD_CWND, .lone = true}};

	assert_true(ack_will_release(&h, &s, 100));
	assert_false(ack_will_release(&h, &s, 99));
	s.snd_wnd = 49;
	assert_false(ack_will_release(&h, &s, 100));
	s.snd_wnd = 50;
	s.nonagle = NT_NAGLE_OFF;
	assert_true(ack_will_release(&h, &s, 100));
	s.nonagle = NT_NAGLE_CORK;
	assert_false(ack_will_release(&h, &s, 100));
	s.nonagle = 0;
	h.held.lone = false;
	assert_false(ack_will_release(&h, &s, 100));
	h.held.lone = true;
	h.held.reason = NT_HOLD_RWND;
	assert_false(ack_will_release(&h, &s, 100));
}

static bool is_taken(struct endpoint *e, u32 seq, u32 len, u32 ack, u8 flags, u32 stamp, bool stamped)
{
	struct packet p = {.skb = {.data = p.header}};
	struct wire w = {.seq = seq, .end_seq = seq + len, .len = len, .ack = ack, .flags = flags,
			 .ts_value = stamp};
	struct tcp t = tcp_at_hand(e);
	struct segment seg;

	packet_from_wire(&p, &w);
	if (!stamped)
		p.header[22] = 1;
	read_segment(&seg, &p.skb);
	return segment_is_taken(&t, &p.skb, &seg, true);
}

/* tcp_validate_incoming(), tcp_ack() */
RULE(FUNCTION, kernel_takes_what_fits)
{
	struct endpoint *e = lone_endpoint();
	u32 nxt = e->tp.rcv_nxt, wup = nxt - 10, ack = e->tp.snd_nxt;

	e->tp.rcv_wup = wup;
	e->tp.rcv_wnd = 100;
	e->tp.rx_opt.ts_recent = 50;
	assert_true(is_taken(e, nxt, 10, ack, TCPHDR_ACK, 50, true));
	assert_true(is_taken(e, nxt, 10, ack - 5, TCPHDR_ACK | TCPHDR_FIN, 51, true));
	assert_false(is_taken(e, nxt, 10, ack + 1, TCPHDR_ACK, 50, true));
	assert_false(is_taken(e, nxt, 10, ack, 0, 50, true));
	assert_false(is_taken(e, nxt, 10, ack, TCPHDR_ACK | TCPHDR_SYN, 50, true));
	assert_false(is_taken(e, nxt, 10, ack, TCPHDR_ACK | TCPHDR_RST, 50, true));
	assert_true(is_taken(e, wup - 10, 10, ack, TCPHDR_ACK, 50, true));
	assert_false(is_taken(e, wup - 10, 9, ack, TCPHDR_ACK, 50, true));
	assert_true(is_taken(e, wup + 100, 10, ack, TCPHDR_ACK, 50, true));
	assert_false(is_taken(e, wup + 101, 10, ack, TCPHDR_ACK, 50, true));
	assert_false(is_taken(e, nxt, 10, ack, TCPHDR_ACK, 49, true));
	assert_true(is_taken(e, nxt, 10, ack, TCPHDR_ACK, 49, false));
	e->tp.rx_opt.ts_recent = 0;
	assert_true(is_taken(e, nxt, 10, ack, TCPHDR_ACK, -1, true));
	e->tp.rx_opt.ts_recent = 50;
	e->tp.rx_opt.tstamp_ok = 0;
	assert_true(is_taken(e, nxt, 10, ack, TCPHDR_ACK, 49, true));
	e->tp.rcv_wnd = 5; /* more has come than the window allows now */
	assert_true(is_taken(e, nxt, 10, ack, TCPHDR_ACK, 50, true));
	assert_false(is_taken(e, nxt + 1, 10, ack, TCPHDR_ACK, 50, true));
	endpoint_leaves(e);
}

/* A FIN by itself moves what a hold takes for "no data has come"; any other segment does not. */
static void fin_moves_a_hold(u32 seq_after, u32 len, u32 ack_after, u32 came, bool moves)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	u32 rcv_nxt = e->tp.rcv_nxt, seq = rcv_nxt + came + seq_after;
	struct tcp t = tcp_at_hand(e);
	struct packet p = {.skb = {.data = p.header}};
	struct wire fin = {.seq = seq, .end_seq = seq + len + 1, .len = len, .ack = e->tp.snd_una + ack_after,
			   .flags = TCPHDR_ACK | TCPHDR_FIN, .ts_value = e->ts_recent};

	packet_from_wire(&p, &fin);
	fin_meets_hold(&t, &(struct segment){.seq = rcv_nxt, .end_seq = rcv_nxt + 1, .ack = fin.ack, .fin = true},
		       true); /* there is no hold yet */
	attempt_fails(e);
	e->tp.rcv_nxt += came;
	hook_probe(e, &p);
	assert_int_equal(hold_at_hand(e)->rcv_nxt, rcv_nxt + moves);
	endpoint_leaves(e);
}

RULE(FUNCTION, fin_alone_is_no_data)
{
	assert_int_equal(ack_kind_of(&(struct segment){.seq = 5, .end_seq = 5}), ACK_PURE);
	assert_int_equal(ack_kind_of(&(struct segment){.seq = 5, .end_seq = 6}), ACK_ON_DATA);
	assert_int_equal(ack_kind_of(&(struct segment){.seq = 5, .end_seq = 6, .fin = true}), ACK_UNSURE);
	assert_int_equal(ack_kind_of(&(struct segment){.seq = 5, .end_seq = 7, .fin = true}), ACK_ON_DATA);
}

/* ACKs that acknowledge something are noted, with what a hold needs to know of them. */
RULE(FUNCTION, acks_are_noted)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	struct hold *h;

	attempt_fails(e);
	h = hold_at_hand(e);
	segment_comes(e, 0, e->tp.snd_una, tcp_stamp(e));
	assert_false(h->ack_seen);
	world_delay(2 * MS);
	segment_comes(e, 0, e->tp.snd_una + 40, tcp_stamp(e));
	assert_true(h->ack_seen && h->ack_kind == ACK_PURE && !h->recovered);
	assert_int_equal(h->ack, e->tp.snd_una + 40);
	assert_int_equal(h->ack_seq, e->tp.rcv_nxt);
	assert_int_equal(h->silent_ns, 2 * MS);
	assert_int_equal(h->silent_bytes, 100);
	assert_int_equal(h->flight_bytes, 60);
	e->tp.snd_una += 40;
	world_delay(MS);
	segment_comes(e, 10, e->tp.snd_una + 60, tcp_stamp(e));
	assert_true(h->ack_kind != ACK_PURE);
	assert_int_equal(h->silent_ns, MS);
	assert_int_equal(h->silent_bytes, 60);
	segment_comes(e, 0, e->tp.snd_una + 60, tcp_stamp(e));
	assert_true(h->ack_kind == ACK_PURE);
	e->tp.nonagle = NT_NAGLE_CORK;
	segment_comes(e, 0, e->tp.snd_una + 60, tcp_stamp(e));
	assert_true(h->ack_kind != ACK_PURE);
	e->tp.nonagle = 0;
	e->tp.write_seq = e->tp.snd_nxt + 1448;
	segment_comes(e, 0, e->tp.snd_una + 60, tcp_stamp(e));
	assert_true(h->ack_kind != ACK_PURE);
	endpoint_leaves(e);
}

static void writes_to_tail(struct endpoint *e, u32 bytes)
{
	hook_sendmsg_entry(e);
	e->tp.write_seq += bytes;
	attempt_fails(e);
	hook_sendmsg_exit(e, bytes);
}

/* An ACK that a program's call kept in the backlog may have come when that call began, after the last one returned. */
RULE(FUNCTION, an_ack_that_waits_for_its_senders_lock_is_not_late)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	struct hold *h;

	writes_to_tail(e, 0);
	h = hold_at_hand(e);
	world_delay(2 * MS);
	writes_to_tail(e, 10);
	sock_of(e)->sk_lock.owned = 1;
	world_delay(38 * MS);
	writes_to_tail(e, 10);
	segment_comes(e, 0, e->tp.snd_una + 40, tcp_stamp(e));
	assert_int_equal(h->silent_ns, 2 * MS);
	sock_of(e)->sk_lock.owned = 0;
	world_delay(40 * MS);
	segment_comes(e, 0, e->tp.snd_una + 100, tcp_stamp(e));
	assert_int_equal(h->silent_ns, 40 * MS);
	endpoint_leaves(e);
}

/* Nagle holds a tail for 50 ms until its ACK; after early_ns came an ACK of early bytes. */
static bool late_ack_is_inferred(u32 in_flight, u32 early, u64 early_ns)
{
	struct endpoint *e = endpoint_with_tail(in_flight, 50);
	bool was_told;

	attempt_fails(e);
	world_delay(early_ns);
	if (early) {
		segment_comes(e, 0, e->tp.snd_una + early, tcp_stamp(e));
		e->tp.snd_una += early;
	}
	world_delay(50 * MS - early_ns);
	segment_comes(e, 0, e->tp.snd_nxt, tcp_stamp(e));
	tcp_mstamp_refresh(e);
	e->tp.snd_una = e->tp.snd_nxt;
	tail_goes(e);
	attempt_fails(e);
	was_told = n_told && told[0].cause;
	endpoint_leaves(e);
	return was_told;
}

/* ---- timers ---- */

/* With the window closed, the probe timer sends none of what is held. */
static bool probe_timer_releases(u32 wnd, u32 written_since)
{
	struct endpoint *e = endpoint_with_tail(0, 50);
	struct tcp t = tcp_at_hand(e);
	bool released;

	e->tp.nonagle = NT_NAGLE_CORK;
	attempt_fails(e);
	e->tp.snd_wnd = wnd;
	e->tp.write_seq += written_since;
	world_delay(200 * MS);
	probe_timer_sends(&t, NT_RELEASE_TIMER, false);
	released = n_told;
	assert_int_equal(!hold_at_hand(e), released);
	if (released)
		assert_int_equal(told[0].hold.release, NT_RELEASE_TIMER);
	endpoint_leaves(e);
	return released;
}

RULE(TRACEPOINT, timer_leaves_interactive_mode)
{
	struct endpoint *e = lone_endpoint();
	struct tcp t = tcp_at_hand(e);

	e->tp.inet_conn.icsk_ack.pingpong = 0;
	e->tp.inet_conn.icsk_ack.lrcvtime = world_jiffies() - 1;
	assert_true(timer_may_have_sent(&t, true));
	e->tp.inet_conn.icsk_ack.pingpong = 1;
	assert_false(timer_may_have_sent(&t, true));
	e->tp.inet_conn.icsk_ack.pingpong = 0;
	e->tp.rcv_wup--;
	assert_false(timer_may_have_sent(&t, true));
	e->tp.rcv_wup++;
	e->tp.inet_conn.icsk_ack.lrcvtime = world_jiffies();
	assert_false(timer_may_have_sent(&t, true));
	endpoint_leaves(e);
}

/* A cork that began lasted_ns ago ended as its socket sent last: was that its probe timer's time? */
static u64 cork_timer_took(u64 rto_ns, u64 lasted_ns)
{
	struct endpoint *e = lone_endpoint();
	u64 begin_ns, sent_ns;

	tick_begins();
	begin_ns = world.now_ns - lasted_ns;
	e->tp.inet_conn.icsk_rto = rto_ns / world.tick_ns;
	e->tp.lsndtime = world_jiffies();
	world_delay(5 * world.tick_ns);
	assert_int_equal(cork_timer_sent_ns((u64)sock_of(e), begin_ns, world.now_ns, 1, e->tp.snd_una - 1), 0); /* sent again */
	sent_ns = cork_timer_sent_ns((u64)sock_of(e), begin_ns, world.now_ns, 0, e->tp.snd_una - 1);
	for (u64 latest_ns = sent_ns; sent_ns && latest_ns <= sent_ns + 2 * world.tick_ns; latest_ns += world.tick_ns)
		assert_int_equal(cork_timer_sent_ns((u64)sock_of(e), begin_ns, latest_ns, 0, e->tp.snd_una - 1), latest_ns);
	endpoint_leaves(e);
	return sent_ns ? sent_ns - begin_ns : 0;
}

/* After the RTO, 200 ms at least, and half as long again at the latest; the ACK may have changed the RTO a little. */
RULE(TRACEPOINT, cork_ends_when_its_timer_expires)
{
	const u64 room_ns = 2 * world.tick_ns;

	assert_int_equal(cork_timer_took(100 * MS, 200 * MS), 200 * MS);
	assert_int_equal(cork_timer_took(100 * MS, 200 * MS - room_ns), 200 * MS - room_ns);
	assert_int_equal(cork_timer_took(100 * MS, 200 * MS - room_ns - 1), 0);
	assert_int_equal(cork_timer_took(100 * MS, 300 * MS), 300 * MS);
	assert_int_equal(cork_timer_took(100 * MS, 300 * MS + 1), 0);
	assert_int_equal(cork_timer_took(400 * MS, 300 * MS - room_ns), 300 * MS - room_ns);
	assert_int_equal(cork_timer_took(400 * MS, 300 * MS - room_ns - 1), 0);
	assert_int_equal(cork_timer_took(400 * MS, 600 * MS), 600 * MS);
	assert_int_equal(cork_timer_took(400 * MS, 600 * MS + 1), 0);
}

/* ---- when a hold ended that nobody saw end ---- */

RULE(FUNCTION, silence_lasts_a_round_trip_and_two_ticks)
{
	struct endpoint *e = lone_endpoint();
	struct tcp t = tcp_at_hand(e);
	u64 sent_ns, limit_ns = 10 * MS + 2 * world.tick_ns;

	tick_begins();
	sent_ns = world.now_ns;
	e->tp.lsndtime = world_jiffies();
	e->tp.rtt_min.s[0].v = 10000;
	world_delay(5 * world.tick_ns);
	assert_int_equal(last_sent_ns(&t), sent_ns);
	assert_true(silent_since(&t, sent_ns - limit_ns));
	assert_false(silent_since(&t, sent_ns - limit_ns - 1));
	endpoint_leaves(e);
}

RULE(FUNCTION, late_acks_are_found_by_when_they_were_sent)
{
	const struct nt_ack_numbers key = {.ack = 11, .seq = 22};
	struct hold h = {.held = {.reason = NT_HOLD_NAGLE}, .begin_ns = 1000, .ack = 11, .ack_seq = 22,
			 .ack_seen = true};
	struct late_ack *la = late_ack_new(&key);

	la->part.end_ns = 1000;
	assert_int_equal(late_ack_sent_ns(11, 22, 1000), 1000);
	assert_int_equal(late_ack_sent_ns(11, 22, 1001), 0);
	assert_int_equal(late_ack_sent_ns(11, 23, 1000), 0);
	assert_int_equal(late_ack_sent_ns(12, 22, 1000), 0);
	h.ack_seen = false;
	assert_null(hold_join(&h, 2000));
	h.ack_seen = true;
	h.held.reason = NT_HOLD_CORK;
	assert_null(hold_join(&h, 2000));
	h.held.reason = NT_HOLD_NAGLE;
	assert_null(hold_join(&h, 999));
	h.begin_ns = 1001;
	assert_null(hold_join(&h, 2000));
	h.begin_ns = 1000;
	assert_false(la->consumed);
	assert_ptr_equal(hold_join(&h, 1000), la);
	assert_true(la->consumed);
	assert_int_equal(late_ack_sent_ns(11, 22, 1000), 0);
	bpf_map_delete_elem(&late_acks, &key);
}

enum unlike {
	AS_IT_WAS,
	OTHER_REASON,
	NOT_ACKNOWLEDGED,
	PARTLY_ACKNOWLEDGED,
	OTHERS_BEHIND, /* the small segment */
	OTHERS_BEFORE,
	WRITTEN,
	CORKED_BY_NOW,
	RECEIVED,
	ACK_LEFT_LATE, /* a program saw it, whatever came since */
	SENT_AFTER,    /* that ACK */
};

/* Returns how long after its begin a hold of acknowledged bytes ended, 0: nobody knows. */
static u64 acknowledged_hold_lasted(enum unlike unlike)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	struct tcp t = tcp_at_hand(e);
	struct nt_ack_numbers key;
	struct nt_tcp_state s;
	struct hold h;
	u64 ended_ns;

	tick_begins();
	attempt_fails(e);
	h = *hold_at_hand(e);
	key = (struct nt_ack_numbers){.ack = h.held.seq, .seq = h.rcv_nxt};
	if (unlike >= ACK_LEFT_LATE)
		late_ack_new(&key)->part.end_ns = h.begin_ns + 36 * MS;
	world_delay(40 * MS);
	tail_goes(e);
	if (unlike == SENT_AFTER)
		e->tp.lsndtime += 2;
	world_delay(8 * MS);
	tcp_mstamp_refresh(e);
	e->tp.snd_una = e->tp.snd_nxt;
	tcp_read_state(&s, &t, true);
	if (unlike == OTHER_REASON)
		h.held.reason = NT_HOLD_CORK;
	if (unlike == NOT_ACKNOWLEDGED)
		s.snd_una = h.held.end_seq = h.held.seq;
	if (unlike == PARTLY_ACKNOWLEDGED)
		s.snd_una--;
	if (unlike == OTHERS_BEHIND)
		h.held.sml--;
	if (unlike == OTHERS_BEFORE)
		h.in_flight_bytes = h.held.mss;
	if (unlike == WRITTEN || unlike == ACK_LEFT_LATE)
		s.write_seq++;
	if (unlike == CORKED_BY_NOW)
		s.nonagle = NT_NAGLE_CORK;
	if (unlike == RECEIVED)
		e->tp.rcv_nxt++;
	ended_ns = acknowledged_hold_ended_ns(&h, &t, &s, true);
	bpf_map_delete_elem(&late_acks, &key);
	endpoint_leaves(e);
	return ended_ns ? ended_ns - h.begin_ns : 0;
}

/*
 * Held bytes left after lasted_ns, and no program saw the ACK before: was that a pure one? A later segment, as a reset,
 * has moved the socket's clock.
 */
static bool unseen_ack_was_pure(u64 lasted_ns, enum unlike unlike, u8 nonagle)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	struct tcp t = tcp_at_hand(e);
	struct nt_ack_numbers key = {.ack = e->tp.snd_nxt, .seq = e->tp.rcv_nxt + 1};
	struct nt_tcp_state s;
	struct hold h;

	tick_begins();
	attempt_fails(e);
	h = *hold_at_hand(e);
	world_delay(lasted_ns);
	e->tp.lsndtime = world_jiffies();
	tail_goes(e);
	e->tp.snd_una = h.held.seq;
	world_delay(28 * MS);
	tcp_mstamp_refresh(e);
	tcp_read_state(&s, &t, true);
	s.nonagle = nonagle;
	s.snd_una -= unlike == PARTLY_ACKNOWLEDGED;
	s.write_seq += unlike == WRITTEN;
	e->tp.rcv_nxt += unlike == RECEIVED || unlike == ACK_LEFT_LATE;
	if (unlike == ACK_LEFT_LATE)
		late_ack_new(&key)->part.end_ns = h.begin_ns + lasted_ns;
	assert_in_range(hold_ack_released(&h, &t, &s, true) - h.begin_ns, lasted_ns, lasted_ns + 2 * world.tick_ns);
	assert_true(h.ack_seen && h.ack == s.snd_una && h.ack_seq == e->tp.rcv_nxt);
	bpf_map_delete_elem(&late_acks, &key);
	endpoint_leaves(e);
	return h.ack_kind == ACK_PURE;
}

RULE(FUNCTION, unseen_ack_is_pure_if_nothing_else_may_have_released_the_bytes)
{
	const u64 probe_ns = NT_RTO_MIN_NS / 4 * 3 - 2 * world.tick_ns; /* may come from here on */

	assert_true(unseen_ack_was_pure(20 * MS, AS_IT_WAS, 0));
	assert_true(unseen_ack_was_pure(20 * MS, AS_IT_WAS, NT_NAGLE_PUSH));
	assert_true(unseen_ack_was_pure(20 * MS, ACK_LEFT_LATE, 0));
	assert_true(unseen_ack_was_pure(probe_ns - world.tick_ns, AS_IT_WAS, 0));
	assert_false(unseen_ack_was_pure(probe_ns + world.tick_ns, AS_IT_WAS, 0));
	assert_false(unseen_ack_was_pure(20 * MS, AS_IT_WAS, NT_NAGLE_CORK));
	assert_false(unseen_ack_was_pure(20 * MS, PARTLY_ACKNOWLEDGED, 0));
	assert_false(unseen_ack_was_pure(20 * MS, WRITTEN, 0));
	assert_false(unseen_ack_was_pure(20 * MS, RECEIVED, 0));
}

RULE(FUNCTION, acknowledged_holds_end_when_something_tells)
{
	assert_int_equal(acknowledged_hold_lasted(AS_IT_WAS), 40 * MS);
	for (enum unlike unlike = OTHER_REASON; unlike <= RECEIVED; unlike++)
		assert_int_equal(acknowledged_hold_lasted(unlike), 0);
	assert_int_equal(acknowledged_hold_lasted(ACK_LEFT_LATE), 36 * MS);
	assert_int_equal(acknowledged_hold_lasted(SENT_AFTER), 0);
}

/* ---- what another host may tell ---- */

RULE(FUNCTION, hold_meets_a_late_ack_from_a_millisecond_on)
{
	struct nt_stall_facts f = {.duration_ns = 3 * MS, .way_us = 2000, .reason = NT_HOLD_NAGLE,
				   .release = NT_RELEASE_ACK};
	struct hold h = {.ack_seen = true, .held.reason = NT_HOLD_NAGLE};

	assert_false(hold_may_meet(&h, &f, world.now_ns));
	late_acks_wanted = true;
	assert_true(hold_may_meet(&h, &f, world.now_ns));
	f.duration_ns--;
	assert_false(hold_may_meet(&h, &f, world.now_ns));
	f.duration_ns++;
	f.late_release = NT_ACK_TIMER;
	assert_false(hold_may_meet(&h, &f, world.now_ns));
	f.late_release = NT_ACK_INVALID;
	f.release = NT_RELEASE_PUSH;
	assert_false(hold_may_meet(&h, &f, world.now_ns));
	f.release = NT_RELEASE_ACK;
	h.held.reason = NT_HOLD_CORK;
	assert_false(hold_may_meet(&h, &f, world.now_ns));
	h.held.reason = NT_HOLD_MSG_MORE;
	assert_true(hold_may_meet(&h, &f, world.now_ns));
	nt_config.late_ack_ns = SECOND;
	assert_true(hold_may_meet(&h, &f, world.now_ns));
	assert_false(hold_may_meet(&h, &f, world.now_ns));
	assert_true(hold_may_meet(&h, &f, world.now_ns - SECOND - 1)); /* it is known late */
	nt_config.late_ack_ns = 0;
	late_acks_until_ns = 0;
	h.ack_seen = false;
	assert_false(hold_may_meet(&h, &f, world.now_ns));
}

/* Of those that a limit leaves room for, a second's worth may come at once; the rest is counted. */
RULE(FUNCTION, late_acks_have_a_limit)
{
	u64 *dropped = &totals_here()->dropped[NT_DROPPED_LATE_ACK], before = *dropped;
	unsigned int had_room = 0;

	for (int i = 0; i < 5000; i++)
		assert_true(late_ack_has_room(world.now_ns));
	nt_config.late_ack_ns = SECOND / 100;
	for (int i = 0; i < 5000; i++, world_delay(MS)) /* 1000 a second, for five */
		had_room += late_ack_has_room(world.now_ns);
	assert_in_range(had_room, 599, 601);
	assert_int_equal(*dropped - before, 5000 - had_room);
	/* after a rest as many as before may come at once, and no more */
	world_delay(60 * SECOND);
	had_room = 0;
	for (int i = 0; i < 1000; i++)
		had_room += late_ack_has_room(world.now_ns);
	assert_int_equal(had_room, 100);
}

/* ---- what a hold that is over was ---- */

static struct nt_stall_facts facts_of(struct endpoint *e, const struct hold *h, enum nt_release release,
				      struct late_ack *la)
{
	struct tcp t = tcp_at_hand(e);
	struct nt_stall_facts f;

	hold_facts(&f, h, &t, release, h->begin_ns + MS, la);
	return f;
}

RULE(FUNCTION, facts_are_those_of_the_hold)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	struct hold h = {.held = {.end_seq = 50, .reason = NT_HOLD_NAGLE, .mss = 1448}, .writes = 1, .written = 50,
			 .begin_ns = world.now_ns, .age_us = 40, .ack_kind = ACK_PURE, .handshake = true,
			 .in_flight_bytes = 100, .silent_ns = 7, .silent_bytes = 70};
	struct late_ack la = {.part = {.begin_ns = h.begin_ns - 5 * MS, .end_ns = h.begin_ns + MS,
				       .release = NT_ACK_TIMER},
			      .end.locked = NT_LOCK_SEEN};
	struct nt_stall_facts f = facts_of(e, &h, NT_RELEASE_ACK, NULL);

	assert_int_equal(f.duration_ns, MS);
	assert_int_equal(f.way_us, 60); /* of a round trip of 100 us */
	assert_true(f.silent_ns == 7 && f.silent_bytes == 70 && f.in_flight_bytes == 100 && f.mss == 1448);
	assert_true(f.reason == NT_HOLD_NAGLE && f.release == NT_RELEASE_ACK && f.handshake);
	assert_true(f.pure_ack && !f.ack_with_data && !f.recovering && !f.nodelay);
	assert_true(!f.late_release && !f.pending_ns && !f.pending_in_hold_ns && !f.locked);
	assert_true(f.writes == 1 && !f.rest);
	f = facts_of(e, &h, NT_RELEASE_ACK, &la);
	assert_true(f.late_release == NT_ACK_TIMER && f.locked == NT_LOCK_SEEN);
	assert_int_equal(f.pending_ns, 6 * MS);
	assert_int_equal(f.pending_in_hold_ns, MS);
	la.part.begin_ns = h.begin_ns + MS / 4;
	f = facts_of(e, &h, NT_RELEASE_ACK, &la);
	assert_int_equal(f.pending_ns, MS / 4 * 3);
	assert_int_equal(f.pending_in_hold_ns, MS / 4 * 3);
	assert_int_equal(facts_of(e, &h, NT_RELEASE_TIMER, NULL).way_us, 0);
	h.held.reason = NT_HOLD_CORK;
	assert_int_equal(facts_of(e, &h, NT_RELEASE_ACK, NULL).way_us, 0);
	h.written = 51; /* the rest of one write */
	f = facts_of(e, &h, NT_RELEASE_ACK, NULL);
	assert_true(f.writes == 1 && f.rest);
	h.written = 49; /* another went unseen */
	f = facts_of(e, &h, NT_RELEASE_ACK, NULL);
	assert_true(!f.writes && !f.rest);
	h.writes = 2;
	h.written = 51;
	f = facts_of(e, &h, NT_RELEASE_ACK, NULL);
	assert_true(!f.writes && !f.rest);
	h.written = 50;
	f = facts_of(e, &h, NT_RELEASE_ACK, NULL);
	assert_true(f.writes == 2 && !f.rest);
	h.flight = FLIGHT_REST;
	h.ack_kind = ACK_ON_DATA;
	e->tp.nonagle = NT_NAGLE_OFF;
	e->tp.total_retrans = 1;
	f = facts_of(e, &h, NT_RELEASE_ACK, NULL);
	assert_true(f.rest && !f.pure_ack && f.ack_with_data && f.nodelay && f.recovering);
	endpoint_leaves(e);
}

enum slow {
	ENDS,
	CHANGES, /* the window held the bytes, and then Nagle does */
};

/* Returns for how long a hold counts as time that was lost without a stall. kernels: the kernel itself uses the socket. */
static u64 time_counted(u64 lasted_ns, enum slow slow, bool kernels)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	struct nt_slow_key key = {.reason = slow == ENDS ? NT_HOLD_NAGLE : NT_HOLD_RWND,
				  .uid = kernels ? NT_KERNEL_UID : 1000};
	struct socket without_file = {};
	struct nt_slow *row;
	u64 counted_ns;

	sock_of(e)->sk_uid.val = 1000;
	sock_of(e)->sk_socket = kernels ? &without_file : NULL;
	e->tp.snd_wnd = slow == ENDS ? 65535 : 0;
	attempt_fails(e);
	world_delay(lasted_ns);
	e->tp.snd_wnd = 65535;
	if (slow == ENDS) {
		segment_comes(e, 0, e->tp.snd_nxt, tcp_stamp(e));
		e->tp.snd_una = e->tp.snd_nxt;
		tail_goes(e);
	}
	attempt_fails(e);
	if (n_told)
		assert_int_equal(told[0].sender.user == NT_USER_KERNEL, kernels);
	row = bpf_map_lookup_elem(&slow_holds, &key);
	counted_ns = row ? row->duration_ns : 0;
	bpf_map_delete_elem(&slow_holds, &key);
	sock_of(e)->sk_socket = NULL;
	endpoint_leaves(e);
	return counted_ns;
}

RULE(FUNCTION, time_without_a_stall_is_counted)
{
	for (int kernels = 0; kernels < 2; kernels++) {
		for (enum slow slow = ENDS; slow <= CHANGES; slow++) {
			assert_int_equal(time_counted(SLOW_NS, slow, kernels), SLOW_NS);
			assert_int_equal(time_counted(SLOW_NS - 1, slow, kernels), 0);
		}
		assert_int_equal(time_counted(50 * MS, ENDS, kernels), 0); /* a stall */
	}
}

/* The receiver's timer sends an ACK that was pending for pending_ns: is it told, and why was it late? */
static u32 lone_read; /* so many of the bytes that came were read */

static bool late_ack_is_told(u64 pending_ns, u32 limit_jiffies, u8 pingpong, u32 sent, u8 reason)
{
	struct endpoint *e = lone_endpoint();
	struct inet_connection_sock *icsk = &e->tp.inet_conn;
	u64 limit_us = limit_jiffies * world.tick_ns / US;
	bool was_told;

	late_acks_wanted = true;
	icsk->icsk_delack_max = limit_jiffies;
	icsk->icsk_ack.pingpong = pingpong;
	icsk->icsk_ack.pending = ICSK_ACK_SCHED | ICSK_ACK_TIMER;
	e->tp.data_segs_out = sent;
	e->tp.rcv_nxt += 100;
	e->tp.rcv_wnd = 150;
	icsk->icsk_ack.lrcvtime = world_jiffies();
	tcp_mstamp_refresh(e);
	e->tp.copied_seq = e->tp.rcv_wup + lone_read;
	world_delay(pending_ns);
	hook_delack_timer_handler(e);
	late_acks_wanted = false;
	was_told = n_told;
	assert_true(late_ack_may_come());
	assert_int_equal(late_ack_find(e->tp.rcv_nxt, e->tp.snd_nxt)->room, 50);
	if (was_told) {
		assert_int_equal(told[0].kind, NT_RECORD_LATE_ACK);
		assert_int_equal(told[0].ack.reason, reason);
		assert_int_equal(told[0].ack.release, NT_ACK_TIMER);
		assert_int_equal(told[0].ack.bytes, 100);
		assert_int_equal(told[0].ack.end_ns - told[0].ack.begin_ns, pending_ns);
		assert_int_equal(told[0].ack.limit_us, min_u64(limit_us, 200000));
		assert_int_equal(told[0].receiver.pingpong, !!pingpong);
		assert_int_equal(told[0].numbers.ack, e->tp.rcv_nxt);
		assert_int_equal(told[0].numbers.seq, e->tp.snd_nxt);
	}
	endpoint_leaves(e);
	return was_told;
}

RULE(FUNCTION, late_acks_are_told_with_their_reason)
{
	u32 most = DELACK_MIN_NS / world.tick_ns;

	assert_true(late_ack_is_told(MS, 1000, 1, 1, NT_ACK_REASON_PINGPONG));
	assert_false(late_ack_is_told(MS - 1, 1000, 1, 1, 0));
	assert_true(late_ack_is_told(40 * MS, 1000, 1, 0, NT_ACK_REASON_QUICKACK_OFF));
	assert_true(late_ack_is_told(40 * MS, 1000, 0, 1, NT_ACK_REASON_QUICK_EXHAUSTED));
	assert_true(late_ack_is_told(40 * MS, most, 0, 1, NT_ACK_REASON_QUICK_EXHAUSTED));
	lone_read = 40;
	assert_true(late_ack_is_told(40 * MS, 1000, 0, 1, NT_ACK_REASON_LEFT_UNREAD));
	lone_read = 100;
	assert_true(late_ack_is_told(40 * MS, 1000, 0, 1, NT_ACK_REASON_QUICK_EXHAUSTED));
	lone_read = 0;
	assert_true(late_ack_is_told(36 * MS, most - 1, 0, 1, NT_ACK_REASON_DELACK_MAX));
}

enum read {
	READ_SENDS_ACK,
	NOTHING_PENDING,
	LEAVES_SOME_UNREAD,
	MAY_SEND_NONE,  /* in interactive mode, after one push */
	CAME_JUST_NOW,
	READS,
};

/* Data came 36 ms ago, and up to a jiffy later for all that is known: does a read find a late ACK now? */
static bool read_finds_late_ack(enum read read)
{
	struct endpoint *e = lone_endpoint();
	struct tcp t = tcp_at_hand(e);
	struct inet_connection_sock *icsk = &e->tp.inet_conn;
	struct nt_ack_numbers key = {.ack = e->tp.rcv_nxt + 100, .seq = e->tp.snd_nxt};
	struct late_ack *la;
	u64 came_ns;
	bool found;

	tick_begins();
	came_ns = world.now_ns;
	icsk->icsk_ack.lrcvtime = world_jiffies();
	icsk->icsk_ack.pending = ICSK_ACK_PUSHED | (read == NOTHING_PENDING ? 0 : ICSK_ACK_SCHED | ICSK_ACK_TIMER);
	icsk->icsk_ack.pingpong = read == MAY_SEND_NONE;
	icsk->icsk_ack.rcv_mss = 1448;
	e->tp.rcv_nxt += 100;
	e->tp.copied_seq = e->tp.rcv_nxt - (read == LEAVES_SOME_UNREAD);
	world_delay(read == CAME_JUST_NOW ? 32 * MS : 36 * MS);
	tcp_mstamp_refresh(e); /* something was sent meanwhile, or tried to be */
	if (read_may_be_late(&t, true))
		pending_ack_meets_read(&t, true);
	la = late_ack_find(key.ack, key.seq);
	found = la;
	if (la) {
		assert_int_equal(la->part.begin_ns, came_ns + world.tick_ns);
		assert_int_equal(la->part.release, NT_ACK_READ);
		assert_true(la->unsure);
		assert_false(late_ack_may_come());
	}
	bpf_map_delete_elem(&late_acks, &key);
	icsk->icsk_ack.pending = 0;
	endpoint_leaves(e);
	return found;
}

RULE(TRACEPOINT, reads_find_late_acks)
{
	for (enum read read = 0; read < READS; read++)
		assert_int_equal(read_finds_late_ack(read), read == READ_SENDS_ACK);
}

enum met {
	MET_BY_READ,
	NOBODY_ASKS,
	ACK_IS_PENDING,
	ACK_NOT_SENT,
	ANOTHERS, /* socket has these numbers */
	SURE_ALREADY,
	PENDING_TOO_SHORT,
	NONE_MET,
	METS,
};

/* A segment comes after a read that met a late ACK: is it told now that the read sent that ACK? */
static bool read_ack_is_told(enum met met)
{
	struct endpoint *e = lone_endpoint();
	struct nt_ack_numbers key = {.ack = e->tp.rcv_nxt + (met == NONE_MET), .seq = e->tp.snd_nxt};
	struct late_ack *la = late_ack_new(&key);
	bool was_told;

	la->end.sk = (u64)sock_of(e) + (met == ANOTHERS);
	la->unsure = met != SURE_ALREADY;
	la->part.end_ns = world.now_ns;
	la->part.begin_ns = world.now_ns - MS + (met == PENDING_TOO_SHORT);
	e->tp.rcv_wup = e->tp.rcv_nxt - (met == ACK_NOT_SENT);
	e->tp.inet_conn.icsk_ack.pending = met == ACK_IS_PENDING ? ICSK_ACK_SCHED : 0;
	late_acks_wanted = met != NOBODY_ASKS;
	bucket_await_answer(sock_of(e), ANSWER_NS);
	for (int i = 0; i < 2; i++) /* it is told once */
		segment_comes(e, 0, e->tp.snd_una, tcp_stamp(e));
	late_acks_wanted = false;
	was_told = n_told == 1 && told[0].kind == NT_RECORD_LATE_ACK && told[0].numbers.ack == key.ack;
	assert_int_equal(n_told, was_told);
	e->tp.inet_conn.icsk_ack.pending = 0;
	bpf_map_delete_elem(&late_acks, &key);
	endpoint_leaves(e);
	return was_told;
}

RULE(TRACEPOINT, next_segment_tells_of_a_reads_late_ack)
{
	for (enum met met = 0; met < METS; met++)
		assert_int_equal(read_ack_is_told(met), met == MET_BY_READ);
}

/* What an ACK that leaves a mark must be for an answer to tell of a stall; see pending_ack_data_came(). */
enum lacks {
	NOTHING_LACKS,
	FOUND_BEFORE,
	OTHER_RELEASE,
	OTHER_SOCKET,
	NOT_INTERACTIVE,
	NOT_ALONE,
	NO_ROUND_TRIP,
	LARGE_BEFORE,
	NO_ROOM,
	SHORT,
	STAMPED_BUT_NOT_THE_SEGMENT,
	NO_DATA,
	WITH_FIN,
	SENT_ONCE_MORE,  /* other data has come since */
	ACKS_THE_UNSENT, /* the kernel does not take it */
};

static bool answer_of(u32 len, enum lacks lacks)
{
	struct endpoint *e = lone_endpoint();
	struct nt_ack_numbers key = {.ack = e->tp.rcv_nxt, .seq = e->tp.snd_nxt};
	struct packet p = {.skb = {.data = p.header}};
	struct wire w = {.seq = key.ack, .len = lacks == NO_DATA ? 0 : len, .ack = key.seq + (lacks == ACKS_THE_UNSENT),
			 .flags = TCPHDR_ACK | (lacks == WITH_FIN ? TCPHDR_FIN : 0)};
	struct tcp t = tcp_at_hand(e);
	struct late_ack *la = late_ack_new(&key);
	bool was_told;

	w.end_seq = w.seq + w.len + (lacks == WITH_FIN);
	packet_from_wire(&p, &w);
	p.header[22] = 1; /* no timestamps */
	e->tp.rcv_nxt += lacks == SENT_ONCE_MORE;
	e->tp.rx_opt.tstamp_ok = lacks == STAMPED_BUT_NOT_THE_SEGMENT;
	la->end.sk = (u64)sock_of(e) + (lacks == OTHER_SOCKET);
	la->end.pingpong = lacks != NOT_INTERACTIVE;
	la->end.min_rtt_us = lacks == NO_ROUND_TRIP ? 0 : 1000;
	la->lone = lacks != NOT_ALONE;
	la->consumed = lacks == FOUND_BEFORE;
	la->room = lacks == NO_ROOM ? len - 1 : len;
	la->part.release = lacks == OTHER_RELEASE ? NT_ACK_READ : NT_ACK_TIMER;
	la->part.bytes = lacks == LARGE_BEFORE ? 1448 : 1447;
	la->part.end_ns = world.now_ns;
	la->part.begin_ns = world.now_ns - MS + (lacks == SHORT);
	world_delay(lacks == NO_ROUND_TRIP ? 0 : MS);
	segment_may_answer(&t, &p.skb, true);
	was_told = n_told;
	bpf_map_delete_elem(&late_acks, &key);
	endpoint_leaves(e);
	return was_told;
}

RULE(FUNCTION, only_an_answer_tells_of_a_late_ack)
{
	assert_true(answer_of(100, NOTHING_LACKS));
	assert_true(answer_of(1447, NOTHING_LACKS));
	assert_false(answer_of(1448, NOTHING_LACKS));
	for (enum lacks lacks = FOUND_BEFORE; lacks <= ACKS_THE_UNSENT; lacks++)
		assert_false(answer_of(100, lacks));
}

RULE(FUNCTION, peer_sends_what_we_announce_or_what_the_path_takes)
{
	struct endpoint *e = lone_endpoint();
	struct tcp t = tcp_at_hand(e);

	e->tp.advmss = 1460;
	e->tp.mss_cache = 1448;
	e->tp.rx_opt.tstamp_ok = 0;
	assert_int_equal(peer_mss(&t), 1448);
	e->tp.mss_cache = 9000;
	assert_int_equal(peer_mss(&t), 1460);
	e->tp.rx_opt.tstamp_ok = 1;
	assert_int_equal(peer_mss(&t), 1448);
	endpoint_leaves(e);
}

/* Does the receiver of this host learn that its late ACK set nothing free? */
static bool freed_nothing(u32 tail, u32 newly, u32 sent_ago, u32 late_ago, u32 other)
{
	struct endpoint *e = endpoint_with_tail(100, tail);
	struct nt_ack_numbers key = {.ack = e->tp.snd_una + newly, .seq = e->tp.rcv_nxt + other};
	struct late_ack *la = late_ack_new(&key);
	bool answer;

	if (!tail)
		packets_free(e);
	e->tp.lsndtime = world_jiffies() - sent_ago;
	late_ack_goes();
	late_until -= late_ago;
	segment_comes(e, 0, key.ack, tcp_stamp(e));
	answer = la->part.freed_nothing;
	bpf_map_delete_elem(&late_acks, &key);
	endpoint_leaves(e);
	return answer;
}

RULE(FUNCTION, late_ack_frees_nothing_where_nothing_is_unsent)
{
	const u32 last = (ACK_WAY_NS - 1) / world.tick_ns;

	assert_true(freed_nothing(0, 100, 1, 0, 0));
	assert_true(freed_nothing(0, 1, 10, last, 0));
	assert_false(freed_nothing(50, 100, 1, 0, 0));
	assert_false(freed_nothing(0, 0, 1, 0, 0));
	assert_false(freed_nothing(0, 100, 0, 0, 0));
	assert_false(freed_nothing(0, 100, 1, last + 1, 0));
	assert_false(freed_nothing(0, 100, 1, 0, 1));
}

/* Whatever HZ is; at 300 a jiffy is no whole number of nanoseconds. */
RULE(FUNCTION, late_ack_is_on_its_way_for_so_long_at_any_tick)
{
	const u64 ticks[] = {1 * MS, SECOND / 300, 4 * MS, 10 * MS}, tick = world.tick_ns;

	for (u32 i = 0; i < sizeof(ticks) / sizeof(ticks[0]); i++) {
		nt_config.tick_ns = world.tick_ns = ticks[i];
		for (u32 ago = 0; ago <= 2 * ACK_WAY_JIFFIES; ago++) {
			late_ack_goes();
			late_until -= ago;
			assert_int_equal(late_ack_may_come(), ago * ticks[i] < ACK_WAY_NS);
		}
	}
	nt_config.tick_ns = world.tick_ns = tick;
}

/* The longest wait of any socket counts for its whole bucket. */
RULE(FUNCTION, answer_is_awaited_until_it_tells_nothing)
{
	const u64 ticks[] = {1 * MS, SECOND / 300, 4 * MS, 10 * MS}, tick = world.tick_ns;
	const u64 awaited[] = {0, 50 * MS, ANSWER_NS, 2 * ANSWER_NS};
	struct endpoint *e = lone_endpoint();
	struct nt_bucket *b = &buckets[bucket_index(sock_of(e), true)];

	for (u32 i = 0; i < 16; i++) {
		u64 most = awaited[i % 4] < ANSWER_NS ? awaited[i % 4] : ANSWER_NS;
		u32 jiffies;

		nt_config.tick_ns = world.tick_ns = ticks[i / 4];
		jiffies = (most + JIFFIES_LAG_NS) / ticks[i / 4] + 1;
		b->answer_until = 0;
		assert_false(bucket_awaits_answer(b));
		bucket_await_answer(sock_of(e), awaited[i % 4]);
		bucket_await_answer(sock_of(e), 0);
		b->answer_until -= jiffies;
		assert_true(bucket_awaits_answer(b));
		b->answer_until--;
		assert_false(bucket_awaits_answer(b));
	}
	nt_config.tick_ns = world.tick_ns = tick;
	endpoint_leaves(e);
}

enum room {
	ANOTHER_READS, /* while a writer sleeps */
	WRITER_SLEEPS,
	WRITER_POLLS, /* from here to SOCKET_GOES it is open whether somebody waits */
	POLLER_GOES_ON_LATE,
	REPLY_CAME,
	FIN_GOES,
	SOCKET_GOES, /* before anything is written */
	NOBODY_ASKED,
	ACK_WITH_DATA,
	ROOM_WITHOUT_LATE_ACK, /* after a short silence */
	POLLS_FOR_DATA,
	OF_ANOTHER_NAMESPACE,
	MAP_IS_FULL,
	MEMORY_LACKS, /* and no room in the buffer, while a writer sleeps */
	ROOMS,
};

/* Is a late ACK told that made room in a full send buffer? */
static bool room_is_told(enum room room)
{
	struct endpoint *e = endpoint_with_tail(100, 0);
	struct nt_ack_numbers key = {.ack = e->tp.snd_nxt, .seq = e->tp.rcv_nxt};
	struct socket socket = {.flags = room == NOBODY_ASKED ? 0 : 1 << 2}; /* SOCK_NOSPACE */
	struct epitem item = {.event.events = room == POLLS_FOR_DATA ? 1 : 1 | 4}; /* EPOLLIN, EPOLLOUT */
	struct eppoll_entry watch = {.base = &item};
	struct socket_wq queue = {.wait.head.next = &watch.wait.entry};
	u64 silent_ns = room == ROOM_WITHOUT_LATE_ACK ? 10 * MS : 40 * MS;
	struct late_ack *la = NULL;
	bool told_so, asleep = room <= WRITER_SLEEPS || room == MEMORY_LACKS;

	packets_free(e);
	sock_of(e)->sk_socket = &socket;
	sock_of(e)->sk_wq = asleep ? NULL : &queue;
	sock_of(e)->sk_write_pending = asleep;
	sock_of(e)->sk_wmem_queued = 4096;
	sock_of(e)->sk_sndbuf = room == MEMORY_LACKS ? 8192 : 4608;
	e->tp.lsndtime = world_jiffies();
	world_delay(silent_ns / 2);
	if (room == ANOTHER_READS)
		tcp_mstamp_refresh(e); /* tcp_rcv_space_adjust() */
	world_delay(silent_ns - silent_ns / 2);
	if (room != ROOM_WITHOUT_LATE_ACK) {
		la = late_ack_new(&key);
		la->part.release = NT_ACK_TIMER;
		la->part.begin_ns = world.now_ns - silent_ns;
		la->part.end_ns = world.now_ns;
	}
	if (room == MEMORY_LACKS)
		late_ack_goes(); /* else nobody would look */
	nt_config.netns = room == OF_ANOTHER_NAMESPACE ? 99 : 0;
	host_sized(&hold_hash)->refuses = room == MAP_IS_FULL;
	segment_comes(e, room == ACK_WITH_DATA, key.ack, tcp_stamp(e));
	host_sized(&hold_hash)->refuses = false;
	assert_int_equal(!!hold_at_hand(e), room >= WRITER_POLLS && room <= SOCKET_GOES);
	if (room == MAP_IS_FULL) /* somebody waits, though nothing keeps for how long */
		assert_true(la && la->consumed && !la->part.freed_nothing);
	if (room == SOCKET_GOES) {
		hook_destroy(e);
		assert_null(hold_at_hand(e));
	}
	nt_config.netns = 0;
	e->tp.snd_una = key.ack;
	e->tp.rcv_nxt += room == REPLY_CAME;
	world_delay(asleep || room == POLLER_GOES_ON_LATE ? GO_ON_NS : GO_ON_NS - 1);
	e->tp.snd_nxt = e->tp.write_seq = e->tp.snd_nxt + 50;
	sock_of(e)->__sk_common.skc_state = room == FIN_GOES ? NT_TCP_FIN_WAIT1 : TCP_ESTABLISHED;
	attempt_fails(e);
	told_so = n_told && told[0].cause == NT_CAUSE_DELAYED_ACK && told[0].hold.reason == NT_HOLD_SNDBUF &&
		  apart(told[0].hold.end_ns - told[0].hold.begin_ns, silent_ns) <=
			  (room == ANOTHER_READS ? 2 * world.tick_ns : 0);
	assert_int_equal(n_told, told_so);
	bpf_map_delete_elem(&late_acks, &key);
	sock_of(e)->sk_socket = NULL;
	sock_of(e)->sk_wq = NULL;
	endpoint_leaves(e);
	return told_so;
}

RULE(FUNCTION, late_ack_makes_room_for_who_waits)
{
	for (enum room room = 0; room < ROOMS; room++)
		assert_int_equal(room_is_told(room), room <= WRITER_POLLS);
}

/* Is a server told that greets so long after the late ACK for which its accept() waited? */
static bool greeting_is_told(u64 after_ns, u64 pending_ns, bool syn_data)
{
	struct endpoint *e = lone_endpoint();
	struct nt_ack_numbers key = {.ack = e->tp.rcv_nxt, .seq = e->tp.snd_nxt};
	struct packet p = {.skb = {.data = p.header}};
	struct tcp t = tcp_at_hand(e);
	struct late_ack *la = late_ack_new(&key);
	bool told_so;

	e->tp.rx_opt.tstamp_ok = false;
	e->tp.data_segs_out = syn_data;
	la->end.sk = (u64)sock_of(e);
	la->end.min_rtt_us = 1000;
	la->part.release = NT_ACK_TIMER;
	la->part.end_ns = world.now_ns;
	la->part.begin_ns = world.now_ns - pending_ns;
	world_delay(after_ns);
	pending_ack_data_came(&t, &p.skb, &(struct segment){.seq = key.ack, .ack = key.seq}, 9, world.now_ns);
	told_so = n_told && told[0].cause == NT_CAUSE_DELAYED_ACK && told[0].hold.reason == NT_HOLD_HANDSHAKE &&
		  told[0].evidence == NT_EVIDENCE_SEEN && told[0].pattern == NT_PATTERN_SERVER_FIRST;
	assert_int_equal(n_told, told_so);
	bpf_map_delete_elem(&late_acks, &key);
	endpoint_leaves(e);
	return told_so;
}

RULE(FUNCTION, late_ack_of_a_handshake_keeps_a_server_that_greets)
{
	const u64 latest_ns = ACCEPT_NS + 1500 * US + world.tick_ns; /* the round trip takes 1 ms */

	assert_true(greeting_is_told(MS, MS, false));
	assert_false(greeting_is_told(MS, MS, true));
	assert_false(greeting_is_told(MS, MS - 1, false));
	assert_true(greeting_is_told(latest_ns, 40 * MS, false));
	assert_false(greeting_is_told(latest_ns + 1, 40 * MS, false));
}

enum closer {
	CLOSER_WAITS,
	ACK_UNSEEN, /* as it left; the smoothed round trip takes 10 ms */
	CLOSES_AT_ONCE, /* without SO_LINGER */
	PEER_CLOSED_FIRST,
	NOBODY_CLOSES, /* the socket goes by itself */
	PROCESS_ENDS,
	NO_FIN_SENT,
	FIN_IN_FLIGHT,
	DATA_ACKED_LAST,
	GOES_ON_LATE,
	ACK_IS_PROMPT,
	QUEUE_ON_THE_WAY, /* shows in the smoothed round trip */
	CLOSERS,
};

/* Is the late ACK told for which close() waited? */
static bool close_is_told(enum closer closer)
{
	struct endpoint *e = endpoint_with_tail(0, 0);
	struct sock *sk = sock_of(e);
	u64 waits_ns = closer == ACK_IS_PROMPT ? 10 * MS : 40 * MS;
	struct nt_ack_numbers key = {.ack = ++e->tp.write_seq, .seq = e->tp.rcv_nxt};
	u64 *counted = &totals_here()->releases[NT_RELEASE_ACK], before = *counted;
	bool ack_seen = closer != ACK_IS_PROMPT && closer != ACK_UNSEEN && closer != QUEUE_ON_THE_WAY;
	struct late_ack *la;
	bool told_so;

	packets_free(e);
	e->tp.pushed_seq += closer == NO_FIN_SENT;
	e->tp.snd_nxt = e->tp.snd_una = key.ack;
	e->tp.snd_una -= closer == FIN_IN_FLIGHT;
	e->tp.rack.mstamp = world.now_ns / US;
	e->tp.rack.end_seq = key.ack - (closer == DATA_ACKED_LAST);
	world_delay(waits_ns);
	e->tp.delivered_mstamp = world.now_ns / US;
	e->tp.srtt_us = 8 * (closer == ACK_UNSEEN ? 10000 : closer == QUEUE_ON_THE_WAY ? 11000 : 0);
	if (ack_seen) {
		la = late_ack_new(&key);
		la->part.release = NT_ACK_TIMER;
		la->part.begin_ns = world.now_ns - waits_ns;
		la->part.end_ns = world.now_ns;
	}
	world_delay(closer == GOES_ON_LATE ? GO_ON_NS : GO_ON_NS - US);
	sk->sk_lingertime = 1;
	sk->__sk_common.skc_flags = (closer != CLOSES_AT_ONCE) << 4 | (closer == PEER_CLOSED_FIRST) << 1;
	sk->sk_lock.owned = closer != NOBODY_CLOSES;
	idle.flags = closer == PROCESS_ENDS ? 4 : 0; /* PF_EXITING */
	host.pid_tgid = 99ULL << 32 | 99;
	hook_destroy(e);
	host.pid_tgid = 0;
	if (n_told) {
		assert_true(told[0].sender.tgid == 99 && told[0].sender.tid == 99);
		assert_true(told[0].numbers.ack == key.ack && told[0].numbers.seq == key.seq);
	}
	told_so = n_told && told[0].cause == NT_CAUSE_DELAYED_ACK && told[0].hold.reason == NT_HOLD_LINGER &&
		  told[0].hold.end_ns - told[0].hold.begin_ns == waits_ns;
	assert_int_equal(n_told, told_so || !ack_seen); /* or a hold that is no stall */
	assert_int_equal(*counted - before, n_told);
	idle.flags = 0;
	sk->sk_lingertime = 0;
	bpf_map_delete_elem(&late_acks, &key);
	endpoint_leaves(e);
	return told_so;
}

RULE(FUNCTION, late_ack_keeps_a_close_that_lingers)
{
	for (enum closer closer = 0; closer < CLOSERS; closer++)
		assert_int_equal(close_is_told(closer), closer == CLOSER_WAITS || closer == ACK_UNSEEN);
}

/* ---- whose a hold is ---- */

/* No program saw the write, as where sock_send_length is missing. The socket is known by its process until it goes,
 * though tcp_disconnect() has taken its remote port away. */
RULE(FUNCTION, hold_without_its_writer_is_of_the_process_asked_for)
{
	const u32 asked_for = 77;

	for (u32 tgid = 0; tgid <= asked_for; tgid += asked_for) {
		struct endpoint *e = endpoint_with_tail(100, 50);
		u64 key = (u64)sock_of(e);

		host.pid_tgid = (u64)tgid << 32;
		if (tgid)
			mark_owned(sock_of(e), false);
		host.pid_tgid = 0;
		attempt_fails(e);
		world_delay(50 * MS);
		segment_comes(e, 0, e->tp.snd_nxt, tcp_stamp(e));
		e->tp.snd_una = e->tp.snd_nxt;
		tail_goes(e);
		attempt_fails(e);
		assert_int_equal(n_told, 1);
		assert_int_equal(told[0].numbers.ack, e->tp.snd_una);
		assert_int_equal(told[0].numbers.seq, e->tp.rcv_nxt);
		assert_int_equal(told[0].sender.tgid, tgid);
		assert_int_equal(told[0].sender.target, !!tgid);
		sock_of(e)->__sk_common.skc_dport = 0;
		nt_config.target = NT_TARGET_PIDS;
		endpoint_leaves(e);
		nt_config.target = NT_TARGET_ALL;
		assert_null(bpf_map_lookup_elem(&owned, &key));
	}
}

/* By the ACK's numbers another host finds the hold; what else released it has none. */
RULE(FUNCTION, hold_has_the_numbers_of_no_ack_but_its_own)
{
	struct endpoint *e = endpoint_with_tail(100, 50);

	attempt_fails(e);
	world_delay(50 * MS);
	segment_comes(e, 0, e->tp.snd_una + 40, tcp_stamp(e));
	e->tp.snd_up = e->tp.snd_una += 40;
	attempt_fails(e);
	e->tp.nonagle = NT_NAGLE_OFF;
	tail_goes(e);
	attempt_fails(e);
	assert_int_equal(n_told, 1);
	assert_int_equal(told[0].hold.release, NT_RELEASE_NODELAY);
	assert_true(!told[0].numbers.ack && !told[0].numbers.seq);
	endpoint_leaves(e);
}

/* ---- what a timeline is told ---- */

static struct nt_event events_told[8];
static u32 n_events_told;

static void on_event(const void *event)
{
	assert_true(n_events_told < 8);
	memcpy(&events_told[n_events_told++], event, sizeof(events_told[0]));
}

RULE(FUNCTION, timeline_tells_where_a_hold_begins_changes_and_ends)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	u32 held_seq;

	nt_config.timeline = true;
	host.on_event = on_event;
	n_events_told = 0;
	attempt_fails(e);
	assert_int_equal(n_events_told, 1);
	assert_int_equal(events_told[0].kind, NT_EVENT_HOLD_BEGIN);
	assert_int_equal(events_told[0].reason, NT_HOLD_NAGLE);
	assert_int_equal(events_told[0].seq, e->tp.snd_nxt);
	assert_int_equal(events_told[0].bytes, 50);
	assert_int_equal(events_told[0].in_flight_bytes, 100);
	attempt_fails(e);
	assert_int_equal(n_events_told, 1);
	e->tp.snd_wnd = 0;
	attempt_fails(e);
	assert_int_equal(n_events_told, 2);
	assert_int_equal(events_told[1].kind, NT_EVENT_HOLD_BEGIN);
	assert_int_equal(events_told[1].reason, NT_HOLD_RWND);
	world_delay(MS);
	held_seq = e->tp.snd_una = e->tp.snd_nxt;
	e->tp.lsndtime = world_jiffies();
	tail_goes(e);
	attempt_fails(e);
	assert_int_equal(n_events_told, 3);
	assert_int_equal(events_told[2].kind, NT_EVENT_HOLD_END);
	assert_int_equal(events_told[2].seq, held_seq);
	assert_int_equal(events_told[2].bytes, 50);
	assert_int_equal(events_told[2].reason, NT_HOLD_RWND);
	assert_int_equal(events_told[2].release, NT_RELEASE_ACK);
	assert_int_equal(events_told[2].duration_ns, MS);
	endpoint_leaves(e);
	/* tcp_disconnect() sets the state before it sends a reset, which moves the clock */
	e = endpoint_with_tail(100, 50);
	n_events_told = 0;
	attempt_fails(e);
	world_delay(5 * MS);
	RUN_PROGRAM(on_inet_sock_set_state, ADDRESS(e), TCP_ESTABLISHED, TCP_CLOSE);
	assert_int_equal(events_told[2].kind, NT_EVENT_HOLD_END);
	assert_int_equal(events_told[2].release, NT_RELEASE_RESET);
	assert_int_equal(events_told[2].duration_ns, 5 * MS);
	assert_null(hold_at_hand(e));
	endpoint_leaves(e);
	host.on_event = NULL;
	nt_config.timeline = false;
}
