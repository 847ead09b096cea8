// SPDX-License-Identifier: GPL-2.0
/*
 * Programs at the hooks of bpf/nagletrace.bpf.c that judge nothing: each writes down what the
 * program there could read. recorder.c attaches them.
 */
#include <stdbool.h>
#include <linux/ptrace.h>
#include "vmlinux_min.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "recorded.h"
#include "timers.h"

char LICENSE[] SEC("license") = "GPL";

#define SPACES 2

const volatile u32 spaces[SPACES];
u64 dropped;
u64 delack_timer_function;
u64 write_timer_function;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} snapshots SEC(".maps");

static __always_inline bool space_is_recorded(u32 inum)
{
	for (int i = 0; i < SPACES; i++)
		if (spaces[i] && spaces[i] == inum)
			return true;
	return false;
}

static __always_inline void record_segment(struct recorded_segment *to, const struct sk_buff *skb)
{
	u8 cb[48] __attribute__((aligned(8)));

	bpf_probe_read_kernel(cb, sizeof(cb), &skb->cb);
	to->seq = *(u32 *)(cb + bpf_core_field_offset(struct tcp_skb_cb, seq));
	to->end_seq = *(u32 *)(cb + bpf_core_field_offset(struct tcp_skb_cb, end_seq));
	to->ack = *(u32 *)(cb + bpf_core_field_offset(struct tcp_skb_cb, ack_seq));
	to->flags = *(u8 *)(cb + bpf_core_field_offset(struct tcp_skb_cb, tcp_flags));
	to->len = BPF_CORE_READ(skb, len);
	to->there = 1;
}

static __always_inline void record_head(struct recorded *r, struct sock *sk)
{
	u64 queue = (u64)sk + bpf_core_field_offset(struct sock, sk_write_queue);
	struct sk_buff *head = BPF_CORE_READ(sk, sk_write_queue.next);

	if (!head || (u64)head == queue)
		return;
	record_segment(&r->head, head);
	r->head.last = (u64)BPF_CORE_READ(head, next) == queue;
}

static __always_inline void record_route(struct recorded *r, const struct sock *sk)
{
	const u32 rtax_lock = 1, rtax_rto_min = 13; /* uapi/linux/rtnetlink.h */
	struct dst_entry *dst = BPF_CORE_READ(sk, sk_dst_cache);
	u32 *metrics = dst ? (u32 *)(BPF_CORE_READ(dst, _metrics) & ~3UL) : NULL;

	if (!metrics)
		return;
	bpf_probe_read_kernel(&r->route_locked, sizeof(u32), &metrics[rtax_lock - 1]);
	bpf_probe_read_kernel(&r->route_rto_min, sizeof(u32), &metrics[rtax_rto_min - 1]);
}

static __always_inline u8 pingpong_thresh(struct net *net)
{
	if (!bpf_core_field_exists(((struct netns_ipv4 *)0)->sysctl_tcp_pingpong_thresh))
		return 1;
	return BPF_CORE_READ(net, ipv4.sysctl_tcp_pingpong_thresh);
}

/* This is inlined in each program: a global function takes too few arguments. */
static __always_inline void record_fields(struct recorded *r, struct tcp_sock *tp)
{
	struct inet_connection_sock *inet_conn = &tp->inet_conn;
	struct tcp_options_received *rx_opt = &tp->rx_opt;

#define RECORD_PLAIN(type, name, field...) r->name = BPF_CORE_READ(tp, field);
#define RECORD_BITS(type, name, part, field) r->name = BPF_CORE_READ_BITFIELD_PROBED(part, field);
#define RECORD_MAYBE(type, name, field, absent)                                  \
	r->name = bpf_core_field_exists(((struct tcp_sock *)0)->field)           \
			  ? BPF_CORE_READ(tp, field)                             \
			  : absent;
	RECORDED_FIELDS(RECORD_PLAIN, RECORD_BITS, RECORD_MAYBE)
	r->nonagle = BPF_CORE_READ_BITFIELD_PROBED(tp, nonagle);
}

static __always_inline struct recorded *record_new(struct sock *sk, enum recorded_program program)
{
	struct net *net = BPF_CORE_READ(sk, __sk_common.skc_net.net);
	u32 inum = BPF_CORE_READ(net, ns.inum);
	struct recorded *r;

	if (!space_is_recorded(inum) || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return NULL;
	r = bpf_ringbuf_reserve(&snapshots, sizeof(*r), 0);
	if (!r) {
		__sync_fetch_and_add(&dropped, 1);
		return NULL;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->ns = bpf_ktime_get_ns();
	r->jiffies = bpf_jiffies64();
	r->sk = (u64)sk;
	r->pid_tgid = bpf_get_current_pid_tgid();
	r->netns = inum;
	r->cpu = bpf_get_smp_processor_id();
	r->thresh = pingpong_thresh(net);
	r->program = program;
	record_fields(r, (struct tcp_sock *)sk);
	record_head(r, sk);
	record_route(r, sk);
	return r;
}

static __always_inline void record_plainly(struct sock *sk, enum recorded_program program)
{
	struct recorded *r = record_new(sk, program);

	if (r)
		bpf_ringbuf_submit(r, 0);
}

/* A write has returned this. */
static __always_inline void record_write(struct sock *sk, enum recorded_program program, int ret)
{
	struct recorded *r = record_new(sk, program);

	if (!r)
		return;
	r->ret = ret;
	bpf_ringbuf_submit(r, 0);
}

static __always_inline void record_skb(struct recorded *r, struct sk_buff *skb)
{
	record_segment(&r->skb, skb);
	bpf_probe_read_kernel(r->header, sizeof(r->header), BPF_CORE_READ(skb, data));
}

SEC("raw_tp/tcp_probe")
int BPF_PROG(record_probe, struct sock *sk, struct sk_buff *skb)
{
	struct recorded *r = record_new(sk, RECORDED_PROBE);

	if (!r)
		return 0;
	record_skb(r, skb);
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("raw_tp/tcp_destroy_sock")
int BPF_PROG(record_destroy, struct sock *sk)
{
	if (!delack_timer_function) {
		write_timer_function = timer_function(sk, write_timer_offset());
		delack_timer_function = timer_function(sk, delack_timer_offset());
	}
	record_plainly(sk, RECORDED_DESTROY);
	return 0;
}

SEC("raw_tp/sock_send_length")
int BPF_PROG(record_send_length, struct sock *sk, int ret)
{
	record_write(sk, RECORDED_SEND_LENGTH, ret);
	return 0;
}

static __always_inline void record_timer(struct timer_list *timer, enum recorded_program program)
{
	u64 function = (u64)BPF_CORE_READ(timer, function);
	struct recorded *r;
	struct sock *sk;

	if (!function || (function != delack_timer_function && function != write_timer_function))
		return;
	sk = (void *)timer - (function == delack_timer_function ? delack_timer_offset()
								: write_timer_offset());
	r = record_new(sk, program);
	if (!r)
		return;
	r->timer = function == delack_timer_function ? RECORDED_DELACK_TIMER : RECORDED_WRITE_TIMER;
	bpf_ringbuf_submit(r, 0);
}

SEC("raw_tp/timer_expire_entry")
int BPF_PROG(record_timer_expire, struct timer_list *timer)
{
	record_timer(timer, RECORDED_TIMER_EXPIRE);
	return 0;
}

SEC("fexit/tcp_write_xmit")
int BPF_PROG(record_write_xmit, struct sock *sk, unsigned int mss, int nonagle, int push_one)
{
	struct recorded *r = record_new(sk, RECORDED_WRITE_XMIT);

	if (!r)
		return 0;
	r->mss = mss;
	r->nonagle_argument = nonagle;
	r->push_one = push_one;
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("fexit/tcp_sendmsg_locked")
int BPF_PROG(record_sendmsg, struct sock *sk, struct msghdr *msg, unsigned long size, int ret)
{
	record_write(sk, RECORDED_SENDMSG, ret);
	return 0;
}

SEC("fentry/tcp_delack_timer_handler")
int BPF_PROG(record_delack_handler, struct sock *sk)
{
	record_plainly(sk, RECORDED_DELACK_HANDLER);
	return 0;
}

SEC("fentry/__tcp_transmit_skb")
int BPF_PROG(record_transmit, struct sock *sk, struct sk_buff *skb, int clone_it, int gfp,
	     u32 rcv_nxt)
{
	struct recorded *r = record_new(sk, RECORDED_TRANSMIT);

	if (!r)
		return 0;
	record_skb(r, skb);
	r->rcv_nxt_argument = rcv_nxt;
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("fentry/tcp_write_wakeup")
int BPF_PROG(record_write_wakeup, struct sock *sk)
{
	record_plainly(sk, RECORDED_WRITE_WAKEUP);
	return 0;
}
