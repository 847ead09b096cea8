// SPDX-License-Identifier: GPL-2.0
#include "daemon/replies.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "base/clock.h"
#include "output/json.h"
#include "capture/session.h"
#include "version.h"
#include "terms/words.h"

/* How long the daemon's health is `dropping` after records were dropped. */
#define DROPPING_NS (60 * NT_SECOND_NS)

static struct json_object *new_reply(const char *type)
{
	struct json_object *o = nt_json_new(type);

	nt_json_number(o, "protocol", NT_PROTOCOL);
	return o;
}

/* Adds the daemon's version, kernel and hooks, and since when it runs. */
static void add_identity(struct json_object *o, const struct nt_daemon_state *state)
{
	const struct nt_session *session = state->session;
	struct utsname name;

	uname(&name);
	nt_json_time_now(o);
	nt_json_time_of_day(o, "started", state->started_day_ns);
	nt_json_number(o, "uptime_us", (nt_now_ns() - state->started_ns) / 1000);
	nt_json_string(o, "version", NT_VERSION);
	nt_json_string(o, "kernel", name.release);
	nt_json_hooks(o, &session->tracer.hooks);
	if (session->overhead.limit_ppm)
		nt_json_detached(o, &session->tracer.hooks);
}

static void add_last(struct json_object *o, const struct nt_series_stall *stall)
{
	struct json_object *last = json_object_new_object();

	nt_json_time(last, stall->time_ns);
	nt_json_number(last, "duration_us", stall->duration_ns / 1000);
	if (stall->tgid > 0)
		nt_json_number(last, "pid", stall->tgid);
	nt_json_tuple(last, &stall->tuple);
	nt_json_number(last, "bytes", stall->bytes);
	json_object_object_add(o, "last", last);
}

static struct json_object *series_object(const struct nt_series *series, bool last)
{
	struct json_object *o = json_object_new_object(), *buckets = json_object_new_array();

	nt_json_cause(o, series->key.cause, series->key.reason);
	nt_json_string(o, "side", series->key.side == NT_SIDE_SENDER ? "sender" : "receiver");
	nt_json_string(o, "evidence", nt_evidence_word(series->key.evidence));
	if (series->key.comm[0])
		nt_json_foreign(o, "comm", series->key.comm, sizeof(series->key.comm));
	if (series->key.cgroup[0])
		nt_json_foreign(o, "cgroup", series->key.cgroup, sizeof(series->key.cgroup));
	nt_json_container(o, &series->key.container);
	nt_json_number(o, "stalls", series->stalls);
	nt_json_number(o, "duration_us", series->duration_ns / 1000);
	nt_json_number(o, "excess_us", series->excess_ns / 1000);
	for (size_t i = 0; i < NT_BUCKETS; i++)
		json_object_array_add(buckets, json_object_new_uint64(series->buckets[i]));
	json_object_object_add(o, "buckets", buckets);
	if (last)
		add_last(o, &series->last);
	return o;
}

static void add_series(struct json_object *o, const struct nt_series_set *set, bool last)
{
	const struct nt_series *others = &set->others[0][0][0];
	struct json_object *list = json_object_new_array(), *bounds = json_object_new_array();

	for (size_t i = 0; i < NT_BUCKETS; i++)
		json_object_array_add(bounds, json_object_new_uint64(nt_bucket_ns[i] / 1000));
	json_object_object_add(o, "bounds_us", bounds);
	for (const struct nt_series *s = set->list; s; s = s->hh.next)
		json_object_array_add(list, series_object(s, last));
	for (size_t i = 0; i < sizeof(set->others) / sizeof(*others); i++)
		if (others[i].stalls)
			json_object_array_add(list, series_object(&others[i], last));
	json_object_object_add(o, "series", list);
}

/* Adds the limits, and counts of what they folded or evicted. */
static void add_limits(struct json_object *o, const struct nt_daemon_state *state)
{
	struct json_object *limits = json_object_new_object();

	nt_json_number(limits, "max_series", state->series->most);
	nt_json_number(limits, "folded_stalls", state->series->folded);
	nt_json_number(limits, "evicted_series", state->series->evicted);
	nt_json_number(limits, "max_connections", state->session->settings->max_connections);
	json_object_object_add(o, "limits", limits);
}

/* Counts refusals for lack of room, by their reason. */
static void add_refusals(struct json_object *o, const struct nt_server_counts *counts)
{
	static const char *const words[NT_REFUSALS] = {
		[NT_REFUSED_USER_READERS] = "user_readers",
		[NT_REFUSED_ALL_READERS] = "all_readers",
		[NT_REFUSED_USER_WAITING] = "user_waiting",
		[NT_REFUSED_ALL_WAITING] = "all_waiting",
		[NT_REFUSED_DESCRIPTORS] = "descriptors",
	};
	struct json_object *refusals = json_object_new_object();

	for (size_t i = 0; i < NT_REFUSALS; i++)
		nt_json_number(refusals, words[i], counts->refusals[i]);
	json_object_object_add(o, "refusals", refusals);
}

static uint64_t microseconds(const struct timeval *t)
{
	return t->tv_sec * 1000000ULL + t->tv_usec;
}

/* Adds what the tracer itself costs. */
static void add_tracer(struct json_object *o, const struct nt_daemon_state *state)
{
	struct json_object *tracer = json_object_new_object();
	const struct nt_overhead *overhead = &state->session->overhead;
	uint64_t bpf_ns = nt_tracer_run_time_ns(&state->session->tracer);
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	nt_json_number(tracer, "cpu_us",
		       microseconds(&usage.ru_utime) + microseconds(&usage.ru_stime));
	if (bpf_ns && !overhead->limit_ppm) /* a limit measures at times only */
		nt_json_number(tracer, "bpf_cpu_us", bpf_ns / 1000);
	nt_json_overhead(tracer, overhead->limit_ppm, overhead->share_ppm);
	nt_json_number(tracer, "max_resident_bytes", usage.ru_maxrss * 1024ULL);
	nt_json_number(tracer, "readers", state->server.readers);
	nt_json_number(tracer, "streaming", state->server.streaming);
	nt_json_number(tracer, "requests", state->server.requests);
	nt_json_number(tracer, "refused_requests", state->server.refused);
	nt_json_number(tracer, "dropped_readers", state->server.dropped);
	nt_json_number(tracer, "skipped_stalls", state->server.skipped);
	add_refusals(tracer, &state->server);
	json_object_object_add(o, "tracer", tracer);
}

/* Adds the connections that lost most time lately. */
static void add_top(struct json_object *o, const struct nt_daemon_state *state, unsigned int top)
{
	struct json_object *list = json_object_new_array();
	struct nt_connection **sorted;
	struct nt_window_half recent;
	size_t n;

	nt_window_sum(state->window, &recent);
	sorted = nt_aggregate_costly(&recent.stalls);
	n = sorted ? nt_aggregate_count(&recent.stalls) : 0;
	for (size_t i = 0; i < n && i < top; i++)
		json_object_array_add(list, nt_json_connection(sorted[i], state->session->stacks));
	free(sorted);
	nt_aggregate_clear(&recent.stalls);
	json_object_object_add(o, "connections", list);
	nt_json_number(o, "connections_span_us", (nt_now_ns() - recent.began_ns) / 1000);
}

/* Adds how many remedies `fix --keep` and `--pin` keep on this host, where the kernel lists them.
 */
static void add_kept(struct json_object *o, const struct nt_session *session)
{
	struct json_object *kept = json_object_new_object();
	uint64_t counts[NT_KEPT_REMEDIES];
	int err = nt_kept_count(session->kept, counts);

	for (enum nt_kept_remedy remedy = 0; !err && remedy < NT_KEPT_REMEDIES; remedy++)
		nt_json_number(kept, nt_kept_option(remedy), counts[remedy]);
	if (err)
		json_object_put(kept);
	else
		json_object_object_add(o, "kept", kept);
}

int nt_json_snapshot(FILE *out, const struct nt_daemon_state *state, unsigned int top, bool last)
{
	struct json_object *o = new_reply("snapshot");

	add_identity(o, state);
	nt_json_number(o, "stalls", state->stalls);
	nt_json_number(o, "excess_us", state->excess_ns / 1000);
	add_series(o, state->series, last);
	nt_json_flag(o, "by_cgroup", state->series->by_cgroup);
	nt_json_flag(o, "filtered", state->session->origin.filtered);
	add_limits(o, state);
	nt_json_totals(o, &state->counts);
	nt_json_dropped(o, &state->counts);
	add_tracer(o, state);
	nt_json_standby(o, &state->session->standby);
	add_kept(o, state->session);
	if (top)
		add_top(o, state, top);
	return nt_json_write(out, o);
}

int nt_json_health(FILE *out, const struct nt_daemon_state *state)
{
	struct json_object *o = new_reply("health");
	bool dropping = state->dropping_ns && nt_now_ns() < state->dropping_ns + DROPPING_NS;
	bool blind = state->session->overhead.steps > NT_DETACH_STEPS ||
		     state->session->standby.cannot_attach || state->session->standby.cannot_look;

	nt_json_string(o, "state", blind ? "blind" : dropping ? "dropping" : "ok");
	add_identity(o, state);
	nt_json_dropped(o, &state->counts);
	add_refusals(o, &state->server);
	nt_json_standby(o, &state->session->standby);
	return nt_json_write(out, o);
}

int nt_json_text(FILE *out, const char *text)
{
	struct json_object *o = new_reply("text");

	nt_json_string(o, "text", text);
	return nt_json_write(out, o);
}

int nt_json_stream_totals(FILE *out, const struct nt_session *session,
			  const struct nt_counts *counts, uint64_t span_ns)
{
	struct json_object *o = new_reply("totals");

	nt_json_time_now(o);
	nt_json_host(o, &session->origin);
	nt_json_number(o, "number", session->reported);
	nt_json_span(o, &session->origin, span_ns);
	nt_json_totals(o, counts);
	nt_json_dropped(o, counts);
	return nt_json_write(out, o);
}

int nt_json_streaming(FILE *out, const struct nt_daemon_state *state)
{
	const struct nt_session *session = state->session;
	struct json_object *o = new_reply("streaming");

	nt_json_time_now(o);
	nt_json_time_of_day(o, "started", state->started_day_ns);
	nt_json_origin(o, &session->origin);
	if (session->settings->max_late_acks)
		nt_json_late_acks(o, &session->origin);
	nt_json_number(o, "number", session->reported);
	return nt_json_write(out, o);
}
