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
 * Room for what is passed to a global function, which takes numbers only (before 5.12): a level for
 * each program under way on this CPU. One that interrupts another between looking at a level and
 * taking it has given it back before the other goes on; a task that takes the CPU just then, which
 * only a preemptible kernel lets it, might not have.
 */
#define SCRATCH_LEVELS 8 /* each of our programs runs once at a time on a CPU */

#define SCRATCH_BYTES  192

struct scratch {
	u32 busy[SCRATCH_LEVELS];
	u8 bytes[SCRATCH_LEVELS][SCRATCH_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline struct scratch *scratch_here(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

/* Takes a level, to be given back with scratch_give(); NULL: none is left. */
static __always_inline void *scratch_take(u32 *level)
{
	struct scratch *s = scratch_here();
	u32 i = 0;

	while (s && i < SCRATCH_LEVELS && s->busy[i])
		i++;
	barrier_var(i);
	if (!s || i >= SCRATCH_LEVELS)
		return NULL;
	s->busy[i] = true;
	*level = i;
	return s->bytes[i];
}

static __always_inline void *scratch_get(u32 level)
{
	struct scratch *s = scratch_here();

	return s && level < SCRATCH_LEVELS ? s->bytes[level] : NULL;
}

static __always_inline void scratch_give(u32 level)
{
	struct scratch *s = scratch_here();

	if (s && level < SCRATCH_LEVELS)
		s->busy[level] = false;
}

#endif /* NT_TOTALS_H */
