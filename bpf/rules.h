/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rules for what the hooks see: an attempt to send or a write has returned, a segment has come, a
 * timer expires, the socket goes. Each rule reads the socket, and moves the state machine of hold.h
 * or calls pending_ack.h.
 */
#pragma once

#include "hold.h"
#include "pending_ack.h"

/* Is the hold over? One that cannot become a stall lasts as long as its tail: see hold.h. */
static __always_inline bool gone_out(const struct hold *h, const struct nt_tcp_state *s)
{
	return nt_after(s->snd_nxt, h->held.seq) &&
	       (hold_may_stall(h) || s->snd_nxt == s->write_seq);
}

static __always_inline bool tail_is_large(const struct tcp *t, const bool trusted)
{
	return TCP(t, write_seq) - TCP(t, snd_nxt) >= TCP(t, mss_cache);
}

/*
 * Did a program look just now at this hold, which has a large tail and cannot become a stall? A
 * small congestion window may make it one any time.
 */
static __always_inline bool large_tail_goes_on(const struct hold *h, const struct tcp *t,
					       const bool trusted)
{
	return h && !hold_may_stall(h) && tail_is_large(t, trusted) &&
	       duration_ns(h->looked_ns, tcp_clock(t, trusted)) < LARGE_TAIL_NS &&
	       !(TCP(t, packets_out) >= TCP(t, snd_cwnd) &&
		 nt_lone(TCP(t, snd_nxt) - TCP(t, snd_una), TCP(t, mss_cache)));
}

/* What released a tail that a cork or MSG_MORE held, with no timer seen? Sets *released_ns if the
 * timer did. */
static __always_inline enum nt_release tail_released(const struct hold *h, const struct tcp *t,
						     u64 *released_ns)
{
	u64 sent_ns = 0;

	if (!h->flight_bytes)
		sent_ns = cork_timer_sent_ns(socket_number(t->sk), h->begin_ns, *released_ns,
					     h->total_retrans, h->held.seq);
	if (!sent_ns)
		return h->held.reason == NT_HOLD_CORK ? NT_RELEASE_UNCORK : NT_RELEASE_ACK;
	*released_ns = sent_ns;
	return NT_RELEASE_TIMER;
}

/*
 * The last attempt sent the held bytes, for this reason; the socket keeps that attempt's time. What
 * a writer waited for ended when an ACK made room.
 */
static __always_inline void hold_sent(struct hold *h, const struct tcp *t,
				      const struct nt_tcp_state *s, enum nt_release release,
				      const bool trusted)
{
	u64 released_ns = s->clock_ns, sent_ns;

	if (release == NT_RELEASE_TIMER && !h->held.timer_seen)
		release = tail_released(h, t, &released_ns);
	if (h->held.reason == NT_HOLD_SNDBUF) {
		if (!room_was_awaited(h, t, s, trusted)) {
			hold_delete(t->sk);
			return;
		}
		release = NT_RELEASE_ACK;
		released_ns = h->ack_ns;
	} else if (release == NT_RELEASE_ACK) {
		released_ns = hold_ack_released(h, t, s, trusted);
	} else if (release != NT_RELEASE_TIMER) {
		/* something else may have moved the clock */
		sent_ns = sent_at_ns(socket_number(t->sk),
				     release == NT_RELEASE_CLOSE ? s->write_seq : h->held.end_seq);
		if (sent_ns < released_ns)
			released_ns = sent_ns;
	}
	hold_release(h, t, release, released_ns);
}

/* The held bytes turn out to have gone; the state shows what released them. */
static __always_inline void hold_sent_unseen(struct hold *h, const struct tcp *t,
					     const struct nt_tcp_state *s, const bool trusted)
{
	hold_sent(h, t, s, forgotten(nt_release_from_state(&h->held, s)), trusted);
}

static __always_inline bool has_tail(const struct tcp *t, const bool trusted)
{
	return TCP(t, write_seq) != TCP(t, snd_nxt);
}

/* tcp_write_xmit(sk, mss, nonagle, push_one) has returned; the socket is locked. */
static __always_inline void attempt_returned(const struct tcp *t, u32 mss, u8 nonagle, u8 push_one,
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
		hold_sent(h, t, &s, nt_release_from_attempt(&h->held, &s), trusted);
		h = NULL;
	}
	reason = nt_verdict(&s);
	if (reason && (h || socket_wanted(t->sk, trusted)))
		hold_note(h, t, &s, reason, trusted);
}

/* Does a write of the running process to this socket count? */
static __always_inline bool write_counts(struct sock *sk, const bool trusted)
{
	const bool all = nt_config.target == NT_TARGET_ALL;

	if ((!all && !current_is_target()) || !socket_wanted(sk, trusted))
		return false;
	if (!all)
		mark_owned(sk, trusted);
	return true;
}

static __always_inline void count_write(struct sock *sk, const bool trusted)
{
	if (!nt_config.filter || write_counts(sk, trusted))
		often_here()->writes++;
}

/*
 * Is there no more to do about a write than to count it, if it counts? Then this does so. Most are
 * such; a program that does no more saves no registers.
 */
static __always_inline bool write_only_counts(struct sock *sk, const bool trusted)
{
	if (nt_config.timeline || socket_may_hold(sk, trusted))
		return false;
	if (nt_config.filter)
		return runs_another(trusted);
	often_here()->writes++;
	return true;
}

/* Has TCP processed no ACK since the look at this hold, or, without one, since the write? */
static __always_inline bool no_ack_since(const struct hold *h, const struct nt_tcp_state *s)
{
	return !h || h->held.una == s->snd_una;
}

/*
 * Did the write itself cause the last attempt? No, if an ACK has caused another since, or if the
 * device or pacing held the bytes then: tcp_tsq_write() and tcp_pace_kick() cause the next. If the
 * application wrote since the look, that write went unseen, and so did its attempt: whether it had
 * MSG_MORE accuses nobody.
 */
static __always_inline bool last_was_write(const struct hold *h, const struct nt_tcp_state *s)
{
	if (h && h->held.end_seq != s->write_seq)
		return true;
	if (!no_ack_since(h, s))
		return false;
	return !h || (h->held.reason != NT_HOLD_AUTOCORK && h->held.reason != NT_HOLD_TSQ &&
		      h->held.reason != NT_HOLD_PACING);
}

/*
 * Looks at a socket whose attempts no hook shows. What was held may have gone out unseen: then the
 * hold is over. Returns true when there is a tail to be noted: *h is its hold, or NULL, and *s what
 * was read. Else *h is the hold that goes on as it was, or NULL.
 */
static __always_inline bool look_for_tail(const struct tcp *t, struct nt_tcp_state *s,
					  struct hold **h, const bool trusted)
{
	bool tail;

	*h = hold_find(t, trusted);
	if ((!has_tail(t, trusted) && !*h) || large_tail_goes_on(*h, t, trusted))
		return false;
	tcp_read_state(s, t, trusted);
	if (*h && gone_out(*h, s)) {
		hold_sent_unseen(*h, t, s, trusted);
		*h = NULL;
	}
	tail = s->write_seq != s->snd_nxt;
	if (!tail)
		*h = NULL;
	return tail;
}

/* Does Nagle, a cork or a small congestion window hold the bytes, with nothing since that could
 * have released them? */
static __always_inline bool holds_on(const struct hold *h, const struct nt_tcp_state *s)
{
	return h &&
	       (h->held.reason == NT_HOLD_NAGLE || h->held.reason == NT_HOLD_CORK ||
		(h->held.reason == NT_HOLD_CWND && h->held.lone)) &&
	       no_ack_since(h, s);
}

/*
 * Why is there a tail? While the device is busy, TCP makes no attempt for what was just written:
 * tcp_should_autocork().
 */
static __always_inline enum nt_hold_reason tail_reason(const struct hold *h, struct nt_tcp_state *s,
						       bool written)
{
	u64 now = bpf_ktime_get_ns();
	enum nt_hold_reason reason;

	reason = nt_verdict_from_state(s, written || last_was_write(h, s), now);
	if (written && s->throttled && s->head_len < s->mss && s->head_last && !holds_on(h, s))
		reason = NT_HOLD_AUTOCORK;
	reason = forgotten(reason);
	/* TCP made no attempt for this write, so that the socket's clock is an older one's */
	if (written && s->throttled && (!h || h->held.reason != reason))
		s->clock_ns = now;
	return reason;
}

/* Notes a tail that was looked at: its hold begins, goes on or changes. */
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
 * Looks at a tail where something may have gone unseen: the kernel skips a program that interrupts
 * another on its CPU. written: a write has just returned.
 */
static __always_inline struct hold *tail_look(const struct tcp *t, bool written, const bool trusted)
{
	struct nt_tcp_state s;
	struct hold *h;

	return look_for_tail(t, &s, &h, trusted) ? tail_note(h, t, &s, written, trusted) : h;
}

/*
 * Does the same by a socket's number; hold_find() finds the hold then. This is a global function
 * for the verifier's sake, as hold_judge().
 */
__noinline int tail_look_at(u64 sk, u32 written)
{
	struct tcp t = tcp_of((void *)sk, false);
	struct hold *h = hold_find(&t, false);
	struct nt_tcp_state s;

	if (!has_tail(&t, false))
		return 0;
	tcp_read_state(&s, &t, false);
	if (!h || !gone_out(h, &s)) /* else the next look finds that it is over */
		tail_note(h, &t, &s, written, false);
	return 0;
}

/*
 * tcp_sendmsg_locked() has written these bytes; the socket is locked. Mostly a program has seen
 * its attempt to send already. Else TCP made none, tcp_should_autocork(), or it went unseen.
 */
static __always_inline void locked_write_returned(void *ctx, const struct tcp *t, u32 bytes,
						  const bool trusted)
{
	struct hold *h;

	if (!has_tail(t, trusted))
		return;
	h = hold_find(t, trusted);
	if (!h || h->held.end_seq != TCP(t, write_seq))
		h = tail_look(t, true, trusted);
	if (h)
		hold_note_writer(h, t->sk, ctx, bytes);
}

/*
 * A write has returned; sock_send_length shows that without the socket's lock. Returns whether an
 * ACK on another CPU has moved the tail meanwhile: then look_at_moved() has to follow.
 */
static __always_inline bool write_returned(void *ctx, const struct tcp *t, const bool trusted)
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
		if (TCP(t, snd_una) != s.snd_una || TCP(t, snd_nxt) != s.snd_nxt)
			return true;
	}
	barrier_var(ctx); /* reads again how much was written: the stack has no room for that */
	if (h)
		hold_note_writer(h, t->sk, ctx, ((u64 *)ctx)[1]);
	return false;
}

/* Returns the window that a segment opens, or `before` where its header cannot be read. */
static __always_inline u32 segment_window(const struct tcp *t, const struct sk_buff *skb,
					  u32 before)
{
	struct tcphdr tcp;

	if (bpf_probe_read_kernel(&tcp, sizeof(tcp), BPF_CORE_READ(skb, data)))
		return before;
	return (u32)bpf_ntohs(tcp.window) << PROBED_BITS(&t->tp->rx_opt, snd_wscale);
}

/* Will this ACK release the held segment? tcp_data_snd_check() asks the verdict's question next. */
static __always_inline bool ack_will_release(const struct hold *h, const struct nt_tcp_state *s,
					     u32 ack)
{
	if (h->held.reason == NT_HOLD_MSG_MORE && s->nonagle & NT_NAGLE_OFF)
		return true;
	/* with nothing in flight there is room, and Nagle has nothing to wait for */
	if (h->held.reason == NT_HOLD_CWND && h->held.lone)
		return ack == s->snd_nxt && !(s->nonagle & NT_NAGLE_CORK) &&
		       !nt_beyond_window(s, ack);
	if ((h->held.reason != NT_HOLD_NAGLE && h->held.reason != NT_HOLD_MSG_MORE) ||
	    h->held.corked)
		return false;
	return !nt_after(h->held.sml, ack) && !nt_beyond_window(s, ack);
}

/*
 * May an attempt to send have gone unseen? The kernel skips a program that interrupts another on
 * its CPU. The question matters where Nagle or a cork may hold the tail by now, which is small
 * then, and the hold says something else. While the device has no room, TCP makes no attempt.
 */
static __always_inline bool attempt_unseen(const struct hold *h, const struct tcp *t,
					   const bool trusted)
{
	/* what has gone out is not this segment's to release */
	if (h && nt_after(TCP(t, snd_nxt), h->held.seq))
		return true;
	if (tail_is_large(t, trusted))
		return false;
	if (!h || h->held.end_seq != TCP(t, write_seq))
		return true;
	switch (h->held.corked ? NT_HOLD_CORK : h->held.reason) {
	case NT_HOLD_NAGLE:
	case NT_HOLD_MSG_MORE:
		return false;
	case NT_HOLD_CORK: /* uncorking causes one */
		return !(READ_BITS(trusted, t->tp, nonagle) & NT_NAGLE_CORK);
	case NT_HOLD_AUTOCORK:
	case NT_HOLD_TSQ:
		return !(SK(t, sk_tsq_flags) & (NT_TSQ_THROTTLED | NT_TSQ_RESUMING));
	default:
		return true;
	}
}

/* A FIN by itself is no message. */
static __always_inline enum ack_kind ack_kind_of(const struct segment *seg)
{
	u32 len = seg->end_seq - seg->seq;

	if (!len)
		return ACK_PURE;
	return len > seg->fin ? ACK_ON_DATA : ACK_UNSURE;
}

/* A segment meets an unsent tail; attempt_returned() finds out what it releases. */
static __always_inline void segment_meets_hold(const struct tcp *t, u32 ack, u32 seq,
					       enum ack_kind kind, const bool trusted)
{
	struct hold *h = hold_find(t, trusted);

	if (!nt_after(ack, TCP(t, snd_una)) || large_tail_goes_on(h, t, trusted))
		return;
	if (attempt_unseen(h, t, trusted))
		h = tail_look(t, false, trusted);
	if (!h)
		return;
	/* if the socket was corked since the last attempt, the bytes stay; if they have grown
	 * to a segment, something else holds them. The attempt that finds so may go unseen, and
	 * then this ACK must not pass for what released them. */
	if (waits_for_ack(h) && (READ_BITS(trusted, t->tp, nonagle) & NT_NAGLE_CORK ||
				 (h->held.reason != NT_HOLD_CWND && tail_is_large(t, trusted))))
		kind = ACK_UNSURE;
	h->recovered |= tcp_recovering(t);
	hold_note_ack(h, t, ack, seq, kind, bpf_ktime_get_ns(), trusted);
}

/* A segment meets an unsent tail, and no hook will show the attempt that it causes. */
static __always_inline void segment_meets_tail(struct hold *h, const struct tcp *t,
					       struct nt_tcp_state *s, const struct sk_buff *skb,
					       const struct segment *seg, enum ack_kind kind,
					       const bool trusted)
{
	u64 now = bpf_ktime_get_ns();
	enum nt_hold_reason reason;

	reason = forgotten(nt_verdict_from_state(s, last_was_write(h, s), now));
	/* loss shrinks the congestion window without an attempt */
	if (reason == NT_HOLD_CWND && h && h->held.reason == NT_HOLD_NAGLE &&
	    h->held.end_seq == s->write_seq)
		reason = NT_HOLD_NAGLE;
	if (!reason || (!h && !socket_wanted(t->sk, trusted)))
		return;
	h = hold_note(h, t, s, reason, trusted);
	if (!h || !nt_after(seg->ack, s->snd_una))
		return;
	h->recovered |= tcp_recovering(t);
	hold_note_ack(h, t, seg->ack, seg->seq, kind, now, trusted);
	s->snd_wnd = segment_window(t, skb, s->snd_wnd);
	if (ack_will_release(h, s, seg->ack))
		hold_release(h, t, NT_RELEASE_ACK, now);
}

/*
 * May our delayed-ACK timer have sent the last ACK? The timer leaves interactive mode, nothing is
 * unacknowledged then, and the last data came (or the connection began) in a jiffy before this one.
 */
static __always_inline bool timer_may_have_sent(const struct tcp *t, const bool trusted)
{
	return !ICSK(t, icsk_ack.pingpong) && TCP(t, rcv_wup) == TCP(t, rcv_nxt) &&
	       ICSK(t, icsk_ack.lrcvtime) != (u32)bpf_jiffies64();
}

/* Is it older than what came before? tcp_paws_discard(), but for what is over 24 days old. */
static __always_inline bool paws_discards(const struct tcp *t, const struct sk_buff *skb)
{
	u32 recent = PROBED(t->tp, rx_opt.ts_recent);
	struct timestamps ts;

	return PROBED_BITS(&t->tp->rx_opt, tstamp_ok) && recent && read_timestamps(&ts, skb) &&
	       nt_after(recent, bpf_ntohl(ts.value));
}

/*
 * Will the kernel take this segment? tcp_validate_incoming() drops one that is old or outside the
 * receive window, answers a SYN with a challenge, and aborts the connection at a reset; tcp_ack()
 * refuses an ACK of what was never sent. None of them releases held bytes, whatever it carries.
 */
static __always_inline bool segment_is_taken(const struct tcp *t, const struct sk_buff *skb,
					     const struct segment *seg, const bool trusted)
{
	u32 wup, nxt, window_end;

	if ((seg->flags & (TCPHDR_ACK | TCPHDR_SYN | TCPHDR_RST)) != TCPHDR_ACK ||
	    nt_after(seg->ack, TCP(t, snd_nxt)) || paws_discards(t, skb))
		return false;
	wup = TCP(t, rcv_wup);
	nxt = TCP(t, rcv_nxt);
	window_end = wup + TCP(t, rcv_wnd);
	if (nt_after(nxt, window_end))
		window_end = nxt;
	return !nt_after(wup, seg->end_seq) && !nt_after(seg->seq, window_end);
}

/*
 * The peer's FIN has come by itself while bytes are held, and releases none of them. tcp_probe
 * shows no segment after it, so the hold goes on as if the FIN had not come: what releases the
 * bytes is still a pure ACK, if no data came with it.
 */
static __always_inline void fin_meets_hold(const struct tcp *t, const struct segment *seg,
					   const bool trusted)
{
	struct hold *h = hold_find(t, trusted);

	if (h && h->rcv_nxt == seg->seq && !nt_after(seg->ack, TCP(t, snd_una)))
		h->rcv_nxt = seg->end_seq;
}

/*
 * A segment has come to a connection whose delayed-ACK timer may have sent the last ACK: it may be
 * the answer. Nagle holds no FIN, nor what it came with: tcp_nagle_test().
 */
static __always_inline void segment_may_answer(const struct tcp *t, const struct sk_buff *skb,
					       const bool trusted)
{
	struct segment seg;
	u32 len;

	read_segment(&seg, skb);
	len = seg.end_seq - seg.seq;
	if (len && seg.seq == TCP(t, rcv_nxt) && !seg.fin &&
	    segment_is_taken(t, skb, &seg, trusted))
		pending_ack_data_came(t, skb, &seg, len, bpf_ktime_get_ns());
}

/*
 * An ACK has come to a sender that has nothing unsent. If it is late, it makes room for a writer;
 * or it sets nothing free, where a timer of this host sent it: the sender's program writes what
 * comes next only after this ACK. One that comes in the jiffy of its data is not late.
 */
static __always_inline void ack_meets_no_tail(const struct tcp *t, const struct sk_buff *skb,
					      struct nt_tcp_state *s, struct segment *seg,
					      const bool trusted)
{
	struct late_ack *la;

	if (TCP(t, lsndtime) == (u32)bpf_jiffies64() || has_tail(t, trusted))
		return;
	read_segment(seg, skb);
	if (!nt_after(seg->ack, TCP(t, snd_una)) || !segment_is_taken(t, skb, seg, trusted))
		return;
	la = late_ack_find(seg->ack, seg->seq);
	if (seg->end_seq == seg->seq && (la || silent_for(t, SILENCE_NS, trusted)) &&
	    hold_for_room(t, s, seg, trusted)) {
		if (la)
			la->consumed = true;
	} else if (la) {
		la->part.freed_nothing = true;
	}
}

/*
 * A segment has come to an established connection, and TCP has not processed it yet: tcp_probe.
 * functions: another hook shows attempts to send.
 */
static __always_inline void segment_came(const struct tcp *t, const struct sk_buff *skb,
					 const bool functions, const bool trusted)
{
	bool awaiting = timer_may_have_sent(t, trusted);
	struct nt_tcp_state s;
	struct hold *h = NULL;
	struct segment seg;
	bool tail;
	u32 len;

	if (!functions)
		read_sent_ack(t, trusted);
	/* before the hold, which leaves many states that the verifier would follow through this */
	if (awaiting)
		segment_may_answer(t, skb, trusted);
	else if (!functions && bucket_knows_large(t->sk, trusted) && tail_is_large(t, trusted))
		return; /* a program has looked at it in this jiffy */
	if (functions)
		tail = has_tail(t, trusted);
	else
		tail = look_for_tail(t, &s, &h, trusted);
	if (!tail) {
		ack_meets_no_tail(t, skb, functions ? NULL : &s, &seg, trusted);
		return;
	}
	read_segment(&seg, skb);
	len = seg.end_seq - seg.seq;
	if (!segment_is_taken(t, skb, &seg, trusted))
		return;
	if (functions)
		segment_meets_hold(t, seg.ack, seg.seq, ack_kind_of(&seg), trusted);
	else
		segment_meets_tail(h, t, &s, skb, &seg, ack_kind_of(&seg), trusted);
	if (seg.fin && len == 1 && seg.seq == TCP(t, rcv_nxt))
		fin_meets_hold(t, &seg, trusted);
}

/*
 * The probe timer is about to send what is unsent, tcp_write_wakeup(). postponed: it waits until
 * the application unlocks the socket.
 */
static __always_inline void probe_timer_sends(const struct tcp *t, enum nt_release release,
					      bool postponed)
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
		hold_sent_unseen(h, t, &s, false);
		return;
	}
	/* with the window closed, the timer probes and sends none of it */
	if (!s.has_head || !nt_after(s.snd_una + s.snd_wnd, s.head_seq))
		return;
	/* the window may hold what was written since the last look */
	if (!nt_config.functions || h->held.end_seq != s.write_seq || h->held.corked) {
		reason = forgotten(nt_verdict_from_state(&s, last_was_write(h, &s), now));
		reason = hold_goes_on(h, &s, reason);
		if (reason && reason != h->held.reason)
			hold_switch(h, t, &s, reason, false);
	}
	if (postponed)
		h->held.timer_seen = release;
	else
		hold_release(h, t, release, now);
}

/* The retransmit timer expires, seen before its handler runs: tcp_write_timer_handler(). */
static __always_inline void write_timer_expires(const struct tcp *t)
{
	struct inet_connection_sock___timeout *icsk = (void *)t->tp;
	bool owned;
	u8 pending;

	if (bpf_core_field_exists(icsk->icsk_timeout) &&
	    (long)(bpf_jiffies64() - BPF_CORE_READ(icsk, icsk_timeout)) < 0)
		return; /* it goes back to sleep */
	pending = PROBED(t->tp, inet_conn.icsk_pending);
	owned = PROBED(t->sk, sk_lock.owned); /* then the timer waits until it is unlocked */
	/* the start of a hold went unseen, and the handler is about to move the socket's clock */
	if (!owned && has_tail(t, false) && !hold_find(t, false))
		tail_look_at(socket_number(t->sk), false);
	if (pending == ICSK_TIME_PROBE0 || pending == ICSK_TIME_LOSS_PROBE)
		probe_timer_sends(t,
				  forgotten(pending == ICSK_TIME_PROBE0 ? NT_RELEASE_TIMER
									: NT_RELEASE_LOSS_PROBE),
				  owned);
}

/* Did the FIN leave later than the last data? */
static __always_inline bool fin_went_alone(const struct tcp *t)
{
	return sent_exactly(t, PROBED(t->tp, write_seq)) &&
	       acknowledged_sent_ns(t) > last_sent_ns(t) + 2 * nt_config.tick_ns;
}

/* The connection is over: what is held will never go out. */
static __always_inline void socket_closed(const struct tcp *t, u64 ended_ns, const bool trusted)
{
	struct hold *h = hold_find(t, trusted);
	struct nt_tcp_state s;

	if (h) {
		tcp_read_state(&s, t, trusted);
		s.fin_alone = fin_went_alone(t);
		if (gone_out(h, &s))
			hold_sent_unseen(h, t, &s, trusted);
		else if (h->held.reason == NT_HOLD_SNDBUF)
			hold_delete(t->sk);
		else
			hold_release(h, t, NT_RELEASE_RESET, ended_ns);
	}
}
