// SPDX-License-Identifier: GPL-2.0
#include "json_parts.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "advice.h"
#include "clock.h"
#include "text.h"
#include "words.h"

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

/* Text from outside: no program's name may break a line or the encoding. */
void nt_json_foreign(struct json_object *o, const char *key, const char *value, size_t length)
{
	char escaped[NT_ESCAPED_LEN(1024)];

	nt_escape(value, length < 1024 ? length : 1024, escaped, sizeof(escaped));
	nt_json_string(o, key, escaped);
}

void nt_json_time_of_day(struct json_object *o, const char *key, int64_t ns)
{
	time_t seconds = ns / 1000000000;
	char date[32], text[48];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, sizeof(text), "%s.%06uZ", date, (unsigned int)(ns % 1000000000 / 1000));
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

int nt_json_write(FILE *out, struct json_object *o)
{
	fputs(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
							JSON_C_TO_STRING_NOSLASHESCAPE),
	      out);
	fputc('\n', out);
	json_object_put(o);
	return nt_flush(out);
}

void nt_json_process(struct json_object *o, const struct nt_process *process, uint32_t tid)
{
	if (!process->tgid)
		return;
	nt_json_number(o, "pid", process->tgid);
	if (tid)
		nt_json_number(o, "tid", tid);
	nt_json_foreign(o, "comm", process->comm, sizeof(process->comm));
	if (process->cgroup[0])
		nt_json_foreign(o, "cgroup", process->cgroup, sizeof(process->cgroup));
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

void nt_json_tuple(struct json_object *o, const struct nt_tuple *tuple)
{
	char address[NT_ADDRESS_LEN];

	nt_json_number(o, "netns", tuple->netns);
	nt_json_number(o, "family", tuple->family == 10 ? 6 : 4);
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

void nt_json_stack(struct json_object *o, const struct nt_stall *stall, struct nt_stacks *stacks)
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

void nt_json_totals(struct json_object *o, const struct nt_totals *t)
{
	struct json_object *totals = json_object_new_object();

	nt_json_number(totals, "writes", t->writes);
	add_counts(totals, "stalls", t->stalls, NT_CAUSES, nt_cause_word, 1);
	add_counts(totals, "holds", t->holds, NT_HOLD_REASONS, nt_hold_reason_word, 1);
	add_counts(totals, "hold_us", t->hold_ns, NT_HOLD_REASONS, nt_hold_reason_word, 1000);
	add_counts(totals, "releases", t->releases, NT_RELEASES, nt_release_word, 1);
	add_counts(totals, "delayed_acks", t->ack_ends, NT_ACK_ENDS, nt_ack_end_word, 1);
	json_object_object_add(o, "totals", totals);
}

void nt_json_lost_counts(struct json_object *o, const struct nt_counts *counts)
{
	struct json_object *lost = json_object_new_object();

	for (size_t i = 0; i < NT_LOST_WAYS; i++)
		nt_json_number(lost, nt_lost_word(i), counts->totals.lost[i]);
	nt_json_number(lost, "recursion", counts->recursion_misses);
	json_object_object_add(o, "lost", lost);
}

void nt_json_hooks(struct json_object *o, const char *key, const bool marked[NT_MAX_HOOKS])
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < nt_n_hooks; i++)
		if (marked[i] && nt_hooks[i].how != NT_ATTACH_KRETPROBE)
			json_object_array_add(list, json_object_new_string(nt_hooks[i].target));
	json_object_object_add(o, key, list);
}

void nt_json_overhead_state(struct json_object *o, const struct nt_overhead *overhead)
{
	if (!overhead->limit_ppm)
		return;
	nt_json_number(o, "share_ppm", overhead->share_ppm);
	nt_json_number(o, "limit_ppm", overhead->limit_ppm);
}

struct json_object *nt_json_connection(const struct nt_connection *c, struct nt_stacks *stacks)
{
	struct json_object *o = json_object_new_object(), *evidence = json_object_new_object();
	unsigned int pattern = nt_connection_pattern(c);
	struct nt_advice advice;

	nt_advice_for(&c->last, pattern, &advice);
	nt_json_string(o, "side", c->key.side == NT_SIDE_SENDER ? "sender" : "receiver");
	nt_json_string(o, "cause", nt_cause_word(c->key.cause));
	nt_json_process(o, &c->last.self, 0);
	nt_json_tuple(o, &nt_stall_self(&c->last)->tuple);
	nt_json_number(o, "stalls", c->count);
	nt_json_number(o, "lost_us", c->lost_ns / 1000);
	nt_json_number(o, "p50_us", nt_connection_percentile(c, 50) / 1000);
	nt_json_number(o, "p99_us", nt_connection_percentile(c, 99) / 1000);
	nt_json_number(o, "max_us", c->max_ns / 1000);
	nt_json_number(evidence, "seen", c->seen);
	nt_json_number(evidence, "inferred", c->count - c->seen);
	json_object_object_add(o, "evidence", evidence);
	nt_json_string(o, "pattern", nt_pattern_word(pattern));
	nt_json_string(o, "what", advice.pattern);
	nt_json_string(o, "why", advice.why);
	nt_json_string(o, "fix", advice.fix);
	if (c->last.peer.tgid) {
		struct json_object *peer = json_object_new_object();

		nt_json_process(peer, &c->last.peer, 0);
		json_object_object_add(o, "peer", peer);
	}
	nt_json_stack(o, &c->last, stacks);
	return o;
}
