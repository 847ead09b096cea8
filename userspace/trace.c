// SPDX-License-Identifier: GPL-2.0
#include "trace.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "clock.h"
#include "confine.h"
#include "report.h"
#include "session.h"
#include "text.h"

/* What epoll wakes for; pidfds come after these. */
enum wake {
	WAKE_SIGNAL,
	WAKE_RECORDS,
	WAKE_INTERVAL,
	WAKE_DURATION,
	WAKE_OVERHEAD,
	WAKE_TIMELINE,
	WAKE_PROGRESS,
	WAKE_PID,
};

struct trace {
	const struct nt_options *opts;
	struct nt_session session;
	struct nt_aggregate all;        /* since the start */
	struct nt_aggregate recent;     /* since the last report */
	struct nt_counts counts_before; /* at the last report */
	uint64_t started_ns, reported_ns;
	uint64_t reports;
	unsigned int pids_left;
	int epoll, signals, interval, duration, overhead, timeline, progress;
	int out_err; /* -errno with which writing failed */
	bool heading_done, stop, ended;
	bool progress_shown; /* on the terminal's last line */
};

/* Events of several CPUs are in order once all of so long ago are there; looked for as often. */
#define TIMELINE_NS (50 * 1000000ULL)

/* Measured by `make bench`: docs/performance.md. */
#define TIMELINE_COST                                                                          \
	"every write, read, segment, hold and put-off ACK is an event; each takes the traced " \
	"host some 0.2 us"

/* Nobody reads any more: the trace ends, without a word where it is only a closed pipe. */
static void note_output(struct trace *trace, int err)
{
	if (!err || trace->out_err)
		return;
	trace->out_err = err;
	trace->stop = true;
}

static void clear_progress(struct trace *trace)
{
	if (!trace->progress_shown)
		return;
	fputs("\r\033[K", stderr);
	trace->progress_shown = false;
}

/* Only on a terminal, and over itself. */
static void show_progress(struct trace *trace)
{
	struct nt_counts counts;
	char elapsed[16];
	uint64_t times;

	if (read(trace->progress, &times, sizeof(times)) < 0)
		return;
	nt_session_counts(&trace->session, &counts);
	nt_format_duration(nt_now_ns() - trace->started_ns, elapsed, sizeof(elapsed));
	fprintf(stderr, "\r\033[Knagletrace: %s, %" PRIu64 " %s, %llu lost", elapsed,
		trace->all.stalls, trace->all.stalls == 1 ? "stall" : "stalls",
		nt_counts_lost(&counts));
	fflush(stderr);
	trace->progress_shown = true;
}

static void write_timeline(struct trace *trace, uint64_t until_ns)
{
	if (!nt_session_consume_events(&trace->session, &until_ns))
		return;
	clear_progress(trace);
	note_output(trace, nt_session_write_timeline(&trace->session, until_ns));
}

static void timeline_due(struct trace *trace)
{
	uint64_t times;

	if (read(trace->timeline, &times, sizeof(times)) > 0)
		write_timeline(trace, nt_now_ns() - TIMELINE_NS);
}

static void print_stall(struct trace *trace, const struct nt_stall *stall)
{
	const struct nt_options *opts = trace->opts;

	clear_progress(trace);
	if (opts->timeline) /* what led to it comes before it */
		write_timeline(trace, stall->record.time_ns + 1);
	if (opts->output == NT_OUTPUT_JSON) {
		note_output(trace, nt_json_stall(stdout, stall, trace->session.stacks));
		return;
	}
	if (opts->timeline) {
		note_output(trace, nt_text_timeline_stall(stdout, stall));
		return;
	}
	if (opts->interval_ns)
		return; /* the reports tell */
	if (!trace->heading_done)
		note_output(trace, nt_text_heading(stdout, opts));
	trace->heading_done = true;
	note_output(trace, nt_text_stall(stdout, opts, stall));
}

static void on_stall(void *context, const struct nt_stall *stall)
{
	struct trace *trace = context;

	if (stall->is_stall) {
		nt_aggregate_add(&trace->all, stall);
		if (trace->opts->interval_ns)
			nt_aggregate_add(&trace->recent, stall);
	}
	print_stall(trace, stall);
}

/* A report of the time since the last one, or, closing, since the start. */
static void write_report(struct trace *trace, bool closing)
{
	uint64_t now = nt_now_ns();
	struct nt_report report = {
		.tracer = &trace->session.tracer,
		.opts = trace->opts,
		.stalls = closing ? &trace->all : &trace->recent,
		.stacks = trace->session.stacks,
		.span_ns = now - (closing ? trace->started_ns : trace->reported_ns),
		.closing = closing,
	};

	clear_progress(trace);
	if (trace->opts->timeline)
		write_timeline(trace, closing ? UINT64_MAX : now - TIMELINE_NS);
	nt_session_counts(&trace->session, &report.counts);
	if (!closing) {
		struct nt_counts counts = report.counts;

		nt_counts_subtract(&report.counts, &trace->counts_before);
		trace->counts_before = counts;
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

static void tell_losses(struct trace *trace)
{
	struct nt_counts counts;

	if (!nt_session_lost_more(&trace->session, &counts))
		return;
	clear_progress(trace);
	if (trace->opts->output == NT_OUTPUT_JSON)
		note_output(trace, nt_json_lost(stdout, &counts));
	else
		nt_complain("%llu records lost so far; the totals stay right",
			    nt_counts_lost(&counts));
}

static int watch(struct trace *trace, int fd, uint64_t wake)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = wake};

	return epoll_ctl(trace->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* A timer that goes off ns from now, once or again and again. */
static int set_timer(int fd, uint64_t ns, bool repeat)
{
	struct itimerspec when = {
		.it_value = {.tv_sec = ns / NT_SECOND_NS, .tv_nsec = ns % NT_SECOND_NS},
	};

	if (repeat)
		when.it_interval = when.it_value;
	return timerfd_settime(fd, 0, &when, NULL) ? -errno : 0;
}

static int watch_timer(struct trace *trace, int *fd, uint64_t ns, bool repeat, uint64_t wake)
{
	int err;

	if (!ns)
		return 0;
	*fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (*fd < 0)
		return -errno;
	err = set_timer(*fd, ns, repeat);
	return err ? err : watch(trace, *fd, wake);
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
		int err = watch(trace, trace->session.targets.pidfds[i], WAKE_PID + i);

		if (err)
			return err;
		trace->pids_left++;
	}
	return 0;
}

/* Everything between attached and ready. */
static int prepare(struct trace *trace)
{
	int err;

	trace->started_ns = trace->reported_ns = nt_now_ns();
	err = watch(trace, nt_session_fd(&trace->session), WAKE_RECORDS);
	if (!err)
		err = watch_pids(trace);
	if (!err)
		err = watch_timer(trace, &trace->interval, trace->opts->interval_ns, true,
				  WAKE_INTERVAL);
	if (!err)
		err = watch_timer(trace, &trace->duration, trace->opts->duration_ns, false,
				  WAKE_DURATION);
	if (!err && trace->opts->timeline)
		err = watch_timer(trace, &trace->timeline, TIMELINE_NS, true, WAKE_TIMELINE);
	if (!err && trace->opts->progress && isatty(STDERR_FILENO))
		err = watch_timer(trace, &trace->progress, NT_SECOND_NS, true, WAKE_PROGRESS);
	if (!err && trace->opts->max_overhead_ppm)
		err = watch_timer(trace, &trace->overhead, 1, false, WAKE_OVERHEAD);
	return err;
}

static void interval_over(struct trace *trace)
{
	uint64_t times;

	if (read(trace->interval, &times, sizeof(times)) < 0)
		return;
	nt_session_drain(&trace->session);
	write_report(trace, false);
	if (trace->opts->count && ++trace->reports >= trace->opts->count)
		trace->stop = true;
}

static void pid_ended(struct trace *trace, unsigned int i)
{
	nt_session_drain(&trace->session); /* what was its own while it lived */
	epoll_ctl(trace->epoll, EPOLL_CTL_DEL, trace->session.targets.pidfds[i], NULL);
	nt_targets_ended(&trace->session.targets, i);
	if (!--trace->pids_left) {
		clear_progress(trace);
		if (!trace->opts->quiet)
			nt_complain("%s ended",
				    trace->opts->n_pids == 1 ? "the process" : "all processes");
		trace->stop = true;
	}
}

/* Looks at what the programs cost, or lets go of hooks. */
static void watch_overhead(struct trace *trace)
{
	struct nt_session *session = &trace->session;
	enum nt_overhead_news news;
	uint64_t times, again_ns;

	if (read(trace->overhead, &times, sizeof(times)) < 0)
		return;
	clear_progress(trace);
	news = nt_overhead_turn(&session->overhead, &session->tracer, &again_ns);
	set_timer(trace->overhead, again_ns, false);
	if (news && trace->opts->output == NT_OUTPUT_JSON)
		note_output(trace, nt_json_overhead(stdout, &session->overhead, &session->tracer));
	if (news == NT_OVERHEAD_ENDED)
		trace->stop = trace->ended = true;
}

static void handle(struct trace *trace, uint64_t wake)
{
	switch (wake) {
	case WAKE_SIGNAL:
	case WAKE_DURATION:
		trace->stop = true;
		break;
	case WAKE_RECORDS:
		nt_session_consume(&trace->session);
		tell_losses(trace);
		break;
	case WAKE_INTERVAL:
		interval_over(trace);
		break;
	case WAKE_OVERHEAD:
		watch_overhead(trace);
		break;
	case WAKE_TIMELINE:
		timeline_due(trace);
		break;
	case WAKE_PROGRESS:
		show_progress(trace);
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
			nt_complain("cannot wait for events: %s", strerror(errno));
			return NT_EXIT_FAILED;
		}
		for (int i = 0; i < n && !trace->stop; i++)
			handle(trace, events[i].data.u64);
	}
	if (!trace->out_err) {
		nt_session_drain(&trace->session);
		write_report(trace, true);
	}
	if (trace->out_err && trace->out_err != -EPIPE) {
		nt_complain("cannot write the output: %s", strerror(-trace->out_err));
		return NT_EXIT_FAILED;
	}
	return trace->ended ? NT_EXIT_FAILED : NT_EXIT_OK;
}

static enum nt_exit start_and_run(struct trace *trace)
{
	char err[512];
	char kept[128];
	enum nt_exit code;
	int cause;

	cause = watch_signals(trace);
	if (cause) {
		nt_complain("cannot watch signals: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	code = nt_session_open(&trace->session, trace->opts, on_stall, trace, err, sizeof(err));
	if (code) {
		nt_complain("%s", err);
		return code;
	}
	cause = prepare(trace);
	if (!cause && !trace->opts->quiet)
		nt_session_print_hooks(&trace->session);
	if (!cause)
		cause = nt_confine(&trace->session, kept, sizeof(kept));
	if (cause) {
		nt_complain("cannot start: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	if (trace->opts->verbose)
		nt_complain("capabilities kept: %s", kept);
	if (!trace->opts->quiet && trace->opts->timeline)
		nt_complain("timeline: %s", TIMELINE_COST);
	if (trace->opts->output == NT_OUTPUT_JSON)
		note_output(trace, nt_json_start(stdout, &trace->session.tracer,
						 trace->opts->timeline ? TIMELINE_COST : NULL));
	fputs("nagletrace: ready\n", stderr);
	return run(trace);
}

enum nt_exit nt_trace(const struct nt_options *opts)
{
	struct trace trace = {.opts = opts,
			      .signals = -1,
			      .interval = -1,
			      .duration = -1,
			      .overhead = -1,
			      .timeline = -1,
			      .progress = -1};
	enum nt_exit code = NT_EXIT_FAILED;

	nt_aggregate_init(&trace.all, NT_MAX_CONNECTIONS);
	nt_aggregate_init(&trace.recent, NT_MAX_CONNECTIONS);
	trace.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (trace.epoll < 0)
		nt_complain("cannot wait for events: %s", strerror(errno));
	else
		code = start_and_run(&trace);
	nt_session_close(&trace.session);
	nt_aggregate_clear(&trace.all);
	nt_aggregate_clear(&trace.recent);
	const int fds[] = {trace.signals,  trace.interval, trace.duration, trace.overhead,
			   trace.timeline, trace.progress, trace.epoll};
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return code;
}
