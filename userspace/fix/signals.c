// SPDX-License-Identifier: GPL-2.0
#include "fix/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

/* A signal handler can find it only here. */
static struct nt_fix_sockets *set_sockets;

static void crashed(int number)
{
	nt_fix_restore_in_signal(set_sockets);
	raise(number); /* the default action applies again */
}

void nt_fix_catch_crashes(struct nt_fix_sockets *sockets)
{
	static char room[64 * 1024]; /* a crash may be a stack overflow */
	const stack_t stack = {.ss_sp = room, .ss_size = sizeof(room)};
	struct sigaction action = {.sa_handler = crashed,
				   .sa_flags = SA_RESETHAND | SA_NODEFER | SA_ONSTACK};

	sigaltstack(&stack, NULL);
	set_sockets = sockets;
	for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
		sigaction(crashes[i], &action, NULL);
}

static uint64_t bits(const int *signals, size_t n)
{
	uint64_t set = 0;

	for (size_t i = 0; i < n; i++)
		set |= NT_SIGNAL(signals[i]);
	return set;
}
#define BITS(signals) bits(signals, sizeof(signals) / sizeof((signals)[0]))

/* nohup ignores SIGHUP on purpose; the shell ignores others, for a script's background jobs. */
static bool is_ignored(int number)
{
	struct sigaction action;

	return !sigaction(number, NULL, &action) && action.sa_handler == SIG_IGN;
}

/* Uses the kernel's signal sets: the C library leaves two signals out of its own. */
int nt_fix_watch_signals(struct nt_loop *loop, nt_loop_call *call, void *context)
{
	static const int harmless[] = {SIGCHLD, SIGURG, SIGWINCH, SIGCONT}, hangup[] = {SIGHUP};
	/* block these too: in the background, reading and writing then fail instead of
	 * stopping us */
	static const int told_by_calls[] = {SIGTTIN, SIGTTOU, SIGPIPE};
	uint64_t blocked = ~(BITS(crashes) | BITS(harmless));
	uint64_t end_it = blocked & ~BITS(told_by_calls);

	if (is_ignored(SIGHUP))
		end_it &= ~BITS(hangup);
	if (syscall(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, NULL, sizeof(blocked)))
		return -errno;
	return nt_loop_signals(loop, end_it, 0, call, context);
}
