/* SPDX-License-Identifier: GPL-2.0 */
/* The sender's state machine: a hold begins when an attempt leaves a tail, grows, ends when it goes
 * out.
 *
 * Bytes that are held for a reason that no stall can have (the windows, pacing, the device) are
 * mostly a bulk transfer's, whose every ACK lets some of them go and leaves others. That is one
 * hold as long as there is a tail; while it is a large one, it is looked at once in LARGE_TAIL_NS,
 * and by segments, where no hook shows attempts, once in a jiffy, which takes no look into a map
 * (bucket.h).
 */
#ifndef NT_HOLD_H
#define NT_HOLD_H

#include "bucket.h"
#include "correlate.h"
#include "release.h"
#include "stack.h"
#include "timeline.h"

struct hold {
	u64 sk; /* set last when it begins: until then an interrupt finds no hold */
	struct nt_held held;
	u32 end_seq; /* write_seq when last looked at */
	u32 in_flight_bytes;
	u32 total_retrans; /* at the begin, as the next two */
	u32 rcv_nxt;
	u32 segments_before;
	u32 writes;
	struct nt_stack_key stack;
	u64 begin_ns;
	u64 looked_ns;
	u64 ack_ns;       /* when the last ACK that moved the window came, or the begin */
	u64 silent_ns;    /* between the ACK before it, or the begin, and it */
	u32 silent_bytes; /* in flight then */
	u32 flight_bytes; /* in flight after it, or at the begin */
	u32 ack;          /* what it acknowledged, its sequence number */
	u32 ack_seq;
	u16 bucket;
	bool ack_pure;
	bool ack_seen;
	struct writer writer; /* tgid 0: nobody was seen writing yet */
};

_Static_assert(sizeof(struct hold) <= SCRATCH_BYTES, "hold fits the scratch");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct hold);
} hold_storage SEC(".maps");

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

	if (nt_config.sk_storage)
		return bpf_sk_storage_get(&hold_storage, sk, NULL, 0);
	return bpf_map_lookup_elem(&hold_hash, &key);
}

static __always_inline struct hold *hold_find(const struct tcp *t, const bool trusted)
{
	u32 bucket = bucket_index(t->sk, trusted);
	struct hold *h = NULL;

	if (buckets[bucket].holds)
		h = hold_entry(t->sk);
	/* another bucket: left by a connection that was dissolved, connect(2) with AF_UNSPEC */
	if (h && (h->sk != (u64)t->sk || h->bucket != bucket))
		h = NULL;
	/* callers are to ask the pointer itself, which is what the verifier follows */
	barrier_var(h);
	return h;
}

/*
 * An entry for a hold that is about to begin; maybe the one that a program on another CPU, or that
 * was interrupted here, is about to fill. It is counted before it is there: that one may end it
 * first. NULL: no room, counted as lost; or the other was just faster, and begins it.
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
	if (nt_config.sk_storage) {
		h = bpf_sk_storage_get(&hold_storage, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
		err = h ? 0 : hold_entry(sk) ? -EEXIST : -ENOMEM;
	} else {
		err = bpf_map_update_elem(&hold_hash, &key, &no_hold, BPF_NOEXIST);
		if (!err)
			h = bpf_map_lookup_elem(&hold_hash, &key);
	}
	if (err) {
		__sync_fetch_and_add(&buckets[bucket].holds, -1);
		if (err != -EEXIST)
			count_lost(NT_LOST_HOLD_MAP);
	}
	if (h)
		h->bucket = bucket;
	return h;
}

/* False: somebody else did, as a softirq that came in between. */
static __always_inline bool hold_delete(struct sock *sk)
{
	u32 bucket = bucket_index(sk, false);
	u64 key = (u64)sk;
	long err;

	if (nt_config.sk_storage)
		err = bpf_sk_storage_delete(&hold_storage, sk);
	else
		err = bpf_map_delete_elem(&hold_hash, &key);
	if (!err)
		__sync_fetch_and_add(&buckets[bucket].holds, -1);
	return err != -ENOENT;
}

static __always_inline void count_hold(const struct hold *h, const struct sock *sk, u8 reason,
				       u64 duration_ns, enum nt_release release)
{
	struct nt_totals *t = totals_here();

	if (!t || (!h->writer.target && !socket_counts(sk)))
		return;
	count_in(t->holds, reason, NT_HOLD_REASONS, 1);
	count_in(t->hold_ns, reason, NT_HOLD_REASONS, duration_ns);
	count_in(t->releases, release, NT_RELEASES, 1);
}

/*
 * Loss between begin and end explains any delay: icsk_ca_state of 3 and more is Recovery and Loss
 * (enum tcp_ca_state).
 */
static __always_inline bool tcp_recovering(const struct tcp *t, const struct hold *h)
{
	return PROBED(t->tp, total_retrans) != h->total_retrans || PROBED(t->tp, retrans_out) ||
	       PROBED(t->tp, lost_out) || PROBED_BITS(&t->tp->inet_conn, icsk_ca_state) >= 3;
}

/* The facts of a hold that the ACK (ack, seq) or another release ended. */
static __always_inline void hold_facts(struct nt_stall_facts *f, const struct hold *h,
				       const struct tcp *t, enum nt_release release, u64 end_ns,
				       struct late_ack *la)
{
	__builtin_memset(f, 0, sizeof(*f));
	f->duration_ns = duration_ns(h->begin_ns, end_ns);
	f->silent_ns = h->silent_ns;
	f->silent_bytes = h->silent_bytes;
	f->min_rtt_ns = tcp_min_rtt_us(t) * 1000ULL;
	f->delack_limit_ns = tcp_delack_limit_ns(t);
	f->in_flight_bytes = h->in_flight_bytes;
	f->mss = h->held.mss;
	f->segments_before = h->segments_before;
	f->reason = h->held.reason;
	f->release = release;
	f->pure_ack = h->ack_pure;
	f->recovering = tcp_recovering(t, h);
	f->nodelay = PROBED_BITS(t->tp, nonagle) & NT_NAGLE_OFF;
	if (la) {
		f->late_end = la->part.end;
		f->put_off_ns = duration_ns(la->part.begin_ns, la->part.end_ns);
		f->withheld_ns = duration_ns(h->begin_ns, la->part.end_ns);
		if (f->withheld_ns > f->put_off_ns)
			f->withheld_ns = f->put_off_ns;
		f->locked = la->end.locked;
	}
}

static __always_inline void hold_report(const struct hold *h, const struct tcp *t,
					const struct nt_stall_facts *f, enum nt_cause cause,
					enum nt_evidence evidence, u64 end_ns,
					const struct late_ack *la)
{
	struct nt_record *r = record_new(cause ? NT_RECORD_STALL : NT_RECORD_HOLD);

	if (!r)
		return;
	r->cause = cause;
	r->evidence = evidence;
	r->pattern = nt_hold_pattern(f, cause);
	r->time_ns = end_ns;
	r->hold.begin_ns = h->begin_ns;
	r->hold.end_ns = end_ns;
	r->hold.bytes = h->end_seq - h->held.seq;
	r->hold.in_flight_bytes = h->in_flight_bytes;
	r->hold.writes = h->writes;
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
	if (la) {
		r->receiver = la->end;
		r->ack = la->part;
	}
	bpf_ringbuf_submit(r, 0);
}

/* The receiver's late ACK that released the hold, if its end falls inside the hold. */
static __always_inline struct late_ack *hold_join(const struct hold *h, u64 end_ns)
{
	struct late_ack *la;

	if (h->held.reason != NT_HOLD_NAGLE || !h->ack_seen)
		return NULL;
	la = late_ack_find(h->ack, h->ack_seq);
	if (!la || la->part.end_ns < h->begin_ns || la->part.end_ns > end_ns)
		return NULL;
	la->consumed = true;
	return la;
}

/*
 * A hold has ended: counts it, and reports it if it was a stall. A global function: the verifier
 * looks at it once, not at each place that calls it.
 */
__noinline int hold_judge(u32 level, u32 release, u64 end_ns)
{
	struct hold *h = scratch_get(level);
	enum nt_evidence evidence;
	struct nt_stall_facts f;
	struct late_ack *la = NULL;
	enum nt_cause cause;
	struct tcp t;

	if (!h)
		return 0;
	t = tcp_of((void *)h->sk, false);
	count_hold(h, t.sk, h->held.reason, duration_ns(h->begin_ns, end_ns), release);
	if (release == NT_RELEASE_ACK)
		la = hold_join(h, end_ns);
	hold_facts(&f, h, &t, release, end_ns, la);
	cause = nt_stall_cause(&f, &evidence);
	if (f.duration_ns < nt_config.min_ns)
		return 0;
	if (la && f.withheld_ns < nt_config.min_ns) {
		cause = NT_CAUSE_INVALID;
		evidence = NT_EVIDENCE_INVALID;
	}
	if (cause)
		count_stall(cause);
	if (cause || nt_config.all_holds)
		hold_report(h, &t, &f, cause, evidence, end_ns, la);
	return 0;
}

/* The held bytes went out, or the socket away. */
static __always_inline void hold_end(struct hold *h, const struct tcp *t, enum nt_release release,
				     u64 end_ns)
{
	u32 level;
	struct hold *ended;

	event_hold_end(t->sk, end_ns, h->held.reason, release, h->held.seq,
		       h->end_seq - h->held.seq, duration_ns(h->begin_ns, end_ns));
	/* most holds of a bulk transfer end here */
	if (!nt_may_stall(h->held.reason) && !nt_config.all_holds) {
		count_hold(h, t->sk, h->held.reason, duration_ns(h->begin_ns, end_ns), release);
		hold_delete(t->sk);
		return;
	}
	ended = scratch_take(&level);
	if (ended)
		*ended = *h;
	/* judged once: by who lets it go */
	if (hold_delete(t->sk)) {
		if (ended)
			hold_judge(level, release, end_ns);
		else
			count_lost(NT_LOST_HOLD_MAP);
	}
	if (ended)
		scratch_give(level);
}

static __always_inline void hold_begin(struct hold *h, const struct tcp *t,
				       const struct nt_tcp_state *s, enum nt_hold_reason reason,
				       u64 since_ns, const bool trusted)
{
	h->held.mss = s->mss;
	h->held.reason = reason;
	h->in_flight_bytes = h->flight_bytes = s->snd_nxt - s->snd_una;
	h->total_retrans = TCP(t, total_retrans);
	h->rcv_nxt = TCP(t, rcv_nxt);
	h->segments_before = TCP(t, data_segs_out);
	h->begin_ns = h->ack_ns = since_ns;
}

/*
 * The bytes are held for another reason than before, or others are: what was held so far is counted
 * under the old one. Pacing of the same bytes was over when its timer let it be, whenever we came
 * to see that.
 */
static __always_inline void hold_switch(struct hold *h, const struct tcp *t,
					const struct nt_tcp_state *s, enum nt_hold_reason reason,
					const bool trusted)
{
	u64 since = s->clock_ns;

	if (h->held.reason == NT_HOLD_PACING && h->held.seq == s->snd_nxt &&
	    s->wstamp_ns > h->begin_ns && s->wstamp_ns < since)
		since = s->wstamp_ns;
	count_hold(h, t->sk, h->held.reason, duration_ns(h->begin_ns, since), NT_RELEASE_INVALID);
	hold_begin(h, t, s, reason, since, trusted);
}

/*
 * So many bytes of a socket are held for this reason. A global function, so that the verifier
 * follows its branches once, and not wherever a hold is noted.
 */
__noinline int hold_note_size(u32 hash, u32 reason, u32 len, u32 mss)
{
	bucket_note_tail(hash, !nt_may_stall(reason) && len >= mss);
	return 0;
}

/* An attempt has left a tail behind for this reason: the hold begins, goes on, or changes. */
static __always_inline struct hold *hold_note(struct hold *h, const struct tcp *t,
					      const struct nt_tcp_state *s,
					      enum nt_hold_reason reason, const bool trusted)
{
	bool begins = !h || h->held.reason != reason;

	if (!h) {
		h = hold_new(t, trusted);
		if (!h)
			return NULL;
		h->stack.id = NT_NO_STACK;
		hold_begin(h, t, s, reason, s->clock_ns, trusted);
	} else if (h->held.reason != reason) {
		hold_switch(h, t, s, reason, trusted);
	}
	if (h->held.seq != s->snd_nxt) { /* these are other bytes */
		h->held.seq = s->snd_nxt;
		h->held.timer_seen = NT_RELEASE_INVALID;
		h->writes = 0;
	}
	h->held.sml = s->snd_sml;
	h->held.una = s->snd_una;
	h->held.wnd = s->snd_wnd;
	h->end_seq = s->write_seq;
	h->looked_ns = s->clock_ns;
	hold_note_size(SK(t, __sk_common.skc_hash), reason, s->write_seq - s->snd_nxt, s->mss);
	barrier();
	h->sk = (u64)t->sk;
	if (begins)
		event_hold_begin(t->sk, reason, s->snd_nxt, s->write_seq - s->snd_nxt,
				 s->snd_nxt - s->snd_una);
	return h;
}

/* A system call wrote bytes that are held now; current is who did it. */
static __always_inline void hold_note_writer(struct hold *h, void *ctx)
{
	if (h->writes++)
		return;
	read_writer(&h->writer);
	h->writer.target = nt_config.target != NT_TARGET_ALL && current_is_target();
	if (nt_config.stacks)
		stack_take(ctx, &h->stack, h->writer.tgid);
}

/* A segment that acknowledges something has come while bytes are held; before it is processed. */
static __always_inline void hold_note_ack(struct hold *h, u32 ack, u32 seq, bool pure, u64 now)
{
	h->ack = ack;
	h->ack_seq = seq;
	h->ack_pure = pure;
	h->ack_seen = true;
	h->silent_ns = duration_ns(h->ack_ns, now);
	h->ack_ns = now;
	h->silent_bytes = h->flight_bytes;
	h->flight_bytes = h->held.seq - ack;
}

/*
 * An ACK released the bytes: when? Mostly as this attempt began. But the attempt that it made may
 * have gone unseen, for a program that another one interrupts on its CPU is skipped; then the ACK
 * itself tells. One that no hook saw come either (tcp_probe stands in tcp_rcv_established only) was
 * a pure one if no data has come since the hold began. Where the bytes are acknowledged themselves
 * it is too late to tell when they went: nobody is accused.
 */
static __always_inline u64 hold_ack_released(struct hold *h, const struct tcp *t,
					     const struct nt_tcp_state *s, const bool trusted)
{
	u32 rcv_nxt = TCP(t, rcv_nxt);

	if (h->ack_seen && h->held.reason == NT_HOLD_NAGLE && !nt_after(h->held.sml, h->ack))
		return h->ack_ns;
	if (!h->ack_seen || h->ack != s->snd_una)
		hold_note_ack(h, s->snd_una, rcv_nxt,
			      rcv_nxt == h->rcv_nxt && !nt_after(s->snd_una, h->held.seq),
			      s->clock_ns);
	return s->clock_ns;
}

#endif /* NT_HOLD_H */
