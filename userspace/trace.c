// SPDX-License-Identifier: GPL-2.0
#include "trace.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "report.h"
#include "nagletrace.skel.h"

/* What epoll wakes for; pidfds come after these. */
enum wake {
	WAKE_SIGNAL,
	WAKE_RECORDS,
	WAKE_INTERVAL,
	WAKE_DURATION,
	WAKE_PID,
};

struct trace {
	const struct nt_options *opts;
	struct nt_targets targets;
	struct nt_tracer tracer;
	struct nt_owners owners;
	struct nt_stacks *stacks;
	struct nt_aggregate all;        /* since the start */
	struct nt_aggregate recent;     /* since the last report */
	struct nt_totals totals_before; /* at the last report */
	unsigned long long misses_before;
	uint64_t lost_told; /* losses that a line told of */
	uint64_t lost_checked_ns;
	struct ring_buffer *records;
	uint64_t started_ns, reported_ns;
	uint64_t reports;
	unsigned int pids_left;
	int epoll, signals, interval, duration;
	int out_err; /* -errno with which writing failed */
	bool heading_done, stop;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("nagletrace: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

/* Nobody reads any more: the trace ends, without a word where it is only a closed pipe. */
static void note_output(struct trace *trace, int err)
{
	if (!err || trace->out_err)
		return;
	trace->out_err = err;
	trace->stop = true;
}

static void print_stall(struct trace *trace, const struct nt_stall *stall)
{
	const struct nt_options *opts = trace->opts;

	if (opts->output == NT_OUTPUT_JSON) {
		note_output(trace, nt_json_stall(stdout, stall, trace->stacks));
		return;
	}
	if (opts->interval_ns)
		return; /* the reports tell */
	if (!trace->heading_done)
		note_output(trace, nt_text_heading(stdout, opts));
	trace->heading_done = true;
	note_output(trace, nt_text_stall(stdout, opts, stall));
}

static int on_record(void *context, void *data, size_t size)
{
	struct trace *trace = context;
	const struct nt_record *record = data;
	const struct nt_frame *frames;
	struct nt_stall stall;

	if (size < sizeof(*record) || record->size != sizeof(*record))
		return 0;
	if (!nt_stall_from_record(&stall, record, trace->opts, &trace->targets, &trace->owners))
		return 0;
	/* a stack is named while its process is there, for the report that comes after its end too
	 */
	if (trace->stacks)
		nt_stacks_get(trace->stacks, record, &frames);
	if (stall.is_stall) {
		nt_aggregate_add(&trace->all, &stall);
		if (trace->opts->interval_ns)
			nt_aggregate_add(&trace->recent, &stall);
	}
	print_stall(trace, &stall);
	return 0;
}

static void subtract(struct nt_totals *totals, const struct nt_totals *before)
{
	const size_t words = sizeof(*totals) / sizeof(__u64);

	for (size_t i = 0; i < words; i++)
		((__u64 *)totals)[i] -= ((const __u64 *)before)[i];
}

/* A report of the time since the last one, or, closing, since the start. */
static void write_report(struct trace *trace, bool closing)
{
	uint64_t now = now_ns();
	struct nt_report report = {
		.tracer = &trace->tracer,
		.opts = trace->opts,
		.stalls = closing ? &trace->all : &trace->recent,
		.stacks = trace->stacks,
		.span_ns = now - (closing ? trace->started_ns : trace->reported_ns),
		.closing = closing,
	};
	struct nt_totals totals;

	if (nt_tracer_totals(&trace->tracer, &totals))
		memset(&totals, 0, sizeof(totals));
	report.totals = totals;
	report.recursion_misses = nt_tracer_recursion_misses(&trace->tracer);
	if (!closing) {
		unsigned long long misses = report.recursion_misses;

		subtract(&report.totals, &trace->totals_before);
		report.recursion_misses -= trace->misses_before;
		trace->totals_before = totals;
		trace->misses_before = misses;
		trace->reported_ns = now;
	}
	if (trace->opts->output == NT_OUTPUT_JSON)
		note_output(trace, nt_json_report(stdout, &report));
	else
		note_output(trace, nt_text_report(stdout, &report));
	if (!closing)
		nt_aggregate_clear(&trace->recent);
	malloc_trim(0);
}

/* With records under way, at most once a second: has any been lost? */
static void tell_losses(struct trace *trace)
{
	struct nt_report report = {};
	uint64_t now = now_ns(), lost;

	if (now < trace->lost_checked_ns + 1000000000ULL)
		return;
	trace->lost_checked_ns = now;
	if (nt_tracer_totals(&trace->tracer, &report.totals))
		return;
	report.recursion_misses = nt_tracer_recursion_misses(&trace->tracer);
	lost = nt_report_lost(&report);
	if (lost == trace->lost_told)
		return;
	trace->lost_told = lost;
	if (trace->opts->output == NT_OUTPUT_JSON)
		note_output(trace, nt_json_lost(stdout, &report.totals, report.recursion_misses));
	else
		complain("%llu records lost so far; the totals stay right",
			 (unsigned long long)lost);
}

static int watch(struct trace *trace, int fd, uint64_t wake)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = wake};

	return epoll_ctl(trace->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int watch_timer(struct trace *trace, int *fd, uint64_t ns, bool repeat, uint64_t wake)
{
	struct itimerspec when = {
		.it_value = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000},
	};

	if (!ns)
		return 0;
	if (repeat)
		when.it_interval = when.it_value;
	*fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (*fd < 0 || timerfd_settime(*fd, 0, &when, NULL))
		return -errno;
	return watch(trace, *fd, wake);
}

static int watch_signals(struct trace *trace)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	signal(SIGPIPE, SIG_IGN); /* writing tells */
	trace->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return trace->signals < 0 ? -errno : watch(trace, trace->signals, WAKE_SIGNAL);
}

static int watch_pids(struct trace *trace)
{
	for (unsigned int i = 0; i < trace->opts->n_pids; i++) {
		int err = watch(trace, trace->targets.pidfds[i], WAKE_PID + i);

		if (err)
			return err;
		trace->pids_left++;
	}
	return 0;
}

/* What a person wants to know before the first stall; with the hooks that are missing and what that
 * costs. */
static void print_start(const struct trace *trace)
{
	const struct nt_tracer *tracer = &trace->tracer;

	if (trace->opts->quiet)
		return;
	complain("%s hooks%s%s%s", nt_family_name(tracer->family), tracer->why[0] ? " (" : "",
		 tracer->why, tracer->why[0] ? ")" : "");
	for (size_t i = 0; i < nt_n_hooks; i++)
		if (tracer->missing[i] && nt_hooks[i].how != NT_ATTACH_KRETPROBE)
			complain("%s %s is missing; lost with it: %s",
				 nt_attach_name(nt_hooks[i].how), nt_hooks[i].target,
				 nt_hooks[i].part);
}

/* The kernel side counts for processes asked for by the sockets it knows them to hold. */
static void mark_open_sockets(struct trace *trace)
{
	int map = bpf_map__fd(trace->tracer.skel->maps.owned);

	if (!nt_targets_any(&trace->targets) || nt_owners_scan(&trace->owners))
		return;
	for (size_t i = 0; i < trace->owners.count; i++) {
		const struct nt_owner *owner = &trace->owners.list[i];

		if (nt_targets_match(&trace->targets, owner->tgid))
			bpf_map_update_elem(map, &owner->sk, &owner->tgid, BPF_ANY);
	}
}

static int fill_ports(const struct trace *trace)
{
	const struct nt_port_list *lists[] = {&trace->opts->ports, &trace->opts->local_ports,
					      &trace->opts->remote_ports};
	int map = bpf_map__fd(trace->tracer.skel->maps.ports);
	__u8 one = 1;

	for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
		for (unsigned int i = 0; i < lists[l]->count; i++)
			if (bpf_map_update_elem(map, &lists[l]->port[i], &one, BPF_ANY))
				return -errno;
	return 0;
}

/* Everything between attached and ready. */
static int prepare(struct trace *trace)
{
	int err;

	nt_aggregate_init(&trace->all);
	nt_aggregate_init(&trace->recent);
	nt_owners_open(&trace->owners, &trace->tracer);
	err = fill_ports(trace);
	if (!err)
		err = nt_targets_start(&trace->targets, &trace->tracer);
	if (err)
		return err;
	mark_open_sockets(trace);
	if (trace->opts->stacks) {
		trace->stacks = nt_stacks_new(&trace->tracer);
		if (!trace->stacks)
			return -ENOMEM;
	}
	trace->records = ring_buffer__new(bpf_map__fd(trace->tracer.skel->maps.records), on_record,
					  trace, NULL);
	if (!trace->records)
		return -errno;
	trace->started_ns = trace->reported_ns = now_ns();
	err = watch(trace, ring_buffer__epoll_fd(trace->records), WAKE_RECORDS);
	if (!err)
		err = watch_pids(trace);
	if (!err)
		err = watch_timer(trace, &trace->interval, trace->opts->interval_ns, true,
				  WAKE_INTERVAL);
	if (!err)
		err = watch_timer(trace, &trace->duration, trace->opts->duration_ns, false,
				  WAKE_DURATION);
	return err;
}

static void interval_over(struct trace *trace)
{
	uint64_t times;

	if (read(trace->interval, &times, sizeof(times)) < 0)
		return;
	ring_buffer__consume(trace->records);
	write_report(trace, false);
	if (trace->opts->count && ++trace->reports >= trace->opts->count)
		trace->stop = true;
}

static void pid_ended(struct trace *trace, unsigned int i)
{
	ring_buffer__consume(trace->records); /* what was its own while it lived */
	epoll_ctl(trace->epoll, EPOLL_CTL_DEL, trace->targets.pidfds[i], NULL);
	nt_targets_ended(&trace->targets, i);
	if (!--trace->pids_left) {
		if (!trace->opts->quiet)
			complain("%s ended",
				 trace->opts->n_pids == 1 ? "the process" : "all processes");
		trace->stop = true;
	}
}

static void handle(struct trace *trace, uint64_t wake)
{
	switch (wake) {
	case WAKE_SIGNAL:
	case WAKE_DURATION:
		trace->stop = true;
		break;
	case WAKE_RECORDS:
		ring_buffer__consume(trace->records);
		tell_losses(trace);
		break;
	case WAKE_INTERVAL:
		interval_over(trace);
		break;
	default:
		pid_ended(trace, wake - WAKE_PID);
	}
}

static enum nt_exit run(struct trace *trace)
{
	struct epoll_event events[16];

	while (!trace->stop) {
		int n = epoll_wait(trace->epoll, events, 16, -1);

		if (n < 0 && errno != EINTR) {
			complain("cannot wait for events: %s", strerror(errno));
			return NT_EXIT_FAILED;
		}
		for (int i = 0; i < n && !trace->stop; i++)
			handle(trace, events[i].data.u64);
	}
	if (!trace->out_err) {
		ring_buffer__consume(trace->records);
		write_report(trace, true);
	}
	if (trace->out_err && trace->out_err != -EPIPE) {
		complain("cannot write the output: %s", strerror(-trace->out_err));
		return NT_EXIT_FAILED;
	}
	return NT_EXIT_OK;
}

static enum nt_exit start_and_run(struct trace *trace)
{
	char err[512];
	enum nt_exit code;
	int cause;

	code = nt_targets_open(&trace->targets, trace->opts, err, sizeof(err));
	if (code) {
		complain("%s", err);
		return code;
	}
	cause = watch_signals(trace);
	if (cause) {
		complain("cannot watch signals: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	code = nt_tracer_open(&trace->tracer, trace->opts, err, sizeof(err));
	if (code) {
		complain("%s", err);
		return code;
	}
	cause = prepare(trace);
	if (cause) {
		complain("cannot start: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	/* what loading took is given back: the BTF of the kernel, for the most part */
	malloc_trim(0);
	print_start(trace);
	if (trace->opts->output == NT_OUTPUT_JSON)
		note_output(trace, nt_json_start(stdout, &trace->tracer));
	fputs("nagletrace: ready\n", stderr);
	return run(trace);
}

enum nt_exit nt_trace(const struct nt_options *opts)
{
	struct trace trace = {.opts = opts, .signals = -1, .interval = -1, .duration = -1};
	enum nt_exit code = NT_EXIT_FAILED;

	trace.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (trace.epoll < 0)
		complain("cannot wait for events: %s", strerror(errno));
	else
		code = start_and_run(&trace);
	ring_buffer__free(trace.records);
	nt_stacks_free(trace.stacks);
	nt_owners_close(&trace.owners);
	nt_tracer_close(&trace.tracer);
	if (trace.targets.opts)
		nt_targets_close(&trace.targets);
	nt_aggregate_clear(&trace.all);
	nt_aggregate_clear(&trace.recent);
	for (size_t i = 0; i < 4; i++) {
		int fds[] = {trace.signals, trace.interval, trace.duration, trace.epoll};

		if (fds[i] >= 0)
			close(fds[i]);
	}
	return code;
}
