// SPDX-License-Identifier: GPL-2.0
#include "top_feed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "request.h"
#include "text.h"

#define MAX_DEPTH  16
#define MAX_FRAMES 8 /* of a stack, as reports show it */

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

/* The daemon has escaped names once already. */
static void text_of(struct json_object *o, const char *key, char *out, size_t size)
{
	struct json_object *value = value_of(o, key, json_type_string);

	out[0] = '\0';
	if (value)
		nt_escape_again(json_object_get_string(value), json_object_get_string_len(value),
				out, size);
}

/* "java[4242]"; nothing where no process is named. */
static void process_of(struct json_object *o, char *out, size_t size)
{
	char comm[NT_TOP_NAME - 24];

	out[0] = '\0';
	if (!number_of(o, "pid"))
		return;
	text_of(o, "comm", comm, sizeof(comm));
	snprintf(out, size, "%s[%" PRIu64 "]", comm, number_of(o, "pid"));
}

/* "2026-11-20T20:15:03.123456Z" as the clock here shows it. */
static void clock_of(struct json_object *o, char out[16])
{
	char text[NT_TOP_WORD], hms[12];
	const char *rest;
	struct tm tm = {0};
	time_t seconds;

	text_of(o, "time", text, sizeof(text));
	rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	out[0] = '\0';
	if (!rest || *rest != '.')
		return;
	seconds = timegm(&tm);
	localtime_r(&seconds, &tm);
	strftime(hms, sizeof(hms), "%H:%M:%S", &tm);
	snprintf(out, 16, "%s%.4s", hms, rest);
}

/* ---- stalls ---- */

static bool key_of(struct json_object *o, struct nt_top_key *key)
{
	char side[NT_TOP_WORD];

	memset(key, 0, sizeof(*key));
	text_of(o, "side", side, sizeof(side));
	key->pid = number_of(o, "pid");
	key->netns = number_of(o, "netns");
	key->sender = !strcmp(side, "sender");
	text_of(o, "local", key->local, sizeof(key->local));
	text_of(o, "remote", key->remote, sizeof(key->remote));
	text_of(o, "cause", key->cause, sizeof(key->cause));
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

/* Ours is told as `pending_ack`, the peer's among what is said of the peer. */
static void take_ack(struct nt_top_stall *stall, struct json_object *ack, const char *us)
{
	if (!value_of(ack, us, json_type_int))
		return;
	stall->put_off = true;
	stall->ack_us = number_of(ack, us);
	stall->ack_bytes = number_of(ack, "bytes");
	text_of(ack, "end", stall->ack_end, sizeof(stall->ack_end));
}

static void take_stall(struct nt_top_data *data, struct json_object *o)
{
	struct json_object *peer = value_of(o, "peer", json_type_object);
	struct nt_top_stall stall = {.known = true};
	struct nt_top_key key;
	struct nt_top_row *row;

	if (!key_of(o, &key))
		return;
	row = nt_top_data_get(data, &key);
	if (!row)
		return;
	clock_of(o, stall.clock);
	stall.duration_us = number_of(o, "duration_us");
	take_hold(&stall, value_of(key.sender ? o : peer, "hold", json_type_object));
	if (key.sender)
		take_ack(&stall, peer, "pending_ack_us");
	else
		take_ack(&stall, value_of(o, "pending_ack", json_type_object), "us");
	if (value_of(o, "ack_after_hold_us", json_type_int) && stall.held && stall.put_off) {
		stall.ordered = true;
		stall.ack_after_us =
			json_object_get_int64(value_of(o, "ack_after_hold_us", json_type_int));
	}
	row->last = stall;
}

/* ---- snapshots ---- */

/* "write ← send_all ← main", as far as frames have names. */
static void take_stack(struct nt_top_row *row, struct json_object *list)
{
	size_t at = 0;

	row->where[0] = '\0';
	for (size_t i = 0; list && i < json_object_array_length(list) && i < MAX_FRAMES; i++) {
		struct json_object *frame = json_object_array_get_idx(list, i);
		char name[NT_TOP_NAME];

		text_of(frame, "symbol", name, sizeof(name));
		if (!name[0])
			text_of(frame, "ip", name, sizeof(name));
		if (at + strlen(name) + sizeof(" ← ") > sizeof(row->where))
			return;
		at += snprintf(row->where + at, sizeof(row->where) - at, "%s%s", at ? " ← " : "",
			       name);
	}
}

/* Rows that stalls made can take all the room there is; what the snapshot tells goes first. */
static void make_way(struct nt_top_data *data, struct json_object *list, size_t n)
{
	struct nt_top_row *row;
	struct nt_top_key key;
	size_t more = 0;

	for (size_t i = 0; i < n; i++) {
		if (!key_of(json_object_array_get_idx(list, i), &key))
			continue;
		row = nt_top_data_find(data, &key);
		if (row)
			row->missed = 0;
		else
			more++;
	}
	nt_top_data_make_way(data, more);
}

static void take_connection(struct nt_top_data *data, struct json_object *o, uint64_t now_ns)
{
	struct json_object *evidence = value_of(o, "evidence", json_type_object);
	struct nt_top_row *row;
	struct nt_top_key key;

	if (!key_of(o, &key))
		return;
	row = nt_top_data_get(data, &key);
	if (!row)
		return;
	nt_top_row_count(row, now_ns, number_of(o, "stalls"));
	row->lost_us = number_of(o, "lost_us");
	row->p50_us = number_of(o, "p50_us");
	row->p99_us = number_of(o, "p99_us");
	row->max_us = number_of(o, "max_us");
	row->seen = number_of(evidence, "seen");
	row->inferred = number_of(evidence, "inferred");
	text_of(o, "comm", row->comm, sizeof(row->comm));
	text_of(o, "cgroup", row->cgroup, sizeof(row->cgroup));
	text_of(o, "pattern", row->pattern, sizeof(row->pattern));
	text_of(o, "what", row->what, sizeof(row->what));
	text_of(o, "why", row->why, sizeof(row->why));
	text_of(o, "fix", row->fix, sizeof(row->fix));
	process_of(value_of(o, "peer", json_type_object), row->peer, sizeof(row->peer));
	take_stack(row, value_of(o, "stack", json_type_array));
}

static uint64_t sum_of(struct json_object *o)
{
	uint64_t sum = 0;

	if (!o)
		return 0;
	json_object_object_foreach(o, key, value)
	{
		(void)value;
		sum += number_of(o, key);
	}
	return sum;
}

static size_t length_of(struct json_object *o, const char *key)
{
	struct json_object *list = value_of(o, key, json_type_array);

	return list ? json_object_array_length(list) : 0;
}

/* Ruling Nagle out is half the use: what there was that did not stall. */
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
	char started[NT_TOP_WORD];

	text_of(o, "started", started, sizeof(started));
	if (data->any && strcmp(started, data->started))
		nt_top_rates_break(&data->rates); /* another daemon counts from zero */
	snprintf(data->started, sizeof(data->started), "%s", started);
	data->any = true;
	text_of(o, "kernel", data->kernel, sizeof(data->kernel));
	text_of(o, "hooks", data->hooks, sizeof(data->hooks));
	data->uptime_us = number_of(o, "uptime_us");
	data->stalls = number_of(o, "stalls");
	data->lost_us = number_of(o, "lost_us");
	data->span_us = number_of(o, "connections_span_us");
	data->records_lost = sum_of(value_of(o, "lost", json_type_object));
	data->missing_hooks = length_of(o, "missing_hooks") + length_of(o, "hooks_let_go");
	data->full = n >= NT_TOP_ROWS;
	if (n > NT_TOP_ROWS)
		n = NT_TOP_ROWS;
	take_totals(data, value_of(o, "totals", json_type_object));
	nt_top_rates_add(&data->rates, now_ns, data->stalls);
	for (size_t i = 0; i < data->count; i++)
		data->rows[i].missed++;
	make_way(data, list, n);
	for (size_t i = 0; i < n; i++)
		take_connection(data, json_object_array_get_idx(list, i), now_ns);
	nt_top_data_sweep(data);
}

/* ---- lines ---- */

static enum nt_top_fed wrong_protocol(struct json_object *o, char *err, size_t size)
{
	snprintf(err, size,
		 "the daemon speaks protocol %" PRIu64 ", this nagletrace %d; "
		 "use the nagletrace that came with it",
		 number_of(o, "protocol"), NT_PROTOCOL);
	return NT_TOP_FED_WRONG;
}

enum nt_top_fed nt_top_feed(struct nt_top_data *data, struct json_object *o, uint64_t now_ns,
			    char *err, size_t err_size)
{
	char type[NT_TOP_WORD], text[NT_REQUEST_TEXT];

	text_of(o, "type", type, sizeof(type));
	if (!type[0]) {
		snprintf(err, err_size, "what answers is no nagletrace daemon; give its --socket");
		return NT_TOP_FED_WRONG;
	}
	if (!strcmp(type, "stall")) {
		take_stall(data, o);
		return NT_TOP_FED_STALL;
	}
	if (!strcmp(type, "error")) {
		text_of(o, "error", text, sizeof(text));
		snprintf(err, err_size, "the daemon says: %s", text);
		return NT_TOP_FED_WRONG;
	}
	if (number_of(o, "protocol") != NT_PROTOCOL)
		return wrong_protocol(o, err, err_size);
	if (strcmp(type, "snapshot"))
		return NT_TOP_FED_OTHER;
	take_snapshot(data, o, now_ns);
	return NT_TOP_FED_SNAPSHOT;
}

enum nt_top_fed nt_top_feed_line(struct nt_top_data *data, const char *line, size_t length,
				 uint64_t now_ns, char *err, size_t err_size)
{
	struct json_tokener *tokener = json_tokener_new_ex(MAX_DEPTH);
	struct json_object *o = NULL;
	enum nt_top_fed fed;

	/* the NUL that ends the line tells the tokener that a number is over */
	if (tokener && length < INT32_MAX)
		o = json_tokener_parse_ex(tokener, line, length + 1);
	fed = nt_top_feed(data, o, now_ns, err, err_size);
	json_object_put(o);
	if (tokener)
		json_tokener_free(tokener);
	return fed;
}
