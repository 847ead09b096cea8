// SPDX-License-Identifier: GPL-2.0
/* Holds the parent's context, takes its signals, and returns its exit code. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#include "parent.h"

int fail(int err, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* One write keeps the line whole: both ends may fail at once. */
	dprintf(STDERR_FILENO, "nagle-lab: %s\n", line);
	return err;
}

/* We take signals in the loop, so that none can leave a child behind. */
static int prepare(struct lab_run *run, sigset_t *mask)
{
	uint64_t ns = run->plan.opt.timeout_ns;
	struct itimerspec at = {.it_value = {(time_t)(ns / LAB_SEC), (long)(ns % LAB_SEC)}};
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	/* Orphaned workers come back to us, and we wait for them. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, mask);
	run->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	run->watchdog = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	if (run->signals < 0 || run->watchdog < 0 || timerfd_settime(run->watchdog, 0, &at, NULL))
		return fail(-errno, "cannot prepare signals and the watchdog: %s", strerror(errno));
	return 0;
}

int main(int argc, char **argv)
{
	struct lab_run run = {.child = {{.channel = -1}, {.channel = -1}}};
	sigset_t mask;
	int err = options_parse(argc, argv, &run.plan);

	if (err)
		return err > 0 ? 0 : 2;
	err = prepare(&run, &mask);
	if (!err)
		err = conduct(&run, &mask);
	child_end_all(&run);
	return err == LAB_CANNOT ? 3 : !!err;
}
