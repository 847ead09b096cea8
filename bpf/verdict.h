/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Why is the unsent tail of this socket not on the wire? A pure function of TCP state answers, and
 * asks in the order of tcp_write_xmit(), net/ipv4/tcp_output.c, whose relevant lines are the same
 * from 5.4 to 7.3. It compiles for the host too: tests/unit/test_verdict.c.
 */
#pragma once

#include <stdbool.h>
#include "nagletrace.h"

/* tp->nonagle and the argument of the same name; include/net/tcp.h */
#define NT_NAGLE_OFF        1 /* TCP_NODELAY */
#define NT_NAGLE_CORK       2 /* TCP_CORK, or MSG_MORE in the argument only */
#define NT_NAGLE_PUSH       4 /* send what is queued now */

#define NT_SK_PACING_NEEDED 1   /* SK_PACING_NEEDED, include/net/sock.h */
#define NT_SK_PACING_FQ     2   /* SK_PACING_FQ: the queueing discipline paces */
#define NT_SK_WMEM_BIAS     1   /* SK_WMEM_ALLOC_BIAS, include/net/sock.h */
#define NT_CA_CWR           2   /* TCP_CA_CWR, include/uapi/linux/tcp.h */
#define NT_TSQ_THROTTLED    0x1 /* 1 << TSQ_THROTTLED, include/linux/tcp.h */
#define NT_TSQ_RESUMING     0x6 /* 1 << TSQ_QUEUED | 1 << TCP_TSQ_DEFERRED: tcp_wfree() has seen it */

/* The push_one argument of tcp_write_xmit(). */
#define NT_PUSH_ALL        0
#define NT_PUSH_ONE        1 /* tcp_push_one() */
#define NT_PUSH_LOSS_PROBE 2 /* tcp_send_loss_probe() */

/* What tcp_write_xmit() looks at, read while the socket is locked. Sequence numbers wrap; flags are
 * 0 or 1. */
struct nt_tcp_state {
	__u64 wstamp_ns; /* tp->tcp_wstamp_ns: earliest departure of the next segment */
	__u64 clock_ns;  /* tp->tcp_clock_cache: when the last attempt began, CLOCK_MONOTONIC */
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 snd_sml; /* end of the last small segment sent */
	__u32 snd_up;  /* urgent pointer */
	__u32 snd_wnd;
	__u32 snd_cwnd;
	__u32 write_seq;
	__u32 tlp_high_seq; /* snd_nxt after a loss probe that is not yet acknowledged, or 0 */
	__u32 packets_out;
	__u32 left_out; /* sacked or lost: tcp_left_out() */
	__u32 retrans_out;
	__u32 mss;      /* mss_now of the attempt */
	__u32 head_seq; /* first unsent skb */
	__u32 head_end_seq;
	__u32 head_len;
	__u8 head_fin;
	__u8 head_last; /* no skb queued behind it */
	__u8 has_head;
	__u8 pacing;       /* sk_pacing_status == SK_PACING_NEEDED */
	__u8 throttled;    /* TSQ_THROTTLED is set */
	__u8 resuming;     /* it was, and the device has made room on another CPU since */
	__u8 unpushed;     /* tp->pushed_seq is not write_seq: the last write was with MSG_MORE */
	__u8 queued_below; /* the device still has segments of ours, or has just dropped one */
	__u8 nonagle;      /* tp->nonagle */
	__u8 nonagle_arg;  /* of the attempt */
	__u8 push_one;     /* of the attempt */
	__u8 tcp_state;    /* sk->sk_state */
	__u8 fin_alone;    /* the FIN left later than the last data */
};

/* Is a later than b in sequence space? include/net/tcp.h */
static inline bool nt_after(__u32 a, __u32 b)
{
	return (__s32)(b - a) < 0;
}

/* tcp_minshall_check(): a small segment is out and not yet acknowledged. */
static inline bool nt_minshall(const struct nt_tcp_state *s)
{
	return nt_after(s->snd_sml, s->snd_una) && !nt_after(s->snd_sml, s->snd_nxt);
}

/* Mirrors tcp_packets_in_flight(). */
static inline __u32 nt_packets_in_flight(const struct nt_tcp_state *s)
{
	return s->packets_out - s->left_out + s->retrans_out;
}

/* Does tcp_snd_wnd_test() fail once all before una is acknowledged? */
static inline bool nt_beyond_window(const struct nt_tcp_state *s, __u32 una)
{
	__u32 end_seq = s->head_len > s->mss ? s->head_seq + s->mss : s->head_end_seq;

	return nt_after(end_seq, una + s->snd_wnd);
}

/* Mirrors tcp_nagle_test(); INVALID: it sends the segment. */
static inline enum nt_hold_reason nt_nagle_verdict(const struct nt_tcp_state *s)
{
	/* tcp_write_xmit() passes TCP_NAGLE_PUSH for all but the last skb */
	__u8 nonagle = s->head_last ? s->nonagle_arg : NT_NAGLE_PUSH;

	if (nonagle & NT_NAGLE_PUSH)
		return NT_HOLD_INVALID;
	if (s->snd_una != s->snd_up || s->head_fin || s->head_len >= s->mss)
		return NT_HOLD_INVALID;
	if (nonagle & NT_NAGLE_CORK)
		return s->nonagle & NT_NAGLE_CORK ? NT_HOLD_CORK : NT_HOLD_MSG_MORE;
	if (!nonagle && s->packets_out && nt_minshall(s))
		return NT_HOLD_NAGLE;
	return NT_HOLD_INVALID;
}

/* Returns the reason of the hold, or NT_HOLD_INVALID when nothing is held. */
static inline enum nt_hold_reason nt_verdict(const struct nt_tcp_state *s)
{
	enum nt_hold_reason reason;

	if (!s->has_head)
		return NT_HOLD_INVALID;
	if (s->pacing && s->wstamp_ns > s->clock_ns)
		return NT_HOLD_PACING;
	/* tcp_cwnd_test(): a loss probe may exceed the window by one */
	if (s->push_one != NT_PUSH_LOSS_PROBE && nt_packets_in_flight(s) >= s->snd_cwnd)
		return NT_HOLD_CWND;
	if (nt_beyond_window(s, s->snd_una))
		return NT_HOLD_RWND;
	reason = nt_nagle_verdict(s);
	if (reason)
		return reason;
	if (s->throttled || s->resuming)
		return NT_HOLD_TSQ;
	/* it has sent the one segment that it was to send; the writer or the next ACK goes on */
	if (s->push_one)
		return NT_HOLD_INVALID;
	if (s->head_len > s->mss)
		return NT_HOLD_TSO_DEFER;
	/* the small queue's flags may be gone by now, as the device makes room on another CPU */
	return s->queued_below ? NT_HOLD_TSQ : NT_HOLD_UNKNOWN;
}

/*
 * Gives the verdict where no hook shows attempts and their arguments.
 *
 * A write with MSG_MORE does not ask to push its last segment, and passes CORK: tcp_push() (but a
 * write of more than half the window does push: forced_push()). That binds the write's own attempt
 * only, so not once an ACK has caused another. And when pacing's time was up, its timer made an
 * attempt: tcp_pace_kick().
 */
static inline enum nt_hold_reason nt_verdict_from_state(struct nt_tcp_state *s, bool by_write,
							__u64 now)
{
	enum nt_hold_reason reason;
	bool paced = false;

	if (s->pacing && s->wstamp_ns > s->clock_ns && s->wstamp_ns <= now) {
		s->clock_ns = s->wstamp_ns;
		paced = true;
	}
	if (by_write && s->unpushed && !paced)
		s->nonagle_arg |= NT_NAGLE_CORK;
	reason = nt_verdict(s);
	if (reason == NT_HOLD_UNKNOWN && paced)
		return NT_HOLD_PACING; /* its timer is about to cause the attempt */
	return reason;
}
