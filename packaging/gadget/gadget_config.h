/* SPDX-License-Identifier: GPL-2.0 */
/* In place of bpf/config.h: a configuration that the compiler knows but for two values. */
#ifndef NT_CONFIG_H
#define NT_CONFIG_H

#define NT_CPUS 1 /* nobody reads these counts */
#include "nagletrace.h"

extern int LINUX_KERNEL_VERSION __kconfig;

const volatile gadget_duration min_duration = 1000000;
GADGET_PARAM(min_duration);

/* One jiffy; that of HZ=250 where no socket shows another one. */
static u64 tick_ns = 4000000;
static bool tick_learned;

static __always_inline struct nt_config gadget_config(void)
{
	return (struct nt_config){
		.min_ns = min_duration,
		.tick_ns = tick_ns,
		/* nt_kernel_delack_by_rto_min() asks the same */
		.delack_by_rto_min = LINUX_KERNEL_VERSION >= (6 << 16 | 6 << 8 | 10),
	};
}

#define nt_config gadget_config()

/*
 * Learns HZ from a socket: its limits of delayed ACKs and of retransmissions begin with HZ / 5
 * jiffies. One of which somebody has changed either is no witness.
 */
static __always_inline void learn_tick(const struct sock *sk)
{
	const struct inet_connection_sock *icsk = (const void *)sk;
	u32 hz;

	if (tick_learned)
		return;
	hz = 5 * BPF_CORE_READ(icsk, icsk_rto_min);
	if (hz != 5 * BPF_CORE_READ(icsk, icsk_delack_max))
		return;
	if (hz != 100 && hz != 250 && hz != 300 && hz != 1000)
		return;
	tick_ns = 1000000000ULL / hz;
	tick_learned = true;
}

/* What the configuration has no use for takes no room: ig gives a map the size that is said here.
 */
#define SIZE_OF_MAP(map, entries) const volatile u32 map##_max_entries = (entries)

SIZE_OF_MAP(events, 1 << 16); /* a page, of 64 KiB at most */
SIZE_OF_MAP(watched, 1);
SIZE_OF_MAP(owned, 1);
SIZE_OF_MAP(pids, 1);
SIZE_OF_MAP(ports, 1);

/* In place of bpf/slow.h: nobody reads what else cost time. */
#define NT_SLOW_H
#define SLOW_NS (~0ULL)
/* It uses its last argument: clang would leave that out of the calls of hold_slow(), and the
 * verifier refuse them. */
#define slow_count(writer, kernels, sk, held, ns) \
	({                                        \
		u64 lasted_ns = (ns);             \
		barrier_var(lasted_ns);           \
	})

/* In place of bpf/user_stack.h: no stacks are taken. */
#define NT_USER_STACK_H

static __always_inline void stack_take(void *ctx, struct nt_stack_key *key, u32 tgid)
{
}

#endif /* NT_CONFIG_H */
