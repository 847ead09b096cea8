// SPDX-License-Identifier: GPL-2.0
#include "names/unwind.h"

#include <asm/ptrace.h>
#include <string.h>

struct unwinding {
	const struct nt_stack_dump *dump;
	pid_t pid;
	uint64_t *ips;
	size_t n, room;
};

#if defined(__x86_64__)
/* Passes the registers in the order of DWARF's numbers; System V ABI, AMD64 supplement, 3.6.2. */
static bool set_registers(Dwfl_Thread *thread, const struct nt_stack_dump *dump)
{
	struct pt_regs r;
	Dwarf_Word words[17];

	memcpy(&r, dump->regs, sizeof(r));
	words[0] = r.rax;
	words[1] = r.rdx;
	words[2] = r.rcx;
	words[3] = r.rbx;
	words[4] = r.rsi;
	words[5] = r.rdi;
	words[6] = r.rbp;
	words[7] = r.rsp;
	words[8] = r.r8;
	words[9] = r.r9;
	words[10] = r.r10;
	words[11] = r.r11;
	words[12] = r.r12;
	words[13] = r.r13;
	words[14] = r.r14;
	words[15] = r.r15;
	words[16] = r.rip;
	return dwfl_thread_state_registers(thread, 0, 17, words);
}
#elif defined(__aarch64__)
static bool set_registers(Dwfl_Thread *thread, const struct nt_stack_dump *dump)
{
	struct user_pt_regs r;
	Dwarf_Word words[32];

	memcpy(&r, dump->regs, sizeof(r));
	for (size_t i = 0; i < 31; i++)
		words[i] = r.regs[i];
	words[31] = r.sp;
	dwfl_thread_state_register_pc(thread, r.pc);
	return dwfl_thread_state_registers(thread, 0, 32, words);
}
#else
static bool set_registers(Dwfl_Thread *thread, const struct nt_stack_dump *dump)
{
	(void)thread, (void)dump;
	return false;
}
#endif

/* Shows libdw one thread: the one whose stack the kernel side copied. */
static pid_t next_thread(Dwfl *dwfl, void *context, void **thread_context)
{
	struct unwinding *u = context;

	if (*thread_context)
		return 0;
	*thread_context = u;
	return u->pid;
}

static bool read_memory(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *word, void *context)
{
	const struct unwinding *u = context;
	uint64_t offset = address - u->dump->sp;

	if (address < u->dump->sp || offset > u->dump->size ||
	    u->dump->size - offset < sizeof(*word))
		return false;
	memcpy(word, u->dump->bytes + offset, sizeof(*word));
	return true;
}

static bool set_initial_registers(Dwfl_Thread *thread, void *context)
{
	const struct unwinding *u = context;

	return set_registers(thread, u->dump);
}

static int take_frame(Dwfl_Frame *frame, void *context)
{
	struct unwinding *u = context;
	Dwarf_Addr pc;
	bool exact;

	if (u->n == u->room || !dwfl_frame_pc(frame, &pc, &exact))
		return DWARF_CB_ABORT;
	u->ips[u->n++] = pc;
	return DWARF_CB_OK;
}

size_t nt_unwind(Dwfl *dwfl, pid_t pid, const struct nt_stack_dump *dump, uint64_t *ips,
		 size_t room)
{
	static const Dwfl_Thread_Callbacks callbacks = {
		.next_thread = next_thread,
		.memory_read = read_memory,
		.set_initial_registers = set_initial_registers,
	};
	struct unwinding u = {.dump = dump, .pid = pid, .ips = ips, .room = room};

	if (!dwfl_attach_state(dwfl, NULL, pid, &callbacks, &u))
		return 0;
	/* this ends with an error where the dump ends; the frames until then count */
	dwfl_getthread_frames(dwfl, pid, take_frame, &u);
	return u.n;
}
