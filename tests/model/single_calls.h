/* SPDX-License-Identifier: GPL-2.0 */
/* Tests limits that random runs rarely meet, by single calls of programs on a socket laid out by
 * hand. */
#pragma once

#include "told.h"

/* Returns an end of a connection that has not held a segment yet. */
static struct endpoint *lone_endpoint(void)
{
	static struct conversation none;
	struct endpoint *e = &none.end[0];

	none.life++;
	endpoint_open(&none, 0, 1, 1, 1448);
	e->tp.snd_wnd = e->tp.rcv_wnd = 65535;
	world_delay(SECOND);
	return e;
}

/* Returns an end with so many bytes in flight, the last of them in a small segment, and an unsent tail. */
static struct endpoint *endpoint_with_tail(u32 in_flight, u32 tail)
{
	struct endpoint *e = lone_endpoint();

	e->tp.rtt_min.s[0].v = 100;
	e->tp.packets_out = !!in_flight;
	e->tp.data_segs_out = 10;
	e->tp.snd_nxt = e->tp.snd_sml = e->tp.snd_una + in_flight;
	e->tp.write_seq = e->tp.pushed_seq = e->tp.snd_nxt + tail;
	e->tp.rcv_tstamp = world_jiffies();
	queue_put_behind(e, NULL, packet_new(e, e->tp.snd_nxt, tail, 0));
	tcp_mstamp_refresh(e);
	return e;
}

static void attempt_fails(struct endpoint *e)
{
	tcp_mstamp_refresh(e);
	hook_write_xmit_exit(e, e->tp.mss_cache, e->tp.nonagle, 0);
}

static void tail_goes(struct endpoint *e)
{
	packets_free(e);
	e->tp.snd_nxt = e->tp.snd_sml = e->tp.write_seq;
	e->tp.lsndtime = world_jiffies();
}

static void endpoint_leaves(struct endpoint *e)
{
	packets_free(e);
	hook_destroy(e);
	n_told = 0;
	scratch_is_free();
}

static void segment_comes(struct endpoint *e, u32 len, u32 ack, u32 echo)
{
	struct packet p = {.skb = {.data = p.header}};
	struct wire w = {.seq = e->tp.rcv_nxt, .end_seq = e->tp.rcv_nxt + len, .len = len, .ack = ack,
			 .window = 65535, .flags = TCPHDR_ACK, .ts_value = e->ts_recent,
			 .ts_echo = echo};

	packet_from_wire(&p, &w);
	hook_probe(e, &p);
}

/*
 * Says whether a stall is reported when the receiver's timer sends an ACK and the next segment
 * comes after_ns later. older: by how many ms the timestamp that the segment echoes is older than
 * that of the ACK; -1: no timestamps.
 */
static bool answer_is_told(u64 rtt_ns, u64 srtt_ns, u64 after_ns, int older)
{
	struct endpoint *e = lone_endpoint();
	struct inet_connection_sock *icsk = &e->tp.inet_conn;
	bool was_told;
	u32 echo;

	e->tp.rx_opt.tstamp_ok = older >= 0;
	e->tp.rtt_min.s[0].v = rtt_ns / US;
	e->tp.srtt_us = 8 * (srtt_ns / US);
	e->tp.data_segs_out = e->tp.data_segs_in = 10;
	icsk->icsk_ack.pingpong = 1;
	icsk->icsk_ack.lrcvtime = world_jiffies();
	tcp_mstamp_refresh(e);
	e->tp.rcv_nxt += 100;
	icsk->icsk_ack.pending = ICSK_ACK_SCHED | ICSK_ACK_TIMER;
	world_delay(40 * MS);
	hook_delack_timer_handler(e);
	icsk->icsk_ack.pending = ICSK_ACK_SCHED;
	icsk->icsk_ack.pingpong = 0;
	world_delay(100 * MS); /* a preemptible kernel takes the CPU from the handler */
	hook_send_ack(e);
	e->tp.rcv_wup = e->tp.rcv_nxt;
	icsk->icsk_ack.pending = 0;
	echo = tcp_stamp(e) - older;
	world_delay(after_ns);
	segment_comes(e, 200, e->tp.snd_una, echo);
	was_told = n_told;
	segment_comes(e, 200, e->tp.snd_una, echo); /* a second one, with the same delay */
	assert_int_equal(n_told, was_told);
	if (was_told)
		assert_int_equal(told[0].pattern, NT_PATTERN_PEER_HOLDS);
	endpoint_leaves(e);
	return was_told;
}

static void answer_comes_within(u64 rtt_ns, u64 srtt_ns, u64 most_ns)
{
	assert_true(answer_is_told(rtt_ns, srtt_ns, most_ns, 0));
	assert_false(answer_is_told(rtt_ns, srtt_ns, most_ns + 1, 0));
}

/* Counts the map lookups for the segments of a bulk transfer, each of which meets a large tail. */
static u64 lookups_of_segments(u32 n)
{
	struct endpoint *e = lone_endpoint();
	struct sk_buff *queue = queue_end(e);
	u64 before;

	e->tp.snd_nxt += 10 * 1448;
	e->tp.write_seq = e->tp.snd_nxt + 64 * 1448;
	e->tp.rcv_tstamp = world_jiffies();
	queue_put_behind(e, NULL, packet_new(e, e->tp.snd_nxt, 64 * 1448, 0));
	e->tp.inet_conn.icsk_ack.pingpong = 1;
	e->tp.snd_cwnd = e->tp.packets_out = 10;
	hook_send_length(e, 64 * 1448);
	before = host.lookups;
	while (n--)
		segment_comes(e, 0, e->tp.snd_una, tcp_stamp(e));
	before = host.lookups - before;
	packets_free(e);
	assert_ptr_equal(sock_of(e)->sk_write_queue.next, queue);
	endpoint_leaves(e);
	return before;
}

enum recovery {
	NO_RECOVERY,
	RECOVERY_AT_ACK,  /* the ACK ends it */
	RECOVERY_BEGINS,  /* the ACK starts it */
	SENT_AGAIN,
	LOST,
	RETRANSMITTED,    /* during the hold */
	NODELAY_SINCE,    /* no recovery, but TCP_NODELAY is set when the hold is over */
	CORK_SINCE,       /* no recovery, but an unseen cork goes on to hold what Nagle held */
};

/* Nagle holds a segment for 50 ms and an ACK releases it: says whether a stall is reported. */
static bool wait_is_told(enum recovery recovery)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	struct inet_connection_sock *icsk = &e->tp.inet_conn;
	bool was_told;

	attempt_fails(e);
	world_delay(50 * MS);
	icsk->icsk_ca_state = recovery == RECOVERY_AT_ACK ? 3 : CA_OPEN;
	e->tp.nonagle = recovery == CORK_SINCE ? NT_NAGLE_CORK : 0;
	segment_comes(e, 0, e->tp.snd_nxt, tcp_stamp(e));
	icsk->icsk_ca_state = CA_OPEN;
	e->tp.nonagle = recovery == NODELAY_SINCE ? NT_NAGLE_OFF : 0;
	e->tp.sacked_out = recovery == RECOVERY_BEGINS;
	e->tp.retrans_out = recovery == SENT_AGAIN;
	e->tp.lost_out = recovery == LOST;
	e->tp.total_retrans = recovery == RETRANSMITTED;
	tcp_mstamp_refresh(e);
	e->tp.snd_una = e->tp.snd_nxt;
	tail_goes(e);
	hook_write_xmit_exit(e, 1448, 0, 0);
	was_told = n_told && told[0].cause;
	if (was_told)
		assert_int_equal(told[0].evidence, NT_EVIDENCE_INFERRED);
	if (was_told)
		assert_int_equal(told[0].pattern, recovery == NODELAY_SINCE ? NT_PATTERN_HANDSHAKE_FLIGHT
									    : NT_PATTERN_WRITE_WRITE_READ);
	endpoint_leaves(e);
	return was_told;
}

enum since {
	NOTHING,
	DATA_CAME,
	MORE_WRITTEN,
	CORKED,
	SENT_ANEW, /* the bytes were lost */
};

/*
 * Nagle holds a segment, and after after_ns an ACK releases it; no program sees that ACK, nor the
 * segment go, nor the ACK of it. 7 ms later something comes. Returns the duration of the stall that
 * is told, 0: none.
 */
static u64 unseen_end_is_told(u64 after_ns, enum since since)
{
	struct endpoint *e = endpoint_with_tail(100, 50);
	u64 duration_ns = 0;

	hook_send_length(e, 50);
	world_delay(after_ns);
	e->tp.lsndtime = world_jiffies();
	packets_free(e);
	e->tp.packets_out = 0;
	e->tp.snd_una = e->tp.snd_nxt = e->tp.snd_sml = e->tp.write_seq;
	e->tp.rcv_nxt += since == DATA_CAME;
	e->tp.write_seq += since == MORE_WRITTEN;
	e->tp.nonagle = since == CORKED ? NT_NAGLE_CORK : 0;
	e->tp.total_retrans = since == SENT_ANEW;
	world_delay(7 * MS);
	tcp_mstamp_refresh(e);
	segment_comes(e, 100, e->tp.snd_una, tcp_stamp(e));
	if (n_told && told[0].cause) {
		assert_int_equal(told[0].evidence, NT_EVIDENCE_INFERRED);
		duration_ns = told[0].hold.end_ns - told[0].hold.begin_ns;
	}
	endpoint_leaves(e);
	return duration_ns;
}

/* Tests a cork whose begin was not seen, with a busy device when the probe timer sends the
 * segment. */
static void cork_ends_by_timer(void)
{
	struct endpoint *e = endpoint_with_tail(0, 50);
	u64 began_ns = world.now_ns;

	e->tp.nonagle = NT_NAGLE_CORK;
	e->tp.inet_conn.icsk_pending = ICSK_TIME_PROBE0;
	sock_of(e)->sk_tsq_flags = NT_TSQ_THROTTLED;
	world_delay(200 * MS);
	hook_timer_expire(e->write_timer.list);
	assert_int_equal(n_told, 1);
	assert_int_equal(told[0].cause, NT_CAUSE_CORK_CEILING);
	assert_int_equal(told[0].hold.begin_ns, began_ns);
	e->tp.snd_nxt = e->tp.write_seq;
	endpoint_leaves(e);
}

/* Tests that a probe timer does not end a cork while the application has the socket locked. */
static void cork_outlasts_a_postponed_timer(void)
{
	struct endpoint *e = endpoint_with_tail(0, 50);

	e->tp.nonagle = NT_NAGLE_CORK;
	e->tp.inet_conn.icsk_pending = ICSK_TIME_PROBE0;
	hook_write_xmit_entry(e, 1448, NT_NAGLE_CORK, 0);
	hook_write_xmit_exit(e, 1448, NT_NAGLE_CORK, 0);
	hook_send_length(e, 50);
	world_delay(200 * MS);
	sock_of(e)->sk_lock.owned = 1;
	hook_timer_expire(e->write_timer.list);
	sock_of(e)->sk_lock.owned = 0;
	assert_int_equal(n_told, 0);
	endpoint_leaves(e);
}

/* The timer sends the ACK of bytes that came 40 ms ago; the socket's clock has moved by clock_ns then. */
static struct late_ack ack_by_timer(u8 pending, u32 bytes, u64 clock_ns, u8 state)
{
	struct endpoint *e = lone_endpoint();
	struct inet_connection_sock *icsk = &e->tp.inet_conn;
	struct late_ack la;

	icsk->icsk_ack.lrcvtime = world_jiffies();
	icsk->icsk_ack.pending = pending | ICSK_ACK_PUSHED | ICSK_ACK_SCHED | ICSK_ACK_TIMER;
	e->tp.rcv_nxt += bytes;
	e->tp.tcp_clock_cache = world.now_ns + clock_ns;
	sock_of(e)->__sk_common.skc_state = state;
	world_delay(40 * MS);
	hook_timer_expire(e->ack_timer.list);
	la = *late_ack_find(e->tp.rcv_nxt, e->tp.snd_nxt);
	endpoint_leaves(e);
	return la;
}

/* Returns by how much later than it did the ACK is told to have become pending. */
static u64 ack_began(u64 clock_ns, u8 state)
{
	return ack_by_timer(0, 0, clock_ns, state).part.begin_ns + 40 * MS - world.now_ns;
}

static bool ack_is_lone(u8 pending, u32 bytes)
{
	return ack_by_timer(pending, bytes, 0, TCP_ESTABLISHED).lone;
}
