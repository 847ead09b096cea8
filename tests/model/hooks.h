/* SPDX-License-Identifier: GPL-2.0 */
/* Runs a family's programs where the kernel would run them. It may skip a program, as the kernel
 * skips one that interrupts another on its CPU, or the tracepoint of a softirq that it hides. */
#pragma once

#include "world.h"

#include <sys/mman.h>

enum family {
	FUNCTION,
	KPROBE,
	TRACEPOINT,
	FAMILIES,
};

static struct {
	enum family family;
	u32 skip; /* one program in so many is skipped; 0: none */
	u64 skipped;
	u64 destroys_skipped;
	struct endpoint *e; /* the endpoint of this event */
	u64 depth; /* kernel functions under way; kprobes' stack pointers need it */
} hooks;

static bool hook_skipped(const char *program)
{
	bool skipped = one_in(hooks.skip);

	world.steps++;
	hooks.skipped += skipped;
	if (hooks.e)
		TRACE(hooks.e, "%s%s", program, skipped ? " is skipped" : "");
	return skipped;
}

#define RUN(program, ...)                                  \
	({                                                 \
		bool __runs = !hook_skipped(#program);     \
		if (__runs)                                \
			RUN_PROGRAM(program, __VA_ARGS__); \
		__runs;                                    \
	})
#define ADDRESS(pointer) ((unsigned long long)(uintptr_t)(pointer))

/* Makes the registers at a function's entry, or, after the return address was popped, at its
 * return. */
static struct pt_regs hook_registers(u64 a, u64 b, u64 c, u64 d, u64 e, u32 returned)
{
	struct pt_regs regs = {0};

	PT_REGS_PARM1(&regs) = a;
	PT_REGS_PARM2(&regs) = b;
	PT_REGS_PARM3(&regs) = c;
	PT_REGS_PARM4(&regs) = d;
	PT_REGS_PARM5(&regs) = e;
	PT_REGS_SP(&regs) = (1ULL << 40) - hooks.depth * 4096 + 8 * returned;
	return regs;
}

/* The verifier forbids programs to read directly from a socket whose address came from a kprobe or
 * a timer. While such a program runs, only host_read() can reach the sockets. */
static void hook_protect(int protection)
{
	assert_int_equal(
		mprotect((void *)host.guarded, host.guarded_end - host.guarded, protection), 0);
}

static void hook_guard(void)
{
	host.on_read = NULL;
	hook_protect(PROT_NONE);
}

/* A timer itself may be read directly; the program does so before anything else. */
#define RUN_UNTRUSTED(program, context)                                \
	({                                                             \
		if (!hook_skipped(#program)) {                         \
			host.on_read = host.guarded ? hook_guard : NULL; \
			host.untrusted = host.guarded;                 \
			program((void *)(context));                    \
			host.on_read = NULL;                           \
			host.untrusted = false;                        \
			if (host.guarded)                              \
				hook_protect(PROT_READ | PROT_WRITE);  \
		}                                                      \
	})

#define RUN_KPROBE(program, regs)               \
	({                                      \
		struct pt_regs __r = regs;      \
		RUN_UNTRUSTED(program, &__r);   \
	})

static void hook_probe(struct endpoint *e, struct packet *p)
{
	if (hooks.family == TRACEPOINT)
		RUN(on_tcp_probe, ADDRESS(e), ADDRESS(p));
	else
		RUN(on_tcp_probe_functions, ADDRESS(e), ADDRESS(p));
}

/* It is never skipped: the application calls it, so that it interrupts no program. */
static void hook_reads(struct endpoint *e)
{
	if (hooks.family != TRACEPOINT)
		return;
	world.steps++;
	RUN_PROGRAM(on_tcp_rcv_space_adjust, ADDRESS(e));
}

static void hook_destroy(struct endpoint *e)
{
	if (!RUN(on_tcp_destroy_sock, ADDRESS(e)))
		hooks.destroys_skipped++;
}

static void hook_timer_expire(struct timer_list *timer)
{
	unsigned long long context[] = {ADDRESS(timer)};

	if (hooks.family == FUNCTION)
		RUN_UNTRUSTED(on_delack_timer_expire, context);
	else
		RUN_UNTRUSTED(on_timer_expire_entry, context);
}

static void hook_write_xmit_entry(struct endpoint *e, u32 mss, int nonagle, int push_one)
{
	hooks.depth++;
	if (hooks.family == KPROBE)
		RUN_KPROBE(kprobe_tcp_write_xmit,
			   hook_registers(ADDRESS(e), mss, nonagle, push_one, 0, 0));
}

static void hook_write_xmit_exit(struct endpoint *e, u32 mss, int nonagle, int push_one)
{
	if (hooks.family == FUNCTION)
		RUN(fexit_tcp_write_xmit, ADDRESS(e), mss, nonagle, push_one);
	else if (hooks.family == KPROBE)
		RUN_KPROBE(kretprobe_tcp_write_xmit, hook_registers(0, 0, 0, 0, 0, 1));
	hooks.depth--;
}

static void hook_sendmsg_entry(struct endpoint *e)
{
	hooks.depth++;
	if (hooks.family == KPROBE)
		RUN_KPROBE(kprobe_tcp_sendmsg_locked, hook_registers(ADDRESS(e), 0, 0, 0, 0, 0));
}

static void hook_sendmsg_exit(struct endpoint *e, u32 copied)
{
	if (hooks.family == FUNCTION) {
		RUN(fexit_tcp_sendmsg_locked, ADDRESS(e), 0, copied, copied);
	} else if (hooks.family == KPROBE) {
		struct pt_regs regs = hook_registers(0, 0, 0, 0, 0, 1);

		PT_REGS_RC(&regs) = copied;
		RUN_KPROBE(kretprobe_tcp_sendmsg_locked, regs);
	}
	hooks.depth--;
}

/* Runs after the write has returned to the system call and the socket is unlocked. */
static void hook_send_length(struct endpoint *e, u32 copied)
{
	if (hooks.family == TRACEPOINT)
		RUN(on_sock_send_length, ADDRESS(e), copied);
}

static void hook_delack_timer_handler(struct endpoint *e)
{
	if (hooks.family == FUNCTION)
		RUN(fentry_tcp_delack_timer_handler, ADDRESS(e));
	else if (hooks.family == KPROBE)
		RUN_KPROBE(kprobe_tcp_delack_timer_handler,
			   hook_registers(ADDRESS(e), 0, 0, 0, 0, 0));
}

static void hook_send_ack(struct endpoint *e)
{
	if (hooks.family == FUNCTION)
		RUN(fentry_tcp_send_ack, ADDRESS(e));
	else if (hooks.family == KPROBE)
		RUN_KPROBE(kprobe_tcp_send_ack, hook_registers(ADDRESS(e), 0, 0, 0, 0, 0));
}

static void hook_write_wakeup(struct endpoint *e)
{
	if (hooks.family == FUNCTION)
		RUN(fentry_tcp_write_wakeup, ADDRESS(e));
	else if (hooks.family == KPROBE)
		RUN_KPROBE(kprobe_tcp_write_wakeup, hook_registers(ADDRESS(e), 0, 0, 0, 0, 0));
}
