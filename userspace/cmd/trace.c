// SPDX-License-Identifier: GPL-2.0
#include "cmd/commands.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/log.h"
#include "base/streams.h"
#include "output/writer.h"
#include "capture/start.h"
#include "base/text.h"
#include "cmd/workload.h"
#include "timeline/events.h"

struct sums {
	struct nt_aggregate stalls;
	struct nt_aggregate behind; /* of relays: nt_stall_behind() */
};

struct trace {
	const struct nt_settings *settings;
	struct nt_writer writer;
	struct nt_session session;
	struct nt_timeline_events events; /* for --timeline */
	struct sums all;                  /* since the start */
	struct sums recent;               /* since the last report */
	struct nt_counts counts_before;   /* at the last report */
	uint64_t started_ns, reported_ns;
	uint64_t reports;
	struct nt_loop *loop;
	int timeline, overhead; /* the timers of these options */
	int out_err;            /* -errno of a failed write */
	uint64_t give_up_ns;    /* when the timeline ends; NT_NEVER before the end */
	bool heading_done, ended;
	bool progress_shown; /* the terminal's last line shows it */
};

/* The age at which events can be sorted: by then all CPUs have delivered theirs. The loop looks at
 * this interval. */
#define TIMELINE_NS (50 * 1000000ULL)

/*
 * A signal takes effect within 1 s. What led to a stall, or to a report, is written before it, for
 * BEFORE_STALL_NS at most: in a flood the rest comes after it. From the end of the loop the last
 * records and events have END_NS together. The records take 0.35 s of it, or 0.65 s where names may
 * still come; the timeline has LAST_TIMELINE_NS in any case. The rest is for the report, and to
 * detach.
 */
#define BEFORE_STALL_NS  (100 * 1000000ULL)
#define END_NS           (500 * 1000000ULL)
#define LAST_TIMELINE_NS (100 * 1000000ULL)

/* `make bench` measures this: docs/performance.md. */
#define TIMELINE_COST                                                                          \
	"every write, read, segment, hold and delayed ACK is an event; each takes the traced " \
	"host some 0.2 us"

/* A write failed, so the trace ends; a closed pipe is no reason to complain. */
static void note_output(struct trace *trace, int err)
{
	if (!err || trace->out_err)
		return;
	trace->out_err = err;
	nt_loop_stop(trace->loop);
}

static void clear_progress(struct trace *trace)
{
	if (!trace->progress_shown)
		return;
	fputs("\r\033[K", stderr);
	trace->progress_shown = false;
}

/* Overwrites its own line; only a terminal gets it. */
static void show_progress(void *context, uint32_t what)
{
	struct trace *trace = context;
	struct nt_counts counts;

	nt_session_counts(&trace->session, &counts);
	fprintf(stderr, "\r\033[Knagletrace: %s, %" PRIu64 " stall%s, %llu dropped",
		nt_duration(nt_now_ns() - trace->started_ns).text, trace->all.stalls.stalls,
		nt_plural(trace->all.stalls.stalls), nt_counts_dropped(&counts));
	fflush(stderr);
	trace->progress_shown = true;
}

static int write_line(void *context, const struct nt_line *line)
{
	struct trace *trace = context;

	return trace->writer.timeline_line(&trace->writer, stdout, line);
}

static void write_timeline(struct trace *trace, uint64_t until_ns, uint64_t give_up_ns)
{
	if (!nt_timeline_events_consume(&trace->events, &until_ns))
		return;
	clear_progress(trace);
	note_output(trace, nt_timeline_events_write(&trace->events, until_ns, give_up_ns));
}

/* Returns until when to write what led to a stall or a report. */
static uint64_t before_stall(const struct trace *trace)
{
	uint64_t until_ns = nt_now_ns() + BEFORE_STALL_NS;

	return until_ns < trace->give_up_ns ? until_ns : trace->give_up_ns;
}

/* Writes for a slice of time; if that is too short it goes on as soon as others had their turn. */
static void timeline_due(void *context, uint32_t what)
{
	struct trace *trace = context;
	uint64_t now_ns = nt_now_ns();

	write_timeline(trace, now_ns - TIMELINE_NS, now_ns + 2 * NT_SLICE_NS);
	if (nt_timeline_events_wait(&trace->events))
		nt_timer_set(trace->timeline, nt_now_ns(), TIMELINE_NS);
}

static void finish_timeline(struct trace *trace)
{
	uint64_t least_ns = nt_now_ns() + LAST_TIMELINE_NS;

	note_output(trace, nt_timeline_events_finish(&trace->events, trace->give_up_ns > least_ns
									     ? trace->give_up_ns
									     : least_ns));
}

static void print_stall(struct trace *trace, const struct nt_stall *stall)
{
	const struct nt_writer *writer = &trace->writer;
	struct nt_stacks *stacks = trace->session.stacks;

	clear_progress(trace);
	if (trace->settings->timeline) { /* the events that led to the stall come before it */
		write_timeline(trace, stall->record.time_ns + 1, before_stall(trace));
		note_output(trace, writer->timeline_stall(writer, stdout, stall, stacks));
		return;
	}
	if (stall->is_stall && trace->settings->interval_ns && !writer->writes_each_stall)
		return; /* reports include it */
	if (writer->heading && !trace->heading_done)
		note_output(trace, writer->heading(writer, stdout));
	trace->heading_done = true;
	note_output(trace, writer->stall(writer, stdout, stall, stacks));
}

static void on_stall(void *context, const struct nt_stall *stall)
{
	struct trace *trace = context;

	if (stall->is_stall) {
		nt_aggregate_add(&trace->all.stalls, stall);
		if (trace->settings->interval_ns)
			nt_aggregate_add(&trace->recent.stalls, stall);
	}
	print_stall(trace, stall);
}

static void on_behind(void *context, const struct nt_stall *stall)
{
	struct trace *trace = context;

	nt_aggregate_add(&trace->all.behind, stall);
	if (trace->settings->interval_ns)
		nt_aggregate_add(&trace->recent.behind, stall);
}

static void init_sums(struct sums *sums)
{
	nt_aggregate_init(&sums->stalls, NT_MAX_CONNECTIONS);
	nt_aggregate_init(&sums->behind, NT_MAX_CONNECTIONS);
}

static void clear_sums(struct sums *sums)
{
	nt_aggregate_clear(&sums->stalls);
	nt_aggregate_clear(&sums->behind);
}

/* Writes a report of the time since the last one, or, if closing, since the start. */
static void write_report(struct trace *trace, bool closing)
{
	uint64_t now = nt_now_ns();
	const struct sums *sums = closing ? &trace->all : &trace->recent;
	struct nt_report report = {
		.hooks = &trace->session.tracer.hooks,
		.settings = trace->settings,
		.origin = &trace->session.origin,
		.stalls = &sums->stalls,
		.behind = &sums->behind,
		.stacks = trace->session.stacks,
		.span_ns = now - (closing ? trace->started_ns : trace->reported_ns),
		.closing = closing,
		.reported = trace->session.reported,
	};

	clear_progress(trace);
	if (trace->settings->timeline && closing)
		finish_timeline(trace);
	else if (trace->settings->timeline)
		write_timeline(trace, now - TIMELINE_NS, before_stall(trace));
	nt_audit_read(trace->session.audit, true);
	nt_session_counts(&trace->session, &report.counts);
	if (!closing) {
		struct nt_counts counts = report.counts;

		nt_counts_subtract(&report.counts, &trace->counts_before);
		trace->counts_before = counts;
		trace->reported_ns = now;
	}
	note_output(trace, trace->writer.report(&trace->writer, stdout, &report));
	if (!closing)
		clear_sums(&trace->recent);
	malloc_trim(0);
}

static void print_losses(struct trace *trace)
{
	const char *unnamed = nt_session_unnamed(&trace->session);
	struct nt_counts counts;

	if (unnamed) {
		clear_progress(trace);
		nt_log("%s", unnamed);
	}
	if (!nt_session_dropped_more(&trace->session, &counts))
		return;
	clear_progress(trace);
	note_output(trace, trace->writer.dropped(stdout, &counts));
}

/* Records were taken: the stalls among them appear now. */
static void on_turn(void *context)
{
	note_output(context, nt_flush(stdout));
	print_losses(context);
}

/* ---- the loop ---- */

static void on_signal(void *context, uint32_t number)
{
	struct trace *trace = context;

	trace->session.owners.interrupted = true;
	nt_loop_stop(trace->loop);
}

static void interval_over(void *context, uint32_t what)
{
	struct trace *trace = context;

	nt_session_drain(&trace->session);
	if (nt_reports_interval(trace->settings))
		write_report(trace, false);
	if (trace->settings->count && ++trace->reports >= trace->settings->count)
		nt_loop_stop(trace->loop);
}

static void all_ended(void *context)
{
	struct trace *trace = context;

	clear_progress(trace);
	if (!trace->settings->quiet && !trace->settings->workload)
		nt_log("%s", nt_targets_ended(trace->settings));
	nt_loop_stop(trace->loop);
}

/* Measures what the programs cost, and detaches hooks if it is too much. */
static void watch_overhead(void *context, uint32_t what)
{
	struct trace *trace = context;
	struct nt_session *session = &trace->session;
	enum nt_overhead_news news;
	uint64_t again_ns;

	clear_progress(trace);
	news = nt_session_overhead(session, &again_ns);
	nt_timer_set(trace->overhead, again_ns ? nt_in_ns(again_ns) : NT_NEVER, 0);
	if (news && trace->writer.overhead)
		note_output(trace, trace->writer.overhead(stdout, session->overhead.limit_ppm,
							  session->overhead.share_ppm,
							  &session->tracer.hooks));
	if (news == NT_OVERHEAD_ENDED) {
		trace->ended = true;
		nt_loop_stop(trace->loop);
	}
}

static int watch_signals(void *context)
{
	struct trace *trace = context;

	if (trace->settings->workload)
		return nt_workload_watch_signals(trace->loop);
	return nt_loop_signals(trace->loop, NT_SIGNAL(SIGINT) | NT_SIGNAL(SIGTERM), 0, on_signal,
			       trace);
}

/* Calls after ns, once or repeatedly; 0: never. Returns 0, a timer, or -errno. */
static int call_after(struct trace *trace, uint64_t ns, bool repeat, nt_loop_call *call)
{
	return ns ? nt_loop_timer(trace->loop, nt_in_ns(ns), repeat ? ns : 0, call, trace) : 0;
}

static bool prepare(void *context, struct nt_error *error)
{
	struct trace *trace = context;
	const struct nt_settings *settings = trace->settings;
	uint64_t end_ns = settings->duration_ns ? nt_in_ns(settings->duration_ns) : NT_NEVER;
	bool progress = settings->progress && isatty(STDERR_FILENO);
	int err;

	trace->started_ns = trace->reported_ns = nt_now_ns();
	err = call_after(trace, settings->interval_ns, true, interval_over);
	if (err >= 0)
		err = nt_loop_timer(trace->loop, end_ns, 0, nt_loop_end, trace->loop);
	if (err >= 0 && settings->timeline)
		err = trace->timeline = call_after(trace, TIMELINE_NS, true, timeline_due);
	if (err >= 0 && progress)
		err = call_after(trace, NT_SECOND_NS, true, show_progress);
	if (err >= 0 && settings->max_overhead_ppm)
		err = trace->overhead = call_after(trace, 1, false, watch_overhead);
	if (err >= 0 && settings->timeline)
		err = nt_timeline_events_open(&trace->events, &trace->session, write_line, trace);
	return nt_started(err < 0 ? err : 0, error);
}

/* Were there too many stalls for --fail-on-stall? */
static enum nt_exit judge(const struct trace *trace)
{
	uint64_t stalls = trace->all.stalls.stalls, limit = trace->settings->fail_on_stalls;

	if (!limit || stalls < limit)
		return NT_EXIT_OK;
	nt_log("--fail-on-stall=%" PRIu64 ": found %" PRIu64 " stall%s", limit, stalls,
	       nt_plural(stalls));
	return NT_EXIT_STALLS;
}

static enum nt_exit run(struct trace *trace)
{
	if (nt_loop_run(trace->loop))
		return NT_EXIT_FAILED;
	trace->give_up_ns = nt_now_ns() + END_NS;
	if (trace->settings->workload) /* it has ended: from now on signals are ours */
		nt_streams_heed(NT_SIGNAL(SIGINT) | NT_SIGNAL(SIGTERM));
	if (!trace->out_err) {
		nt_session_finish(&trace->session);
		print_losses(trace);
		if (nt_reports_whole(trace->settings, trace->reports))
			write_report(trace, true);
		else if (trace->settings->timeline)
			finish_timeline(trace);
	}
	return nt_streams_written(trace->out_err) || trace->ended ? NT_EXIT_FAILED : judge(trace);
}

static void announce(void *context, const char *kept)
{
	struct trace *trace = context;
	const struct nt_settings *settings = trace->settings;

	/* Only now is there something instead of an older recording; a pipe (EINVAL) has none. */
	if (settings->output_file && ftruncate(STDOUT_FILENO, 0) < 0 && errno != EINVAL)
		note_output(trace, -errno);
	if (settings->verbose)
		nt_log("capabilities kept: %s", kept);
	if (!settings->quiet && settings->timeline)
		nt_log("timeline: %s", TIMELINE_COST);
	if (trace->writer.start)
		note_output(trace, trace->writer.start(stdout, &trace->session.tracer.hooks,
						       &trace->session.origin, settings->late_acks,
						       settings->timeline ? TIMELINE_COST : NULL));
}

static enum nt_exit start_and_run(struct trace *trace)
{
	const struct nt_start start = {
		.loop = trace->loop,
		.on_stall = on_stall,
		.watch = {.on_turn = on_turn, .on_behind = on_behind, .on_all_ended = all_ended},
		.watch_signals = watch_signals,
		.prepare = prepare,
		.announce = announce,
		.context = trace,
	};
	struct nt_error error;

	if (!nt_session_start(&trace->session, trace->settings, &start, &error))
		return nt_error_log(&error);
	if (trace->settings->workload && !nt_workload_start())
		return NT_EXIT_FAILED; /* the command has said why, or a signal has ended it */
	return run(trace);
}

enum nt_exit nt_trace(const struct nt_settings *settings)
{
	struct trace trace = {.settings = settings,
			      .writer = nt_writer_of(settings->output, settings->wide),
			      .counts_before.audited = true,
			      .give_up_ns = NT_NEVER,
			      .loop = nt_loop_new()};
	enum nt_exit code = NT_EXIT_FAILED;

	trace.writer.utc = settings->utc;
	init_sums(&trace.all);
	init_sums(&trace.recent);
	if (trace.loop)
		code = start_and_run(&trace);
	nt_timeline_events_close(&trace.events);
	nt_session_close(&trace.session);
	clear_sums(&trace.all);
	clear_sums(&trace.recent);
	nt_loop_free(trace.loop);
	return code;
}
