/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the hooks see, as rules: an attempt to send or a write has ended, a segment has come, a
 * timer expires, the socket goes. Each rule reads the socket and moves the state machines of hold.h
 * and pending_ack.h.
 */
#ifndef NT_EVENTS_H
#define NT_EVENTS_H

#include "hold.h"
#include "pending_ack.h"

/* A hold that no stall can be goes on as long as there is a tail; see hold.h. */
static __always_inline bool gone_out(const struct hold *h, const struct nt_tcp_state *s)
{
	return nt_after(s->snd_nxt, h->held.seq) &&
	       (nt_may_stall(h->held.reason) || s->snd_nxt == s->write_seq);
}

static __always_inline bool tail_is_large(const struct tcp *t, const bool trusted)
{
	return TCP(t, write_seq) - TCP(t, snd_nxt) >= TCP(t, mss_cache);
}

/* A large tail, held for a reason that no stall can have, which was looked at just now. */
static __always_inline bool large_tail_goes_on(const struct hold *h, const struct tcp *t,
					       const bool trusted)
{
	return h && !nt_may_stall(h->held.reason) && tail_is_large(t, trusted) &&
	       duration_ns(h->looked_ns, tcp_clock(t, trusted)) < LARGE_TAIL_NS;
}

/* The held bytes turn out to be gone: the last attempt took them, whose time the socket keeps. */
static __always_inline void hold_end_from_state(struct hold *h, const struct tcp *t,
						const struct nt_tcp_state *s, const bool trusted)
{
	enum nt_release release = nt_release_from_state(&h->held, s);
	u64 end_ns = s->clock_ns;

	if (release == NT_RELEASE_ACK)
		end_ns = hold_ack_released(h, t, s, trusted);
	hold_end(h, t, release, end_ns);
}

static __always_inline bool has_tail(const struct tcp *t, const bool trusted)
{
	return TCP(t, write_seq) != TCP(t, snd_nxt);
}

/* tcp_write_xmit(sk, mss, nonagle, push_one) has returned; the socket is locked. */
static __always_inline void attempt_ended(const struct tcp *t, u32 mss, u8 nonagle, u8 push_one,
					  const bool trusted)
{
	bool tail = has_tail(t, trusted);
	struct nt_tcp_state s;
	enum nt_hold_reason reason;
	struct hold *h;

	h = hold_find(t, trusted);
	if ((!tail && !h) || large_tail_goes_on(h, t, trusted))
		return;
	tcp_read_state(&s, t, trusted);
	s.mss = mss;
	s.nonagle_arg = nonagle;
	s.push_one = push_one;
	if (h && gone_out(h, &s)) {
		enum nt_release release = nt_release_from_attempt(&h->held, &s);
		u64 end_ns = s.clock_ns;

		if (release == NT_RELEASE_ACK)
			end_ns = hold_ack_released(h, t, &s, trusted);
		hold_end(h, t, release, end_ns);
		h = NULL;
	}
	reason = nt_verdict(&s);
	if (reason && (h || socket_wanted(t->sk, trusted)))
		hold_note(h, t, &s, reason, trusted);
}

static __always_inline void count_write(struct sock *sk, const bool trusted)
{
	struct nt_totals *totals;

	if (!socket_wanted(sk, trusted))
		return;
	if (nt_config.target != NT_TARGET_ALL) {
		if (!current_is_target())
			return;
		mark_owned(sk);
	}
	totals = totals_here();
	if (totals)
		totals->writes++;
}

/*
 * The verdict where no hook shows attempts and their arguments. A write with MSG_MORE asks for no
 * push of its last segment and passes CORK, tcp_push() (but for one of more than half the window,
 * forced_push()); that binds its own attempt only, so not once an ACK has made another. And when
 * pacing's time was up its timer made an attempt, tcp_pace_kick().
 */
static __always_inline enum nt_hold_reason verdict_from_state(struct nt_tcp_state *s,
							      bool last_was_write, u64 now)
{
	enum nt_hold_reason reason;
	bool paced = false;

	if (s->pacing && s->wstamp_ns > s->clock_ns && s->wstamp_ns <= now) {
		s->clock_ns = s->wstamp_ns;
		paced = true;
	}
	if (last_was_write && s->unpushed)
		s->nonagle_arg |= NT_NAGLE_CORK;
	reason = nt_verdict(s);
	if (reason == NT_HOLD_UNKNOWN && paced)
		return NT_HOLD_PACING; /* its timer is about to make the attempt */
	return reason;
}

/* Has no ACK been processed since a look at this hold? Without one, since the write that began it.
 */
static __always_inline bool no_ack_since(const struct hold *h, const struct nt_tcp_state *s)
{
	return !h || h->held.una == s->snd_una;
}

/*
 * A look at a socket whose attempts no hook shows. What was held may have gone out unseen: then it
 * is over. True when there is a tail to be noted: *h is its hold, or NULL, and *s what was read.
 * Else *h is the hold that goes on as it was, or NULL.
 */
static __always_inline bool look_for_tail(const struct tcp *t, struct nt_tcp_state *s,
					  struct hold **h, const bool trusted)
{
	bool tail = has_tail(t, trusted);

	*h = hold_find(t, trusted);
	if ((!tail && !*h) || large_tail_goes_on(*h, t, trusted))
		return false;
	tcp_read_state(s, t, trusted);
	if (*h && gone_out(*h, s)) {
		hold_end_from_state(*h, t, s, trusted);
		*h = NULL;
	}
	if (!tail)
		*h = NULL;
	return tail;
}

/* Is this hold Nagle's or a cork's, with nothing since that could have ended it? */
static __always_inline bool holds_on(const struct hold *h, const struct nt_tcp_state *s)
{
	return h && (h->held.reason == NT_HOLD_NAGLE || h->held.reason == NT_HOLD_CORK) &&
	       no_ack_since(h, s);
}

/*
 * Why is there a tail? Where the device is busy no attempt was made for what was just written:
 * tcp_should_autocork().
 */
static __always_inline enum nt_hold_reason tail_reason(const struct hold *h, struct nt_tcp_state *s,
						       bool written)
{
	u64 now = bpf_ktime_get_ns();
	enum nt_hold_reason reason;

	reason = verdict_from_state(s, written || no_ack_since(h, s), now);
	if (written && s->throttled && s->head_len < s->mss && s->head_last && !holds_on(h, s)) {
		s->clock_ns = now;
		return NT_HOLD_AUTOCORK;
	}
	return reason;
}

/* A tail that was looked at: its hold begins, goes on or changes. */
static __always_inline struct hold *tail_note(struct hold *h, const struct tcp *t,
					      struct nt_tcp_state *s, bool written,
					      const bool trusted)
{
	enum nt_hold_reason reason = tail_reason(h, s, written);

	if (!reason || (reason == NT_HOLD_UNKNOWN && !written))
		return h;
	if (!h && !socket_wanted(t->sk, trusted))
		return NULL;
	if (h && s->clock_ns < h->begin_ns)
		s->clock_ns = h->begin_ns;
	return hold_note(h, t, s, reason, trusted);
}

/*
 * A look at a tail where something may have gone unseen, for a program that another one interrupts
 * on its CPU is skipped. written: a write has just returned.
 */
static __always_inline struct hold *tail_look(const struct tcp *t, bool written, const bool trusted)
{
	struct nt_tcp_state s;
	struct hold *h;

	return look_for_tail(t, &s, &h, trusted) ? tail_note(h, t, &s, written, trusted) : h;
}

/*
 * The same by a socket's number; hold_find() has the hold then. A global function, for the
 * verifier's sake (see hold_judge), so only where holds are found by number.
 */
__noinline int tail_look_at(u64 sk, u32 written)
{
	struct tcp t = tcp_of((void *)sk, false);
	struct hold *h = hold_find(&t, false);
	struct nt_tcp_state s;

	if (!has_tail(&t, false))
		return 0;
	tcp_read_state(&s, &t, false);
	if (!h || !gone_out(h, &s)) /* else the next look ends it */
		tail_note(h, &t, &s, written, false);
	return 0;
}

/*
 * tcp_sendmsg_locked() has returned; the socket is locked. Mostly its attempt to send was seen
 * already. Else none was made, tcp_should_autocork(), or it went unseen.
 */
static __always_inline void locked_write_ended(void *ctx, const struct tcp *t, const bool trusted)
{
	struct hold *h;

	if (!has_tail(t, trusted))
		return;
	h = hold_find(t, trusted);
	if (!h || h->end_seq != TCP(t, write_seq))
		h = tail_look(t, true, trusted);
	if (h)
		hold_note_writer(h, ctx);
}

/*
 * A write has returned, seen without the socket's lock: sock_send_length. An ACK on another CPU may
 * move the tail meanwhile: then it is looked at again, for no segment may come that would put it
 * right.
 */
static __always_inline void write_ended(void *ctx, const struct tcp *t, const bool trusted)
{
	enum nt_hold_reason reason;
	struct nt_tcp_state s;
	struct hold *h;

	if (look_for_tail(t, &s, &h, trusted)) {
		reason = tail_reason(h, &s, true);
		if (reason && (h || socket_wanted(t->sk, trusted)))
			h = hold_note(h, t, &s, reason, trusted);
		else
			h = NULL;
		if (TCP(t, snd_una) != s.snd_una || TCP(t, snd_nxt) != s.snd_nxt) {
			tail_look_at(socket_number(t->sk), true);
			h = hold_find(t, trusted);
		}
	}
	if (h)
		hold_note_writer(h, ctx);
}

/* Will this ACK let the held segment go? tcp_data_snd_check() is about to ask the verdict's
 * question. */
static __always_inline bool ack_will_release(const struct hold *h, const struct nt_tcp_state *s,
					     u32 ack)
{
	if (h->held.reason == NT_HOLD_MSG_MORE && s->nonagle & NT_NAGLE_OFF)
		return true;
	if (h->held.reason != NT_HOLD_NAGLE && h->held.reason != NT_HOLD_MSG_MORE)
		return false;
	return !nt_after(h->held.sml, ack) && !nt_after(s->head_end_seq, ack + s->snd_wnd);
}

/*
 * May an attempt to send have gone unseen, for a program that another one interrupts on its CPU is
 * skipped? Asked where Nagle or a cork may hold the tail by now, which is small then, and the hold
 * says something else; a device that has no room yet was not attempted again.
 */
static __always_inline bool attempt_unseen(const struct hold *h, const struct tcp *t,
					   const bool trusted)
{
	/* gone out, it is not this segment's to release */
	if (h && nt_after(TCP(t, snd_nxt), h->held.seq))
		return true;
	if (tail_is_large(t, trusted))
		return false;
	if (!h)
		return true;
	switch (h->held.reason) {
	case NT_HOLD_NAGLE:
	case NT_HOLD_CORK:
	case NT_HOLD_MSG_MORE:
		return false;
	case NT_HOLD_AUTOCORK:
	case NT_HOLD_TSQ:
		return !(SK(t, sk_tsq_flags) & (NT_TSQ_THROTTLED | NT_TSQ_RESUMING));
	default:
		return true;
	}
}

/* A segment meets an unsent tail; attempt_ended() will tell what it releases. */
static __always_inline void segment_meets_hold(const struct tcp *t, u32 ack, u32 seq, bool pure,
					       const bool trusted)
{
	struct hold *h = hold_find(t, trusted);

	if (!nt_after(ack, TCP(t, snd_una)) || large_tail_goes_on(h, t, trusted))
		return;
	if (attempt_unseen(h, t, trusted))
		h = tail_look(t, false, trusted);
	if (h)
		hold_note_ack(h, ack, seq, pure, bpf_ktime_get_ns());
}

/* A segment meets an unsent tail, and no hook will show the attempt that it causes. */
static __always_inline void segment_meets_tail(struct hold *h, const struct tcp *t,
					       struct nt_tcp_state *s, u32 ack, u32 seq, bool pure,
					       const bool trusted)
{
	u64 now = bpf_ktime_get_ns();
	enum nt_hold_reason reason;

	reason = verdict_from_state(s, no_ack_since(h, s), now);
	if (!reason || (!h && !socket_wanted(t->sk, trusted)))
		return;
	h = hold_note(h, t, s, reason, trusted);
	if (!h || !nt_after(ack, s->snd_una) || nt_after(ack, s->snd_nxt))
		return;
	hold_note_ack(h, ack, seq, pure, now);
	if (ack_will_release(h, s, ack))
		hold_end(h, t, NT_RELEASE_ACK, now);
}

/*
 * May our delayed-ACK timer have sent the last ACK? It leaves interactive mode, all is acknowledged
 * then, and the last data came (or the connection began) in a jiffy before this one.
 */
static __always_inline bool timer_may_have_sent(const struct tcp *t, const bool trusted)
{
	return !ICSK(t, icsk_ack.pingpong) && TCP(t, rcv_wup) == TCP(t, rcv_nxt) &&
	       ICSK(t, icsk_ack.lrcvtime) != (u32)bpf_jiffies64();
}

/* A segment has come to an established connection and is not yet processed: tcp_probe. functions:
 * another hook shows attempts to send. */
static __always_inline void segment_came(const struct tcp *t, const struct sk_buff *skb,
					 const bool functions, const bool trusted)
{
	bool awaiting = timer_may_have_sent(t, trusted);
	struct nt_tcp_state s;
	struct hold *h = NULL;
	struct segment seg;
	bool tail;
	u32 len;

	if (!functions && !awaiting && bucket_knows_large(t->sk, trusted) &&
	    tail_is_large(t, trusted))
		return; /* a write goes on: it is to be noted in the hold */
	if (functions)
		tail = has_tail(t, trusted);
	else
		tail = look_for_tail(t, &s, &h, trusted);
	if (!tail && !awaiting)
		return;
	read_segment(&seg, skb);
	len = seg.end_seq - seg.seq;
	if (tail && functions)
		segment_meets_hold(t, seg.ack, seg.seq, !len, trusted);
	else if (tail)
		segment_meets_tail(h, t, &s, seg.ack, seg.seq, !len, trusted);
	/* a FIN is never held, nor is what it came with: tcp_nagle_test() */
	if (awaiting && len && seg.seq == TCP(t, rcv_nxt) && !seg.fin)
		pending_ack_data_came(t, skb, seg.seq, len, bpf_ktime_get_ns());
}

/*
 * The probe timer is about to send what is unsent, tcp_write_wakeup(), or to put that off while the
 * application has the socket.
 */
static __always_inline void probe_timer_sends(const struct tcp *t, enum nt_release release,
					      bool put_off)
{
	u64 now = bpf_ktime_get_ns();
	enum nt_hold_reason reason;
	struct nt_tcp_state s;
	struct hold *h;

	h = hold_find(t, false);
	if (!h)
		return;
	tcp_read_state(&s, t, false);
	if (gone_out(h, &s)) {
		hold_end_from_state(h, t, &s, false);
		return;
	}
	/* with the window closed it probes without sending any of it */
	if (!s.has_head || !nt_after(s.snd_una + s.snd_wnd, s.head_seq))
		return;
	if (!nt_config.functions) {
		reason = verdict_from_state(&s, no_ack_since(h, &s), now);
		if (reason && reason != h->held.reason)
			hold_switch(h, t, &s, reason, false);
	}
	if (put_off)
		h->held.timer_seen = release;
	else
		hold_end(h, t, release, now);
}

/* The retransmit timer expires, seen before its handler runs: tcp_write_timer_handler(). */
static __always_inline void write_timer_expires(const struct tcp *t)
{
	struct inet_connection_sock___timeout *icsk = (void *)t->tp;
	bool owned;
	u8 pending;

	if (bpf_core_field_exists(icsk->icsk_timeout) &&
	    (long)(bpf_jiffies64() - BPF_CORE_READ(icsk, icsk_timeout)) < 0)
		return; /* goes back to sleep */
	pending = PROBED(t->tp, inet_conn.icsk_pending);
	owned = PROBED(t->sk, sk_lock.owned); /* put off until the application lets go */
	/* a hold whose begin went unseen; the handler is about to move the socket's clock */
	if (!owned && has_tail(t, false) && !hold_find(t, false))
		tail_look_at(socket_number(t->sk), false);
	if (pending == ICSK_TIME_PROBE0)
		probe_timer_sends(t, NT_RELEASE_TIMER, owned);
	else if (pending == ICSK_TIME_LOSS_PROBE)
		probe_timer_sends(t, NT_RELEASE_LOSS_PROBE, owned);
}

/* The retransmit timer is armed: mostly because something was sent just now. */
static __always_inline void write_timer_starts(const struct tcp *t)
{
	struct nt_tcp_state s;
	struct hold *h;

	if (bucket_knows_large(t->sk, false))
		return;
	h = hold_find(t, false);
	if (!h || !nt_may_stall(h->held.reason) || !nt_after(PROBED(t->tp, snd_nxt), h->held.seq))
		return;
	tcp_read_sent(&s, t, false);
	if (gone_out(h, &s))
		hold_end_from_state(h, t, &s, false);
}

/* The connection is over: what is held will never go. */
static __always_inline void socket_closed(const struct tcp *t, const bool trusted)
{
	struct hold *h = hold_find(t, trusted);
	struct pending_ack *p = pending_ack_find(t->sk);
	struct nt_tcp_state s;

	if (h) {
		tcp_read_state(&s, t, trusted);
		if (gone_out(h, &s))
			hold_end_from_state(h, t, &s, trusted);
		else
			hold_end(h, t, NT_RELEASE_RESET, bpf_ktime_get_ns());
	}
	if (p)
		pending_ack_closed(p, t);
}

#endif /* NT_EVENTS_H */
