// SPDX-License-Identifier: GPL-2.0
/* Writes JSON Lines by userspace/output/nagletrace.schema.json. It leaves out a key that does not
 * apply. */
#include "output/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "terms/words.h"
#include "terms/tuple.h"
#include "output/advice.h"
#include "output/slow.h"
#include "output/timeline.h"
#include "version.h"

#define SCHEMA      1
#define MOST_GROUPS 100 /* in a report */

/* ---- parts ---- */

void nt_json_number(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

void nt_json_flag(struct json_object *o, const char *key, bool value)
{
	json_object_object_add(o, key, json_object_new_boolean(value));
}

void nt_json_string(struct json_object *o, const char *key, const char *value)
{
	if (value)
		json_object_object_add(o, key, json_object_new_string(value));
}

/* Adds text from outside: no program's name may break a line or the encoding. */
void nt_json_foreign(struct json_object *o, const char *key, const char *value, size_t length)
{
	char escaped[NT_ESCAPED_LEN(1024)];

	nt_escape(value, length < 1024 ? length : 1024, escaped, sizeof(escaped));
	nt_json_string(o, key, escaped);
}

void nt_json_time_of_day(struct json_object *o, const char *key, int64_t ns)
{
	char text[NT_UTC_LEN];

	nt_format_utc(ns, text);
	nt_json_string(o, key, text);
}

void nt_json_time(struct json_object *o, uint64_t mono_ns)
{
	nt_json_time_of_day(o, "time", nt_time_of_day_ns(mono_ns));
}

void nt_json_time_now(struct json_object *o)
{
	nt_json_time(o, nt_now_ns());
}

struct json_object *nt_json_new(const char *type)
{
	struct json_object *o = json_object_new_object();

	nt_json_string(o, "type", type);
	return o;
}

static int add_line(FILE *out, struct json_object *o)
{
	size_t length;
	const char *line = json_object_to_json_string_length(
		o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &length);

	/* text that was cut inside a character is not UTF-8, and the line would not be JSON */
	nt_write_json_escaped(out, line, length);
	fputc('\n', out);
	json_object_put(o);
	return 0;
}

int nt_json_write(FILE *out, struct json_object *o)
{
	add_line(out, o);
	return nt_flush(out);
}

void nt_json_process(struct json_object *o, const struct nt_process *process, uint32_t tid)
{
	if (!process->tgid)
		return;
	if (process->tgid > 0)
		nt_json_number(o, "pid", process->tgid);
	if (process->tgid > 0 && tid)
		nt_json_number(o, "tid", tid);
	nt_json_foreign(o, "comm", process->comm, sizeof(process->comm));
	if (process->cgroup[0])
		nt_json_foreign(o, "cgroup", process->cgroup, sizeof(process->cgroup));
	nt_json_container(o, &process->container);
}

void nt_json_cause(struct json_object *o, unsigned int cause, unsigned int reason)
{
	nt_json_string(o, "cause", nt_cause_word(cause));
	if (reason)
		nt_json_string(o, "reason", nt_hold_reason_word(reason));
}

void nt_json_container(struct json_object *o, const struct nt_container *container)
{
	if (container->id[0])
		nt_json_string(o, "container_id", container->id);
	if (container->pod_uid[0])
		nt_json_string(o, "pod_uid", container->pod_uid);
}

void nt_json_options(struct json_object *o, bool nodelay, bool cork, bool pingpong, bool quick)
{
	struct json_object *options = json_object_new_object();

	nt_json_flag(options, "nodelay", nodelay);
	nt_json_flag(options, "cork", cork);
	nt_json_flag(options, "pingpong", pingpong);
	nt_json_flag(options, "quickack", quick && !pingpong);
	json_object_object_add(o, "options", options);
}

static void add_family(struct json_object *o, const struct nt_tuple *tuple)
{
	nt_json_number(o, "family", tuple->family == AF_INET6 ? 6 : 4);
}

void nt_json_tuple(struct json_object *o, const struct nt_tuple *tuple)
{
	char address[NT_ADDRESS_LEN];

	nt_json_number(o, "netns", tuple->netns);
	add_family(o, tuple);
	nt_format_address(tuple, true, address, sizeof(address));
	nt_json_string(o, "local", address);
	nt_format_address(tuple, false, address, sizeof(address));
	nt_json_string(o, "remote", address);
}

static void add_hex(struct json_object *o, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%" PRIx64, value);
	nt_json_string(o, key, text);
}

/* Adds the call stack of the held write; nothing without --stacks. */
static void add_stack(struct json_object *o, const struct nt_stall *stall, struct nt_stacks *stacks)
{
	const struct nt_frame *frames;
	struct json_object *list;
	size_t n;

	if (!stacks || stall->side != NT_SIDE_SENDER)
		return;
	n = nt_stacks_get(stacks, stall->record.hold.stack_id, &frames);
	if (!n)
		return;
	list = json_object_new_array();
	for (size_t i = 0; i < n; i++) {
		struct json_object *frame = json_object_new_object();

		add_hex(frame, "ip", frames[i].ip);
		if (frames[i].module) {
			nt_json_foreign(frame, "module", frames[i].module,
					strlen(frames[i].module));
			add_hex(frame, "offset", frames[i].offset);
		}
		if (frames[i].symbol)
			nt_json_foreign(frame, "symbol", frames[i].symbol,
					strlen(frames[i].symbol));
		json_object_array_add(list, frame);
	}
	json_object_object_add(o, "stack", list);
}

static void add_counts(struct json_object *o, const char *key, const __u64 *counts, size_t n,
		       const char *(*word)(unsigned int), uint64_t divisor)
{
	struct json_object *table = json_object_new_object();

	for (size_t i = 0; i < n; i++)
		if (word(i))
			nt_json_number(table, word(i), counts[i] / divisor);
	json_object_object_add(o, key, table);
}

static void add_untraced(struct json_object *o, const struct nt_counts *counts)
{
	struct json_object *untraced = json_object_new_object();

	for (size_t i = 1; i < NT_UNTRACED_KINDS; i++)
		nt_json_number(untraced, nt_untraced_word(i), counts->untraced[i]);
	json_object_object_add(o, "untraced", untraced);
}

void nt_json_totals(struct json_object *o, const struct nt_counts *counts)
{
	struct json_object *totals = json_object_new_object(), *acks = json_object_new_object();
	const struct nt_totals *t = &counts->totals;

	nt_json_number(totals, "writes", t->writes);
	add_counts(totals, "stalls", t->stalls, NT_CAUSES, nt_cause_word, 1);
	add_counts(totals, "holds", t->holds, NT_HOLD_REASONS, nt_hold_reason_word, 1);
	add_counts(totals, "hold_us", t->hold_ns, NT_HOLD_REASONS, nt_hold_reason_word, 1000);
	add_counts(totals, "releases", t->releases, NT_RELEASES, nt_release_word, 1);
	nt_json_number(acks, nt_ack_release_word(NT_ACK_TIMER), t->delayed_acks);
	json_object_object_add(totals, "delayed_acks", acks);
	nt_json_number(totals, "contradicted", counts->contradicted);
	json_object_object_add(o, "totals", totals);
	if (counts->audited)
		nt_json_number(o, "unseen", counts->unseen);
	if (counts->untraced[NT_UNTRACED_KTLS] || counts->untraced[NT_UNTRACED_PACKETS])
		add_untraced(o, counts);
}

void nt_json_dropped(struct json_object *o, const struct nt_counts *counts)
{
	struct json_object *dropped = json_object_new_object(), *unnamed;

	for (size_t i = 0; i < NT_DROPPED_WAYS; i++)
		nt_json_number(dropped, nt_dropped_word(i), counts->totals.dropped[i]);
	nt_json_number(dropped, "recursion", counts->recursion_misses);
	nt_json_number(dropped, "owners", counts->unowned);
	json_object_object_add(o, "dropped", dropped);
	if (!counts->names)
		return;
	unnamed = json_object_new_object();
	for (size_t i = 1; i < NT_UNNAMED_REASONS; i++)
		nt_json_number(unnamed, nt_unnamed_word(i), counts->unnamed[i]);
	json_object_object_add(o, "unnamed_stacks", unnamed);
}

static void add_marked(struct json_object *o, const char *key, const bool marked[NT_MAX_HOOKS])
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < nt_n_hooks; i++)
		if (marked[i] && nt_hooks[i].how != NT_ATTACH_KRETPROBE)
			json_object_array_add(list, json_object_new_string(nt_hooks[i].target));
	json_object_object_add(o, key, list);
}

void nt_json_hooks(struct json_object *o, const struct nt_hook_set *hooks)
{
	nt_json_string(o, "hooks", nt_family_name(hooks->family));
	if (hooks->why[0])
		nt_json_string(o, "hooks_because", hooks->why);
	add_marked(o, "missing_hooks", hooks->missing);
}

void nt_json_detached(struct json_object *o, const struct nt_hook_set *hooks)
{
	add_marked(o, "detached_hooks", hooks->detached);
}

void nt_json_overhead(struct json_object *o, uint64_t limit_ppm, uint64_t share_ppm)
{
	if (!limit_ppm)
		return;
	nt_json_number(o, "share_ppm", share_ppm);
	nt_json_number(o, "limit_ppm", limit_ppm);
}

/* Makes an object with the state, and since when it is that. */
static struct json_object *standby_object(const struct nt_standby *standby)
{
	struct json_object *o = json_object_new_object();

	nt_json_string(o, "state", nt_standby_word(standby->state));
	nt_json_time_of_day(o, "since", nt_time_of_day_ns(standby->since_ns));
	return o;
}

void nt_json_standby(struct json_object *o, const struct nt_standby *s)
{
	uint64_t now_ns = nt_now_ns();
	struct json_object *standby;

	if (s->state == NT_STANDBY_OFF)
		return;
	standby = standby_object(s);
	nt_json_number(standby, "standby_us",
		       nt_standby_spent_ns(s, NT_STANDBY_WAITING, now_ns) / 1000);
	nt_json_number(standby, "attached_us",
		       nt_standby_spent_ns(s, NT_STANDBY_ATTACHED, now_ns) / 1000);
	nt_json_number(standby, "changes", s->changes);
	nt_json_number(standby, "false_alarms", s->false_alarms);
	nt_json_number(standby, "attach_failures", s->attach_failures);
	nt_json_number(standby, "looks", s->looks);
	nt_json_number(standby, "look_cpu_us", s->look_cpu_ns / 1000);
	nt_json_number(standby, "look_interval_us", s->slot_ns / 1000);
	nt_json_number(standby, "quiet_us", s->quiet_ns / 1000);
	nt_json_number(standby, "sampled_excess_us", s->sampled_excess_ns / 1000);
	json_object_object_add(o, "standby", standby);
}

/* Adds the state, and what was counted in the time of a report. */
static void add_standby_of_report(struct json_object *o, const struct nt_report *report)
{
	struct json_object *standby;

	if (!report->standby || report->standby->state == NT_STANDBY_OFF)
		return;
	standby = standby_object(report->standby);
	nt_json_number(standby, "attached_us", report->counts.attached_ns / 1000);
	nt_json_number(standby, "sampled_excess_us", report->counts.sampled_excess_ns / 1000);
	json_object_object_add(o, "standby", standby);
}

/* ---- the two ends of a stall ---- */

static const char *side_word(enum nt_side side)
{
	return side == NT_SIDE_SENDER ? "sender" : "receiver";
}

/* Makes one end of a stall. Of a far end that was not seen, it gives only the address. */
static struct json_object *new_end(const struct nt_stall *stall, enum nt_side side, uint32_t tid)
{
	const struct nt_end *end = nt_stall_end(stall, side);
	const struct nt_tuple *tuple =
		end->present ? &end->tuple : &nt_stall_end(stall, stall->side)->tuple;
	struct json_object *o = json_object_new_object();
	char address[NT_ADDRESS_LEN];

	nt_format_address(tuple, end->present, address, sizeof(address));
	nt_json_string(o, "address", address);
	if (end->present) {
		nt_json_number(o, "netns", tuple->netns);
		nt_json_process(o, nt_stall_process(stall, side), tid);
	}
	return o;
}

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
	if (hold->writes && hold->write_bytes)
		nt_json_number(h, "write_bytes", hold->write_bytes);
	if (hold->sent_one)
		nt_json_number(h, "sent_writes", 1);
	nt_json_number(h, "mss", hold->mss);
	json_object_object_add(o, "hold", h);
}

static void add_pending_ack(struct json_object *o, const struct nt_ack_part *ack, bool locked)
{
	struct json_object *p = json_object_new_object();

	nt_json_number(p, "duration_us", nt_pending_ack_ns(ack) / 1000);
	nt_json_string(p, "reason", nt_ack_reason_word(ack->reason));
	nt_json_string(p, "release", nt_ack_release_word(ack->release));
	if (ack->limit_us)
		nt_json_number(p, "limit_us", ack->limit_us);
	nt_json_number(p, "bytes", ack->bytes);
	if (locked)
		json_object_object_add(p, "locked", json_object_new_boolean(true));
	json_object_object_add(o, "pending_ack", p);
}

static struct json_object *sender_of(const struct nt_stall *stall, struct nt_stacks *stacks)
{
	const struct nt_end *end = &stall->record.sender;
	struct json_object *o = new_end(stall, NT_SIDE_SENDER, end->tid);

	if (end->present) {
		add_options(o, end);
		add_hold(o, &stall->record.hold);
		add_stack(o, stall, stacks);
	}
	return o;
}

/* Makes the receiver's end, without a thread: who waits may not be who reads. */
static struct json_object *receiver_of(const struct nt_stall *stall)
{
	const struct nt_end *end = &stall->record.receiver;
	struct json_object *o = new_end(stall, NT_SIDE_RECEIVER, 0);

	if (end->present) {
		add_options(o, end);
		add_pending_ack(o, &stall->record.ack, end->locked == NT_LOCK_UNSEEN);
	}
	return o;
}

/* Adds the time from the start of the hold to that of the pending ACK, if both ends were seen. */
static void add_order(struct json_object *o, const struct nt_record *r)
{
	int64_t after_ns = r->ack.begin_ns - r->hold.begin_ns;

	if (r->sender.present && r->receiver.present && r->ack.begin_ns && r->hold.begin_ns)
		json_object_object_add(o, "ack_after_hold_us",
				       json_object_new_int64(after_ns / 1000));
}

/* Makes an object of connections with one problem; its ends are those of the first. */
static struct json_object *new_group(const struct nt_group *group, struct nt_stacks *stacks)
{
	struct json_object *o = json_object_new_object(), *evidence = json_object_new_object();
	const struct nt_connection *c = group->connections[0];
	struct json_object *sender = new_end(&c->last, NT_SIDE_SENDER, 0);
	struct nt_advice advice;

	nt_advice_for(&c->last, group->pattern, &advice);
	nt_json_string(o, "side", side_word(c->key.side));
	nt_json_cause(o, c->key.cause, c->key.reason);
	add_family(o, &nt_stall_end(&c->last, c->last.side)->tuple);
	add_stack(sender, &c->last, stacks);
	json_object_object_add(o, "sender", sender);
	json_object_object_add(o, "receiver", new_end(&c->last, NT_SIDE_RECEIVER, 0));
	nt_json_number(o, "stalls", group->stalls);
	nt_json_number(o, "excess_us", group->excess_ns / 1000);
	nt_json_number(o, "p50_us", nt_percentile(group->connections, group->count, 50) / 1000);
	nt_json_number(o, "p99_us", nt_percentile(group->connections, group->count, 99) / 1000);
	nt_json_number(o, "max_us", group->max_ns / 1000);
	nt_json_number(evidence, "seen", group->seen);
	nt_json_number(evidence, "inferred", group->stalls - group->seen);
	json_object_object_add(o, "evidence", evidence);
	nt_json_string(o, "pattern", nt_pattern_word(group->pattern));
	nt_json_string(o, "pattern_text", advice.pattern);
	nt_json_string(o, "cause_text", advice.why);
	nt_json_string(o, "fix", advice.fix);
	return o;
}

struct json_object *nt_json_connection(struct nt_connection *c, struct nt_stacks *stacks)
{
	struct nt_group alone = nt_group_of(&c, 1);

	return new_group(&alone, stacks);
}

/* Adds connections with one problem together: those that lost most. */
static void add_groups(struct json_object *o, const char *key, const struct nt_aggregate *stalls,
		       struct nt_stacks *stacks)
{
	struct json_object *list = json_object_new_array(), *group;
	struct nt_groups groups;

	nt_groups_make(&groups, stalls);
	for (size_t i = 0; i < groups.count && i < MOST_GROUPS; i++) {
		group = new_group(&groups.list[i], stacks);
		nt_json_number(group, "connections", groups.list[i].count);
		nt_json_number(group, "processes", groups.list[i].processes);
		json_object_array_add(list, group);
	}
	nt_groups_free(&groups);
	json_object_object_add(o, key, list);
}

/* ---- records ---- */

static void add_id(struct json_object *o, const char *key, uint64_t id)
{
	char text[24];

	snprintf(text, sizeof(text), "%016" PRIx64, id);
	nt_json_string(o, key, text);
}

void nt_json_host(struct json_object *o, const struct nt_origin *origin)
{
	nt_json_foreign(o, "host", origin->host, strlen(origin->host));
	if (origin->boot_id[0])
		nt_json_foreign(o, "boot_id", origin->boot_id, strlen(origin->boot_id));
}

void nt_json_origin(struct json_object *o, const struct nt_origin *origin)
{
	nt_json_host(o, origin);
	add_id(o, "ack_key", nt_origin_key_id(origin));
}

void nt_json_span(struct json_object *o, const struct nt_origin *origin, uint64_t span_ns)
{
	nt_json_number(o, "span_us", span_ns / 1000);
	if (nt_origin_key_changed(origin, span_ns))
		nt_json_flag(o, "key_changed", true);
}

void nt_json_late_acks(struct json_object *o, const struct nt_origin *origin)
{
	nt_json_string(o, "late_acks", origin->all_late_acks ? "all" : "some");
	if (origin->all_late_acks)
		nt_json_string(o, "holds", origin->all_holds ? "all" : "late");
}

/* Adds by what other hosts' records of the same stall are found. */
static void add_links(struct json_object *o, const struct nt_stall *stall)
{
	if (stall->ack_id)
		add_id(o, "ack_id", stall->ack_id);
	if (!stall->origin)
		return;
	nt_json_host(o, stall->origin);
	nt_json_number(o, "number", stall->number);
}

static int write_start(FILE *out, const struct nt_hook_set *hooks, const struct nt_origin *origin,
		       bool late_acks, const char *timeline_cost)
{
	struct json_object *o = nt_json_new("start");
	struct utsname name;

	uname(&name);
	nt_json_number(o, "schema", SCHEMA);
	nt_json_string(o, "version", NT_VERSION);
	nt_json_string(o, "kernel", name.release);
	nt_json_hooks(o, hooks);
	nt_json_time_now(o);
	nt_json_string(o, "clock", "CLOCK_REALTIME");
	nt_json_origin(o, origin);
	if (late_acks)
		nt_json_late_acks(o, origin);
	nt_json_string(o, "timeline_cost", timeline_cost);
	return nt_json_write(out, o);
}

/* Makes a late ACK: of the sender it knows the address only. */
static struct json_object *late_ack(const struct nt_stall *stall)
{
	struct json_object *o = nt_json_new("late_ack");

	nt_json_time(o, stall->record.time_ns);
	add_family(o, &nt_stall_end(stall, stall->side)->tuple);
	add_links(o, stall);
	json_object_object_add(o, "sender", sender_of(stall, NULL));
	json_object_object_add(o, "receiver", receiver_of(stall));
	return o;
}

struct json_object *nt_json_stall(const struct nt_stall *stall, struct nt_stacks *stacks)
{
	const struct nt_record *r = &stall->record;
	struct json_object *o;

	if (nt_is_late_ack(stall))
		return late_ack(stall);
	o = nt_json_new(stall->is_stall ? "stall" : "hold");
	nt_json_cause(o, r->cause, nt_record_reason(r));
	nt_json_time(o, r->time_ns);
	nt_json_string(o, "side", side_word(stall->side));
	nt_json_string(o, "evidence", nt_evidence_word(r->evidence));
	nt_json_string(o, "pattern", nt_pattern_word(r->pattern));
	nt_json_number(o, "duration_us", stall->duration_ns / 1000);
	/* the other host may know that the ACK which ended a hold was late */
	if (stall->is_stall || (r->hold.way_us && !stall->contradicted))
		nt_json_number(o, "excess_us", stall->excess_ns / 1000);
	if (stall->min_rtt_us)
		nt_json_number(o, "min_rtt_us", stall->min_rtt_us);
	add_family(o, &nt_stall_end(stall, stall->side)->tuple);
	if (stall->contradicted)
		nt_json_flag(o, "contradicted", true);
	add_links(o, stall);
	json_object_object_add(o, "sender", sender_of(stall, stacks));
	json_object_object_add(o, "receiver", receiver_of(stall));
	add_order(o, r);
	return o;
}

static int write_stall(const struct nt_writer *writer, FILE *out, const struct nt_stall *stall,
		       struct nt_stacks *stacks)
{
	return add_line(out, nt_json_stall(stall, stacks));
}

static void add_slow_holds(struct json_object *o, const struct nt_report *report)
{
	const struct nt_slow_row *rows[NT_SLOW_ROWS];
	size_t n = nt_slow_choose(&report->counts, 0, rows);
	struct json_object *list = json_object_new_array();
	struct nt_process process;
	char advice[NT_SLOW_TEXT];

	for (size_t i = 0; i < n; i++) {
		const struct nt_slow *slow = &rows[i]->slow;
		struct json_object *row = json_object_new_object();

		nt_json_string(row, "reason", nt_hold_reason_word(rows[i]->key.reason));
		process = nt_slow_process(rows[i]);
		if (process.tgid > 0)
			nt_json_number(row, "pid", process.tgid);
		if (process.comm[0])
			nt_json_foreign(row, "comm", process.comm, sizeof(process.comm));
		nt_json_tuple(row, &slow->tuple);
		nt_json_number(row, "holds", slow->holds);
		nt_json_number(row, "hold_us", slow->duration_ns / 1000);
		nt_json_number(row, "mss", slow->mss);
		nt_json_number(row, "window_bytes", slow->window);
		nt_slow_advise(rows[i], advice);
		nt_json_string(row, "advice", advice);
		json_object_array_add(list, row);
	}
	json_object_object_add(o, "slow_holds", list);
}

static int write_report(const struct nt_writer *writer, FILE *out, const struct nt_report *report)
{
	struct json_object *o = nt_json_new("report"), *list = json_object_new_array();
	struct nt_connection **sorted = nt_aggregate_sorted(report->stalls);

	nt_json_time_now(o);
	nt_json_flag(o, "closing", report->closing);
	nt_json_host(o, report->origin);
	nt_json_number(o, "number", report->reported);
	nt_json_span(o, report->origin, report->span_ns);
	nt_json_number(o, "stalls", report->stalls->stalls);
	nt_json_number(o, "excess_us", report->stalls->excess_ns / 1000);
	for (size_t i = 0; sorted && i < nt_aggregate_count(report->stalls); i++)
		json_object_array_add(list, nt_json_connection(sorted[i], report->stacks));
	free(sorted);
	json_object_object_add(o, "connections", list);
	add_groups(o, "groups", report->stalls, report->stacks);
	if (report->behind)
		add_groups(o, "behind", report->behind, NULL);
	nt_json_number(o, "folded_stalls", report->stalls->folded);
	add_slow_holds(o, report);
	nt_json_totals(o, &report->counts);
	nt_json_dropped(o, &report->counts);
	add_standby_of_report(o, report);
	if (report->settings->max_overhead_ppm)
		nt_json_detached(o, report->hooks);
	return nt_json_write(out, o);
}

static int write_dropped(FILE *out, const struct nt_counts *counts)
{
	struct json_object *o = nt_json_new("dropped");

	nt_json_time_now(o);
	nt_json_dropped(o, counts);
	return nt_json_write(out, o);
}

static int write_overhead(FILE *out, uint64_t limit_ppm, uint64_t share_ppm,
			  const struct nt_hook_set *hooks)
{
	struct json_object *o = nt_json_new("overhead");

	nt_json_time_now(o);
	nt_json_overhead(o, limit_ppm, share_ppm);
	nt_json_detached(o, hooks);
	return nt_json_write(out, o);
}

const struct nt_writer nt_json_writer = {
	.writes_each_stall = true,
	.start = write_start,
	.stall = write_stall,
	.timeline_stall = write_stall,
	.timeline_line = nt_json_timeline_line,
	.report = write_report,
	.dropped = write_dropped,
	.overhead = write_overhead,
};
