/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Late ACKs: those that receivers on this host sent late wait here for the sender whose hold they
 * may have released.
 *
 * Both ends know an ACK by the same two numbers: what it acknowledges and its own sequence number,
 * 64 bits that no other connection shares. That joins the ends through address translation too, and
 * distinguishes connections of equal addresses in different namespaces.
 */
#pragma once

#include "share.h"
#include "socket.h"
#include "totals.h"

/* Where no program saw the receiver, an ACK may be a late one after a silence of this length. */
#define SILENCE_NS 20000000ULL

/* An ACK that was pending for less makes no stall, unless the timer sent it. */
#define LATE_ACK_NS 1000000ULL

struct late_ack {
	struct nt_end end;
	struct nt_ack_part part;
	u32 room;      /* how much more the peer might send when this ACK went out */
	bool consumed; /* a sender on this host has taken it */
	bool lone;     /* no more data came while it was pending: the peer may have held it */
	bool unsure;   /* a read met it, and may not have sent it */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct nt_ack_numbers);
	__type(value, struct late_ack);
} late_acks SEC(".maps");

static const struct late_ack no_late_ack;

/* User space sets this while somebody wants a record of each late ACK, and of each hold that one on
 * another host may have ended. */
bool late_acks_wanted;

/* When those that had room would all have gone, one each late_ack_ns. */
__u64 late_acks_until_ns;

/*
 * May a late ACK of this time be reported, or a hold that one may have ended? A second's worth of
 * them may come at once. If not, counts it as dropped; but of what is known late nobody would look
 * for the count, so that has room. CPUs that meet here may let some more through.
 */
static __always_inline bool late_ack_has_room(u64 time_ns)
{
	u64 until_ns = late_acks_until_ns, now;

	if (!nt_config.late_ack_ns)
		return true;
	now = bpf_ktime_get_ns();
	if (now > time_ns + SECOND_NS)
		return true;
	if (until_ns >= now + SECOND_NS) {
		count_dropped(NT_DROPPED_LATE_ACK);
		return false;
	}
	late_acks_until_ns = (until_ns > now ? until_ns : now) + nt_config.late_ack_ns;
	return true;
}

/* Gives the numbers of the ACK that the receiver t is about to send. */
static __always_inline void late_ack_numbers(struct nt_ack_numbers *numbers, const struct tcp *t)
{
	numbers->ack = PROBED(t->tp, rcv_nxt);
	numbers->seq = PROBED(t->tp, snd_nxt);
}

/* Makes an empty entry for an ACK; NULL: counted as dropped. */
static __always_inline struct late_ack *late_ack_new(const struct nt_ack_numbers *key)
{
	if (bpf_map_update_elem(&late_acks, key, &no_late_ack, BPF_ANY)) {
		count_dropped(NT_DROPPED_ACK_MAP);
		return NULL;
	}
	return bpf_map_lookup_elem(&late_acks, key);
}

static __always_inline struct late_ack *late_ack_find(u32 ack, u32 seq)
{
	struct nt_ack_numbers key = {.ack = ack, .seq = seq};

	return bpf_map_lookup_elem(&late_acks, &key);
}

/*
 * Returns when a receiver on this host sent this ACK late, if that is sure, was at since_ns or
 * later, and no sender has taken it; else 0. It is a function by itself because its callers are
 * inlined in many places.
 */
static __noinline u64 late_ack_sent_ns(u32 ack, u32 seq, u64 since_ns)
{
	struct late_ack *la = late_ack_find(ack, seq);

	return la && !la->unsure && !la->consumed && la->part.end_ns >= since_ns ? la->part.end_ns
										 : 0;
}
