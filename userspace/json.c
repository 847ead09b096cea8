// SPDX-License-Identifier: GPL-2.0
/* JSON Lines by userspace/nagletrace.schema.json. A key that does not apply is absent. */
#include "report.h"

#include <stdlib.h>
#include <sys/utsname.h>

#include "json_parts.h"
#include "version.h"
#include "words.h"

#define SCHEMA 1

static void add_options(struct json_object *o, const struct nt_end *end)
{
	nt_json_options(o, end->nodelay, end->cork, end->pingpong, end->quick);
}

static void add_hold(struct json_object *o, const struct nt_hold_part *hold)
{
	struct json_object *h = json_object_new_object();

	nt_json_string(h, "reason", nt_hold_reason_word(hold->reason));
	nt_json_string(h, "release", nt_release_word(hold->release));
	nt_json_number(h, "bytes", hold->bytes);
	nt_json_number(h, "in_flight_bytes", hold->in_flight_bytes);
	if (hold->writes)
		nt_json_number(h, "writes", hold->writes);
	nt_json_number(h, "mss", hold->mss);
	json_object_object_add(o, "hold", h);
}

static uint64_t pending_us(const struct nt_ack_part *ack)
{
	return ack->end_ns > ack->begin_ns ? (ack->end_ns - ack->begin_ns) / 1000 : 0;
}

static void add_peer(struct json_object *o, const struct nt_stall *stall)
{
	const struct nt_record *r = &stall->record;
	const struct nt_end *end = nt_stall_peer(stall);
	struct json_object *peer;

	if (!end->present)
		return;
	peer = json_object_new_object();
	nt_json_process(peer, &stall->peer, stall->side == NT_SIDE_RECEIVER ? r->sender.tid : 0);
	if (end->tuple.netns != nt_stall_self(stall)->tuple.netns)
		nt_json_number(peer, "netns", end->tuple.netns);
	add_options(peer, end);
	if (stall->side == NT_SIDE_SENDER) {
		nt_json_number(peer, "pending_ack_us", pending_us(&r->ack));
		nt_json_string(peer, "end", nt_ack_end_word(r->ack.end));
		nt_json_string(peer, "why", nt_ack_why_word(r->ack.why));
	} else {
		add_hold(peer, &r->hold);
	}
	json_object_object_add(o, "peer", peer);
}

static void add_pending_ack(struct json_object *o, const struct nt_ack_part *ack)
{
	struct json_object *p = json_object_new_object();

	nt_json_number(p, "us", pending_us(ack));
	nt_json_string(p, "end", nt_ack_end_word(ack->end));
	nt_json_string(p, "why", nt_ack_why_word(ack->why));
	nt_json_number(p, "bytes", ack->bytes);
	json_object_object_add(o, "pending_ack", p);
}

int nt_json_start(FILE *out, const struct nt_tracer *tracer, const char *timeline_cost)
{
	struct json_object *o = nt_json_new("start");
	struct utsname name;

	uname(&name);
	nt_json_number(o, "schema", SCHEMA);
	nt_json_string(o, "version", NT_VERSION);
	nt_json_string(o, "kernel", name.release);
	nt_json_string(o, "hooks", nt_family_name(tracer->family));
	if (tracer->why[0])
		nt_json_string(o, "hooks_because", tracer->why);
	nt_json_string(o, "clock", "CLOCK_REALTIME");
	nt_json_hooks(o, "missing_hooks", tracer->missing);
	nt_json_string(o, "timeline_cost", timeline_cost);
	return nt_json_write(out, o);
}

int nt_json_stall(FILE *out, const struct nt_stall *stall, struct nt_stacks *stacks)
{
	const struct nt_record *r = &stall->record;
	const struct nt_end *self = nt_stall_self(stall);
	struct json_object *o = nt_json_new(stall->is_stall ? "stall" : "hold");

	nt_json_string(o, "cause", nt_cause_word(r->cause));
	nt_json_time(o, r->time_ns);
	nt_json_string(o, "side", stall->side == NT_SIDE_SENDER ? "sender" : "receiver");
	nt_json_string(o, "evidence", nt_evidence_word(r->evidence));
	nt_json_number(o, "duration_us", stall->duration_ns / 1000);
	if (stall->is_stall)
		nt_json_number(o, "excess_us", stall->excess_ns / 1000);
	if (stall->min_rtt_us)
		nt_json_number(o, "min_rtt_us", stall->min_rtt_us);
	nt_json_process(o, &stall->self, stall->tid);
	nt_json_tuple(o, &self->tuple);
	nt_json_string(o, "pattern", nt_pattern_word(r->pattern));
	add_options(o, self);
	if (stall->side == NT_SIDE_SENDER)
		add_hold(o, &r->hold);
	else
		add_pending_ack(o, &r->ack);
	add_peer(o, stall);
	nt_json_stack(o, stall, stacks);
	return nt_json_write(out, o);
}

int nt_json_report(FILE *out, const struct nt_report *report)
{
	struct json_object *o = nt_json_new("report"), *list = json_object_new_array();
	struct nt_connection **sorted = nt_aggregate_sorted(report->stalls);

	nt_json_time_now(o);
	nt_json_flag(o, "closing", report->closing);
	nt_json_number(o, "span_us", report->span_ns / 1000);
	nt_json_number(o, "stalls", report->stalls->stalls);
	nt_json_number(o, "lost_us", report->stalls->lost_ns / 1000);
	for (size_t i = 0; sorted && i < nt_aggregate_count(report->stalls); i++)
		json_object_array_add(list, nt_json_connection(sorted[i], report->stacks));
	free(sorted);
	json_object_object_add(o, "connections", list);
	nt_json_number(o, "folded_stalls", report->stalls->folded);
	nt_json_totals(o, &report->counts.totals);
	nt_json_lost_counts(o, &report->counts);
	if (report->opts->max_overhead_ppm)
		nt_json_hooks(o, "hooks_let_go", report->tracer->let_go);
	return nt_json_write(out, o);
}

int nt_json_lost(FILE *out, const struct nt_counts *counts)
{
	struct json_object *o = nt_json_new("lost");

	nt_json_time_now(o);
	nt_json_lost_counts(o, counts);
	return nt_json_write(out, o);
}

int nt_json_overhead(FILE *out, const struct nt_overhead *overhead, const struct nt_tracer *tracer)
{
	struct json_object *o = nt_json_new("overhead");

	nt_json_time_now(o);
	nt_json_overhead_state(o, overhead);
	nt_json_hooks(o, "hooks_let_go", tracer->let_go);
	return nt_json_write(out, o);
}
