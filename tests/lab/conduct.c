// SPDX-License-Identifier: GPL-2.0
/* Conducts a run from the first order to the result. */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "parent.h"

static int print_line(const char *line)
{
	if (puts(line) < 0 || fflush(stdout))
		return fail(-EPIPE, "cannot write to stdout: %s", strerror(errno));
	return 0;
}

static int print_json(struct json_object *o)
{
	int err = print_line(json_object_to_json_string_ext(
		o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));

	json_object_put(o);
	return err;
}

static struct json_object *get(struct json_object *o, const char *key)
{
	struct json_object *value = json_object_object_get(o, key);

	return value ? json_object_get(value) : NULL;
}

static void keep(struct json_object **at, struct json_object *value)
{
	if (!value)
		return;
	json_object_put(*at);
	*at = value;
}

static void keep_number(uint32_t *at, struct json_object *o, const char *key)
{
	struct json_object *value;

	if (json_object_object_get_ex(o, key, &value))
		*at = (uint32_t)json_object_get_int(value);
}

/* Takes an end's answer to an order and keeps what it tells. */
static int take_answer(struct lab_run *run, enum lab_side side)
{
	struct lab_child *child = &run->child[side];
	struct json_object *o, *pids;
	char *line;
	int err = child_line(run, side, &line);

	if (err)
		return err;
	o = json_tokener_parse(line);
	if (!o)
		return fail(-EPROTO, "the %s said '%.60s'", side_name[side], line);
	keep(&child->who, get(o, "who"));
	keep(&child->connections, get(o, "connections"));
	pids = get(o, "pids");
	if (pids)
		json_object_object_add(child->who, "pids", pids);
	keep_number(&child->port, o, "port");
	keep_number(&child->mss, o, "mss");
	json_object_put(o);
	return 0;
}

static void give_order(struct lab_run *run, enum lab_side side, enum lab_order_kind kind)
{
	struct lab_order order = {
		.kind = kind,
		.peer_pid = (uint32_t)run->child[!side].pid,
		.port = run->child[LAB_SERVER].port,
		.mss = run->child[LAB_SERVER].mss,
	};

	/* If the end is gone, waiting for its answer finds that out, and how it ended. */
	send(run->child[side].channel, &order, sizeof(order), MSG_NOSIGNAL);
}

static int order(struct lab_run *run, enum lab_side side, enum lab_order_kind kind)
{
	give_order(run, side, kind);
	return take_answer(run, side);
}

static int connect_both(struct lab_run *run)
{
	int err;

	give_order(run, LAB_SERVER, ORDER_CONNECT);
	err = order(run, LAB_CLIENT, ORDER_CONNECT);
	if (!err)
		err = take_answer(run, LAB_SERVER);
	if (err)
		return err;
	/* On the host's own loopback somebody else might have met the port. Behind a router that
	 * translates addresses the two ends call each other by other names. */
	if (!run->plan.opt.any_address && !json_object_equal(run->child[LAB_CLIENT].connections,
							     run->child[LAB_SERVER].connections))
		return fail(-EPROTO, "a stranger connected to the server: try again");
	return 0;
}

static void head(struct lab_run *run, struct json_object *o, const char *type)
{
	json_object_object_add(o, "type", json_object_new_string(type));
	json_object_object_add(o, "scenario", json_object_new_string(run->plan.scenario->name));
}

static int print_ready(struct lab_run *run)
{
	const struct lab_options *opt = &run->plan.opt;
	struct json_object *o = json_object_new_object();
	const char *over = opt->over_veth ? "veth" : "loopback";

	head(run, o, "ready");
	json_object_object_add(o, "family", json_object_new_int((int)opt->family));
	json_object_object_add(o, "over", json_object_new_string(over));
	json_object_object_add(o, "seed", json_object_new_int64((int64_t)opt->seed));
	for (size_t i = 0; i < LAB_SIDES; i++)
		json_object_object_add(o, side_name[i], json_object_get(run->child[i].who));
	if (run->child[LAB_CLIENT].connections)
		json_object_object_add(o, "connections",
				       json_object_get(run->child[LAB_CLIENT].connections));
	return print_json(o);
}

static int await_newline(struct lab_run *run)
{
	for (;;) {
		int err = child_await(run, STDIN_FILENO, LAB_UNSET);
		char c;

		if (err < 0)
			return err;
		if (read(STDIN_FILENO, &c, 1) != 1)
			return fail(-ECANCELED, "stdin ended before the newline that --wait "
						"waits for");
		if (c == '\n')
			return 0;
	}
}

static int start_both(struct lab_run *run, const sigset_t *mask)
{
	int err = 0;

	if (run->plan.opt.own_netns) {
		err = net_own_namespace();
		if (!err)
			err = net_loopback_up(&run->plan);
	}
	/* The parent's own namespace is the middle. */
	if (!err && shape_has_middle(&run->plan.opt))
		err = net_own_namespace();
	for (size_t i = 0; i < LAB_SIDES && !err; i++)
		err = child_start(run, (enum lab_side)i, mask);
	for (size_t i = 0; i < LAB_SIDES && !err; i++)
		err = take_answer(run, (enum lab_side)i);
	/* The client makes the veth pair, so its end comes first. */
	for (size_t i = 0; i < LAB_SIDES && !err; i++)
		err = order(run, (enum lab_side)i, ORDER_NETWORK);
	if (!err && shape_has_middle(&run->plan.opt))
		err = net_middle(&run->plan.opt);
	return err;
}

static int play_both(struct lab_run *run)
{
	/* The server reads before the client writes. */
	int err = order(run, LAB_SERVER, ORDER_PLAY);

	if (!err)
		err = order(run, LAB_CLIENT, ORDER_PLAY);
	if (!err)
		err = take_answer(run, LAB_CLIENT);
	if (!err)
		err = take_answer(run, LAB_SERVER);
	if (!err && run->plan.opt.linger_ns)
		err = child_await(run, -1, run->plan.opt.linger_ns);
	return err;
}

static bool is_event(const char *line)
{
	return !strncmp(line, "{\"type\":\"event\"", 15);
}

/* Events pass through as they are: parsing them would cost more than making them. */
static int take_report(struct lab_run *run, enum lab_side side)
{
	struct lab_child *child = &run->child[side];
	char *line;
	int err;

	for (;;) {
		err = child_line(run, side, &line);
		if (err)
			return err;
		if (!is_event(line))
			break;
		err = print_line(line);
		if (err)
			return err;
	}
	keep(&child->report, json_tokener_parse(line));
	return child->report ? 0 : fail(-EPROTO, "the %s's report is no JSON", side_name[side]);
}

static int finish_both(struct lab_run *run)
{
	struct json_object *o;
	int err = 0;

	/* Both read their counters now, before either closes. */
	for (size_t i = 0; i < LAB_SIDES; i++)
		give_order(run, (enum lab_side)i, ORDER_FINISH);
	for (size_t i = 0; i < LAB_SIDES && !err; i++)
		err = take_report(run, (enum lab_side)i);
	if (err)
		return err;
	o = json_object_new_object();
	head(run, o, "result");
	json_object_object_add(o, "connections",
			       json_object_get(run->child[LAB_CLIENT].connections));
	json_object_object_add(o, "rounds", get(run->child[LAB_CLIENT].report, "rounds"));
	for (size_t i = 0; i < LAB_SIDES; i++)
		json_object_object_add(o, side_name[i], get(run->child[i].report, "who"));
	return print_json(o);
}

/* Both ends leave by themselves; only then is nothing left behind. */
static int leave_both(struct lab_run *run)
{
	int err = 0;

	for (size_t i = 0; i < LAB_SIDES && err >= 0; i++)
		err = child_await(run, run->child[i].channel, LAB_UNSET);
	return err < 0 ? err : child_await_exits(run);
}

int conduct(struct lab_run *run, const sigset_t *mask)
{
	const struct lab_options *opt = &run->plan.opt;
	int err = start_both(run, mask);

	if (!err && !opt->late_connect)
		err = connect_both(run);
	if (!err)
		err = print_ready(run);
	if (!err && opt->wait)
		err = await_newline(run);
	if (!err && opt->late_connect)
		err = connect_both(run);
	if (!err)
		err = play_both(run);
	if (!err)
		err = finish_both(run);
	return err ? err : leave_both(run);
}
