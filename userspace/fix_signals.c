// SPDX-License-Identifier: GPL-2.0
#include "fix_signals.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

/* A handler has nothing else to find it by. */
static struct nt_fix_sockets *set_sockets;

static void crashed(int number)
{
	nt_fix_restore_in_signal(set_sockets);
	raise(number); /* its action is the default again */
}

void nt_fix_catch_crashes(struct nt_fix_sockets *sockets)
{
	static char room[64 * 1024]; /* the stack itself may be what is used up */
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
		set |= 1ULL << (signals[i] - 1);
	return set;
}
#define BITS(signals) bits(signals, sizeof(signals) / sizeof((signals)[0]))

/* nohup's wish. Of the others it is the shell's, for jobs in the background of a script. */
static bool is_ignored(int number)
{
	struct sigaction action;

	return !sigaction(number, NULL, &action) && action.sa_handler == SIG_IGN;
}

/* By sets as the kernel has them, for the C library leaves two signals out of its own. */
int nt_fix_watch_signals(void)
{
	static const int harmless[] = {SIGCHLD, SIGURG, SIGWINCH, SIGCONT}, hangup[] = {SIGHUP};
	/* blocked all the same: in the background, reading and writing then fail and do not stop */
	static const int told_by_calls[] = {SIGTTIN, SIGTTOU, SIGPIPE};
	uint64_t blocked = ~(BITS(crashes) | BITS(harmless));
	uint64_t end_it = blocked & ~BITS(told_by_calls);
	int fd;

	if (is_ignored(SIGHUP))
		end_it &= ~BITS(hangup);
	if (syscall(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, NULL, sizeof(blocked)))
		return -errno;
	fd = syscall(SYS_signalfd4, -1, &end_it, sizeof(end_it), SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}
