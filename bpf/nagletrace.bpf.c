// SPDX-License-Identifier: GPL-2.0
/*
 * The programs: each fetches its socket and calls the rule of rules.h or pending_ack.h.
 *
 * Tracepoint programs are raw_tp here; user space turns them into BTF-typed ones (tp_btf) where the
 * kernel has BTF, and else takes probed.bpf.c. userspace/attach/hooks.c knows which program belongs
 * to which hook and family.
 */
#ifndef NT_DIRECT
#define NT_DIRECT true
#endif

#include <linux/ptrace.h>
#include "vmlinux_min.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "keep.h"
#include "list_owners.h"
#include "tracepoints.h"

char LICENSE[] SEC("license") = "GPL";

static __noinline int look_at_segment_functions(const void *ctx)
{
	return segment_seen(ctx, true);
}

/*
 * Does what on_tcp_probe() does, where functions are hooked. It is a program of its own, to spare
 * the small stack.
 */
SEC("raw_tp/tcp_probe")
int BPF_PROG(on_tcp_probe_functions, struct sock *sk, struct sk_buff *skb)
{
	if (nt_config.timeline || segment_may_matter(sk, skb, false, true))
		look_at_segment_functions(ctx);
	return 0;
}

/* ---- what only --timeline needs ---- */

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(on_inet_sock_set_state, struct sock *sk, int oldstate, int newstate)
{
	if ((newstate != NT_TCP_ESTABLISHED && newstate != NT_TCP_CLOSE) ||
	    PROBED(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	if (oldstate != NT_TCP_LISTEN)
		event_state(sk, newstate);
	if (newstate == NT_TCP_CLOSE)
		connection_over(sk, true);
	return 0;
}

SEC("raw_tp/net_dev_queue")
int BPF_PROG(on_net_dev_queue, struct sk_buff *skb)
{
	event_queued(skb);
	return 0;
}

/* An ACK is delayed; where functions are hooked, they show it. */
SEC("raw_tp/timer_start")
int BPF_PROG(on_timer_start, struct timer_list *timer)
{
	void *sk;

	if (timer_kind(timer, &sk) == TIMER_DELACK)
		event_plain(sk, NT_EVENT_ACK_DELAYED);
	return 0;
}

SEC("fentry/tcp_send_delayed_ack")
int BPF_PROG(fentry_tcp_send_delayed_ack, struct sock *sk)
{
	event_plain(sk, NT_EVENT_ACK_DELAYED);
	return 0;
}

SEC("kprobe/tcp_send_delayed_ack")
int BPF_KPROBE(kprobe_tcp_send_delayed_ack, struct sock *sk)
{
	event_plain(sk, NT_EVENT_ACK_DELAYED);
	return 0;
}

/* ---- the function family: fentry and fexit ---- */

static __noinline int look_at_attempt(const u64 *ctx)
{
	struct tcp t = tcp_of((void *)ctx[0], true);

	if (t.tp)
		attempt_returned(&t, ctx[1], ctx[2], ctx[3], true); /* mss, nonagle, push_one */
	return 0;
}

SEC("fexit/tcp_write_xmit")
int BPF_PROG(fexit_tcp_write_xmit, struct sock *sk)
{
	if (socket_may_hold(sk, true))
		look_at_attempt(ctx);
	return 0;
}

static __noinline int look_at_locked_write(void *ctx)
{
	struct sock *sk = (void *)((u64 *)ctx)[0];
	u32 bytes = ((u64 *)ctx)[3];
	struct tcp t;

	event_write(sk, bytes);
	count_write(sk, true);
	if (!socket_may_hold(sk, true))
		return 0;
	t = tcp_of(sk, true);
	if (t.tp)
		locked_write_returned(ctx, &t, bytes, true);
	return 0;
}

SEC("fexit/tcp_sendmsg_locked")
int BPF_PROG(fexit_tcp_sendmsg_locked, struct sock *sk, struct msghdr *msg, unsigned long size,
	     int ret)
{
	if (ret > 0 && !write_only_counts(sk, true))
		look_at_locked_write(ctx);
	return 0;
}

/* Where functions are hooked, they show what the other timers send. */
SEC("raw_tp/timer_expire_entry")
int BPF_PROG(on_delack_timer_expire, struct timer_list *timer)
{
	struct tcp t;
	void *sk;

	if (timer_kind(timer, &sk) != TIMER_DELACK)
		return 0;
	t = tcp_of(sk, false);
	pending_ack_timer_expires(&t);
	return 0;
}

SEC("fentry/tcp_delack_timer_handler")
int BPF_PROG(fentry_tcp_delack_timer_handler, struct sock *sk)
{
	struct tcp t = tcp_of(sk, true);

	if (t.tp)
		pending_ack_timer_handler(&t, true);
	return 0;
}

static __noinline int look_at_ack(struct sock *sk)
{
	struct tcp t = tcp_of(sk, true);

	if (t.tp)
		pending_ack_leaves(&t, true);
	return 0;
}

SEC("fentry/tcp_send_ack")
int BPF_PROG(fentry_tcp_send_ack, struct sock *sk)
{
	struct tcp t = tcp_of_argument(sk);

	if (t.tp && pending_ack_may_be_late(&t, true))
		look_at_ack(sk);
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
	u64 sp; /* 0: free */
	struct sock *sk;
	u32 write_seq;
	u32 mss;
	u8 nonagle;
	u8 push_one;
	u32 check; /* both pointers: another CPU may have filled the entry with its own call */
};

/* A call has its entry in the set that its stack pointer hashes to. A full set forgets one. */
#define CALL_SETS_LOG2 12
#define CALLS_IN_SET   4

struct call_set {
	struct call calls[CALLS_IN_SET];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << CALL_SETS_LOG2);
	__type(key, u32);
	__type(value, struct call_set);
} calls SEC(".maps");

static __always_inline struct call_set *call_set_of(u64 sp)
{
	u32 set = (u32)(sp >> 3) * 0x9e3779b1U >> (32 - CALL_SETS_LOG2);

	return bpf_map_lookup_elem(&calls, &set);
}

static __always_inline u32 call_check(u64 sp, const struct sock *sk)
{
	return sp ^ (u64)sk;
}

static __always_inline void call_entered(struct pt_regs *ctx, struct sock *sk, u32 write_seq,
					 u32 mss, u8 nonagle, u8 push_one)
{
	u64 sp = PT_REGS_SP(ctx);
	struct call_set *set = call_set_of(sp);
	struct call *call;

	if (!set)
		return;
	call = &set->calls[(sp >> 14) % CALLS_IN_SET]; /* stacks are 16 KiB long */
	for (int i = 0; i < CALLS_IN_SET; i++) {
		if (set->calls[i].sp && set->calls[i].sp != sp)
			continue;
		call = &set->calls[i];
		if (call->sp)
			break;
	}
	call->sp = sp;
	call->sk = sk;
	call->write_seq = write_seq;
	call->mss = mss;
	call->nonagle = nonagle;
	call->push_one = push_one;
	call->check = call_check(sp, sk);
}

static __always_inline bool call_taken(u64 sp, struct call *call)
{
	struct call_set *set = call_set_of(sp);

	for (int i = 0; set && i < CALLS_IN_SET; i++) {
		if (set->calls[i].sp != sp)
			continue;
		*call = set->calls[i];
		set->calls[i].sp = 0;
		return call->check == call_check(sp, call->sk);
	}
	return false;
}

/*
 * Finds the call that returns. Where the return address lies on the stack, sp has passed it by one
 * or two words.
 */
static __always_inline bool call_returned(struct pt_regs *ctx, struct call *call)
{
	u64 sp = PT_REGS_SP(ctx);

	if (call_taken(sp - 8, call) || call_taken(sp, call) || call_taken(sp - 16, call))
		return true;
	count_dropped(NT_DROPPED_RETURN);
	return false;
}

SEC("kprobe/tcp_write_xmit")
int BPF_KPROBE(kprobe_tcp_write_xmit, struct sock *sk, unsigned int mss, int nonagle, int push_one)
{
	call_entered(ctx, sk, PROBED((struct tcp_sock *)sk, write_seq), mss, nonagle, push_one);
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
	call_entered(ctx, sk, 0, 0, 0, 0);
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
	locked_write_returned(ctx, &t, PT_REGS_RC(ctx), false);
	return 0;
}

SEC("kprobe/tcp_delack_timer_handler")
int BPF_KPROBE(kprobe_tcp_delack_timer_handler, struct sock *sk)
{
	struct tcp t = tcp_of(sk, false);

	pending_ack_timer_handler(&t, false);
	return 0;
}

SEC("kprobe/tcp_send_ack")
int BPF_KPROBE(kprobe_tcp_send_ack, struct sock *sk)
{
	struct tcp t = tcp_of(sk, false);

	if (pending_ack_may_be_late(&t, false))
		pending_ack_leaves(&t, false);
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

	if (from == to || !is_target_pid(&from))
		return 0;
	pid_marks[to % NT_PID_MARKS] = true;
	bpf_map_update_elem(&pids, &to, &one, BPF_ANY);
	return 0;
}

/* A process ends with its last thread, whichever that is: do_exit() has counted this one off. */
SEC("raw_tp/sched_process_exit")
int BPF_PROG(on_sched_process_exit, struct task_struct *task)
{
	u32 tgid = BPF_CORE_READ(task, tgid);

	if (!BPF_CORE_READ(task, signal, live.counter))
		bpf_map_delete_elem(&pids, &tgid);
	return 0;
}

/* ---- which network namespaces there are, and who lives in them ---- */

/* Where there are more than these, user space learns that some are missing. */
#define NAMESPACES_LISTED 512

bool namespaces_complete;

static __always_inline void list_namespace(struct seq_file *seq, struct net *net, u32 tid)
{
	struct nt_netns netns = {
		.id = netns_id(net),
		.inum = BPF_CORE_READ(net, ns.inum),
		.tid = tid,
	};

	bpf_seq_write(seq, &netns, sizeof(netns));
}

struct namespaces_walk {
	struct seq_file *seq;
	struct net *first, *net;
};

/* Writes the next one. Returns 1 after the last. */
static long list_next_namespace(u32 i, void *context)
{
	struct namespaces_walk *walk = context;
	struct net *net = walk->net;

	net = (void *)BPF_CORE_READ(net, list.next) - bpf_core_field_offset(struct net, list);
	if (net == walk->first) {
		namespaces_complete = true;
		return 1;
	}
	list_namespace(walk->seq, net, 0);
	walk->net = net;
	return 0;
}

/*
 * Lists all namespaces that the kernel has, those without a process too, and one that is the
 * head of the list, where nobody lives; and of threads, who lives where. loop: this kernel has
 * bpf_loop(). A loop of our own costs 27,000 instructions of the verifier's, which follows each
 * round.
 */
static __always_inline void list_namespaces(struct bpf_iter__task *ctx, const bool loop)
{
	struct task_struct *task = ctx->task, *leader;
	struct namespaces_walk walk = {};
	struct net *net;

	if (!task)
		return;
	net = BPF_CORE_READ(task, nsproxy, net_ns);
	if (!net)
		return;
	if (!ctx->meta->seq_num) {
		walk.seq = ctx->meta->seq;
		walk.first = walk.net = net;
		if (loop)
			bpf_loop(NAMESPACES_LISTED, list_next_namespace, &walk, 0);
		for (int i = 0; !loop && i < NAMESPACES_LISTED; i++)
			if (list_next_namespace(i, &walk))
				break;
	}
	leader = BPF_CORE_READ(task, group_leader);
	if (task == leader || BPF_CORE_READ(leader, nsproxy, net_ns) != net)
		list_namespace(ctx->meta->seq, net, BPF_CORE_READ(task, pid));
}

SEC("iter/task")
int dump_namespaces(struct bpf_iter__task *ctx)
{
	list_namespaces(ctx, true);
	return 0;
}

/* Where bpf_loop() may be missing: before 5.17. */
SEC("iter/task")
int dump_namespaces_unrolled(struct bpf_iter__task *ctx)
{
	list_namespaces(ctx, false);
	return 0;
}

/* Lists the programs of keep.bpf.c that are loaded on this host, by their names. */
SEC("iter/bpf_prog")
int dump_kept(struct bpf_iter__bpf_prog *ctx)
{
	struct nt_kept_program kept;
	struct bpf_prog *prog = ctx->prog;
	struct bpf_prog_aux *aux;

	if (!prog)
		return 0;
	aux = BPF_CORE_READ(prog, aux);
	BPF_CORE_READ_INTO(&kept.name, aux, name);
	if (!__builtin_memcmp(kept.name, NT_KEEP_PREFIX, sizeof(NT_KEEP_PREFIX) - 1))
		bpf_seq_write(ctx->meta->seq, &kept, sizeof(kept));
	return 0;
}
