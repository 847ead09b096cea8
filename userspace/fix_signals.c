// SPDX-License-Identifier: GPL-2.0
#include "fix_signals.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>

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

static void leave_out(sigset_t *set, const int *signals, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sigdelset(set, signals[i]);
}

int nt_fix_watch_signals(void)
{
	static const int harmless[] = {SIGCHLD, SIGURG, SIGWINCH, SIGCONT};
	/* blocked all the same: in the background, reading and writing then fail and do not stop */
	static const int told_by_calls[] = {SIGTTIN, SIGTTOU, SIGPIPE};
	sigset_t set;
	int fd;

	sigfillset(&set);
	leave_out(&set, crashes, sizeof(crashes) / sizeof(crashes[0]));
	leave_out(&set, harmless, sizeof(harmless) / sizeof(harmless[0]));
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	leave_out(&set, told_by_calls, sizeof(told_by_calls) / sizeof(told_by_calls[0]));
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}
