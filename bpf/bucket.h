/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What need not be looked for. Most segments and writes meet a socket that has nothing queued,
 * holds nothing and awaits nothing: a bucket of sockets, by the hash of their addresses, tells so
 * without a look into a map, and the fields asked here are all of struct sock, which needs no
 * helper.
 */
#ifndef NT_BUCKET_H
#define NT_BUCKET_H

#include "socket.h"

#define BUCKETS 1024

/* No answer to an ACK comes later than this: see latest_answer_ns(). */
#define ANSWER_NS 4000000000ULL

struct bucket {
	__u32 holds;        /* how many sockets in it have one */
	__u32 late_jiffies; /* when a delayed-ACK timer of theirs last sent an ACK; 0: none did */
	__u32 large_hash;   /* of the socket whose large tail was looked at last; 0: none */
	__u32 large_jiffies;
};

static struct bucket buckets[BUCKETS];

/* It does not change while a socket is connected. */
static __always_inline u32 bucket_index(struct sock *sk, const bool trusted)
{
	return READ(trusted, sk, __sk_common.skc_hash) % BUCKETS;
}

static __always_inline bool bucket_awaits_answer(const struct bucket *b)
{
	u32 jiffies = (u32)bpf_jiffies64() - b->late_jiffies;

	return jiffies * nt_config.tick_ns < ANSWER_NS;
}

/* This socket's tail was looked at. large: one that no stall can be made of until it is smaller. */
static __always_inline void bucket_note_tail(u32 hash, bool large)
{
	struct bucket *b = &buckets[hash % BUCKETS];

	if (large) {
		b->large_hash = hash;
		b->large_jiffies = (u32)bpf_jiffies64();
	} else if (b->large_hash == hash) {
		b->large_hash = 0;
	}
}

/* Was this socket's tail a large one, and looked at in this jiffy? */
static __always_inline bool bucket_knows_large(struct sock *sk, const bool trusted)
{
	u32 hash = READ(trusted, sk, __sk_common.skc_hash);
	const struct bucket *b = &buckets[hash % BUCKETS];

	return hash && b->large_hash == hash && b->large_jiffies == (u32)bpf_jiffies64();
}

/* May this socket have a tail or a hold? */
static __always_inline bool socket_may_hold(struct sock *sk, const bool trusted)
{
	return READ(trusted, sk, sk_write_queue.qlen) || buckets[bucket_index(sk, trusted)].holds;
}

/* The same, or may what has come be the answer to an ACK that a timer sent? */
static __always_inline bool segment_may_matter(struct sock *sk, const bool trusted)
{
	const struct bucket *b = &buckets[bucket_index(sk, trusted)];

	return READ(trusted, sk, sk_write_queue.qlen) || b->holds ||
	       (b->late_jiffies && bucket_awaits_answer(b));
}

#endif /* NT_BUCKET_H */
