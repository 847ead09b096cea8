// SPDX-License-Identifier: GPL-2.0
/* The client: connects, and plays the rounds whose latency is the experiment. */
#include <poll.h>
#include <string.h>

#include "lab.h"

static int client_network(struct lab_end *end, int peer_pid)
{
	int err;

	if (!end->plan->opt.over_veth)
		return 0;
	err = net_veth_create(peer_pid);
	return err ? err : net_veth_up(end->plan, LAB_CLIENT);
}

static int set_option(struct lab_conn *c, const char *what, int option, int value)
{
	int err = conn_setsockopt(c, option, value);

	return err ? fail(err, "client: cannot set %s %d: %s", what, value, strerror(-err)) : 0;
}

static int connect_one(struct lab_conn *c, uint16_t port)
{
	const struct lab_plan *plan = c->end->plan;
	const struct lab_options *opt = &plan->opt;
	int err = 0;

	c->fd = net_socket(plan);
	if (c->fd < 0)
		return c->fd;
	if (opt->mss)
		err = set_option(c, "TCP_MAXSEG", TCP_MAXSEG, (int)opt->mss);
	if (!err && opt->cc) {
		err = conn_setsockopt_cc(c);
		if (err)
			return fail(err, "client: cannot set --cc %s: %s", opt->cc, strerror(-err));
	}
	if (!err)
		err = net_connect(c, port);
	if (!err && (opt->nodelay || opt->nodelay_client))
		err = set_option(c, "TCP_NODELAY", TCP_NODELAY, 1);
	if (!err && plan->cork == CORK_FORGOTTEN)
		err = set_option(c, "TCP_CORK", TCP_CORK, 1);
	return err;
}

static int client_open(struct lab_end *end, uint16_t port)
{
	int err = end->plan->opt.over_veth ? net_veth_running(LAB_CLIENT) : 0;

	for (uint32_t i = 0; i < end->nr_conns && !err; i++)
		err = connect_one(&end->conn[i], port);
	return err;
}

/* False once the reply has begun: then nothing is held any more. */
static bool still_held(const struct lab_conn *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};

	return poll(&p, 1, (int)(LAB_HELD_NS / LAB_MSEC)) == 0;
}

static int round_before(struct lab_conn *c)
{
	int err = 0;

	if (c->nodelay_now)
		err = conn_setsockopt(c, TCP_NODELAY, 0);
	c->nodelay_now = false;
	if (!err && c->end->plan->cork == CORK_ROUND)
		err = conn_setsockopt(c, TCP_CORK, 1);
	return err;
}

/* What happens between the last write and the reply. */
static int round_between(struct lab_conn *c, struct lab_round *r)
{
	const struct lab_plan *plan = c->end->plan;
	int err = 0;

	if (plan->cork == CORK_ROUND) {
		sleep_ns(plan->opt.pause_ns);
		err = conn_setsockopt(c, TCP_CORK, 0);
	}
	if (!err && plan->opt.nodelay_while_held && still_held(c)) {
		err = conn_setsockopt(c, TCP_NODELAY, 1);
		c->nodelay_now = true;
	}
	if (!err && plan->opt.close_while_held && c->round == plan->opt.rounds) {
		still_held(c);
		err = conn_take_info(c);
		if (!err)
			err = conn_close(c);
		r->closed = true;
	}
	return err;
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
	return err;
}

const struct lab_side_ops client_ops = {
	.name = "client",
	.network = client_network,
	.open = client_open,
	.round = client_round,
};
