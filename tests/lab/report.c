// SPDX-License-Identifier: GPL-2.0
/* An end answers each order of the parent with one line of JSON, and gives its results at the end.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab.h"

static const struct {
	const char *op;
	const char *name;
} calls[] = {
	[CALL_WRITE] = {"write", "write"},
	[CALL_WRITEV] = {"write", "writev"},
	[CALL_SENDMSG] = {"write", "sendmsg"},
	[CALL_SEND] = {"write", "send"},
	[CALL_SENDFILE] = {"write", "sendfile"},
	[CALL_SPLICE] = {"write", "splice"},
	[CALL_ZEROCOPY] = {"write", "send"},
	[CALL_IO_URING] = {"write", "io_uring"},
	[CALL_READ] = {"read", "read"},
	[CALL_SETSOCKOPT] = {"setsockopt", "setsockopt"},
	[CALL_SHUTDOWN] = {"shutdown", "shutdown"},
	[CALL_CLOSE] = {"close", "close"},
};

static const struct {
	int option;
	const char *name;
} option_names[] = {
	{TCP_NODELAY, "TCP_NODELAY"},       {TCP_CORK, "TCP_CORK"},
	{TCP_QUICKACK, "TCP_QUICKACK"},     {TCP_MAXSEG, "TCP_MAXSEG"},
	{TCP_CONGESTION, "TCP_CONGESTION"},
};

static const char *option_name(int option)
{
	for (size_t i = 0; i < ARRAY_SIZE(option_names); i++) {
		if (option_names[i].option == option)
			return option_names[i].name;
	}
	return "?";
}

static void add_number(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_int64((int64_t)value));
}

static void add_string(struct json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, json_object_new_string(value));
}

static int say(struct lab_end *end, struct json_object *o)
{
	const char *text = json_object_to_json_string_ext(
		o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	int err = text && dprintf(end->channel, "%s\n", text) > 0 ? 0 : -EIO;

	json_object_put(o);
	return err;
}

int say_step(struct lab_end *end, const char *step)
{
	struct json_object *o = json_object_new_object();

	add_string(o, "step", step);
	return say(end, o);
}

static struct json_object *pids_of(const struct lab_end *end)
{
	struct json_object *pids = json_object_new_array();

	for (uint32_t i = 0; i < end->nr_pids; i++)
		json_object_array_add(pids, json_object_new_int(end->pids[i]));
	return pids;
}

int say_up(struct lab_end *end)
{
	struct json_object *o = json_object_new_object();
	struct json_object *who = json_object_new_object();
	uint64_t inode = 0;
	int err = net_namespace_inode(&inode);

	add_number(who, "pid", (uint64_t)end->pids[0]);
	json_object_object_add(who, "pids", pids_of(end));
	add_number(who, "netns", inode);
	json_object_object_add(o, "who", who);
	add_number(o, "port", end->port);
	err = err ? err : say(end, o);
	return err;
}

static int add_connection(struct lab_conn *c, struct json_object *list)
{
	struct json_object *pair;
	char local[64], peer[64];
	int err = net_names(c, local, peer, sizeof(local));

	if (!err)
		err = conn_take_info(c);
	if (err)
		return err;
	pair = json_object_new_object();
	add_string(pair, "client", c->end->side == LAB_CLIENT ? local : peer);
	add_string(pair, "server", c->end->side == LAB_CLIENT ? peer : local);
	json_object_array_add(list, pair);
	return 0;
}

int say_connected(struct lab_end *end)
{
	struct json_object *o = json_object_new_object();
	struct json_object *list = json_object_new_array();
	int err = 0;

	/* With --reconnect there is no connection yet; the events tell their ports. */
	for (uint32_t i = 0; i < end->nr_conns && !err && !end->plan->opt.reconnect; i++)
		err = add_connection(&end->conn[i], list);
	json_object_object_add(o, "connections", list);
	json_object_object_add(o, "pids", pids_of(end));
	add_number(o, "mss", end->conn[end->nr_conns - 1].info.tcpi_snd_mss);
	if (!err)
		return say(end, o);
	json_object_put(o);
	return err;
}

static int by_start(const void *a, const void *b)
{
	const struct lab_event *x = a, *y = b;

	return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static struct json_object *event_json(const struct lab_end *end, const struct lab_event *e)
{
	struct json_object *o = json_object_new_object();

	add_string(o, "type", "event");
	add_string(o, "end", end->ops->name);
	add_number(o, "connection", e->connection);
	add_number(o, "round", e->round);
	add_string(o, "op", calls[e->call].op);
	add_string(o, "call", calls[e->call].name);
	if (e->flags & MSG_MORE)
		add_string(o, "flags", "MSG_MORE");
	if (e->call == CALL_SETSOCKOPT) {
		add_string(o, "option", option_name(e->option));
		if (e->text)
			add_string(o, "value", e->text);
		else
			add_number(o, "value", (uint64_t)e->value);
	} else if (e->bytes) {
		add_number(o, "bytes", (uint64_t)e->bytes);
	}
	if (e->port)
		add_number(o, "port", e->port);
	add_number(o, "offset", e->offset);
	add_number(o, "result", (uint64_t)e->result);
	add_number(o, "start_ns", e->start_ns);
	add_number(o, "end_ns", e->end_ns);
	add_number(o, "tid", (uint64_t)e->tid);
	return o;
}

static int say_events(struct lab_end *end)
{
	struct lab_event *all;
	size_t nr = 0, at = 0;
	int err = 0;

	for (uint32_t i = 0; i < end->nr_conns; i++)
		nr += end->conn[i].log.nr;
	if (!nr)
		return 0;
	all = malloc(nr * sizeof(*all));
	if (!all)
		return fail(-ENOMEM, "no memory to sort %zu events: play fewer rounds", nr);
	for (uint32_t i = 0; i < end->nr_conns; i++) {
		struct lab_log *log = &end->conn[i].log;

		if (log->nr)
			memcpy(all + at, log->event, log->nr * sizeof(*all));
		at += log->nr;
	}
	qsort(all, nr, sizeof(*all), by_start);
	for (size_t i = 0; i < nr && !err; i++)
		err = say(end, event_json(end, &all[i]));
	free(all);
	return err;
}

static struct json_object *rounds_json(const struct lab_end *end)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < end->nr_conns; i++) {
		const struct lab_conn *c = &end->conn[i];

		for (uint32_t n = 0; n < c->played; n++) {
			const struct lab_round *r = &c->rounds[n];
			struct json_object *o = json_object_new_object();
			double us = (double)(r->end_ns - r->start_ns) / 1000;
			char text[32];

			snprintf(text, sizeof(text), "%.1f", us);
			add_number(o, "connection", i);
			add_number(o, "round", n + 1);
			add_number(o, "start_ns", r->start_ns);
			json_object_object_add(o, "latency_us", json_object_new_double_s(us, text));
			if (r->closed)
				json_object_object_add(o, "closed", json_object_new_boolean(true));
			json_object_array_add(list, o);
		}
	}
	return list;
}

static struct json_object *info_json(const struct lab_end *end)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < end->nr_conns; i++) {
		const struct tcp_info *info = &end->conn[i].info;
		struct json_object *o = json_object_new_object();

		add_number(o, "connection", i);
		add_number(o, "rtt_us", info->tcpi_rtt);
		add_number(o, "min_rtt_us", info->tcpi_min_rtt);
		add_number(o, "segs_out", info->tcpi_segs_out);
		add_number(o, "data_segs_out", info->tcpi_data_segs_out);
		add_number(o, "bytes_sent", info->tcpi_bytes_sent);
		add_number(o, "total_retrans", info->tcpi_total_retrans);
		add_number(o, "snd_mss", info->tcpi_snd_mss);
		json_object_array_add(list, o);
	}
	return list;
}

int say_report(struct lab_end *end)
{
	struct json_object *o, *who, *counters;
	struct lab_counters after;
	int err = counters_read(&after);

	for (uint32_t i = 0; i < end->nr_conns && !err; i++)
		err = conn_take_info(&end->conn[i]);
	if (!err)
		err = say_events(end);
	if (err)
		return err;
	o = json_object_new_object();
	who = json_object_new_object();
	counters = json_object_new_object();
	for (uint32_t i = 0; i < LAB_COUNTERS; i++)
		add_number(counters, counters_name(i), after.value[i] - end->before.value[i]);
	add_number(who, "pid", (uint64_t)end->pids[0]);
	json_object_object_add(who, "pids", pids_of(end));
	json_object_object_add(who, "counters", counters);
	json_object_object_add(who, "tcp_info", info_json(end));
	json_object_object_add(o, "who", who);
	if (end->side == LAB_CLIENT)
		json_object_object_add(o, "rounds", rounds_json(end));
	return say(end, o);
}
