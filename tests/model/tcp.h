/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A model of TCP's two ends, as far as held segments and pending ACKs depend on it, written from
 * net/ipv4/tcp.c, tcp_output.c, tcp_input.c and tcp_timer.c; a function here has the name of the
 * kernel's that it follows. It keeps the kernel's own fields (struct tcp_sock of bpf/vmlinux_min.h),
 * calls the hooks where the kernel has them (hooks.h), and tells truth.h what it did: why a loop
 * of tcp_write_xmit() ended, who called it, and how each ACK came to be sent.
 *
 * What it leaves out: congestion control beyond slow start, SACK, window scaling, urgent data,
 * MTU probing, the handshake, TIME_WAIT.
 */
#pragma once

#include "hooks.h"
#include "world.h"

#define TCP_DELACK_MIN_NS 40000000ULL
#define TCP_DELACK_MAX_NS 200000000ULL
#define TCP_RTO_MIN_NS    200000000ULL
#define TCP_ATO_MIN_NS    40000000ULL
#define TCP_MAX_QUICKACKS 16
#define TRUESIZE_OVER     768 /* what an skb takes besides its data, about */

#define TCP_ESTABLISHED   1
#define TCP_FIN_WAIT2     5
#define TCP_CLOSE         7
#define TCP_CLOSE_WAIT    8

#define ACK_NOW           16 /* ICSK_ACK_NOW */

#define TIME_RETRANS      1 /* ICSK_TIME_RETRANS */
#define CA_OPEN           0
#define CA_LOSS           4

/* The caller of tcp_write_xmit(); truth.h derives a hold's release from it. */
enum caller {
	CALLER_PUSH,    /* the end of a write: tcp_push() */
	CALLER_FORCED,  /* within a write, TCP_NAGLE_PUSH */
	CALLER_ONE,     /* within a write: tcp_push_one() */
	CALLER_ACK,     /* tcp_data_snd_check() */
	CALLER_NODELAY, /* setsockopt() */
	CALLER_UNCORK,
	CALLER_CLOSE,
	CALLER_DEVICE, /* the small queue's tasklet, the pacing timer */
	CALLER_PROBE,  /* tcp_send_loss_probe() */
	CALLER_WAKEUP, /* tcp_write_wakeup(), which sends by itself */
};

/* truth.h defines these; tcp.h reports to it. */
static void truth_attempt(struct endpoint *e, enum caller caller, enum nt_hold_reason why);
static void truth_attempt_seen(struct endpoint *e, enum nt_hold_reason why);
static void truth_wrote(struct endpoint *e, u32 copied);
static void truth_autocorked(struct endpoint *e, bool more);
static void truth_closed(struct endpoint *e);
static void truth_ack_pending(struct endpoint *e);
static void truth_timer_sends(struct endpoint *e);
static void truth_timer_deferred(struct endpoint *e);
static void truth_transmits(struct endpoint *e, struct wire *w);
static void truth_pacing_over(struct endpoint *e, const struct wire *w);
static void truth_segment_came(struct endpoint *e, const struct wire *w);
static void truth_segment_done(struct endpoint *e);

/* tcp_rcv_established() and tcp_validate_incoming() do one of these with a segment. */
enum fate {
	SEGMENT_TAKEN,
	SEGMENT_DROPPED,
	SEGMENT_ANSWERED, /* dropped, and answered with an ACK */
	SEGMENT_RESETS,
};

static enum fate tcp_validate(const struct endpoint *e, const struct wire *w);

static bool ack_pingpong(const struct endpoint *e)
{
	return e->tp.inet_conn.icsk_ack.pingpong >= 1;
}

static u32 tcp_wnd_end(const struct endpoint *e)
{
	return e->tp.snd_una + e->tp.snd_wnd;
}

static u64 min_u64(u64 a, u64 b)
{
	return a < b ? a : b;
}

static u64 max_u64(u64 a, u64 b)
{
	return a > b ? a : b;
}

static u64 to_jiffies(u64 ns)
{
	return (ns + world.tick_ns - 1) / world.tick_ns;
}

static void tcp_mstamp_refresh(struct endpoint *e)
{
	e->tp.tcp_clock_cache = world.now_ns;
}

/* ---- queues of segments ---- */

static struct tcp_skb_cb *cb_of(struct packet *p)
{
	return (struct tcp_skb_cb *)p->skb.cb;
}

static struct sk_buff *queue_end(struct endpoint *e)
{
	return (struct sk_buff *)&sock_of(e)->sk_write_queue;
}

static struct packet *tcp_send_head(struct endpoint *e)
{
	struct sk_buff *head = sock_of(e)->sk_write_queue.next;

	return head == queue_end(e) ? NULL : (struct packet *)head;
}

static void queue_init(struct endpoint *e)
{
	sock_of(e)->sk_write_queue.next = queue_end(e);
	sock_of(e)->sk_write_queue.qlen = 0;
	e->queue_tail = NULL;
}

static void queue_put_behind(struct endpoint *e, struct packet *before, struct packet *p)
{
	struct sk_buff **link = before ? &before->skb.next : &sock_of(e)->sk_write_queue.next;

	p->skb.next = *link;
	*link = &p->skb;
	if (p->skb.next == queue_end(e))
		e->queue_tail = p;
	sock_of(e)->sk_write_queue.qlen++;
}

static void queue_take_head(struct endpoint *e, struct packet *head)
{
	sock_of(e)->sk_write_queue.next = head->skb.next;
	sock_of(e)->sk_write_queue.qlen--;
	if (e->queue_tail == head)
		e->queue_tail = NULL;
}

static struct packet *packet_new(struct endpoint *e, u32 seq, u32 len, u8 flags)
{
	struct packet *p = calloc(1, sizeof(*p));

	p->skb.len = len;
	p->skb.sk = sock_of(e);
	p->skb.data = p->header;
	cb_of(p)->seq = seq;
	cb_of(p)->end_seq = seq + len + !!(flags & TCPHDR_FIN);
	cb_of(p)->tcp_flags = flags;
	return p;
}

static u32 pcount(const struct packet *p, u32 mss)
{
	return p->skb.len > mss ? (p->skb.len + mss - 1) / mss : 1;
}

/* Models tso_fragment(): the data beyond len becomes a segment of its own. */
static void tcp_fragment(struct endpoint *e, struct packet *p, u32 len)
{
	struct packet *rest = packet_new(e, cb_of(p)->seq + len, p->skb.len - len,
					 cb_of(p)->tcp_flags);

	cb_of(p)->tcp_flags &= ~TCPHDR_FIN;
	cb_of(p)->end_seq = cb_of(p)->seq + len;
	p->skb.len = len;
	queue_put_behind(e, p, rest);
}

/* ---- timers: an skb's worth of struct timer_list, as on_timer_expire_entry() finds it ---- */

static void timer_modify(struct endpoint *e, struct model_timer *timer, u64 expires)
{
	if (timer->armed && timer->list->expires == expires)
		return; /* mod_timer() has no tracepoint then */
	timer->armed = true;
	timer->list->expires = expires;
	timer->generation++;
	world_at(max_u64(expires * world.tick_ns, world.now_ns), EVENT_TIMER, e, timer,
		 timer->generation);
}

static void xmit_timer(struct endpoint *e, u8 pending, u64 after_ns)
{
	e->tp.inet_conn.icsk_pending = pending;
	e->write_timeout = world_jiffies() + max_u64(to_jiffies(after_ns), 1);
	timer_modify(e, &e->write_timer, e->write_timeout);
	/* the timer has expired on another CPU and waits for the socket's lock */
	if (world.timeout_field && one_in(10))
		world_at(world.now_ns, EVENT_TIMER, e, &e->write_timer, e->write_timer.generation);
}

static void xmit_timer_clear(struct endpoint *e)
{
	e->tp.inet_conn.icsk_pending = 0; /* the timer stays armed: tcp_write_timer() checks */
}

/* Returns the longest delay of an ACK that this socket allows. */
static u64 ack_limit_ns(const struct endpoint *e)
{
	return e->tp.inet_conn.icsk_delack_max * world.tick_ns;
}

static u64 rto_ns(const struct endpoint *e)
{
	u64 rto = e->tp.srtt_us ? (e->tp.srtt_us / 8 + 4 * e->mdev_us) * 1000ULL : 1000000000ULL;

	return min_u64(max_u64(rto, TCP_RTO_MIN_NS) << e->backoff, 4000000000ULL);
}

static void tcp_rearm_rto(struct endpoint *e)
{
	if (e->tp.packets_out)
		xmit_timer(e, TIME_RETRANS, rto_ns(e));
	else
		xmit_timer_clear(e);
}

static bool tcp_schedule_loss_probe(struct endpoint *e)
{
	u64 after = 2 * (e->tp.srtt_us / 8) * 1000ULL;

	if (!e->tp.packets_out || e->tp.inet_conn.icsk_ca_state != CA_OPEN || !e->tp.srtt_us ||
	    e->probe_sent)
		return false;
	after += e->tp.packets_out == 1 ? TCP_RTO_MIN_NS : 2 * world.tick_ns;
	xmit_timer(e, ICSK_TIME_LOSS_PROBE, min_u64(after, rto_ns(e)));
	return true;
}

static void tcp_check_probe_timer(struct endpoint *e)
{
	if (!e->tp.packets_out && !e->tp.inet_conn.icsk_pending)
		xmit_timer(e, ICSK_TIME_PROBE0, max_u64(rto_ns(e), TCP_RTO_MIN_NS));
}

/* ---- sending ---- */

/* Models __tcp_select_window(): without scaling, and the window never shrinks. */
static u32 tcp_select_window(struct endpoint *e)
{
	u32 unread = e->tp.rcv_nxt - e->tp.copied_seq;
	u32 room = e->rcvbuf > unread ? e->rcvbuf - unread : 0;
	u32 now = e->tp.rcv_wup + e->tp.rcv_wnd - e->tp.rcv_nxt;

	if ((s32)now < 0)
		now = 0;
	if (room < e->tp.inet_conn.icsk_ack.rcv_mss && room < e->rcvbuf / 2)
		room = 0;
	room = room >> WINDOW_SCALE << WINDOW_SCALE; /* round to what the header can express */
	return room < now ? now : room;
}

/* Models inet_csk_clear_xmit_timer(ICSK_TIME_DACK): the timer stays armed, and finds nothing
 * pending. */
static void tcp_event_ack_sent(struct endpoint *e)
{
	struct inet_connection_sock *icsk = &e->tp.inet_conn;

	if (icsk->icsk_ack.quick)
		icsk->icsk_ack.quick--;
	icsk->icsk_ack.pending = 0;
}

/* Models tcp_skb_timestamp_ts(): the timestamp of a segment that is sent now. */
static u32 tcp_stamp(const struct endpoint *e)
{
	return (u32)(world.now_ns / (e->usec_stamps ? US : MS)) + e->tp.tsoffset;
}

/* Models tcp_transmit_skb(), for data or for a lone ACK (p NULL). seq: a probe sends the byte
 * before the first unacknowledged one. */
static void tcp_transmit_skb(struct endpoint *e, struct packet *p, u32 seq, bool again)
{
	struct wire *w = calloc(1, sizeof(*w));
	struct packet lone = {.skb = {.data = lone.header}};
	bool data = p && p->skb.len;

	if (!p) {
		p = &lone;
		cb_of(p)->seq = cb_of(p)->end_seq = seq;
	}
	cb_of(p)->tcp_flags |= TCPHDR_ACK;
	w->seq = cb_of(p)->seq;
	w->end_seq = cb_of(p)->end_seq;
	w->len = p->skb.len;
	w->flags = cb_of(p)->tcp_flags;
	w->ack = e->tp.rcv_nxt;
	w->mss = e->tp.mss_cache;
	w->again = again;
	truth_transmits(e, w);
	e->tp.rcv_wnd = tcp_select_window(e);
	e->tp.rcv_wup = e->tp.rcv_nxt;
	w->window = e->tp.rcv_wnd;
	w->ts_value = tcp_stamp(e);
	w->ts_echo = e->ts_recent;
	tcp_event_ack_sent(e);
	if (data)
		e->tp.lsndtime = world_jiffies();
	if (data)
		e->tp.data_segs_out += pcount(p, e->tp.mss_cache);
	if (data && !again) {
		/* tcp_event_data_sent() */
		if (world.now_ns - e->received_ns < e->ato_ns)
			e->tp.inet_conn.icsk_ack.pingpong |= 1;
	}
	world_transmit(e, w, p == &lone ? 0 : p->skb.len + TRUESIZE_OVER);
}

static void tcp_send_ack(struct endpoint *e)
{
	hook_send_ack(e);
	tcp_transmit_skb(e, NULL, e->tp.snd_nxt, false);
}

static void tcp_event_new_data_sent(struct endpoint *e, struct packet *p)
{
	bool first = !e->tp.packets_out;

	queue_take_head(e, p);
	p->skb.next = NULL;
	p->sent_ns = world.now_ns;
	if (e->unacked_tail)
		e->unacked_tail->skb.next = &p->skb;
	else
		e->unacked = p;
	e->unacked_tail = p;
	e->tp.snd_nxt = cb_of(p)->end_seq;
	e->tp.packets_out += pcount(p, e->tp.mss_cache);
	if (first || e->tp.inet_conn.icsk_pending == ICSK_TIME_LOSS_PROBE)
		tcp_rearm_rto(e);
}

/* tcp_nagle_check() and tcp_minshall_check(), written from their comment (RFC 896, Minshall). */
static bool small_one_is_out(const struct endpoint *e)
{
	s32 beyond_una = e->tp.snd_sml - e->tp.snd_una, beyond_nxt = e->tp.snd_sml - e->tp.snd_nxt;

	return e->tp.packets_out && beyond_una > 0 && beyond_nxt <= 0;
}

static bool tcp_nagle_check(const struct endpoint *e, bool partial, int nonagle)
{
	return partial && ((nonagle & NT_NAGLE_CORK) || (!nonagle && small_one_is_out(e)));
}

static bool tcp_small_queue_check(struct endpoint *e, const struct packet *p)
{
	u32 limit = max_u64(2 * (p->skb.len + TRUESIZE_OVER), e->small_queue);

	if (e->in_device <= limit)
		return false;
	sock_of(e)->sk_tsq_flags |= NT_TSQ_THROTTLED;
	return true;
}

/* tcp_mss_split_point() */
static u32 split_point(struct endpoint *e, struct packet *p, u32 mss, u32 segments, int nonagle)
{
	u32 window = tcp_wnd_end(e) - cb_of(p)->seq, most = mss * segments, needed;

	if (most <= window && p != e->queue_tail)
		return most;
	needed = min_u64(p->skb.len, window);
	if (most <= needed)
		return most;
	if (tcp_nagle_check(e, needed % mss, nonagle))
		return needed - needed % mss;
	return needed;
}

/* Models tcp_tso_should_defer(): it defers if more will come before the window has room for
 * it all. */
static bool tso_defer(struct endpoint *e, struct packet *p, u32 room)
{
	u32 limit = min_u64((u64)room * e->tp.mss_cache, tcp_wnd_end(e) - cb_of(p)->seq);

	if (!e->defers || limit >= 44 * e->tp.mss_cache ||
	    (p != e->queue_tail && limit >= p->skb.len))
		return false;
	return e->tp.packets_out && limit < p->skb.len && p->skb.len < 4 * e->tp.mss_cache;
}

static void pacing_update(struct endpoint *e, u32 len)
{
	u64 from = max_u64(e->tp.tcp_wstamp_ns, e->tp.tcp_clock_cache);

	e->tp.tcp_wstamp_ns = from;
	if (e->pacing_rate)
		e->tp.tcp_wstamp_ns += len * 1000000000ULL / e->pacing_rate;
}

static bool tcp_pacing_check(struct endpoint *e)
{
	if (!e->pacing_rate || e->tp.tcp_wstamp_ns <= e->tp.tcp_clock_cache)
		return false;
	if (!e->pacing_armed) {
		e->pacing_armed = true;
		world_at(e->tp.tcp_wstamp_ns, EVENT_PACING, e, NULL, 0);
	}
	return true;
}

static u32 tcp_packets_in_flight(const struct endpoint *e)
{
	return e->tp.packets_out - e->tp.lost_out + e->tp.retrans_out;
}

/* Returns why the loop of tcp_write_xmit() ends at this segment, or 0: the segment goes out. */
static enum nt_hold_reason send_test(struct endpoint *e, struct packet *p, u32 mss, int nonagle,
				     int push_one, u32 *quota)
{
	struct tcp_sock *tp = &e->tp;
	u32 end = cb_of(p)->end_seq;

	if (tcp_pacing_check(e))
		return NT_HOLD_PACING;
	*quota = tcp_packets_in_flight(e) < tp->snd_cwnd ? tp->snd_cwnd - tcp_packets_in_flight(e) : 0;
	if (!*quota && push_one != 2)
		return NT_HOLD_CWND;
	if (!*quota)
		*quota = 1;
	if (p->skb.len > mss)
		end = cb_of(p)->seq + mss;
	if ((s32)(end - tcp_wnd_end(e)) > 0)
		return NT_HOLD_RWND;
	if (p->skb.len <= mss) {
		int asked = p == e->queue_tail ? nonagle : NT_NAGLE_PUSH;

		if (!(asked & NT_NAGLE_PUSH) && !(cb_of(p)->tcp_flags & TCPHDR_FIN) &&
		    tcp_nagle_check(e, p->skb.len < mss, asked))
			return !(asked & NT_NAGLE_CORK)       ? NT_HOLD_NAGLE
			       : tp->nonagle & NT_NAGLE_CORK ? NT_HOLD_CORK
							      : NT_HOLD_MSG_MORE;
	} else if (!push_one && tso_defer(e, p, *quota)) {
		return NT_HOLD_TSO_DEFER;
	}
	return 0;
}

static bool tcp_write_xmit(struct endpoint *e, int nonagle, int push_one, enum caller caller)
{
	struct tcp_sock *tp = &e->tp;
	u32 mss = tp->mss_cache, quota, sent = 0;
	enum nt_hold_reason why = NT_HOLD_INVALID;
	struct packet *p;

	hook_write_xmit_entry(e, mss, nonagle, push_one);
	tcp_mstamp_refresh(e);
	while ((p = tcp_send_head(e))) {
		why = send_test(e, p, mss, nonagle, push_one, &quota);
		if (why)
			break;
		if (p->skb.len > mss) {
			u32 limit = split_point(e, p, mss, quota, nonagle);

			if (p->skb.len > limit)
				tcp_fragment(e, p, limit);
		}
		if (tcp_small_queue_check(e, p)) {
			why = NT_HOLD_TSQ;
			break;
		}
		tcp_transmit_skb(e, p, 0, false);
		pacing_update(e, p->skb.len);
		if (p->skb.len < pcount(p, mss) * mss)
			tp->snd_sml = cb_of(p)->end_seq; /* tcp_minshall_update() */
		tcp_event_new_data_sent(e, p);
		sent++;
		if (push_one)
			break;
	}
	if (sent && push_one != 2)
		tcp_schedule_loss_probe(e);
	truth_attempt(e, caller, why);
	hook_write_xmit_exit(e, mss, nonagle, push_one);
	truth_attempt_seen(e, why);
	return !sent && !tp->packets_out && tcp_send_head(e);
}

static void __tcp_push_pending_frames(struct endpoint *e, int nonagle, enum caller caller)
{
	if (sock_of(e)->__sk_common.skc_state == TCP_CLOSE)
		return;
	if (tcp_write_xmit(e, nonagle, 0, caller))
		tcp_check_probe_timer(e);
}

static void tcp_push_pending_frames(struct endpoint *e, enum caller caller)
{
	if (tcp_send_head(e))
		__tcp_push_pending_frames(e, e->tp.nonagle, caller);
}

static bool forced_push(const struct endpoint *e)
{
	return (s32)(e->tp.write_seq - (e->tp.pushed_seq + e->max_window / 2)) > 0;
}

static bool tcp_should_autocork(struct endpoint *e, const struct packet *p)
{
	return p->skb.len < e->tp.mss_cache * 16 && e->unacked &&
	       e->in_device > p->skb.len + TRUESIZE_OVER;
}

static void tcp_push(struct endpoint *e, bool more)
{
	if (!e->queue_tail)
		return;
	if (!more || forced_push(e))
		e->tp.pushed_seq = e->tp.write_seq;
	if (tcp_should_autocork(e, e->queue_tail)) {
		sock_of(e)->sk_tsq_flags |= NT_TSQ_THROTTLED;
		truth_autocorked(e, more);
		return;
	}
	__tcp_push_pending_frames(e, more ? NT_NAGLE_CORK : e->tp.nonagle, CALLER_PUSH);
}

/* Models tcp_sendmsg_locked(). Returns how much it took: less than len if the send buffer is
 * full. */
static u32 tcp_sendmsg_locked(struct endpoint *e, u32 len, bool more)
{
	u32 goal = e->tp.mss_cache * e->goal_segments, copied = 0;

	hook_sendmsg_entry(e);
	while (copied < len && e->tp.write_seq - e->tp.snd_una < e->sndbuf) {
		struct packet *p = e->queue_tail;
		u32 take;

		if (!p || p->skb.len >= goal || cb_of(p)->tcp_flags & TCPHDR_FIN) {
			p = packet_new(e, e->tp.write_seq, 0, 0);
			queue_put_behind(e, e->queue_tail, p);
			e->tp.nonagle &= ~NT_NAGLE_PUSH; /* tcp_skb_entail() */
		}
		take = min_u64(len - copied, goal - p->skb.len);
		p->skb.len += take;
		cb_of(p)->end_seq += take;
		e->tp.write_seq += take;
		copied += take;
		if (p->skb.len < goal || copied == len)
			continue;
		if (forced_push(e)) {
			e->tp.pushed_seq = e->tp.write_seq;
			__tcp_push_pending_frames(e, NT_NAGLE_PUSH, CALLER_FORCED);
		} else if (p == tcp_send_head(e)) {
			tcp_write_xmit(e, NT_NAGLE_PUSH, 1, CALLER_ONE);
		}
	}
	if (copied)
		tcp_push(e, more);
	if (copied)
		truth_wrote(e, copied);
	hook_sendmsg_exit(e, copied);
	return copied;
}

/* ---- receiving ---- */

static void tcp_send_delayed_ack(struct endpoint *e)
{
	struct inet_connection_sock *icsk = &e->tp.inet_conn;
	u64 ato = e->ato_ns, timeout, jiffies = world_jiffies();

	truth_ack_pending(e);
	if (ato > TCP_DELACK_MIN_NS) {
		u64 most = 500000000ULL;

		if (ack_pingpong(e) || icsk->icsk_ack.pending & ICSK_ACK_PUSHED)
			most = TCP_DELACK_MAX_NS;
		if (e->tp.srtt_us)
			most = min_u64(most, max_u64(e->tp.srtt_us / 8 * 1000ULL,
						     TCP_DELACK_MIN_NS));
		ato = min_u64(ato, most);
	}
	ato = min_u64(to_jiffies(ato), icsk->icsk_delack_max);
	timeout = jiffies + ato;
	if (icsk->icsk_ack.pending & ICSK_ACK_TIMER) {
		if (e->ack_timeout <= jiffies + ato / 4) {
			/* some compilers put tcp_send_ack() in here */
			if (!hooks.skip || one_in(2))
				hook_send_ack(e);
			tcp_transmit_skb(e, NULL, e->tp.snd_nxt, false);
			return;
		}
		timeout = min_u64(timeout, e->ack_timeout);
	}
	icsk->icsk_ack.pending |= ICSK_ACK_SCHED | ICSK_ACK_TIMER;
	e->ack_timeout = timeout;
	timer_modify(e, &e->ack_timer, timeout);
}

static void tcp_ack_snd_check(struct endpoint *e)
{
	struct inet_connection_sock *icsk = &e->tp.inet_conn;
	bool many = e->tp.rcv_nxt - e->tp.rcv_wup > e->tp.inet_conn.icsk_ack.rcv_mss &&
		    (e->tp.rcv_nxt == e->tp.copied_seq || tcp_select_window(e) >= e->tp.rcv_wnd);

	if (!(icsk->icsk_ack.pending & ICSK_ACK_SCHED))
		return;
	if (many || (icsk->icsk_ack.quick && !ack_pingpong(e)) || e->quick_route ||
	    icsk->icsk_ack.pending & ACK_NOW || e->out_of_order)
		tcp_send_ack(e);
	else
		tcp_send_delayed_ack(e);
}

static void tcp_incr_quickack(struct endpoint *e)
{
	u32 credit = e->tp.rcv_wnd / (2 * e->tp.inet_conn.icsk_ack.rcv_mss);

	credit = max_u64(min_u64(credit, TCP_MAX_QUICKACKS), 2);
	if (credit > e->tp.inet_conn.icsk_ack.quick)
		e->tp.inet_conn.icsk_ack.quick = credit;
}

static void tcp_event_data_recv(struct endpoint *e, u32 len)
{
	struct inet_connection_sock *icsk = &e->tp.inet_conn;
	u64 since = world.now_ns - e->received_ns;

	icsk->icsk_ack.pending |= ICSK_ACK_SCHED;
	if (len >= e->tp.inet_conn.icsk_ack.rcv_mss) { /* tcp_measure_rcv_mss() */
		e->tp.inet_conn.icsk_ack.rcv_mss = min_u64(len, e->tp.advmss);
	} else {
		if (icsk->icsk_ack.pending & ICSK_ACK_PUSHED)
			icsk->icsk_ack.pending |= ICSK_ACK_PUSHED2;
		icsk->icsk_ack.pending |= ICSK_ACK_PUSHED;
	}
	if (!e->ato_ns) {
		tcp_incr_quickack(e);
		e->ato_ns = TCP_ATO_MIN_NS;
	} else if (since <= TCP_ATO_MIN_NS / 2) {
		e->ato_ns = e->ato_ns / 2 + TCP_ATO_MIN_NS / 2;
	} else if (since < e->ato_ns) {
		e->ato_ns = min_u64(e->ato_ns / 2 + since, rto_ns(e));
	} else if (since > rto_ns(e)) {
		tcp_incr_quickack(e);
	}
	e->received_ns = world.now_ns;
	icsk->icsk_ack.lrcvtime = world_jiffies();
}

/* Takes data in order, and the data that waited behind it. */
static void tcp_data_queue(struct endpoint *e, const struct wire *w)
{
	u32 end = w->end_seq, len = end - e->tp.rcv_nxt;

	if ((s32)len <= 0 || (s32)(w->seq - e->tp.rcv_nxt) > 0) {
		if ((s32)len > 0 && e->n_waiting < WAITING)
			e->waiting[e->n_waiting++] = (struct span){w->seq, end};
		e->out_of_order = e->n_waiting;
		e->tp.inet_conn.icsk_ack.pending |= ICSK_ACK_SCHED | ACK_NOW;
		return;
	}
	e->tp.rcv_nxt = end;
	for (u32 i = 0; i < e->n_waiting; i++) {
		if ((s32)(e->waiting[i].seq - e->tp.rcv_nxt) > 0)
			continue;
		if ((s32)(e->waiting[i].end_seq - e->tp.rcv_nxt) > 0)
			e->tp.rcv_nxt = e->waiting[i].end_seq;
		e->waiting[i] = e->waiting[--e->n_waiting];
		i = -1; /* look at all spans again */
		e->tp.inet_conn.icsk_ack.pending |= ACK_NOW;
	}
	e->out_of_order = e->n_waiting;
	tcp_event_data_recv(e, w->len < e->tp.advmss ? w->len : e->tp.advmss);
	if (w->flags & TCPHDR_FIN) {
		e->fin_received = true;
		e->tp.inet_conn.icsk_ack.pending |= ACK_NOW;
		if (sock_of(e)->__sk_common.skc_state == TCP_ESTABLISHED)
			sock_of(e)->__sk_common.skc_state = TCP_CLOSE_WAIT;
	}
	world_readable(e);
}

static void tcp_rtt_sample(struct endpoint *e, u64 sent_ns)
{
	u32 us = max_u64((world.now_ns - sent_ns) / 1000, 1), old = e->tp.srtt_us / 8;
	u32 off = us > old ? us - old : old - us;

	if (us < e->tp.rtt_min.s[0].v)
		e->tp.rtt_min.s[0].v = us;
	e->tp.srtt_us = e->tp.srtt_us ? e->tp.srtt_us + us - old : us * 8;
	e->mdev_us = e->tp.srtt_us == us * 8 ? us / 2 : (3 * e->mdev_us + off) / 4;
	e->tp.inet_conn.icsk_rto = rto_ns(e) / world.tick_ns;
}

static void tcp_clean_rtx_queue(struct endpoint *e, u32 ack)
{
	struct packet *p;
	u64 sent_ns = 0;

	while ((p = e->unacked) && (s32)(cb_of(p)->end_seq - ack) <= 0) {
		e->tp.packets_out -= pcount(p, e->tp.mss_cache);
		if (!p->again)
			sent_ns = p->sent_ns;
		e->unacked = (struct packet *)p->skb.next;
		if (!e->unacked)
			e->unacked_tail = NULL;
		e->tp.snd_cwnd = min_u64(e->tp.snd_cwnd + 1, e->most_cwnd);
		free(p);
	}
	if (sent_ns)
		tcp_rtt_sample(e, sent_ns);
	e->tp.lost_out = e->tp.retrans_out = 0;
	if (e->tp.inet_conn.icsk_ca_state != CA_OPEN && (s32)(ack - e->tp.high_seq) >= 0)
		e->tp.inet_conn.icsk_ca_state = CA_OPEN;
}

static void tcp_retransmit_head(struct endpoint *e)
{
	if (!e->unacked)
		return;
	e->unacked->again = true;
	e->tp.total_retrans++;
	e->again_ns = world.now_ns;
	e->tp.retrans_out = e->tp.lost_out = pcount(e->unacked, e->tp.mss_cache);
	tcp_transmit_skb(e, e->unacked, 0, true);
}

/* Returns false if the segment acknowledges data that was never sent. */
static bool tcp_ack(struct endpoint *e, const struct wire *w)
{
	bool moved = (s32)(w->ack - e->tp.snd_una) > 0;

	if ((s32)(w->ack - e->tp.snd_nxt) > 0)
		return false;
	if ((s32)(w->ack - e->tp.snd_una) < 0)
		return true;
	e->tp.rcv_tstamp = world_jiffies();
	if (moved || w->window > e->tp.snd_wnd || (s32)(w->seq - e->window_seq) > 0) {
		e->tp.snd_wnd = w->window;
		e->window_seq = w->seq;
		e->max_window = max_u64(e->max_window, w->window);
	}
	e->duplicates = moved || w->len || !e->unacked ? 0 : e->duplicates + 1;
	if (moved) {
		e->tp.snd_una = w->ack;
		e->backoff = 0;
		e->probe_sent = false;
		if ((s32)(w->ack - e->tp.tlp_high_seq) >= 0)
			e->tp.tlp_high_seq = 0;
		tcp_clean_rtx_queue(e, w->ack);
		e->tp.snd_up = w->ack;
		if (!tcp_schedule_loss_probe(e))
			tcp_rearm_rto(e);
	}
	if (e->duplicates == 3 && e->tp.inet_conn.icsk_ca_state == CA_OPEN) {
		e->tp.inet_conn.icsk_ca_state = 3; /* TCP_CA_Recovery */
		e->tp.high_seq = e->tp.snd_nxt;
		tcp_retransmit_head(e);
	}
	if (!e->tp.packets_out && tcp_send_head(e) && /* tcp_ack_probe() */
	    e->tp.inet_conn.icsk_pending == ICSK_TIME_PROBE0 &&
	    (s32)(cb_of(tcp_send_head(e))->end_seq - tcp_wnd_end(e)) <= 0)
		xmit_timer_clear(e);
	return true;
}

static void tcp_reset(struct endpoint *e)
{
	truth_closed(e);
	e->reset = true;
	world_closed(e, random_below(300 * MS));
}

static enum fate tcp_validate(const struct endpoint *e, const struct wire *w)
{
	u32 window = e->tp.rcv_wup + e->tp.rcv_wnd - e->tp.rcv_nxt;
	bool resets = w->flags & TCPHDR_RST;

	if (!(w->flags & (TCPHDR_ACK | TCPHDR_RST | TCPHDR_SYN)))
		return SEGMENT_DROPPED;
	if ((s32)window < 0)
		window = 0;
	if (e->ts_recent && (s32)(w->ts_value - e->ts_recent) < 0 && !resets) /* tcp_paws_discard() */
		return SEGMENT_ANSWERED;
	if ((s32)(w->end_seq - e->tp.rcv_wup) < 0 ||
	    (s32)(w->seq - (e->tp.rcv_nxt + window)) > 0)
		return resets ? SEGMENT_DROPPED : SEGMENT_ANSWERED;
	if (resets)
		return w->seq == e->tp.rcv_nxt ? SEGMENT_RESETS : SEGMENT_ANSWERED;
	return w->flags & TCPHDR_SYN ? SEGMENT_ANSWERED : SEGMENT_TAKEN;
}

/* Returns false if the segment is not processed further. Answers have no rate limit here. */
static bool tcp_validate_incoming(struct endpoint *e, const struct wire *w)
{
	switch (tcp_validate(e, w)) {
	case SEGMENT_TAKEN:
		return true;
	case SEGMENT_ANSWERED: /* tcp_send_dupack(), tcp_send_challenge_ack() */
		tcp_send_ack(e);
		return false;
	case SEGMENT_RESETS:
		tcp_reset(e);
		return false;
	default:
		return false;
	}
}

/* Models tcp_v4_do_rcv() of a socket that nobody has locked. */
static void tcp_rcv(struct endpoint *e, const struct wire *w)
{
	u8 *state = &sock_of(e)->__sk_common.skc_state;
	struct packet seen = {.skb = {.data = seen.header}};

	if (*state == TCP_CLOSE)
		return;
	packet_from_wire(&seen, w);
	if (w->len)
		e->tp.data_segs_in += (w->len + w->mss - 1) / w->mss; /* tcp_segs_in() */
	if (*state == TCP_ESTABLISHED)
		hook_probe(e, &seen);
	truth_pacing_over(e, w);
	tcp_mstamp_refresh(e);
	if (!tcp_validate_incoming(e, w))
		return;
	if (!((s32)(w->seq - e->tp.rcv_wup) > 0))
		e->ts_recent = e->tp.rx_opt.ts_recent = w->ts_value; /* tcp_replace_ts_recent() */
	truth_segment_came(e, w);
	if (!tcp_ack(e, w)) {
		truth_segment_done(e);
		return;
	}
	if (*state == NT_TCP_FIN_WAIT1 && e->tp.snd_una == e->tp.write_seq)
		*state = TCP_FIN_WAIT2;
	if (w->end_seq != w->seq)
		tcp_data_queue(e, w);
	tcp_push_pending_frames(e, CALLER_ACK);
	tcp_ack_snd_check(e);
	truth_segment_done(e);
}

/* ---- the application ---- */

static void tcp_cleanup_rbuf(struct endpoint *e, u32 copied)
{
	struct inet_connection_sock *icsk = &e->tp.inet_conn;
	u32 window = e->tp.rcv_wup + e->tp.rcv_wnd - e->tp.rcv_nxt;
	bool empty = e->tp.copied_seq == e->tp.rcv_nxt, now = false;

	if (icsk->icsk_ack.pending & ICSK_ACK_SCHED)
		now = e->tp.rcv_nxt - e->tp.rcv_wup > e->tp.inet_conn.icsk_ack.rcv_mss ||
		      (copied && empty &&
		       (icsk->icsk_ack.pending & ICSK_ACK_PUSHED2 ||
			(icsk->icsk_ack.pending & ICSK_ACK_PUSHED && !ack_pingpong(e))));
	if ((s32)window < 0)
		window = 0;
	if (copied && !now && 2 * window <= e->rcvbuf) {
		u32 fresh = tcp_select_window(e);

		now = fresh && fresh >= 2 * window;
	}
	if (now)
		tcp_send_ack(e);
}

static u32 tcp_recvmsg(struct endpoint *e, u32 most)
{
	u32 copied = min_u64(e->tp.rcv_nxt - e->fin_received - e->tp.copied_seq, most);

	e->tp.copied_seq += copied;
	if (e->fin_received && e->tp.copied_seq + 1 == e->tp.rcv_nxt)
		e->tp.copied_seq++;
	if (copied) { /* tcp_rcv_space_adjust() */
		hook_reads(e);
		tcp_mstamp_refresh(e);
	}
	tcp_cleanup_rbuf(e, copied);
	return copied;
}

static void tcp_set_nodelay(struct endpoint *e, bool on)
{
	if (on) {
		e->tp.nonagle |= NT_NAGLE_OFF | NT_NAGLE_PUSH;
		tcp_push_pending_frames(e, CALLER_NODELAY);
	} else {
		e->tp.nonagle &= ~NT_NAGLE_OFF;
	}
}

static void tcp_set_cork(struct endpoint *e, bool on)
{
	if (on) {
		e->tp.nonagle |= NT_NAGLE_CORK;
		return;
	}
	e->tp.nonagle &= ~NT_NAGLE_CORK;
	if (e->tp.nonagle & NT_NAGLE_OFF)
		e->tp.nonagle |= NT_NAGLE_PUSH;
	tcp_push_pending_frames(e, CALLER_UNCORK);
}

static void tcp_set_quickack(struct endpoint *e, bool on)
{
	struct inet_connection_sock *icsk = &e->tp.inet_conn;

	icsk->icsk_ack.pingpong = !on;
	if (on && icsk->icsk_ack.pending & ICSK_ACK_SCHED) {
		icsk->icsk_ack.pending |= ICSK_ACK_PUSHED;
		tcp_cleanup_rbuf(e, 1);
	}
}

/* tcp_shutdown() and tcp_send_fin() */
static void tcp_shutdown(struct endpoint *e)
{
	u8 *state = &sock_of(e)->__sk_common.skc_state;

	if (*state != TCP_ESTABLISHED && *state != TCP_CLOSE_WAIT)
		return;
	*state = *state == TCP_ESTABLISHED ? NT_TCP_FIN_WAIT1 : NT_TCP_LAST_ACK;
	if (e->queue_tail) {
		cb_of(e->queue_tail)->tcp_flags |= TCPHDR_FIN;
		cb_of(e->queue_tail)->end_seq++;
		e->tp.write_seq++;
	} else {
		queue_put_behind(e, NULL, packet_new(e, e->tp.write_seq, 0, TCPHDR_FIN));
		e->tp.write_seq++;
	}
	__tcp_push_pending_frames(e, NT_NAGLE_OFF, CALLER_CLOSE);
}

/* Models tcp_send_active_reset(): a close with unread data, or with SO_LINGER 0. */
static void tcp_abort(struct endpoint *e)
{
	struct wire *w = calloc(1, sizeof(*w));

	if (sock_of(e)->__sk_common.skc_state == TCP_CLOSE) {
		free(w);
		return;
	}
	w->seq = w->end_seq = e->tp.snd_nxt;
	w->flags = TCPHDR_RST | TCPHDR_ACK;
	w->ack = e->tp.rcv_nxt;
	w->mss = e->tp.mss_cache;
	w->ts_value = tcp_stamp(e);
	w->ts_echo = e->ts_recent;
	tcp_mstamp_refresh(e);
	world_transmit(e, w, 0);
	world_closed(e, 0);
}

/* ---- timers expire ---- */

static void tcp_delack_timer_handler(struct endpoint *e)
{
	struct inet_connection_sock *icsk = &e->tp.inet_conn;
	u64 expired_at = world_jiffies();

	hook_delack_timer_handler(e);
	if (one_in(50)) /* a preemptible kernel may lose the CPU here */
		world_delay(random_below(3 * MS));
	if (sock_of(e)->__sk_common.skc_state == TCP_CLOSE ||
	    !(icsk->icsk_ack.pending & ICSK_ACK_TIMER))
		return;
	if (e->ack_timeout > expired_at) {
		timer_modify(e, &e->ack_timer, e->ack_timeout);
		return;
	}
	icsk->icsk_ack.pending &= ~ICSK_ACK_TIMER;
	if (!(icsk->icsk_ack.pending & ICSK_ACK_SCHED))
		return;
	if (!ack_pingpong(e)) {
		e->ato_ns = min_u64(e->ato_ns * 2, rto_ns(e));
	} else {
		icsk->icsk_ack.pingpong = 0;
		e->ato_ns = TCP_ATO_MIN_NS;
	}
	tcp_mstamp_refresh(e);
	truth_timer_sends(e);
	tcp_send_ack(e);
}

static void tcp_send_loss_probe(struct endpoint *e)
{
	struct packet *head = tcp_send_head(e);
	u32 before = e->tp.packets_out;

	if (head && (s32)(cb_of(head)->seq + min_u64(head->skb.len, e->tp.mss_cache) -
			  tcp_wnd_end(e)) <= 0) {
		tcp_write_xmit(e, NT_NAGLE_OFF, 2, CALLER_PROBE);
		e->probe_sent = e->tp.packets_out > before;
		e->tp.tlp_high_seq = e->probe_sent ? e->tp.snd_nxt : 0;
	} else if (e->unacked_tail && !e->unacked_tail->skb.next) {
		e->unacked_tail->again = true;
		e->tp.total_retrans++;
		e->again_ns = world.now_ns;
		e->tp.retrans_out++;
		tcp_transmit_skb(e, e->unacked_tail, 0, true);
		e->probe_sent = true;
		e->tp.tlp_high_seq = e->tp.snd_nxt;
	}
	tcp_rearm_rto(e);
}

static void tcp_write_wakeup(struct endpoint *e)
{
	struct packet *head = tcp_send_head(e);

	hook_write_wakeup(e);
	if (!head || (s32)(cb_of(head)->seq - tcp_wnd_end(e)) >= 0) {
		tcp_transmit_skb(e, NULL, e->tp.snd_una - 1, true);
	} else {
		u32 room = min_u64(tcp_wnd_end(e) - cb_of(head)->seq, e->tp.mss_cache);

		if (head->skb.len > room)
			tcp_fragment(e, head, room);
		tcp_mstamp_refresh(e);
		if ((s32)(cb_of(head)->end_seq - e->tp.pushed_seq) > 0)
			e->tp.pushed_seq = cb_of(head)->end_seq;
		tcp_transmit_skb(e, head, 0, false);
		tcp_event_new_data_sent(e, head);
		truth_attempt(e, CALLER_WAKEUP, NT_HOLD_INVALID);
	}
}

/* tcp_probe_timer(), tcp_send_probe0() */
static void tcp_probe_timer(struct endpoint *e)
{
	if (e->tp.packets_out || !tcp_send_head(e))
		return;
	tcp_write_wakeup(e);
	if (e->tp.packets_out || !tcp_send_head(e)) {
		e->backoff = 0;
		return;
	}
	if (e->backoff < 6)
		e->backoff++;
	xmit_timer(e, ICSK_TIME_PROBE0, max_u64(rto_ns(e), TCP_RTO_MIN_NS));
}

static void tcp_retransmit_timer(struct endpoint *e)
{
	if (!e->tp.packets_out)
		return;
	e->tp.inet_conn.icsk_ca_state = CA_LOSS;
	e->tp.high_seq = e->tp.snd_nxt;
	e->tp.snd_cwnd = 1;
	tcp_mstamp_refresh(e);
	tcp_retransmit_head(e);
	if (e->backoff < 4)
		e->backoff++;
	tcp_rearm_rto(e);
}

static void tcp_write_timer_handler(struct endpoint *e)
{
	u8 event = e->tp.inet_conn.icsk_pending;

	if (sock_of(e)->__sk_common.skc_state == TCP_CLOSE || !event)
		return;
	if (e->write_timeout > world_jiffies()) {
		timer_modify(e, &e->write_timer, e->write_timeout);
		return;
	}
	tcp_mstamp_refresh(e);
	e->tp.inet_conn.icsk_pending = 0;
	if (event == ICSK_TIME_LOSS_PROBE)
		tcp_send_loss_probe(e);
	else if (event == ICSK_TIME_PROBE0)
		tcp_probe_timer(e);
	else
		tcp_retransmit_timer(e);
}

/* Runs an expired timer: at once, or when the application unlocks the socket. */
static void timer_expires(struct endpoint *e, struct model_timer *timer)
{
	timer->armed = false;
	hook_timer_expire(timer->list);
	if (sock_of(e)->sk_lock.owned) {
		timer->deferred = true;
		truth_timer_deferred(e);
	} else if (timer == &e->ack_timer)
		tcp_delack_timer_handler(e);
	else
		tcp_write_timer_handler(e);
}

/* Models tcp_tsq_handler(), and tcp_pace_kick() of the pacing timer. */
static void tcp_tsq_handler(struct endpoint *e)
{
	if (sock_of(e)->sk_lock.owned)
		e->tsq_deferred = true;
	else if (sock_of(e)->__sk_common.skc_state != TCP_CLOSE)
		tcp_write_xmit(e, e->tp.nonagle, 0, CALLER_DEVICE);
}

/* release_sock(): the backlog, then tcp_release_cb(). */
static void release_sock(struct endpoint *e)
{
	while (e->backlog) {
		struct wire *w = e->backlog;

		e->backlog = w->next;
		tcp_rcv(e, w);
		free(w);
	}
	e->backlog_end = &e->backlog;
	if (e->tsq_deferred) {
		e->tsq_deferred = false;
		sock_of(e)->sk_tsq_flags &= ~NT_TSQ_RESUMING;
		if (sock_of(e)->__sk_common.skc_state != TCP_CLOSE)
			tcp_write_xmit(e, e->tp.nonagle, 0, CALLER_DEVICE);
	}
	if (e->write_timer.deferred) {
		e->write_timer.deferred = false;
		tcp_write_timer_handler(e);
	}
	if (e->ack_timer.deferred) {
		e->ack_timer.deferred = false;
		tcp_delack_timer_handler(e);
	}
	sock_of(e)->sk_lock.owned = 0;
}
