/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The call stack of a held write, for --stacks: the kernel side takes it once for each call site,
 * and user space names it later.
 */
#ifndef NT_USER_STACK_H
#define NT_USER_STACK_H

#include "totals.h"

#if defined(__TARGET_ARCH_arm64)
typedef struct user_pt_regs user_regs;
#define STACK_POINTER sp
#else
typedef struct pt_regs user_regs;
#define STACK_POINTER rsp
#endif

_Static_assert(sizeof(user_regs) <= NT_REGS_BYTES, "room for the registers");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, NT_STACK_PLACES);
	__type(key, u32);
	__uint(value_size, NT_STACK_DEPTH * sizeof(u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 512);
	__type(key, struct nt_stack_key);
	__type(value, struct nt_stack_dump);
} stack_dumps SEC(".maps");

static const struct nt_stack_dump no_stack_dump;

/* Odd while user space empties the map of stacks, and thereafter higher by two. */
__u32 stack_generation;

/* Finds the registers with which the process entered the kernel; NULL before 5.15. */
static __always_inline const user_regs *find_user_regs(void)
{
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return NULL;
	return (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
}

static __always_inline void stack_dump(const struct nt_stack_key *key, const user_regs *regs,
				       u64 sp)
{
	struct nt_stack_dump *dump;

	if (bpf_map_lookup_elem(&stack_dumps, key) ||
	    bpf_map_update_elem(&stack_dumps, key, &no_stack_dump, BPF_NOEXIST))
		return;
	dump = bpf_map_lookup_elem(&stack_dumps, key);
	if (!dump)
		return;
	bpf_probe_read_kernel(dump->regs, sizeof(*regs), regs);
	for (int i = 0; i < NT_STACK_BYTES / NT_STACK_CHUNK; i++) {
		if (bpf_probe_read_user(dump->bytes + i * NT_STACK_CHUNK, NT_STACK_CHUNK,
					(void *)(sp + i * NT_STACK_CHUNK)))
			break;
		dump->size = (i + 1) * NT_STACK_CHUNK;
	}
	dump->sp = sp;
}

/* Current is in the system call that made the write. */
static __always_inline void stack_take(void *ctx, struct nt_stack_key *key, u32 tgid)
{
	u32 generation = stack_generation; /* before the stack is taken */
	const user_regs *regs;
	u64 sp = 0;

	key->id = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	if (key->id < 0) {
		count_dropped(NT_DROPPED_STACK);
		key->id = NT_NO_STACK;
		return;
	}
	key->id += generation * NT_STACK_PLACES;
	key->tgid = tgid;
	regs = find_user_regs();
	if (!regs || bpf_probe_read_kernel(&sp, sizeof(sp), &regs->STACK_POINTER))
		return;
	bpf_probe_read_user(&key->word, sizeof(key->word), (void *)sp);
	stack_dump(key, regs, sp);
}

#endif /* NT_USER_STACK_H */
