// SPDX-License-Identifier: GPL-2.0
#include "stacks.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/libbpf.h>
#include "nagletrace.skel.h"

#define KEPT 512 /* distinct stacks whose names are kept */

struct kept {
	int stack_id;
	pid_t tgid; /* 0: free */
	size_t n;
	struct nt_frame *frames;
};

struct nt_stacks {
	const struct nt_tracer *tracer;
	struct kept kept[KEPT];
	size_t next; /* to be overwritten */
};

struct nt_stacks *nt_stacks_new(const struct nt_tracer *tracer)
{
	struct nt_stacks *stacks = calloc(1, sizeof(*stacks));

	if (stacks)
		stacks->tracer = tracer;
	return stacks;
}

static void forget(struct kept *kept)
{
	nt_frames_free(kept->frames, kept->n);
	free(kept->frames);
	memset(kept, 0, sizeof(*kept));
}

void nt_stacks_free(struct nt_stacks *stacks)
{
	if (!stacks)
		return;
	for (size_t i = 0; i < KEPT; i++)
		forget(&stacks->kept[i]);
	free(stacks);
}

static size_t read_addresses(const struct nt_stacks *stacks, __u32 stack_id,
			     uint64_t ips[NT_STACK_DEPTH])
{
	size_t n = 0;

	if (bpf_map__lookup_elem(stacks->tracer->skel->maps.stacks, &stack_id, sizeof(stack_id), ips,
				 NT_STACK_DEPTH * sizeof(*ips), 0))
		return 0;
	while (n < NT_STACK_DEPTH && ips[n])
		n++;
	return n;
}

size_t nt_stacks_get(struct nt_stacks *stacks, int stack_id, pid_t tgid,
		     const struct nt_frame **frames)
{
	uint64_t ips[NT_STACK_DEPTH];
	struct kept *kept;

	if (stack_id < 0 || !tgid)
		return 0;
	for (size_t i = 0; i < KEPT; i++) {
		kept = &stacks->kept[i];
		if (kept->tgid == tgid && kept->stack_id == stack_id) {
			*frames = kept->frames;
			return kept->n;
		}
	}
	kept = &stacks->kept[stacks->next++ % KEPT];
	forget(kept);
	kept->n = read_addresses(stacks, stack_id, ips);
	if (kept->n)
		kept->frames = calloc(kept->n, sizeof(*kept->frames));
	if (!kept->frames) {
		kept->n = 0;
		return 0;
	}
	kept->stack_id = stack_id;
	kept->tgid = tgid;
	nt_symbols_resolve(tgid, ips, kept->n, kept->frames);
	malloc_trim(0);
	*frames = kept->frames;
	return kept->n;
}
