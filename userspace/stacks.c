// SPDX-License-Identifier: GPL-2.0
#include "stacks.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "hash.h"
#include "nagletrace.skel.h"

struct key {
	struct nt_stack_key kernel;
	uint64_t generation; /* the kernel's ids mean something else after each recycling */
};

struct kept {
	struct key key;
	UT_hash_handle hh;
	__s32 handle;
	size_t n;
	struct nt_frame *frames;
};

struct nt_stacks {
	const struct nt_tracer *tracer;
	struct kept *by_key; /* a hash; in order, oldest first */
	struct kept **slots; /* by handle modulo most */
	size_t most;
	__s32 next;
	uint64_t generation;
};

struct nt_stacks *nt_stacks_new(const struct nt_tracer *tracer, size_t most)
{
	struct nt_stacks *stacks = calloc(1, sizeof(*stacks));

	if (!stacks)
		return NULL;
	stacks->tracer = tracer;
	stacks->most = most;
	stacks->slots = calloc(most, sizeof(*stacks->slots));
	if (stacks->slots)
		return stacks;
	free(stacks);
	return NULL;
}

static void forget(struct nt_stacks *stacks, struct kept *kept)
{
	HASH_DEL(stacks->by_key, kept);
	stacks->slots[(size_t)kept->handle % stacks->most] = NULL;
	nt_frames_free(kept->frames, kept->n);
	free(kept->frames);
	free(kept);
}

void nt_stacks_free(struct nt_stacks *stacks)
{
	if (!stacks)
		return;
	while (stacks->by_key)
		forget(stacks, stacks->by_key);
	free(stacks->slots);
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
	size_t n = read_addresses(stacks, kept->key.kernel.id, ips);

	if (dump && bpf_map__lookup_elem(dumps, &kept->key.kernel, sizeof(kept->key.kernel), dump,
					 sizeof(*dump), 0))
		dump->sp = 0;
	kept->frames = calloc(NT_STACK_DEPTH, sizeof(*kept->frames));
	if (kept->frames)
		kept->n = nt_symbols_resolve(kept->key.kernel.tgid, ips, n, dump, kept->frames,
					     NT_STACK_DEPTH);
	free(dump);
	malloc_trim(0);
}

static struct kept *keep(struct nt_stacks *stacks, const struct key *key)
{
	struct kept *kept = calloc(1, sizeof(*kept)), *before;

	if (!kept)
		return NULL;
	kept->key = *key;
	kept->handle = stacks->next;
	before = stacks->slots[(size_t)kept->handle % stacks->most];
	if (before)
		forget(stacks, before);
	HASH_ADD(hh, stacks->by_key, key, sizeof(kept->key), kept);
	if (!kept->hh.tbl) {
		free(kept);
		return NULL;
	}
	stacks->slots[(size_t)kept->handle % stacks->most] = kept;
	stacks->next = stacks->next < INT32_MAX ? stacks->next + 1 : 0;
	return kept;
}

__s32 nt_stacks_name(struct nt_stacks *stacks, const struct nt_record *record)
{
	struct kept *kept;
	struct key key;

	if (record->hold.stack_id < 0 || !record->sender.tgid)
		return NT_NO_STACK;
	memset(&key, 0, sizeof(key));
	key.kernel.id = record->hold.stack_id;
	key.kernel.tgid = record->sender.tgid;
	key.kernel.word = record->hold.stack_word;
	key.generation = stacks->generation;
	HASH_FIND(hh, stacks->by_key, &key, sizeof(key), kept);
	if (!kept) {
		kept = keep(stacks, &key);
		if (!kept)
			return NT_NO_STACK;
		name_stack(stacks, kept);
	}
	return kept->handle;
}

size_t nt_stacks_get(const struct nt_stacks *stacks, __s32 handle, const struct nt_frame **frames)
{
	const struct kept *kept = handle < 0 ? NULL : stacks->slots[(size_t)handle % stacks->most];

	if (!kept || kept->handle != handle)
		return 0;
	*frames = kept->frames;
	return kept->n;
}

static size_t count_stacks(int fd)
{
	__u32 id, *previous = NULL;
	size_t n = 0;

	for (; !bpf_map_get_next_key(fd, previous, &id); previous = &id)
		n++;
	return n;
}

/* A dump belongs to a kernel's id too: kept, it would unwind another stack that is given the id. */
static void forget_dumps(const struct bpf_map *map)
{
	__u32 room = bpf_map__max_entries(map);
	int fd = bpf_map__fd(map);
	struct nt_stack_key key;

	for (__u32 i = 0; i < room && !bpf_map_get_next_key(fd, NULL, &key); i++)
		bpf_map_delete_elem(fd, &key);
}

void nt_stacks_recycle(struct nt_stacks *stacks, bool full)
{
	const struct bpf_map *map = stacks->tracer->skel->maps.stacks;
	int fd = bpf_map__fd(map);
	__u32 room = bpf_map__max_entries(map);

	if (!full && count_stacks(fd) < room / 2)
		return;
	for (__u32 id = 0; id < room; id++)
		bpf_map_delete_elem(fd, &id);
	forget_dumps(stacks->tracer->skel->maps.stack_dumps);
	stacks->generation++;
}
