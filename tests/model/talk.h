/* SPDX-License-Identifier: GPL-2.0 */
/* Models the connections, the wire between their ends, and the applications that use them. */
#pragma once

#include "tcp.h"
#include "truth.h"

#define CONVERSATIONS 24
#define CLIENT_SPACE  1
#define SERVER_SPACE  2

static struct conversation *talks; /* CONVERSATIONS of them */
static struct net spaces[2] = {
	{.ns.inum = CLIENT_SPACE, .ipv4.sysctl_tcp_pingpong_thresh = 1, .ipv4.sysctl_tcp_rto_min_us = 200000},
	{.ns.inum = SERVER_SPACE, .ipv4.sysctl_tcp_pingpong_thresh = 1, .ipv4.sysctl_tcp_rto_min_us = 200000},
};
static bool world_ends; /* an ended connection has no successor */

/* The timers' functions: the programs learn which is which from the first timer that expires. */
static char icsk_functions[2];

static void check_told(struct endpoint *e);

/* ---- a connection begins and ends ---- */

static void endpoint_open(struct conversation *t, int side, u32 seq, u32 peer_seq, u32 mss)
{
	struct endpoint *e = &t->end[side];
	struct tcp_sock *tp = &e->tp;
	struct inet_connection_sock *icsk = &tp->inet_conn;
	struct sock *sk = sock_of(e);

	memset(e, 0, sizeof(*e));
	e->peer = &t->end[!side];
	e->talk = t;
	e->client = !side;
	sk->__sk_common.skc_family = AF_INET;
	sk->__sk_common.skc_state = TCP_ESTABLISHED;
	sk->__sk_common.skc_hash = random_u64();
	sk->__sk_common.skc_num = side ? 8000 : 40000 + t->number;
	sk->__sk_common.skc_dport = __builtin_bswap16(side ? 40000 + t->number : 8000);
	icsk->icsk_inet.inet_sport = __builtin_bswap16(sk->__sk_common.skc_num);
	sk->__sk_common.skc_daddr = side ? 1 : 2;
	sk->__sk_common.skc_rcv_saddr = side ? 2 : 1;
	sk->__sk_common.skc_net.net = &spaces[side];
	sk->sk_protocol = IPPROTO_TCP;
	sk->sk_type = SOCK_STREAM;
	sk->sk_wmem_alloc.refs.counter = 1;
	queue_init(e);
	tp->snd_nxt = tp->snd_una = tp->write_seq = tp->snd_up = tp->pushed_seq = tp->snd_sml = seq;
	tp->rcv_nxt = tp->copied_seq = tp->rcv_wup = peer_seq;
	tp->mss_cache = mss;
	tp->advmss = mss + 12; /* the timestamps take 12 */
	tp->snd_cwnd = 10;
	e->most_cwnd = random_from(10, 200);
	e->goal_segments = one_in(2) ? 1 : random_from(1, 44);
	/* keep room for a message: a writer that waits for an ACK to make room looks, from the
	 * peer's end, as if it held a segment */
	e->sndbuf = 100 * mss;
	e->rcvbuf = t->slow_reader ? random_from(4000, 20000) : 100 * mss;
	e->tp.inet_conn.icsk_ack.rcv_mss = 536;
	e->tp.inet_conn.icsk_rto = SECOND / world.tick_ns;
	tp->rtt_min.s[0].v = ~0U;
	tp->rx_opt.tstamp_ok = 1;
	tp->rx_opt.snd_wscale = WINDOW_SCALE;
	tp->tsoffset = random_u64();
	icsk->icsk_delack_max = TCP_DELACK_MAX_NS / world.tick_ns;
	icsk->icsk_rto_min = TCP_RTO_MIN_NS / world.tick_ns;
	icsk->icsk_delack_timer.function = (void *)&icsk_functions[0];
	icsk->icsk_retransmit_timer.function = (void *)&icsk_functions[1];
	e->ack_timer.list = &icsk->icsk_delack_timer;
	e->write_timer.list = &icsk->icsk_retransmit_timer;
	e->defers = one_in(2);
	e->small_queue = random_from(4000, 100000);
	e->usec_stamps = world.usec_stamps && one_in(2);
	e->backlog_end = &e->backlog;
	e->received_ns = world.now_ns;
	icsk->icsk_ack.quick = random_from(0, 8);
}

static void conversation_open(struct conversation *t)
{
	u32 life = t->life + 1, seq = random_u64(), back = random_u64();
	u32 mss = one_in(4) ? 32000 : 1448;

	memset(t, 0, sizeof(*t));
	t->life = life;
	t->number = t - talks;
	t->one_way_ns = one_in(3) ? random_from(1 * MS, 20 * MS) : random_from(10 * US, 300 * US);
	t->jitter_ns = one_in(3) ? random_below(t->one_way_ns / 4 + 1) : 0;
	t->slow_reader = one_in(8);
	/* after a lost window update, a probe's answer would seem to release a segment */
	t->loss = !t->slow_reader && one_in(6) ? random_from(20, 200) : 0;
	t->options = one_in(3);
	t->corks = one_in(4);
	/* data that comes by chance after a late ACK looks, from that end alone, like held data;
	 * and data that came unseen and out of order leaves no trace */
	t->chatty = !truth.netns && !(hooks.skip && t->loss) && one_in(6);
	/* a rejected segment moves the clock that tells when an unseen hold ended */
	t->hostile = !t->loss && !hooks.skip && one_in(6);
	for (int side = 0; side < 2; side++)
		endpoint_open(t, side, side ? back : seq, side ? seq : back, mss);
	for (int side = 0; side < 2; side++) {
		struct endpoint *e = &t->end[side];

		e->tp.snd_wnd = e->max_window = e->peer->rcvbuf;
		e->tp.rcv_wnd = e->rcvbuf;
		if (one_in(8))
			e->pacing_rate = random_from(1000000, 100000000);
		if (e->pacing_rate)
			sock_of(e)->sk_pacing_status = NT_SK_PACING_NEEDED;
		if (one_in(6))
			e->device_ns = random_from(10 * US, 200 * US);
		if (one_in(8))
			e->tp.inet_conn.icsk_delack_max = 1 + 10 * MS / world.tick_ns;
		e->quick_route = one_in(16);
		if (one_in(8))
			e->tp.nonagle = NT_NAGLE_OFF;
	}
	world_at(world.now_ns + random_below(5 * MS), EVENT_APP, &t->end[0], NULL, 0);
	if (t->chatty)
		world_at(world.now_ns + random_below(50 * MS), EVENT_CHAT, &t->end[1], NULL, 0);
	if (t->hostile)
		world_at(world.now_ns + random_below(20 * MS), EVENT_FORGED, &t->end[one_in(2)], NULL, 0);
	world_at(world.now_ns + SECOND * random_from(1, 20), EVENT_END, &t->end[0], NULL, 0);
}

static void packets_free(struct endpoint *e)
{
	struct packet *p;
	struct wire *w;

	while ((p = tcp_send_head(e))) {
		queue_take_head(e, p);
		free(p);
	}
	while ((p = e->unacked)) {
		e->unacked = (struct packet *)p->skb.next;
		free(p);
	}
	while ((w = e->backlog)) {
		e->backlog = w->next;
		free(w);
	}
}

/* tcp_v4_destroy_sock() */
static void endpoint_destroy(struct endpoint *e)
{
	struct conversation *t = e->talk;

	if (e->destroyed)
		return;
	truth_closed(e);
	e->reset = false;
	hook_destroy(e);
	check_told(e);
	for (u32 i = 0; i < HOLDS_KEPT; i++)
		judge_missed(e, &e->held[i]);
	packets_free(e);
	e->destroyed = e->gone = true;
	sock_of(e)->__sk_common.skc_state = TCP_CLOSE;
	if (e->peer->destroyed) {
		if (world_ends)
			t->life++;
		else
			conversation_open(t); /* a slab, too, uses the memory again */
	}
}

/* destroyed_ns: so long after, since a program has to close a socket that was reset. */
static void world_closed(struct endpoint *e, u64 destroyed_ns)
{
	if (e->gone)
		return;
	e->gone = true;
	sock_of(e)->__sk_common.skc_state = TCP_CLOSE;
	world_at(world.now_ns + destroyed_ns, EVENT_DESTROY, e, NULL, 0);
}

static void close_when_done(struct endpoint *e)
{
	u8 state = sock_of(e)->__sk_common.skc_state;

	if (e->fin_received && e->tp.snd_una == e->tp.write_seq && !tcp_send_head(e) &&
	    (state == TCP_FIN_WAIT2 || state == NT_TCP_LAST_ACK || state == NT_TCP_FIN_WAIT1))
		world_closed(e, 0);
}

/* ---- the wire ---- */

static void world_transmit(struct endpoint *e, struct wire *w, u32 device_bytes)
{
	struct conversation *t = e->talk;
	u64 leaves = world.now_ns, arrives;

	if (e->device_ns && device_bytes) {
		leaves = max_u64(leaves, e->device_free_ns) + e->device_ns;
		e->device_free_ns = leaves;
		e->in_device += device_bytes;
		sock_of(e)->sk_wmem_alloc.refs.counter += device_bytes;
		world_at(leaves, EVENT_DEVICE, e, NULL, device_bytes);
	}
	if (one_in(t->loss)) {
		free(w);
		return;
	}
	arrives = leaves + t->one_way_ns + (t->jitter_ns ? random_below(t->jitter_ns) : 0);
	e->peer->arrives_ns = arrives = max_u64(arrives, e->peer->arrives_ns + 1);
	world_at(arrives, EVENT_ARRIVES, e->peer, w, 0);
}

static void arrives(struct endpoint *e, struct wire *w)
{
	if (e->gone) {
		free(w);
		return;
	}
	if (sock_of(e)->sk_lock.owned) {
		*e->backlog_end = w;
		e->backlog_end = &w->next;
		return;
	}
	tcp_rcv(e, w);
	free(w);
	close_when_done(e);
}

/* Models tcp_wfree(): the device has sent the segment. */
static void device_done(struct endpoint *e, u32 bytes)
{
	unsigned long *flags = &sock_of(e)->sk_tsq_flags;

	e->in_device -= bytes;
	sock_of(e)->sk_wmem_alloc.refs.counter -= bytes;
	if (!(*flags & NT_TSQ_THROTTLED) || *flags & 2)
		return;
	*flags = (*flags & ~NT_TSQ_THROTTLED) | 2; /* TSQ_QUEUED */
	world_at(world.now_ns + random_below(20 * US), EVENT_TASKLET, e, NULL, 0);
}

static void tasklet(struct endpoint *e)
{
	sock_of(e)->sk_tsq_flags &= ~2UL;
	if (e->gone)
		return;
	if (sock_of(e)->sk_lock.owned)
		sock_of(e)->sk_tsq_flags |= 4; /* TCP_TSQ_DEFERRED */
	tcp_tsq_handler(e);
}

/* ---- the applications: the client asks, the server answers ---- */

static void turn_in(struct endpoint *e, u64 after_ns)
{
	if (e->turn_comes || e->gone)
		return;
	e->turn_comes = true;
	world_at(world.now_ns + after_ns, EVENT_APP, e, NULL, 1);
}

static void world_readable(struct endpoint *e)
{
	u64 wakes = random_from(5 * US, 60 * US);

	if (one_in(6))
		wakes += random_below(8 * MS);
	else if (e->talk->slow_reader && !e->parts && !e->part_left && one_in(4))
		wakes += random_from(20 * MS, 100 * MS);
	turn_in(e, wakes);
}

/* Returns a pause. No write comes by chance just after a late ACK: it would look like held data. */
static u64 thinks(void)
{
	switch (random_below(4)) {
	case 0:
		return random_below(3 * MS);
	case 1:
		return random_from(500 * MS, 700 * MS);
	default:
		return random_below(100 * US);
	}
}

/* Says whether the application may be slow. From one end alone, that would look like a late ACK, or
 * like data that one released. */
static bool may_dawdle(const struct endpoint *e)
{
	return !truth.netns && ack_limit_ns(e) >= TCP_DELACK_MIN_NS &&
	       ack_limit_ns(e->peer) >= TCP_DELACK_MIN_NS;
}

/* Returns how long a call may keep the socket locked; 0: not long. From a sender alone, the ACK that waits for the call
 * must not pass for a late one, if a program sees it. */
static u64 longest_call_ns(const struct endpoint *e)
{
	if (truth.netns && truth_visible(e) && e->hold.active && !hooks.skip)
		return 60 * MS;
	return may_dawdle(e) ? 20 * MS : 0;
}

static u32 part_size(u32 mss)
{
	switch (random_below(8)) {
	case 0:
		return random_from(1, 20) * mss + random_below(mss);
	case 1:
		return mss;
	case 2:
		return random_from(1, 3) * mss + random_below(2);
	default:
		return random_from(1, 600);
	}
}

static void message_plan(struct endpoint *e)
{
	e->parts = random_from(1, 4);
	e->part_left = 0;
}

/* The client's process and the server's; the current one is in a system call on the socket. */
static struct task_struct tasks[2] = {
	{.pid = 4242, .tgid = 4242, .group_leader = &tasks[0], .comm = "client"},
	{.pid = 4343, .tgid = 4343, .group_leader = &tasks[1], .comm = "server"},
};

static struct task_struct idle = {.group_leader = &idle, .comm = "swapper"};

static struct task_struct *task_of(const struct endpoint *e)
{
	return &tasks[!e->client];
}

static void in_process(const struct endpoint *e)
{
	struct task_struct *task = e ? task_of(e) : &idle;

	host.task = task;
	host.pid_tgid = (u64)task->tgid << 32 | task->pid;
	host.under_cgroup = e && e->client;
}

/* Begins a part. Returns true if it set an option. */
static bool part_begin(struct endpoint *e)
{
	u8 before = e->tp.nonagle;

	e->parts--;
	e->part_left = part_size(e->tp.mss_cache);
	e->talk->to_read[e->client] += e->part_left;
	e->more = e->talk->corks && e->parts && one_in(3);
	if (e->talk->corks && one_in(6))
		tcp_set_cork(e, true);
	else if (e->talk->options && one_in(12))
		tcp_set_nodelay(e, one_in(2));
	if (e->talk->options && one_in(12))
		tcp_set_quickack(e, one_in(2));
	return e->tp.nonagle != before;
}

/* A segment arrives on another CPU while a program looks at this socket, which is not locked. */
static struct endpoint *looked_at;

static void another_cpu_acts(void)
{
	struct event *first = NULL;
	u64 pid_tgid = host.pid_tgid;
	struct wire *w;

	host.on_clock = NULL;
	for (u32 i = 0; i < world.n_events; i++) {
		struct event *event = &world.events[i];

		if (event->kind == EVENT_ARRIVES && event->e == looked_at &&
		    event->at_ns <= world.now_ns + 50 * US &&
		    event->life == looked_at->talk->life && (!first || event_before(event, first)))
			first = event;
	}
	if (!first)
		return;
	first->kind = EVENT_NOTHING;
	w = first->object;
	host.pid_tgid = 0;
	arrives(looked_at, w);
	host.pid_tgid = pid_tgid;
}

/* Models tcp_sendmsg(). The program after it sees the socket when it is unlocked again. */
static u32 writes(struct endpoint *e, u32 len, bool more)
{
	u32 took = tcp_sendmsg_locked(e, len, more);

	if (!took || hooks.family != TRACEPOINT)
		return took;
	switch (random_below(8)) {
	case 0: /* the process loses the CPU at this point */
	case 1:
		world_at(world.now_ns + random_below(20 * US), EVENT_WROTE, e, NULL, took);
		break;
	case 2:
		looked_at = e;
		host.on_clock = another_cpu_acts;
		hook_send_length(e, took);
		host.on_clock = NULL;
		break;
	default:
		hook_send_length(e, took);
	}
	return took;
}

/* Writes the current part. Returns true if the whole message is written. */
static bool write_on(struct endpoint *e)
{
	u32 took;

	if (!e->part_left && e->parts && e->talk->corks && e->hold.active && may_dawdle(e) &&
	    !(e->tp.nonagle & NT_NAGLE_CORK) && one_in(4)) { /* the cork now holds what is held */
		tcp_set_cork(e, true);
		turn_in(e, random_below(60 * MS));
		return false;
	}
	if (!e->part_left && e->parts && part_begin(e) && may_dawdle(e) && one_in(3)) {
		turn_in(e, one_in(2) ? random_below(60 * MS) : thinks());
		return false;
	}
	if (e->part_left) {
		took = writes(e, e->part_left, e->more);
		e->part_left -= took;
		if (e->part_left) {
			turn_in(e, random_from(50 * US, 2 * MS));
			return false;
		}
	}
	if (e->parts) {
		turn_in(e, one_in(3) ? thinks() : 0);
		return false;
	}
	if (e->tp.nonagle & NT_NAGLE_CORK && !one_in(4))
		tcp_set_cork(e, false);
	return true;
}

static void read_on(struct endpoint *e)
{
	u32 n = tcp_recvmsg(e, e->talk->slow_reader ? random_from(100, 4000) : ~0U);
	u32 *left = &e->talk->to_read[!e->client];

	*left = n < *left ? *left - n : 0;
	if (e->tp.rcv_nxt - e->fin_received != e->tp.copied_seq)
		turn_in(e, random_from(10 * US, 10 * MS));
}

static void ending(struct endpoint *e)
{
	switch (random_below(4)) {
	case 0:
		tcp_abort(e);
		break;
	case 1:
		e->parts = 0;
		tcp_shutdown(e);
		break;
	default:
		break;
	}
}

static void message_written(struct endpoint *e)
{
	struct conversation *t = e->talk;

	if (!e->client) {
		t->stage = STAGE_REPLIED;
	} else if (t->reply) {
		t->stage = STAGE_AWAIT;
	} else {
		t->stage = STAGE_IDLE;
		turn_in(e, thinks());
	}
}

static void message_next(struct endpoint *e)
{
	struct conversation *t = e->talk;

	if (e->client && t->stage == STAGE_REPLIED && !t->to_read[0]) {
		t->stage = STAGE_IDLE;
		turn_in(e, thinks());
	} else if (e->client && t->stage == STAGE_IDLE) {
		t->stage = STAGE_REQUEST;
		t->reply = !one_in(5);
		message_plan(e);
		turn_in(e, 0);
	} else if (!e->client && t->stage == STAGE_AWAIT && !t->to_read[1]) {
		t->stage = STAGE_REPLY;
		message_plan(e);
		turn_in(e, one_in(4) ? random_below(5 * MS) : 0);
	}
}

/* Takes a turn of the application: it reads what has come, and writes what is due. */
static void turn(struct endpoint *e)
{
	u64 slow_ns;

	e->turn_comes = false;
	if (e->gone)
		return;
	if (sock_of(e)->sk_lock.owned) {
		turn_in(e, 100 * US);
		return;
	}
	in_process(e);
	if (!e->was_slow && one_in(40)) { /* a slow system call, with the socket locked */
		sock_of(e)->sk_lock.owned = 1;
		slow_ns = longest_call_ns(e);
		slow_ns = random_below(slow_ns && one_in(4) ? slow_ns : 3 * MS);
		world_at(world.now_ns + slow_ns, EVENT_RELEASE, e, NULL, 0);
		in_process(NULL);
		e->was_slow = true; /* not twice in a row: see thinks() */
		turn_in(e, slow_ns + random_below(3 * MS));
		return;
	}
	e->was_slow = false;
	if (e->tp.rcv_nxt != e->tp.copied_seq)
		read_on(e);
	if (e->fin_received && !e->gone && e->tp.rcv_nxt == e->tp.copied_seq) {
		tcp_shutdown(e);
		e->parts = e->part_left = 0;
	}
	if (!e->gone && sock_of(e)->__sk_common.skc_state != TCP_ESTABLISHED)
		e->parts = e->part_left = 0;
	if (e->parts || e->part_left) {
		if (write_on(e))
			message_written(e);
	} else if (!e->gone && sock_of(e)->__sk_common.skc_state == TCP_ESTABLISHED) {
		if (one_in(200))
			ending(e);
		else
			message_next(e);
	}
	in_process(NULL);
	close_when_done(e);
}

/* The server writes without a request. */
static void chat(struct endpoint *e)
{
	u32 len = random_from(1, 600);

	if (e->gone)
		return;
	world_at(world.now_ns + random_below(60 * MS), EVENT_CHAT, e, NULL, 0);
	if (sock_of(e)->sk_lock.owned || e->parts || e->part_left ||
	    sock_of(e)->__sk_common.skc_state != TCP_ESTABLISHED)
		return;
	in_process(e);
	e->talk->to_read[0] += writes(e, len, false);
	in_process(NULL);
}

/* A stranger sends a segment that acknowledges everything sent; the kernel rejects it. */
static void forge(struct endpoint *e)
{
	struct tcp_sock *tp = &e->tp;
	struct wire *w;

	if (e->gone)
		return;
	world_at(world.now_ns + random_below(40 * MS), EVENT_FORGED, &e->talk->end[one_in(2)], NULL, 0);
	if (sock_of(e)->__sk_common.skc_state != TCP_ESTABLISHED || sock_of(e)->sk_lock.owned || !e->ts_recent)
		return;
	w = calloc(1, sizeof(*w));
	*w = (struct wire){.seq = tp->rcv_nxt, .end_seq = tp->rcv_nxt, .ack = tp->snd_nxt,
			   .window = tp->snd_wnd, .mss = tp->mss_cache, .flags = TCPHDR_ACK,
			   .ts_value = e->ts_recent, .ts_echo = tcp_stamp(e)};
	switch (random_below(7)) {
	case 0:
		w->ts_value -= random_from(1, 1000);
		break;
	case 1:
		w->seq = w->end_seq = max_u64(tp->rcv_wnd, tp->rcv_nxt - tp->rcv_wup) + tp->rcv_wup +
				      random_from(1, 2);
		break;
	case 2:
		w->seq = w->end_seq = tp->rcv_wup - random_from(1, 2);
		break;
	case 3:
		w->flags |= TCPHDR_SYN;
		break;
	case 4:
		w->flags = 0;
		break;
	case 5:
		w->ack = tp->snd_nxt + random_from(1, 2);
		break;
	case 6:
		w->flags |= TCPHDR_RST;
		w->seq = w->end_seq = tp->rcv_nxt + 1;
		break;
	}
	arrives(e, w);
}
