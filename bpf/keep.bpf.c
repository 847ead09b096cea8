// SPDX-License-Identifier: GPL-2.0
/*
 * Sets an option on each TCP connection that is established in a cgroup, at either end, before the
 * program that it belongs to can use it: for programs that nobody can change. `nagletrace fix
 * --keep` attaches one of these.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "keep.h"

#define IPPROTO_TCP 6
#define TCP_NODELAY 1
#define LOOPBACK    bpf_htonl(0x7f000001)

char LICENSE[] SEC("license") = "GPL";

struct nt_keep kept;

static __always_inline int set(struct bpf_sock_ops *ops, int name, int value)
{
	long err;

	if (ops->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB &&
	    ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	if (kept.port && (ops->local_port != kept.port || ops->local_ip4 != LOOPBACK))
		return 1;
	err = bpf_setsockopt(ops, IPPROTO_TCP, name, &value, sizeof(value));
	if (err) {
		kept.err = err;
		__sync_fetch_and_add(&kept.refused, 1);
	} else {
		__sync_fetch_and_add(&kept.set, 1);
	}
	return 1;
}

SEC("sockops")
int nt_keep_nodelay(struct bpf_sock_ops *ops)
{
	return set(ops, TCP_NODELAY, 1);
}

SEC("sockops")
int nt_keep_delack(struct bpf_sock_ops *ops)
{
	return set(ops, TCP_BPF_DELACK_MAX, kept.limit_us);
}
