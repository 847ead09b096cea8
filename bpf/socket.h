/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reads sockets. A program whose socket the verifier trusts (an argument of its hook) may load from
 * it directly; a socket found by arithmetic or by a kprobe needs a probed read for each field.
 */
#pragma once

#include "config.h"
#include "verdict.h"

/*
 * Does the kernel type the arguments of the hooks, so that programs may load directly? The compiler
 * knows: a look at a configuration before each field would cost as much as the field, and the
 * verifier would take what is left of the other way out of the program piece by piece.
 */
#ifndef NT_DIRECT
#define NT_DIRECT false
#endif

/* Does it have bpf_rdonly_cast()? */
#ifndef NT_CAST
#define NT_CAST (NT_DIRECT && nt_config.casts)
#endif

/*
 * Reads the field of *ptr in the cheapest way that the verifier allows: directly, or by a probed
 * read. The macro takes the pointer first, by itself: CO-RE would relocate the way to it too.
 */
#define READ(trusted, ptr, field)                                                \
	({                                                                       \
		typeof(&*(ptr)) __ptr = (ptr);                                   \
		typeof(__ptr->field) __value;                                    \
		if ((trusted) && NT_DIRECT)                                      \
			__value = __ptr->field;                                  \
		else                                                             \
			bpf_core_read(&__value, sizeof(__value), &__ptr->field); \
		__value;                                                         \
	})

#define PROBED(ptr, field...)                     \
	({                                        \
		typeof(&*(ptr)) __probed = (ptr); \
		BPF_CORE_READ(__probed, field);   \
	})

#define PROBED_BITS(ptr, field)                                 \
	({                                                      \
		typeof(&*(ptr)) __probed = (ptr);               \
		BPF_CORE_READ_BITFIELD_PROBED(__probed, field); \
	})

#define READ_BITS(trusted, ptr, field)                                                 \
	({                                                                             \
		typeof(&*(ptr)) __bits = (ptr);                                        \
		(trusted) && NT_DIRECT ? BPF_CORE_READ_BITFIELD(__bits, field)         \
				       : BPF_CORE_READ_BITFIELD_PROBED(__bits, field); \
	})

/*
 * User space makes these calls ones to the kernel's function where it has one (tracer.c). An
 * extern __ksym would have libbpf look for the kernel's own BTF, which --btf does without.
 */
#ifndef bpf_rdonly_cast
static void *(*const bpf_rdonly_cast)(void *object, u32 type) = (void *)NT_CALL_RDONLY_CAST;
#endif

/* A TCP socket; tp is NULL if it is none. */
struct tcp {
	struct sock *sk;
	struct tcp_sock *tp;
};

#define TCP(t, field)  READ(trusted, (t)->tp, field)
#define ICSK(t, field) READ(trusted, (t)->tp, inet_conn.field)
#define SK(t, field)   READ(trusted, (t)->sk, field)

static __always_inline struct tcp tcp_of(struct sock *sk, const bool trusted)
{
	struct tcp t = {.sk = sk};

	if (trusted && NT_DIRECT)
		t.tp = bpf_skc_to_tcp_sock(sk);
	else
		t.tp = (struct tcp_sock *)sk;
	return t;
}

/*
 * Returns the TCP socket that is a hook's argument. With NT_CAST the verifier takes it for one, and
 * that spares a helper's call. Only a program itself may ask: user space places no cast elsewhere.
 */
static __always_inline struct tcp tcp_of_argument(struct sock *sk)
{
	struct tcp t = {.sk = sk};

	if (!NT_CAST)
		return tcp_of(sk, true);
	t.tp = bpf_rdonly_cast(sk, NT_TYPE_TCP_SOCK);
	return t;
}

__u32 nought; /* nobody sets it, which the verifier does not know */

/*
 * Returns the number. To the verifier it may be any from here on: it follows what comes after once,
 * and not for each value that it knows.
 */
static __always_inline u32 forgotten(u32 number)
{
	return number + *(volatile u32 *)&nought;
}

/* Returns a socket as a number, which is what a global function takes. */
static __always_inline u64 socket_number(const struct sock *sk)
{
	u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), &sk);
	return number;
}

/* Returns how many ns it is since then. */
static __always_inline u64 since_jiffies(u32 jiffies)
{
	return (u32)((u32)bpf_jiffies64() - jiffies) * nt_config.tick_ns;
}

/* Has the socket sent no data for ns, and has no ACK come? The answer is exact to a jiffy. */
static __always_inline bool silent_for(const struct tcp *t, u64 ns, const bool trusted)
{
	return since_jiffies(TCP(t, rcv_tstamp)) >= ns && since_jiffies(TCP(t, lsndtime)) >= ns;
}

/* Returns when the socket last sent data or got an ACK, to a jiffy. */
static __always_inline u64 last_moved_ns(const struct tcp *t, const bool trusted)
{
	u64 sent_ns = since_jiffies(TCP(t, lsndtime)), came_ns = since_jiffies(TCP(t, rcv_tstamp));

	return bpf_ktime_get_ns() - (sent_ns < came_ns ? sent_ns : came_ns);
}

/* Returns when TCP last tried to send, or a segment last came: tcp_mstamp_refresh(). */
static __always_inline u64 tcp_clock(const struct tcp *t, const bool trusted)
{
	return TCP(t, tcp_clock_cache);
}

/* Returns tcp_min_rtt() in microseconds, 0 when there is none yet. */
static __always_inline u32 tcp_min_rtt_us(const struct tcp *t)
{
	u32 us = PROBED(t->tp, rtt_min.s[0].v);

	return us == ~0U ? 0 : us;
}

/*
 * Returns the longest delay of an ACK where the smallest retransmission timeout is rto_min, in
 * jiffies.
 */
static __always_inline u32 delack_from_rto_min(u32 rto_min)
{
	return rto_min > 2 ? rto_min - 1 : 1;
}

/*
 * Returns, in ns, the longest delay of an ACK that this socket allows, as far as it is set lower
 * than the kernel's own: tcp_delack_max(), and tcp_rto_min(), which counts since bbf80d713fe7 (6.7,
 * 6.6.10) where the route has it, and else since 6.11.
 */
static __always_inline u64 tcp_delack_limit_ns(const struct tcp *t)
{
	const u32 rtax_lock = 1, rtax_rto_min = 13; /* uapi/linux/rtnetlink.h */
	const struct inet_connection_sock *icsk = &t->tp->inet_conn;
	struct dst_entry *dst = BPF_CORE_READ(icsk, icsk_inet.sk.sk_dst_cache);
	u32 limit = ~0U, rto_min = ~0U, locked = 0, ms = 0;
	u32 *metrics;

	if (bpf_core_field_exists(icsk->icsk_delack_max))
		limit = BPF_CORE_READ(icsk, icsk_delack_max);
	if (!nt_config.delack_by_rto_min)
		return limit * nt_config.tick_ns;
	if (bpf_core_field_exists(((struct netns_ipv4 *)0)->sysctl_tcp_rto_min_us))
		rto_min = BPF_CORE_READ(icsk, icsk_rto_min);
	metrics = (u32 *)(BPF_CORE_READ(dst, _metrics) & ~3UL); /* DST_METRICS_PTR() */
	if (dst && metrics) {
		bpf_probe_read_kernel(&locked, sizeof(locked), &metrics[rtax_lock - 1]);
		bpf_probe_read_kernel(&ms, sizeof(ms), &metrics[rtax_rto_min - 1]);
	}
	if (locked & (1 << rtax_rto_min) && ms)
		rto_min = (ms * 1000000ULL + nt_config.tick_ns - 1) / nt_config.tick_ns;
	rto_min = delack_from_rto_min(rto_min);
	return (rto_min < limit ? rto_min : limit) * nt_config.tick_ns;
}

struct segment {
	u32 seq;
	u32 end_seq;
	u32 ack;
	u8 flags;
	bool fin;
};

/* The timestamp option of a segment, as tcp_parse_aligned_timestamp() expects it. */
struct timestamps {
	u8 nop[2], kind, size;
	__be32 value, echo;
};

/* Returns false if it has none there. The segment's data begins with the TCP header. */
static __always_inline bool read_timestamps(struct timestamps *ts, const struct sk_buff *skb)
{
	return !bpf_probe_read_kernel(ts, sizeof(*ts),
				      BPF_CORE_READ(skb, data) + TCP_HEADER_BYTES) &&
	       ts->kind == 8 && ts->size == 10;
}

#define CB_FIELD(cb, type, field) \
	(*(const type *)((cb) + bpf_core_field_offset(struct tcp_skb_cb, field)))

/* Reads what TCP knows of a segment, TCP_SKB_CB(), by one read. */
static __always_inline void read_segment(struct segment *seg, const struct sk_buff *skb)
{
	u8 cb[48] __attribute__((aligned(8))); /* sizeof(skb->cb) */

	bpf_probe_read_kernel(cb, sizeof(cb), &skb->cb);
	seg->seq = CB_FIELD(cb, u32, seq);
	seg->end_seq = CB_FIELD(cb, u32, end_seq);
	seg->ack = CB_FIELD(cb, u32, ack_seq);
	seg->flags = CB_FIELD(cb, u8, tcp_flags);
	seg->fin = seg->flags & TCPHDR_FIN;
}

/*
 * Reads the first unsent segment, tcp_send_head(). It does so by probes: to follow a pointer of a
 * trusted socket, the verifier looks for names through all of the kernel's BTF, at each visit.
 */
static __always_inline void tcp_read_head(struct nt_tcp_state *s, const struct tcp *t)
{
	u64 queue = (u64)t->tp + bpf_core_field_offset(struct sock, sk_write_queue);
	struct sk_buff *head = PROBED(t->sk, sk_write_queue.next);
	struct segment seg;

	if (!head || (u64)head == queue)
		return;
	s->has_head = true;
	read_segment(&seg, head);
	s->head_len = PROBED(head, len);
	s->head_seq = seg.seq;
	s->head_end_seq = seg.end_seq;
	s->head_fin = seg.fin;
	s->head_last = forgotten((u64)PROBED(head, next) == queue);
}

/*
 * Reads everything that the verdict and the release look at. The arguments of the attempt become
 * what tcp_push() passes; a caller that knows better sets them after.
 */
static __always_inline void tcp_read_state(struct nt_tcp_state *s, const struct tcp *t,
					   const bool trusted)
{
	unsigned long tsq = SK(t, sk_tsq_flags);

	__builtin_memset(s, 0, sizeof(*s));
	s->wstamp_ns = TCP(t, tcp_wstamp_ns);
	s->clock_ns = TCP(t, tcp_clock_cache);
	s->snd_una = TCP(t, snd_una);
	s->snd_nxt = TCP(t, snd_nxt);
	s->snd_sml = TCP(t, snd_sml);
	s->snd_up = TCP(t, snd_up);
	s->snd_wnd = TCP(t, snd_wnd);
	s->snd_cwnd = TCP(t, snd_cwnd);
	s->write_seq = TCP(t, write_seq);
	s->tlp_high_seq = TCP(t, tlp_high_seq);
	s->packets_out = TCP(t, packets_out);
	s->left_out = TCP(t, sacked_out) + TCP(t, lost_out);
	s->retrans_out = TCP(t, retrans_out);
	s->mss = TCP(t, mss_cache);
	s->unpushed = forgotten(TCP(t, pushed_seq) != s->write_seq);
	s->pacing = forgotten(SK(t, sk_pacing_status) == NT_SK_PACING_NEEDED);
	s->throttled = tsq & NT_TSQ_THROTTLED;
	s->resuming = forgotten(!!(tsq & NT_TSQ_RESUMING));
	s->queued_below =
		forgotten(SK(t, sk_wmem_alloc.refs.counter) > NT_SK_WMEM_BIAS ||
			  (TCP(t, high_seq) == s->snd_nxt &&
			   READ_BITS(trusted, &t->tp->inet_conn, icsk_ca_state) == NT_CA_CWR));
	s->nonagle = READ_BITS(trusted, t->tp, nonagle);
	s->nonagle_arg = s->nonagle;
	s->push_one = NT_PUSH_ALL;
	s->tcp_state = SK(t, __sk_common.skc_state);
	tcp_read_head(s, t);
	/* s stays in memory: else the compiler gives each field eight bytes of the small stack */
	asm volatile("" : : "r"(s) : "memory");
}

static __always_inline bool v4_mapped(const struct in6_addr *a)
{
	return !a->in6_u.u6_addr32[0] && !a->in6_u.u6_addr32[1] &&
	       a->in6_u.u6_addr32[2] == bpf_htonl(0xffff);
}

/* Reads addresses and ports; only where there is something to report, so always by probed reads. */
static __always_inline void read_tuple(struct nt_tuple *tuple, const struct sock *sk)
{
	const struct inet_sock *inet = (const void *)sk;
	struct in6_addr addr;

	__builtin_memset(tuple, 0, sizeof(*tuple));
	tuple->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	tuple->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	tuple->local_port = bpf_ntohs(BPF_CORE_READ(inet, inet_sport));
	tuple->remote_port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (tuple->family == AF_INET6) {
		BPF_CORE_READ_INTO(&addr, sk, __sk_common.skc_v6_daddr);
		if (v4_mapped(&addr)) {
			tuple->family = AF_INET;
		} else {
			__builtin_memcpy(tuple->remote_addr, &addr, sizeof(addr));
			BPF_CORE_READ_INTO(&addr, sk, __sk_common.skc_v6_rcv_saddr);
			__builtin_memcpy(tuple->local_addr, &addr, sizeof(addr));
		}
	}
	if (tuple->family == AF_INET) {
		__be32 v4 = BPF_CORE_READ(sk, __sk_common.skc_daddr);

		__builtin_memcpy(tuple->remote_addr, &v4, sizeof(v4));
		v4 = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		__builtin_memcpy(tuple->local_addr, &v4, sizeof(v4));
	}
}

/*
 * Returns tcp_pingpong_thresh of the socket's namespace; 1 where nobody can set it.
 */
static __always_inline u8 pingpong_thresh(const struct tcp *t)
{
	struct net *net;

	if (!bpf_core_field_exists(((struct netns_ipv4 *)0)->sysctl_tcp_pingpong_thresh))
		return 1;
	net = PROBED(t->tp, inet_conn.icsk_inet.sk.__sk_common.skc_net.net);
	return BPF_CORE_READ(net, ipv4.sysctl_tcp_pingpong_thresh);
}

/*
 * A socket's records take the room (share.h) of the user who made it and of the cgroup that it was
 * made in, as far up as three levels below the root. Below those users make cgroups as they like;
 * above them are services, pods, and users' sessions. An accepted socket has the listening one's.
 * Who runs just now does not matter, for the timer's softirq interrupts anybody.
 */
#define SHARE_LEVEL 3

static __always_inline struct cgroup *socket_cgroup(const struct sock *sk)
{
	u64 val;

	if (!bpf_core_field_exists(sk->sk_cgrp_data))
		return NULL;
	if (bpf_core_field_exists(sk->sk_cgrp_data.cgroup))
		return BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
	val = BPF_CORE_READ(sk, sk_cgrp_data.val);
	return val & 1 ? NULL : (struct cgroup *)(val & ~3ULL);
}

/* Reads a word of what the kernel keeps of each level above a cgroup, and of its own. */
static __always_inline u64 level_word(const struct cgroup *cgroup, u64 offset)
{
	u32 level = BPF_CORE_READ(cgroup, level);
	u64 word = 0;

	if (level > SHARE_LEVEL)
		level = SHARE_LEVEL;
	bpf_probe_read_kernel(&word, sizeof(word), (void *)cgroup + offset + level * sizeof(word));
	return word;
}

__noinline u64 share_of_socket(u64 number)
{
	const struct sock *sk = (void *)number;
	const struct cgroup *cgroup = socket_cgroup(sk);
	u64 uid = BPF_CORE_READ(sk, sk_uid.val);
	u64 offset;

	if (!cgroup)
		return uid;
	if (!bpf_core_field_exists(cgroup->ancestors)) {
		offset = bpf_core_field_offset(struct cgroup, ancestor_ids);
		return uid | level_word(cgroup, offset) << 32;
	}
	offset = bpf_core_field_offset(struct cgroup, ancestors);
	cgroup = (void *)level_word(cgroup, offset);
	return uid | BPF_CORE_READ(cgroup, kn, id) << 32;
}

static __always_inline u64 socket_share(const struct sock *sk)
{
	return share_of_socket(socket_number(sk));
}

/* Reads the socket's side of a record: addresses, options and interactive state as they are now. */
static __always_inline void read_end(struct nt_end *end, const struct tcp *t)
{
	u8 nonagle = PROBED_BITS(t->tp, nonagle);

	end->sk = (u64)t->sk;
	end->present = 1;
	end->min_rtt_us = tcp_min_rtt_us(t);
	end->nodelay = !!(nonagle & NT_NAGLE_OFF);
	end->cork = !!(nonagle & NT_NAGLE_CORK);
	end->quick = PROBED(t->tp, inet_conn.icsk_ack.quick);
	end->pingpong = PROBED(t->tp, inet_conn.icsk_ack.pingpong) >= pingpong_thresh(t);
	end->user = PROBED(t->sk, sk_socket, file) ? NT_USER_PROCESS : NT_USER_NOBODY;
	end->share = socket_share(t->sk);
	read_tuple(&end->tuple, t->sk);
}
