/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fast path: skips sockets that cannot matter. Most segments and writes meet a socket that has
 * nothing queued, holds nothing and awaits nothing. A bucket of sockets, by the hash of their
 * addresses, says so without a look into a map, and all fields that this file asks for are of
 * struct sock and struct sk_buff, which need no helper.
 */
#pragma once

#include "socket.h"

#define BUCKETS 1024

/* No answer to an ACK comes later than this; latest_answer_ns() has the exact limit. */
#define ANSWER_NS 4000000000ULL

/* Jiffies may stand still for so long, with the virtual CPU that keeps them, and then catch up. */
#define JIFFIES_LAG_NS 20000000ULL

/* The longest wait of bucket_await_answer() is one less, where HZ is 1000. */
#define ANSWER_JIFFIES 4022

struct nt_bucket buckets[BUCKETS]; /* user space clears them while no program is attached */

/* An ACK is no longer on its way from one socket of this host to another, also on a busy machine.
 * Through a device that is made slow it may be: then user space decides by the sockets it knows. */
#define ACK_WAY_NS      20000000ULL
#define ACK_WAY_JIFFIES 22 /* it takes fewer of them, where HZ is 1000 */

__u32 late_until; /* until this jiffy an ACK that some socket's timer sent may be on its way */

/* A socket stays in its bucket while it is connected. */
static __always_inline u32 bucket_index(struct sock *sk, const bool trusted)
{
	return READ(trusted, sk, __sk_common.skc_hash) % BUCKETS;
}

static __always_inline bool bucket_awaits_answer(const struct nt_bucket *b)
{
	return b->answer_until && b->answer_until - (u32)bpf_jiffies64() < ANSWER_JIFFIES;
}

/* The answer to a late ACK of this socket comes within ns from now, or tells nothing. */
static __always_inline void bucket_await_answer(struct sock *sk, u64 ns)
{
	struct nt_bucket *b = &buckets[bucket_index(sk, false)];
	u32 until = (u32)bpf_jiffies64() + 1;

	ns = (ns < ANSWER_NS ? ns : ANSWER_NS) + JIFFIES_LAG_NS;
	until += ns / nt_config.tick_ns;
	if (!bucket_awaits_answer(b) || nt_after(until, b->answer_until))
		b->answer_until = until;
}

/* A delayed-ACK timer sends an ACK now. */
static __always_inline void late_ack_goes(void)
{
	late_until = (u32)bpf_jiffies64() + (u32)((ACK_WAY_NS - 1) / nt_config.tick_ns);
}

static __always_inline bool late_ack_may_come(void)
{
	u32 now = bpf_jiffies64();

	return late_until - now < ACK_WAY_JIFFIES; /* read last: this keeps no register */
}

/* Notes a look at a socket's tail. large: it cannot become a stall until it is smaller. */
static __always_inline void bucket_note_tail(u32 hash, bool large)
{
	struct nt_bucket *b = &buckets[hash % BUCKETS];

	if (large) {
		b->large_hash = hash;
		b->large_jiffies = (u16)bpf_jiffies64();
	} else if (b->large_hash == hash) {
		b->large_hash = 0;
	}
}

/*
 * Held bytes go out, from seq to end_seq, which several writes wrote, or which are a part of one.
 * longer: than a segment, together with those that are held on; held_on: there are such.
 */
static __always_inline void bucket_note_mixed(u32 hash, u32 seq, u32 end_seq, bool longer,
					      bool held_on)
{
	struct nt_bucket *b = &buckets[hash % BUCKETS];

	longer |= b->mixed_long == NT_MIXED_LONG_BEGUN && b->mixed_hash == hash &&
		  b->mixed_seq == seq;
	b->mixed_long = !longer ? NT_MIXED_SHORT : held_on ? NT_MIXED_LONG_BEGUN : NT_MIXED_LONG;
	b->mixed_hash = hash;
	b->mixed_seq = end_seq;
}

/* May what is in flight, from una on, be of that kind? */
static __always_inline bool bucket_knows_mixed(u32 hash, u32 una)
{
	const struct nt_bucket *b = &buckets[hash % BUCKETS];

	return b->mixed_hash == hash && nt_after(b->mixed_seq, una);
}

/* And is it the end of a longer one? */
static __always_inline bool bucket_knows_long(u32 hash, u32 una)
{
	return buckets[hash % BUCKETS].mixed_long && bucket_knows_mixed(hash, una);
}

/* A socket stalls while it awaits this byte of its peer. Returns: as it did at its stall before? */
static __always_inline bool bucket_note_stall(u32 hash, u32 rcv_nxt)
{
	struct nt_bucket *b = &buckets[hash % BUCKETS];
	bool unanswered = b->stalled_hash == hash && b->stalled_rcv_nxt == rcv_nxt;

	b->stalled_hash = hash;
	b->stalled_rcv_nxt = rcv_nxt;
	return unanswered;
}

/* Has a program found this socket's tail large in this jiffy? */
static __always_inline bool bucket_knows_large(struct sock *sk, const bool trusted)
{
	u32 hash = READ(trusted, sk, __sk_common.skc_hash);
	const struct nt_bucket *b = &buckets[hash % BUCKETS];

	return hash && b->large_hash == hash && b->large_jiffies == (u16)bpf_jiffies64();
}

static __always_inline bool bucket_has_holds(struct sock *sk, const bool trusted)
{
	return buckets[bucket_index(sk, trusted)].holds;
}

/* May this socket have a tail or a hold? */
static __always_inline bool socket_may_hold(struct sock *sk, const bool trusted)
{
	return READ(trusted, sk, sk_write_queue.qlen) || bucket_has_holds(sk, trusted);
}

/* May a close() have waited, or a hold end, as this socket goes? */
static __always_inline bool close_may_matter(struct sock *sk, const bool trusted)
{
	return READ(trusted, sk, sk_lingertime) || bucket_has_holds(sk, trusted);
}

/* May a writer wait for room in the send buffer? sk_stream_is_writeable() */
static __always_inline bool lacks_room(struct sock *sk, const bool trusted)
{
	int queued = READ(trusted, sk, sk_wmem_queued);

	return queued + (queued >> 1) > READ(trusted, sk, sk_sndbuf);
}

/* Does this segment bring no data? */
static __always_inline bool is_dataless(struct sk_buff *skb, const bool trusted)
{
	struct tcp_skb_cb *cb = (void *)skb->cb;

	return READ(trusted, cb, seq) == READ(trusted, cb, end_seq) ||
	       READ(trusted, cb, tcp_flags) & TCPHDR_FIN;
}

/*
 * Asks the same, and whether this segment may be an ACK that a timer of this host sent, or one that
 * makes room, or the answer to one. exactly: as long as an answer may come, and no longer. Without,
 * this calls nothing that needs what it has read after, so that its program saves few registers.
 */
static __always_inline bool segment_may_matter(struct sock *sk, struct sk_buff *skb,
					       const bool exactly, const bool trusted)
{
	const struct nt_bucket *b = &buckets[bucket_index(sk, trusted)];

	return READ(trusted, sk, sk_write_queue.qlen) ||
	       (exactly ? b->holds || bucket_awaits_answer(b) : b->holds_or_awaits) ||
	       (is_dataless(skb, trusted) && (lacks_room(sk, trusted) || late_ack_may_come()));
}
