/* SPDX-License-Identifier: GPL-2.0 */
/* Memory, per CPU, that a program lends to the global functions it calls. */
#ifndef NT_SCRATCH_H
#define NT_SCRATCH_H

#include "socket.h"

/*
 * A global function takes only numbers before 5.12, so its caller passes all else here. Each
 * program under way on a CPU takes a level. One that interrupts another, which has looked at a
 * level and not yet taken it, gives it back before the other goes on. A task that takes the CPU
 * just then might not, but only a preemptible kernel lets it.
 */
#define SCRATCH_LEVELS 8 /* each of our programs runs once at a time on a CPU */

#define SCRATCH_BYTES  256

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

/* Takes a level, which the caller gives back with scratch_give(); NULL: none is left. */
static __always_inline void *scratch_take(u32 *level)
{
	struct scratch *s = scratch_here();
	u32 i = 0;

	while (s && i < SCRATCH_LEVELS && s->busy[i])
		i++;
	i = forgotten(i);
	if (!s || i >= SCRATCH_LEVELS)
		return NULL;
	/* the verifier may have lost the bound, and the compiler knows it still */
	barrier_var(i);
	i %= SCRATCH_LEVELS;
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

#endif /* NT_SCRATCH_H */
