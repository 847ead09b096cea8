/* SPDX-License-Identifier: GPL-2.0 */
/* Memory, per CPU, that a program lends to the global functions it calls. */
#pragma once

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
	union {
		u8 busy[SCRATCH_LEVELS];
		u64 all_busy;
	};
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

#define EACH_BYTE 0x0101010101010101ULL /* a 1 in each byte */

/*
 * Returns the place of a word's first byte that is 0; 8: none is. It looks at all bytes at once,
 * since the verifier follows each round of a loop: taking 1 from each byte borrows first from that
 * one, and the product's top byte counts how many come before it.
 */
static __always_inline u32 first_zero(u64 word)
{
	const u64 places = 0x0001020304050607;
	u64 zero = (word - EACH_BYTE) & ~word & EACH_BYTE << 7;

	return zero ? ((zero & -zero) >> 7) * places >> 56 : 8;
}

/* Takes a level, which the caller gives back with scratch_give(); NULL: none is left. */
static __always_inline void *scratch_take(u32 *level)
{
	struct scratch *s = scratch_here();
	u32 i = s ? first_zero(s->all_busy) : SCRATCH_LEVELS;

	*level = i;
	if (!s || i >= SCRATCH_LEVELS)
		return NULL;
	/* the verifier may have lost the bound, and the compiler knows it still */
	barrier_var(i);
	i %= SCRATCH_LEVELS;
	s->busy[i] = true;
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
