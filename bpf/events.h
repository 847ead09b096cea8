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

/* Bytes written with MSG_MORE, where only a tracepoint shows it: how far, and snd_una then. */
struct more {
	u32 end_seq;
	u32 una;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct more);
} more_hash SEC(".maps");

static __always_inline bool gone_out(const struct hold *h, const struct nt_tcp_state *s)
{
	return nt_after(s->snd_nxt, h->held.seq);
}

/* The held bytes turn out to be gone: the last attempt took them, whose time the socket keeps. */
static __always_inline void hold_end_from_state(struct hold *h, const struct tcp *t,
						const struct nt_tcp_state *s)
{
	enum nt_release release = nt_release_from_state(&h->held, s);
	u64 end_ns = s->clock_ns;

	if (release == NT_RELEASE_ACK)
		end_ns = hold_ack_released(h, t, s);
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

	if (!tail && !active_holds)
		return;
	h = hold_find(t->sk);
	if (!tail && !h)
		return;
	tcp_read_state(&s, t, trusted);
	s.mss = mss;
	s.nonagle_arg = nonagle;
	s.push_one = push_one;
	if (h && gone_out(h, &s)) {
		enum nt_release release = nt_release_from_attempt(&h->held, &s);
		u64 end_ns = s.clock_ns;

		if (release == NT_RELEASE_ACK)
			end_ns = hold_ack_released(h, t, &s);
		hold_end(h, t, release, end_ns);
		h = NULL;
	}
	reason = nt_verdict(&s);
	if (reason && (h || socket_wanted(t, trusted)))
		hold_note(h, t, &s, reason);
}

static __always_inline void count_write(const struct tcp *t, const bool trusted)
{
	struct nt_totals *totals;

	if (!socket_wanted(t, trusted))
		return;
	if (nt_config.target != NT_TARGET_ALL) {
		if (!current_is_target())
			return;
		mark_owned(t->sk);
	}
	totals = totals_here();
	if (totals)
		totals->writes++;
}

/*
 * tcp_sendmsg_locked() has returned; the socket is locked. What tcp_write_xmit() has not looked at
 * since the last write was put off before: tcp_should_autocork().
 */
static __always_inline void locked_write_ended(void *ctx, const struct tcp *t, const bool trusted)
{
	struct nt_tcp_state s;
	struct hold *h;

	count_write(t, trusted);
	if (!has_tail(t, trusted))
		return;
	h = hold_find(t->sk);
	if (!h) {
		if (!socket_wanted(t, trusted))
			return;
		tcp_read_state(&s, t, trusted);
		if (!s.has_head)
			return; /* a reset has thrown it away */
		s.clock_ns = bpf_ktime_get_ns();
		h = hold_note(NULL, t, &s, NT_HOLD_AUTOCORK);
		if (!h)
			return;
	}
	h->end_seq = TCP(t, write_seq);
	hold_note_writer(h, ctx);
}

/*
 * The verdict where no hook shows attempts and their arguments: tcp_push() passes CORK for
 * MSG_MORE, and when pacing's time was up its timer made another attempt, tcp_pace_kick().
 */
static __always_inline enum nt_hold_reason verdict_from_state(struct nt_tcp_state *s,
							      const struct tcp *t, u64 now)
{
	u64 key = (u64)t->sk;
	enum nt_hold_reason reason;
	bool paced = false;
	struct more *more;

	if (s->pacing && s->wstamp_ns > s->clock_ns && s->wstamp_ns <= now) {
		s->clock_ns = s->wstamp_ns;
		paced = true;
	}
	if (!(s->nonagle & NT_NAGLE_CORK)) {
		more = bpf_map_lookup_elem(&more_hash, &key);
		if (more && more->end_seq == s->write_seq && more->una == s->snd_una)
			s->nonagle_arg |= NT_NAGLE_CORK;
	}
	reason = nt_verdict(s);
	if (reason == NT_HOLD_UNKNOWN && paced)
		return NT_HOLD_PACING; /* its timer is about to make the attempt */
	if (reason == NT_HOLD_UNKNOWN && nt_config.guess_msg_more && s->head_last)
		return NT_HOLD_MSG_MORE;
	return reason;
}

/*
 * A look at a socket whose attempts no hook shows. What was held may have gone out unseen: then it
 * is over. True when there is a tail: *h is its hold, or NULL, and *s what was read.
 */
static __always_inline bool look_for_tail(const struct tcp *t, struct nt_tcp_state *s,
					  struct hold **h, const bool trusted)
{
	bool tail = has_tail(t, trusted);

	*h = NULL;
	if (!tail && !active_holds)
		return false;
	*h = hold_find(t->sk);
	if (!tail && !*h)
		return false;
	tcp_read_state(s, t, trusted);
	if (*h && gone_out(*h, s)) {
		hold_end_from_state(*h, t, s);
		*h = NULL;
	}
	return tail;
}

/* A write has left a tail: why? */
static __always_inline struct hold *write_left_tail(struct hold *h, const struct tcp *t,
						    struct nt_tcp_state *s, const bool trusted)
{
	enum nt_hold_reason reason;

	reason = verdict_from_state(s, t, bpf_ktime_get_ns());
	if (s->throttled && s->head_len < s->mss && s->head_last)
		reason = NT_HOLD_AUTOCORK;
	if (!reason || (!h && !socket_wanted(t, trusted)))
		return NULL;
	return hold_note(h, t, s, reason);
}

/*
 * A write has returned, seen without the socket's lock: sock_send_length. An ACK on another CPU may
 * move the tail meanwhile: then it is looked at again, for no segment may come that would put it
 * right.
 */
static __always_inline void write_ended(void *ctx, const struct tcp *t, const bool trusted)
{
	const int looks = 2;
	struct tcp again = *t;
	struct nt_tcp_state s;
	struct hold *h;

	count_write(t, trusted);
	for (int i = 0; i < looks; i++) {
		/* opaque, or the compiler keeps the address of each field on the stack from look to
		 * look */
		barrier_var(again.tp);
		if (!look_for_tail(&again, &s, &h, trusted))
			return;
		h = write_left_tail(h, &again, &s, trusted);
		if (TCP(t, snd_una) == s.snd_una && TCP(t, snd_nxt) == s.snd_nxt)
			break;
	}
	if (h)
		hold_note_writer(h, ctx);
}

/* The part of a write with MSG_MORE that is still to be queued belongs to it: tcp_sendmsg_locked.
 */
static __always_inline void write_with_more(const struct tcp *t, u32 left, const bool trusted)
{
	struct more more = {
		.end_seq = TCP(t, write_seq) + left,
		.una = TCP(t, snd_una),
	};
	u64 key = (u64)t->sk;

	bpf_map_update_elem(&more_hash, &key, &more, BPF_ANY);
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
 * The device was to have room first, and it has: then tcp_tsq_write() has made an attempt, or is
 * about to, that went unseen, for a program that another one interrupts on its CPU is skipped. What
 * holds the bytes since?
 */
static __always_inline void device_has_room(struct hold *h, const struct tcp *t,
					    struct nt_tcp_state *s, const bool trusted)
{
	enum nt_hold_reason reason;

	if (h->held.reason != NT_HOLD_AUTOCORK && h->held.reason != NT_HOLD_TSQ)
		return;
	if (SK(t, sk_tsq_flags) & (NT_TSQ_THROTTLED | NT_TSQ_RESUMING))
		return;
	tcp_read_state(s, t, trusted);
	reason = nt_verdict(s);
	if (!reason || reason == NT_HOLD_UNKNOWN)
		return;
	if (s->clock_ns < h->begin_ns)
		s->clock_ns = h->begin_ns;
	hold_note(h, t, s, reason);
}

/* A segment meets an unsent tail; attempt_ended() will tell what it releases. */
static __always_inline void segment_meets_hold(const struct tcp *t, struct nt_tcp_state *s, u32 ack,
					       u32 seq, bool pure, const bool trusted)
{
	struct hold *h = active_holds ? hold_find(t->sk) : NULL;

	/* gone out unseen, it is not this segment's to release */
	if (!h || nt_after(TCP(t, snd_nxt), h->held.seq) || !nt_after(ack, TCP(t, snd_una)))
		return;
	device_has_room(h, t, s, trusted);
	hold_note_ack(h, ack, seq, pure, bpf_ktime_get_ns());
}

/* A segment meets an unsent tail, and no hook will show the attempt that it causes. */
static __always_inline void segment_meets_tail(struct hold *h, const struct tcp *t,
					       struct nt_tcp_state *s, u32 ack, u32 seq, bool pure,
					       const bool trusted)
{
	u64 now = bpf_ktime_get_ns();
	enum nt_hold_reason reason;

	reason = verdict_from_state(s, t, now);
	if (!reason || (!h && !socket_wanted(t, trusted)))
		return;
	h = hold_note(h, t, s, reason);
	if (!h || !nt_after(ack, s->snd_una) || nt_after(ack, s->snd_nxt))
		return;
	hold_note_ack(h, ack, seq, pure, now);
	if (ack_will_release(h, s, ack))
		hold_end(h, t, NT_RELEASE_ACK, now);
}

/* A segment has come to an established connection and is not yet processed: tcp_probe. */
static __always_inline void segment_came(const struct tcp *t, const struct sk_buff *skb,
					 const bool trusted)
{
	const struct tcp_skb_cb *cb = skb_cb(skb);
	/* only after the timer sent our ACK: it leaves interactive mode, and all is acknowledged */
	bool awaiting = !ICSK(t, icsk_ack.pingpong) && TCP(t, rcv_wup) == TCP(t, rcv_nxt);
	struct nt_tcp_state s; /* one for all that may look: the stack is small */
	struct hold *h = NULL;
	u32 seq, len;
	bool tail;

	if (nt_config.functions)
		tail = has_tail(t, trusted);
	else
		tail = look_for_tail(t, &s, &h, trusted);
	if (!tail && !awaiting)
		return;
	seq = BPF_CORE_READ(cb, seq);
	len = BPF_CORE_READ(cb, end_seq) - seq;
	if (tail) {
		u32 ack = BPF_CORE_READ(cb, ack_seq);

		if (nt_config.functions)
			segment_meets_hold(t, &s, ack, seq, !len, trusted);
		else
			segment_meets_tail(h, t, &s, ack, seq, !len, trusted);
	}
	/* a FIN is never held, nor is what it came with: tcp_nagle_test() */
	if (awaiting && len && seq == TCP(t, rcv_nxt) &&
	    !(BPF_CORE_READ(cb, tcp_flags) & TCPHDR_FIN))
		pending_ack_data_came(t, skb, seq, len, bpf_ktime_get_ns());
}

/* The probe timer is about to send what is unsent, or to put that off: tcp_write_wakeup(). */
static __always_inline void probe_timer_sends(const struct tcp *t, enum nt_release release,
					      bool put_off)
{
	struct nt_tcp_state s;
	struct hold *h = active_holds ? hold_find(t->sk) : NULL;
	u64 now = bpf_ktime_get_ns();
	enum nt_hold_reason reason;

	if (!h)
		return;
	tcp_read_state(&s, t, false);
	if (gone_out(h, &s)) {
		hold_end_from_state(h, t, &s);
		return;
	}
	/* with the window closed it probes without sending any of it */
	if (!s.has_head || !nt_after(s.snd_una + s.snd_wnd, s.head_seq))
		return;
	if (!nt_config.functions) {
		reason = verdict_from_state(&s, t, now);
		if (reason && reason != h->held.reason)
			hold_switch(h, t, &s, reason);
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

	if (!active_holds)
		return;
	if (bpf_core_field_exists(icsk->icsk_timeout) &&
	    (long)(bpf_jiffies64() - BPF_CORE_READ(icsk, icsk_timeout)) < 0)
		return; /* goes back to sleep */
	pending = PROBED(t->tp, inet_conn.icsk_pending);
	owned = PROBED(t->sk, sk_lock.owned); /* put off until the application lets go */
	if (pending == ICSK_TIME_PROBE0)
		probe_timer_sends(t, NT_RELEASE_TIMER, owned);
	else if (pending == ICSK_TIME_LOSS_PROBE)
		probe_timer_sends(t, NT_RELEASE_LOSS_PROBE, owned);
}

/* The retransmit timer is armed: mostly because something was sent just now. */
static __always_inline void write_timer_starts(const struct tcp *t)
{
	struct nt_tcp_state s;
	struct hold *h = active_holds ? hold_find(t->sk) : NULL;

	if (!h || !nt_after(PROBED(t->tp, snd_nxt), h->held.seq))
		return;
	tcp_read_state(&s, t, false);
	if (gone_out(h, &s))
		hold_end_from_state(h, t, &s);
}

/* The connection is over: what is held will never go. */
static __always_inline void socket_closed(const struct tcp *t, const bool trusted)
{
	struct hold *h = active_holds ? hold_find(t->sk) : NULL;
	struct pending_ack *p = pending_ack_find(t->sk);
	struct nt_tcp_state s;

	if (h) {
		tcp_read_state(&s, t, trusted);
		if (gone_out(h, &s))
			hold_end_from_state(h, t, &s);
		else
			hold_end(h, t, NT_RELEASE_RESET, bpf_ktime_get_ns());
	}
	if (p)
		pending_ack_closed(p, t);
}

#endif /* NT_EVENTS_H */
