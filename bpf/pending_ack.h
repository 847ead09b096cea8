/* SPDX-License-Identifier: GPL-2.0 */
/* The receiver's state machine: an ACK becomes pending, and something releases it. */
#ifndef NT_PENDING_ACK_H
#define NT_PENDING_ACK_H

#include "bucket.h"
#include "filter.h"
#include "record.h"
#include "scratch.h"

/* TCP_DELACK_MIN: a limit of the socket or of the route has set any delay that is shorter. */
#define DELACK_MIN_NS 40000000ULL

/* TCP_DELACK_MAX: no limit is longer. */
#define DELACK_MAX_NS 200000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct nt_pending_ack);
} ack_hash SEC(".maps");

static const struct nt_pending_ack no_pending_ack;

/*
 * Sockets share places by the hash of their addresses. The first one keeps its ACK there, which
 * costs a fraction of a look into the map, or of socket storage; the others keep theirs in the map.
 * If two CPUs take one place at once, the last one has it, and for the other the start of its ACK
 * went unseen. A socket stays at its place while it is connected.
 */
#ifndef ACK_PLACES
#define ACK_PLACES 8192
#endif

struct nt_ack_place ack_places[ACK_PLACES]; /* user space clears them while nothing is attached */

static __always_inline u32 ack_place_of(struct sock *sk, const bool trusted)
{
	return READ(trusted, sk, __sk_common.skc_hash) % ACK_PLACES;
}

/* No hook shows when an ACK becomes pending: what came since then is not known either. */
bool ack_begins_unseen;

static __always_inline struct nt_pending_ack *pending_ack_find(struct sock *sk, const bool trusted)
{
	struct nt_pending_ack *p;
	u64 key = (u64)sk;
	u32 i = ack_place_of(sk, trusted);

	if (ack_places[i].ack.sk == key)
		return &ack_places[i].ack;
	if (!ack_places[i].others)
		return NULL;
	p = bpf_map_lookup_elem(&ack_hash, &key);
	return p && p->place == i ? p : NULL;
}

/* No ACK is pending for so long: what is at that place belongs to a connection that is over. */
static __always_inline bool ack_place_is_left(const struct nt_ack_place *place)
{
	return duration_ns(place->ack.begin_ns, bpf_ktime_get_ns()) > SECOND_NS;
}

/*
 * Makes an entry in the map. One may be there: of another program for this socket, or of another
 * place, which a connection had that connect(2) with AF_UNSPEC dissolved.
 */
static __always_inline struct nt_pending_ack *ack_hash_new(struct sock *sk, u32 i)
{
	struct nt_pending_ack *p;
	u64 key = (u64)sk;
	bool there;

	__sync_fetch_and_add(&ack_places[i].others, 1);
	there = bpf_map_update_elem(&ack_hash, &key, &no_pending_ack, BPF_NOEXIST);
	p = bpf_map_lookup_elem(&ack_hash, &key);
	if (!p)
		__sync_fetch_and_add(&ack_places[i].others, -1);
	else if (there)
		__sync_fetch_and_add(&ack_places[p->place % ACK_PLACES].others, -1);
	if (p)
		p->place = i;
	return p;
}

/* NULL: no room, counted as dropped. */
static __always_inline struct nt_pending_ack *pending_ack_new(struct sock *sk, const bool trusted)
{
	struct nt_pending_ack *p;
	u32 i = ack_place_of(sk, trusted);

	if (!ack_places[i].ack.sk || ack_place_is_left(&ack_places[i]))
		return &ack_places[i].ack;
	p = ack_hash_new(sk, i);
	if (!p)
		count_dropped(NT_DROPPED_ACK_MAP);
	return p;
}

static __always_inline void pending_ack_delete(struct nt_pending_ack *p, struct sock *sk,
					       const bool trusted)
{
	u64 key = (u64)sk;
	u32 i;

	if (p != &ack_places[ack_place_of(sk, trusted)].ack) {
		i = p->place % ACK_PLACES;
		if (!bpf_map_delete_elem(&ack_hash, &key))
			__sync_fetch_and_add(&ack_places[i].others, -1);
	} else {
		p->sk = 0;
	}
}

static __always_inline void count_ack_release(const struct tcp *t, enum nt_ack_release release,
					      const bool trusted)
{
	if (release == NT_ACK_TIMER)
		count_timer_seen(t->sk);
	if (socket_counts(t, trusted))
		count_in(often_here()->delayed_acks, release, NT_ACK_RELEASES, 1);
}

static __always_inline void read_marks(struct nt_ack_marks *m, const struct tcp *t,
				       const bool trusted)
{
	m->rcv_wup = TCP(t, rcv_wup);
	m->data_segs_out = TCP(t, data_segs_out);
	m->data_segs_in = TCP(t, data_segs_in);
}

/*
 * Classifies an ACK that no program saw leave, by the counters that it moved. If data was both sent
 * and received, this guesses piggyback. A read by the application leaves no trace. Where functions
 * are hooked, they show a read's ACK, and only a FIN or a probe leaves no trace.
 */
static __always_inline enum nt_ack_release
pending_ack_unseen_release(const struct nt_pending_ack *p, const struct nt_ack_marks *now)
{
	if (p->expired)
		return NT_ACK_TIMER;
	if (now->data_segs_out != p->at.data_segs_out)
		return NT_ACK_PIGGYBACK;
	if (now->data_segs_in != p->at.data_segs_in)
		return NT_ACK_SEGMENT;
	return nt_config.functions ? NT_ACK_PIGGYBACK : NT_ACK_READ;
}

static __always_inline void count_unseen_release(const struct nt_pending_ack *p,
						 const struct tcp *t,
						 const struct nt_ack_marks *now, const bool trusted)
{
	if (!p->sent)
		count_ack_release(t, pending_ack_unseen_release(p, now), trusted);
}

/* It went out unseen, and no ACK is pending now. */
static __always_inline void pending_ack_gone(struct nt_pending_ack *p, const struct tcp *t,
					     const bool trusted)
{
	struct nt_ack_marks now;

	read_marks(&now, t, trusted);
	count_unseen_release(p, t, &now, trusted);
	pending_ack_delete(p, t->sk, trusted);
}

/*
 * Returns when an ACK became pending whose timer has expired and whose start went unseen: as the
 * last data came, to a jiffy. The socket's clock is more exact, but any later attempt to send moves
 * it.
 */
static __always_inline u64 pending_ack_began(const struct tcp *t, const bool trusted)
{
	u64 came_ns = bpf_ktime_get_ns() - since_jiffies(ICSK(t, icsk_ack.lrcvtime));
	u64 clock_ns = tcp_clock(t, trusted);

	return clock_ns > came_ns + nt_config.tick_ns ? came_ns : clock_ns;
}

/*
 * Finds or makes the entry of the ACK that is pending now: that of the same ACK goes on, that of
 * one that went out unseen gives way. NULL: nobody asked for the socket, or there is no room.
 */
static __always_inline struct nt_pending_ack *pending_ack_current(const struct tcp *t, bool expired,
								  const bool trusted)
{
	struct nt_pending_ack *p = pending_ack_find(t->sk, trusted);
	struct nt_ack_marks now;

	if (!p) {
		if (!socket_wanted(t->sk, trusted))
			return NULL;
		p = pending_ack_new(t->sk, trusted);
		if (!p)
			return NULL;
		read_marks(&now, t, trusted);
	} else {
		read_marks(&now, t, trusted);
		/* data takes along what is pending, also the ACK of no bytes of a handshake */
		if (p->at.rcv_wup == now.rcv_wup && p->at.data_segs_out == now.data_segs_out)
			return p;
		count_unseen_release(p, t, &now, trusted);
	}
	p->at = now;
	p->pingpong = ICSK(t, icsk_ack.pingpong);
	p->locked = false;
	p->expired = false;
	p->sent = false;
	p->begin_ns = expired ? pending_ack_began(t, trusted) : tcp_clock(t, trusted);
	barrier();
	p->sk = (u64)t->sk;
	return p;
}

/* The ACK is pending from now on: tcp_send_delayed_ack(). */
static __always_inline void pending_ack_begin(const struct tcp *t, const bool trusted)
{
	pending_ack_current(t, false, trusted);
}

/* Has the application read a part? A read of all would send the ACK: tcp_cleanup_rbuf(). */
static __always_inline bool partly_read(const struct nt_pending_ack *p, const struct tcp *t)
{
	u32 copied = PROBED(t->tp, copied_seq);

	return nt_after(copied, p->at.rcv_wup) && copied != PROBED(t->tp, rcv_nxt);
}

/*
 * Infers why the kernel delayed the ACK: why tcp_in_quickack_mode() said no. Uses the mode recorded
 * when the ACK became pending, since the timer's handler leaves the interactive mode, and the
 * present limits.
 */
static __always_inline enum nt_ack_reason pending_ack_reason(const struct nt_pending_ack *p,
							     const struct tcp *t)
{
	if (tcp_delack_limit_ns(t) < DELACK_MIN_NS)
		return NT_ACK_REASON_DELACK_MAX;
	/* only a program that asked for it delays the handshake's ACK, which carries no bytes */
	if (p->at.rcv_wup == PROBED(t->tp, rcv_nxt))
		return NT_ACK_REASON_QUICKACK_OFF;
	if (p->pingpong < pingpong_thresh(t))
		return partly_read(p, t) ? NT_ACK_REASON_LEFT_UNREAD
					 : NT_ACK_REASON_QUICK_EXHAUSTED;
	/* the socket has sent no answer yet, so TCP_QUICKACK 0 entered the mode;
	 * __tcp_sock_set_quickack() */
	return p->at.data_segs_out ? NT_ACK_REASON_PINGPONG : NT_ACK_REASON_QUICKACK_OFF;
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
 * Remembers an ACK that went out late and alone, for the sender whose hold it may release. This is
 * a global function for the verifier's sake, as hold_judge().
 */
__noinline int late_ack_remember(u32 level, u32 release, u64 now)
{
	struct nt_pending_ack *p = scratch_get(level);
	struct nt_ack_numbers numbers;
	struct late_ack *la;
	struct tcp t;
	u64 limit_ns;

	if (!p)
		return 0;
	t = tcp_of((void *)p->sk, false);
	late_ack_numbers(&numbers, &t);
	la = late_ack_new(&numbers);
	if (!la)
		return 0;
	read_end(&la->end, &t);
	la->end.pingpong = p->pingpong >= pingpong_thresh(&t);
	if (p->locked)
		la->end.locked = nt_config.functions ? NT_LOCK_SEEN : NT_LOCK_UNSEEN;
	end_take_waiter(&la->end, t.sk);
	end_take_owner(&la->end, t.sk);
	la->part.begin_ns = p->begin_ns;
	la->part.bytes = PROBED(t.tp, rcv_nxt) - p->at.rcv_wup;
	limit_ns = tcp_delack_limit_ns(&t);
	la->part.limit_us = (limit_ns < DELACK_MAX_NS ? limit_ns : DELACK_MAX_NS) / 1000;
	la->part.release = release;
	la->part.reason = pending_ack_reason(p, &t);
	la->part.end_ns = now;
	la->room = window_left(&t);
	la->lone = !ack_begins_unseen && PROBED(t.tp, data_segs_in) == p->at.data_segs_in;
	la->unsure = release == NT_ACK_READ && !nt_config.functions;
	if (la->unsure && late_acks_wanted)
		bucket_await_answer(t.sk, ANSWER_NS);
	if (release == NT_ACK_TIMER) {
		await_answer(la, &t);
		late_ack_goes();
	}
	if (late_acks_wanted && !la->unsure && duration_ns(p->begin_ns, now) >= nt_config.min_ns)
		report_late_ack(la, t.sk, &numbers);
	return 0;
}

/* The ACK goes out late and alone. */
static __always_inline void pending_ack_remember(const struct nt_pending_ack *p,
						 enum nt_ack_release release, u64 now)
{
	u32 level;
	struct nt_pending_ack *ended = scratch_take(&level);

	if (!ended) {
		count_dropped(NT_DROPPED_ACK_MAP);
		return;
	}
	*ended = *p;
	late_ack_remember(level, release, now);
	scratch_give(level);
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

/*
 * The application reads, and no hook shows whether that sends the pending ACK: tcp_cleanup_rbuf()
 * decides next. If the ACK leaves alone with these numbers, it leaves now or at a later read. A
 * sender on this host that gets it knows that it left; read_sent_ack() finds out for others. An ACK
 * that a read sends sooner makes no stall (nt_late_evidence()), so that most reads cost no look
 * into a map. The start may have gone unseen.
 */
static __always_inline void pending_ack_meets_read(const struct tcp *t, const bool trusted)
{
	u64 came_ago_ns = since_jiffies(ICSK(t, icsk_ack.lrcvtime));
	struct nt_pending_ack *p;
	u64 now;

	if (!(ICSK(t, icsk_ack.pending) & ICSK_ACK_SCHED) ||
	    came_ago_ns + nt_config.tick_ns < NT_INFER_NS || !read_may_send_ack(t, trusted))
		return;
	p = pending_ack_current(t, true, trusted);
	now = bpf_ktime_get_ns();
	if (p && !p->sent && duration_ns(p->begin_ns, now) >= NT_INFER_NS)
		pending_ack_remember(p, NT_ACK_READ, now);
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

/* The socket goes: its last ACK went out unseen, or never will. */
static __always_inline void pending_ack_closed(struct nt_pending_ack *p, const struct tcp *t)
{
	bool scheduled = PROBED(t->tp, inet_conn.icsk_ack.pending) & ICSK_ACK_SCHED;

	if (!scheduled || p->at.rcv_wup != PROBED(t->tp, rcv_wup)) {
		pending_ack_gone(p, t, false);
		return;
	}
	count_ack_release(t, NT_ACK_RESET, false);
	pending_ack_delete(p, t->sk, false);
}

/*
 * The timer's handler is about to send the ACK. This counts it at once and not when the ACK leaves:
 * the kernel skips a program that interrupts another on its CPU. `sent` keeps it from being counted
 * twice. The audit compares whole namespaces: it counts a socket's timer too for which nobody
 * asked.
 */
static __always_inline void pending_ack_timer_sends(const struct tcp *t, const bool trusted)
{
	struct nt_pending_ack *p = pending_ack_current(t, true, trusted);

	if (!p && socket_only_audited(t->sk, trusted))
		count_timer_seen(t->sk);
	/* another socket may have taken the place just now */
	if (!p || p->sent || p->sk != (u64)t->sk)
		return;
	p->sent = true;
	p->locked = SK(t, sk_lock.owned);
	count_ack_release(t, NT_ACK_TIMER, trusted);
	if (!p->expired)
		pending_ack_remember(p, NT_ACK_TIMER, bpf_ktime_get_ns());
}

static __always_inline bool pending_ack_due(const struct tcp *t, const bool trusted)
{
	const u8 due = ICSK_ACK_SCHED | ICSK_ACK_TIMER;

	return (ICSK(t, icsk_ack.pending) & due) == due;
}

/* The timer has expired: the ACK that it was started for is out, so that nothing is kept of it. */
static __always_inline void pending_ack_over(const struct tcp *t, const bool trusted)
{
	struct nt_pending_ack *p = pending_ack_find(t->sk, trusted);

	if (p)
		pending_ack_gone(p, t, trusted);
}

/*
 * The delayed-ACK timer expires; its tracepoint shows that before the handler runs. This mirrors
 * tcp_delack_timer_handler(). The timer also expires for an ACK that went out long ago. The kernel
 * may arm it again for the same jiffy, which timer_start does not show: pending_ack_current() finds
 * that.
 */
static __always_inline void pending_ack_timer_expires(const struct tcp *t)
{
	if (pending_ack_due(t, false))
		pending_ack_timer_sends(t, false);
	pending_ack_over(t, false);
}

/*
 * The same where a kprobe is to show the handler, and the kernel skips that program when it
 * interrupts another. This remembers the ACK, which another segment may still forestall, and counts
 * nothing. tcp_release_cb() calls the handler of a locked socket, and interrupts nobody.
 */
static __always_inline void pending_ack_timer_alerts(const struct tcp *t)
{
	struct nt_pending_ack *p;

	if (PROBED(t->sk, sk_lock.owned))
		return;
	if (!pending_ack_due(t, false)) {
		pending_ack_over(t, false);
		return;
	}
	p = pending_ack_current(t, true, false);
	if (!p || p->sent)
		return;
	p->expired = true;
	pending_ack_remember(p, NT_ACK_TIMER, bpf_ktime_get_ns());
}

/*
 * tcp_delack_timer_handler() is entered; also by tcp_release_cb(), if the socket was locked as the
 * timer fired, and for ACKs that went out long ago. Returns true if it sends the ACK.
 */
static __always_inline bool pending_ack_timer_handler(const struct tcp *t, const bool trusted)
{
	if (!pending_ack_due(t, trusted)) {
		pending_ack_over(t, trusted);
		return false;
	}
	/* it waited until the socket was unlocked, and may meet the next ACK's time */
	if ((long)(ICSK(t, icsk_delack_timer.expires) - bpf_jiffies64()) > 0)
		return false;
	pending_ack_timer_sends(t, trusted);
	return true;
}

/*
 * The ACK that the timer's handler was about to send leaves. The time is that of now, since a
 * preemptible kernel may have taken the CPU from the handler meanwhile.
 */
static __always_inline void late_ack_leaves(const struct tcp *t, const bool trusted)
{
	struct late_ack *la = late_ack_find(TCP(t, rcv_nxt), TCP(t, snd_nxt));

	if (!la || la->end.sk != (u64)t->sk || la->part.release != NT_ACK_TIMER)
		return;
	la->part.end_ns = bpf_ktime_get_ns();
	await_answer(la, t);
}

/*
 * A pending ACK is about to go out by itself: tcp_send_ack(). One that data takes along is counted
 * when its timer expires, or as the next ACK becomes pending. So is one that tcp_send_delayed_ack()
 * sends because the timer is about to expire, where the compiler has inlined tcp_send_ack() there:
 * its peer has just sent another segment, so nobody waited for it.
 */
static __always_inline void pending_ack_leaves(const struct tcp *t, const bool trusted)
{
	struct nt_pending_ack *p;
	enum nt_ack_release release;
	u64 now;

	if (!(ICSK(t, icsk_ack.pending) & ICSK_ACK_SCHED))
		return;
	p = pending_ack_find(t->sk, trusted);
	if (!p)
		return;
	if (p->at.rcv_wup != TCP(t, rcv_wup)) {
		/* that one went out unseen, and so did the start of this one */
		pending_ack_gone(p, t, trusted);
		return;
	}
	if (!(ICSK(t, icsk_ack.pending) & ICSK_ACK_TIMER))
		release = NT_ACK_TIMER;
	else if (TCP(t, copied_seq) == TCP(t, rcv_nxt))
		release = NT_ACK_READ;
	else
		release = NT_ACK_SEGMENT;
	if (p->sent) {
		late_ack_leaves(t, trusted);
	} else {
		count_ack_release(t, release, trusted);
		now = bpf_ktime_get_ns();
		if (release == NT_ACK_TIMER || now >= p->begin_ns + LATE_ACK_NS)
			pending_ack_remember(p, release, now);
	}
	pending_ack_delete(p, t->sk, trusted);
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

#endif /* NT_PENDING_ACK_H */
