// SPDX-License-Identifier: GPL-2.0
/*
 * The programs: each fetches its socket and calls the rule of rules.h or pending_ack.h.
 *
 * Tracepoint programs are raw_tp here; user space turns them into BTF-typed ones (tp_btf) where the
 * kernel has BTF. userspace/capture/hooks.c knows which program belongs to which hook and family.
 */
#include <linux/ptrace.h>
#include "vmlinux_min.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "list_owners.h"
#include "rules.h"
#include "timers.h"

char LICENSE[] SEC("license") = "GPL";

/* The timers' functions; the programs learn them from a socket that user space opens and closes. */
__u64 delack_timer_function;
__u64 write_timer_function;

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

/* An ACK or data is about to leave: __tcp_transmit_skb(). A probe's carries old numbers. */
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

/* Does the same where functions are hooked; a program of its own, to spare the small stack. */
SEC("raw_tp/tcp_probe")
int BPF_PROG(on_tcp_probe_functions, struct sock *sk, struct sk_buff *skb)
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
		write_returned(ctx, &t, trusted);
	return 0;
}

enum timer_kind {
	TIMER_OTHER,
	TIMER_DELACK,
	TIMER_WRITE,
};

/*
 * Whose timer is it? Sets *t where it is a TCP socket's, which the caller may trust as far as
 * nt_config.cast says; most timers are not.
 */
static __always_inline enum timer_kind timer_kind(struct timer_list *timer, struct tcp *t)
{
	const bool trusted = true;
	u64 function = (u64)READ(trusted, timer, function);
	enum timer_kind kind = TIMER_OTHER;
	void *sk;

	if (!function)
		return TIMER_OTHER;
	if (function == delack_timer_function) {
		sk = (void *)timer - delack_timer_offset();
		kind = TIMER_DELACK;
	} else if (function == write_timer_function) {
		sk = (void *)timer - write_timer_offset();
		kind = TIMER_WRITE;
	} else {
		return TIMER_OTHER;
	}
	*t = tcp_at(sk);
	return kind;
}

SEC("raw_tp/timer_start")
int BPF_PROG(on_timer_start, struct timer_list *timer)
{
	enum timer_kind kind;
	struct tcp t;

	kind = timer_kind(timer, &t);
	if (kind == TIMER_DELACK)
		ack_delayed(&t, nt_config.cast);
	else if (kind == TIMER_WRITE)
		write_timer_starts(&t, nt_config.cast);
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
		attempt_returned(&t, mss, nonagle, push_one, true);
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
		locked_write_returned(ctx, &t, true);
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
 * The arguments of calls under way, by stack pointer, so that no program takes a nested call (a
 * softirq over a system call) for another. A call whose return went unseen leaves its entry behind;
 * if the next call at its place in the stack goes unseen too, its return finds that entry. An
 * attempt to send does not change write_seq: the entry does not match once more was written.
 */
struct call {
	struct sock *sk;
	u32 write_seq;
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

/*
 * Finds the call that returns. Where the return address lies on the stack, sp has passed it by one
 * or two words.
 */
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
	count_dropped(NT_DROPPED_RETURN);
	return false;
}

SEC("kprobe/tcp_write_xmit")
int BPF_KPROBE(kprobe_tcp_write_xmit, struct sock *sk, unsigned int mss, int nonagle, int push_one)
{
	struct call call = {.sk = sk, .mss = mss, .nonagle = nonagle, .push_one = push_one};

	call.write_seq = PROBED((struct tcp_sock *)sk, write_seq);
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
	if (PROBED(t.tp, write_seq) != call.write_seq) {
		count_dropped(NT_DROPPED_RETURN);
		return 0;
	}
	attempt_returned(&t, call.mss, call.nonagle, call.push_one, false);
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
	locked_write_returned(ctx, &t, false);
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

/* ---- which network namespaces there are, and who lives in them ---- */

/* Where there are more than these, user space learns that some are missing. */
#define NAMESPACES_LISTED 512

bool namespaces_complete;

static __always_inline void tell_namespace(struct seq_file *seq, struct net *net, u32 tid)
{
	struct nt_netns told = {
		.id = netns_id(net),
		.inum = BPF_CORE_READ(net, ns.inum),
		.tid = tid,
	};

	bpf_seq_write(seq, &told, sizeof(told));
}

/*
 * Tells of all namespaces that the kernel has, those without a process too. One of them is the head
 * of the list, which is no namespace: nobody lives in it.
 */
static __always_inline void list_namespaces(struct seq_file *seq, struct net *first)
{
	struct net *net = first;

	for (int i = 0; i < NAMESPACES_LISTED; i++) {
		net = (void *)BPF_CORE_READ(net, list.next) -
		      bpf_core_field_offset(struct net, list);
		if (net == first) {
			namespaces_complete = true;
			break;
		}
		tell_namespace(seq, net, 0);
	}
}

SEC("iter/task")
int dump_namespaces(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task, *leader;
	struct net *net;

	if (!task)
		return 0;
	net = BPF_CORE_READ(task, nsproxy, net_ns);
	if (!net)
		return 0;
	if (!ctx->meta->seq_num)
		list_namespaces(ctx->meta->seq, net);
	leader = BPF_CORE_READ(task, group_leader);
	if (task == leader || BPF_CORE_READ(leader, nsproxy, net_ns) != net)
		tell_namespace(ctx->meta->seq, net, BPF_CORE_READ(task, pid));
	return 0;
}
