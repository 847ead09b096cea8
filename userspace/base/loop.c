// SPDX-License-Identifier: GPL-2.0
#include "base/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/streams.h"

/* The most ready descriptors that a turn serves; the others have the next turn. */
#define MOST_READY 32

enum kind {
	DESCRIPTOR,
	TIMER,
	SIGNALS,
};

struct source {
	struct source *next;
	enum kind kind;
	int fd;
	uint64_t place; /* in the order in which they were added */
	bool forgotten;
	nt_loop_call *call;
	void *context;
};

struct nt_loop {
	int epoll;
	int patience; /* a timer that ends a turn, at patience_ns */
	uint64_t patience_ns;
	uint64_t places;
	struct source *sources;
	struct source *forgotten; /* the turn that runs may still have one of them before it */
	bool stopped;
};

int nt_timer_set(int timer, uint64_t at_ns, uint64_t each_ns)
{
	struct itimerspec when = {};

	if (at_ns != NT_NEVER) {
		at_ns = at_ns ? at_ns : 1; /* 0 would switch the timer off */
		when.it_value = (struct timespec){.tv_sec = at_ns / NT_SECOND_NS,
						  .tv_nsec = at_ns % NT_SECOND_NS};
		when.it_interval = (struct timespec){.tv_sec = each_ns / NT_SECOND_NS,
						     .tv_nsec = each_ns % NT_SECOND_NS};
	}
	return timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL) ? -errno : 0;
}

static int new_timer(void)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

/* source NULL: the end of a turn's patience. */
static int add_to_epoll(struct nt_loop *loop, int fd, uint32_t events, struct source *source)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int open_loop(struct nt_loop *loop)
{
	int err;

	loop->patience_ns = NT_NEVER;
	loop->patience = new_timer();
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	err = loop->patience < 0 ? loop->patience : loop->epoll < 0 ? -errno : 0;
	return err ? err : add_to_epoll(loop, loop->patience, EPOLLIN, NULL);
}

struct nt_loop *nt_loop_new(void)
{
	struct nt_loop *loop = calloc(1, sizeof(*loop));
	int err = loop ? open_loop(loop) : -ENOMEM;

	if (!err)
		return loop;
	nt_loop_free(loop);
	nt_log("cannot wait for events: %s", strerror(-err));
	return NULL;
}

static void free_all(struct source **list)
{
	while (*list) {
		struct source *source = *list;

		*list = source->next;
		if (source->kind != DESCRIPTOR)
			close(source->fd);
		free(source);
	}
}

void nt_loop_free(struct nt_loop *loop)
{
	if (!loop)
		return;
	free_all(&loop->sources);
	free_all(&loop->forgotten);
	if (loop->patience >= 0)
		close(loop->patience);
	if (loop->epoll >= 0)
		close(loop->epoll);
	free(loop);
}

static int add(struct nt_loop *loop, enum kind kind, int fd, uint32_t events, nt_loop_call *call,
	       void *context)
{
	struct source *source = malloc(sizeof(*source));
	int err;

	if (!source)
		return -ENOMEM;
	*source = (struct source){.kind = kind,
				  .fd = fd,
				  .place = loop->places++,
				  .call = call,
				  .context = context,
				  .next = loop->sources};
	err = add_to_epoll(loop, fd, events, source);
	if (err)
		free(source);
	else
		loop->sources = source;
	return err;
}

int nt_loop_watch(struct nt_loop *loop, int fd, uint32_t events, nt_loop_call *call, void *context)
{
	return add(loop, DESCRIPTOR, fd, events, call, context);
}

void nt_loop_forget(struct nt_loop *loop, int fd)
{
	for (struct source **at = &loop->sources; *at; at = &(*at)->next) {
		struct source *source = *at;

		if (source->fd != fd || source->kind != DESCRIPTOR)
			continue;
		epoll_ctl(loop->epoll, EPOLL_CTL_DEL, fd, NULL);
		*at = source->next;
		source->forgotten = true;
		source->next = loop->forgotten;
		loop->forgotten = source;
		return;
	}
}

/* Adds a descriptor that the loop owns, and closes it if it cannot. */
static int add_own(struct nt_loop *loop, enum kind kind, int fd, nt_loop_call *call, void *context)
{
	int err = add(loop, kind, fd, EPOLLIN, call, context);

	if (err)
		close(fd);
	return err ? err : fd;
}

int nt_loop_timer(struct nt_loop *loop, uint64_t at_ns, uint64_t each_ns, nt_loop_call *call,
		  void *context)
{
	int fd = new_timer(), err;

	if (fd < 0)
		return fd;
	err = nt_timer_set(fd, at_ns, each_ns);
	if (!err)
		return add_own(loop, TIMER, fd, call, context);
	close(fd);
	return err;
}

static void end_at_once(int number)
{
	_exit(NT_EXIT_OK);
}

/*
 * The default action would not end process 1 of a container, nor would it a shell's background job,
 * whose signals are ignored. Our parent may have blocked them.
 */
void nt_loop_signals_end_at_once(void)
{
	const struct sigaction action = {.sa_handler = end_at_once};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int nt_loop_signals(struct nt_loop *loop, uint64_t ends, uint64_t others, nt_loop_call *call,
		    void *context)
{
	uint64_t set = ends | others;
	int fd, err;

	if (syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, sizeof(set)))
		return -errno;
	err = nt_streams_heed(ends);
	if (err)
		return err;
	fd = syscall(SYS_signalfd4, -1, &set, sizeof(set), SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	fd = add_own(loop, SIGNALS, fd, call, context);
	return fd < 0 ? fd : 0;
}

static void take_signals(const struct nt_loop *loop, const struct source *source)
{
	struct signalfd_siginfo info;

	while (!loop->stopped && read(source->fd, &info, sizeof(info)) == sizeof(info)) {
		nt_streams_signal(info.ssi_signo);
		source->call(source->context, info.ssi_signo);
	}
}

static void call(const struct nt_loop *loop, const struct source *source, uint32_t events)
{
	uint64_t times;

	switch (source->kind) {
	case DESCRIPTOR:
		source->call(source->context, events);
		break;
	case TIMER: /* an earlier call of this turn may have set it to another time */
		if (read(source->fd, &times, sizeof(times)) == sizeof(times))
			source->call(source->context, times < UINT32_MAX ? times : UINT32_MAX);
		break;
	case SIGNALS:
		take_signals(loop, source);
	}
}

static uint64_t place_of(const struct epoll_event *event)
{
	const struct source *source = event->data.ptr;

	return source ? source->place : UINT64_MAX;
}

/* There are few, and epoll mostly has them in order. */
static void sort(struct epoll_event *ready, int n)
{
	for (int i = 1; i < n; i++) {
		struct epoll_event event = ready[i];
		int to = i;

		for (; to && place_of(&ready[to - 1]) > place_of(&event); to--)
			ready[to] = ready[to - 1];
		ready[to] = event;
	}
}

static int set_patience(struct nt_loop *loop, uint64_t until_ns)
{
	int err;

	if (until_ns == loop->patience_ns)
		return 0;
	err = nt_timer_set(loop->patience, until_ns, 0);
	loop->patience_ns = err ? 0 : until_ns; /* 0: the next turn sets it, whatever it asks for */
	return err;
}

int nt_loop_turn(struct nt_loop *loop, uint64_t until_ns)
{
	struct epoll_event ready[MOST_READY];
	int n, err = 0;

	if (until_ns)
		err = set_patience(loop, until_ns);
	if (err)
		return err;
	n = epoll_wait(loop->epoll, ready, MOST_READY, until_ns ? -1 : 0);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	sort(ready, n);
	for (int i = 0; i < n && !loop->stopped; i++) {
		const struct source *source = ready[i].data.ptr;

		if (source && !source->forgotten)
			call(loop, source, ready[i].events);
	}
	free_all(&loop->forgotten);
	return 0;
}

int nt_loop_run(struct nt_loop *loop)
{
	int err = 0;

	while (!err && !loop->stopped)
		err = nt_loop_turn(loop, NT_NEVER);
	if (err)
		nt_log("cannot wait for events: %s", strerror(-err));
	return err;
}

void nt_loop_stop(struct nt_loop *loop)
{
	loop->stopped = true;
}

void nt_loop_end(void *loop, uint32_t what)
{
	nt_loop_stop(loop);
}

bool nt_loop_stopped(const struct nt_loop *loop)
{
	return loop->stopped;
}

int nt_loop_fd(const struct nt_loop *loop)
{
	return loop->epoll;
}
