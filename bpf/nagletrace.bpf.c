// SPDX-License-Identifier: GPL-2.0
/*
 * The programs: each fetches its socket and calls the rule of events.h or pending_ack.h.
 *
 * Tracepoint programs are raw_tp here; user space turns them into BTF-typed ones (tp_btf) where the
 * kernel has BTF. userspace/hooks.c knows which program belongs to which hook and family.
 */
#include <linux/ptrace.h>
#include "kernel.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "events.h"

char LICENSE[] SEC("license")
= "GPL";

/* The timers' functions, learned from the first socket that goes: user space makes one on purpose.
 */
__u64 delack_timer_function;
__u64 write_timer_function;

/* Where the retransmit timer lies in a socket; 0: this kernel has it in neither place. */
static __always_inline u64 write_timer_offset(void)
{
	struct inet_connection_sock *icsk = NULL;
	struct sock___retransmit *sk = NULL;

	if (bpf_core_field_exists(icsk->icsk_retransmit_timer))
		return bpf_core_field_offset(struct inet_connection_sock, icsk_retransmit_timer);
	if (bpf_core_field_exists(sk->tcp_retransmit_timer))
		return bpf_core_field_offset(struct sock___retransmit, tcp_retransmit_timer);
	return 0;
}

static __always_inline u64 delack_timer_offset(void)
{
	return bpf_core_field_offset(struct inet_connection_sock, icsk_delack_timer);
}

static __always_inline u64 timer_function(const struct sock *sk, u64 offset)
{
	const struct timer_list *timer = (void *)sk + offset;

	return offset ? (u64)BPF_CORE_READ(timer, function) : 0;
}

static __always_inline void learn_timers(const struct sock *sk)
{
	if (delack_timer_function)
		return;
	write_timer_function = timer_function(sk, write_timer_offset());
	delack_timer_function = timer_function(sk, delack_timer_offset());
}

static __always_inline void ack_delayed(const struct tcp *t, const bool trusted)
{
	event_plain(t->sk, NT_EVENT_ACK_DELAYED);
	pending_ack_begin(t, trusted);
}

static __always_inline void timer_handler(const struct tcp *t, const bool trusted)
{
	if (pending_ack_timer_handler(t, trusted))
		event_plain(t->sk, NT_EVENT_ACK_TIMER);
}

/* An ACK or data is about to leave: __tcp_transmit_skb(). It may be a probe's, of old numbers. */
static __always_inline void transmits(const struct tcp *t, struct sk_buff *skb, u32 rcv_nxt,
				      const bool trusted)
{
	event_transmit(t->sk, skb, rcv_nxt);
	if (TCP(t, rcv_nxt) == rcv_nxt)
		pending_ack_transmit(t, READ(trusted, skb, len), trusted);
}

/* ---- tracepoints of both families ---- */

SEC("raw_tp/tcp_probe")
int BPF_PROG(on_tcp_probe, struct sock *sk, struct sk_buff *skb)
{
	struct tcp t;

	event_received(sk, skb);
	if (!segment_may_matter(sk, true))
		return 0;
	t = tcp_of(sk, true);
	if (t.tp)
		segment_came(&t, skb, false, true);
	return 0;
}

/* The same where functions are hooked; by itself, for the small stack's sake. */
SEC("raw_tp/tcp_probe")
int BPF_PROG(on_tcp_probe_too, struct sock *sk, struct sk_buff *skb)
{
	struct tcp t;

	event_received(sk, skb);
	if (!segment_may_matter(sk, true))
		return 0;
	t = tcp_of(sk, true);
	if (t.tp)
		segment_came(&t, skb, true, true);
	return 0;
}

SEC("raw_tp/tcp_receive_reset")
int BPF_PROG(on_tcp_receive_reset, struct sock *sk)
{
	struct tcp t = tcp_of(sk, true);

	if (t.tp)
		socket_closed(&t, true);
	return 0;
}

SEC("raw_tp/tcp_destroy_sock")
int BPF_PROG(on_tcp_destroy_sock, struct sock *sk)
{
	struct tcp t = tcp_of(sk, true);
	u64 key = (u64)sk;

	learn_timers(sk);
	if (t.tp)
		socket_closed(&t, true);
	if (nt_config.target != NT_TARGET_ALL)
		bpf_map_delete_elem(&owned, &key);
	return 0;
}

/* ---- what only --timeline needs ---- */

SEC("raw_tp/tcp_rcv_space_adjust")
int BPF_PROG(on_tcp_rcv_space_adjust, struct sock *sk)
{
	event_read(sk);
	return 0;
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(on_inet_sock_set_state, struct sock *sk, int oldstate, int newstate)
{
	if ((newstate == NT_TCP_ESTABLISHED || newstate == NT_TCP_CLOSE) &&
	    oldstate != NT_TCP_LISTEN && PROBED(sk, sk_protocol) == IPPROTO_TCP)
		event_state(sk, newstate);
	return 0;
}

SEC("raw_tp/net_dev_queue")
int BPF_PROG(on_net_dev_queue, struct sk_buff *skb)
{
	event_queued(skb);
	return 0;
}

/* ---- the tracepoint family; its timers serve kprobes too ---- */

SEC("raw_tp/sock_send_length")
int BPF_PROG(on_sock_send_length, struct sock *sk, int ret)
{
	const bool trusted = true;
	struct tcp t;

	if (ret <= 0 || READ(trusted, sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	event_write(sk, ret);
	count_write(sk, trusted);
	if (!socket_may_hold(sk, trusted))
		return 0;
	t = tcp_of(sk, trusted);
	if (t.tp)
		write_ended(ctx, &t, trusted);
	return 0;
}

enum timer_kind {
	TIMER_OTHER,
	TIMER_DELACK,
	TIMER_WRITE,
};

/* Whose timer is it? Sets *t where it is a TCP socket's; most timers are not. */
static __always_inline enum timer_kind timer_kind(struct timer_list *timer, struct tcp *t)
{
	const bool trusted = true;
	u64 function = (u64)READ(trusted, timer, function);

	if (!function)
		return TIMER_OTHER;
	if (function == delack_timer_function) {
		*t = tcp_of((void *)timer - delack_timer_offset(), false);
		return TIMER_DELACK;
	}
	if (function == write_timer_function) {
		*t = tcp_of((void *)timer - write_timer_offset(), false);
		return TIMER_WRITE;
	}
	return TIMER_OTHER;
}

SEC("raw_tp/timer_start")
int BPF_PROG(on_timer_start, struct timer_list *timer)
{
	enum timer_kind kind;
	struct tcp t;

	kind = timer_kind(timer, &t);
	if (kind == TIMER_DELACK)
		ack_delayed(&t, false);
	else if (kind == TIMER_WRITE)
		write_timer_starts(&t);
	return 0;
}

SEC("raw_tp/timer_expire_entry")
int BPF_PROG(on_timer_expire_entry, struct timer_list *timer)
{
	enum timer_kind kind;
	struct tcp t;

	kind = timer_kind(timer, &t);
	if (kind == TIMER_DELACK && !nt_config.functions && pending_ack_due(&t, false))
		event_plain(t.sk, NT_EVENT_ACK_TIMER);
	if (kind == TIMER_DELACK && nt_config.functions)
		pending_ack_timer_alerts(&t);
	else if (kind == TIMER_DELACK)
		pending_ack_timer_expires(&t);
	else if (kind == TIMER_WRITE)
		write_timer_expires(&t);
	return 0;
}

/* ---- the function family: fentry and fexit ---- */

SEC("fexit/tcp_write_xmit")
int BPF_PROG(fexit_tcp_write_xmit, struct sock *sk, unsigned int mss, int nonagle, int push_one)
{
	struct tcp t;

	if (!socket_may_hold(sk, true))
		return 0;
	t = tcp_of(sk, true);
	if (t.tp)
		attempt_ended(&t, mss, nonagle, push_one, true);
	return 0;
}

SEC("fexit/tcp_sendmsg_locked")
int BPF_PROG(fexit_tcp_sendmsg_locked, struct sock *sk, struct msghdr *msg, unsigned long size,
	     int ret)
{
	struct tcp t;

	if (ret <= 0)
		return 0;
	event_write(sk, ret);
	count_write(sk, true);
	if (!socket_may_hold(sk, true))
		return 0;
	t = tcp_of(sk, true);
	if (t.tp)
		locked_write_ended(ctx, &t, true);
	return 0;
}

SEC("fentry/tcp_send_delayed_ack")
int BPF_PROG(fentry_tcp_send_delayed_ack, struct sock *sk)
{
	struct tcp t = tcp_of(sk, true);

	if (t.tp)
		ack_delayed(&t, true);
	return 0;
}

SEC("fentry/tcp_delack_timer_handler")
int BPF_PROG(fentry_tcp_delack_timer_handler, struct sock *sk)
{
	struct tcp t = tcp_of(sk, true);

	if (t.tp)
		timer_handler(&t, true);
	return 0;
}

SEC("fentry/__tcp_transmit_skb")
int BPF_PROG(fentry_tcp_transmit_skb, struct sock *sk, struct sk_buff *skb, int clone_it, int gfp,
	     u32 rcv_nxt)
{
	struct tcp t = tcp_of(sk, true);

	if (t.tp)
		transmits(&t, skb, rcv_nxt, true);
	return 0;
}

SEC("fentry/tcp_write_wakeup")
int BPF_PROG(fentry_tcp_write_wakeup, struct sock *sk)
{
	struct tcp t = tcp_of(sk, true);

	if (t.tp)
		probe_timer_sends(&t, NT_RELEASE_TIMER, false);
	return 0;
}

/* ---- the function family: kprobes ---- */

/*
 * The arguments of calls under way, by stack pointer: neither a nested call (softirq over a system
 * call) nor a return that was missed can be taken for another.
 */
struct call {
	struct sock *sk;
	u32 mss;
	u8 nonagle;
	u8 push_one;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct call);
} calls SEC(".maps");

static __always_inline void call_entered(struct pt_regs *ctx, const struct call *call)
{
	u64 sp = PT_REGS_SP(ctx);

	bpf_map_update_elem(&calls, &sp, call, BPF_ANY);
}

/* The call that returns; where the return address lies on the stack, sp has passed it by one or two
 * words. */
static __always_inline bool call_returned(struct pt_regs *ctx, struct call *call)
{
	u64 sp = PT_REGS_SP(ctx);

	for (int i = 0; i < 3; i++) {
		u64 key = sp - 8 * i;
		struct call *found = bpf_map_lookup_elem(&calls, &key);

		if (found) {
			*call = *found;
			bpf_map_delete_elem(&calls, &key);
			return true;
		}
	}
	count_lost(NT_LOST_RETURN);
	return false;
}

SEC("kprobe/tcp_write_xmit")
int BPF_KPROBE(kprobe_tcp_write_xmit, struct sock *sk, unsigned int mss, int nonagle, int push_one)
{
	struct call call = {.sk = sk, .mss = mss, .nonagle = nonagle, .push_one = push_one};

	call_entered(ctx, &call);
	return 0;
}

SEC("kretprobe/tcp_write_xmit")
int kretprobe_tcp_write_xmit(struct pt_regs *ctx)
{
	struct call call;
	struct tcp t;

	if (!call_returned(ctx, &call))
		return 0;
	if (!socket_may_hold(call.sk, false))
		return 0;
	t = tcp_of(call.sk, false);
	attempt_ended(&t, call.mss, call.nonagle, call.push_one, false);
	return 0;
}

SEC("kprobe/tcp_sendmsg_locked")
int BPF_KPROBE(kprobe_tcp_sendmsg_locked, struct sock *sk)
{
	struct call call = {.sk = sk};

	call_entered(ctx, &call);
	return 0;
}

SEC("kretprobe/tcp_sendmsg_locked")
int kretprobe_tcp_sendmsg_locked(struct pt_regs *ctx)
{
	struct call call;
	struct tcp t;

	if (!call_returned(ctx, &call) || (int)PT_REGS_RC(ctx) <= 0)
		return 0;
	event_write(call.sk, PT_REGS_RC(ctx));
	count_write(call.sk, false);
	if (!socket_may_hold(call.sk, false))
		return 0;
	t = tcp_of(call.sk, false);
	locked_write_ended(ctx, &t, false);
	return 0;
}

SEC("kprobe/tcp_send_delayed_ack")
int BPF_KPROBE(kprobe_tcp_send_delayed_ack, struct sock *sk)
{
	struct tcp t = tcp_of(sk, false);

	ack_delayed(&t, false);
	return 0;
}

SEC("kprobe/tcp_delack_timer_handler")
int BPF_KPROBE(kprobe_tcp_delack_timer_handler, struct sock *sk)
{
	struct tcp t = tcp_of(sk, false);

	timer_handler(&t, false);
	return 0;
}

SEC("kprobe/__tcp_transmit_skb")
int BPF_KPROBE(kprobe_tcp_transmit_skb, struct sock *sk, struct sk_buff *skb, int clone_it, int gfp,
	       u32 rcv_nxt)
{
	struct tcp t = tcp_of(sk, false);

	transmits(&t, skb, rcv_nxt, false);
	return 0;
}

SEC("kprobe/tcp_write_wakeup")
int BPF_KPROBE(kprobe_tcp_write_wakeup, struct sock *sk)
{
	struct tcp t = tcp_of(sk, false);

	probe_timer_sends(&t, NT_RELEASE_TIMER, false);
	return 0;
}

/* ---- whose sockets ---- */

SEC("raw_tp/sched_process_fork")
int BPF_PROG(on_sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = BPF_CORE_READ(parent, tgid), to = BPF_CORE_READ(child, tgid);
	u8 one = 1;

	if (from != to && bpf_map_lookup_elem(&pids, &from))
		bpf_map_update_elem(&pids, &to, &one, BPF_ANY);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(on_sched_process_exit, struct task_struct *task)
{
	u32 tgid = BPF_CORE_READ(task, tgid);

	if (BPF_CORE_READ(task, pid) == tgid)
		bpf_map_delete_elem(&pids, &tgid);
	return 0;
}

SEC("iter/task_file")
int dump_owners(struct bpf_iter__task_file *ctx)
{
	const u16 type_mask = 0170000, socket_type = 0140000; /* S_IFMT, S_IFSOCK */
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct nt_owner owner = {};
	struct socket *socket;
	struct sock *sk;
	u16 family;

	if (!file || !task || (BPF_CORE_READ(file, f_inode, i_mode) & type_mask) != socket_type)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	if (!sk || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family != AF_INET && family != AF_INET6)
		return 0;
	owner.sk = (u64)sk;
	owner.tgid = BPF_CORE_READ(task, tgid);
	owner.tid = BPF_CORE_READ(task, pid);
	owner.fd = ctx->fd;
	read_tuple(&owner.tuple, sk);
	bpf_seq_write(ctx->meta->seq, &owner, sizeof(owner));
	return 0;
}
