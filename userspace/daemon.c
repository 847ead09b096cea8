// SPDX-License-Identifier: GPL-2.0
#include "daemon.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>
#include "clock.h"
#include "confine.h"
#include "json_daemon.h"
#include "notify.h"
#include "session.h"
#include "text.h"
#include "window.h"

/* Readers that ask at the same time share a snapshot: it is at most so old. */
#define SNAPSHOT_NS (NT_SECOND_NS / 10)

#define N_EVENTS    8

/* A line that is kept for whoever asks next. */
struct kept_line {
	char *text;
	size_t length;
	uint64_t made_ns;
	unsigned int top;
};

struct daemon {
	const struct nt_options *opts;
	struct nt_session session;
	struct nt_series_set series;
	struct nt_window window;
	struct nt_server *server;
	struct kept_line snapshot;
	uint64_t started_ns, losing_ns;
	int64_t started_day_ns;
	uint64_t stalls, excess_ns;
	struct event_base *base;
	struct event *events[N_EVENTS];
	size_t n_events;
	struct event *overhead; /* of events, the one that looks at what the programs cost */
};

/* ---- answers ---- */

static void fill_state(struct daemon *d, struct nt_daemon_state *state)
{
	const struct nt_window_half *recent = nt_window_older(&d->window);

	memset(state, 0, sizeof(*state));
	state->session = &d->session;
	state->series = &d->series;
	state->recent = &recent->stalls;
	state->recent_began_ns = recent->began_ns;
	state->started_ns = d->started_ns;
	state->started_day_ns = d->started_day_ns;
	state->losing_ns = d->losing_ns;
	state->stalls = d->stalls;
	state->excess_ns = d->excess_ns;
	nt_session_counts(&d->session, &state->counts);
	nt_server_counts(d->server, &state->server);
}

static void make_snapshot(struct daemon *d, unsigned int top)
{
	struct kept_line *kept = &d->snapshot;
	struct nt_daemon_state state;
	FILE *out;

	if (kept->text && kept->top == top && nt_now_ns() < kept->made_ns + SNAPSHOT_NS)
		return;
	free(kept->text);
	memset(kept, 0, sizeof(*kept));
	out = open_memstream(&kept->text, &kept->length);
	if (!out)
		return;
	fill_state(d, &state);
	nt_json_snapshot(out, &state, top);
	fclose(out);
	kept->made_ns = nt_now_ns();
	kept->top = top;
}

/* Text goes as it is into a line of JSON. */
static void write_text(FILE *out, enum nt_format format, char *text)
{
	if (format == NT_FORMAT_JSON)
		fputs(text, out);
	else
		nt_json_text(out, text);
}

static void write_report(struct daemon *d, FILE *out, enum nt_format format)
{
	const struct nt_window_half *recent = nt_window_older(&d->window);
	struct nt_options opts = *d->opts;
	struct nt_report report = {
		.tracer = &d->session.tracer,
		.opts = &opts,
		.stalls = &recent->stalls,
		.stacks = d->session.stacks,
		.span_ns = nt_now_ns() - recent->began_ns,
	};
	char *text = NULL;
	size_t length;
	FILE *inner;

	opts.wide = format == NT_FORMAT_WIDE;
	nt_session_counts(&d->session, &report.counts);
	nt_counts_subtract(&report.counts, &recent->before);
	inner = open_memstream(&text, &length);
	if (!inner)
		return;
	if (format == NT_FORMAT_JSON)
		nt_json_report(inner, &report);
	else
		nt_text_report(inner, &report);
	fclose(inner);
	write_text(out, format, text);
	free(text);
}

static void begin_stream(struct daemon *d, struct nt_reader *reader, FILE *out,
			 enum nt_format format)
{
	struct nt_options opts = *d->opts;
	char *text = NULL;
	size_t length;
	FILE *inner;

	nt_json_streaming(out);
	nt_reader_stream(reader, format);
	if (format == NT_FORMAT_JSON)
		return;
	opts.wide = format == NT_FORMAT_WIDE;
	inner = open_memstream(&text, &length);
	if (!inner)
		return;
	nt_text_heading(inner, &opts);
	fclose(inner);
	nt_json_text(out, text);
	free(text);
}

static void answer(void *context, struct nt_reader *reader, const struct nt_request *request)
{
	struct daemon *d = context;
	struct nt_daemon_state state;
	char *line = NULL;
	size_t length;
	FILE *out;

	if (request->kind == NT_REQUEST_SNAPSHOT) {
		make_snapshot(d, request->top);
		if (d->snapshot.text)
			nt_reader_send(reader, d->snapshot.text, d->snapshot.length);
		return;
	}
	out = open_memstream(&line, &length);
	if (!out)
		return;
	switch (request->kind) {
	case NT_REQUEST_REPORT:
		write_report(d, out, request->format);
		break;
	case NT_REQUEST_STREAM:
		begin_stream(d, reader, out, request->format);
		break;
	default:
		fill_state(d, &state);
		nt_json_health(out, &state);
	}
	fclose(out);
	nt_reader_send(reader, line, length);
	free(line);
}

/* ---- records ---- */

static void stream_stall(struct daemon *d, const struct nt_stall *stall, enum nt_format format)
{
	struct nt_options opts = *d->opts;
	char *line = NULL, *text = NULL;
	size_t length, text_length;
	FILE *out = open_memstream(&line, &length);
	FILE *inner = open_memstream(&text, &text_length);

	opts.wide = format == NT_FORMAT_WIDE;
	if (out && inner) {
		if (format == NT_FORMAT_JSON)
			nt_json_stall(inner, stall, d->session.stacks);
		else
			nt_text_stall(inner, &opts, stall);
		fflush(inner);
		write_text(out, format, text);
		fflush(out);
		nt_server_stream(d->server, format, line, length);
	}
	if (out)
		fclose(out);
	if (inner)
		fclose(inner);
	free(line);
	free(text);
}

static void on_stall(void *context, const struct nt_stall *stall)
{
	struct daemon *d = context;

	d->stalls++;
	d->excess_ns += stall->excess_ns;
	nt_series_add(&d->series, stall, nt_now_ns());
	nt_window_add(&d->window, stall);
	for (enum nt_format format = 0; format < NT_FORMATS; format++)
		if (nt_server_wants(d->server, format))
			stream_stall(d, stall, format);
}

/* ---- the loop ---- */

/* As many as come in 20 ms, then what else there is to do. */
static void on_records(evutil_socket_t fd, short what, void *context)
{
	struct daemon *d = context;

	(void)fd;
	(void)what;
	nt_session_consume(&d->session);
}

/* Once a second: was anything lost? */
static void on_second(evutil_socket_t fd, short what, void *context)
{
	struct daemon *d = context;
	struct nt_counts counts;

	(void)fd;
	(void)what;
	if (!nt_session_lost_more(&d->session, &counts))
		return;
	if (!d->losing_ns || nt_now_ns() > d->losing_ns + 60 * NT_SECOND_NS)
		nt_complain("%llu records lost so far; the totals stay right",
			    nt_counts_lost(&counts));
	d->losing_ns = nt_now_ns();
}

static int set_event(struct event *event, uint64_t each_ns)
{
	const struct timeval each = {.tv_sec = each_ns / NT_SECOND_NS,
				     .tv_usec = each_ns % NT_SECOND_NS / 1000};

	return event_add(event, each_ns ? &each : NULL) ? -ENOMEM : 0;
}

/* Looks at what the programs cost, or lets go of hooks; it does not end, or it would be started
 * again, to cost as much. */
static void on_overhead(evutil_socket_t fd, short what, void *context)
{
	struct daemon *d = context;
	uint64_t again_ns;

	(void)fd;
	(void)what;
	nt_overhead_turn(&d->session.overhead, &d->session.tracer, &again_ns);
	if (again_ns)
		set_event(d->overhead, again_ns);
	else
		event_del(d->overhead);
}

static void on_half_window(evutil_socket_t fd, short what, void *context)
{
	struct daemon *d = context;
	struct nt_counts counts;

	(void)fd;
	(void)what;
	nt_session_counts(&d->session, &counts);
	nt_window_turn(&d->window, nt_now_ns(), &counts);
	if (d->session.stacks)
		nt_stacks_recycle(d->session.stacks, false);
	malloc_trim(0);
}

static void on_watchdog(evutil_socket_t fd, short what, void *context)
{
	(void)fd;
	(void)what;
	(void)context;
	nt_notify("WATCHDOG=1");
}

static void on_end(evutil_socket_t fd, short what, void *context)
{
	struct daemon *d = context;

	(void)fd;
	(void)what;
	event_base_loopbreak(d->base);
}

static void on_hangup(evutil_socket_t fd, short what, void *context)
{
	(void)fd;
	(void)what;
	(void)context;
	nt_complain("SIGHUP: there is nothing to read again; restart it to change its options");
}

static int watch(struct daemon *d, evutil_socket_t fd, short what, event_callback_fn call,
		 uint64_t each_ns)
{
	struct event *event = event_new(d->base, fd, what | EV_PERSIST, call, d);

	if (!event)
		return -ENOMEM;
	d->events[d->n_events++] = event;
	return set_event(event, each_ns);
}

static int watch_all(struct daemon *d)
{
	uint64_t watchdog_ns = nt_notify_interval_ns();
	int err = watch(d, nt_session_fd(&d->session), EV_READ, on_records, 0);

	signal(SIGPIPE, SIG_IGN);
	if (!err)
		err = watch(d, SIGTERM, EV_SIGNAL, on_end, 0);
	if (!err)
		err = watch(d, SIGINT, EV_SIGNAL, on_end, 0);
	if (!err)
		err = watch(d, SIGHUP, EV_SIGNAL, on_hangup, 0);
	if (!err)
		err = watch(d, -1, 0, on_second, NT_SECOND_NS);
	if (!err)
		err = watch(d, -1, 0, on_half_window, d->opts->window_ns / 2);
	if (!err && watchdog_ns)
		err = watch(d, -1, 0, on_watchdog, watchdog_ns);
	if (!err && d->opts->max_overhead_ppm) {
		err = watch(d, -1, 0, on_overhead, NT_SECOND_NS);
		d->overhead = d->events[d->n_events - 1];
	}
	return err;
}

static enum nt_exit open_all(struct daemon *d, char *err, size_t err_size)
{
	struct nt_counts counts;
	char kept[128];
	enum nt_exit code;
	int cause;

	/* first what fails at once */
	d->server = nt_server_open(d->base, d->opts->socket,
				   d->opts->group ? d->opts->group_id : (gid_t)-1, answer, d,
				   &cause, err, err_size);
	if (!d->server)
		return cause == -EPERM || cause == -EACCES ? NT_EXIT_PERMISSION : NT_EXIT_FAILED;
	code = nt_session_open(&d->session, d->opts, on_stall, d, err, err_size);
	if (code)
		return code;
	d->started_ns = nt_now_ns();
	d->started_day_ns = nt_time_of_day_ns(d->started_ns);
	nt_session_counts(&d->session, &counts);
	nt_window_init(&d->window, d->opts->max_connections, d->started_ns, &counts);
	cause = watch_all(d);
	if (!cause && !d->opts->quiet)
		nt_session_print_hooks(&d->session);
	if (!cause)
		cause = nt_confine(&d->session, kept, sizeof(kept));
	if (cause) {
		snprintf(err, err_size, "cannot start: %s", strerror(-cause));
		return NT_EXIT_FAILED;
	}
	if (!d->opts->quiet)
		nt_complain("serving %s; capabilities kept: %s", d->opts->socket, kept);
	return NT_EXIT_OK;
}

static void close_all(struct daemon *d)
{
	for (size_t i = 0; i < d->n_events; i++)
		event_free(d->events[i]);
	if (d->server)
		nt_server_close(d->server);
	nt_session_close(&d->session);
	nt_window_clear(&d->window);
	nt_series_clear(&d->series);
	free(d->snapshot.text);
	event_base_free(d->base);
}

enum nt_exit nt_daemon(const struct nt_options *opts)
{
	struct daemon d = {.opts = opts};
	enum nt_exit code;
	char err[512];

	nt_series_init(&d.series, opts->max_series, opts->by_cgroup);
	d.base = event_base_new();
	if (!d.base) {
		nt_complain("cannot wait for events: %s", strerror(errno));
		return NT_EXIT_FAILED;
	}
	code = open_all(&d, err, sizeof(err));
	if (code) {
		nt_complain("%s", err);
	} else {
		fputs("nagletrace: ready\n", stderr);
		nt_notify("READY=1");
		event_base_dispatch(d.base);
		nt_notify("STOPPING=1");
	}
	close_all(&d);
	return code;
}
