// SPDX-License-Identifier: GPL-2.0
/* The client connects, and plays the rounds whose latency is the experiment. */
#include <unistd.h>

#include "lab.h"

static int client_network(struct lab_end *end, int peer_pid)
{
	int err;

	if (!end->plan->opt.over_veth)
		return 0;
	if (shape_has_middle(&end->plan->opt))
		err = net_veth_to_middle(LAB_CLIENT, getppid());
	else
		err = net_veth_create(peer_pid);
	return err ? err : net_veth_up(end->plan, LAB_CLIENT);
}

static int connect_one(struct lab_conn *c, uint16_t port)
{
	int err;

	c->fd = socket_new(c->end->plan);
	if (c->fd < 0)
		return c->fd;
	err = socket_before_connect(c);
	return err ? err : net_connect(c, port);
}

static int options_one(struct lab_conn *c)
{
	const struct lab_plan *plan = c->end->plan;
	int err = conn_options(c, plan->opt.nodelay);

	if (!err && plan->cork == CORK_FORGOTTEN)
		err = conn_setsockopt(c, TCP_CORK, 1);
	return err;
}

static int client_open(struct lab_end *end, uint16_t port)
{
	int err = end->plan->opt.over_veth ? net_veth_running(LAB_CLIENT) : 0;

	end->port = port;
	if (end->plan->opt.reconnect)
		return err;
	for (uint32_t i = 0; i < end->nr_conns && !err; i++)
		err = connect_one(&end->conn[i], port);
	if (!err)
		conns_order(end);
	for (uint32_t i = 0; i < end->nr_conns && !err; i++)
		err = options_one(&end->conn[i]);
	return err;
}

/* Switches to the other congestion control, and autocorking from on to off or back. */
static int change(struct lab_conn *c)
{
	bool odd = c->round % 2;
	int err = conn_setsockopt_cc(c, odd ? "reno" : "cubic");

	return err ? err : net_sysctl("net/ipv4/tcp_autocorking", odd ? "0" : "1");
}

static int set_nodelay(struct lab_conn *c, bool on)
{
	if (c->nodelay_now == on)
		return 0;
	c->nodelay_now = on;
	return conn_setsockopt(c, TCP_NODELAY, on);
}

static int set_cork(struct lab_conn *c, bool on)
{
	if (c->corked_now == on)
		return 0;
	c->corked_now = on;
	return conn_setsockopt(c, TCP_CORK, on);
}

static int round_before(struct lab_conn *c)
{
	const struct lab_options *opt = &c->end->plan->opt;
	enum lab_cork cork = c->turn.cork;
	int err = opt->reconnect ? connect_one(c, c->end->port) : 0;

	if (!err)
		err = ending_prepare(c);
	if (!err && opt->changing)
		err = change(c);
	if (!err)
		err = set_nodelay(c, c->turn.nodelay[LAB_CLIENT]);
	/* cork-forgotten has corked since the connection was made */
	if (!err && (c->end->plan->scenario->mixed || cork == CORK_ROUND))
		err = set_cork(c, cork != CORK_NONE);
	return err;
}

/* Does what the scenario has between the last write and the reply. */
static int round_between(struct lab_conn *c, struct lab_round *r)
{
	const struct lab_options *opt = &c->end->plan->opt;
	int err = 0;

	if (c->turn.cork == CORK_ROUND) {
		sleep_ns(c->turn.pause_ns);
		err = set_cork(c, false);
	}
	if (!err && opt->nodelay_while_held && still_held(c))
		err = set_nodelay(c, true);
	if (!err && opt->ending && c->round == opt->rounds)
		err = ending_do(c, r);
	return err;
}

static int round_after(struct lab_conn *c)
{
	if (!c->end->plan->opt.reconnect)
		return 0;
	/* The last connection stays, because the report at the end reads it. */
	return c->round == c->end->plan->opt.rounds ? 0 : conn_close(c);
}

static int client_round(struct lab_conn *c)
{
	struct lab_round *r = &c->rounds[c->round - 1];
	int err = round_before(c);

	if (err)
		return err;
	r->start_ns = now_ns();
	err = message_send(c, LAB_CLIENT);
	if (!err)
		err = round_between(c, r);
	if (!err && !r->closed)
		err = message_read(c, LAB_SERVER);
	r->end_ns = now_ns();
	return err ? err : round_after(c);
}

const struct lab_side_ops client_ops = {
	.name = "client",
	.network = client_network,
	.open = client_open,
	.round = client_round,
};
