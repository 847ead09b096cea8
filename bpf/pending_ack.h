/* SPDX-License-Identifier: GPL-2.0 */
/* The receiver's state machine: an ACK becomes owed, is sent, and by what. */
#ifndef NT_PENDING_ACK_H
#define NT_PENDING_ACK_H

#include "bucket.h"
#include "correlate.h"

/* Without a 40 ms minimum: the limit of the socket or the route is what set the delay;
 * TCP_DELACK_MIN. */
#define DELACK_MIN_NS 40000000ULL

/* What tells later how an ACK went out. */
struct ack_marks {
	u32 rcv_wup; /* what had been acknowledged; moves with every ACK that goes out */
	u32 data_segs_out;
	u32 data_segs_in;
};

struct pending_ack {
	u64 sk;
	u64 begin_ns;
	struct ack_marks at; /* when it began */
	u8 pingpong;         /* as the socket counts it */
	bool locked;
	bool expired; /* its timer did, and nothing else was seen of it since */
	bool sent;    /* by the timer, and counted; here until it is seen to leave */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pending_ack);
} ack_storage SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct pending_ack);
} ack_hash SEC(".maps");

static const struct pending_ack no_pending_ack;

/* No hook shows when an ACK is put off: what came since then is not known either. */
bool ack_begins_unseen;

/*
 * What a socket's storage holds stays until the socket goes: to make it anew for each ACK, twice in
 * every exchange of small requests, costs more than all else here. sk 0: no ACK is owed.
 */
static __always_inline struct pending_ack *pending_ack_find(struct sock *sk)
{
	struct pending_ack *p;
	u64 key = (u64)sk;

	if (!nt_config.sk_storage)
		return bpf_map_lookup_elem(&ack_hash, &key);
	p = bpf_sk_storage_get(&ack_storage, sk, NULL, 0);
	if (p && !p->sk)
		p = NULL;
	barrier_var(p); /* see hold_find() */
	return p;
}

/* NULL: no room, counted as lost; or another program was just faster, and begins it. */
static __always_inline struct pending_ack *pending_ack_new(struct sock *sk)
{
	struct pending_ack *p = NULL;
	u64 key = (u64)sk;
	long err;

	if (nt_config.sk_storage) {
		p = bpf_sk_storage_get(&ack_storage, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
		err = p ? 0 : bpf_sk_storage_get(&ack_storage, sk, NULL, 0) ? -EEXIST : -ENOMEM;
	} else {
		err = bpf_map_update_elem(&ack_hash, &key, &no_pending_ack, BPF_NOEXIST);
		if (!err)
			p = bpf_map_lookup_elem(&ack_hash, &key);
	}
	if (err && err != -EEXIST)
		count_lost(NT_LOST_ACK_MAP);
	return p;
}

static __always_inline void pending_ack_delete(struct pending_ack *p, struct sock *sk)
{
	u64 key = (u64)sk;

	if (nt_config.sk_storage)
		p->sk = 0;
	else
		bpf_map_delete_elem(&ack_hash, &key);
}

static __always_inline void count_ack_end(const struct sock *sk, enum nt_ack_end end)
{
	struct nt_totals *t = totals_here();

	if (t && socket_counts(sk))
		count_in(t->ack_ends, end, NT_ACK_ENDS, 1);
}

static __always_inline void read_marks(struct ack_marks *m, const struct tcp *t, const bool trusted)
{
	m->rcv_wup = TCP(t, rcv_wup);
	m->data_segs_out = TCP(t, data_segs_out);
	m->data_segs_in = TCP(t, data_segs_in);
}

/*
 * An ACK that went out unseen: by what it left behind. Between data sent and data come in it must
 * choose; what the application read leaves no trace.
 */
static __always_inline enum nt_ack_end pending_ack_unseen_end(const struct pending_ack *p,
							      const struct ack_marks *now)
{
	if (p->expired)
		return NT_ACK_TIMER;
	if (now->data_segs_out != p->at.data_segs_out)
		return NT_ACK_PIGGYBACK;
	if (now->data_segs_in != p->at.data_segs_in)
		return NT_ACK_SEGMENT;
	return NT_ACK_READ;
}

static __always_inline void count_unseen_end(const struct pending_ack *p, const struct tcp *t,
					     const struct ack_marks *now)
{
	if (!p->sent)
		count_ack_end(t->sk, pending_ack_unseen_end(p, now));
}

/* It went out unseen, and nothing is owed now. */
static __always_inline void pending_ack_gone(struct pending_ack *p, const struct tcp *t,
					     const bool trusted)
{
	struct ack_marks now;

	read_marks(&now, t, trusted);
	count_unseen_end(p, t, &now);
	pending_ack_delete(p, t->sk);
}

/*
 * When an ACK was put off, asked when its timer has expired and its begin went unseen: as the last
 * data came, to a jiffy. The socket's clock tells better, but what it tried to send since moves it.
 */
static __always_inline u64 pending_ack_began(const struct tcp *t, const bool trusted)
{
	u32 jiffies = (u32)bpf_jiffies64() - ICSK(t, icsk_ack.lrcvtime);
	u64 came_ns = bpf_ktime_get_ns() - jiffies * nt_config.tick_ns;
	u64 clock_ns = tcp_clock(t, trusted);

	return clock_ns > came_ns + nt_config.tick_ns ? came_ns : clock_ns;
}

/*
 * The ACK that is owed now: one that is still owed goes on, what went out unseen gives way. NULL:
 * nobody asked for the socket, or there is no room.
 */
static __always_inline struct pending_ack *pending_ack_owed(const struct tcp *t, bool expired,
							    const bool trusted)
{
	struct pending_ack *p = pending_ack_find(t->sk);
	struct ack_marks now;

	if (!p) {
		if (!socket_wanted(t->sk, trusted))
			return NULL;
		p = pending_ack_new(t->sk);
		if (!p)
			return NULL;
		read_marks(&now, t, trusted);
	} else {
		read_marks(&now, t, trusted);
		if (p->at.rcv_wup == now.rcv_wup)
			return p;
		count_unseen_end(p, t, &now);
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

/* The ACK is put off from now on: tcp_send_delayed_ack(). */
static __always_inline void pending_ack_begin(const struct tcp *t, const bool trusted)
{
	pending_ack_owed(t, false, trusted);
}

/*
 * tcp_in_quickack_mode() said no; why? By the socket's mode then, since the timer's handler leaves
 * the interactive one, and by the limits now.
 */
static __always_inline enum nt_ack_why pending_ack_why(const struct pending_ack *p,
						       const struct tcp *t)
{
	if (tcp_delack_limit_ns(t) < DELACK_MIN_NS)
		return NT_WHY_DELACK_MAX;
	if (p->pingpong < pingpong_thresh(t))
		return NT_WHY_QUICK_EXHAUSTED;
	/* no answer was ever sent, so it was TCP_QUICKACK 0 that entered the mode;
	 * __tcp_sock_set_quickack() */
	return p->at.data_segs_out ? NT_WHY_PINGPONG : NT_WHY_QUICKACK_OFF;
}

/*
 * Remembers an ACK that went out late and alone, for the sender whose hold it may release. A global
 * function, for the verifier's sake (see hold_judge).
 */
__noinline int late_ack_remember(u32 level, u32 end, u64 now)
{
	struct pending_ack *p = scratch_get(level);
	struct late_ack *la;
	struct tcp t;
	u32 *tgid;
	u64 sk;

	if (!p)
		return 0;
	sk = p->sk;
	t = tcp_of((void *)sk, false);
	la = late_ack_new(&t);
	if (!la)
		return 0;
	read_end(&la->end, &t);
	la->end.pingpong = p->pingpong >= pingpong_thresh(&t);
	la->end.locked = p->locked;
	tgid = bpf_map_lookup_elem(&owned, &sk);
	if (tgid) {
		la->end.tgid = *tgid;
		la->end.target = true; /* only processes asked for are in there */
	}
	la->part.begin_ns = p->begin_ns;
	la->part.bytes = PROBED(t.tp, rcv_nxt) - p->at.rcv_wup;
	la->part.end = end;
	la->part.why = pending_ack_why(p, &t);
	la->part.end_ns = now;
	if (end == NT_ACK_TIMER)
		buckets[bucket_index(t.sk, false)].late_jiffies = (u32)bpf_jiffies64();
	la->lone = !ack_begins_unseen && PROBED(t.tp, data_segs_in) == p->at.data_segs_in;
	return 0;
}

/* The ACK goes out late and alone. */
static __always_inline void pending_ack_remember(const struct pending_ack *p, enum nt_ack_end end,
						 u64 now)
{
	u32 level;
	struct pending_ack *ended = scratch_take(&level);

	if (!ended) {
		count_lost(NT_LOST_ACK_MAP);
		return;
	}
	*ended = *p;
	late_ack_remember(level, end, now);
	scratch_give(level);
}

/* The socket goes: its last ACK went out unseen, or never will. */
static __always_inline void pending_ack_closed(struct pending_ack *p, const struct tcp *t)
{
	bool owed = PROBED(t->tp, inet_conn.icsk_ack.pending) & ICSK_ACK_SCHED;

	if (!owed || p->at.rcv_wup != PROBED(t->tp, rcv_wup)) {
		pending_ack_gone(p, t, false);
		return;
	}
	count_ack_end(t->sk, NT_ACK_RESET);
	pending_ack_delete(p, t->sk);
}

/*
 * The timer's handler is about to send the ACK. Told at once and not when the ACK leaves: a program
 * that another one interrupts on its CPU is skipped, and the one that sees ACKs leave runs with
 * every segment. That one deletes the entry, so that nothing is counted twice.
 */
static __always_inline void pending_ack_timer_sends(const struct tcp *t, const bool trusted)
{
	struct pending_ack *p = pending_ack_owed(t, true, trusted);

	if (!p || p->sent)
		return;
	p->sent = true;
	p->locked = SK(t, sk_lock.owned);
	count_ack_end(t->sk, NT_ACK_TIMER);
	if (!p->expired)
		pending_ack_remember(p, NT_ACK_TIMER, bpf_ktime_get_ns());
}

static __always_inline bool pending_ack_due(const struct tcp *t, const bool trusted)
{
	const u8 due = ICSK_ACK_SCHED | ICSK_ACK_TIMER;

	return (ICSK(t, icsk_ack.pending) & due) == due;
}

/*
 * The delayed-ACK timer expires, seen from the timer's tracepoint before its handler runs; mirrors
 * tcp_delack_timer_handler(). It also expires for an ACK that went out long ago. That it may be
 * armed again for the same jiffy, which timer_start does not tell, pending_ack_owed() finds.
 */
static __always_inline void pending_ack_timer_expires(const struct tcp *t)
{
	struct pending_ack *p;

	if (pending_ack_due(t, false))
		pending_ack_timer_sends(t, false);
	p = pending_ack_find(t->sk);
	if (p)
		pending_ack_gone(p, t, false);
}

/*
 * The same where a kprobe is to show the handler, which is skipped when it interrupts another
 * program: remembers the ACK, which another segment may still forestall, and counts nothing. The
 * handler of a socket in use is called by tcp_release_cb(), which interrupts nobody.
 */
static __always_inline void pending_ack_timer_alerts(const struct tcp *t)
{
	struct pending_ack *p;

	if (PROBED(t->sk, sk_lock.owned) || !pending_ack_due(t, false))
		return;
	p = pending_ack_owed(t, true, false);
	if (!p || p->sent)
		return;
	p->expired = true;
	pending_ack_remember(p, NT_ACK_TIMER, bpf_ktime_get_ns());
}

/*
 * tcp_delack_timer_handler() is entered; also by tcp_release_cb(), when the application held the
 * socket as the timer fired, and for ACKs that went out long ago. True: it sends the ACK.
 */
static __always_inline bool pending_ack_timer_handler(const struct tcp *t, const bool trusted)
{
	if (!pending_ack_due(t, trusted))
		return false;
	/* put off until the application let go of the socket, it may meet the next ACK's time */
	if ((long)(ICSK(t, icsk_delack_timer.expires) - bpf_jiffies64()) > 0)
		return false;
	pending_ack_timer_sends(t, trusted);
	return true;
}

/* An ACK (len bytes of data with it) is about to go out: __tcp_transmit_skb() with the current
 * rcv_nxt. */
static __always_inline void pending_ack_transmit(const struct tcp *t, u32 len, const bool trusted)
{
	u8 pending = ICSK(t, icsk_ack.pending);
	struct pending_ack *p;
	enum nt_ack_end end;

	if (!(pending & ICSK_ACK_SCHED))
		return;
	p = pending_ack_find(t->sk);
	if (!p)
		return;
	if (p->at.rcv_wup != TCP(t, rcv_wup)) {
		/* that one is gone unseen, and this one was not seen to be put off */
		pending_ack_gone(p, t, trusted);
		return;
	}
	if (len)
		end = NT_ACK_PIGGYBACK;
	else if (!(pending & ICSK_ACK_TIMER))
		end = NT_ACK_TIMER;
	else if (TCP(t, copied_seq) == TCP(t, rcv_nxt))
		end = NT_ACK_READ;
	else
		end = NT_ACK_SEGMENT;
	if (!p->sent) {
		u64 now = bpf_ktime_get_ns();

		count_ack_end(t->sk, end);
		if (end == NT_ACK_TIMER ||
		    (end != NT_ACK_PIGGYBACK && now >= p->begin_ns + LATE_ACK_NS))
			pending_ack_remember(p, end, now);
	}
	pending_ack_delete(p, t->sk);
}

/* TSval of what we sent at a time, before the connection's own offset: tcp_skb_timestamp_ts(). */
static __always_inline u32 timestamp_at(const struct tcp *t, u64 ns, u32 *tick)
{
	struct tcp_sock___usec *tp = (void *)t->tp;
	bool usec = bpf_core_field_exists(tp->tcp_usec_ts) &&
		    BPF_CORE_READ_BITFIELD_PROBED(tp, tcp_usec_ts);

	*tick = usec ? 1000 : 1; /* a millisecond: how exact the time of sending is known */
	return usec ? ns / 1000 : ns / 1000000;
}

/*
 * Had the peer got our ACK, which left at ack_ns, when it sent this segment? Its timestamp echo
 * (RFC 7323) tells how new the newest was that it had of us.
 */
static __always_inline bool sent_after_ack(const struct tcp *t, const struct sk_buff *skb,
					   u64 ack_ns, u64 since_ns, u64 rtt_ns)
{
	const u32 header = 20;
	struct {
		u8 nop[2], kind, size;
		__be32 value, echo;
	} ts; /* as tcp_parse_aligned_timestamp() expects it */
	u32 echo, tick, sent;

	if (!PROBED_BITS(&t->tp->rx_opt, tstamp_ok))
		return since_ns + rtt_ns / 8 >= rtt_ns;
	if (bpf_probe_read_kernel(&ts, sizeof(ts), BPF_CORE_READ(skb, data) + header) ||
	    ts.kind != 8 || ts.size != 10)
		return false;
	echo = bpf_ntohl(ts.echo) - PROBED(t->tp, tsoffset);
	sent = timestamp_at(t, ack_ns, &tick);
	return !nt_after(sent - tick, echo);
}

/*
 * The largest segment that the peer is likely to send: what we announced, less the timestamp
 * option, or what the way lets us send if that is less.
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
 * The latest that an answer to our ACK comes. Round trips vary: the smoothed one tells by how much,
 * as far as it is no more than twice the smallest, since delayed ACKs smear it.
 */
static __always_inline u64 latest_answer_ns(const struct tcp *t, u64 rtt_ns)
{
	u64 smooth_ns = PROBED(t->tp, srtt_us) / 8 * 1000ULL;
	u64 most_ns = rtt_ns + rtt_ns / 2;

	if (smooth_ns > most_ns)
		most_ns = smooth_ns < 2 * rtt_ns ? smooth_ns : 2 * rtt_ns;
	return most_ns + nt_config.tick_ns;
}

/*
 * Data has come to a receiver whose timer sent the last ACK. Did that ACK let it go? Then one small
 * segment had come before and nothing since, for Nagle lets only one out, and this one comes one
 * round trip after the ACK. Only in interactive mode: else the application's read would have sent
 * the ACK.
 */
static __always_inline void pending_ack_data_came(const struct tcp *t, const struct sk_buff *skb,
						  u32 seq, u32 len, u64 now)
{
	struct late_ack *la = late_ack_find(seq, PROBED(t->tp, snd_nxt));
	u64 rtt_ns, since_ns;
	u32 mss;

	if (!la || la->consumed || la->part.end != NT_ACK_TIMER || la->end.sk != (u64)t->sk)
		return;
	la->consumed = true;
	mss = peer_mss(t);
	rtt_ns = la->end.min_rtt_us * 1000ULL;
	since_ns = duration_ns(la->part.end_ns, now);
	if (!la->end.pingpong || !la->lone || !rtt_ns || len >= mss || la->part.bytes >= mss)
		return;
	if (since_ns > latest_answer_ns(t, rtt_ns) ||
	    !sent_after_ack(t, skb, la->part.end_ns, since_ns, rtt_ns))
		return;
	if (duration_ns(la->part.begin_ns, la->part.end_ns) >= nt_config.min_ns)
		report_peer_holds(la, now);
}

#endif /* NT_PENDING_ACK_H */
