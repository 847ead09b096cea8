// SPDX-License-Identifier: GPL-2.0
// links: userspace/capture/stacks.c -lbpf
/* What is asked about a stack, and when again. The kernel side and the names are played here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "unit.h"
#include <bpf/libbpf.h>
#include "attach/tracer.h"
#include "capture/stacks.h"
#include "nagletrace.skel.h"

#define TGID   4242
#define ID     7 /* of the stack, wherever it is taken */
#define ROOM   16
#define SP     0x7ffc0000
#define CALLER 0x401234

/* ---- the kernel side, with one process that writes from one place ---- */

static struct {
	bool has_stack;
	uint32_t dumps[8], n_dumps; /* generations of the stacks that have one */
	int writes_at;              /* the process writes when this place is emptied, -1: not */
	uint32_t generation;        /* when it wrote last */
	uint64_t sp;                /* 0: a kernel that shows no registers */
} kernel;

static struct nagletrace_bpf__bss bss;

static struct bpf_map *const stacks_map = (struct bpf_map *)&kernel.has_stack;
static struct bpf_map *const dumps_map = (struct bpf_map *)&kernel.n_dumps;
#define STACKS_FD 1000
#define DUMPS_FD  1001

static uint32_t *dump_of(uint32_t generation)
{
	for (uint32_t i = 0; i < kernel.n_dumps; i++)
		if (kernel.dumps[i] == generation)
			return &kernel.dumps[i];
	return NULL;
}

/* As stack_take() in bpf/user_stack.h: what is there already is not made anew. */
static void write_held(void)
{
	kernel.has_stack = true;
	kernel.generation = bss.stack_generation;
	if (kernel.sp && !dump_of(kernel.generation))
		kernel.dumps[kernel.n_dumps++] = kernel.generation;
}

static void remove_dump(uint32_t generation)
{
	uint32_t *dump = dump_of(generation);

	*dump = kernel.dumps[--kernel.n_dumps];
}

static __s32 id_of(uint32_t generation)
{
	return ID + generation * NT_STACK_PLACES;
}

int bpf_map__fd(const struct bpf_map *map)
{
	return map == stacks_map ? STACKS_FD : DUMPS_FD;
}

__u32 bpf_map__max_entries(const struct bpf_map *map)
{
	return ROOM;
}

int bpf_map__lookup_elem(const struct bpf_map *map, const void *key, size_t key_size, void *value,
			 size_t value_size, __u64 flags)
{
	const struct nt_stack_key *of = key;
	struct nt_stack_dump *dump = value;

	(void)key_size, (void)flags;
	if (map == stacks_map ? !kernel.has_stack || *(uint32_t *)key != ID
			      : !dump_of(of->id / NT_STACK_PLACES))
		return -ENOENT;
	memset(value, 0, value_size);
	if (map == stacks_map) {
		*(uint64_t *)value = CALLER;
	} else {
		dump->sp = kernel.sp;
		dump->size = 256;
	}
	return 0;
}

int bpf_map_get_next_key(int fd, const void *key, void *next)
{
	const struct nt_stack_key *before = key;
	uint32_t at = 0;

	if (fd == STACKS_FD) {
		*(uint32_t *)next = ID;
		return key || !kernel.has_stack ? -ENOENT : 0;
	}
	if (before)
		at = dump_of(before->id / NT_STACK_PLACES) - kernel.dumps + 1;
	if (at >= kernel.n_dumps)
		return -ENOENT;
	*(struct nt_stack_key *)next =
		(struct nt_stack_key){.id = id_of(kernel.dumps[at]), .tgid = TGID};
	return 0;
}

int bpf_map_delete_elem(int fd, const void *key)
{
	const struct nt_stack_key *dump = key;

	if (fd == DUMPS_FD) {
		remove_dump(dump->id / NT_STACK_PLACES);
		return 0;
	}
	if (*(const int *)key == kernel.writes_at)
		write_held();
	if (*(const uint32_t *)key == ID)
		kernel.has_stack = false;
	return 0;
}

/* ---- the names: a request is answered in the next turn ---- */

static struct {
	size_t count; /* of requests so far */
	struct nt_names_request last;
	bool refuses;
	enum nt_unnamed why; /* the answer to all */
	bool pending;
} names;

bool nt_names_ask(struct nt_names *nothing, const struct nt_names_request *request,
		  uint64_t cgroup_id, nt_named named, void *context)
{
	(void)nothing, (void)cgroup_id, (void)named, (void)context;
	names.count++;
	if (names.refuses)
		return false;
	names.last = *request;
	names.pending = true;
	return true;
}

/* Without a dump no caller is found. */
void nt_names_turn(struct nt_names *nothing, nt_named named, void *context)
{
	struct nt_frame frames[2] = {{.ip = CALLER}, {.ip = CALLER + 1}};
	bool pending = names.pending;

	names.pending = false;
	if (!pending)
		return;
	if (names.why == NT_UNNAMED_BUSY) {
		named(context, names.last.number, names.why, NULL, 0);
		return;
	}
	frames[1].symbol = strdup("caller");
	if (!names.last.dump.sp)
		free(frames[1].symbol);
	named(context, names.last.number, NT_NAMED, frames, names.last.dump.sp ? 2 : 1);
}

void nt_frames_free(struct nt_frame *frames, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(frames[i].module);
		free(frames[i].symbol);
	}
}

/* ---- the tracer ---- */

static struct nagletrace_bpf skel;
static struct nt_tracer tracer = {.skel = &skel};

static int begin(void **state)
{
	memset(&kernel, 0, sizeof(kernel));
	memset(&names, 0, sizeof(names));
	memset(&bss, 0, sizeof(bss));
	kernel.sp = SP;
	kernel.writes_at = -1;
	skel.bss = &bss;
	skel.maps.stacks = stacks_map;
	skel.maps.stack_dumps = dumps_map;
	*state = nt_stacks_new(&tracer, NULL, ROOM);
	return *state ? 0 : -1;
}

static int end(void **state)
{
	nt_stacks_free(*state);
	return 0;
}

/* Takes the record of a stall by the last write, and returns the stack's handle. */
static __s32 take_record(struct nt_stacks *stacks)
{
	const struct nt_record record = {.sender.tgid = TGID,
					 .hold.stack_id = id_of(kernel.generation)};

	return nt_stacks_name(stacks, &record);
}

/* A stall, and the answer to what is asked about it. Returns how many frames it has then. */
static size_t stall(struct nt_stacks *stacks)
{
	const struct nt_frame *frames;
	__s32 handle;

	write_held();
	handle = take_record(stacks);
	nt_stacks_turn(stacks);
	assert_false(nt_stacks_waits(stacks, handle));
	return nt_stacks_get(stacks, handle, &frames);
}

/* ---- the tests ---- */

TEST(a_stack_is_named_once)
{
	for (int i = 0; i < 3; i++)
		assert_int_equal(stall(*state), 2);
	assert_int_equal(names.count, 1);
	assert_int_equal(names.last.dump.sp, SP);
}

TEST(a_stack_that_nobody_had_time_for_is_asked_for_again)
{
	names.why = NT_UNNAMED_BUSY;
	assert_int_equal(stall(*state), 1);
	names.why = NT_NAMED;
	names.refuses = true;
	assert_int_equal(stall(*state), 1);
	names.refuses = false;
	assert_int_equal(stall(*state), 2);
	assert_int_equal(stall(*state), 2);
	assert_int_equal(names.count, 3);
}

/* Takes the record of the last write, and the answer. Returns how many frames it has. */
static size_t record_has(struct nt_stacks *stacks)
{
	const struct nt_frame *frames;
	__s32 handle = take_record(stacks);

	nt_stacks_turn(stacks);
	return nt_stacks_get(stacks, handle, &frames);
}

TEST(a_stack_that_was_taken_before_the_recycling_or_amid_it_is_named_by_its_dump)
{
	/* -1: before; then before its place is emptied, and after */
	for (int at = -1; at < ROOM; at += ID + 1) {
		names.last.n = ROOM;
		write_held();
		kernel.writes_at = at;
		nt_stacks_recycle(*state, true);
		kernel.writes_at = -1;
		if (kernel.has_stack) /* whose it is, nobody knows */
			assert_true(at > ID);
		assert_int_equal(record_has(*state), 2);
		assert_int_equal(names.last.n, 0);
		assert_int_equal(stall(*state), 2);
		assert_int_equal(names.last.n, 1);
	}
	assert_int_equal(nt_stacks_dropped(*state), 0);
}

TEST(without_a_dump_such_a_stack_is_counted)
{
	kernel.sp = 0;
	write_held();
	nt_stacks_recycle(*state, true);
	assert_int_equal(record_has(*state), 0);
	write_held();
	kernel.generation--; /* it read that before the stack was taken */
	assert_int_equal(record_has(*state), 0);
	assert_int_equal(nt_stacks_dropped(*state), 2);
	assert_int_equal(names.count, 0);
}

/* Also when the numbers of the generations begin anew. */
TEST(the_dumps_of_earlier_generations_go)
{
	bss.stack_generation = NT_STACK_GENERATION - 5;
	for (int i = 0; i < 8; i++) {
		uint32_t before = bss.stack_generation;

		write_held();
		kernel.writes_at = 0;
		nt_stacks_recycle(*state, true);
		kernel.writes_at = -1;
		assert_int_equal(kernel.n_dumps, 2);
		assert_non_null(dump_of(before));
		assert_non_null(dump_of((before + 1) & NT_STACK_GENERATION));
		assert_true(id_of(bss.stack_generation) > 0);
	}
}

TEST(a_dump_that_made_room_for_others_comes_again)
{
	write_held();
	remove_dump(0);
	take_record(*state);
	take_record(*state); /* while the first request waits */
	nt_stacks_turn(*state);
	assert_int_equal(names.count, 1);
	assert_int_equal(stall(*state), 2);
	assert_int_equal(names.count, 2);
}

TEST(where_the_kernel_shows_no_registers_a_stack_is_named_once_too)
{
	kernel.sp = 0;
	for (int i = 0; i < 3; i++)
		assert_int_equal(stall(*state), 1);
	assert_int_equal(names.count, 1);
}

UNIT_MAIN_WITH(begin, end)
