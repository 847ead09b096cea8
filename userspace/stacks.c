// SPDX-License-Identifier: GPL-2.0
#include "stacks.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/libbpf.h>
#include "nagletrace.skel.h"

#define KEPT 512 /* distinct stacks whose names are kept */

struct kept {
	struct nt_stack_key key; /* tgid 0: free */
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

	if (bpf_map__lookup_elem(stacks->tracer->skel->maps.stacks, &stack_id, sizeof(stack_id),
				 ips, NT_STACK_DEPTH * sizeof(*ips), 0))
		return 0;
	while (n < NT_STACK_DEPTH && ips[n])
		n++;
	return n;
}

/* Unwound and named; from now on what the kernel kept of it is not needed. */
static void name_stack(struct nt_stacks *stacks, struct kept *kept)
{
	struct nt_stack_dump *dump = malloc(sizeof(*dump));
	struct bpf_map *dumps = stacks->tracer->skel->maps.stack_dumps;
	uint64_t ips[NT_STACK_DEPTH];
	size_t n = read_addresses(stacks, kept->key.id, ips);

	if (dump &&
	    bpf_map__lookup_elem(dumps, &kept->key, sizeof(kept->key), dump, sizeof(*dump), 0))
		dump->sp = 0;
	kept->frames = calloc(NT_STACK_DEPTH, sizeof(*kept->frames));
	if (kept->frames)
		kept->n = nt_symbols_resolve(kept->key.tgid, ips, n, dump, kept->frames,
					     NT_STACK_DEPTH);
	free(dump);
	malloc_trim(0);
}

size_t nt_stacks_get(struct nt_stacks *stacks, const struct nt_record *record,
		     const struct nt_frame **frames)
{
	struct nt_stack_key key = {
		.id = record->hold.stack_id,
		.tgid = record->sender.tgid,
		.word = record->hold.stack_word,
	};
	struct kept *kept;

	if (key.id < 0 || !key.tgid)
		return 0;
	for (size_t i = 0; i < KEPT; i++) {
		kept = &stacks->kept[i];
		if (!memcmp(&kept->key, &key, sizeof(key))) {
			*frames = kept->frames;
			return kept->n;
		}
	}
	kept = &stacks->kept[stacks->next++ % KEPT];
	forget(kept);
	kept->key = key;
	name_stack(stacks, kept);
	*frames = kept->frames;
	return kept->n;
}
