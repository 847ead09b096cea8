/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The receiver's side: something releases a pending ACK. Nothing is kept of an ACK while it is
 * pending, for most ride on the next data, and no program runs for those. When one leaves late and
 * alone, its socket still shows since when it was pending, and why.
 */
#pragma once

#include "bucket.h"
#include "filter.h"
#include "record.h"
#include "release.h"
#include "tell_events.h"

/* TCP_DELACK_MIN: a limit of the socket or of the route has set any delay that is shorter. */
#define DELACK_MIN_NS 40000000ULL

/* TCP_DELACK_MAX: no limit is longer. */
#define DELACK_MAX_NS 200000000ULL

/* Has the peer's FIN come? */
static __always_inline bool peer_has_closed(const struct tcp *t, const bool trusted)
{
	u8 state = SK(t, __sk_common.skc_state);

	return state == NT_TCP_CLOSE_WAIT || state == NT_TCP_LAST_ACK || state == NT_TCP_CLOSING;
}

/*
 * Returns when the pending ACK became pending: when the last data came. The socket's clock shows
 * that, unless a later read or attempt to send has moved it: then the jiffy does, but that of a FIN
 * is not kept. The timer expires as a jiffy begins; else the ACK has been pending since the end of
 * that jiffy at least.
 */
static __always_inline u64 pending_ack_began(const struct tcp *t, u32 release, const bool trusted)
{
	u64 came_ns = bpf_ktime_get_ns() - since_jiffies(ICSK(t, icsk_ack.lrcvtime));
	u64 clock_ns = tcp_clock(t, trusted), latest_ns = came_ns + nt_config.tick_ns;

	if (clock_ns <= latest_ns || peer_has_closed(t, trusted))
		return clock_ns;
	return release == NT_ACK_TIMER ? came_ns + nt_config.tick_ns / 2 : latest_ns;
}

/* Has the application read a part? A read of all would send the ACK: tcp_cleanup_rbuf(). */
static __always_inline bool partly_read(const struct tcp *t)
{
	u32 copied = PROBED(t->tp, copied_seq);

	return nt_after(copied, PROBED(t->tp, rcv_wup)) && copied != PROBED(t->tp, rcv_nxt);
}

/*
 * Infers why the kernel delayed the ACK: why tcp_in_quickack_mode() said no. The timer's handler
 * has not left the interactive mode yet.
 */
static __always_inline enum nt_ack_reason pending_ack_reason(const struct late_ack *la,
							     const struct tcp *t)
{
	if (la->part.limit_us < DELACK_MIN_NS / 1000)
		return NT_ACK_REASON_DELACK_MAX;
	/* only a program that asked for it delays the handshake's ACK, which carries no bytes */
	if (!la->part.bytes)
		return NT_ACK_REASON_QUICKACK_OFF;
	if (!la->end.pingpong)
		return partly_read(t) ? NT_ACK_REASON_LEFT_UNREAD : NT_ACK_REASON_QUICK_EXHAUSTED;
	/* the socket has sent no answer yet, so TCP_QUICKACK 0 entered the mode;
	 * __tcp_sock_set_quickack() */
	return PROBED(t->tp, data_segs_out) ? NT_ACK_REASON_PINGPONG : NT_ACK_REASON_QUICKACK_OFF;
}

/*
 * Has one segment come since our last ACK, and no other? A second small one sets PUSHED2, and one
 * that is not small leaves no room for another: tcp_measure_rcv_mss(), __tcp_ack_snd_check(). Two
 * that GRO or the backlog has merged pass for one.
 */
static __always_inline bool one_segment_came(const struct late_ack *la, const struct tcp *t)
{
	return !(PROBED(t->tp, inet_conn.icsk_ack.pending) & ICSK_ACK_PUSHED2) &&
	       la->part.bytes <= PROBED(t->tp, inet_conn.icsk_ack.rcv_mss);
}

/* Returns how many more bytes our last ACK lets the peer send: tcp_receive_window(). */
static __always_inline u32 window_left(const struct tcp *t)
{
	u32 left = PROBED(t->tp, rcv_wup) + PROBED(t->tp, rcv_wnd) - PROBED(t->tp, rcv_nxt);

	return (s32)left < 0 ? 0 : left;
}

/* A server takes no longer to accept a connection and to greet. */
#define ACCEPT_NS 40000000ULL

/*
 * Returns how long after our ACK an answer comes at the latest; 0: no round trip is known. Round
 * trips vary: the smoothed one shows by how much, as far as it is no more than twice the smallest,
 * since delayed ACKs smear it. A server greets later, by what it takes to accept.
 */
static __always_inline u64 latest_answer_ns(const struct late_ack *la, const struct tcp *t)
{
	u64 rtt_ns = la->end.min_rtt_us * 1000ULL;
	u64 smooth_ns = PROBED(t->tp, srtt_us) / 8 * 1000ULL;
	u64 most_ns = rtt_ns + rtt_ns / 2;

	if (!rtt_ns)
		return 0;
	if (smooth_ns > most_ns)
		most_ns = smooth_ns < 2 * rtt_ns ? smooth_ns : 2 * rtt_ns;
	return most_ns + nt_config.tick_ns + (la->part.bytes ? 0 : ACCEPT_NS);
}

/* Waits twice as long, since the smoothed round trip may grow until the answer comes. */
static __always_inline void await_answer(const struct late_ack *la, const struct tcp *t)
{
	bucket_await_answer(t->sk, 2 * latest_answer_ns(la, t));
}

/*
 * Remembers an ACK that goes out late and alone, for the sender whose hold it may release. sk: the
 * receiver. This is a global function for the verifier's sake, as hold_judge().
 */
__noinline int late_ack_remember(u64 sk, u32 release, u64 now)
{
	struct tcp t = tcp_of((void *)sk, false);
	struct nt_ack_numbers numbers;
	struct late_ack *la;
	u64 limit_ns;

	late_ack_numbers(&numbers, &t);
	la = late_ack_new(&numbers);
	if (!la)
		return 0;
	read_end(&la->end, &t);
	if (release == NT_ACK_TIMER && PROBED(t.sk, sk_lock.owned))
		la->end.locked = nt_config.functions ? NT_LOCK_SEEN : NT_LOCK_UNSEEN;
	end_take_waiter(&la->end, t.sk);
	end_take_owner(&la->end, t.sk);
	la->part.begin_ns = pending_ack_began(&t, release, false);
	la->part.bytes = PROBED(t.tp, rcv_nxt) - PROBED(t.tp, rcv_wup);
	limit_ns = tcp_delack_limit_ns(&t);
	la->part.limit_us = (limit_ns < DELACK_MAX_NS ? limit_ns : DELACK_MAX_NS) / 1000;
	la->part.release = release;
	la->part.reason = pending_ack_reason(la, &t);
	la->part.end_ns = now;
	la->room = window_left(&t);
	la->lone = one_segment_came(la, &t);
	la->unsure = release == NT_ACK_READ && !nt_config.functions;
	if (la->unsure && late_acks_wanted)
		bucket_await_answer(t.sk, ANSWER_NS);
	if (release == NT_ACK_TIMER) {
		await_answer(la, &t);
		late_ack_goes();
	}
	if (late_acks_wanted && !la->unsure &&
	    duration_ns(la->part.begin_ns, now) >= nt_config.min_ns)
		report_late_ack(la, t.sk, &numbers);
	return 0;
}

/*
 * May a read that leaves nothing unread send the pending ACK? This mirrors tcp_cleanup_rbuf(), but
 * for the window that a read opens: a sender that waits for that is not held by Nagle.
 */
static __always_inline bool read_may_send_ack(const struct tcp *t, const bool trusted)
{
	u8 pending = ICSK(t, icsk_ack.pending);

	if (TCP(t, copied_seq) != TCP(t, rcv_nxt))
		return false;
	return pending & ICSK_ACK_PUSHED2 ||
	       (pending & ICSK_ACK_PUSHED && ICSK(t, icsk_ack.pingpong) < pingpong_thresh(t)) ||
	       TCP(t, rcv_nxt) - TCP(t, rcv_wup) > ICSK(t, icsk_ack.rcv_mss);
}

/* Returns the late ACK that the socket's timer sends or has sent, by its numbers; NULL: none. */
static __always_inline struct late_ack *late_ack_of_timer(const struct tcp *t, const bool trusted)
{
	struct late_ack *la = late_ack_find(TCP(t, rcv_nxt), TCP(t, snd_nxt));

	return la && la->end.sk == (u64)t->sk && la->part.release == NT_ACK_TIMER ? la : NULL;
}

/* May the ACK that a read may send be late? */
static __always_inline bool read_may_be_late(const struct tcp *t, const bool trusted)
{
	return ICSK(t, icsk_ack.pending) & ICSK_ACK_SCHED &&
	       since_jiffies(ICSK(t, icsk_ack.lrcvtime)) + nt_config.tick_ns >= NT_INFER_NS;
}

/*
 * The application reads, and no hook shows whether that sends the pending ACK: tcp_cleanup_rbuf()
 * decides next. If the ACK leaves alone with these numbers, it leaves now or at a later read. A
 * sender on this host that gets it knows that it left; read_sent_ack() finds out for others. An ACK
 * that a read sends sooner makes no stall: nt_late_evidence().
 */
static __always_inline void pending_ack_meets_read(const struct tcp *t, const bool trusted)
{
	u64 now;

	if (!read_may_send_ack(t, trusted) || !socket_wanted(t->sk, trusted))
		return;
	now = bpf_ktime_get_ns();
	if (duration_ns(pending_ack_began(t, NT_ACK_READ, trusted), now) >= NT_INFER_NS &&
	    !late_ack_of_timer(t, trusted))
		late_ack_remember(socket_number(t->sk), NT_ACK_READ, now);
}

/*
 * A segment has come, and another host may want to know of a late ACK that a read met: if none is
 * pending now, and nothing was sent since, then the read sent it alone.
 */
static __always_inline void read_sent_ack(const struct tcp *t, const bool trusted)
{
	struct nt_ack_numbers numbers;
	struct late_ack *la;

	if (!late_acks_wanted || TCP(t, rcv_wup) != TCP(t, rcv_nxt) ||
	    ICSK(t, icsk_ack.pending) & ICSK_ACK_SCHED)
		return;
	late_ack_numbers(&numbers, t);
	la = late_ack_find(numbers.ack, numbers.seq);
	if (!la || !la->unsure || la->end.sk != (u64)t->sk)
		return;
	la->unsure = false;
	if (duration_ns(la->part.begin_ns, la->part.end_ns) >= nt_config.min_ns)
		report_late_ack(la, t->sk, &numbers);
}

/*
 * The timer's handler is about to send the ACK. This counts it, and not when the ACK leaves: the
 * kernel skips a program that interrupts another on its CPU. The audit compares whole namespaces:
 * it counts a socket's timer too for which nobody asked.
 */
static __always_inline void pending_ack_timer_sends(const struct tcp *t, const bool trusted)
{
	struct nt_totals *totals = totals_here();

	if (!socket_wanted(t->sk, trusted)) {
		if (socket_only_audited(t->sk, trusted))
			count_timer_seen(t->sk);
		return;
	}
	event_plain(t->sk, NT_EVENT_ACK_TIMER);
	count_timer_seen(t->sk);
	if (totals && socket_counts(t->sk, trusted))
		totals->delayed_acks++;
	late_ack_remember(socket_number(t->sk), NT_ACK_TIMER, bpf_ktime_get_ns());
}

/* From the tracepoint of the timer to its handler it takes no longer. */
#define TO_HANDLER_NS 20000000ULL

static __always_inline bool pending_ack_due(const struct tcp *t, const bool trusted)
{
	const u8 due = ICSK_ACK_SCHED | ICSK_ACK_TIMER;

	return (ICSK(t, icsk_ack.pending) & due) == due;
}

/*
 * The delayed-ACK timer expires; its tracepoint shows that before the handler runs. The timer also
 * expires for an ACK that went out long ago. If the socket is locked, the ACK waits until it is
 * unlocked, which a hooked function shows.
 */
static __always_inline void pending_ack_timer_expires(const struct tcp *t)
{
	struct nt_often *often = often_here();

	if (!pending_ack_due(t, false) || (nt_config.functions && PROBED(t->sk, sk_lock.owned)))
		return;
	if (nt_config.functions) {
		often->sends_ack = socket_number(t->sk);
		often->expired_ns = bpf_ktime_get_ns();
	}
	pending_ack_timer_sends(t, false);
}

/*
 * tcp_delack_timer_handler() is entered: by the timer, which was seen to expire just now; or by
 * tcp_release_cb(), if the socket was locked as the timer fired, and for ACKs that went out long
 * ago.
 */
static __always_inline void pending_ack_timer_handler(const struct tcp *t, const bool trusted)
{
	struct nt_often *often = often_here();
	u64 sk = socket_number(t->sk);
	bool seen =
		often->sends_ack == sk && bpf_ktime_get_ns() - often->expired_ns < TO_HANDLER_NS;

	often->sends_ack = 0;
	/* it waited until the socket was unlocked, and may meet the next ACK's time */
	if (!pending_ack_due(t, trusted) ||
	    (long)(ICSK(t, icsk_delack_timer.expires) - bpf_jiffies64()) > 0)
		return;
	often->sends_ack = sk;
	often->expired_ns = 0;
	if (!seen)
		pending_ack_timer_sends(t, trusted);
}

/* A read or a segment has the pending ACK sent. */
static __always_inline void pending_ack_sent(const struct tcp *t, const bool trusted)
{
	u64 now = bpf_ktime_get_ns();

	if (now >= pending_ack_began(t, NT_ACK_READ, trusted) + LATE_ACK_NS &&
	    socket_wanted(t->sk, trusted))
		late_ack_remember(
			socket_number(t->sk),
			TCP(t, copied_seq) == TCP(t, rcv_nxt) ? NT_ACK_READ : NT_ACK_SEGMENT, now);
}

/* May an ACK be late that is about to go out by itself? One in the jiffy of its data is not. */
static __always_inline bool pending_ack_may_be_late(const struct tcp *t, const bool trusted)
{
	return ICSK(t, icsk_ack.pending) & ICSK_ACK_SCHED &&
	       ICSK(t, icsk_ack.lrcvtime) != (u32)bpf_jiffies64();
}

/*
 * Such an ACK is about to go out: tcp_send_ack(). The timer's is known already, but leaves now
 * only: a preemptible kernel may have taken the CPU from its handler meanwhile.
 */
static __always_inline void pending_ack_leaves(const struct tcp *t, const bool trusted)
{
	struct nt_often *often = often_here();
	struct late_ack *la;

	if (ICSK(t, icsk_ack.pending) & ICSK_ACK_TIMER) {
		pending_ack_sent(t, trusted);
		return;
	}
	if (often->sends_ack != socket_number(t->sk))
		return;
	often->sends_ack = 0;
	la = late_ack_of_timer(t, trusted);
	if (la) {
		la->part.end_ns = bpf_ktime_get_ns();
		await_answer(la, t);
	}
}

/*
 * Returns the TSval of what we sent then, without the connection's offset: tcp_skb_timestamp_ts().
 */
static __always_inline u32 timestamp_at(const struct tcp *t, u64 ns)
{
	struct tcp_sock___usec *tp = (void *)t->tp;

	return bpf_core_field_exists(tp->tcp_usec_ts) &&
			       BPF_CORE_READ_BITFIELD_PROBED(tp, tcp_usec_ts)
		       ? ns / 1000
		       : ns / 1000000;
}

/*
 * Had the peer got our late ACK when it sent this segment? Its timestamp echo (RFC 7323) shows the
 * age of the newest segment that it had of us: that ACK, or one that left before the ACK was
 * pending, for whatever leaves meanwhile takes the ACK along. Half way between the two any clock is
 * exact enough: the ACK may get its timestamp well before it leaves.
 */
static __always_inline bool sent_after_ack(const struct tcp *t, const struct sk_buff *skb,
					   const struct nt_ack_part *late, u64 since_ns, u64 rtt_ns)
{
	struct timestamps ts;
	u32 echo, between;

	if (!PROBED_BITS(&t->tp->rx_opt, tstamp_ok))
		return since_ns + rtt_ns / 8 >= rtt_ns;
	if (!read_timestamps(&ts, skb))
		return false;
	echo = bpf_ntohl(ts.echo) - PROBED(t->tp, tsoffset);
	between = timestamp_at(t, late->begin_ns + duration_ns(late->begin_ns, late->end_ns) / 2);
	return !nt_after(between, echo);
}

/*
 * Returns the largest segment that the peer is likely to send: what we announced, less the
 * timestamp option, or what the path lets us send if that is less.
 */
static __always_inline u32 peer_mss(const struct tcp *t)
{
	const u32 timestamp = 12;
	u32 announced = PROBED(t->tp, advmss), ours = PROBED(t->tp, mss_cache);

	if (PROBED_BITS(&t->tp->rx_opt, tstamp_ok))
		announced -= timestamp;
	return ours < announced ? ours : announced;
}

/*
 * Data has come to a receiver whose timer sent the last ACK. Did that ACK release it? It did if it
 * comes one round trip after the ACK, acknowledges what we had sent by then and nothing that we
 * sent since, which would have taken the ACK along, and all of these hold:
 * - one small segment had come before and nothing since, for Nagle lets only one out;
 * - the socket was in interactive mode: else the application's read would have sent the ACK;
 * - our window had room for the segment: else the window held the peer.
 * Or the ACK completed the handshake, and the server speaks first: it waited in accept(), unless
 * our SYN brought data, tcp_fastopen_create_child().
 */
static __always_inline void pending_ack_data_came(const struct tcp *t, const struct sk_buff *skb,
						  const struct segment *seg, u32 len, u64 now)
{
	struct late_ack *la = late_ack_find(seg->seq, seg->ack);
	enum nt_hold_reason reason = NT_HOLD_UNKNOWN;
	u64 rtt_ns, since_ns;
	u32 mss;

	if (!la || la->consumed || la->part.release != NT_ACK_TIMER || la->end.sk != (u64)t->sk)
		return;
	la->consumed = true;
	mss = peer_mss(t);
	rtt_ns = la->end.min_rtt_us * 1000ULL;
	since_ns = duration_ns(la->part.end_ns, now);
	if (!la->part.bytes) {
		if (PROBED(t->tp, data_segs_out))
			return;
		reason = NT_HOLD_HANDSHAKE;
	} else if (!la->end.pingpong || !la->lone || len >= mss || la->part.bytes >= mss ||
		   len > la->room) {
		return;
	}
	if (!rtt_ns || since_ns > latest_answer_ns(la, t) ||
	    !sent_after_ack(t, skb, &la->part, since_ns, rtt_ns))
		return;
	if (duration_ns(la->part.begin_ns, la->part.end_ns) >= nt_config.min_ns)
		report_peer_waited(la, t->sk, reason, seg->seq, seg->ack, now);
}
