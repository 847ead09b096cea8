/* SPDX-License-Identifier: GPL-2.0 */
/* The call stack of a held write, with --stacks: taken in the kernel once for each call site, named later. */
#ifndef NT_STACK_H
#define NT_STACK_H

#include "totals.h"

#if defined(__TARGET_ARCH_arm64)
typedef struct user_pt_regs user_regs;
#else
typedef struct pt_regs user_regs;
#endif

_Static_assert(sizeof(user_regs) <= NT_REGS_BYTES, "room for the registers");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 4096);
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

/* The registers with which the process entered the kernel; since 5.15. */
static __always_inline bool read_user_regs(user_regs *regs)
{
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return false;
	return !bpf_probe_read_kernel(regs, sizeof(*regs),
				      (void *)bpf_task_pt_regs(bpf_get_current_task_btf()));
}

static __always_inline void stack_dump(const struct nt_stack_key *key, const user_regs *regs)
{
	u64 sp = PT_REGS_SP((struct pt_regs *)regs);
	struct nt_stack_dump *dump;

	if (bpf_map_lookup_elem(&stack_dumps, key) ||
	    bpf_map_update_elem(&stack_dumps, key, &no_stack_dump, BPF_NOEXIST))
		return;
	dump = bpf_map_lookup_elem(&stack_dumps, key);
	if (!dump)
		return;
	__builtin_memcpy(dump->regs, regs, sizeof(*regs));
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
	user_regs regs;

	key->id = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	if (key->id < 0) {
		count_lost(NT_LOST_STACK);
		key->id = NT_NO_STACK;
		return;
	}
	key->tgid = tgid;
	if (!read_user_regs(&regs))
		return;
	bpf_probe_read_user(&key->word, sizeof(key->word), (void *)PT_REGS_SP((struct pt_regs *)&regs));
	stack_dump(key, &regs);
}

#endif /* NT_STACK_H */
