// SPDX-License-Identifier: GPL-2.0
/* JSON Lines by userspace/nagletrace.schema.json. A key that does not apply is absent. */
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>
#include <time.h>

#include "advice.h"
#include "text.h"
#include "version.h"
#include "words.h"

#define SCHEMA 1

static void add_number(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

static void add_flag(struct json_object *o, const char *key, bool value)
{
	json_object_object_add(o, key, json_object_new_boolean(value));
}

static void add_string(struct json_object *o, const char *key, const char *value)
{
	if (value)
		json_object_object_add(o, key, json_object_new_string(value));
}

/* Text from outside: no program's name may break a line or the encoding. */
static void add_foreign(struct json_object *o, const char *key, const char *value, size_t length)
{
	char escaped[NT_ESCAPED_LEN(1024)];

	nt_escape(value, length < 1024 ? length : 1024, escaped, sizeof(escaped));
	add_string(o, key, escaped);
}

static void add_time(struct json_object *o, uint64_t mono_ns)
{
	int64_t ns = nt_time_of_day_ns(mono_ns);
	time_t seconds = ns / 1000000000;
	char date[32], text[48];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, sizeof(text), "%s.%06uZ", date, (unsigned int)(ns % 1000000000 / 1000));
	add_string(o, "time", text);
}

static void add_time_now(struct json_object *o)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	add_time(o, now.tv_sec * 1000000000ULL + now.tv_nsec);
}

static struct json_object *new_line(const char *type)
{
	struct json_object *o = json_object_new_object();

	add_string(o, "type", type);
	return o;
}

static int write_line(FILE *out, struct json_object *o)
{
	fputs(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
							JSON_C_TO_STRING_NOSLASHESCAPE),
	      out);
	fputc('\n', out);
	json_object_put(o);
	return nt_flush(out);
}

static void add_process(struct json_object *o, const struct nt_process *process, uint32_t tid)
{
	if (!process->tgid)
		return;
	add_number(o, "pid", process->tgid);
	if (tid)
		add_number(o, "tid", tid);
	add_foreign(o, "comm", process->comm, sizeof(process->comm));
	if (process->cgroup[0])
		add_foreign(o, "cgroup", process->cgroup, sizeof(process->cgroup));
}

static void add_tuple(struct json_object *o, const struct nt_tuple *tuple)
{
	char address[NT_ADDRESS_LEN];

	add_number(o, "netns", tuple->netns);
	add_number(o, "family", tuple->family == 10 ? 6 : 4);
	nt_format_address(tuple, true, address, sizeof(address));
	add_string(o, "local", address);
	nt_format_address(tuple, false, address, sizeof(address));
	add_string(o, "remote", address);
}

/* The live state of a socket. */
static void add_options(struct json_object *o, const struct nt_end *end)
{
	struct json_object *options = json_object_new_object();

	add_flag(options, "nodelay", end->nodelay);
	add_flag(options, "cork", end->cork);
	add_flag(options, "pingpong", end->pingpong);
	add_flag(options, "quickack", end->quick && !end->pingpong);
	json_object_object_add(o, "options", options);
}

static void add_hold(struct json_object *o, const struct nt_hold_part *hold)
{
	struct json_object *h = json_object_new_object();

	add_string(h, "reason", nt_hold_reason_word(hold->reason));
	add_string(h, "release", nt_release_word(hold->release));
	add_number(h, "bytes", hold->bytes);
	add_number(h, "in_flight_bytes", hold->in_flight_bytes);
	if (hold->writes)
		add_number(h, "writes", hold->writes);
	add_number(h, "mss", hold->mss);
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
	add_process(peer, &stall->peer, stall->side == NT_SIDE_RECEIVER ? r->sender.tid : 0);
	if (end->tuple.netns != nt_stall_self(stall)->tuple.netns)
		add_number(peer, "netns", end->tuple.netns);
	add_options(peer, end);
	if (stall->side == NT_SIDE_SENDER) {
		add_number(peer, "pending_ack_us", pending_us(&r->ack));
		add_string(peer, "end", nt_ack_end_word(r->ack.end));
		add_string(peer, "why", nt_ack_why_word(r->ack.why));
	} else {
		add_hold(peer, &r->hold);
	}
	json_object_object_add(o, "peer", peer);
}

static void add_pending_ack(struct json_object *o, const struct nt_ack_part *ack)
{
	struct json_object *p = json_object_new_object();

	add_number(p, "us", pending_us(ack));
	add_string(p, "end", nt_ack_end_word(ack->end));
	add_string(p, "why", nt_ack_why_word(ack->why));
	add_number(p, "bytes", ack->bytes);
	json_object_object_add(o, "pending_ack", p);
}

static void add_hex(struct json_object *o, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%" PRIx64, value);
	add_string(o, key, text);
}

static void add_stack(struct json_object *o, const struct nt_stall *stall, struct nt_stacks *stacks)
{
	const struct nt_frame *frames;
	struct json_object *list;
	size_t n;

	if (!stacks || stall->side != NT_SIDE_SENDER)
		return;
	n = nt_stacks_get(stacks, &stall->record, &frames);
	if (!n)
		return;
	list = json_object_new_array();
	for (size_t i = 0; i < n; i++) {
		struct json_object *frame = json_object_new_object();

		add_hex(frame, "ip", frames[i].ip);
		if (frames[i].module) {
			add_foreign(frame, "module", frames[i].module, strlen(frames[i].module));
			add_hex(frame, "offset", frames[i].offset);
		}
		if (frames[i].symbol)
			add_foreign(frame, "symbol", frames[i].symbol, strlen(frames[i].symbol));
		json_object_array_add(list, frame);
	}
	json_object_object_add(o, "stack", list);
}

int nt_json_start(FILE *out, const struct nt_tracer *tracer)
{
	struct json_object *o = new_line("start"), *missing = json_object_new_array();
	struct utsname name;

	uname(&name);
	add_number(o, "schema", SCHEMA);
	add_string(o, "version", NT_VERSION);
	add_string(o, "kernel", name.release);
	add_string(o, "hooks", nt_family_name(tracer->family));
	if (tracer->why[0])
		add_string(o, "hooks_because", tracer->why);
	add_string(o, "clock", "CLOCK_REALTIME");
	for (size_t i = 0; i < nt_n_hooks; i++)
		if (tracer->missing[i])
			json_object_array_add(missing, json_object_new_string(nt_hooks[i].target));
	json_object_object_add(o, "missing_hooks", missing);
	return write_line(out, o);
}

int nt_json_stall(FILE *out, const struct nt_stall *stall, struct nt_stacks *stacks)
{
	const struct nt_record *r = &stall->record;
	const struct nt_end *self = nt_stall_self(stall);
	struct json_object *o = new_line(stall->is_stall ? "stall" : "hold");

	add_string(o, "cause", nt_cause_word(r->cause));
	add_time(o, r->time_ns);
	add_string(o, "side", stall->side == NT_SIDE_SENDER ? "sender" : "receiver");
	add_string(o, "evidence", nt_evidence_word(r->evidence));
	add_number(o, "duration_us", stall->duration_ns / 1000);
	if (stall->is_stall)
		add_number(o, "excess_us", stall->excess_ns / 1000);
	if (stall->min_rtt_us)
		add_number(o, "min_rtt_us", stall->min_rtt_us);
	add_process(o, &stall->self, stall->tid);
	add_tuple(o, &self->tuple);
	add_string(o, "pattern", nt_pattern_word(r->pattern));
	add_options(o, self);
	if (stall->side == NT_SIDE_SENDER)
		add_hold(o, &r->hold);
	else
		add_pending_ack(o, &r->ack);
	add_peer(o, stall);
	add_stack(o, stall, stacks);
	return write_line(out, o);
}

static void add_counts(struct json_object *o, const char *key, const __u64 *counts, size_t n,
		       const char *(*word)(unsigned int), uint64_t divisor)
{
	struct json_object *table = json_object_new_object();

	for (size_t i = 0; i < n; i++)
		if (word(i))
			add_number(table, word(i), counts[i] / divisor);
	json_object_object_add(o, key, table);
}

static void add_totals(struct json_object *o, const struct nt_totals *t)
{
	struct json_object *totals = json_object_new_object();

	add_number(totals, "writes", t->writes);
	add_counts(totals, "holds", t->holds, NT_HOLD_REASONS, nt_hold_reason_word, 1);
	add_counts(totals, "hold_us", t->hold_ns, NT_HOLD_REASONS, nt_hold_reason_word, 1000);
	add_counts(totals, "releases", t->releases, NT_RELEASES, nt_release_word, 1);
	add_counts(totals, "delayed_acks", t->ack_ends, NT_ACK_ENDS, nt_ack_end_word, 1);
	json_object_object_add(o, "totals", totals);
}

static void add_lost(struct json_object *o, const struct nt_totals *t, unsigned long long recursion)
{
	struct json_object *lost = json_object_new_object();

	for (size_t i = 0; i < NT_LOST_WAYS; i++)
		add_number(lost, nt_lost_word(i), t->lost[i]);
	add_number(lost, "recursion", recursion);
	json_object_object_add(o, "lost", lost);
}

static struct json_object *connection_object(const struct nt_connection *c,
					     struct nt_stacks *stacks)
{
	struct json_object *o = json_object_new_object(), *evidence = json_object_new_object();
	unsigned int pattern = nt_connection_pattern(c);
	struct nt_advice advice;

	nt_advice_for(&c->last, pattern, &advice);
	add_string(o, "side", c->side == NT_SIDE_SENDER ? "sender" : "receiver");
	add_string(o, "cause", nt_cause_word(c->cause));
	add_process(o, &c->last.self, 0);
	add_tuple(o, &nt_stall_self(&c->last)->tuple);
	add_number(o, "stalls", c->count);
	add_number(o, "lost_us", c->lost_ns / 1000);
	add_number(o, "p50_us", nt_connection_percentile(c, 50) / 1000);
	add_number(o, "p99_us", nt_connection_percentile(c, 99) / 1000);
	add_number(o, "max_us", c->max_ns / 1000);
	add_number(evidence, "seen", c->seen);
	add_number(evidence, "inferred", c->count - c->seen);
	json_object_object_add(o, "evidence", evidence);
	add_string(o, "pattern", nt_pattern_word(pattern));
	add_string(o, "what", advice.pattern);
	add_string(o, "why", advice.why);
	add_string(o, "fix", advice.fix);
	if (c->last.peer.tgid) {
		struct json_object *peer = json_object_new_object();

		add_process(peer, &c->last.peer, 0);
		json_object_object_add(o, "peer", peer);
	}
	add_stack(o, &c->last, stacks);
	return o;
}

int nt_json_report(FILE *out, const struct nt_report *report)
{
	struct json_object *o = new_line("report"), *list = json_object_new_array();

	add_time_now(o);
	add_flag(o, "closing", report->closing);
	add_number(o, "span_us", report->span_ns / 1000);
	add_number(o, "stalls", report->stalls->stalls);
	add_number(o, "lost_us", report->stalls->lost_ns / 1000);
	nt_aggregate_sort(report->stalls);
	for (size_t i = 0; i < report->stalls->count; i++)
		json_object_array_add(
			list, connection_object(report->stalls->connections[i], report->stacks));
	json_object_object_add(o, "connections", list);
	add_number(o, "folded_stalls", report->stalls->folded);
	add_totals(o, &report->totals);
	add_lost(o, &report->totals, report->recursion_misses);
	return write_line(out, o);
}

int nt_json_lost(FILE *out, const struct nt_totals *totals, unsigned long long recursion_misses)
{
	struct json_object *o = new_line("lost");

	add_time_now(o);
	add_lost(o, totals, recursion_misses);
	return write_line(out, o);
}
