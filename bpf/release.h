/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What released the held bytes? A pure function answers, from what was held and from the attempt
 * that sent it, by the arguments with which each caller enters tcp_write_xmit(),
 * net/ipv4/tcp_output.c. It compiles for the host too: tests/unit/test_release.c.
 */
#pragma once

#include "verdict.h"

/* include/net/tcp_states.h */
#define NT_TCP_ESTABLISHED 1
#define NT_TCP_FIN_WAIT1   4
#define NT_TCP_CLOSE_WAIT  8
#define NT_TCP_LAST_ACK    9
#define NT_TCP_CLOSING     11

#define NT_RTO_MIN_NS      200000000ULL /* TCP_RTO_MIN, include/net/tcp.h */

/* The held bytes, as the last attempt left them. */
struct nt_held {
	__u32 seq;     /* first held byte */
	__u32 end_seq; /* write_seq at the last look */
	__u32 sml;     /* snd_sml */
	__u32 una;     /* snd_una at the last attempt */
	__u32 wnd;     /* snd_wnd at the last attempt */
	__u32 mss;
	__u8 reason;     /* enum nt_hold_reason */
	__u8 timer_seen; /* enum nt_release that the retransmit timer announced, or INVALID */
	__u8 lone;       /* CWND: what is in flight is too little to be acknowledged at once */
	__u8 corked;     /* NAGLE: by now a cork holds the bytes too, and no ACK sends them */
};

static inline bool nt_closing(__u8 tcp_state)
{
	return tcp_state == NT_TCP_FIN_WAIT1 || tcp_state == NT_TCP_LAST_ACK ||
	       tcp_state == NT_TCP_CLOSING;
}

/*
 * Did an ACK cause the attempt (tcp_data_snd_check()) that sent the bytes? It moved the window, and
 * for a held small segment it acknowledged the small one before it. No ACK opens a cork, or ends
 * the pause that pacing makes.
 */
static inline bool nt_released_by_ack(const struct nt_held *held, const struct nt_tcp_state *s)
{
	bool moved = s->snd_una != held->una;

	switch (held->reason) {
	case NT_HOLD_CORK:
	case NT_HOLD_PACING:
		return false;
	case NT_HOLD_NAGLE:
		return moved && !held->corked && !nt_after(held->sml, s->snd_una);
	case NT_HOLD_MSG_MORE: /* it binds its own call only: then Nagle decides */
		return moved && held->una != held->seq && /* something was in flight */
		       (s->nonagle & NT_NAGLE_OFF || !nt_after(held->sml, s->snd_una));
	case NT_HOLD_RWND:
		return moved || s->snd_wnd != held->wnd;
	default:
		return moved;
	}
}

/* Did a loss probe take the bytes? Mirrors the end of tcp_send_loss_probe(). */
static inline bool nt_released_by_probe(const struct nt_held *held, const struct nt_tcp_state *s)
{
	return s->tlp_high_seq && nt_after(s->tlp_high_seq, held->seq);
}

static inline bool nt_filled(const struct nt_held *held, const struct nt_tcp_state *s)
{
	return s->snd_nxt - held->seq >= held->mss;
}

/* Has the socket sent its FIN, or is it gone? */
static inline bool nt_has_closed(const struct nt_tcp_state *s)
{
	return s->tcp_state != NT_TCP_ESTABLISHED && s->tcp_state != NT_TCP_CLOSE_WAIT;
}

/*
 * Did the FIN take the bytes along? tcp_send_fin() sends what Nagle or MSG_MORE holds, and puts the
 * FIN into the same segment, which one ACK acknowledges.
 */
static inline bool nt_fin_took(const struct nt_held *held, const struct nt_tcp_state *s)
{
	return (held->reason == NT_HOLD_NAGLE || held->reason == NT_HOLD_MSG_MORE) &&
	       nt_has_closed(s) && s->write_seq == held->end_seq + 1 && !s->fin_alone &&
	       s->snd_una != held->end_seq;
}

/* No ACK, timer or close released the bytes: the application did, or the queue below. */
static inline enum nt_release nt_release_by_application(const struct nt_held *held,
							const struct nt_tcp_state *s)
{
	switch (held->reason) {
	case NT_HOLD_CORK:
		if (!(s->nonagle & NT_NAGLE_CORK))
			return NT_RELEASE_UNCORK;
		if (nt_filled(held, s))
			return NT_RELEASE_FULL_SEGMENT;
		/* TCP_NODELAY on a corked socket pushes what is queued; do_tcp_setsockopt() */
		if (s->nonagle & NT_NAGLE_OFF)
			return NT_RELEASE_NODELAY;
		if (s->tcp_state != NT_TCP_ESTABLISHED && s->tcp_state != NT_TCP_CLOSE_WAIT)
			return NT_RELEASE_CLOSE;
		/* only tcp_write_wakeup() sends a small segment of a corked socket; else the
		 * application uncorked it and corked it again, as it did when more went out, or
		 * when the segment went too early, which the caller checks */
		return nt_after(s->snd_nxt, held->end_seq) ? NT_RELEASE_UNCORK : NT_RELEASE_TIMER;
	case NT_HOLD_MSG_MORE:
		/* nothing was written before they went, so a segment of the peer caused the
		 * attempt, maybe one with data; or the probe timer, which runs while nothing is in
		 * flight, and not before its time, which the caller checks */
		if (s->write_seq == held->end_seq || s->snd_una == held->end_seq)
			return held->una == held->seq ? NT_RELEASE_TIMER : NT_RELEASE_ACK;
		return nt_filled(held, s) ? NT_RELEASE_FULL_SEGMENT : NT_RELEASE_UNCORK;
	case NT_HOLD_NAGLE:
		if (s->nonagle & NT_NAGLE_OFF)
			return NT_RELEASE_NODELAY;
		return nt_filled(held, s) ? NT_RELEASE_FULL_SEGMENT : NT_RELEASE_PUSH;
	case NT_HOLD_CWND: /* SACK blocks make room without moving the window */
		return NT_RELEASE_ACK;
	case NT_HOLD_TSO_DEFER:
		return NT_RELEASE_FULL_SEGMENT;
	default:
		return NT_RELEASE_DEVICE;
	}
}

/*
 * Did the timer that was seen to expire send the bytes? One that found the socket in use waits, and
 * the program that uses it may send corked bytes first: it uncorks, or it fills the segment.
 */
static inline bool nt_seen_timer_sent(const struct nt_held *held, const struct nt_tcp_state *s)
{
	if (held->timer_seen != NT_RELEASE_TIMER)
		return held->timer_seen;
	return held->reason != NT_HOLD_CORK || (s->nonagle & NT_NAGLE_CORK && !nt_filled(held, s));
}

/*
 * Infers the release from the state alone, where the attempt's arguments are not known. The caller
 * asks before TCP processes the next ACK.
 */
static inline enum nt_release nt_release_from_state(const struct nt_held *held,
						    const struct nt_tcp_state *s)
{
	if (nt_seen_timer_sent(held, s))
		return held->timer_seen;
	if (nt_released_by_probe(held, s))
		return NT_RELEASE_LOSS_PROBE;
	if (nt_fin_took(held, s))
		return NT_RELEASE_CLOSE;
	if (nt_released_by_ack(held, s))
		return NT_RELEASE_ACK;
	if (nt_closing(s->tcp_state))
		return NT_RELEASE_CLOSE;
	return nt_release_by_application(held, s);
}

/*
 * Infers the release from the arguments of the attempt (mss, nonagle, push_one) that sent the
 * bytes. Once TCP has processed the ACK that Nagle waited for, that ACK's attempt sent them, seen
 * or not: a preemptible kernel skips a program for as long as a task that lost the CPU stands in
 * it.
 */
static inline enum nt_release nt_release_from_attempt(const struct nt_held *held,
						      const struct nt_tcp_state *s)
{
	enum nt_release release;

	if (s->push_one == NT_PUSH_LOSS_PROBE || nt_released_by_probe(held, s))
		return NT_RELEASE_LOSS_PROBE;
	if (held->reason == NT_HOLD_NAGLE && nt_released_by_ack(held, s))
		return NT_RELEASE_ACK;
	if (s->push_one == NT_PUSH_ONE)
		return NT_RELEASE_FULL_SEGMENT;
	if (s->nonagle_arg & NT_NAGLE_PUSH) {
		if (!(s->nonagle_arg & NT_NAGLE_OFF) && held->reason != NT_HOLD_CORK)
			return NT_RELEASE_PUSH;
		if (held->reason == NT_HOLD_CORK && !(s->nonagle & NT_NAGLE_CORK))
			return NT_RELEASE_UNCORK;
		return s->nonagle_arg & NT_NAGLE_OFF ? NT_RELEASE_NODELAY : NT_RELEASE_PUSH;
	}
	release = nt_release_from_state(held, s);
	/* the probe timer makes no attempt: it sends by tcp_write_wakeup(), and what the peer has
	 * had was sent before this attempt */
	return release == NT_RELEASE_TIMER && held->reason == NT_HOLD_MSG_MORE &&
			       !held->timer_seen && !nt_after(s->snd_una, held->seq)
		       ? NT_RELEASE_ACK
		       : release;
}
