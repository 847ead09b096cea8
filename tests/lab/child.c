// SPDX-License-Identifier: GPL-2.0
/* Starts the two child processes, hears them, and learns how they ended. */
#include <json-c/json.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "parent.h"

const char *const side_name[LAB_SIDES] = {"client", "server"};

int child_start(struct lab_run *run, enum lab_side side, const sigset_t *mask)
{
	struct lab_child *child = &run->child[side];
	pid_t parent = getpid();
	int pair[2], err;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return fail(-errno, "cannot make a socket pair: %s", strerror(errno));
	child->pid = fork();
	if (child->pid < 0)
		return fail(-errno, "cannot fork the %s: %s", side_name[side], strerror(errno));
	if (child->pid) {
		close(pair[1]);
		child->channel = pair[0];
		return 0;
	}
	sigprocmask(SIG_SETMASK, mask, NULL);
	for (size_t i = 0; i < LAB_SIDES; i++) {
		if (run->child[i].channel >= 0)
			close(run->child[i].channel);
	}
	close(pair[0]);
	close(run->signals);
	close(run->watchdog);
	err = end_be_child(parent, end_name(&run->plan.opt, side));
	if (!err)
		err = end_run(&run->plan, side, pair[1]);
	close(pair[1]);
	exit(err == LAB_CANNOT ? 3 : !!err);
}

/* An end that failed has said why itself; one that was killed could not. */
static int reap(struct lab_run *run, int how)
{
	int err = 0;

	for (size_t i = 0; i < LAB_SIDES; i++) {
		struct lab_child *child = &run->child[i];
		int status;

		if (child->pid <= 0 || waitpid(child->pid, &status, how) != child->pid)
			continue;
		if (WIFSIGNALED(status))
			err = fail(-EINTR, "%s %d was ended by signal %d",
				   end_name(&run->plan.opt, i), child->pid, WTERMSIG(status));
		else if (WEXITSTATUS(status))
			err = WEXITSTATUS(status) == 3 ? LAB_CANNOT : -EIO;
		child->pid = 0;
	}
	return err;
}

static int take_signal(struct lab_run *run)
{
	struct signalfd_siginfo info;

	if (read(run->signals, &info, sizeof(info)) != sizeof(info))
		return 0;
	if (info.ssi_signo == SIGCHLD)
		return reap(run, WNOHANG);
	return fail(-EINTR, "ended by signal %u", info.ssi_signo);
}

int child_await(struct lab_run *run, int fd, uint64_t wait_ns)
{
	uint64_t until = wait_ns == LAB_UNSET ? LAB_UNSET : now_ns() + wait_ns;
	struct pollfd p[] = {
		{.fd = run->signals, .events = POLLIN},
		{.fd = run->watchdog, .events = POLLIN},
		{.fd = fd, .events = POLLIN},
	};

	for (;;) {
		uint64_t now = now_ns();
		int left = -1, err;

		if (until != LAB_UNSET)
			left = until > now ? (int)((until - now) / LAB_MSEC) + 1 : 0;
		if (poll(p, ARRAY_SIZE(p), left) < 0 && errno != EINTR)
			return fail(-errno, "cannot wait: %s", strerror(errno));
		err = p[0].revents ? take_signal(run) : 0;
		if (err)
			return err;
		if (p[1].revents)
			return fail(-ETIMEDOUT, "not done after %llu ms: give a longer --timeout",
				    (unsigned long long)(run->plan.opt.timeout_ns / LAB_MSEC));
		if (p[2].revents)
			return 1;
		if (until != LAB_UNSET && now_ns() >= until)
			return 0;
	}
}

static int fill(struct lab_run *run, enum lab_side side)
{
	struct lab_child *child = &run->child[side];
	ssize_t n;
	int err;

	if (child->taken)
		memmove(child->buf, child->buf + child->taken, child->len - child->taken);
	child->len -= child->taken;
	child->taken = 0;
	if (child->room - child->len < 65536) {
		size_t room = 2 * child->room + 65536;
		char *buf = realloc(child->buf, room);

		if (!buf)
			return fail(-ENOMEM, "no memory for the %s's report", side_name[side]);
		child->buf = buf;
		child->room = room;
	}
	err = child_await(run, child->channel, LAB_UNSET);
	if (err < 0)
		return err;
	n = read(child->channel, child->buf + child->len, child->room - child->len);
	if (n > 0) {
		child->len += (size_t)n;
		return 0;
	}
	/* Its exit status, which says more, is on its way. */
	err = child_await(run, -1, LAB_SEC);
	return err ? err : fail(-EPIPE, "the %s went away", side_name[side]);
}

int child_line(struct lab_run *run, enum lab_side side, char **line)
{
	struct lab_child *child = &run->child[side];
	size_t seen = 0;

	for (;;) {
		size_t have = child->len - child->taken;
		char *start = child->buf + child->taken;
		char *end = have > seen ? memchr(start + seen, '\n', have - seen) : NULL;
		int err;

		if (end) {
			*end = 0;
			*line = start;
			child->taken = (size_t)(end + 1 - child->buf);
			return 0;
		}
		seen = have;
		err = fill(run, side);
		if (err)
			return err;
	}
}

int child_await_exits(struct lab_run *run)
{
	return reap(run, 0);
}

void child_end_all(struct lab_run *run)
{
	/* We end all before we wait for any, so that none complains about a peer that is gone. */
	for (size_t i = 0; i < LAB_SIDES; i++) {
		if (run->child[i].pid > 0)
			kill(run->child[i].pid, SIGKILL);
	}
	/* A worker dies with its parent and then is ours: see PR_SET_CHILD_SUBREAPER. */
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	for (size_t i = 0; i < LAB_SIDES; i++) {
		json_object_put(run->child[i].who);
		json_object_put(run->child[i].connections);
		json_object_put(run->child[i].report);
		free(run->child[i].buf);
	}
}
