// SPDX-License-Identifier: GPL-2.0
/* Sets delay, loss and rate of what one end of the veth sends, by netem and tbf. */
#include "lab.h"

static int add_rate(const struct lab_options *opt, const char *link)
{
	int err = net_ip("tc qdisc add dev %s root handle 1: tbf rate %llukbit burst 16kb "
			 "latency 400ms",
			 link, (unsigned long long)opt->rate);

	return err ? fail(LAB_CANNOT, "--rate needs tbf (sch_tbf), which this kernel lacks") : 0;
}

static int add_netem(const struct lab_options *opt, const char *link)
{
	unsigned long long way_us = opt->rtt_ns / 2 / LAB_USEC;
	int err = net_ip("tc qdisc add dev %s root netem limit 10000 delay %lluus %lluus loss "
			 "%llu.%llu%%",
			 link, way_us, (unsigned long long)(opt->jitter_ns / LAB_USEC),
			 (unsigned long long)opt->loss / 10, (unsigned long long)opt->loss % 10);

	return err ? fail(LAB_CANNOT,
			  "--rtt, --jitter and --loss need netem (sch_netem), which this kernel "
			  "lacks")
		   : 0;
}

int shape_link(const struct lab_options *opt, const char *link)
{
	return opt->rate ? add_rate(opt, link) : 0;
}

bool shape_has_middle(const struct lab_options *opt)
{
	return opt->rtt_ns || opt->loss;
}

int shape_middle(const struct lab_options *opt, const char *const *port)
{
	int err = net_ip("ip link add middle type bridge");

	if (err)
		return fail(LAB_CANNOT, "--rtt, --jitter and --loss need a bridge, which this "
					"kernel lacks");
	err = net_ip("ip link set middle up");
	for (size_t i = 0; i < LAB_SIDES && !err; i++) {
		err = net_ip("ip link set %s master middle up", port[i]);
		if (!err)
			err = add_netem(opt, port[i]);
	}
	return err;
}
