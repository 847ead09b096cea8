/* SPDX-License-Identifier: GPL-2.0 */
/* Compares what the programs reported with the truth. */
#pragma once

#include "talk.h"

#define RECORDS 64

/* The comparison takes these parts of a record one by one. */
enum part {
	PART_BEGIN,
	PART_END,
	PART_SIZE,   /* bytes, those in flight, mss */
	PART_WRITES, /* and the writer */
	PART_WORDS,  /* reason, release, cause, pattern, evidence */
	PART_ACK,    /* whether the receiver's ACK was late, and its details */
	PARTS,
};

static const char *const part_names[] = {"begin", "end", "size", "writes", "words", "ACK"};

static struct {
	enum family family;
	bool exact;   /* function hooks see everything: compare each hold */
	bool one_end; /* the other end is not seen */
	u64 records, false_stalls, told, told_clean, contradicted;
	u64 stalls[NT_CAUSES], releases[NT_RELEASES]; /* counted over the records */
	u64 holds_told, holds_unknown;                /* stallable holds; holds that never were */
	u64 compared, unlike[PARTS];
	u64 one_way, one_way_told;
	u64 felt_told, felt_unlike;
} run;

static struct nt_record told[RECORDS];
static u32 n_told;

static void on_record(const void *record)
{
	assert_true(n_told < RECORDS);
	memcpy(&told[n_told++], record, sizeof(told[0]));
}

static void truth_attempt_seen(struct endpoint *e, enum nt_hold_reason why)
{
	struct tcp t = tcp_of(sock_of(e), true);
	struct hold *h;

	if (!run.exact || !why || e->tp.write_seq - e->tp.snd_nxt >= e->tp.mss_cache)
		return;
	h = hold_find(&t, true);
	if (!h || h->held.reason != e->hold.reason || h->held.end_seq != e->tp.write_seq)
		fail_msg("a tail is held for reason %u, told as %u", e->hold.reason, h ? h->held.reason : 0);
}

static struct endpoint *endpoint_of(u64 sk)
{
	return (struct endpoint *)(uintptr_t)sk;
}

static void show_hold(const struct true_hold *h)
{
	fprintf(stderr,
		"true: cause %u pattern %u clean %d felt %d reason %u releases %#x, %llu to %llu us, bytes %u in flight %u writes %u mss %u, ack %llu to %llu us end %u why %u bytes %u\n",
		h->cause, h->pattern, h->clean, h->felt, h->reason, h->releases, (unsigned long long)h->begin_ns / 1000,
		(unsigned long long)h->end_ns / 1000, h->end_seq - h->seq, h->in_flight, h->writes, h->mss,
		(unsigned long long)h->late.begin_ns / 1000, (unsigned long long)h->late.end_ns / 1000,
		h->late.release, h->late.reason, h->late.bytes);
}

static void show(const struct nt_record *r, const struct endpoint *e)
{
	fprintf(stderr,
		"told: cause %u pattern %u evidence %u reason %u release %u, %llu to %llu us, bytes %u in flight %u writes %u mss %u, ack %llu to %llu us end %u why %u bytes %u\n",
		r->cause, r->pattern, r->evidence, r->hold.reason, r->hold.release,
		(unsigned long long)r->hold.begin_ns / 1000, (unsigned long long)r->hold.end_ns / 1000,
		r->hold.bytes, r->hold.in_flight_bytes, r->hold.writes, r->hold.mss,
		(unsigned long long)r->ack.begin_ns / 1000, (unsigned long long)r->ack.end_ns / 1000,
		r->ack.release, r->ack.reason, r->ack.bytes);
	for (u32 i = e->n_held > 4 ? e->n_held - 4 : 0; i < e->n_held; i++)
		show_hold(&e->held[i % HOLDS_KEPT]);
	fprintf(stderr, "number %u client %d, now %llu us, min rtt %u us, one way %llu us, loss %u, chatty %d, hostile %d, reader slow %d, state %u\n",
		e->talk->number, e->client, (unsigned long long)world.now_ns / 1000, e->tp.rtt_min.s[0].v,
		(unsigned long long)e->talk->one_way_ns / 1000, e->talk->loss,
		e->talk->chatty, e->talk->hostile, e->talk->slow_reader,
		e->tp.inet_conn.icsk_inet.sk.__sk_common.skc_state);
}

/* Finds the true stall that a record reports: their ends agree, and the record's is no longer. */
static struct true_hold *stall_told(struct endpoint *e, const struct nt_record *r)
{
	u64 slack = world.tick_ns + MS;

	for (u32 i = e->n_held; i && i + HOLDS_KEPT > e->n_held; i--) {
		struct true_hold *h = &e->held[(i - 1) % HOLDS_KEPT];

		if (h->told || (h->cause != r->cause && !h->blurred && !(h->in_doubt && (hooks.skip || hooks.family == TRACEPOINT)) &&
				!(h->nearly && r->evidence == NT_EVIDENCE_INFERRED)))
			continue;
		/* with skipped programs, begin and end are only known once something shows them:
		 * the record has the same ACK, or the same timer */
		if (hooks.skip && r->receiver.present &&
		    apart(h->ack_sent_ns, r->ack.end_ns) <= world.tick_ns)
			return h;
		if (hooks.skip && r->hold.end_ns > h->end_ns && r->hold.begin_ns + slack >= h->since_ns &&
		    r->hold.begin_ns < h->end_ns && r->hold.end_ns - h->end_ns < 40 * MS)
			return h;
		if (apart(h->end_ns, r->hold.end_ns) <= slack &&
		    (hooks.skip ? h->cause == NT_CAUSE_CORK_CEILING ||
					  r->hold.begin_ns + slack >= h->since_ns
				: r->hold.begin_ns + slack >= h->since_ns))
			return h;
	}
	return NULL;
}

static struct true_hold *stall_felt(struct endpoint *e, const struct nt_record *r)
{
	for (u32 i = e->n_held; i && i + HOLDS_KEPT > e->n_held; i--) {
		struct true_hold *h = &e->held[(i - 1) % HOLDS_KEPT];

		if (h->felt && apart(h->ack_sent_ns, r->ack.end_ns) <= world.tick_ns)
			return h;
	}
	return NULL;
}

/* Finds the true hold that a record of a mere hold reports: the one with the nearest times. */
static struct true_hold *hold_told(struct endpoint *e, const struct nt_record *r)
{
	struct true_hold *best = NULL;
	u64 least = world.tick_ns + MS;

	for (u32 i = e->n_held; i && i + HOLDS_KEPT > e->n_held; i--) {
		struct true_hold *h = &e->held[(i - 1) % HOLDS_KEPT];
		u64 off = min_u64(apart(h->begin_ns, r->hold.begin_ns), apart(h->end_ns, r->hold.end_ns));

		if (h->shown || h->reason != r->hold.reason || off >= least)
			continue;
		least = off;
		best = h;
	}
	return best;
}

/* A read moves the receiver's clock, and the time is known to a jiffy then. */
static bool ack_began_alike(const struct nt_ack_part *is, const struct nt_ack_part *was)
{
	return is->begin_ns + world.tick_ns >= was->begin_ns && is->begin_ns <= was->begin_ns + 2 * world.tick_ns;
}

static bool ack_is_alike(const struct endpoint *e, const struct true_hold *h,
			 const struct nt_record *r)
{
	/* says whether the programs remember the ACK, and join it: hold_join() */
	bool by_others = h->late.release == NT_ACK_READ || h->late.release == NT_ACK_SEGMENT;
	u64 pending_ns = h->late.end_ns - h->late.begin_ns;
	bool joined = waits_for(h) && r->hold.release == NT_RELEASE_ACK &&
		      (h->late.release == NT_ACK_TIMER || (by_others && pending_ns >= LATE_ACK_NS)) &&
		      h->late.end_ns >= h->begin_ns && !run.one_end;

	/* the programs cannot distinguish a lost late ACK from its retransmission */
	if (r->receiver.present && !joined && e->talk->loss)
		return true;
	/* nor find its numbers where tcp_probe did not show it, and segments of the peer were lost */
	if (!r->receiver.present && joined && h->unprobed && e->talk->loss)
		return true;
	if (!r->receiver.present && by_others && pending_ns < LATE_ACK_NS + 2 * world.tick_ns)
		return true;
	if (r->receiver.present != joined)
		return false;
	return !joined ||
	       (ack_began_alike(&r->ack, &h->late) && h->late.end_ns == r->ack.end_ns &&
		h->late.bytes == r->ack.bytes && h->late.release == r->ack.release && h->late.reason == r->ack.reason &&
		h->late_locked == !!r->receiver.locked && h->late_pingpong == r->receiver.pingpong);
}

static bool writer_is_alike(const struct endpoint *e, const struct true_hold *h, const struct nt_record *r)
{
	const struct task_struct *task = task_of(e);
	u32 writes = writes_known(h);

	if (h->any_writes || !may_stall(h) || h->reason == NT_HOLD_CWND)
		return true;
	if (writes != r->hold.writes || (writes && h->write_bytes != r->hold.write_bytes))
		return false;
	return !h->writes ||
	       (r->sender.tgid == task->tgid && r->sender.tid == task->pid &&
		!strcmp(r->sender.comm, task->comm) && r->sender.target == (truth.target && e->client) &&
		(r->hold.stack_id != NT_NO_STACK) == nt_config.stacks);
}

/*
 * Another socket of its bucket may have stalled since, so that a one-way stall is told by its writes
 * alone; and those tell nothing where their number is not known.
 */
static bool pattern_is_alike(const struct true_hold *h, const struct nt_record *r)
{
	run.one_way += h->pattern == NT_PATTERN_ONE_WAY;
	run.one_way_told += h->pattern == NT_PATTERN_ONE_WAY && r->pattern == NT_PATTERN_ONE_WAY;
	return h->pattern == r->pattern ||
	       (h->pattern_alone && (r->pattern == h->pattern_alone ||
				     (!r->hold.writes && r->pattern == NT_PATTERN_WRITE_WRITE_READ)));
}

static bool part_is_alike(const struct endpoint *e, const struct true_hold *h, const struct nt_record *r,
			  enum part part)
{
	switch (part) {
	case PART_BEGIN:
		return h->begin_ns == r->hold.begin_ns;
	case PART_END:
		return h->end_ns == r->hold.end_ns && r->time_ns == r->hold.end_ns &&
		       (!run.exact || r->hold.way_us == (r->hold.release == NT_RELEASE_ACK ? h->way_us : 0));
	case PART_SIZE:
		return h->end_seq - h->seq == r->hold.bytes && h->in_flight == r->hold.in_flight_bytes &&
		       h->mss == r->hold.mss;
	case PART_WRITES:
		return writer_is_alike(e, h, r);
	case PART_WORDS:
		if (h->unprobed && !r->cause)
			return h->reason == r->hold.reason && h->releases & 1U << r->hold.release;
		return h->reason == r->hold.reason && h->releases & 1U << r->hold.release &&
		       (h->blurred || (h->cause == r->cause && pattern_is_alike(h, r))) &&
		       (run.one_end || h->blurred || r->evidence == (h->cause ? NT_EVIDENCE_SEEN : 0));
	default:
		return ack_is_alike(e, h, r);
	}
}

/* Counts the parts in which a record differs from the truth. Returns true if there are none. */
static bool compare(const struct endpoint *e, const struct true_hold *h, const struct nt_record *r)
{
	bool alike = true;

	run.compared++;
	for (enum part part = 0; part < PARTS; part++) {
		if (part_is_alike(e, h, r, part))
			continue;
		run.unlike[part]++;
		alike = false;
		TRACE(e, "%s is told otherwise", part_names[part]);
	}
	return alike;
}

static void tell(struct true_hold *h)
{
	h->told = true;
	run.holds_told++;
	run.told += !!h->cause;
	run.told_clean += h->clean;
}

/* Says whether a record must report this hold: only stalls, or every hold that lasted. */
static bool to_be_told(const struct true_hold *h)
{
	return h->end_ns - h->begin_ns >= truth.least_ns && (nt_config.all_holds || h->cause);
}

static void check_exactly(struct endpoint *e, const struct nt_record *r)
{
	struct true_hold *h;

	do {
		h = &e->held[e->n_told++ % HOLDS_KEPT];
	} while (e->n_told <= e->n_held && !to_be_told(h) && !(h->blurred && h->end_ns == r->hold.end_ns));
	if (e->n_told > e->n_held || !compare(e, h, r)) {
		show(r, e);
		show_hold(h);
		for (enum part part = 0; part < PARTS; part++)
			if (run.unlike[part])
				fprintf(stderr, "%s is told otherwise\n", part_names[part]);
		fail_msg("a hold is told otherwise than it was");
	}
	tell(h);
}

/* Checks a record from the receiver's end alone, about data that its late ACK released. */
static void check_felt(struct endpoint *e, const struct nt_record *r)
{
	struct endpoint *sender = e->peer;
	struct true_hold *h;

	/* its sender had nothing unsent as the ACK came: user space takes it back */
	if (r->ack.freed_nothing) {
		if (stall_felt(sender, r) && !run.false_stalls++)
			show(r, sender);
		return;
	}
	/* if the other end is on this host, user space decides: peer_contradicts() */
	if (!run.one_end) {
		run.contradicted++;
		return;
	}
	/* after a loss the peer's congestion window may be one; seen from here, that, too, sends
	 * one segment at a time, and a late ACK releases the next */
	if (sender->cwnd_felt_ns && apart(sender->cwnd_felt_ns, r->ack.end_ns) <= world.tick_ns)
		return;
	/* data that was written during a retransmission comes by chance */
	if (sender->again_ns && sender->again_ns + SECOND > r->ack.end_ns)
		return;
	/* if all round trips that it measured were longer, it cannot know which answer came
	 * in time */
	if (least_rtt_ns(e) > 4 * (e->talk->one_way_ns + e->talk->jitter_ns) + 4 * MS)
		return;
	h = stall_felt(sender, r);
	if (!h) {
		if (!run.false_stalls++)
			show(r, sender);
		return;
	}
	run.told += !!h->cause;
	run.felt_told += h->felt_clean;
	run.felt_unlike += h->felt_clean &&
			   (!ack_began_alike(&r->ack, &h->late) || h->late.end_ns != r->ack.end_ns ||
			    h->late.bytes != r->ack.bytes || h->late.release != r->ack.release ||
			    h->late.reason != r->ack.reason || !r->receiver.pingpong ||
			    r->pattern != NT_PATTERN_PEER_HOLDS);
}

static void check_stall(struct endpoint *e, const struct nt_record *r)
{
	struct true_hold *h = stall_told(e, r);

	if (!h) {
		if (!run.false_stalls++)
			show(r, e);
		return;
	}
	compare(e, h, r);
	tell(h);
}

static void check_hold(struct endpoint *e, const struct nt_record *r)
{
	struct true_hold *h = hold_told(e, r);

	run.holds_told++;
	if (!h) {
		run.holds_unknown++;
		TRACE(e, "a hold is told that never was");
		return;
	}
	compare(e, h, r);
	h->shown = true;
}

static void check_record(const struct nt_record *r)
{
	bool from_sender = r->sender.present;
	struct endpoint *e = endpoint_of(from_sender ? r->sender.sk : r->receiver.sk);

	TRACE(e, "told: kind %u cause %u evidence %u reason %u release %u since %llu us", r->kind,
	      r->cause, r->evidence, r->hold.reason, r->hold.release,
	      (unsigned long long)r->hold.begin_ns / 1000);
	run.records++;
	run.stalls[r->cause]++;
	run.releases[r->hold.release]++;
	assert_int_equal(r->kind, r->cause ? NT_RECORD_STALL : NT_RECORD_HOLD);
	if (!from_sender)
		check_felt(e, r);
	else if (!stallable(r->hold.reason) && !lone(r->hold.reason, r->hold.in_flight_bytes, r->hold.mss))
		assert_int_equal(r->cause, 0);
	else if (run.exact)
		check_exactly(e, r);
	else if (r->cause)
		check_stall(e, r);
	else
		check_hold(e, r);
}

/* Checks all that an event made the programs report. */
static void check_told(struct endpoint *e)
{
	for (u32 i = 0; i < n_told; i++)
		check_record(&told[i]);
	n_told = 0;
	if (!run.exact)
		return;
	for (; e->n_told < e->n_held && !e->reset; e->n_told++) {
		struct true_hold *h = &e->held[e->n_told % HOLDS_KEPT];

		if (to_be_told(h) && !(h->blurred && !nt_config.all_holds)) {
			show_hold(h);
			fail_msg("number %u, now %llu us: a hold is not told", e->talk->number,
				 (unsigned long long)world.now_ns / 1000);
		}
	}
}
