/* SPDX-License-Identifier: GPL-2.0 */
/* Where a socket's timers lie: so a program that sees a timer finds the socket. */
#pragma once

#include "vmlinux_min.h"
#include <bpf/bpf_core_read.h>

/* Returns where the retransmit timer lies in a socket; 0: this kernel has it in neither place. */
static __always_inline u64 write_timer_offset(void)
{
	struct inet_connection_sock *icsk = NULL;
	struct sock *sk = NULL;

	if (bpf_core_field_exists(icsk->icsk_retransmit_timer))
		return bpf_core_field_offset(struct inet_connection_sock, icsk_retransmit_timer);
	if (bpf_core_field_exists(sk->tcp_retransmit_timer))
		return bpf_core_field_offset(struct sock, tcp_retransmit_timer);
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
