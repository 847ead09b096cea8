/* SPDX-License-Identifier: GPL-2.0 */
/* The records of stalls and holds, in the ring buffer of ring.h. */
#pragma once

#include "judge.h"
#include "late_ack.h"
#include "ring.h"
#include "share.h"

static __always_inline u64 duration_ns(u64 from_ns, u64 to_ns)
{
	long ns = to_ns - from_ns, negative = ns >> 63;

	/* the compiler would make two ways of it, for the verifier to follow */
	barrier_var(negative);
	return ns & ~negative;
}

/*
 * Makes a record of this socket's stall or hold. peer: the share of its other end; 0: not known.
 * NULL: no room, counted as dropped.
 */
static __always_inline struct nt_record *record_new(enum nt_record_kind kind, const struct sock *sk,
						    u64 peer)
{
	struct nt_record *r;

	if (ring_used_bytes() > FOR_ALL_BYTES &&
	    share_is_used_up(nt_share_of_both(socket_share(sk), peer))) {
		count_dropped(NT_DROPPED_SHARE);
		return NULL;
	}
	r = ring_reserve();
	if (!r) {
		count_dropped(NT_DROPPED_RING_FULL);
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
 * Reports a stall that only the receiver's end shows: its timer sent the ACK, and a round trip
 * later the peer went on. reason: HANDSHAKE, or UNKNOWN, where the sender is on another host, or is
 * not traced: what waited there nobody here knows.
 */
static __always_inline void report_peer_waited(const struct late_ack *la, const struct sock *sk,
					       enum nt_hold_reason reason, u32 ack, u32 seq,
					       u64 now)
{
	struct nt_record *r;

	count_stall(NT_CAUSE_DELAYED_ACK);
	r = record_new(NT_RECORD_STALL, sk, 0);
	if (!r)
		return;
	r->cause = NT_CAUSE_DELAYED_ACK;
	r->hold.reason = reason;
	r->evidence = NT_EVIDENCE_INFERRED;
	r->pattern = NT_PATTERN_PEER_HOLDS;
	/* what accept() waits for is no guess */
	if (reason == NT_HOLD_HANDSHAKE) {
		r->evidence = NT_EVIDENCE_SEEN;
		r->pattern = NT_PATTERN_SERVER_FIRST;
	}
	r->time_ns = now;
	r->receiver = la->end;
	r->ack = la->part;
	r->numbers.ack = ack;
	r->numbers.seq = seq;
	ring_submit(r);
}

/*
 * Reports an ACK that went out late and alone. It is no stall by itself: on the sender's host it is
 * the witness of one.
 */
static __always_inline void report_late_ack(const struct late_ack *la, const struct sock *sk,
					    const struct nt_ack_numbers *numbers)
{
	struct nt_record *r;

	if (!late_ack_has_room(la->part.end_ns))
		return;
	r = record_new(NT_RECORD_LATE_ACK, sk, 0);
	if (!r)
		return;
	r->time_ns = la->part.end_ns;
	r->receiver = la->end;
	r->ack = la->part;
	r->numbers = *numbers;
	ring_submit(r);
}
