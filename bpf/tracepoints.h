/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The programs of the tracepoint family, all that it needs to judge: packaging/gadget/ has these
 * and no others. The function family has some of them too.
 */
#pragma once

#include "rules.h"
#include "timers.h"

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

/* ---- of both families ---- */

/* functions: another hook shows attempts to send */
static __always_inline int segment_seen(const void *ctx, const bool functions)
{
	struct sock *sk = (void *)((const u64 *)ctx)[0];
	struct sk_buff *skb = (void *)((const u64 *)ctx)[1];
	struct tcp t;

	event_received(sk, skb);
	if (!segment_may_matter(sk, skb, true, true))
		return 0;
	t = tcp_of(sk, true);
	if (t.tp)
		segment_came(&t, skb, functions, true);
	return 0;
}

static __noinline int look_at_segment(const void *ctx)
{
	return segment_seen(ctx, false);
}

SEC("raw_tp/tcp_probe")
int BPF_PROG(on_tcp_probe, struct sock *sk, struct sk_buff *skb)
{
	if (nt_config.timeline || segment_may_matter(sk, skb, false, true))
		look_at_segment(ctx);
	return 0;
}

static __noinline int look_at_read(struct sock *sk)
{
	struct tcp t = tcp_of(sk, true);

	if (t.tp)
		pending_ack_meets_read(&t, true);
	return 0;
}

/*
 * The application has read, and the kernel decides next whether to acknowledge what it took. Where
 * functions are hooked, they show the ACK itself.
 */
SEC("raw_tp/tcp_rcv_space_adjust")
int BPF_PROG(on_tcp_rcv_space_adjust, struct sock *sk)
{
	struct tcp t;

	event_read(sk);
	if (nt_config.functions)
		return 0;
	t = tcp_of_argument(sk);
	if (t.tp && read_may_be_late(&t, true))
		look_at_read(sk);
	return 0;
}

/*
 * now: the connection ends at this moment. Else its socket goes, and it was over when the socket's
 * clock last moved: tcp_rcv_established() and tcp_send_active_reset() move it. Of a closed socket
 * only a read does.
 */
static __noinline int connection_over(struct sock *sk, bool now)
{
	struct tcp t = tcp_of(sk, true);

	if (t.tp)
		socket_closed(&t, now ? bpf_ktime_get_ns() : tcp_clock(&t, true), true);
	return 0;
}

static __noinline int look_at_close(void *ctx)
{
	struct sock *sk = (void *)((u64 *)ctx)[0];
	struct tcp t = tcp_of(sk, true);

	learn_timers(sk);
	if (t.tp)
		close_waited(ctx, &t, true);
	return 0;
}

SEC("raw_tp/tcp_destroy_sock")
int BPF_PROG(on_tcp_destroy_sock, struct sock *sk)
{
	u64 key = (u64)sk;

	if (!delack_timer_function || close_may_matter(sk, true)) {
		look_at_close(ctx);
		connection_over(sk, false);
	}
	if (nt_config.target != NT_TARGET_ALL && owner_of(sk, true))
		bpf_map_delete_elem(&owned, &key);
	return 0;
}

/* ---- of the tracepoint family; timer_kind() serves all, and the timers kprobes too ---- */

/*
 * An MPTCP socket has taken bytes. Its first subflow counts; who holds them, its owners show. This
 * is a function by itself for the sake of its caller's stack.
 */
static __noinline int mptcp_write_returned(struct sock *sk, int ret)
{
	struct mptcp_sock *outer = (void *)sk;
	struct sock *first = NULL;

	if (bpf_core_field_exists(((struct mptcp_sock *)0)->first))
		first = BPF_CORE_READ(outer, first);
	if (!first)
		return 0;
	event_write(first, ret);
	count_write(first, false);
	return 0;
}

/* Returns 1 if look_at_moved() has to follow. It is no part of this, to spare the small stack. */
static __noinline int look_at_write(void *ctx)
{
	struct sock *sk = (void *)((u64 *)ctx)[0];
	struct tcp t;

	event_write(sk, ((u64 *)ctx)[1]);
	count_write(sk, true);
	if (!socket_may_hold(sk, true))
		return 0;
	t = tcp_of(sk, true);
	return t.tp && write_returned(ctx, &t, true);
}

/* Looks again, for no later segment may come that would put right what was seen. */
static __noinline int look_at_moved(void *ctx)
{
	struct tcp t = tcp_of((void *)((u64 *)ctx)[0], false);
	struct hold *h;

	tail_look_at(socket_number(t.sk), true);
	h = hold_find(&t, false);
	if (h)
		hold_note_writer(h, t.sk, ctx, ((u64 *)ctx)[1]);
	return 0;
}

SEC("raw_tp/sock_send_length")
int BPF_PROG(on_sock_send_length, struct sock *sk, int ret)
{
	u16 protocol;

	if (ret <= 0)
		return 0;
	protocol = READ(true, sk, sk_protocol);
	if (protocol == IPPROTO_MPTCP)
		mptcp_write_returned(sk, ret);
	if (protocol == IPPROTO_TCP && !write_only_counts(sk, true) && look_at_write(ctx))
		look_at_moved(ctx);
	return 0;
}

enum timer_kind {
	TIMER_OTHER,
	TIMER_DELACK,
	TIMER_WRITE,
};

/* Whose timer is it? Sets *sk where it is a TCP socket's; most timers are not. */
static __always_inline enum timer_kind timer_kind(struct timer_list *timer, void **sk)
{
	const bool trusted = true;
	u64 function = (u64)READ(trusted, timer, function);

	if (!function)
		return TIMER_OTHER;
	if (function == delack_timer_function) {
		*sk = (void *)timer - delack_timer_offset();
		return TIMER_DELACK;
	}
	if (function == write_timer_function) {
		*sk = (void *)timer - write_timer_offset();
		return TIMER_WRITE;
	}
	return TIMER_OTHER;
}

SEC("raw_tp/timer_expire_entry")
int BPF_PROG(on_timer_expire_entry, struct timer_list *timer)
{
	enum timer_kind kind;
	struct tcp t;
	void *sk;

	kind = timer_kind(timer, &sk);
	if (kind == TIMER_OTHER)
		return 0;
	t = tcp_of(sk, false);
	if (kind == TIMER_DELACK)
		pending_ack_timer_expires(&t);
	else
		write_timer_expires(&t);
	return 0;
}
