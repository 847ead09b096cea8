/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tells user space of what the programs see, as it happens, for --timeline. Without that the
 * verifier drops all of this. Events have a ring buffer of their own, so that they crowd out no
 * stall.
 */
#pragma once

#include "filter.h"
#include "scratch.h"

/* include/net/tcp_states.h */
#define NT_TCP_TIME_WAIT    6
#define NT_TCP_LISTEN       10
#define NT_TCP_NEW_SYN_RECV 12

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} events SEC(".maps");

/* Connections of processes asked for, by nt_connection_key(): the other end tells of them too. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, u8);
} watched SEC(".maps");

/* Events that found no room; each that comes after them carries their number. */
__u64 events_dropped;

/*
 * Does the running process use the socket? It does if it writes, or if it has locked the socket
 * while it reads or sends: a softirq acts for nobody.
 */
static __always_inline bool event_by_application(const struct sock *sk, u8 kind)
{
	if (kind == NT_EVENT_READ || kind == NT_EVENT_SENT)
		return PROBED(sk, sk_lock.owned);
	return kind == NT_EVENT_WRITE;
}

static const u8 is_watched = 1;

/*
 * Did the user ask for this connection? Once a process asked for uses it, the answer stays yes. The
 * event itself holds the key, to spare the small stack.
 */
static __always_inline bool connection_wanted(struct nt_event *e, bool by_application)
{
	if (nt_config.target == NT_TARGET_ALL)
		return true;
	e->dropped = nt_connection_key(&e->tuple);
	if (bpf_map_lookup_elem(&watched, &e->dropped))
		return true;
	if (!by_application || !is_target(&e->tgid, e->comm))
		return false;
	bpf_map_update_elem(&watched, &e->dropped, &is_watched, BPF_ANY);
	return true;
}

static __always_inline void event_fill(struct nt_event *e, u64 what, u64 numbers, u64 more)
{
	e->size = sizeof(*e);
	e->kind = what;
	e->reason = what >> 8;
	e->release = what >> 16;
	e->flags = what >> 24;
	e->seq = numbers;
	e->bytes = numbers >> 32;
	if (e->kind == NT_EVENT_HOLD_END) {
		e->duration_ns = more;
	} else {
		e->ack = more;
		e->in_flight_bytes = more >> 32;
	}
}

static __always_inline void event_read_socket(struct nt_event *e, const struct tcp *t)
{
	u8 nonagle = PROBED_BITS(t->tp, nonagle);

	e->nodelay = !!(nonagle & NT_NAGLE_OFF);
	e->cork = !!(nonagle & NT_NAGLE_CORK);
	e->pingpong = PROBED(t->tp, inet_conn.icsk_ack.pingpong) >= pingpong_thresh(t);
	e->quick = PROBED(t->tp, inet_conn.icsk_ack.quick);
	e->drained = PROBED(t->tp, copied_seq) == PROBED(t->tp, rcv_nxt);
	/* a segment out of order does not tell where reads go on */
	if (e->kind == NT_EVENT_RECEIVED && e->seq != PROBED(t->tp, rcv_nxt))
		e->drained = 0;
}

/*
 * Tells of an event on the socket of that number:
 * - what: enum nt_event_kind, and by bytes above it the hold's reason and release, the TCP flags or
 *   the state;
 * - numbers: a sequence number, and in the upper half how many bytes;
 * - more: when a hold is over its duration in ns, else an acknowledgement, and in the upper half
 *   the bytes in flight;
 * - time_ns: 0 for now.
 *
 * This is a global function for the verifier's sake, as hold_judge(). It makes the event in the
 * scratch, so that only those asked for take room.
 */
__noinline int event_note(u64 sk, u64 time_ns, u64 what, u64 numbers, u64 more)
{
	struct tcp t = tcp_of((void *)sk, false);
	struct nt_event *e;
	bool by_application;
	u32 level;

	if (!nt_config.timeline) /* before 6.8 the verifier follows the rest all the same */
		return 0;
	e = scratch_take(&level);
	if (!e) {
		__sync_fetch_and_add(&events_dropped, 1);
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->sk = sk;
	e->time_ns = time_ns ? time_ns : bpf_ktime_get_ns();
	event_fill(e, what, numbers, more);
	read_tuple(&e->tuple, t.sk);
	by_application = event_by_application(t.sk, what);
	if (by_application) {
		e->tgid = bpf_get_current_pid_tgid() >> 32;
		e->tid = (u32)bpf_get_current_pid_tgid();
		read_leader_comm(e->comm);
	}
	if (tuple_wanted(&e->tuple) && connection_wanted(e, by_application)) {
		event_read_socket(e, &t);
		e->dropped = events_dropped;
		/* user space looks now and then */
		if (bpf_ringbuf_output(&events, e, sizeof(*e), BPF_RB_NO_WAKEUP))
			__sync_fetch_and_add(&events_dropped, 1);
	}
	scratch_give(level);
	return 0;
}

_Static_assert(sizeof(struct nt_event) <= SCRATCH_BYTES, "room for an event");

static __always_inline u64 halves(u32 low, u32 high)
{
	return low | (u64)high << 32;
}

/*
 * Tells of a write. This and the like of it below are functions by themselves, so that the fast
 * path keeps its caller's registers.
 */
static __noinline int event_note_write(struct sock *sk, u32 bytes)
{
	const struct tcp_sock *tp = (void *)sk;

	return event_note(socket_number(sk), 0, NT_EVENT_WRITE,
			  halves(PROBED(tp, write_seq) - bytes, bytes), 0);
}

/* The application wrote bytes, the last of which is the last of the queue. */
static __always_inline void event_write(struct sock *sk, u32 bytes)
{
	if (nt_config.timeline)
		event_note_write(sk, bytes);
}

static __noinline int event_note_read(struct sock *sk)
{
	const struct tcp_sock *tp = (void *)sk;

	return event_note(socket_number(sk), 0, NT_EVENT_READ, PROBED(tp, copied_seq), 0);
}

/* The application took what came before copied_seq. */
static __always_inline void event_read(struct sock *sk)
{
	if (nt_config.timeline)
		event_note_read(sk);
}

static __always_inline void event_segment(struct sock *sk, enum nt_event_kind kind,
					  const struct segment *seg, u32 len)
{
	event_note(socket_number(sk), 0, kind | (u64)seg->flags << 24, halves(seg->seq, len),
		   seg->ack);
}

static __noinline int event_note_received(struct sock *sk, const struct sk_buff *skb)
{
	struct segment seg;

	read_segment(&seg, skb);
	event_segment(sk, NT_EVENT_RECEIVED, &seg, seg.end_seq - seg.seq - seg.fin);
	return 0;
}

/* A segment has come: tcp_probe. */
static __always_inline void event_received(struct sock *sk, const struct sk_buff *skb)
{
	if (nt_config.timeline)
		event_note_received(sk, skb);
}

/*
 * Does TCP's header follow that of IP? IPsec puts its own there. A NAT has rewritten ports, which
 * therefore tell nothing.
 */
static __always_inline bool has_tcp_header(const struct sk_buff *skb)
{
	u8 ip[10]; /* up to the protocol of IPv4; that of IPv6 lies before it */

	if (bpf_probe_read_kernel(ip, sizeof(ip), PROBED(skb, head) + PROBED(skb, network_header)))
		return false;
	return (ip[0] >> 4 == 6 ? ip[6] : ip[9]) == IPPROTO_TCP;
}

/*
 * A packet goes to a device, with all its headers: net_dev_queue. On its way through devices that
 * are stacked it comes here again and again; the first one is the route's.
 */
static __always_inline void event_queued(struct sk_buff *skb)
{
	struct sock *sk = PROBED(skb, sk);
	const struct dst_entry *dst;
	struct segment seg = {};
	struct tcphdr tcp;
	u16 state;
	u32 offset;

	/* a raw socket sends TCP too, and so does the kernel's own without a connection */
	if (!sk || PROBED(sk, sk_protocol) != IPPROTO_TCP || PROBED(sk, sk_type) != SOCK_STREAM ||
	    !PROBED(sk, __sk_common.skc_dport))
		return;
	state = PROBED(sk, __sk_common.skc_state);
	if (state == NT_TCP_TIME_WAIT || state == NT_TCP_NEW_SYN_RECV || state == NT_TCP_LISTEN)
		return; /* this is no whole socket, or not a connection's */
	dst = PROBED(sk, sk_dst_cache);
	if (dst && bpf_core_field_exists(dst->dev) &&
	    (u64)PROBED(dst, dev) != (u64)PROBED(skb, dev))
		return;
	if (!has_tcp_header(skb))
		return;
	offset = PROBED(skb, transport_header);
	if (bpf_probe_read_kernel(&tcp, sizeof(tcp), PROBED(skb, head) + offset))
		return;
	seg.seq = bpf_ntohl(tcp.seq);
	seg.ack = bpf_ntohl(tcp.ack_seq);
	seg.flags = tcp.flags;
	offset -= PROBED(skb, data) - PROBED(skb, head);
	event_segment(sk, NT_EVENT_SENT, &seg, PROBED(skb, len) - offset - (tcp.doff >> 4) * 4);
}

/* Tells of something without numbers of its own: an ACK is delayed, its timer fires. */
static __always_inline void event_plain(struct sock *sk, enum nt_event_kind kind)
{
	if (nt_config.timeline)
		event_note(socket_number(sk), 0, kind, 0, 0);
}

/* The connection opens or closes; tells the numbers of the first bytes of both ways. */
static __always_inline void event_state(struct sock *sk, u8 state)
{
	const struct tcp_sock *tp = (void *)sk;

	event_note(socket_number(sk), 0, NT_EVENT_STATE | (u64)state << 24, PROBED(tp, snd_una),
		   PROBED(tp, rcv_nxt));
}

/* The caller has asked whether somebody wants a timeline. */
static __always_inline void event_hold_begin(struct sock *sk, u8 reason, u32 seq, u32 bytes,
					     u32 in_flight_bytes)
{
	event_note(socket_number(sk), 0, NT_EVENT_HOLD_BEGIN | (u64)reason << 8, halves(seq, bytes),
		   halves(0, in_flight_bytes));
}
