/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The sender's state machine: a hold begins when an attempt to send leaves a tail behind, grows as
 * the application writes more, and is over when the tail goes out.
 *
 * A hold whose reason makes no stall (the windows, pacing, the device) is mostly a bulk transfer's,
 * where every ACK releases some bytes and leaves others. It is one hold as long as there is a tail.
 * A small congestion window can make a stall: the receiver may delay the ACK of what is in flight.
 * While that tail is large, a look at it follows only LARGE_TAIL_NS after the last one; where no
 * hook shows attempts, segments cause one look in a jiffy, and the others take no look into a map
 * (bucket.h).
 */
#pragma once

#include "bucket.h"
#include "filter.h"
#include "record.h"
#include "release.h"
#include "scratch.h"
#include "slow.h"
#include "user_stack.h"
#include "tell_events.h"

/* What carried an ACK: a segment by itself, or one with data; or nobody is sure of either. */
enum ack_kind {
	ACK_UNSURE,
	ACK_PURE,
	ACK_ON_DATA,
};

/* What is in flight as bytes are held: one write; or the rest of more, which was held or which the
 * peer has acknowledged a part of; or nobody is sure of either. */
enum flight_kind {
	FLIGHT_UNSURE,
	FLIGHT_ONE_WRITE,
	FLIGHT_REST,
};

struct hold {
	u64 sk; /* set last of all: until then an interrupt finds no hold */
	struct nt_held held;
	u32 in_flight_bytes;
	u32 total_retrans; /* when it began, as the next one */
	u32 rcv_nxt;
	u32 writes;
	u32 write_bytes; /* of each of them; 0: they are not alike */
	u32 written;     /* of them all */
	s32 age_us;      /* flight_age_us() when it began */
	struct nt_stack_key stack;
	u64 begin_ns;
	u64 looked_ns;
	u64 ack_ns;       /* when the last ACK that moved the window came, or it began */
	u64 silent_ns;    /* between the ACK before that one, or the start, and that one */
	u32 silent_bytes; /* in flight during silent_ns */
	u32 flight_bytes; /* in flight after that ACK, or when it began */
	u32 ack;          /* what that ACK acknowledged, and its sequence number */
	u32 ack_seq;
	u32 wrote_us;    /* when the last write returned, or it began; the low 32 bits */
	u32 unlocked_us; /* when no program had the socket locked, the last time known */
	u16 bucket;
	u8 ack_kind; /* enum ack_kind */
	bool ack_seen;
	u8 flight;            /* enum flight_kind, at the first write that a program saw */
	bool kernels;         /* the kernel itself uses the socket, and the writer is its part */
	bool handshake;       /* it began in the handshake: nt_in_handshake() */
	bool recovered;       /* from loss, when an ACK came: the last ACK of a recovery hides it */
	struct writer writer; /* tgid 0: no program saw a write yet */
};

/* A hold that is over. The facts stand here, since the stack of hold_judge() has no room. */
struct ended_hold {
	struct hold hold;
	struct nt_stall_facts facts;
};

_Static_assert(sizeof(struct ended_hold) <= SCRATCH_BYTES, "a hold fits the scratch");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct hold);
} hold_hash SEC(".maps");

static const struct hold no_hold;

#define LARGE_TAIL_NS 1000000ULL

static __always_inline struct hold *hold_entry(struct sock *sk)
{
	u64 key = (u64)sk;

	return bpf_map_lookup_elem(&hold_hash, &key);
}

static __always_inline struct hold *hold_find(const struct tcp *t, const bool trusted)
{
	u32 bucket = bucket_index(t->sk, trusted);
	struct hold *h = NULL;

	if (buckets[bucket].holds)
		h = hold_entry(t->sk);
	/* another bucket's is left of a connection that connect(2) with AF_UNSPEC dissolved */
	if (h && (h->sk != (u64)t->sk || h->bucket != bucket))
		h = NULL;
	/* makes callers ask the pointer itself, which is what the verifier follows */
	barrier_var(h);
	return h;
}

/*
 * Makes an entry for a hold that is about to begin, or finds one that another program is about to
 * fill, on another CPU or interrupted by this one. That program may delete the entry first, so the
 * bucket counts it before it is there. NULL: no room, counted as dropped; or the other program was
 * faster, and begins the hold.
 */
static __always_inline struct hold *hold_new(const struct tcp *t, const bool trusted)
{
	u32 bucket = bucket_index(t->sk, trusted);
	struct sock *sk = t->sk;
	struct hold *h = hold_entry(sk);
	u64 key = (u64)sk;
	long err;

	if (h) {
		if (h->sk == (u64)sk && h->bucket == bucket)
			return h;
		if (h->sk == (u64)sk) {
			__sync_fetch_and_add(&buckets[h->bucket % BUCKETS].holds, -1);
			__sync_fetch_and_add(&buckets[bucket].holds, 1);
		}
		__builtin_memset(h, 0, sizeof(*h));
		h->bucket = bucket;
		return h;
	}
	__sync_fetch_and_add(&buckets[bucket].holds, 1);
	err = bpf_map_update_elem(&hold_hash, &key, &no_hold, BPF_NOEXIST);
	if (!err)
		h = bpf_map_lookup_elem(&hold_hash, &key);
	if (err) {
		__sync_fetch_and_add(&buckets[bucket].holds, -1);
		if (err != -EEXIST)
			count_dropped(NT_DROPPED_HOLD_MAP);
	}
	if (h)
		h->bucket = bucket;
	return h;
}

/* Returns false if another program did it first, as one of a softirq that came in between. */
static __always_inline bool hold_delete(struct sock *sk)
{
	u32 bucket = bucket_index(sk, false);
	u64 key = (u64)sk;
	long err = bpf_map_delete_elem(&hold_hash, &key);

	if (!err)
		__sync_fetch_and_add(&buckets[bucket].holds, -1);
	return err != -ENOENT;
}

/*
 * Counts a hold's time under its reason, unless the totals leave the socket out. sk: the socket, or
 * 0 where a process asked for wrote the bytes, so that they count. This is a global function: the
 * verifier follows it once, and not at each place that calls it.
 */
__noinline int hold_count(u64 sk, u32 reason, u32 release, u64 begin_ns, u64 end_ns)
{
	struct nt_totals *totals = totals_here();

	if (!totals || (sk && !socket_counts((void *)sk, false)))
		return 0;
	count_in(totals->holds, reason, NT_HOLD_REASONS, 1);
	count_in(totals->hold_ns, reason, NT_HOLD_REASONS, duration_ns(begin_ns, end_ns));
	count_in(totals->releases, release, NT_RELEASES, 1);
	return 0;
}

/* Returns the socket for hold_count(). */
static __always_inline u64 hold_owner(const struct hold *h)
{
	return h->writer.target ? 0 : h->sk;
}

/*
 * Is there loss, or a hole that the peer reports? Either explains any delay. icsk_ca_state is 3 or
 * more in Recovery and in Loss (enum tcp_ca_state).
 */
static __always_inline bool tcp_recovering(const struct tcp *t)
{
	return PROBED(t->tp, retrans_out) || PROBED(t->tp, lost_out) || PROBED(t->tp, sacked_out) ||
	       PROBED_BITS(&t->tp->inet_conn, icsk_ca_state) >= 3;
}

static __always_inline bool hold_may_stall(const struct hold *h)
{
	return nt_may_stall(h->held.reason, h->held.lone);
}

/* Does the next ACK that moves the window release these bytes? No ACK opens a cork. */
static __always_inline bool waits_for_ack(const struct hold *h)
{
	return h->held.reason != NT_HOLD_CORK && hold_may_stall(h);
}

/* Collects the facts of a hold that is over. la: the late ACK that released it, or NULL. */
static __always_inline void hold_facts(struct nt_stall_facts *f, const struct hold *h,
				       const struct tcp *t, enum nt_release release,
				       u64 released_ns, struct late_ack *la)
{
	u32 bytes = h->held.end_seq - h->held.seq;
	u64 blur_ns;

	__builtin_memset(f, 0, sizeof(*f));
	f->duration_ns = duration_ns(h->begin_ns, released_ns);
	f->silent_ns = h->silent_ns;
	f->silent_bytes = h->silent_bytes;
	if (release == NT_RELEASE_ACK && waits_for_ack(h))
		f->way_us = nt_way_us(tcp_min_rtt_us(t), h->age_us);
	f->delack_limit_ns = tcp_delack_limit_ns(t);
	f->in_flight_bytes = h->in_flight_bytes;
	f->mss = h->held.mss;
	f->handshake = h->handshake;
	/* else a write went unseen, or of the first of several a part is held */
	if (h->written == bytes || (h->writes == 1 && h->written > bytes))
		f->writes = h->writes;
	f->rest = h->flight == FLIGHT_REST || (f->writes == 1 && h->written > bytes);
	f->reason = h->held.reason;
	f->release = release;
	f->pure_ack = h->ack_kind == ACK_PURE;
	f->ack_with_data = h->ack_kind == ACK_ON_DATA;
	f->recovering = h->recovered || tcp_recovering(t) ||
			PROBED(t->tp, total_retrans) != h->total_retrans;
	f->nodelay = PROBED_BITS(t->tp, nonagle) & NT_NAGLE_OFF;
	if (la) {
		f->late_release = la->part.release;
		f->pending_ns = duration_ns(la->part.begin_ns, la->part.end_ns);
		/* it may have been pending for longer: pending_ack_began() */
		blur_ns = la->part.release == NT_ACK_TIMER ? 0 : 2 * nt_config.tick_ns;
		f->pending_in_hold_ns = duration_ns(h->begin_ns, la->part.end_ns);
		if (f->pending_in_hold_ns > f->pending_ns + blur_ns)
			f->pending_in_hold_ns = f->pending_ns + blur_ns;
		f->blurred = f->pending_ns < nt_late_limit_ns(f) &&
			     f->pending_ns + blur_ns >= nt_late_limit_ns(f);
		f->locked = la->end.locked;
	}
}

static __always_inline void hold_report(const struct hold *h, const struct tcp *t,
					const struct nt_stall_facts *f, enum nt_cause cause,
					enum nt_evidence evidence, u64 released_ns,
					const struct late_ack *la)
{
	struct nt_record *r =
		record_new(cause ? NT_RECORD_STALL : NT_RECORD_HOLD, t->sk, la ? la->end.share : 0);

	if (!r)
		return;
	if (la) { /* first: the verifier would follow all that comes after with and without one */
		r->receiver = la->end;
		r->ack = la->part;
	}
	r->cause = cause;
	r->evidence = evidence;
	r->pattern = nt_hold_pattern(f, cause);
	r->time_ns = released_ns;
	r->hold.begin_ns = h->begin_ns;
	r->hold.end_ns = released_ns;
	r->hold.bytes = h->held.end_seq - h->held.seq;
	r->hold.in_flight_bytes = h->in_flight_bytes;
	r->hold.writes = f->writes;
	r->hold.way_us = f->way_us;
	r->hold.write_bytes = h->write_bytes;
	r->hold.sent_one = h->flight == FLIGHT_ONE_WRITE;
	r->hold.mss = h->held.mss;
	r->hold.stack_id = h->writer.tgid ? h->stack.id : NT_NO_STACK;
	r->hold.stack_word = h->stack.word;
	r->hold.reason = f->reason;
	r->hold.release = f->release;
	read_end(&r->sender, t);
	r->sender.tgid = h->writer.tgid;
	r->sender.tid = h->writer.tid;
	r->sender.cgroup_id = h->writer.cgroup_id;
	r->sender.target = h->writer.target;
	__builtin_memcpy(r->sender.comm, h->writer.comm, NT_COMM_LEN);
	if (h->kernels)
		r->sender.user = NT_USER_KERNEL;
	else if (!h->writer.tgid || f->reason == NT_HOLD_SNDBUF)
		end_take_owner(&r->sender, t->sk);
	if (f->release == NT_RELEASE_ACK && h->ack_seen) {
		r->numbers.ack = h->ack;
		r->numbers.seq = h->ack_seq;
	}
	ring_submit(r);
}

/* Finds the late ACK that released the hold, if the receiver sent it while the bytes were held. */
static __always_inline struct late_ack *hold_join(const struct hold *h, u64 released_ns)
{
	struct late_ack *la;

	if (!waits_for_ack(h) || !h->ack_seen)
		return NULL;
	la = late_ack_find(h->ack, h->ack_seq);
	if (!la || la->part.end_ns < h->begin_ns || la->part.end_ns > released_ns)
		return NULL;
	la->consumed = true;
	return la;
}

/*
 * May a receiver on another host know that the ACK was a late one? From this end alone a stall is
 * no stall if it was short, since the bytes were written when the ACK was pending already. Whether
 * the ACK was a pure one is not asked: it may have come unseen, and the receiver knows. Takes the
 * room of a record, if there is some.
 */
static __always_inline bool hold_may_meet(const struct hold *h, const struct nt_stall_facts *f,
					  u64 released_ns)
{
	return late_acks_wanted && waits_for_ack(h) && f->release == NT_RELEASE_ACK &&
	       h->ack_seen && f->late_release == NT_ACK_INVALID && nt_excess_ns(f) >= LATE_ACK_NS &&
	       late_ack_has_room(released_ns);
}

/*
 * Judges a hold that is over, and reports it if it was a stall. Returns whether it was one, however
 * short. This is a global function for the verifier's sake, as hold_count().
 */
__noinline int hold_judge(u32 level, u32 release, u64 released_ns)
{
	struct ended_hold *ended = scratch_get(level);
	enum nt_evidence evidence;
	enum nt_cause cause;
	bool stall;
	struct late_ack *la = NULL;
	struct nt_stall_facts *f;
	struct hold *h;
	struct tcp t;

	if (!ended)
		return 0;
	h = &ended->hold;
	f = &ended->facts;
	t = tcp_of((void *)h->sk, false);
	if (release == NT_RELEASE_ACK)
		la = hold_join(h, released_ns);
	hold_facts(f, h, &t, release, released_ns, la);
	cause = forgotten(nt_stall_cause(f, &evidence));
	evidence = forgotten(evidence);
	stall = cause;
	if (f->duration_ns < nt_config.min_ns)
		return stall;
	if (la && f->pending_in_hold_ns < nt_config.min_ns) {
		cause = NT_CAUSE_INVALID;
		evidence = NT_EVIDENCE_INVALID;
	}
	if (cause) {
		count_stall(cause);
		f->unanswered = bucket_note_stall(PROBED(t.sk, __sk_common.skc_hash), h->rcv_nxt);
	}
	if (cause || nt_config.all_holds || hold_may_meet(h, f, released_ns))
		hold_report(h, &t, f, cause, evidence, released_ns, la);
	return stall;
}

/*
 * Counts a hold of SLOW_NS and more that was no stall, if it cost time. A global function, like the
 * one above; and not called by it, since both together need too much of the stack on kernels
 * before 6.13.
 */
__noinline int hold_slow(u32 level, u32 release, u64 until_ns)
{
	struct ended_hold *ended = scratch_get(level);
	struct hold *h;
	struct tcp t;

	if (!ended)
		return 0;
	h = &ended->hold;
	t = tcp_of((void *)h->sk, false);
	if (nt_costs_time(h->held.reason, release) &&
	    (h->writer.target || socket_counts(t.sk, false)))
		slow_count(&h->writer, h->kernels, (void *)h->sk, &h->held,
			   duration_ns(h->begin_ns, until_ns));
	return 0;
}

/*
 * Names the part of the kernel that uses the socket, if one does, in place of the process that ran
 * as it wrote. Where none does and a kworker wrote, it did so for the process that has the socket
 * (sk_psock_backlog(), tls_tx_work()), which is then looked up. Whether the hold counts in the
 * totals is asked before. This is a global function for the verifier's sake, as hold_count().
 */
__noinline int hold_name_kernel(u32 level)
{
	struct hold *h = scratch_get(level);

	if (!h)
		return 0;
	h->kernels = kernel_uses(&h->writer, (void *)h->sk);
	if (begins(h->writer.comm, "kworker/", 8))
		h->writer = (struct writer){.target = h->writer.target};
	return 0;
}

/* A function by itself: on kernels before 6.13 the stack of its callers has no room for it. */
static __noinline int event_hold_end(const struct hold *h, struct sock *sk, u32 release,
				     u64 released_ns)
{
	return event_note(socket_number(sk), released_ns,
			  NT_EVENT_HOLD_END | (u64)h->held.reason << 8 | (u64)release << 16,
			  halves(h->held.seq, h->held.end_seq - h->held.seq),
			  duration_ns(h->begin_ns, released_ns));
}

/*
 * Counts the hold that is over and lies in that level of the scratch, and reports it. This is a
 * global function for the verifier's sake, as hold_count().
 */
__noinline int hold_over(u32 level, u32 release, u64 released_ns)
{
	struct hold *h = scratch_get(level);
	u64 lasted_ns;

	if (!h)
		return 0;
	lasted_ns = duration_ns(h->begin_ns, released_ns);
	hold_count(hold_owner(h), h->held.reason, release, h->begin_ns, released_ns);
	if (lasted_ns >= nt_config.min_ns || lasted_ns >= SLOW_NS)
		hold_name_kernel(level);
	if (!hold_judge(level, release, released_ns) && lasted_ns >= SLOW_NS)
		hold_slow(level, release, released_ns);
	return 0;
}

/*
 * Notes that held bytes go out, from the lower half of seqs to the upper one, unless they are one
 * write, and all of it. This is a global function for the verifier's sake, as hold_count().
 */
__noinline int hold_note_mixed(u64 sk, u64 seqs, u32 mss, u32 writes, u32 written)
{
	struct tcp t = tcp_of((void *)sk, false);
	u32 seq = seqs, end_seq = seqs >> 32;
	u32 held = PROBED(t.tp, write_seq) - seq, go = end_seq - seq;

	if (writes != 1 || written != go || go != held)
		bucket_note_mixed(PROBED(t.sk, __sk_common.skc_hash), seq, end_seq,
				  held >= mss || (writes == 1 && written > go), go != held);
	return 0;
}

static __always_inline void note_mixed(const struct hold *h, struct sock *sk, u32 end_seq)
{
	hold_note_mixed(socket_number(sk), halves(h->held.seq, end_seq), h->held.mss, h->writes,
			h->written);
}

/* Copies a hold by one call, for the verifier follows each word that an assignment moves. */
static __always_inline void hold_copy(struct ended_hold *to, const struct hold *from)
{
	bpf_probe_read_kernel(&to->hold, sizeof(to->hold), from);
}

/* The held bytes went out, or the socket went away. */
static __always_inline void hold_release(struct hold *h, const struct tcp *t,
					 enum nt_release release, u64 released_ns)
{
	u32 level;
	struct ended_hold *ended;

	note_mixed(h, t->sk, PROBED(t->tp, write_seq));
	if (nt_config.timeline)
		event_hold_end(h, t->sk, release, released_ns);
	/* most holds of a bulk transfer are over here */
	if (!hold_may_stall(h) && !nt_config.all_holds &&
	    duration_ns(h->begin_ns, released_ns) < SLOW_NS) {
		hold_count(hold_owner(h), h->held.reason, release, h->begin_ns, released_ns);
		hold_delete(t->sk);
		return;
	}
	ended = scratch_take(&level);
	if (ended)
		hold_copy(ended, h);
	/* only the program that deletes the hold judges it */
	if (hold_delete(t->sk)) {
		if (ended)
			hold_over(level, release, released_ns);
		else
			count_dropped(NT_DROPPED_HOLD_MAP);
	}
	if (ended)
		scratch_give(level);
}

/*
 * Returns how long the bytes in flight have been on their way at since_ns, at least, in us. The
 * device has kept them until then if it has segments of ours yet, or did so until the hold began.
 * Negative: the socket's pacing has fq, tc-fq(8), keep them so much longer, at most.
 */
static __always_inline s32 flight_age_us(const struct hold *h, const struct tcp *t,
					 const struct nt_tcp_state *s, u64 since_ns,
					 const bool trusted)
{
	const u64 most_us = 0x7fffffff;
	u64 leaves_ns = TCP(t, tcp_wstamp_ns);
	u64 age_us = duration_ns(leaves_ns, since_ns) / 1000;

	if (leaves_ns > since_ns && SK(t, sk_pacing_status) == NT_SK_PACING_FQ)
		return -(s32)((leaves_ns - since_ns) / 1000);
	if (s->queued_below || h->held.reason == NT_HOLD_AUTOCORK || h->held.reason == NT_HOLD_TSQ)
		return 0;
	return age_us < most_us ? age_us : most_us;
}

static __always_inline void hold_begin(struct hold *h, const struct tcp *t,
				       const struct nt_tcp_state *s, enum nt_hold_reason reason,
				       u64 since_ns, const bool trusted)
{
	h->age_us = flight_age_us(h, t, s, since_ns, trusted);
	h->held.mss = s->mss;
	h->held.reason = reason;
	h->held.corked = false;
	h->held.lone = nt_lone(s->snd_nxt - s->snd_una, s->mss);
	h->in_flight_bytes = h->flight_bytes = s->snd_nxt - s->snd_una;
	h->total_retrans = TCP(t, total_retrans);
	h->rcv_nxt = TCP(t, rcv_nxt);
	h->handshake = nt_in_handshake(TCP(t, data_segs_out), TCP(t, data_segs_in));
	h->begin_ns = h->ack_ns = since_ns;
	h->unlocked_us = h->wrote_us = since_ns / 1000;
	h->recovered = false;
	h->flight = FLIGHT_UNSURE;
}

/*
 * The bytes are held for another reason than before, or other bytes are held: counts the time so
 * far under the old reason. Pacing of the same bytes was over when its timer allowed them, however
 * late a program sees that; but once an ACK has come, another reason may have followed it.
 */
static __always_inline void hold_switch(struct hold *h, const struct tcp *t,
					const struct nt_tcp_state *s, enum nt_hold_reason reason,
					const bool trusted)
{
	u64 since = s->clock_ns;
	struct ended_hold *before;
	u32 level;

	if (h->held.reason == NT_HOLD_PACING && h->held.seq == s->snd_nxt &&
	    h->held.una == s->snd_una && s->wstamp_ns > h->begin_ns && s->wstamp_ns < since)
		since = s->wstamp_ns;
	/* the ACK that Nagle waited for found the cork */
	if (h->held.corked && h->ack_ns > h->begin_ns && h->ack_ns < since)
		since = h->ack_ns;
	if (h->held.reason != NT_HOLD_SNDBUF) /* nobody waited for that */
		hold_count(hold_owner(h), h->held.reason, NT_RELEASE_INVALID, h->begin_ns, since);
	before = duration_ns(h->begin_ns, since) < SLOW_NS ? NULL : scratch_take(&level);
	if (before) {
		hold_copy(before, h);
		hold_name_kernel(level);
		hold_slow(level, NT_RELEASE_INVALID, since);
		scratch_give(level);
	}
	hold_begin(h, t, s, reason, since, trusted);
}

/*
 * Notes in the bucket how many bytes of a socket are held for this reason. This is a global
 * function, so that the verifier follows its branches once, and not wherever a program notes a
 * hold.
 */
__noinline int hold_note_size(u32 hash, u32 reason, u32 lone, u32 large)
{
	bucket_note_tail(hash, !nt_may_stall(reason, lone) && large);
	return 0;
}

/* Is the hold another one than before? Loss makes the congestion window so small. */
static __always_inline bool hold_changes(const struct hold *h, const struct nt_tcp_state *s,
					 enum nt_hold_reason reason)
{
	return h->held.reason != reason || (reason == NT_HOLD_CWND && !h->held.lone &&
					    nt_lone(s->snd_nxt - s->snd_una, s->mss));
}

/*
 * Returns NAGLE where Nagle goes on to hold what it held, whatever a later write or a cork adds to
 * that: the bytes would have gone long ago but for the ACK that has not come. MSG_MORE binds its
 * own call, so that Nagle decides when it comes; a cork holds what is held for longer than that.
 */
static __always_inline enum nt_hold_reason
hold_goes_on(struct hold *h, const struct nt_tcp_state *s, enum nt_hold_reason reason)
{
	if (!h || h->held.reason != NT_HOLD_NAGLE || h->held.seq != s->snd_nxt || !nt_minshall(s))
		return reason;
	h->held.corked = !!(s->nonagle & NT_NAGLE_CORK);
	return reason == NT_HOLD_CORK || reason == NT_HOLD_MSG_MORE ? NT_HOLD_NAGLE : reason;
}

/* An attempt has left a tail behind for this reason: the hold begins, goes on, or changes. */
static __always_inline struct hold *hold_note(struct hold *h, const struct tcp *t,
					      const struct nt_tcp_state *s,
					      enum nt_hold_reason reason, const bool trusted)
{
	bool begins;

	reason = hold_goes_on(h, s, reason);
	begins = !h || hold_changes(h, s, reason);

	if (h && h->held.seq != s->snd_nxt)
		note_mixed(h, t->sk, s->snd_nxt);
	if (!h) {
		h = hold_new(t, trusted);
		if (!h)
			return NULL;
		h->stack.id = NT_NO_STACK;
		hold_begin(h, t, s, reason, s->clock_ns, trusted);
	} else if (begins) {
		hold_switch(h, t, s, reason, trusted);
	}
	if (h->held.seq != s->snd_nxt) { /* these are other bytes */
		h->held.seq = s->snd_nxt;
		h->held.timer_seen = NT_RELEASE_INVALID;
		h->flight = FLIGHT_UNSURE;
		/* unless they are the rest of one write */
		if (h->writes != 1 || h->held.end_seq != s->write_seq)
			h->writes = h->write_bytes = h->written = 0;
	}
	h->held.sml = s->snd_sml;
	h->held.una = s->snd_una;
	h->held.wnd = s->snd_wnd;
	h->held.end_seq = s->write_seq;
	h->looked_ns = s->clock_ns;
	hold_note_size(SK(t, __sk_common.skc_hash), reason, h->held.lone,
		       s->write_seq - s->snd_nxt >= s->mss);
	barrier();
	h->sk = (u64)t->sk;
	/* the configuration first: else the verifier follows all ways to here to the end */
	if (nt_config.timeline && begins && reason != NT_HOLD_SNDBUF) /* that one ends just now */
		event_hold_begin(t->sk, reason, s->snd_nxt, s->write_seq - s->snd_nxt,
				 s->snd_nxt - s->snd_una);
	return h;
}

/* An ACK's own attempt comes so soon, and no program's next write. */
#define ACK_SENDS_US 4

/*
 * Returns what is in flight (enum flight_kind). The two times are equal from the first send when
 * nothing was in flight, tcp_rate_skb_sent(), until a part of that is acknowledged,
 * tcp_rate_skb_delivered(). It is one write
 * if it is one buffer that was never held, or held as one write. Another socket's held bytes may
 * have taken this one's place in the bucket. So what seems to have left as an ACK came is not taken
 * for one write either; with SACK, tcp_rack_advance() keeps when that was. bytes: the size of the
 * first held write.
 */
static __noinline u32 flight_of(const struct hold *h, struct sock *sk, u32 bytes)
{
	struct tcp_sock *tp = (void *)sk;
	struct rb_node *buffer = PROBED(sk, tcp_rtx_queue.rb_node);
	u32 una = PROBED(tp, snd_una), hash = PROBED(sk, __sk_common.skc_hash);
	u64 sent_us;

	if (!bytes || !hold_may_stall(h) || !bpf_core_field_exists(tp->first_tx_mstamp) ||
	    !bpf_core_field_exists(tp->rack.rtt_us) || !buffer)
		return FLIGHT_UNSURE;
	sent_us = PROBED(tp, first_tx_mstamp);
	if (sent_us != PROBED(tp, delivered_mstamp) || bucket_knows_long(hash, una))
		return FLIGHT_REST;
	return bytes == h->held.end_seq - h->held.seq && !PROBED(buffer, rb_left) &&
			       !PROBED(buffer, rb_right) &&
			       sent_us >= PROBED(tp, rack.mstamp) + PROBED(tp, rack.rtt_us) +
						  ACK_SENDS_US &&
			       PROBED(tp, snd_nxt) - una == h->in_flight_bytes &&
			       !bucket_knows_mixed(hash, una)
		       ? FLIGHT_ONE_WRITE
		       : FLIGHT_UNSURE;
}

/* Current is in the system call that wrote these bytes, some of which are held now. */
static __always_inline void hold_note_writer(struct hold *h, struct sock *sk, void *ctx, u32 bytes)
{
	u32 now_us = bpf_ktime_get_ns() / 1000;

	/* nothing keeps an ACK on another CPU from ending the hold, and the memory is used again */
	if (h->sk != (u64)sk)
		return;
	/* tcp_sendmsg_locked() returns before its caller unlocks the socket */
	h->unlocked_us = nt_config.functions ? h->wrote_us : now_us;
	h->wrote_us = now_us;
	h->written += bytes;
	if (h->writes++) {
		if (h->write_bytes != bytes)
			h->write_bytes = 0;
		return;
	}
	h->write_bytes = bytes;
	h->flight = flight_of(h, sk, bytes);
	read_writer(&h->writer);
	h->writer.target = nt_config.target != NT_TARGET_ALL && current_is_target();
	if (nt_config.stacks)
		stack_take(ctx, &h->stack, h->writer.tgid);
	barrier();
	if (h->sk == (u64)sk)
		return;
	h->writer = (struct writer){}; /* somebody else's by now, whose owner user space finds */
	h->stack.id = NT_NO_STACK;
	h->writes = h->write_bytes = h->written = 0;
	h->flight = FLIGHT_UNSURE;
}

/*
 * Bytes are held, and a segment that acknowledges something has come; TCP processes it next. While
 * a program has the socket locked, segments wait in its backlog, __release_sock(): this one may
 * have come when the program locked it.
 */
static __always_inline void hold_note_ack(struct hold *h, const struct tcp *t, u32 ack, u32 seq,
					  enum ack_kind kind, u64 now, const bool trusted)
{
	s32 locked_us = (u32)(now / 1000) - h->unlocked_us;

	h->ack = ack;
	h->ack_seq = seq;
	h->ack_kind = kind;
	h->ack_seen = true;
	h->silent_ns = duration_ns(h->ack_ns, now);
	if (locked_us > 0 && SK(t, sk_lock.owned) &&
	    now + 2 * nt_config.tick_ns >= bpf_ktime_get_ns()) /* else it was taken before */
		h->silent_ns = duration_ns(locked_us * 1000ULL, h->silent_ns);
	h->ack_ns = now;
	h->silent_bytes = h->flight_bytes;
	h->flight_bytes = h->held.seq - ack;
}

/*
 * An ACK has come late to a sender with a full buffer that has sent all it has, and makes room:
 * that ends a hold of bytes that were not written yet. If a writer sleeps, it has waited:
 * sk_stream_wait_memory(). Else somebody may poll for room, and the next write shows whether that
 * was awaited: room_was_awaited(). Returns false if nobody waits. s: room for the socket's state;
 * NULL: the caller's stack has none on kernels before 6.13, and the scratch has.
 */
static __always_inline bool hold_for_room(const struct tcp *t, struct nt_tcp_state *s,
					  const struct segment *seg, const bool trusted)
{
	const u64 nospace = 1 << 2; /* SOCK_NOSPACE, include/linux/net.h */
	const u32 pollout = 4;      /* EPOLLOUT */
	bool asleep = PROBED(t->sk, sk_write_pending);
	bool on_scratch = !s;
	u64 now = bpf_ktime_get_ns(), moved_ns;
	struct hold *h;
	u32 polled, level;

	if (!asleep && !(PROBED(t->sk, sk_socket, flags) & nospace))
		return false;
	/* it waits for something else than this ACK, as for memory: sk_stream_wait_memory() */
	if (!lacks_room(t->sk, trusted))
		return false;
	if (!socket_wanted(t->sk, trusted))
		return false;
	if (on_scratch)
		s = scratch_take(&level);
	if (!s) {
		count_dropped(NT_DROPPED_HOLD_MAP);
		return true;
	}
	tcp_read_state(s, t, trusted);
	moved_ns = last_moved_ns(t, trusted) + nt_config.tick_ns;
	if (s->clock_ns > moved_ns) /* a read did that, tcp_rcv_space_adjust() */
		s->clock_ns = moved_ns;
	h = hold_note(NULL, t, s, NT_HOLD_SNDBUF, trusted);
	if (on_scratch)
		scratch_give(level);
	if (!h)
		return true;
	polled = read_waiter(&h->writer, t->sk);
	if (!asleep && !(polled & pollout)) {
		hold_delete(t->sk);
		return false;
	}
	h->recovered |= tcp_recovering(t);
	hold_note_ack(h, t, seg->ack, seg->seq, ACK_PURE, now, trusted);
	if (asleep)
		hold_release(h, t, NT_RELEASE_ACK, now);
	return true;
}

/* Returns when the socket sent what was acknowledged last, as SACK has it: tcp_rack_advance(). */
static __always_inline u64 acknowledged_sent_ns(const struct tcp *t)
{
	return PROBED(t->tp, rack.mstamp) * 1000;
}

/* A program that waits for an ACK goes on within this time of it. */
#define GO_ON_NS 10000000ULL

/*
 * The socket has sent more since an ACK made room: did that wait for the room? A reply brings more
 * to send, too, and the FIN needs no room.
 */
static __always_inline bool room_was_awaited(const struct hold *h, const struct tcp *t,
					     const struct nt_tcp_state *s, const bool trusted)
{
	return duration_ns(h->ack_ns, s->clock_ns) < GO_ON_NS && TCP(t, rcv_nxt) == h->rcv_nxt &&
	       !nt_has_closed(s);
}

/*
 * Has close() just waited for the ACK of its FIN? If it lingers, it goes on as soon as that ACK
 * comes: __tcp_close() then destroys the socket, which it has locked. A FIN is no write, so that
 * nothing pushes it: tcp_send_fin(). ended_ns: when something was acknowledged last.
 */
static __always_inline bool close_has_waited(const struct tcp *t, u64 ended_ns, const bool trusted)
{
	const u64 done = 1 << 1, linger = 1 << 4; /* enum sock_flags, include/net/sock.h */
	const u32 exiting = 0x4;                  /* PF_EXITING, include/linux/sched.h */
	u64 flags = SK(t, __sk_common.skc_flags);
	struct task_struct *task = (void *)bpf_get_current_task();
	u32 sent = TCP(t, write_seq);

	return flags & linger && !(flags & done) && SK(t, sk_lock.owned) &&
	       !(BPF_CORE_READ(task, flags) & exiting) && TCP(t, pushed_seq) != sent &&
	       TCP(t, snd_una) == sent && PROBED(t->tp, rack.end_seq) == sent &&
	       duration_ns(ended_ns, bpf_ktime_get_ns()) < GO_ON_NS;
}

/*
 * The socket goes; judges the wait of a close() that lingered. With SACK the socket knows when it
 * sent what was acknowledged last.
 */
static __always_inline void close_waited(void *ctx, const struct tcp *t, const bool trusted)
{
	struct nt_tuple tuple;
	struct hold *h;
	u64 ended_ns;
	u32 level;

	if (!SK(t, sk_lingertime) || !bpf_core_field_exists(t->tp->rack.mstamp) ||
	    !bpf_core_field_exists(t->tp->delivered_mstamp))
		return;
	ended_ns = PROBED(t->tp, delivered_mstamp) * 1000;
	if (!close_has_waited(t, ended_ns, trusted))
		return;
	read_tuple(&tuple, t->sk);
	if (!tuple_wanted(&tuple))
		return;
	h = scratch_take(&level);
	if (!h) {
		count_dropped(NT_DROPPED_HOLD_MAP);
		return;
	}
	*h = no_hold;
	h->sk = socket_number(t->sk);
	h->begin_ns = acknowledged_sent_ns(t);
	h->ack_ns = ended_ns;
	/* a queue on the way shows in the smoothed round trip */
	h->silent_ns = duration_ns(h->begin_ns + PROBED(t->tp, srtt_us) / 8 * 1000ULL, ended_ns);
	h->held.reason = NT_HOLD_LINGER;
	h->held.mss = TCP(t, mss_cache);
	h->total_retrans = TCP(t, total_retrans);
	h->ack = TCP(t, snd_una);
	h->ack_seq = TCP(t, rcv_nxt);
	h->ack_seen = true;
	h->ack_kind = ACK_PURE;
	h->stack.id = NT_NO_STACK;
	hold_note_writer(h, t->sk, ctx, 0);
	if (nt_config.timeline)
		event_hold_end(h, t->sk, NT_RELEASE_ACK, ended_ns);
	hold_count(hold_owner(h), NT_HOLD_LINGER, NT_RELEASE_ACK, h->begin_ns, ended_ns);
	hold_judge(level, NT_RELEASE_ACK, ended_ns);
	scratch_give(level);
}

/* Returns when the socket sent data last, for the first time or again, to a jiffy. */
static __always_inline u64 last_sent_ns(const struct tcp *t)
{
	return bpf_ktime_get_ns() - since_jiffies(PROBED(t->tp, lsndtime));
}

/*
 * Does the socket know when exactly it sent the bytes before end_seq? It does while they are what
 * was acknowledged last: acknowledged_sent_ns().
 */
static __always_inline bool sent_exactly(const struct tcp *t, u32 end_seq)
{
	return bpf_core_field_exists(t->tp->rack.mstamp) && PROBED(t->tp, rack.end_seq) == end_seq;
}

/*
 * Returns when the socket sent the bytes before end_seq, the last that it sent; or the end of that
 * jiffy. This is a global function for the verifier's sake, as hold_judge().
 */
__noinline u64 sent_at_ns(u64 sk, u32 end_seq)
{
	struct tcp t = tcp_of((void *)sk, false);

	if (sent_exactly(&t, end_seq))
		return acknowledged_sent_ns(&t);
	return last_sent_ns(&t) + nt_config.tick_ns;
}

/* Has the socket sent nothing, no loss probe either, later than a round trip after that time? */
static __always_inline bool silent_since(const struct tcp *t, u64 time_ns)
{
	return last_sent_ns(t) <= time_ns + tcp_min_rtt_us(t) * 1000ULL + 2 * nt_config.tick_ns;
}

/*
 * A tail that was corked, or held by MSG_MORE, went out, no program saw a timer, and nothing was in
 * flight for a loss probe to take it along. The probe timer sent the tail if nothing was sent
 * again, and if the tail went when tcp_check_probe_timer() has that timer expire: after the RTO,
 * and half as long again at the latest, if something kept it waiting. The ACK of the tail may have
 * changed the RTO: if by more than a quarter, this accuses nobody. Else the application uncorked
 * the socket, and corked it again, or a segment of the peer released the tail. Returns when the
 * timer sent the tail, latest_ns at the latest, or 0. seq: its first byte. This is a global
 * function for the verifier's sake, as hold_judge().
 */
__noinline u64 cork_timer_sent_ns(u64 sk, u64 begin_ns, u64 latest_ns, u32 total_retrans, u32 seq)
{
	struct tcp t = tcp_of((void *)sk, false);
	u64 sent_ns = last_sent_ns(&t), room_ns = 2 * nt_config.tick_ns;
	u64 rto_ns = PROBED(t.tp, inet_conn.icsk_rto) * nt_config.tick_ns, least_ns = rto_ns;

	if (nt_after(PROBED(t.tp, snd_una), seq))
		least_ns = rto_ns / 4 * 3;
	if (least_ns < NT_RTO_MIN_NS)
		least_ns = NT_RTO_MIN_NS;
	if (rto_ns < NT_RTO_MIN_NS)
		rto_ns = NT_RTO_MIN_NS;
	if (PROBED(t.tp, total_retrans) != total_retrans ||
	    duration_ns(begin_ns, sent_ns + room_ns) < least_ns ||
	    duration_ns(begin_ns, sent_ns) > rto_ns + rto_ns / 2)
		return 0;
	return latest_ns > sent_ns + room_ns ? sent_ns : latest_ns;
}

/*
 * May a loss probe have ended a hold of this length? For a single segment one comes after delay_ns,
 * tcp_rto_min(), at the earliest, as tcp_schedule_loss_probe() has it; a quarter of that may have
 * been over when the hold began.
 */
static __always_inline bool loss_probe_may_end(u64 lasted_ns, u64 delay_ns)
{
	return lasted_ns >= delay_ns / 4 * 3;
}

/*
 * Returns when the socket sent data last, latest_ns at the latest; or 0 where a loss probe may have
 * sent it. This is a global function for the verifier's sake, as hold_judge().
 */
__noinline u64 acknowledged_tail_sent_ns(u64 sk, u64 begin_ns, u64 latest_ns, u32 end_seq)
{
	struct tcp t = tcp_of((void *)sk, false);
	u64 sent_ns = sent_exactly(&t, end_seq) ? acknowledged_sent_ns(&t) : last_sent_ns(&t);
	u64 limit_ns = tcp_delack_limit_ns(&t);

	if (sent_ns > latest_ns)
		sent_ns = latest_ns;
	if (limit_ns > NT_RTO_MIN_NS)
		limit_ns = NT_RTO_MIN_NS;
	return loss_probe_may_end(duration_ns(begin_ns, sent_ns), limit_ns) ? 0 : sent_ns;
}

/*
 * The bytes of a hold are acknowledged, and no program saw them go. They went out when a program
 * saw the receiver send the ACK of all before them late, if nothing was sent later; or when the
 * socket sent data last, if nothing came and nothing was written since the hold began. Returns that
 * time, or 0: nobody knows it, and nobody is accused.
 */
static __always_inline u64 acknowledged_hold_ended_ns(const struct hold *h, const struct tcp *t,
						      const struct nt_tcp_state *s,
						      const bool trusted)
{
	u32 more = s->write_seq - h->held.end_seq; /* a FIN is no data */
	/* tcp_probe shows no ACK any more, and more was written since */
	bool exact = s->tcp_state == NT_TCP_CLOSE_WAIT && sent_exactly(t, h->held.end_seq);
	u64 sent_ns;

	/* an earlier ACK may have released the bytes if other segments were behind the small one; a
	 * loss probe may have, if others were before it (for a single one it comes after 200 ms
	 * only); and what was written to them unseen may have held them for another reason */
	if (h->held.reason != NT_HOLD_NAGLE || !nt_after(s->snd_una, h->held.seq) ||
	    h->held.sml != h->held.seq || h->in_flight_bytes >= h->held.mss ||
	    s->snd_una - h->held.end_seq > nt_has_closed(s))
		return 0;
	sent_ns = late_ack_sent_ns(h->held.seq, h->rcv_nxt, h->begin_ns);
	if (sent_ns)
		return exact || silent_since(t, sent_ns) ? sent_ns : 0;
	if ((more > nt_has_closed(s) && !exact) || s->nonagle || TCP(t, rcv_nxt) != h->rcv_nxt)
		return 0;
	return acknowledged_tail_sent_ns(socket_number(t->sk), h->begin_ns, s->clock_ns,
					 h->held.end_seq);
}

/*
 * An ACK released the bytes: when? Mostly when this attempt began. But the ACK's own attempt may
 * have gone unseen, since the kernel skips a program that interrupts another on its CPU; then the
 * ACK itself shows the time, or the socket, which sent nothing later.
 *
 * If no hook saw the ACK come either (tcp_probe stands in tcp_rcv_established() only), it was a
 * pure one if no data has come since the hold began, or if a program saw the receiver send it alone
 * (once the peer's FIN has come, tcp_probe shows no more). It may have released nothing if the
 * socket is corked by now, if more was written, if other ACKs may have come before, or if a loss
 * probe may have ended it.
 */
static __always_inline u64 hold_ack_released(struct hold *h, const struct tcp *t,
					     const struct nt_tcp_state *s, const bool trusted)
{
	u32 rcv_nxt = TCP(t, rcv_nxt);
	u64 sent_ns, latest_ns;
	bool written_since;

	if (h->ack_seen && h->held.reason == NT_HOLD_NAGLE && !nt_after(h->held.sml, h->ack))
		return h->ack_ns;
	sent_ns = acknowledged_hold_ended_ns(h, t, s, trusted);
	if (sent_ns) {
		hold_note_ack(h, t, h->held.seq, h->rcv_nxt, ACK_PURE, sent_ns, trusted);
		return sent_ns;
	}
	sent_ns = sent_at_ns(socket_number(t->sk), h->held.end_seq);
	latest_ns = sent_ns + nt_config.tick_ns;
	/* tcp_probe shows no ACK any more, and the write that shows the end came long after it */
	written_since = s->tcp_state == NT_TCP_CLOSE_WAIT && latest_ns < s->clock_ns;
	if (latest_ns > s->clock_ns || nt_closing(s->tcp_state)) /* a FIN alone is no data */
		sent_ns = latest_ns = s->clock_ns;
	if (!h->ack_seen || h->ack != s->snd_una)
		hold_note_ack(
			h, t, s->snd_una, rcv_nxt,
			s->snd_una == h->held.sml &&
					(s->write_seq == h->held.end_seq || written_since) &&
					!(s->nonagle & NT_NAGLE_CORK) &&
					!loss_probe_may_end(duration_ns(h->begin_ns, latest_ns),
							    NT_RTO_MIN_NS) &&
					(rcv_nxt == h->rcv_nxt ||
					 late_ack_sent_ns(s->snd_una, rcv_nxt, h->begin_ns))
				? ACK_PURE
				: ACK_UNSURE,
			sent_ns, trusted);
	return sent_ns;
}
