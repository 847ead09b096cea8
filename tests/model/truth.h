/* SPDX-License-Identifier: GPL-2.0 */
/* Keeps the truth of the model: tcp.h reports what it did and why, and this file derives the holds
 * and stalls. It uses nothing of bpf/, and reads a field only to note it. */
#pragma once

#include "hooks.h"
#include "tcp.h"

#define INFERRED_NS   30000000ULL /* one end alone takes an ACK for late from here on */
#define FIRST_PACKETS 2 /* and twice that while the peer sends as many */

static struct {
	u64 holds[NT_HOLD_REASONS], hold_ns[NT_HOLD_REASONS];
	u64 delayed_acks; /* that a timer sent */
	u64 blurred;
	u64 stalls[NT_CAUSES];
	u64 writes;
	u64 clean;      /* stalls that one end alone has to infer */
	u64 felt_clean; /* stalls that the receiver's end alone has to infer */
	u64 long_holds; /* stallable holds that a record must report */
	u64 least_ns;   /* records report no shorter hold */
	u32 netns;      /* only the end in this namespace is observed; 0: both are */
	bool target;    /* the clients are the processes asked for */
	bool show_missed;
} truth;

static bool stallable(u8 reason)
{
	return reason == NT_HOLD_NAGLE || reason == NT_HOLD_CORK || reason == NT_HOLD_MSG_MORE;
}

/* A congestion window of about one segment waits for an ACK that the receiver may delay. */
static bool lone(u8 reason, u32 in_flight, u32 mss)
{
	return reason == NT_HOLD_CWND && in_flight < 2 * mss;
}

static bool may_stall(const struct true_hold *h)
{
	return stallable(h->reason) || lone(h->reason, h->in_flight, h->mss);
}

static bool truth_visible(const struct endpoint *e)
{
	return !truth.netns || e->tp.inet_conn.icsk_inet.sk.__sk_common.skc_net.net->ns.inum == truth.netns;
}

/* Says whether the totals count this socket: they do once a write by a process asked for was
 * seen. */
static bool truth_counted(const struct endpoint *e)
{
	return truth_visible(e) && (!truth.target || (e->client && e->wrote));
}

static void truth_count(const struct endpoint *e, const struct true_hold *h, u64 until_ns)
{
	if (!truth_counted(e))
		return;
	truth.holds[h->reason]++;
	truth.hold_ns[h->reason] += until_ns - h->begin_ns;
}

/* before: why the bytes were held until now, or 0. */
static void truth_begin(struct endpoint *e, u8 reason, u8 before, u64 since_ns)
{
	struct true_hold *h = &e->hold;
	bool device;

	h->active = true;
	h->reason = reason;
	h->begin_ns = h->last_ack_ns = since_ns;
	h->in_flight = h->last_in_flight = e->tp.snd_nxt - e->tp.snd_una;
	/* the device sends it only now where it has kept us waiting, or still has a segment */
	device = before == NT_HOLD_AUTOCORK || before == NT_HOLD_TSQ || sock_of(e)->sk_wmem_alloc.refs.counter > 1;
	h->sent_ns = device ? since_ns : e->tp.tcp_wstamp_ns;
	h->mss = e->tp.mss_cache;
	h->first = e->tp.data_segs_out <= (e->tp.data_segs_in < e->tp.data_segs_out ? FIRST_PACKETS : 2 * FIRST_PACKETS);
	h->rcv_nxt = e->tp.rcv_nxt;
	h->retransmitted = e->tp.total_retrans;
	h->recovered = false;
}

#define WORD(release) (1U << NT_RELEASE_##release)

/* Derives the possible releases from the caller of the attempt. */
static u32 truth_releases(const struct endpoint *e, enum caller caller)
{
	const struct true_hold *h = &e->hold;
	bool filled = e->tp.snd_nxt - h->seq >= h->mss;

	switch (caller) {
	case CALLER_ACK: /* an option may have caused it, too */
		return WORD(ACK) | (e->tp.nonagle & NT_NAGLE_PUSH ? WORD(NODELAY) | WORD(UNCORK) | WORD(PUSH) : 0);
	case CALLER_ONE:
		return WORD(FULL_SEGMENT);
	case CALLER_FORCED:
		return WORD(PUSH) | (h->reason == NT_HOLD_CORK ? WORD(UNCORK) : 0);
	case CALLER_PUSH:
		if (filled)
			return WORD(FULL_SEGMENT);
		return h->reason == NT_HOLD_MSG_MORE ? WORD(UNCORK) : ~0U;
	case CALLER_NODELAY:
		return WORD(NODELAY);
	case CALLER_UNCORK:
		return h->reason == NT_HOLD_CORK ? WORD(UNCORK) : ~0U;
	case CALLER_CLOSE:
		return WORD(CLOSE);
	case CALLER_PROBE:
		return WORD(LOSS_PROBE);
	case CALLER_WAKEUP:
		return WORD(TIMER);
	default:
		return ~0U;
	}
}

static u64 least_rtt_ns(const struct endpoint *e)
{
	return e->tp.rtt_min.s[0].v == ~0U ? 0 : e->tp.rtt_min.s[0].v * 1000ULL;
}

/*
 * Returns when a prompt ACK would have come for bytes that were held since begin_ns, or would have been
 * half way if they were written later than that. Records count in us.
 */
static u64 prompt_ns(const struct endpoint *e, u64 begin_ns)
{
	u64 rtt = least_rtt_ns(e), age = begin_ns > e->hold.sent_ns ? begin_ns - e->hold.sent_ns : 0;

	return begin_ns + rtt - min_u64(age, rtt / 2) / US * US;
}

static u64 excess_since(const struct endpoint *e, u64 begin_ns)
{
	u64 prompt = prompt_ns(e, begin_ns);

	return world.now_ns > prompt ? world.now_ns - prompt : 0;
}

/* Says whether this ACK, pending since pending_ns, released a Nagle stall, of bytes held since begin_ns. */
static bool was_stall_of(const struct endpoint *e, const struct wire *ack, u64 begin_ns, u64 pending_ns)
{
	u64 from = max_u64(begin_ns, pending_ns), excess = excess_since(e, begin_ns);
	u64 limit = min_u64(ack_limit_ns(e), INFERRED_NS);

	if (ack->end_seq != ack->seq || ack->lateness == ACK_PROMPT || ack->sent_ns < from)
		return false;
	if (ack->sent_ns - from < truth.least_ns || 2 * (ack->sent_ns - from) < excess)
		return false;
	return ack->lateness == ACK_BY_TIMER || ack->sent_ns - pending_ns >= limit;
}

static bool was_nagle_stall(const struct endpoint *e, const struct wire *ack, u64 begin_ns)
{
	return was_stall_of(e, ack, begin_ns, ack->late.begin_ns);
}

/* A read moves the receiver's clock, and the programs know to a jiffy only since when the ACK was pending. */
static bool was_blurred(const struct endpoint *e, const struct wire *ack, u64 begin_ns)
{
	return was_stall_of(e, ack, begin_ns, ack->late.begin_ns - 3 * world.tick_ns) !=
	       was_stall_of(e, ack, begin_ns, ack->late.begin_ns + 2 * world.tick_ns);
}

/*
 * Says whether the ACK was pending for about as long as one end alone takes for late. That end sees
 * the excess over the smallest round trip, which includes jitter and the time for which the
 * receiver's application had the socket locked. It cannot draw the line as sharply as a program
 * that saw the ACK become pending.
 */
static bool was_nearly_late(const struct endpoint *e, const struct wire *ack)
{
	u64 limit = min_u64(ack_limit_ns(e), INFERRED_NS), blur = 2 * e->talk->jitter_ns + 4 * MS;
	u64 from = max_u64(e->hold.begin_ns, ack->late.begin_ns);

	return ack->lateness != ACK_PROMPT && ack->end_seq == ack->seq && ack->sent_ns > from &&
	       ack->sent_ns - from + blur >= limit;
}

/*
 * Says whether the receiver's end alone has to infer the stall. It saw one small segment come, and
 * one round trip after its late ACK the held one, on a path without losses, queues and other
 * traffic.
 */
static bool has_to_be_felt(const struct endpoint *e, const struct true_hold *h)
{
	const struct endpoint *r = e->peer;
	const struct conversation *t = e->talk;

	return truth_visible(r) && h->felt && h->cause == NT_CAUSE_NAGLE_DELAYED_ACK &&
	       h->late_pingpong && e->came->late_lone && least_rtt_ns(r) && !t->loss && !t->jitter_ns &&
	       !t->slow_reader && !t->chatty && !t->hostile && !e->pacing_rate && !e->device_ns &&
	       !r->device_ns && h->late.bytes < h->mss && e->tp.snd_nxt - h->seq < h->mss &&
	       h->end_seq == e->tp.snd_nxt &&
	       sock_of((struct endpoint *)e)->__sk_common.skc_state == TCP_ESTABLISHED;
}

/* Says whether the next ACK that moves the window releases the bytes. */
static bool waits_for(const struct true_hold *h)
{
	return h->reason != NT_HOLD_CORK && may_stall(h);
}

static bool tcp_recovers(const struct endpoint *e)
{
	return e->tp.retrans_out || e->tp.lost_out || e->tp.sacked_out || e->tp.inet_conn.icsk_ca_state >= 3;
}

/* Says how an ACK released a small segment that did not stall. */
static u8 pattern_of_release(const struct endpoint *e, const struct true_hold *h)
{
	u64 excess = excess_since(e, h->begin_ns), way = prompt_ns(e, h->begin_ns) - h->begin_ns;
	u64 limit = min_u64(ack_limit_ns(e), INFERRED_NS);

	if (e->came->len && excess >= MS)
		return h->recovered || tcp_recovers(e) || e->tp.total_retrans != h->retransmitted
			       ? 0
			       : NT_PATTERN_PIGGYBACKED_ACK;
	return excess < (limit / 4 < way ? INFERRED_NS : limit) ? NT_PATTERN_ACK_CLOCKED : 0;
}

/* Returns how many writes wrote the held bytes, where the program that looks can know. */
static u32 writes_known(const struct true_hold *h)
{
	u32 bytes = h->end_seq - h->seq;

	return h->written == bytes || (h->writes == 1 && h->written > bytes) ? h->writes : 0;
}

/* Says what the application did, so that a small segment waited for a late ACK. */
static u8 pattern_of_writes(const struct true_hold *h)
{
	if (h->in_flight >= h->mss || (h->writes == 1 && h->written > h->end_seq - h->seq))
		return NT_PATTERN_REPLY_TAIL;
	return writes_known(h) > 1 ? NT_PATTERN_SEVERAL_WRITES : NT_PATTERN_WRITE_WRITE_READ;
}

static bool unanswered(const struct endpoint *e, const struct true_hold *h)
{
	return e->stalled && e->stalled_rcv_nxt == h->rcv_nxt;
}

static void judge(struct endpoint *e, enum caller caller)
{
	struct true_hold *h = &e->hold;
	u64 rtt = least_rtt_ns(e);

	h->cause = h->pattern = h->pattern_alone = 0;
	h->clean = h->nearly = h->in_doubt = h->felt_clean = h->blurred = false;
	h->felt = caller == CALLER_ACK && e->came && e->came->lateness == ACK_BY_TIMER;
	if (h->reason != NT_HOLD_NAGLE && stallable(h->reason) && caller == CALLER_WAKEUP) {
		h->cause = NT_CAUSE_CORK_CEILING;
		h->pattern = NT_PATTERN_CORK_CEILING;
		h->clean = truth_visible(e) && !e->talk->hostile;
	}
	if (!waits_for(h))
		return;
	if (caller == CALLER_ACK && h->reason == NT_HOLD_NAGLE)
		h->pattern = pattern_of_release(e, h);
	/* if no hook sees ACKs leave, or its programs are skipped, the programs assume that the
	 * expired timer sent the ACK; nor do they see that the bytes were corked meanwhile */
	h->in_doubt = caller == CALLER_ACK && e->came &&
		      (e->came->late_deferred || was_nagle_stall(e, e->came, h->since_ns));
	h->blurred = caller == CALLER_ACK && e->came && was_blurred(e, e->came, h->begin_ns);
	h->nearly = caller == CALLER_ACK && e->came && was_nearly_late(e, e->came);
	if (caller != CALLER_ACK || !e->came || !was_nagle_stall(e, e->came, h->begin_ns) ||
	    (h->reason == NT_HOLD_CWND &&
	     (h->recovered || tcp_recovers(e) || e->tp.total_retrans != h->retransmitted)))
		return;
	h->cause = h->reason == NT_HOLD_NAGLE ? NT_CAUSE_NAGLE_DELAYED_ACK : NT_CAUSE_DELAYED_ACK;
	if (h->reason == NT_HOLD_CWND)
		h->pattern = NT_PATTERN_SMALL_CWND;
	else if (e->came->locked)
		h->pattern = NT_PATTERN_LOCKED_SOCKET;
	else if ((h->reason == NT_HOLD_NAGLE && e->tp.nonagle & NT_NAGLE_OFF) ||
		 h->first)
		h->pattern = NT_PATTERN_HANDSHAKE_FLIGHT;
	else
		h->pattern_alone = h->pattern = pattern_of_writes(h);
	if (h->pattern_alone && h->pattern_alone != NT_PATTERN_REPLY_TAIL && unanswered(e, h))
		h->pattern = NT_PATTERN_ONE_WAY;
	h->clean = truth_visible(e) && rtt && e->came->lateness == ACK_BY_TIMER && !e->tp.total_retrans &&
		   world.now_ns - h->last_ack_ns > INFERRED_NS &&
		   excess_since(e, h->begin_ns) > INFERRED_NS + MS &&
		   h->last_in_flight < 2 * h->mss && !e->talk->hostile &&
		   !(truth.netns && sock_of(e)->sk_lock.owned); /* the ACK may have waited for that */
	h->felt_clean = has_to_be_felt(e, h);
}

/* Shows a stall that no record reported, if the run asks for that. */
static void judge_missed(struct endpoint *e, const struct true_hold *h)
{
	if (!truth.show_missed || !h->clean || h->told)
		return;
	fprintf(stderr, "missed: number %u client %d, now %llu us: cause %u pattern %u since %llu us\n",
		e->talk->number, e->client, (unsigned long long)h->end_ns / 1000, h->cause, h->pattern,
		(unsigned long long)h->begin_ns / 1000);
}

static void truth_keep(struct endpoint *e, const struct true_hold *h)
{
	struct true_hold *place = &e->held[e->n_held++ % HOLDS_KEPT];

	judge_missed(e, place);
	*place = *h;
	truth.long_holds += truth_visible(e) && h->end_ns - h->begin_ns >= truth.least_ns;
}

static void truth_end(struct endpoint *e, enum caller caller)
{
	struct true_hold *h = &e->hold;

	h->releases = truth_releases(e, caller);
	if (h->probe_announced)
		h->releases |= WORD(LOSS_PROBE);
	h->unprobed = sock_of(e)->__sk_common.skc_state != TCP_ESTABLISHED;
	h->way_us = waits_for(h) ? (prompt_ns(e, h->begin_ns) - h->begin_ns) / US : 0;
	memset(&h->late, 0, sizeof(h->late));
	if (caller == CALLER_ACK && e->came) {
		h->late = e->came->late;
		h->late_locked = e->came->locked;
		h->late_pingpong = e->came->late_pingpong;
	}
	judge(e, caller);
	if (h->cause && world.now_ns - h->begin_ns >= truth.least_ns) {
		e->stalled = true;
		e->stalled_rcv_nxt = h->rcv_nxt;
	}
	if (h->felt && h->reason == NT_HOLD_CWND)
		e->cwnd_felt_ns = e->came->sent_ns;
	h->end_ns = world.now_ns;
	h->ack_sent_ns = e->came ? e->came->sent_ns : 0;
	truth_count(e, h, h->end_ns);
	truth.stalls[h->cause]++;
	truth.clean += h->clean;
	truth.blurred += h->blurred && h->cause;
	truth.felt_clean += h->felt_clean;
	h->active = h->told = h->shown = false;
	if (may_stall(h))
		truth_keep(e, h);
}

/* Notes that a tail is held for this reason; since since_ns, if the reason is new. */
static void truth_hold_for(struct endpoint *e, u8 reason, u64 since_ns)
{
	struct true_hold *h = &e->hold;
	bool goes_on = h->active;
	u8 before = h->reason;

	/* Nagle goes on to hold what it held, until the small segment is acknowledged */
	if (h->active && h->reason == NT_HOLD_NAGLE && h->seq == e->tp.snd_nxt && small_one_is_out(e) &&
	    (reason == NT_HOLD_CORK || reason == NT_HOLD_MSG_MORE))
		reason = NT_HOLD_NAGLE;
	if (!h->active || h->seq != e->tp.snd_nxt ||
	    (!may_stall(h) && h->reason != NT_HOLD_AUTOCORK))
		h->since_ns = since_ns;
	if (!h->active || h->seq != e->tp.snd_nxt)
		h->probe_announced = false;
	if (!h->active)
		h->any_writes = false;
	if (h->active && (h->reason != reason || (!may_stall(h) && lone(reason, e->tp.snd_nxt - e->tp.snd_una, e->tp.mss_cache)))) {
		h->any_writes |= !may_stall(h);
		truth_count(e, h, since_ns);
		h->active = false;
	}
	if (!h->active)
		truth_begin(e, reason, goes_on ? before : 0, since_ns);
	if (h->seq != e->tp.snd_nxt) {
		h->seq = e->tp.snd_nxt;
		if (!goes_on || h->writes != 1 || h->end_seq != e->tp.write_seq)
			h->writes = h->write_bytes = h->written = 0;
	}
	h->end_seq = e->tp.write_seq;
}

/* Notes the end of an attempt to send: the held bytes went out, or are held (on) for this
 * reason. */
static void truth_attempt(struct endpoint *e, enum caller caller, enum nt_hold_reason why)
{
	struct true_hold *h = &e->hold;
	bool tail = e->tp.write_seq != e->tp.snd_nxt;
	u64 since = world.now_ns;

	TRACE(e, "attempt by %d, left for %d; hold %d for %d from %u", caller, why, h->active, h->reason,
	      h->seq);
	if (h->active && (s32)(e->tp.snd_nxt - h->seq) > 0 && (may_stall(h) || !tail))
		truth_end(e, caller);
	if (!tail || !why)
		return;
	if (h->active && h->reason == NT_HOLD_PACING && h->reason != why &&
	    h->seq == e->tp.snd_nxt && e->tp.tcp_wstamp_ns > h->begin_ns &&
	    e->tp.tcp_wstamp_ns < since)
		since = e->tp.tcp_wstamp_ns; /* pacing ended then */
	truth_hold_for(e, why, since);
}

static void truth_wrote(struct endpoint *e, u32 copied)
{
	TRACE(e, "a write ends, nonagle %u", e->tp.nonagle);
	e->wrote = true;
	truth.writes += truth_counted(e);
	if (e->tp.write_seq == e->tp.snd_nxt || !e->hold.active)
		return;
	if (!e->hold.writes++)
		e->hold.write_bytes = copied;
	else if (e->hold.write_bytes != copied)
		e->hold.write_bytes = 0;
	e->hold.written += copied;
	e->hold.end_seq = e->tp.write_seq;
}

/*
 * Notes a write that made no attempt, since the device still has segments of this socket. Nagle or
 * a cork goes on to hold what it held, from now on with the writer's cork or MSG_MORE; the rest
 * waits for the device.
 */
static void truth_autocorked(struct endpoint *e, bool more)
{
	bool small = e->tp.write_seq - e->tp.snd_nxt < e->tp.mss_cache;
	struct true_hold *h = &e->hold;
	u8 reason = NT_HOLD_AUTOCORK;

	if (h->active && small && h->reason == NT_HOLD_NAGLE)
		reason = e->tp.nonagle & NT_NAGLE_CORK ? NT_HOLD_CORK
			 : more		       ? NT_HOLD_MSG_MORE
						       : NT_HOLD_NAGLE;
	else if (h->active && small && h->reason == NT_HOLD_CORK)
		reason = NT_HOLD_CORK;
	else if (h->active && h->reason == NT_HOLD_CWND && may_stall(h))
		reason = NT_HOLD_CWND;
	/* the tail has outgrown the window, or loss has shrunk the congestion window */
	if (stallable(reason) && (s32)(e->tp.write_seq - tcp_wnd_end(e)) > 0)
		reason = NT_HOLD_RWND;
	if (stallable(reason) && tcp_packets_in_flight(e) >= e->tp.snd_cwnd)
		reason = NT_HOLD_CWND;
	if (stallable(reason) && e->pacing_rate && e->tp.tcp_wstamp_ns > world.now_ns)
		reason = NT_HOLD_PACING;
	if (stallable(reason) && e->tp.nonagle & NT_NAGLE_PUSH) /* TCP_NODELAY was set on the cork */
		reason = NT_HOLD_TSQ;
	TRACE(e, "autocorked, held for %u", reason);
	if (h->active && h->reason == reason)
		return;
	truth_hold_for(e, reason, world.now_ns);
}

static void truth_closed(struct endpoint *e)
{
	struct true_hold *h = &e->hold;

	if (h->active && e->tp.write_seq != e->tp.snd_nxt) {
		h->releases = WORD(RESET);
		memset(&h->late, 0, sizeof(h->late));
		h->end_ns = world.now_ns;
		h->cause = h->pattern = 0;
		h->clean = h->told = h->shown = h->nearly = h->in_doubt = h->felt = h->felt_clean = h->blurred = false;
		truth_count(e, h, h->end_ns);
		if (may_stall(h))
			truth_keep(e, h);
	}
	h->active = false;
	e->ack_pending = false;
}

/* ---- pending ACKs ---- */

static void truth_ack_pending(struct endpoint *e)
{
	TRACE(e, "the ACK is delayed");
	if (!e->ack_pending || e->received_ns == world.now_ns)
		e->ack_pending_ns = world.now_ns;
	if (e->ack_pending) {
		e->came_pending++;
		return;
	}
	e->ack_pending = true;
	e->ack_by_timer = e->ack_locked = false;
	e->ack_pingpong = ack_pingpong(e);
	e->came_pending = 1;
	if (ack_limit_ns(e) < TCP_DELACK_MIN_NS)
		e->ack_why = NT_ACK_REASON_DELACK_MAX;
	else if (!ack_pingpong(e))
		e->ack_why = NT_ACK_REASON_QUICK_EXHAUSTED;
	else
		e->ack_why = e->sent_data ? NT_ACK_REASON_PINGPONG : NT_ACK_REASON_QUICKACK_OFF;
}

/* Notes that a timer expired while the application has the socket. The timer waits, and may find
 * nothing to do then. */
static void truth_timer_deferred(struct endpoint *e)
{
	if (e->tp.inet_conn.icsk_pending == ICSK_TIME_LOSS_PROBE)
		e->hold.probe_announced = true;
}

static void truth_timer_sends(struct endpoint *e)
{
	e->ack_by_timer = true;
	e->ack_locked = sock_of(e)->sk_lock.owned;
}

static void truth_transmits(struct endpoint *e, struct wire *w)
{
	enum nt_ack_release end = NT_ACK_SEGMENT;

	w->sent_ns = world.now_ns;
	e->sent_data |= !!w->len;
	if (!e->ack_pending)
		return;
	w->lateness = e->ack_by_timer ? ACK_BY_TIMER : ACK_BY_OTHERS;
	w->locked = e->ack_locked;
	if (w->len || w->flags & TCPHDR_FIN || w->seq != e->tp.snd_nxt)
		end = NT_ACK_PIGGYBACK;
	else if (e->ack_by_timer)
		end = NT_ACK_TIMER;
	else if (e->tp.copied_seq == e->tp.rcv_nxt)
		end = NT_ACK_READ;
	if (e->ack_why == NT_ACK_REASON_QUICK_EXHAUSTED && e->tp.copied_seq != e->tp.rcv_nxt &&
	    (s32)(e->tp.copied_seq - e->tp.rcv_wup) > 0)
		e->ack_why = NT_ACK_REASON_LEFT_UNREAD;
	w->late = (struct nt_ack_part){
		.begin_ns = max_u64(e->ack_pending_ns, e->received_ns),
		.end_ns = world.now_ns,
		.bytes = e->tp.rcv_nxt - e->tp.rcv_wup,
		.release = end,
		.reason = e->ack_why,
	};
	w->late_pingpong = e->ack_pingpong;
	w->late_deferred = e->ack_timer.deferred;
	w->late_lone = e->came_pending == 1;
	truth.delayed_acks += end == NT_ACK_TIMER && truth_counted(e);
	e->ack_pending = false;
}

/* ---- what a segment does ---- */

/* Handles pacing that ended while its timer found the socket in use: until this segment, the bytes
 * were held for the reason that an attempt would have met. */
static void truth_pacing_over(struct endpoint *e, const struct wire *w)
{
	struct packet *head = tcp_send_head(e);
	u64 wstamp = e->tp.tcp_wstamp_ns, clock = e->tp.tcp_clock_cache;
	enum nt_hold_reason why;
	u32 quota;

	if ((s32)(w->ack - e->tp.snd_una) <= 0 || tcp_validate(e, w) != SEGMENT_TAKEN)
		return;
	if (!e->hold.active || e->hold.reason != NT_HOLD_PACING || !head ||
	    e->hold.seq != e->tp.snd_nxt || wstamp <= clock || wstamp > world.now_ns ||
	    e->tp.write_seq - e->tp.snd_nxt >= e->tp.mss_cache)
		return;
	e->tp.tcp_clock_cache = wstamp;
	why = send_test(e, head, e->tp.mss_cache, e->tp.nonagle, 0, &quota);
	if (why)
		truth_attempt(e, CALLER_DEVICE, why);
	e->tp.tcp_clock_cache = clock;
}

static void truth_segment_came(struct endpoint *e, const struct wire *w)
{
	TRACE(e, "segment %u to %u ack %u window %u, lateness %d", w->seq, w->end_seq, w->ack,
	      w->window, w->lateness);
	e->came = w;
	e->hold.recovered |= (s32)(w->ack - e->tp.snd_una) > 0 && tcp_recovers(e);
	e->una_before = e->tp.snd_una;
}

static void truth_segment_done(struct endpoint *e)
{
	e->came = NULL;
	if (e->hold.active && e->tp.snd_una != e->una_before) {
		e->hold.last_ack_ns = world.now_ns;
		e->hold.last_in_flight = e->tp.snd_nxt - e->tp.snd_una;
	}
}
