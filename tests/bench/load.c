// SPDX-License-Identifier: GPL-2.0
/*
 * The load of the benchmarks, over loopback:
 *   load MODE SECONDS [CONNECTIONS [PORT [WARM-UP]]]
 * MODE: pingpong, server, think, bulk, in-step, churn, stall or blocked.
 * A server and a client, each a process; both run where the caller's affinity lets them. `in-step`
 * is bulk by a single process, which reads what it wrote before it writes again. `think` rests
 * after each two requests of a connection, so that the ACK of the last reply goes late and alone,
 * and nobody waits for it. Prints as JSON how many operations (round trips, requests, bytes,
 * connections) there were, how long they took, and how many replies took as long as a delayed ACK.
 * With more than one connection it says "connected" on stderr when all stand, and begins when a
 * line comes on stdin. `blocked` then writes on each what does not fit its reader's window, and
 * leaves it so for the time given. With WARM-UP, in seconds, the load runs for so long before it
 * counts: what only begins costs more.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EVENTS  256
#define REQUEST 64 /* bytes, as the next */
#define REPLY   200
#define CHUNK   65536

/* From each address of loopback so many connections to the server's port fit a range of ports. */
#define PER_ADDRESS 20000
#define STALLED_NS  30000000ULL
#define THINK_NS    60000000ULL
#define DESCRIPTORS 262144

struct mode {
	const char *name;
	int connections; /* by default */
	int request, reply;
	bool in_parts; /* the request is written in two, so that it stalls */
	bool reconnect;
};

static const struct mode modes[] = {
	{"pingpong", 1, 1, 1, false, false},          {"server", 100, REQUEST, REPLY, false, false},
	{"bulk", 1, CHUNK, 0, false, false},          {"churn", 1, REQUEST, REPLY, false, true},
	{"stall", 1000, REQUEST, REPLY, true, false}, {"blocked", 1000, CHUNK, 0, false, false},
	{"in-step", 1, CHUNK, 0, false, false},       {"think", 100, REQUEST, REPLY, false, false},
};

static char buffer[CHUNK];
static in_port_t port = 7000;

static void die(const char *what)
{
	fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int listen_here(bool blocked)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	at.sin_addr.s_addr = htonl(INADDR_ANY);
	if (blocked) /* as little as there is, to be inherited */
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 4096))
		die("cannot listen");
	return fd;
}

static int connect_there(int i)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (in_addr_t)(i / PER_ADDRESS));
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		die("cannot connect");
	return fd;
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		die("cannot watch a socket");
}

/* Bytes of the request that each connection has not yet sent, by descriptor. */
static int missing[DESCRIPTORS];
static uint64_t asked_ns[DESCRIPTORS];
static uint64_t stalled;

static void serve_one(int epoll, const struct mode *mode, int fd)
{
	ssize_t n = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);

	if (n <= 0) {
		if (n < 0 && errno == EAGAIN)
			return;
		epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
		close(fd);
		return;
	}
	if (!mode->reply)
		return;
	missing[fd] -= (int)n;
	if (missing[fd] > 0)
		return;
	missing[fd] = mode->request;
	if (send(fd, buffer, (size_t)mode->reply, MSG_NOSIGNAL) < 0 && errno != EPIPE &&
	    errno != ECONNRESET)
		die("cannot reply");
}

static void serve(const struct mode *mode, int listener, bool blocked)
{
	int epoll = epoll_create1(0);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	watch(epoll, listener);
	for (;;) {
		struct epoll_event events[EVENTS];
		int n = epoll_wait(epoll, events, EVENTS, -1);

		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;

			if (fd != listener) {
				serve_one(epoll, mode, fd);
				continue;
			}
			fd = accept(listener, NULL, NULL);
			if (fd < 0)
				die("cannot accept");
			missing[fd] = mode->request;
			if (!blocked)
				watch(epoll, fd);
		}
	}
}

static void request(const struct mode *mode, int fd)
{
	size_t first = mode->in_parts ? (size_t)mode->request / 2 : (size_t)mode->request;

	if (send(fd, buffer, first, MSG_NOSIGNAL) != (ssize_t)first)
		die("cannot send");
	if (mode->in_parts && send(fd, buffer, (size_t)mode->request - first, MSG_NOSIGNAL) < 0)
		die("cannot send the rest");
}

static void take_reply(const struct mode *mode, int fd)
{
	int got = 0;

	while (got < mode->reply) {
		ssize_t n = recv(fd, buffer, (size_t)(mode->reply - got), 0);

		if (n <= 0)
			die("no reply");
		got += (int)n;
	}
}

static uint64_t run_bulk(uint64_t until)
{
	int fd = connect_there(0);
	uint64_t bytes = 0;

	while (now_ns() < until) {
		ssize_t n = send(fd, buffer, CHUNK, MSG_NOSIGNAL);

		if (n < 0)
			die("cannot send");
		bytes += (uint64_t)n;
	}
	return bytes;
}

static uint64_t run_in_step(int listener, uint64_t until)
{
	int from = connect_there(0), to = accept(listener, NULL, NULL);
	uint64_t bytes = 0;

	if (to < 0)
		die("cannot accept");
	while (now_ns() < until) {
		ssize_t sent = send(from, buffer, CHUNK, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0)
			die("cannot send");
		bytes += (uint64_t)sent;
		while (sent > 0) {
			ssize_t n = recv(to, buffer, (size_t)sent, 0);

			if (n <= 0)
				die("cannot read");
			sent -= n;
		}
	}
	return bytes;
}

static uint64_t run_churn(const struct mode *mode, uint64_t until)
{
	const struct linger at_once = {.l_onoff = 1};
	uint64_t connections = 0;

	while (now_ns() < until) {
		int fd = connect_there(0);

		/* a reset leaves no TIME_WAIT behind */
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
		request(mode, fd);
		take_reply(mode, fd);
		close(fd);
		connections++;
	}
	return connections;
}

static uint64_t run_one(const struct mode *mode, uint64_t until)
{
	int fd = connect_there(0);
	uint64_t rounds = 0;

	while (rounds % 64 || now_ns() < until) {
		request(mode, fd);
		take_reply(mode, fd);
		rounds++;
	}
	return rounds;
}

static void ask(const struct mode *mode, int fd)
{
	asked_ns[fd] = now_ns();
	request(mode, fd);
}

static int connected[DESCRIPTORS];

/* So many connections; returns when the word to begin came. */
static void connect_all(int connections)
{
	for (int i = 0; i < connections; i++)
		connected[i] = connect_there(i);
	fprintf(stderr, "connected\n");
	while (getchar() != '\n' && !feof(stdin))
		;
}

static uint64_t run_many(const struct mode *mode, int connections, uint64_t until)
{
	int epoll = epoll_create1(0);
	uint64_t replies = 0;
	int asked = connections;

	for (int i = 0; i < connections; i++) {
		watch(epoll, connected[i]);
		ask(mode, connected[i]);
	}
	while (asked) { /* when the time is over, until all have their reply */
		struct epoll_event events[EVENTS];
		int n = epoll_wait(epoll, events, EVENTS, 10000);
		bool over = now_ns() >= until;

		if (n <= 0)
			die("no reply");

		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;

			take_reply(mode, fd);
			stalled += now_ns() - asked_ns[fd] >= STALLED_NS;
			replies++;
			asked -= over;
			if (!over)
				ask(mode, fd);
		}
	}
	close(epoll);
	return replies;
}

static void rest_for(uint64_t span_ns)
{
	const struct timespec span = {.tv_sec = (time_t)(span_ns / 1000000000),
				      .tv_nsec = (long)(span_ns % 1000000000)};

	nanosleep(&span, NULL);
}

/* Who asks again at once is taken for interactive, and only then its kernel delays an ACK. */
static uint64_t run_thinking(const struct mode *mode, int connections, uint64_t until)
{
	uint64_t replies = 0;

	for (; now_ns() < until; rest_for(THINK_NS))
		for (int i = 0; i < 2 * connections; i++, replies++) {
			request(mode, connected[i / 2]);
			take_reply(mode, connected[i / 2]);
		}
	return replies;
}

/* Each connection's reader does not read: what is written beyond its window is held. */
static uint64_t run_blocked(int connections, uint64_t span_ns)
{
	const int least = 1;

	for (int i = 0; i < connections; i++) {
		setsockopt(connected[i], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
		while (send(connected[i], buffer, CHUNK, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
			;
	}
	rest_for(span_ns);
	return (uint64_t)connections;
}

/* Runs for the time given. Returns how many operations that were. */
static uint64_t run(const struct mode *mode, int connections, int listener, uint64_t span_ns)
{
	uint64_t until = now_ns() + span_ns;

	if (!strcmp(mode->name, "blocked"))
		return run_blocked(connections, span_ns);
	if (!strcmp(mode->name, "think"))
		return run_thinking(mode, connections, until);
	if (!strcmp(mode->name, "in-step"))
		return run_in_step(listener, until);
	if (!mode->reply)
		return run_bulk(until);
	if (mode->reconnect)
		return run_churn(mode, until);
	return connections == 1 ? run_one(mode, until) : run_many(mode, connections, until);
}

static void allow_descriptors(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
	const struct mode *mode = NULL;
	uint64_t began, operations;
	int connections, listener;
	double seconds, warm_up;
	pid_t server = -1;

	for (size_t i = 0; argc >= 3 && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (!strcmp(argv[1], modes[i].name))
			mode = &modes[i];
	if (!mode) {
		fprintf(stderr,
			"usage: load pingpong|server|think|bulk|in-step|churn|stall|blocked SECONDS "
			"[CONNECTIONS [PORT [WARM-UP]]]\n");
		return 2;
	}
	seconds = atof(argv[2]);
	warm_up = argc > 5 ? atof(argv[5]) : 0;
	connections = argc > 3 && strcmp(argv[3], "0") ? atoi(argv[3]) : mode->connections;
	allow_descriptors();
	if (connections < 1 || connections > DESCRIPTORS - 100) {
		fprintf(stderr, "load: %s connections: give 1 to %d\n", argv[3], DESCRIPTORS - 100);
		return 2;
	}
	if (argc > 4)
		port = (in_port_t)atoi(argv[4]);
	listener = listen_here(!strcmp(mode->name, "blocked"));
	if (strcmp(mode->name, "in-step")) {
		server = fork();
		if (server < 0)
			die("cannot fork");
		if (!server)
			serve(mode, listener, !strcmp(mode->name, "blocked"));
		close(listener);
	}
	if (connections > 1)
		connect_all(connections);
	if (warm_up > 0)
		run(mode, connections, listener, (uint64_t)(warm_up * 1e9));
	stalled = 0;
	began = now_ns();
	operations = run(mode, connections, listener, (uint64_t)(seconds * 1e9));
	printf("{\"mode\":\"%s\",\"connections\":%d,\"operations\":%llu,\"stalled\":%llu,"
	       "\"seconds\":%.6f}\n",
	       mode->name, connections, (unsigned long long)operations, (unsigned long long)stalled,
	       (double)(now_ns() - began) / 1e9);
	if (server > 0) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
	}
	return 0;
}
