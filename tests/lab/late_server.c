// SPDX-License-Identifier: GPL-2.0
/* The server when its TCP is in user space: it acknowledges late, as other systems do. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"
#include "late_peer.h"

#define LATE_PEER_PORT 7000

static int parse_mac(const char *text, uint8_t *mac)
{
	return sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &mac[0], &mac[1], &mac[2], &mac[3],
		      &mac[4], &mac[5]) == 6
		       ? 0
		       : -EINVAL;
}

static int late_network(struct lab_end *end, int peer_pid)
{
	const struct lab_options *opt = &end->plan->opt;
	struct late_peer_config config = {
		.link = "lab-server",
		.local = net_veth_address(LAB_SERVER, opt->family),
		.remote = net_veth_address(LAB_CLIENT, opt->family),
		.family = (int)opt->family,
		.port = opt->port ? (uint16_t)opt->port : LATE_PEER_PORT,
		.mss = opt->family == 6 ? 1440 : 1460,
		.delack_ns = opt->peer_delack_ns,
	};
	int err = 0;

	(void)peer_pid;
	if (shape_has_middle(opt))
		err = net_veth_to_middle(LAB_SERVER, getppid());
	if (!err)
		err = net_veth_up(end->plan, LAB_SERVER);
	if (!err && !shape_has_middle(opt))
		err = net_veth_running(LAB_SERVER);
	if (!err)
		err = parse_mac(net_veth_mac(LAB_SERVER), config.local_mac);
	if (!err)
		err = parse_mac(net_veth_mac(LAB_CLIENT), config.remote_mac);
	end->port = config.port;
	return err ? err : late_peer_new(&config, &end->late);
}

static int late_open(struct lab_end *end, uint16_t port)
{
	int err = late_peer_accept(end->late, 5 * LAB_SEC, &end->conn[0].port);

	(void)port;
	/* what the client's segments can carry, timestamps taken off */
	end->conn[0].info.tcpi_snd_mss = end->plan->opt.family == 6 ? 1428 : 1448;
	return err ? fail(err, "server: cannot accept: %s", strerror(-err)) : 0;
}

static void name(char *buf, size_t size, const char *address, uint16_t port)
{
	snprintf(buf, size, strchr(address, ':') ? "[%s]:%u" : "%s:%u", address, port);
}

static int late_names(struct lab_conn *c, char *local, char *peer, size_t size)
{
	uint64_t family = c->end->plan->opt.family;

	name(local, size, net_veth_address(LAB_SERVER, family), c->end->port);
	name(peer, size, net_veth_address(LAB_CLIENT, family), c->port);
	return 0;
}

static int late_read(struct lab_conn *c)
{
	size_t left = c->turn.message[LAB_CLIENT].bytes, whole = left;

	while (left) {
		uint64_t start = log_start(&c->log);
		ssize_t n = late_peer_read(c->end->late, c->inbox, left);

		log_add(c, &(struct lab_event){.call = CALL_READ,
					       .bytes = (int64_t)left,
					       .offset = c->received,
					       .result = n,
					       .start_ns = start});
		c->over = !n && left == whole;
		if (n <= 0)
			return n ? (int)n : -ENODATA;
		c->received += (uint64_t)n;
		left -= (size_t)n;
	}
	return 0;
}

static int late_write(struct lab_conn *c)
{
	const struct lab_sizes *sizes = &c->turn.message[LAB_SERVER];
	const char *at = c->payload;

	for (uint32_t i = 0; i < sizes->nr; i++) {
		uint64_t start = log_start(&c->log);
		int err = late_peer_write(c->end->late, at, sizes->part[i]);

		if (err)
			return err;
		log_add(c, &(struct lab_event){.call = CALL_WRITE,
					       .bytes = sizes->part[i],
					       .offset = c->sent,
					       .result = sizes->part[i],
					       .start_ns = start});
		c->sent += sizes->part[i];
		at += sizes->part[i];
	}
	return 0;
}

static int late_round(struct lab_conn *c)
{
	struct lab_round *r = &c->rounds[c->round - 1];
	const struct lab_options *opt = &c->end->plan->opt;
	int err = late_read(c);

	r->start_ns = now_ns();
	if (!err)
		err = late_peer_sleep(c->end->late, c->turn.delay_reply_ns);
	if (!err)
		err = late_write(c);
	/* It has no kernel that goes on acknowledging when we are done. */
	if (!err && c->round == opt->rounds)
		err = late_peer_sleep(c->end->late, opt->peer_delack_ns + 100 * LAB_MSEC);
	r->end_ns = now_ns();
	if ((opt->play_s && c->over) || (opt->ending && c->round == opt->rounds))
		return 0;
	return err;
}

const struct lab_side_ops late_server_ops = {
	.name = "server",
	.network = late_network,
	.open = late_open,
	.names = late_names,
	.round = late_round,
};
