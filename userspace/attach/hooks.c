// SPDX-License-Identifier: GPL-2.0
#include "attach/hooks.h"

#define FUNCTION   NT_FAMILY_FUNCTION
#define KPROBE     NT_FAMILY_KPROBE
#define TRACEPOINT NT_FAMILY_TRACEPOINT
#define ALL        NT_FAMILY_ALL

/*
 * A new hook takes one line here and its program in bpf/nagletrace.bpf.c. The hooks attach in this
 * order. --max-overhead detaches the busiest, least informative hooks first, and only those that we
 * can lose without false positives.
 */
const struct nt_hook nt_hooks[] = {
	/* first: it teaches the other programs the timers' functions */
	{"on_tcp_destroy_sock", "tcp_destroy_sock", NULL, NT_ATTACH_RAW_TP, ALL, true, NT_ALWAYS,
	 "state of sockets that are gone", 0},
	{"on_sched_process_fork", "sched_process_fork", NULL, NT_ATTACH_RAW_TP, ALL, false,
	 NT_FOR_PIDS, "children forked during the trace", 0},
	{"on_sched_process_exit", "sched_process_exit", NULL, NT_ATTACH_RAW_TP, ALL, false,
	 NT_FOR_PIDS, "distinguishing a process from a later one of the same pid", 0},
	{"on_tcp_probe", "tcp_probe", NULL, NT_ATTACH_RAW_TP, TRACEPOINT, true, NT_ALWAYS,
	 "which ACK released a hold", 0},
	{"on_tcp_probe_functions", "tcp_probe", NULL, NT_ATTACH_RAW_TP, FUNCTION | KPROBE, false,
	 NT_ALWAYS, "stalls of senders on other hosts", 0},

	/* the kernel skips a kprobe that interrupts a BPF program, but not this tracepoint */
	{"on_timer_expire_entry", "timer_expire_entry", NULL, NT_ATTACH_RAW_TP, TRACEPOINT | KPROBE,
	 true, NT_ALWAYS, "late ACKs and cork ceilings", 0},
	{"on_delack_timer_expire", "timer_expire_entry", NULL, NT_ATTACH_RAW_TP, FUNCTION, true,
	 NT_ALWAYS, "late ACKs", 0},
	{"on_sock_send_length", "sock_send_length", NULL, NT_ATTACH_RAW_TP, TRACEPOINT, false,
	 NT_ALWAYS, "who wrote (owners are looked up instead), stacks, the count of writes", 0},

	{"on_tcp_rcv_space_adjust", "tcp_rcv_space_adjust", NULL, NT_ATTACH_RAW_TP, TRACEPOINT,
	 false, NT_FOR_LATE_ACKS, "late ACKs that a read sent; reads, in the timeline", 1},

	{"on_net_dev_queue", "net_dev_queue", NULL, NT_ATTACH_RAW_TP, ALL, false, NT_FOR_TIMELINE,
	 "segments sent, in the timeline", 0},
	{"on_tcp_rcv_space_adjust", "tcp_rcv_space_adjust", NULL, NT_ATTACH_RAW_TP,
	 FUNCTION | KPROBE, false, NT_FOR_TIMELINE, "reads, in the timeline", 0},
	{"on_timer_start", "timer_start", NULL, NT_ATTACH_RAW_TP, TRACEPOINT, false,
	 NT_FOR_TIMELINE, "delayed ACKs, in the timeline", 0},
	{"fentry_tcp_send_delayed_ack", "tcp_send_delayed_ack", NULL, NT_ATTACH_FENTRY, FUNCTION,
	 false, NT_FOR_TIMELINE, "delayed ACKs, in the timeline", 0},
	{"kprobe_tcp_send_delayed_ack", "tcp_send_delayed_ack", NULL, NT_ATTACH_KPROBE, KPROBE,
	 false, NT_FOR_TIMELINE, "delayed ACKs, in the timeline", 0},
	{"on_inet_sock_set_state", "inet_sock_set_state", NULL, NT_ATTACH_RAW_TP, ALL, false,
	 NT_FOR_TIMELINE, "begins and ends of connections, in the timeline", 0},

	{"fexit_tcp_write_xmit", "tcp_write_xmit", NULL, NT_ATTACH_FEXIT, FUNCTION, true, NT_ALWAYS,
	 "holds", 0},
	{"fexit_tcp_sendmsg_locked", "tcp_sendmsg_locked", "tcp_sendmsg", NT_ATTACH_FEXIT, FUNCTION,
	 false, NT_ALWAYS, "who wrote (owners are looked up instead), stacks, the count of writes",
	 1},
	{"fentry_tcp_send_ack", "tcp_send_ack", NULL, NT_ATTACH_FENTRY, FUNCTION, false, NT_ALWAYS,
	 "late ACKs that a read sent", 0},
	{"fentry_tcp_delack_timer_handler", "tcp_delack_timer_handler", NULL, NT_ATTACH_FENTRY,
	 FUNCTION, false, NT_ALWAYS, "timers that found the socket in use", 0},
	{"fentry_tcp_write_wakeup", "tcp_write_wakeup", NULL, NT_ATTACH_FENTRY, FUNCTION, false,
	 NT_ALWAYS, "cork ceilings", 0},

	{"kprobe_tcp_write_xmit", "tcp_write_xmit", NULL, NT_ATTACH_KPROBE, KPROBE, true, NT_ALWAYS,
	 "holds", 0},
	{"kretprobe_tcp_write_xmit", "tcp_write_xmit", NULL, NT_ATTACH_KRETPROBE, KPROBE, true,
	 NT_ALWAYS, "holds", 0},
	{"kprobe_tcp_sendmsg_locked", "tcp_sendmsg_locked", "tcp_sendmsg", NT_ATTACH_KPROBE, KPROBE,
	 false, NT_ALWAYS, "who wrote (owners are looked up instead), stacks, the count of writes",
	 1},
	{"kretprobe_tcp_sendmsg_locked", "tcp_sendmsg_locked", "tcp_sendmsg", NT_ATTACH_KRETPROBE,
	 KPROBE, false, NT_ALWAYS,
	 "who wrote (owners are looked up instead), stacks, the count of writes", 1},
	{"kprobe_tcp_send_ack", "tcp_send_ack", NULL, NT_ATTACH_KPROBE, KPROBE, false, NT_ALWAYS,
	 "late ACKs that a read sent", 0},
	{"kprobe_tcp_delack_timer_handler", "tcp_delack_timer_handler", NULL, NT_ATTACH_KPROBE,
	 KPROBE, false, NT_ALWAYS, "timers that found the socket in use", 0},
	{"kprobe_tcp_write_wakeup", "tcp_write_wakeup", NULL, NT_ATTACH_KPROBE, KPROBE, false,
	 NT_ALWAYS, "cork ceilings", 0},
};

const size_t nt_n_hooks = sizeof(nt_hooks) / sizeof(nt_hooks[0]);
_Static_assert(sizeof(nt_hooks) / sizeof(nt_hooks[0]) <= NT_MAX_HOOKS, "room for each hook's link");

const char *nt_attach_name(enum nt_attach how)
{
	static const char *const names[] = {
		[NT_ATTACH_RAW_TP] = "tracepoint",   [NT_ATTACH_FENTRY] = "fentry",
		[NT_ATTACH_FEXIT] = "fexit",         [NT_ATTACH_KPROBE] = "kprobe",
		[NT_ATTACH_KRETPROBE] = "kretprobe",
	};

	return names[how];
}

const char *nt_family_name(enum nt_hooks family)
{
	static const char *const names[] = {
		[NT_HOOKS_AUTO] = "none",
		[NT_HOOKS_FUNCTION] = "function",
		[NT_HOOKS_KPROBE] = "kprobe",
		[NT_HOOKS_TRACEPOINT] = "tracepoint",
	};

	return names[family];
}
