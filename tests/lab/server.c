// SPDX-License-Identifier: GPL-2.0
/* The server accepts, reads each request to its end, thinks and replies. */
#include <string.h>
#include <unistd.h>

#include "lab.h"

static int server_network(struct lab_end *end, int peer_pid)
{
	int err = 0;

	if (shape_has_middle(&end->plan->opt))
		err = net_veth_to_middle(LAB_SERVER, getppid());
	if (!err && end->plan->opt.over_veth)
		err = net_veth_up(end->plan, LAB_SERVER);
	if (!err && end->plan->opt.over_veth && !shape_has_middle(&end->plan->opt))
		err = net_veth_running(LAB_SERVER);
	return err ? err : net_listen(end);
}

static int accept_one(struct lab_conn *c)
{
	const struct lab_options *opt = &c->end->plan->opt;

	c->fd = accept4(c->end->listener, NULL, NULL,
			SOCK_CLOEXEC | (opt->epoll ? SOCK_NONBLOCK : 0));
	if (c->fd < 0)
		return fail(-errno, "server: cannot accept: %s", strerror(errno));
	c->sent = c->received = 0;
	c->port = net_port(c->fd, true);
	return 0;
}

static int options_one(struct lab_conn *c)
{
	const struct lab_options *opt = &c->end->plan->opt;
	int err = conn_options(c, opt->nodelay || opt->nodelay_server);

	if (!err && opt->quickack_off)
		err = conn_setsockopt(c, TCP_QUICKACK, 0);
	return err;
}

static int server_open(struct lab_end *end, uint16_t port)
{
	int err = 0;

	if (end->plan->opt.reconnect)
		return 0;
	for (uint32_t i = 0; i < end->nr_conns && !err; i++)
		err = accept_one(&end->conn[i]);
	close(end->listener);
	end->listener = -1;
	if (!err)
		conns_order(end);
	for (uint32_t i = 0; i < end->nr_conns && !err; i++)
		err = options_one(&end->conn[i]);
	return err;
}

/* A client that goes while data is held ends its last round as it likes. */
static bool is_expected_end(const struct lab_conn *c, int err)
{
	const struct lab_options *opt = &c->end->plan->opt;

	if (opt->play_s && c->over)
		return true;
	return opt->ending && c->round == opt->rounds &&
	       (err == -ENODATA || err == -EPIPE || err == -ECONNRESET);
}

static int server_before(struct lab_conn *c)
{
	const struct lab_options *opt = &c->end->plan->opt;
	bool nodelay = c->turn.nodelay[LAB_SERVER];
	int err;

	if (opt->reconnect) {
		/* The client has reset the one before, and another may have taken its place. */
		if (c->fd >= 0)
			conn_close(c);
		err = accept_one(c);
		return err ? err : options_one(c);
	}
	if (c->round == 1)
		sleep_ns(opt->read_delay_ns);
	if (c->nodelay_now == nodelay)
		return 0;
	c->nodelay_now = nodelay;
	return conn_setsockopt(c, TCP_NODELAY, nodelay);
}

static int server_round(struct lab_conn *c)
{
	struct lab_round *r = &c->rounds[c->round - 1];
	int err = server_before(c);

	if (!err)
		err = message_read(c, LAB_CLIENT);
	r->start_ns = now_ns();
	if (!err && c->turn.message[LAB_SERVER].nr) {
		sleep_ns(c->turn.delay_reply_ns);
		err = message_send(c, LAB_SERVER);
	}
	r->end_ns = now_ns();
	return is_expected_end(c, err) ? 0 : err;
}

const struct lab_side_ops server_ops = {
	.name = "server",
	.network = server_network,
	.open = server_open,
	.round = server_round,
};
