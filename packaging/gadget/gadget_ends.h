/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which connections have both ends on this host. There a sender that shows nothing contradicts what
 * the receiver infers; nagletrace's user space knows that of all sockets (peer_contradicts()).
 */
#pragma once

#include "socket.h"

#define IFF_LOOPBACK 0x8 /* include/uapi/linux/if.h */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net_device {
	unsigned int flags;
};

#pragma clang attribute pop

struct ends {
	u64 sk; /* of the end that was open first */
	bool both;
};

/* By nt_connection_key(), which both ends have; the least recently used give way. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct ends);
} connections SEC(".maps");

/* An end of a connection opens. */
static __always_inline void note_end(struct sock *sk)
{
	struct ends first = {.sk = (u64)sk}, *known;
	struct nt_tuple tuple;
	u64 key;

	read_tuple(&tuple, sk);
	key = nt_connection_key(&tuple);
	known = bpf_map_lookup_elem(&connections, &key);
	if (known && !known->both && known->sk != (u64)sk)
		known->both = true;
	else if (!known || known->both) /* both of an earlier connection */
		bpf_map_update_elem(&connections, &key, &first, BPF_ANY);
}

/* An end whose peer is elsewhere closes: the next connection of the same ports is another one. */
static __always_inline void forget_end(struct sock *sk)
{
	const struct ends *known;
	struct nt_tuple tuple;
	u64 key;

	read_tuple(&tuple, sk);
	key = nt_connection_key(&tuple);
	known = bpf_map_lookup_elem(&connections, &key);
	if (known && !known->both && known->sk == (u64)sk)
		bpf_map_delete_elem(&connections, &key);
}

/* A connection from before the start is not known, but what goes by lo has both ends here. */
static __always_inline bool goes_by_loopback(const struct sock *sk)
{
	const struct dst_entry *dst = BPF_CORE_READ(sk, sk_dst_cache);

	return dst && bpf_core_field_exists(dst->dev) &&
	       BPF_CORE_READ(dst, dev, flags) & IFF_LOOPBACK;
}

static __always_inline bool both_ends_are_here(const struct nt_end *end)
{
	u64 key = nt_connection_key(&end->tuple);
	const struct ends *known = bpf_map_lookup_elem(&connections, &key);

	return (known && known->both) || goes_by_loopback((const void *)end->sk);
}
