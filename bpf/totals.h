/* SPDX-License-Identifier: GPL-2.0 */
/* Counters kept in the kernel, per CPU. */
#ifndef NT_TOTALS_H
#define NT_TOTALS_H

#include "config.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct nt_totals);
} totals SEC(".maps");

/* Counts in a table of n; the barrier keeps the compiler from hiding the bound from the verifier.
 */
static __always_inline void count_in(__u64 *table, u32 i, u32 n, u64 by)
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

static __always_inline void count_lost(enum nt_lost where)
{
	struct nt_totals *t = totals_here();

	if (t)
		t->lost[where]++;
}

/*
 * Room for what is passed to a global function, which takes numbers only (before 5.12). A program
 * that interrupts another on this CPU gets its own level and gives it back before the other goes
 * on.
 */
#define SCRATCH_LEVELS 4 /* task, softirq, irq, nmi */

struct scratch {
	u32 depth; /* of level 0: levels in use on this CPU */
	u32 reserved;
	u8 bytes[192];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_LEVELS);
	__type(key, u32);
	__type(value, struct scratch);
} scratch_levels SEC(".maps");

static __always_inline struct scratch *scratch_at(u32 level)
{
	return bpf_map_lookup_elem(&scratch_levels, &level);
}

/* Takes a level, to be given back with scratch_give(); NULL: none is left. */
static __always_inline void *scratch_take(u32 *level)
{
	struct scratch *base = scratch_at(0), *s;

	if (!base)
		return NULL;
	*level = base->depth;
	s = scratch_at(*level);
	if (!s)
		return NULL;
	base->depth++;
	return s->bytes;
}

static __always_inline void scratch_give(void)
{
	struct scratch *base = scratch_at(0);

	if (base)
		base->depth--;
}

static __always_inline void *scratch_get(u32 level)
{
	struct scratch *s = scratch_at(level);

	return s ? s->bytes : NULL;
}

#endif /* NT_TOTALS_H */
