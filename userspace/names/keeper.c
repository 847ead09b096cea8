// SPDX-License-Identifier: GPL-2.0
#include "names/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "names/wire.h"
#include "names/worker.h"
#include "privileges/privileges.h"
#include "privileges/refusals.h"

const struct nt_keeper_privilege nt_keeper_privileges[] = {
	/* ptrace_may_access(): /proc/PID/maps, map_files and root */
	{CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "frames of other users' programs stay addresses"},
	/* inode_permission() */
	{CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH",
	 "frames of programs that only others may read have no names"},
	/* proc_map_files_get_link(); before 5.9 CAP_SYS_ADMIN */
	{CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE",
	 "frames of programs whose file was deleted or replaced have no names"},
};

/* The keeper has no other descriptors but this one and /dev/null. */
#define TRACER 3

/*
 * How long the keeper, once the tracer has closed its end, waits for a worker that it killed. It
 * leaves a worker to init that is in a call which cannot be interrupted.
 */
#define FAREWELL_MS 50

struct worker {
	pid_t pid;  /* 0: no worker runs */
	int ended;  /* a pidfd; readable once the worker has ended */
	int answer; /* the keeper's end of its socket */
	uint64_t number, owner, until_ns;
	bool answered; /* the tracer has its answer, but the process has not ended yet */
};

struct state {
	struct nt_worker_setup setup;
	struct worker workers[NT_KEEPER_WORKERS];
	struct nt_names_request request;
	uint8_t reply[NT_NAMES_REPLY_BYTES];
};

/* ---- to the tracer ---- */

static void answer(const void *bytes, size_t length)
{
	/* there is room, since each request gets one reply; or the tracer is gone */
	if (send(TRACER, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EPIPE)
		_exit(0);
}

static void answer_why(uint64_t number, enum nt_unnamed why)
{
	const struct nt_names_reply head = {.number = number, .why = why};

	answer(&head, sizeof(head));
}

/* ---- workers ---- */

static void begin(struct state *s, struct worker *w)
{
	pid_t keeper = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
		answer_why(s->request.number, NT_UNNAMED_LIMIT);
		return;
	}
	w->pid = fork();
	if (!w->pid) {
		/* the worker ends with the keeper, however that ends */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != keeper)
			_exit(1);
		close(TRACER);
		close(ends[0]);
		for (size_t i = 0; i < NT_KEEPER_WORKERS; i++)
			if (&s->workers[i] != w && s->workers[i].pid) {
				close(s->workers[i].answer);
				close(s->workers[i].ended);
			}
		nt_worker_run(&s->setup, &s->request, ends[1]);
	}
	close(ends[1]);
	w->answer = ends[0];
	w->ended = w->pid > 0 ? (int)syscall(SYS_pidfd_open, w->pid, 0) : -1;
	w->number = s->request.number;
	w->owner = s->request.owner;
	w->until_ns = nt_now_ns() + NT_KEEPER_DEADLINE_NS;
	w->answered = false;
	if (w->ended >= 0)
		return;
	if (w->pid > 0) {
		kill(w->pid, SIGKILL);
		waitpid(w->pid, NULL, 0);
	}
	w->pid = 0;
	close(w->answer);
	answer_why(s->request.number, NT_UNNAMED_LIMIT);
}

/* A worker in a call that cannot be interrupted keeps its place, and its owner waits. */
static void asked(struct state *s)
{
	struct worker *free_one = NULL;

	for (size_t i = 0; i < NT_KEEPER_WORKERS; i++) {
		struct worker *w = &s->workers[i];

		if (w->pid && w->owner == s->request.owner) {
			free_one = NULL;
			break;
		}
		if (!w->pid)
			free_one = w;
	}
	if (free_one)
		begin(s, free_one);
	else
		answer_why(s->request.number, NT_UNNAMED_BUSY);
}

/* Passes on the reply of a worker that has ended, unread: the tracer decodes it. */
static void pass_on(struct state *s, struct worker *w, int status, uint64_t cpu_ns)
{
	ssize_t n = recv(w->answer, s->reply, sizeof(s->reply), MSG_DONTWAIT | MSG_TRUNC);
	struct nt_names_reply *head = (struct nt_names_reply *)s->reply;

	if (n >= (ssize_t)sizeof(*head) && n <= (ssize_t)sizeof(s->reply) && WIFEXITED(status)) {
		head->number = w->number;
		head->cpu_ns = cpu_ns;
		answer(s->reply, n);
	} else {
		bool cpu = WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU;

		answer_why(w->number, cpu ? NT_UNNAMED_LIMIT : NT_UNNAMED_DIED);
	}
}

static void ended(struct state *s, struct worker *w)
{
	struct rusage used;
	int status;

	if (wait4(w->pid, &status, WNOHANG, &used) != w->pid)
		return;
	if (!w->answered)
		pass_on(s, w, status,
			(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * NT_SECOND_NS +
				(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000);
	close(w->answer);
	close(w->ended);
	w->pid = 0;
}

static void end_late_ones(struct state *s)
{
	uint64_t now = nt_now_ns();

	for (size_t i = 0; i < NT_KEEPER_WORKERS; i++) {
		struct worker *w = &s->workers[i];

		if (!w->pid || w->answered || now < w->until_ns)
			continue;
		kill(w->pid, SIGKILL);
		answer_why(w->number, NT_UNNAMED_DEADLINE);
		w->answered = true;
	}
}

/* Returns the ms until the next worker is late, for poll(). */
static int patience(const struct state *s)
{
	uint64_t now = nt_now_ns(), left = UINT64_MAX;

	for (size_t i = 0; i < NT_KEEPER_WORKERS; i++) {
		const struct worker *w = &s->workers[i];

		if (w->pid && !w->answered) {
			uint64_t ns = w->until_ns > now ? w->until_ns - now : 0;

			left = ns < left ? ns : left;
		}
	}
	return left == UINT64_MAX ? -1 : (int)(left / 1000000) + 1;
}

/* The tracer is gone. The keeper ends, and leaves no process behind. */
static void end(struct state *s)
{
	for (size_t i = 0; i < NT_KEEPER_WORKERS; i++) {
		struct worker *w = &s->workers[i];
		struct pollfd fd = {.fd = w->ended, .events = POLLIN};

		if (!w->pid)
			continue;
		kill(w->pid, SIGKILL);
		if (poll(&fd, 1, FAREWELL_MS) > 0)
			waitpid(w->pid, NULL, WNOHANG);
	}
	_exit(0);
}

static void take_request(struct state *s)
{
	ssize_t n = recv(TRACER, &s->request, sizeof(s->request), MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof(s->request))
		end(s);
	if (s->request.n > NT_STACK_DEPTH || s->request.dump.size > NT_STACK_BYTES)
		answer_why(s->request.number, NT_UNNAMED_LIMIT);
	else
		asked(s);
}

static void run(struct state *s)
{
	struct pollfd fds[1 + NT_KEEPER_WORKERS];

	for (;;) {
		fds[0] = (struct pollfd){.fd = TRACER, .events = POLLIN};
		for (size_t i = 0; i < NT_KEEPER_WORKERS; i++)
			fds[1 + i] = (struct pollfd){
				.fd = s->workers[i].pid ? s->workers[i].ended : -1,
				.events = POLLIN,
			};
		if (poll(fds, 1 + NT_KEEPER_WORKERS, patience(s)) < 0 && errno != EINTR)
			end(s);
		for (size_t i = 0; i < NT_KEEPER_WORKERS; i++)
			if (fds[1 + i].revents)
				ended(s, &s->workers[i]);
		end_late_ones(s);
		if (fds[0].revents)
			take_request(s);
	}
}

/* ---- the start ---- */

/* The keeper leaves the tracer's terminal, and holds none of its descriptors open. */
static void leave_the_tracer(int fd)
{
	/* these go above the places that the keeper's own descriptors take */
	int nowhere = open("/dev/null", O_RDWR), high = fcntl(nowhere, F_DUPFD, TRACER + 1);
	sigset_t all;

	fd = fcntl(fd, F_DUPFD, TRACER + 1);
	setsid();
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	signal(SIGCHLD, SIG_DFL);
	for (int i = 0; i < TRACER; i++)
		if (dup2(high, i) < 0)
			close(i);
	if (dup2(fd, TRACER) < 0)
		_exit(1);
	/*
	 * a service manager's filter may not know close_range(): then close those descriptors that
	 * can exist so early
	 */
	if (close_range(TRACER + 1, ~0U, 0))
		for (int i = TRACER + 1; i < 1024; i++)
			close(i);
}

/* The workers inherit all restrictions of the keeper. */
static void confine(void)
{
	/* the keeper kills workers; they open files within a root, and drop capabilities */
	static const char *const but[] = {"kill", "openat2", "capset", NULL};
	static const struct rlimit no_core;
	cap_value_t keep[NT_KEEPER_PRIVILEGES];

	for (size_t i = 0; i < NT_KEEPER_PRIVILEGES; i++)
		keep[i] = nt_keeper_privileges[i].cap;
	/* RLIMIT_CORE does not stop a program that collects cores; this does */
	prctl(PR_SET_DUMPABLE, 0);
	setrlimit(RLIMIT_CORE, &no_core);
	if (nt_privileges_drop(keep, NT_KEEPER_PRIVILEGES, NULL, 0, NULL, NULL, 0))
		_exit(1);
	nt_refuse_system_calls(but, false); /* the tracer reports it if that fails */
}

static void live(int fd, pid_t tracer) __attribute__((noreturn));

static void live(int fd, pid_t tracer)
{
	struct state *s = calloc(1, sizeof(*s));

	prctl(PR_SET_NAME, "nagletrace-keep");
	leave_the_tracer(fd);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!s || getppid() != tracer)
		_exit(1);
	nt_worker_set_up(&s->setup);
	confine();
	run(s);
	_exit(0);
}

int nt_keeper_start(struct nt_keeper *keeper, void *secret, size_t size)
{
	pid_t tracer = getpid();
	int ends[2], err = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	keeper->pid = fork();
	if (!keeper->pid) {
		explicit_bzero(secret, size);
		live(ends[1], tracer);
	}
	if (keeper->pid < 0)
		err = -errno;
	close(ends[1]);
	keeper->fd = ends[0];
	if (err)
		close(ends[0]);
	return err;
}
