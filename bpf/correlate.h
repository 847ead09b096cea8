/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Joins a receiver's late ACK and the sender's hold that it released into one stall, and writes the
 * records.
 *
 * Both ends know the ACK by the same two numbers: what it acknowledges and its own sequence number,
 * 64 bits that no other connection shares. That joins them through address translation too, and
 * tells apart connections of equal addresses in different namespaces.
 */
#ifndef NT_CORRELATE_H
#define NT_CORRELATE_H

#include "stall.h"
#include "totals.h"
#include "filter.h"

/* An ACK put off for less is nobody's stall, unless the timer sent it. */
#define LATE_ACK_NS 1000000ULL

struct late_ack_key {
	u32 ack;
	u32 seq;
};

struct late_ack {
	struct nt_end end;
	struct nt_ack_part part;
	bool consumed; /* a sender on this host has it */
	bool lone;     /* no further data came while the ACK was owed: the peer may have held it */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct late_ack_key);
	__type(value, struct late_ack);
} late_acks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

static const struct late_ack no_late_ack;

static __always_inline u64 duration_ns(u64 begin_ns, u64 end_ns)
{
	return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

/* An empty entry for the ACK that the receiver t is about to send; NULL: counted as lost. */
static __always_inline struct late_ack *late_ack_new(const struct tcp *t)
{
	struct late_ack_key key = {
		.ack = PROBED(t->tp, rcv_nxt),
		.seq = PROBED(t->tp, snd_nxt),
	};

	if (bpf_map_update_elem(&late_acks, &key, &no_late_ack, BPF_ANY)) {
		count_lost(NT_LOST_ACK_MAP);
		return NULL;
	}
	return bpf_map_lookup_elem(&late_acks, &key);
}

static __always_inline struct late_ack *late_ack_find(u32 ack, u32 seq)
{
	struct late_ack_key key = {.ack = ack, .seq = seq};

	return bpf_map_lookup_elem(&late_acks, &key);
}

static __always_inline struct nt_record *record_new(enum nt_record_kind kind)
{
	struct nt_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);

	if (!r) {
		count_lost(NT_LOST_RING_FULL);
		return NULL;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->size = sizeof(*r);
	r->kind = kind;
	return r;
}

static __always_inline void count_stall(enum nt_cause cause)
{
	struct nt_totals *t = totals_here();

	if (t)
		count_in(t->stalls, cause, NT_CAUSES, 1);
}

/*
 * The sender is not on this host (or is not traced): the timer sent our ACK, and what the peer had
 * held came back a round trip later.
 */
static __always_inline void report_peer_holds(const struct late_ack *la, u64 now)
{
	struct nt_record *r;

	count_stall(NT_CAUSE_NAGLE_DELAYED_ACK);
	r = record_new(NT_RECORD_STALL);
	if (!r)
		return;
	r->cause = NT_CAUSE_NAGLE_DELAYED_ACK;
	r->evidence = NT_EVIDENCE_INFERRED;
	r->pattern = NT_PATTERN_PEER_HOLDS;
	r->time_ns = now;
	r->receiver = la->end;
	r->ack = la->part;
	bpf_ringbuf_submit(r, 0);
}

#endif /* NT_CORRELATE_H */
