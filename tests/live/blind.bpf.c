// SPDX-License-Identifier: GPL-2.0
/*
 * The programs of bpf/nagletrace.bpf.c on a machine that hides one timer in four of each network
 * namespace from those of the tracepoint family: tests/live/test_audit.py.
 */
#include <linux/ptrace.h>
#include "vmlinux_min.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#define pending_ack_timer_expires seen_timer_expires
#include "pending_ack.h"
#undef pending_ack_timer_expires

#define HIDDEN_ONE_IN 4

/* By network namespace, so that who is at work in another one does not change which are hidden. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, u64);
} timers_due SEC(".maps");

static __always_inline bool hidden(const struct tcp *t)
{
	struct sock *sk = t->sk; /* by itself: CO-RE would relocate the way to it too */
	u64 id = netns_id(BPF_CORE_READ(sk, __sk_common.skc_net.net)), one = 1;
	u64 *due = bpf_map_lookup_elem(&timers_due, &id);

	if (due)
		return ++*due % HIDDEN_ONE_IN == 0;
	bpf_map_update_elem(&timers_due, &id, &one, BPF_ANY);
	return false;
}

static __always_inline void pending_ack_timer_expires(const struct tcp *t)
{
	if (!pending_ack_due(t, false) || !hidden(t))
		seen_timer_expires(t);
}

#include "nagletrace.bpf.c"
