/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Not a stall, but time: sums the holds that were no stall, by user, process name and reason, in
 * the kernel, since there may be many of them.
 */
#ifndef NT_SLOW_H
#define NT_SLOW_H

#include "filter.h"
#include "judge.h"
#include "release.h"

/* Shorter holds cost nobody much. */
#define SLOW_NS 10000000ULL

/* User space deletes rows that did not grow lately as the map gets full. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NT_SLOW_ROWS);
	__type(key, struct nt_slow_key);
	__type(value, struct nt_slow);
} slow_holds SEC(".maps");

static __always_inline struct nt_slow *slow_row(struct nt_slow_key *key)
{
	static const struct nt_slow none;
	struct nt_slow *slow = bpf_map_lookup_elem(&slow_holds, key);

	if (!slow) {
		bpf_map_update_elem(&slow_holds, key, &none, BPF_NOEXIST);
		slow = bpf_map_lookup_elem(&slow_holds, key);
	}
	if (!slow) {
		key->uid = 0;
		__builtin_memset(key->comm, 0, sizeof(key->comm));
		slow = bpf_map_lookup_elem(&slow_holds, key);
	}
	return slow;
}

/*
 * Counts a hold of the writer's bytes. If no program saw the write, the process that waits for the
 * socket counts as the writer. Two CPUs that count in one row at once may leave there the addresses
 * of either's connection.
 */
static __always_inline void slow_count(struct writer *writer, bool kernels, const struct sock *sk,
				       const struct nt_held *held, u64 duration_ns)
{
	struct nt_slow_key key = {.reason = held->reason, .uid = NT_KERNEL_UID};
	struct nt_slow *slow;

	if (!kernels) {
		key.uid = BPF_CORE_READ(sk, sk_uid.val);
		if (!writer->tgid)
			read_waiter(writer, sk);
	}
	__builtin_memcpy(key.comm, writer->comm, sizeof(key.comm));
	slow = slow_row(&key);
	if (!slow)
		return;
	slow->last_ns = bpf_ktime_get_ns();
	if (!slow->holds) {
		slow->since_ns = slow->last_ns;
		slow->tgid = key.comm[0] ? writer->tgid : 0;
	} else if (slow->tgid != writer->tgid) {
		slow->tgid = 0;
	}
	slow->mss = held->mss;
	slow->window = BPF_CORE_READ((const struct tcp_sock *)sk, snd_wnd);
	read_tuple(&slow->tuple, sk);
	__sync_fetch_and_add(&slow->duration_ns, duration_ns);
	__sync_fetch_and_add(&slow->holds, 1); /* last: user space reads what has a hold */
}

#endif /* NT_SLOW_H */
