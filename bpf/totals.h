/* SPDX-License-Identifier: GPL-2.0 */
/* Counters that the kernel side keeps, a copy for each CPU. */
#pragma once

#include "config.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct nt_totals);
} totals SEC(".maps");

/* In place of a map, into which each write would have to look. */
struct nt_often often[NT_CPUS] __attribute__((aligned(64)));

/* Counts in a table of n. The barrier keeps the compiler from hiding the bound. */
static __always_inline void count_in(__u64 *table, u64 i, u32 n, u64 by)
{
	barrier_var(i);
	if (i < n)
		table[i] += by;
}

static __always_inline struct nt_totals *totals_here(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&totals, &zero);
}

static __always_inline struct nt_often *often_here(void)
{
	return &often[bpf_get_smp_processor_id() % NT_CPUS];
}

static __always_inline void count_dropped(enum nt_dropped where)
{
	struct nt_totals *t = totals_here();

	if (t)
		t->dropped[where]++;
}

/*
 * Identifies a network namespace for as long as the system is up: once it is gone, the kernel gives
 * its number to another one, but hardly ever with the same random word.
 */
static __always_inline u64 netns_id(struct net *net)
{
	return (u64)BPF_CORE_READ(net, hash_mix) << 32 | BPF_CORE_READ(net, ns.inum);
}

/*
 * The audit counts the timers of delayed ACKs that our programs saw, by namespace, for all
 * processes. User space compares them with the kernel's own counter (userspace/capture/audit.c),
 * and deletes the namespaces that are gone.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u64);
} timers_seen SEC(".maps");

__u64 timers_uncounted; /* they found no room: then the comparison says nothing */

/* This is a function by itself: several programs call it, which are long already. */
static __noinline int count_timer_seen(const struct sock *sk)
{
	u64 id = netns_id(BPF_CORE_READ(sk, __sk_common.skc_net.net)), zero = 0;
	u64 *seen = bpf_map_lookup_elem(&timers_seen, &id);

	if (!seen) {
		bpf_map_update_elem(&timers_seen, &id, &zero, BPF_NOEXIST);
		seen = bpf_map_lookup_elem(&timers_seen, &id);
	}
	if (seen)
		__sync_fetch_and_add(seen, 1);
	else
		__sync_fetch_and_add(&timers_uncounted, 1);
	return 0;
}
