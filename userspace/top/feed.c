// SPDX-License-Identifier: GPL-2.0
#include "top/feed.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "protocol/answers.h"
#include "base/text.h"
#include "capture/processes.h"

/* Bounds the tree of one line. A connection takes some 6 KB, or 20 KB with 8 frames of a stack; 512
 * of them (NT_TOP_ROWS) take 10 MB. */
#define TREE_BYTES (24UL << 20)

/* ---- values of whatever type ---- */

static struct json_object *value_of(struct json_object *o, const char *key, json_type type)
{
	struct json_object *value = NULL;

	if (!json_object_is_type(o, json_type_object))
		return NULL;
	json_object_object_get_ex(o, key, &value);
	return json_object_is_type(value, type) ? value : NULL;
}

static uint64_t number_of(struct json_object *o, const char *key)
{
	int64_t number = json_object_get_int64(value_of(o, key, json_type_int));

	return number > 0 ? number : 0;
}

/* Copies a name; the daemon has escaped it already. */
static void text_of(struct json_object *o, const char *key, char *out, size_t size)
{
	struct json_object *value = value_of(o, key, json_type_string);

	out[0] = '\0';
	if (value)
		nt_escape_again(json_object_get_string(value), json_object_get_string_len(value),
				out, size);
}

/* Writes "java[4242]", or "kernel (cifsd)"; nothing where the line names no process. */
static void process_of(struct json_object *o, char *out, size_t size)
{
	char comm[NT_TOP_NAME - 24];

	out[0] = '\0';
	text_of(o, "comm", comm, sizeof(comm));
	nt_format_named(comm, number_of(o, "pid"), 0, out, size);
}

/* Converts "2026-11-20T20:15:03.123456Z" to the clock that the screen shows. */
static void take_clock(struct json_object *o, char out[NT_CLOCK_LEN])
{
	struct tm tm = {0};
	char text[NT_TOP_WORD];
	const char *rest;

	text_of(o, "time", text, sizeof(text));
	rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	out[0] = '\0';
	if (rest && *rest == '.')
		nt_format_clock(timegm(&tm), strtoul(rest + 1, NULL, 10), out);
}

/* ---- stalls ---- */

/* Returns the sender or the receiver of a stall or a connection; either may be missing. */
static struct json_object *end_of(struct json_object *o, bool sender)
{
	return value_of(o, sender ? "sender" : "receiver", json_type_object);
}

static bool key_of(struct json_object *o, struct nt_top_key *key)
{
	struct json_object *self, *peer;
	char side[NT_TOP_WORD], comm[NT_TOP_NAME];

	memset(key, 0, sizeof(*key));
	text_of(o, "side", side, sizeof(side));
	key->sender = !strcmp(side, "sender");
	self = end_of(o, key->sender);
	peer = end_of(o, !key->sender);
	key->pid = number_of(self, "pid");
	text_of(self, "comm", comm, sizeof(comm));
	if (!key->pid && comm[0]) /* a part of the kernel */
		key->pid = nt_kernel_tgid(comm, sizeof(comm));
	key->netns = number_of(self, "netns");
	text_of(self, "address", key->local, sizeof(key->local));
	text_of(peer, "address", key->remote, sizeof(key->remote));
	text_of(o, "cause", key->cause, sizeof(key->cause));
	text_of(o, "reason", key->reason, sizeof(key->reason));
	return key->local[0] && key->remote[0];
}

static void take_hold(struct nt_top_stall *stall, struct json_object *hold)
{
	if (!hold)
		return;
	stall->held = true;
	text_of(hold, "reason", stall->reason, sizeof(stall->reason));
	text_of(hold, "release", stall->release, sizeof(stall->release));
	stall->bytes = number_of(hold, "bytes");
	stall->in_flight = number_of(hold, "in_flight_bytes");
	stall->mss = number_of(hold, "mss");
}

static void take_ack(struct nt_top_stall *stall, struct json_object *ack)
{
	if (!value_of(ack, "duration_us", json_type_int))
		return;
	stall->pending = true;
	stall->ack_us = number_of(ack, "duration_us");
	stall->ack_bytes = number_of(ack, "bytes");
	stall->locked = value_of(ack, "locked", json_type_boolean);
	text_of(ack, "release", stall->ack_release, sizeof(stall->ack_release));
}

static void take_stall(struct nt_top_data *data, struct json_object *o)
{
	struct nt_top_stall stall = {.known = true};
	struct nt_top_key key;
	struct nt_top_row *row;

	if (!key_of(o, &key))
		return;
	row = nt_top_data_get(data, &key);
	if (!row)
		return;
	take_clock(o, stall.clock);
	stall.duration_us = number_of(o, "duration_us");
	take_hold(&stall, value_of(end_of(o, true), "hold", json_type_object));
	take_ack(&stall, value_of(end_of(o, false), "pending_ack", json_type_object));
	if (value_of(o, "ack_after_hold_us", json_type_int) && stall.held && stall.pending) {
		stall.ordered = true;
		stall.ack_after_us =
			json_object_get_int64(value_of(o, "ack_after_hold_us", json_type_int));
	}
	row->last = stall;
}

/* ---- snapshots ---- */

/* Names a frame as nt_format_frame() does. */
static void name_frame(struct json_object *frame, char *name, size_t size)
{
	char module[PATH_MAX], offset[NT_TOP_WORD];
	const char *file;

	text_of(frame, "symbol", name, size);
	if (name[0])
		return;
	text_of(frame, "module", module, sizeof(module));
	text_of(frame, "offset", offset, sizeof(offset));
	file = strrchr(module, '/');
	if (module[0])
		snprintf(name, size, "%.60s+%s", file ? file + 1 : module, offset);
	else
		text_of(frame, "ip", name, size);
}

/* Writes "write ← send_all ← main": as many frames as there is room for. */
static void take_stack(struct nt_top_row *row, struct json_object *list)
{
	row->where[0] = '\0';
	for (size_t i = 0; list && i < json_object_array_length(list) && i < NT_TOP_FRAMES; i++) {
		struct json_object *frame = json_object_array_get_idx(list, i);
		char name[NT_TOP_NAME];
		size_t at;

		name_frame(frame, name, sizeof(name));
		at = strlen(row->where);
		if (at + strlen(name) + sizeof(" ← ") > sizeof(row->where))
			return;
		snprintf(row->where + at, sizeof(row->where) - at, "%s%s", at ? " ← " : "", name);
	}
}

/* Computes the row's rate anew from its number of stalls by now_ns. */
static void count_stalls(struct nt_top_row *row, uint64_t now_ns, uint64_t stalls)
{
	const struct nt_top_mark now = {.ns = now_ns, .stalls = stalls};

	row->stalls = stalls;
	if (!row->older.ns || stalls < row->older.stalls) {
		row->older = row->newer = now; /* a new window began: keep the rate */
		return;
	}
	if (now_ns > row->older.ns)
		row->rate = (double)(stalls - row->older.stalls) * NT_SECOND_NS /
			    (now_ns - row->older.ns);
	if (now_ns >= row->newer.ns + NT_TOP_RATE_NS) {
		row->older = row->newer;
		row->newer = now;
	}
}

static void take_connection(struct nt_top_data *data, struct json_object *o, uint64_t now_ns)
{
	struct json_object *evidence = value_of(o, "evidence", json_type_object), *self;
	struct nt_top_row *row;
	struct nt_top_key key;

	if (!key_of(o, &key))
		return;
	row = nt_top_data_get(data, &key);
	if (!row)
		return;
	self = end_of(o, key.sender);
	count_stalls(row, now_ns, number_of(o, "stalls"));
	row->excess_us = number_of(o, "excess_us");
	row->p50_us = number_of(o, "p50_us");
	row->p99_us = number_of(o, "p99_us");
	row->max_us = number_of(o, "max_us");
	row->seen = number_of(evidence, "seen");
	row->inferred = number_of(evidence, "inferred");
	text_of(self, "comm", row->comm, sizeof(row->comm));
	text_of(self, "cgroup", row->cgroup, sizeof(row->cgroup));
	text_of(self, "container_id", row->container.id, sizeof(row->container.id));
	text_of(self, "pod_uid", row->container.pod_uid, sizeof(row->container.pod_uid));
	text_of(o, "pattern", row->pattern, sizeof(row->pattern));
	text_of(o, "pattern_text", row->what, sizeof(row->what));
	text_of(o, "cause_text", row->why, sizeof(row->why));
	text_of(o, "fix", row->fix, sizeof(row->fix));
	process_of(end_of(o, !key.sender), row->peer, sizeof(row->peer));
	take_stack(row, value_of(end_of(o, true), "stack", json_type_array));
}

/* Says whether two consecutive snapshots lacked the row. */
static bool is_stale(const struct nt_top_row *row)
{
	return row->missed >= 2;
}

static bool is_missed(const struct nt_top_row *row)
{
	return row->missed > 0;
}

/* Says whether a stall added the row and no snapshot has had it yet. */
static bool is_untold(const struct nt_top_row *row)
{
	return row->missed && !row->stalls;
}

static void drop(struct nt_top_data *data, bool (*which)(const struct nt_top_row *row))
{
	size_t kept = 0;

	for (size_t i = 0; i < data->count; i++) {
		if (which(&data->rows[i]))
			continue;
		if (kept != i)
			data->rows[kept] = data->rows[i];
		kept++;
	}
	data->count = kept;
}

static void take_connections(struct nt_top_data *data, struct json_object *list, size_t n,
			     uint64_t now_ns)
{
	struct nt_top_row *row;
	struct nt_top_key key;
	size_t more = 0;

	for (size_t i = 0; i < data->count; i++)
		data->rows[i].missed++;
	for (size_t i = 0; i < n; i++) {
		if (!key_of(json_object_array_get_idx(list, i), &key))
			continue;
		row = nt_top_data_find(data, &key);
		if (row)
			row->missed = 0;
		else
			more++;
	}
	/* rows that this snapshot lacks make way: first those that none has had yet */
	if (data->count + more > NT_TOP_MOST_ROWS)
		drop(data, is_untold);
	if (data->count + more > NT_TOP_MOST_ROWS)
		drop(data, is_missed);
	for (size_t i = 0; i < n; i++)
		take_connection(data, json_object_array_get_idx(list, i), now_ns);
	drop(data, is_stale);
}

static uint64_t sum_of(struct json_object *o)
{
	uint64_t sum = 0;

	if (!o)
		return 0;
	json_object_object_foreach(o, key, value)
	{
		sum += number_of(o, key);
	}
	return sum;
}

/* Counts what nt_counts_dropped() does: a stall without its stack or its process is no dropped one,
 * and what a limit leaves out found no lack of room. */
static uint64_t records_dropped(struct json_object *dropped)
{
	return sum_of(dropped) - number_of(dropped, "stack") - number_of(dropped, "owners") -
	       number_of(dropped, "late_ack_limit");
}

static size_t length_of(struct json_object *o, const char *key)
{
	struct json_object *list = value_of(o, key, json_type_array);

	return list ? json_object_array_length(list) : 0;
}

/* Takes the totals, also of what did not stall: they help to rule Nagle out. */
static void take_totals(struct nt_top_data *data, struct json_object *totals)
{
	data->writes = number_of(totals, "writes");
	data->holds = sum_of(value_of(totals, "holds", json_type_object));
	data->delayed_acks = sum_of(value_of(totals, "delayed_acks", json_type_object));
}

static void take_snapshot(struct nt_top_data *data, struct json_object *o, uint64_t now_ns)
{
	struct json_object *list = value_of(o, "connections", json_type_array);
	size_t n = length_of(o, "connections");
	char started[NT_TOP_WORD], state[NT_TOP_WORD] = "";

	text_of(value_of(o, "standby", json_type_object), "state", state, sizeof(state));
	data->in_standby = !strcmp(state, "standby");
	text_of(o, "started", started, sizeof(started));
	if (data->any && strcmp(started, data->started)) { /* another daemon counts from zero */
		nt_top_rates_break(&data->rates);
		for (size_t i = 0; i < data->count; i++)
			data->rows[i].older.ns = 0;
	}
	snprintf(data->started, sizeof(data->started), "%s", started);
	data->any = true;
	text_of(o, "kernel", data->kernel, sizeof(data->kernel));
	text_of(o, "hooks", data->hooks, sizeof(data->hooks));
	data->uptime_us = number_of(o, "uptime_us");
	data->stalls = number_of(o, "stalls");
	data->excess_us = number_of(o, "excess_us");
	data->span_us = number_of(o, "connections_span_us");
	data->records_dropped = records_dropped(value_of(o, "dropped", json_type_object));
	data->missing_hooks = length_of(o, "missing_hooks") + length_of(o, "detached_hooks");
	data->full = n >= NT_TOP_ROWS;
	if (n > NT_TOP_ROWS)
		n = NT_TOP_ROWS;
	take_totals(data, value_of(o, "totals", json_type_object));
	nt_top_rates_add(&data->rates, now_ns, data->stalls);
	take_connections(data, list, n, now_ns);
}

/* ---- lines ---- */

enum nt_top_fed nt_top_feed(struct nt_top_data *data, struct json_object *o, uint64_t now_ns)
{
	char type[NT_TOP_WORD];

	text_of(o, "type", type, sizeof(type));
	if (!strcmp(type, "stall")) {
		take_stall(data, o);
		return NT_TOP_FED_STALL;
	}
	if (strcmp(type, "snapshot"))
		return NT_TOP_FED_OTHER;
	take_snapshot(data, o, now_ns);
	return NT_TOP_FED_SNAPSHOT;
}

enum nt_top_fed nt_top_feed_line(struct nt_top_data *data, char *line, size_t length,
				 uint64_t now_ns, char *err, size_t err_size)
{
	/* the screen shows neither series nor frames further out */
	static const struct nt_json_trim trims[] = {{"series", 0}, {"stack", NT_TOP_FRAMES}};
	struct nt_answer answer;
	struct json_object *o;
	enum nt_top_fed fed;

	if (nt_answer_parse(line, length, trims, sizeof(trims) / sizeof(trims[0]), &answer, err,
			    err_size))
		return NT_TOP_FED_WRONG;
	o = answer.tree_bytes > TREE_BYTES ? NULL : json_tokener_parse(line);
	if (!o) {
		snprintf(err, err_size, "the daemon's answer has too much in it; is it one?");
		return NT_TOP_FED_WRONG;
	}
	fed = nt_top_feed(data, o, now_ns);
	json_object_put(o);
	return fed;
}
