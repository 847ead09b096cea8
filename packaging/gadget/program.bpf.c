// SPDX-License-Identifier: GPL-2.0
/*
 * nagletrace's tracepoint programs and rules as a gadget for Inspektor Gadget: `make gadget`.
 *
 * What nagletrace's user space does for the programs is done here: the configuration, the timers'
 * functions, the length of a jiffy, and the events, each with its process for the names of
 * containers and pods.
 */
#include "vmlinux_min.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

/* gadget/filter.h asks for the running task's mount namespace where this is not set */
#define GADGET_TYPE_NETWORKING
#define GADGET_NO_BUF_RESERVE
#include <gadget/buffer.h>
#include <gadget/filter.h>
#include <gadget/macros.h>
#include <gadget/types.h>

#include "gadget_config.h"
#include "gadget_ring.h"
#include "tracepoints.h"

char LICENSE[] SEC("license") = "GPL";

/*
 * Learns what user space would know, from the first socket that sends. The tick comes first:
 * without the timers' functions no ACK is late yet, whose time it would measure.
 */
SEC("raw_tp/sock_send_length")
int BPF_PROG(learn, struct sock *sk, int ret)
{
	if (ret <= 0 || PROBED(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	learn_tick(sk);
	learn_timers(sk);
	return 0;
}

/* A read of a socket whose ACK is pending shows who delays it. */
SEC("raw_tp/sock_recv_length")
int BPF_PROG(on_sock_recv_length, struct sock *sk, int ret)
{
	struct tcp t = tcp_of(sk, false);

	if (ret > 0 && PROBED(sk, sk_protocol) == IPPROTO_TCP && pending_ack_due(&t, false))
		note_reader(sk);
	return 0;
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(on_state, struct sock *sk, int oldstate, int newstate)
{
	if (PROBED(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	if (newstate == NT_TCP_ESTABLISHED)
		note_end(sk);
	else if (newstate == NT_TCP_CLOSE)
		forget_end(sk);
	return 0;
}
