// SPDX-License-Identifier: GPL-2.0
/* The parent: starts both ends, gives the orders, prints the lines, and leaves nothing behind. */
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab.h"

struct lab_child {
	pid_t pid;
	int channel;
	/* What was read of the channel and is not yet a line taken. */
	char *buf;
	size_t len;
	size_t room;
	size_t taken;
	struct json_object *who;
	struct json_object *connections;
	struct json_object *report;
	uint32_t port;
	uint32_t mss;
};

struct lab_run {
	struct lab_plan plan;
	struct lab_child child[LAB_SIDES];
	int signals;
	int watchdog;
};

static const char *const process_name[LAB_SIDES] = {"lab-client", "lab-server"};
static const char *const side_name[LAB_SIDES] = {"client", "server"};

int fail(int err, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* One write: both ends may fail at once. */
	dprintf(STDERR_FILENO, "nagle-lab: %s\n", line);
	return err;
}

static int start_child(struct lab_run *run, enum lab_side side, const sigset_t *mask)
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
	err = end_be_child(parent, process_name[side]);
	if (!err)
		err = end_run(&run->plan, side, pair[1]);
	close(pair[1]);
	exit(err ? 1 : 0);
}

/* An end that failed has said why itself; one that was killed could not. */
static int reap(struct lab_run *run)
{
	int err = 0;

	for (size_t i = 0; i < LAB_SIDES; i++) {
		struct lab_child *child = &run->child[i];
		int status;

		if (child->pid <= 0 || waitpid(child->pid, &status, WNOHANG) != child->pid)
			continue;
		if (WIFSIGNALED(status))
			err = fail(-EINTR, "%s %d was ended by signal %d", process_name[i],
				   child->pid, WTERMSIG(status));
		else if (WEXITSTATUS(status))
			err = -EIO;
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
		return reap(run);
	return fail(-EINTR, "ended by signal %u", info.ssi_signo);
}

/* Waits for fd (-1: for nothing) while the run may go on: 1 ready, 0 after wait_ns, -errno. */
static int await(struct lab_run *run, int fd, uint64_t wait_ns)
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
	err = await(run, child->channel, LAB_UNSET);
	if (err < 0)
		return err;
	n = read(child->channel, child->buf + child->len, child->room - child->len);
	if (n > 0) {
		child->len += (size_t)n;
		return 0;
	}
	/* Its exit status, which says more, is on its way. */
	err = await(run, -1, LAB_SEC);
	return err ? err : fail(-EPIPE, "the %s went away", side_name[side]);
}

/* The next line of a child, ended by 0; valid until the next call. */
static int next_line(struct lab_run *run, enum lab_side side, char **line)
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

static int print_line(const char *line)
{
	if (puts(line) < 0 || fflush(stdout))
		return fail(-EPIPE, "cannot write to stdout: %s", strerror(errno));
	return 0;
}

static int print_json(struct json_object *o)
{
	int err = print_line(json_object_to_json_string_ext(
		o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));

	json_object_put(o);
	return err;
}

static struct json_object *get(struct json_object *o, const char *key)
{
	struct json_object *value = json_object_object_get(o, key);

	return value ? json_object_get(value) : NULL;
}

static void keep(struct json_object **at, struct json_object *value)
{
	if (!value)
		return;
	json_object_put(*at);
	*at = value;
}

/* Takes an end's answer to an order and keeps what it tells. */
static int take_answer(struct lab_run *run, enum lab_side side)
{
	struct lab_child *child = &run->child[side];
	struct json_object *o, *rounds, *pids;
	char *line;
	int err = next_line(run, side, &line);

	if (err)
		return err;
	o = json_tokener_parse(line);
	if (!o)
		return fail(-EPROTO, "the %s said '%.60s'", side_name[side], line);
	keep(&child->who, get(o, "who"));
	keep(&child->connections, get(o, "connections"));
	pids = get(o, "pids");
	if (pids)
		json_object_object_add(child->who, "pids", pids);
	if (json_object_object_get_ex(o, "port", NULL))
		child->port = (uint32_t)json_object_get_int(json_object_object_get(o, "port"));
	if (json_object_object_get_ex(o, "mss", NULL))
		child->mss = (uint32_t)json_object_get_int(json_object_object_get(o, "mss"));
	rounds = get(o, "rounds");
	keep(&child->report, rounds);
	json_object_put(o);
	return 0;
}

static int give_order(struct lab_run *run, enum lab_side side, enum lab_order_kind kind)
{
	struct lab_order order = {
		.kind = kind,
		.peer_pid = (uint32_t)run->child[!side].pid,
		.port = run->child[LAB_SERVER].port,
		.mss = run->child[LAB_SERVER].mss,
	};

	if (send(run->child[side].channel, &order, sizeof(order), MSG_NOSIGNAL) == sizeof(order))
		return 0;
	/* It has ended; waiting for its answer finds out how. */
	return 0;
}

static int order(struct lab_run *run, enum lab_side side, enum lab_order_kind kind)
{
	int err = give_order(run, side, kind);

	return err ? err : take_answer(run, side);
}

static int connect_both(struct lab_run *run)
{
	int err;

	err = give_order(run, LAB_SERVER, ORDER_CONNECT);
	if (!err)
		err = order(run, LAB_CLIENT, ORDER_CONNECT);
	if (!err)
		err = take_answer(run, LAB_SERVER);
	if (err)
		return err;
	/* On the host's own loopback somebody else might have met the port. */
	if (!json_object_equal(run->child[LAB_CLIENT].connections,
			       run->child[LAB_SERVER].connections))
		return fail(-EPROTO, "a stranger connected to the server: try again");
	return 0;
}

static void head(struct lab_run *run, struct json_object *o, const char *type)
{
	json_object_object_add(o, "type", json_object_new_string(type));
	json_object_object_add(o, "scenario",
			       json_object_new_string(run->plan.scenario->name));
}

static int print_ready(struct lab_run *run)
{
	const struct lab_options *opt = &run->plan.opt;
	struct json_object *o = json_object_new_object();
	const char *over = opt->over_veth ? "veth" : "loopback";

	head(run, o, "ready");
	json_object_object_add(o, "family", json_object_new_int((int)opt->family));
	json_object_object_add(o, "over", json_object_new_string(over));
	json_object_object_add(o, "seed", json_object_new_int64((int64_t)opt->seed));
	for (size_t i = 0; i < LAB_SIDES; i++)
		json_object_object_add(o, side_name[i], json_object_get(run->child[i].who));
	if (run->child[LAB_CLIENT].connections)
		json_object_object_add(o, "connections",
				       json_object_get(run->child[LAB_CLIENT].connections));
	return print_json(o);
}

static int await_newline(struct lab_run *run)
{
	for (;;) {
		int err = await(run, STDIN_FILENO, LAB_UNSET);
		char c;

		if (err < 0)
			return err;
		if (read(STDIN_FILENO, &c, 1) != 1)
			return fail(-ECANCELED, "stdin ended before the newline that --wait "
						"waits for");
		if (c == '\n')
			return 0;
	}
}

static int start_both(struct lab_run *run, const sigset_t *mask)
{
	int err = 0;

	if (run->plan.opt.own_netns) {
		err = net_own_namespace();
		if (!err)
			err = net_loopback_up(&run->plan);
	}
	for (size_t i = 0; i < LAB_SIDES && !err; i++)
		err = start_child(run, (enum lab_side)i, mask);
	for (size_t i = 0; i < LAB_SIDES && !err; i++)
		err = take_answer(run, (enum lab_side)i);
	/* The client makes the veth pair, so its end comes first. */
	for (size_t i = 0; i < LAB_SIDES && !err; i++)
		err = order(run, (enum lab_side)i, ORDER_NETWORK);
	return err;
}

static int play_both(struct lab_run *run)
{
	/* The server reads before the client writes. */
	int err = order(run, LAB_SERVER, ORDER_PLAY);

	if (!err)
		err = order(run, LAB_CLIENT, ORDER_PLAY);
	if (!err)
		err = take_answer(run, LAB_CLIENT);
	if (!err)
		err = take_answer(run, LAB_SERVER);
	if (!err && run->plan.opt.linger_ns)
		err = await(run, -1, run->plan.opt.linger_ns);
	return err;
}

static bool is_event(const char *line)
{
	return !strncmp(line, "{\"type\":\"event\"", 15);
}

/* Events pass through as they are: parsing them would cost more than making them. */
static int take_report(struct lab_run *run, enum lab_side side)
{
	struct lab_child *child = &run->child[side];
	char *line;
	int err;

	for (;;) {
		err = next_line(run, side, &line);
		if (err)
			return err;
		if (!is_event(line))
			break;
		err = print_line(line);
		if (err)
			return err;
	}
	keep(&child->report, json_tokener_parse(line));
	return child->report ? 0 : fail(-EPROTO, "the %s's report is no JSON", side_name[side]);
}

static int finish_both(struct lab_run *run)
{
	struct json_object *o;
	int err = 0;

	/* Both read their counters now, before either closes. */
	for (size_t i = 0; i < LAB_SIDES && !err; i++)
		err = give_order(run, (enum lab_side)i, ORDER_FINISH);
	for (size_t i = 0; i < LAB_SIDES && !err; i++)
		err = take_report(run, (enum lab_side)i);
	if (err)
		return err;
	o = json_object_new_object();
	head(run, o, "result");
	json_object_object_add(o, "rounds", get(run->child[LAB_CLIENT].report, "rounds"));
	for (size_t i = 0; i < LAB_SIDES; i++)
		json_object_object_add(o, side_name[i], get(run->child[i].report, "who"));
	return print_json(o);
}

static int conduct(struct lab_run *run, const sigset_t *mask)
{
	const struct lab_options *opt = &run->plan.opt;
	int err = start_both(run, mask);

	if (!err && !opt->late_connect)
		err = connect_both(run);
	if (!err)
		err = print_ready(run);
	if (!err && opt->wait)
		err = await_newline(run);
	if (!err && opt->late_connect)
		err = connect_both(run);
	if (!err)
		err = play_both(run);
	return err ? err : finish_both(run);
}

/* Signals are taken in the loop, so that none can leave a child behind. */
static int prepare(struct lab_run *run, sigset_t *mask)
{
	uint64_t ns = run->plan.opt.timeout_ns;
	struct itimerspec at = {
		.it_value = {(time_t)(ns / LAB_SEC), (long)(ns % LAB_SEC)}};
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, mask);
	run->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	run->watchdog = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	if (run->signals < 0 || run->watchdog < 0 || timerfd_settime(run->watchdog, 0, &at, NULL))
		return fail(-errno, "cannot prepare signals and the watchdog: %s",
			    strerror(errno));
	return 0;
}

static void clean_up(struct lab_run *run, bool failed)
{
	for (size_t i = 0; i < LAB_SIDES; i++) {
		struct lab_child *child = &run->child[i];

		if (child->pid > 0 && failed)
			kill(child->pid, SIGKILL);
		if (child->pid > 0)
			waitpid(child->pid, NULL, 0);
		json_object_put(child->who);
		json_object_put(child->connections);
		json_object_put(child->report);
		free(child->buf);
	}
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
	clean_up(&run, err);
	return err ? 1 : 0;
}
