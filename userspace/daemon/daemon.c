// SPDX-License-Identifier: GPL-2.0
#include "daemon/daemon.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/client.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "daemon/replies.h"
#include "daemon/notify.h"
#include "daemon/sampler.h"
#include "capture/start.h"
#include "base/text.h"
#include "summary/window.h"

/* Readers that ask at the same time share a snapshot; it is at most this old. */
#define SNAPSHOT_NS (NT_SECOND_NS / 10)

/* A stream of JSON has totals this often. */
#define TOTALS_NS (60 * NT_SECOND_NS)

/* A line that the daemon keeps for the next reader that asks for it. */
struct kept_line {
	char *text;
	size_t length;
	uint64_t made_ns;
	unsigned int top;
	bool last;
};

struct daemon {
	const struct nt_settings *settings;
	struct nt_session session;
	struct nt_sampler sampler; /* with --standby */
	struct nt_series_set series;
	struct nt_window window;
	struct nt_server *server;
	struct kept_line snapshot;
	uint64_t started_ns, dropping_ns;
	int64_t started_day_ns;
	uint64_t stalls, excess_ns;
	struct nt_counts told; /* as of the last totals of the streams */
	uint64_t told_ns;
	struct nt_loop *loop;
	int overhead; /* the timer of --max-overhead */
};

/* ---- answers ---- */

static void fill_state(struct daemon *d, struct nt_daemon_state *state)
{
	memset(state, 0, sizeof(*state));
	state->session = &d->session;
	state->series = &d->series;
	state->window = &d->window;
	state->started_ns = d->started_ns;
	state->started_day_ns = d->started_day_ns;
	state->dropping_ns = d->dropping_ns;
	state->stalls = d->stalls;
	state->excess_ns = d->excess_ns;
	nt_audit_read(d->session.audit, false);
	nt_session_counts(&d->session, &state->counts);
	nt_server_counts(d->server, &state->server);
}

static void make_snapshot(struct daemon *d, unsigned int top, bool last)
{
	struct kept_line *kept = &d->snapshot;
	struct nt_daemon_state state;
	FILE *out;

	if (kept->text && kept->top == top && kept->last == last &&
	    nt_now_ns() < kept->made_ns + SNAPSHOT_NS)
		return;
	free(kept->text);
	memset(kept, 0, sizeof(*kept));
	out = open_memstream(&kept->text, &kept->length);
	if (!out)
		return;
	fill_state(d, &state);
	nt_json_snapshot(out, &state, top, last);
	fclose(out);
	kept->made_ns = nt_now_ns();
	kept->top = top;
	kept->last = last;
}

static int write_as_it_is(FILE *out, const char *text)
{
	return fputs(text, out) < 0 ? -EIO : 0;
}

/* Says how each format reaches a reader: every one becomes lines of JSON. */
static const struct {
	enum nt_output output;
	bool wide;
	int (*send)(FILE *out, const char *text);
} formats[NT_FORMATS] = {
	[NT_FORMAT_JSON] = {NT_OUTPUT_JSON, false, write_as_it_is},
	[NT_FORMAT_TEXT] = {NT_OUTPUT_TEXT, false, nt_json_text},
	[NT_FORMAT_WIDE] = {NT_OUTPUT_TEXT, true, nt_json_text},
};

static struct nt_writer writer_of(enum nt_format format)
{
	return nt_writer_of(formats[format].output, formats[format].wide);
}

static void write_report(struct daemon *d, FILE *out, enum nt_format format)
{
	struct nt_writer writer = writer_of(format);
	struct nt_window_half recent;
	struct nt_report report = {
		.hooks = &d->session.tracer.hooks,
		.settings = d->settings,
		.origin = &d->session.origin,
		.stalls = &recent.stalls,
		.stacks = d->session.stacks,
		.standby = &d->session.standby,
		.reported = d->session.reported,
	};
	char *text = NULL;
	size_t length;
	FILE *inner;

	nt_audit_read(d->session.audit, false);
	nt_session_counts(&d->session, &report.counts);
	inner = open_memstream(&text, &length);
	if (!inner)
		return;
	nt_window_sum(&d->window, &recent);
	nt_counts_subtract(&report.counts, &recent.before);
	report.span_ns = nt_now_ns() - recent.began_ns;
	writer.report(&writer, inner, &report);
	nt_aggregate_clear(&recent.stalls);
	fclose(inner);
	formats[format].send(out, text);
	free(text);
}

/* Late ACKs are reported while somebody reads a stream of JSON: only such readers get them. */
static void want_late_acks(struct daemon *d)
{
	nt_session_want_late_acks(&d->session,
				  d->settings->max_late_acks &&
					  nt_server_streams(d->server, NT_FORMAT_JSON));
}

static void begin_stream(struct daemon *d, struct nt_reader *reader, FILE *out,
			 enum nt_format format)
{
	struct nt_writer writer = writer_of(format);
	struct nt_daemon_state state;
	char *text = NULL;
	size_t length;
	FILE *inner;

	nt_reader_stream(reader, format);
	if (format == NT_FORMAT_JSON) /* on_second() ends it, at most once a second */
		want_late_acks(d);
	fill_state(d, &state);
	nt_json_streaming(out, &state);
	inner = writer.heading ? open_memstream(&text, &length) : NULL;
	if (!inner)
		return;
	writer.heading(&writer, inner);
	fclose(inner);
	formats[format].send(out, text);
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
		make_snapshot(d, request->top, request->last);
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
	struct nt_writer writer = writer_of(format);
	char *line = NULL, *text = NULL;
	size_t length, text_length;
	FILE *out = open_memstream(&line, &length);
	FILE *inner = open_memstream(&text, &text_length);

	if (out && inner) {
		writer.stall(&writer, inner, stall, d->session.stacks);
		fflush(inner);
		formats[format].send(out, text);
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

	if (!stall->is_stall) {
		if (nt_server_wants(d->server, NT_FORMAT_JSON, false))
			stream_stall(d, stall, NT_FORMAT_JSON);
		return;
	}
	nt_standby_stalled(&d->session.standby, nt_now_ns());
	d->stalls++;
	d->excess_ns += stall->excess_ns;
	nt_series_add(&d->series, stall, nt_now_ns());
	nt_window_add(&d->window, stall);
	for (enum nt_format format = 0; format < NT_FORMATS; format++)
		if (nt_server_wants(d->server, format, true))
			stream_stall(d, stall, format);
}

/* ---- the loop ---- */

/* Reports once a second what was skipped or dropped. */
static void on_second(void *context, uint32_t what)
{
	struct daemon *d = context;
	struct nt_counts counts;
	const char *unnamed;

	nt_server_report_skipped(d->server);
	if (d->session.standby.state == NT_STANDBY_WAITING) {
		nt_owners_shrink(&d->session.owners);
		return;
	}
	want_late_acks(d);
	unnamed = nt_session_unnamed(&d->session);
	if (unnamed)
		nt_log("%s", unnamed);
	if (!nt_session_dropped_more(&d->session, &counts))
		return;
	if (!d->dropping_ns || nt_now_ns() > d->dropping_ns + 60 * NT_SECOND_NS)
		nt_log("%llu record%s dropped so far; reports have too few stalls",
		       nt_counts_dropped(&counts), nt_plural(nt_counts_dropped(&counts)));
	d->dropping_ns = nt_now_ns();
}

/* Measures what the programs cost, or detaches hooks. It does not end the daemon: systemd would
 * start it again, at the same cost. */
static void on_overhead(void *context, uint32_t what)
{
	struct daemon *d = context;
	uint64_t again_ns;

	nt_session_overhead(&d->session, &again_ns);
	nt_timer_set(d->overhead, again_ns ? nt_in_ns(again_ns) : NT_NEVER, 0);
}

static void on_half_window(void *context, uint32_t what)
{
	struct daemon *d = context;
	struct nt_counts counts;

	nt_audit_read(d->session.audit, false);
	nt_session_counts(&d->session, &counts);
	nt_window_turn(&d->window, nt_now_ns(), &counts);
	if (d->session.stacks)
		nt_stacks_recycle(d->session.stacks, false);
	malloc_trim(0);
}

/* Hands the totals of the last minute to streams of JSON. */
static void on_totals(void *context, uint32_t what)
{
	struct daemon *d = context;
	struct nt_session *session = &d->session;
	struct nt_counts counts, now;
	uint64_t began_ns;
	char *line = NULL;
	size_t length;
	FILE *out;

	if (!nt_server_streams(d->server, NT_FORMAT_JSON)) {
		nt_session_counts(session, &d->told);
		d->told_ns = nt_now_ns();
		return;
	}
	out = open_memstream(&line, &length);
	if (!out)
		return;
	if (!session->leaves_out) { /* no record of this time comes behind the line */
		nt_session_drain(session);
		nt_session_flush(session);
	}
	began_ns = nt_now_ns();
	nt_audit_read(session->audit, true);
	nt_session_counts(session, &now);
	counts = now;
	nt_counts_subtract(&counts, &d->told);
	counts.audited &= !d->settings->standby && !session->overhead.steps &&
			  !session->counts_failed &&
			  nt_audit_whole(session->audit, d->told_ns, began_ns);
	nt_json_stream_totals(out, session, &counts, nt_now_ns() - d->told_ns);
	fclose(out);
	if (nt_server_wants(d->server, NT_FORMAT_JSON, false))
		nt_server_stream(d->server, NT_FORMAT_JSON, line, length);
	free(line);
	d->told = now;
	d->told_ns = nt_now_ns();
}

static void on_watchdog(void *context, uint32_t what)
{
	nt_notify("WATCHDOG=1");
}

static void on_signal(void *context, uint32_t number)
{
	struct daemon *d = context;

	if (number == SIGHUP)
		nt_log("SIGHUP: there is nothing to read again; restart it to change its "
		       "options");
	else
		nt_loop_stop(d->loop);
}

/* Calls every ns; 0: never. Returns 0, a timer, or -errno. */
static int call_each(struct daemon *d, uint64_t ns, nt_loop_call *call)
{
	return ns ? nt_loop_timer(d->loop, nt_in_ns(ns), ns, call, d) : 0;
}

static int watch_all(struct daemon *d)
{
	const uint64_t ends = NT_SIGNAL(SIGTERM) | NT_SIGNAL(SIGINT);
	int err = nt_loop_signals(d->loop, ends, NT_SIGNAL(SIGHUP), on_signal, d);

	if (err >= 0)
		err = call_each(d, NT_SECOND_NS, on_second);
	if (err >= 0)
		err = call_each(d, d->settings->window_ns / 2, on_half_window);
	if (err >= 0)
		err = call_each(d, TOTALS_NS, on_totals);
	if (err >= 0)
		err = call_each(d, nt_notify_interval_ns(), on_watchdog);
	if (err >= 0 && d->settings->max_overhead_ppm)
		err = d->overhead = call_each(d, NT_SECOND_NS, on_overhead);
	return err < 0 ? err : 0;
}

static bool prepare(void *context, struct nt_error *error)
{
	struct daemon *d = context;
	struct nt_counts counts;

	d->started_ns = nt_now_ns();
	d->started_day_ns = nt_time_of_day_ns(d->started_ns);
	nt_session_counts(&d->session, &counts);
	d->told = counts;
	d->told_ns = d->started_ns;
	nt_window_init(&d->window, d->settings->max_connections, d->started_ns, &counts);
	return nt_started(watch_all(d), error) &&
	       (!d->settings->standby ||
		nt_sampler_start(&d->sampler, &d->session, d->loop, error));
}

static void announce(void *context, const char *kept)
{
	struct daemon *d = context;
	char socket[NT_ESCAPED_LEN(NT_SOCKET_PATH_LEN)];

	nt_escape(d->settings->socket, strlen(d->settings->socket), socket, sizeof(socket));
	if (!d->settings->quiet)
		nt_log("serving %s; capabilities kept: %s", socket, kept);
	if (!d->settings->quiet && d->settings->standby)
		nt_log("standby: nothing is attached until a look at the sockets finds a "
		       "stall");
}

static bool open_all(struct daemon *d, struct nt_error *error)
{
	const struct nt_start start = {
		.loop = d->loop,
		.on_stall = on_stall,
		.prepare = prepare,
		.announce = announce,
		.context = d,
	};

	/* open the socket first, since that fails at once */
	d->server = nt_server_open(d->settings->socket,
				   d->settings->group ? d->settings->group_id : (gid_t)-1, answer,
				   d, error);
	return d->server && nt_session_start(&d->session, d->settings, &start, error);
}

static void close_all(struct daemon *d)
{
	if (d->server)
		nt_server_close(d->server);
	nt_sampler_stop(&d->sampler);
	nt_session_close(&d->session);
	nt_window_clear(&d->window);
	nt_series_clear(&d->series);
	free(d->snapshot.text);
	nt_loop_free(d->loop);
}

enum nt_exit nt_daemon(const struct nt_settings *settings)
{
	struct daemon d = {.settings = settings, .loop = nt_loop_new()};
	enum nt_exit code = NT_EXIT_OK;
	struct nt_error error;
	int cause;

	if (!d.loop)
		return NT_EXIT_FAILED;
	nt_series_init(&d.series, settings->max_series, settings->by_cgroup);
	if (!open_all(&d, &error)) {
		code = nt_error_log(&error);
	} else {
		nt_notify("READY=1");
		cause = nt_server_run(d.server, d.loop);
		nt_notify("STOPPING=1");
		nt_session_finish(&d.session);
		on_totals(&d, 0);
		if (cause) {
			nt_log("cannot wait for events: %s", strerror(-cause));
			code = NT_EXIT_FAILED;
		}
	}
	close_all(&d);
	return code;
}
