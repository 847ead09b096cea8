// SPDX-License-Identifier: GPL-2.0
/* Ends the client's last round while data is held: by close, shutdown, reset, or its death. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab.h"

/* Returns false once the reply has begun, since nothing is held any more then. */
bool still_held(const struct lab_conn *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};

	return poll(&p, 1, (int)(LAB_HELD_NS / LAB_MSEC)) == 0;
}

static int end_by_reset(struct lab_conn *c)
{
	const struct linger at_once = {.l_onoff = 1};

	if (setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)))
		return -errno;
	return conn_close(c);
}

static int end_by_shutdown(struct lab_conn *c)
{
	uint64_t start = log_start(&c->log);
	int err = shutdown(c->fd, SHUT_WR) ? -errno : 0;

	log_add(c, &(struct lab_event){.call = CALL_SHUTDOWN,
				       .offset = c->sent,
				       .result = err,
				       .start_ns = start});
	return err;
}

/* Makes a child that holds the socket too, before the last round, since a fork may take long. */
int ending_prepare(struct lab_conn *c)
{
	if (c->end->plan->opt.ending != ENDING_KILL || c->round != c->end->plan->opt.rounds)
		return 0;
	c->victim = fork();
	if (c->victim < 0)
		return -errno;
	if (!c->victim) {
		end_be_child(getppid(), "lab-victim");
		for (;;)
			pause();
	}
	return 0;
}

/* We close, the child is killed: its death closes the socket. */
static int end_by_death(struct lab_conn *c)
{
	close(c->fd);
	c->fd = -1;
	kill(c->victim, SIGKILL);
	while (waitpid(c->victim, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

int ending_do(struct lab_conn *c, struct lab_round *r)
{
	int err;

	still_held(c);
	err = conn_take_info(c);
	if (err)
		return err;
	r->closed = true;
	switch ((enum lab_ending)c->end->plan->opt.ending) {
	case ENDING_CLOSE:
		return conn_close(c);
	case ENDING_RESET:
		return end_by_reset(c);
	case ENDING_KILL:
		return end_by_death(c);
	default:
		return end_by_shutdown(c);
	}
}
