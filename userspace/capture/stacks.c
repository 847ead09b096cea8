// SPDX-License-Identifier: GPL-2.0
#include "capture/stacks.h"

#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "base/hash.h"
#include "attach/tracer.h"
#include "nagletrace.skel.h"

struct kept {
	struct nt_stack_key key;
	UT_hash_handle hh;
	__s32 handle;
	uint64_t number; /* of the request for its names; 0: we have not asked for them */
	bool waits;      /* its names are still to come */
	bool dumped;     /* the request had a dump; without it most callers are missing */
	size_t n, bytes;
	struct nt_frame *frames; /* only addresses until then, and only with frame pointers */
};

struct nt_stacks {
	const struct nt_tracer *tracer;
	struct nt_names *names;
	struct kept *by_key; /* a hash; in order, oldest first */
	struct kept **slots; /* by handle modulo most */
	size_t most, bytes;
	__s32 next;
	uint64_t requests; /* so far */
	uint64_t dropped;  /* stacks of stalls that the kernel no longer had */
};

struct nt_stacks *nt_stacks_new(const struct nt_tracer *tracer, struct nt_names *names, size_t most)
{
	struct nt_stacks *stacks = calloc(1, sizeof(*stacks));

	if (!stacks)
		return NULL;
	stacks->tracer = tracer;
	stacks->names = names;
	stacks->most = most;
	stacks->slots = calloc(most, sizeof(*stacks->slots));
	if (stacks->slots)
		return stacks;
	free(stacks);
	return NULL;
}

/*
 * The most bytes of names that we keep: a process with long names cannot take all memory. 1024
 * stacks of 20 usual frames take 2 to 3 MB.
 */
#define MOST_BYTES (8UL << 20)

static void forget(struct nt_stacks *stacks, struct kept *kept)
{
	stacks->bytes -= kept->bytes;
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

static uint32_t *generation_of(const struct nt_stacks *stacks)
{
	return &stacks->tracer->skel->bss->stack_generation;
}

/* Finds nothing if the map was emptied since, or while, the stack was taken: then another stack may
 * have its place. */
static size_t read_addresses(const struct nt_stacks *stacks, __u32 id, uint64_t ips[NT_STACK_DEPTH])
{
	__u32 place = id % NT_STACK_PLACES;
	size_t n = 0;

	if (id / NT_STACK_PLACES != *generation_of(stacks) ||
	    bpf_map__lookup_elem(stacks->tracer->skel->maps.stacks, &place, sizeof(place), ips,
				 NT_STACK_DEPTH * sizeof(*ips), 0))
		return 0;
	while (n < NT_STACK_DEPTH && ips[n])
		n++;
	return n;
}

static void set_addresses(struct kept *kept, const uint64_t *ips, size_t n)
{
	kept->frames = calloc(n ? n : 1, sizeof(*kept->frames));
	kept->n = kept->frames ? n : 0;
	for (size_t i = 0; i < kept->n; i++)
		kept->frames[i].ip = ips[i];
}

static size_t bytes_of(const struct nt_frame *frames, size_t n)
{
	size_t bytes = n * sizeof(*frames);

	for (size_t i = 0; i < n; i++)
		bytes += (frames[i].module ? strlen(frames[i].module) + 1 : 0) +
			 (frames[i].symbol ? strlen(frames[i].symbol) + 1 : 0);
	return bytes;
}

static void named(void *context, uint64_t number, enum nt_unnamed why, struct nt_frame *frames,
		  size_t n)
{
	struct nt_stacks *stacks = context;
	struct kept *kept = stacks->slots[(uint32_t)number % stacks->most];
	struct nt_frame *copy = n ? calloc(n, sizeof(*copy)) : NULL;

	if (!kept || kept->number != number || !copy) {
		nt_frames_free(frames, n);
		free(copy);
	} else {
		memcpy(copy, frames, n * sizeof(*copy));
		nt_frames_free(kept->frames, kept->n);
		free(kept->frames);
		kept->frames = copy;
		kept->n = n;
		stacks->bytes -= kept->bytes;
		kept->bytes = bytes_of(copy, n);
		stacks->bytes += kept->bytes;
	}
	if (kept && kept->number == number) {
		kept->waits = false;
		if (why == NT_UNNAMED_BUSY)
			kept->number = 0; /* the next stall asks again */
	}
	while (stacks->bytes > MOST_BYTES)
		forget(stacks, stacks->by_key);
}

static bool read_dump(const struct nt_stacks *stacks, const struct nt_stack_key *key,
		      struct nt_stack_dump *dump)
{
	return !bpf_map__lookup_elem(stacks->tracer->skel->maps.stack_dumps, key, sizeof(*key),
				     dump, sizeof(*dump), 0) &&
	       dump->sp;
}

/* Sends a request with all that the kernel kept of the stack, which we then need no longer. */
static void ask_for_names(struct nt_stacks *stacks, struct kept *kept, uint64_t cgroup_id)
{
	struct nt_names_request request = {.tgid = kept->key.tgid};

	request.n = read_addresses(stacks, kept->key.id, request.ips);
	kept->dumped = read_dump(stacks, &kept->key, &request.dump);
	if (!request.n && !kept->dumped) { /* the next stall brings it again */
		stacks->dropped++;
		return;
	}
	if (!kept->dumped)
		request.dump.sp = 0;
	if (!kept->frames)
		set_addresses(kept, request.ips, request.n);
	request.number = ++stacks->requests << 32 | (uint32_t)kept->handle;
	kept->waits = nt_names_ask(stacks->names, &request, cgroup_id, named, stacks);
	kept->number = kept->waits ? request.number : 0;
}

/*
 * Is there a dump now, though there was none when we asked? The kernel side removes the oldest; the
 * next write from there brings it again.
 */
static bool has_dump_now(const struct nt_stacks *stacks, const struct kept *kept)
{
	struct nt_stack_dump dump;

	return !kept->dumped && !kept->waits && read_dump(stacks, &kept->key, &dump);
}

uint64_t nt_stacks_dropped(const struct nt_stacks *stacks)
{
	return stacks->dropped;
}

void nt_stacks_turn(struct nt_stacks *stacks)
{
	nt_names_turn(stacks->names, named, stacks);
}

static struct kept *keep(struct nt_stacks *stacks, const struct nt_stack_key *key)
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
	const struct nt_stack_key key = {
		.id = record->hold.stack_id,
		.tgid = record->sender.tgid,
		.word = record->hold.stack_word,
	};
	struct kept *kept;

	if (record->hold.stack_id < 0 || !record->sender.tgid)
		return NT_NO_STACK;
	HASH_FIND(hh, stacks->by_key, &key, sizeof(key), kept);
	if (!kept) {
		kept = keep(stacks, &key);
		if (!kept)
			return NT_NO_STACK;
	}
	if (!kept->number || has_dump_now(stacks, kept))
		ask_for_names(stacks, kept, record->sender.cgroup_id);
	return kept->handle;
}

bool nt_stacks_waits(const struct nt_stacks *stacks, __s32 handle)
{
	const struct kept *kept = handle < 0 ? NULL : stacks->slots[(size_t)handle % stacks->most];

	return kept && kept->handle == handle && kept->waits;
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

/* Forgets the dumps of stacks that were taken before this generation. */
static void forget_dumps(const struct bpf_map *map, uint32_t generation)
{
	size_t room = bpf_map__max_entries(map);
	struct nt_stack_key key, *previous = NULL;
	int fd = bpf_map__fd(map);
	struct nt_stack_key next;

	/* the kernel side adds and removes some meanwhile */
	for (size_t i = 0; i < 2 * room && !bpf_map_get_next_key(fd, previous, &next); i++) {
		uint32_t age = generation - (uint32_t)next.id / NT_STACK_PLACES;

		if ((age & NT_STACK_GENERATION) - 1 < NT_STACK_GENERATION / 2) {
			bpf_map_delete_elem(fd, &next);
		} else {
			key = next;
			previous = &key;
		}
	}
}

void nt_stacks_recycle(struct nt_stacks *stacks, bool full)
{
	const struct bpf_map *map = stacks->tracer->skel->maps.stacks;
	volatile uint32_t *generation = generation_of(stacks);
	const uint32_t before = *generation;
	int fd = bpf_map__fd(map);
	__u32 room = bpf_map__max_entries(map);

	if (!full && count_stacks(fd) < room / 2)
		return;
	*generation = (before + 1) & NT_STACK_GENERATION;
	for (__u32 id = 0; id < room; id++)
		bpf_map_delete_elem(fd, &id);
	*generation = (before + 2) & NT_STACK_GENERATION;
	/* those of the holds that have not ended yet are all that is left of their stacks */
	forget_dumps(stacks->tracer->skel->maps.stack_dumps, before);
}
