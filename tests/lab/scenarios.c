// SPDX-License-Identifier: GPL-2.0
/* The table of scenarios, and what the options change in one. To add a scenario, add a row. */
#include <stdio.h>
#include <string.h>

#include "lab.h"

#define BYTES(n)             \
	{                    \
		.bytes = (n) \
	}
#define SIZED                 \
	{                     \
		.sized = true \
	}
#define SEGMENTS(n, more)                        \
	{                                        \
		.segments = (n), .bytes = (more) \
	}

static const struct lab_scenario scenarios[] = {
	{
		.name = "echo",
		.about = "2 bytes, the server thinks 10 ms and echoes them; 50 ms apart",
		.rounds = 10,
		.interval_ns = 50 * LAB_MSEC,
		.delay_reply_ns = 10 * LAB_MSEC,
		.request = {1, {BYTES(2)}},
		.reply = {1, {BYTES(2)}},
	},
	{
		.name = "write-write-read",
		.about = "6 bytes, 7 bytes, then a one-line answer; back to back",
		.rounds = 10,
		.request = {2, {BYTES(6), BYTES(7)}},
		.reply = {1, {BYTES(13)}},
	},
	{
		.name = "header-body",
		.about = "512 and 512 bytes, a reply of 1448; 100 ms apart",
		.rounds = 10,
		.interval_ns = 100 * LAB_MSEC,
		.request = {2, {BYTES(512), BYTES(512)}},
		.reply = {1, {BYTES(1448)}},
	},
	{
		.name = "length-data",
		.about = "4 bytes of length, --size bytes of data, answered the same way",
		.rounds = 10,
		.size = 100,
		.length_first = true,
		.request = {2, {BYTES(4), SIZED}},
		.reply = {2, {BYTES(4), SIZED}},
	},
	{
		.name = "reply-tail",
		.about = "a small request; the reply is 200 bytes, then 2 MSS + 300 bytes",
		.rounds = 10,
		.request = {1, {BYTES(100)}},
		.reply = {2, {BYTES(200), SEGMENTS(2, 300)}},
	},
	{
		.name = "cork-forgotten",
		.about = "TCP_CORK (or --msg-more), a small request, never uncorked",
		.rounds = 5,
		.cork = CORK_FORGOTTEN,
		.request = {1, {BYTES(100)}},
		.reply = {1, {BYTES(100)}},
	},
	{
		.name = "uncork",
		.about = "TCP_CORK, two small writes, uncorked after --pause",
		.rounds = 10,
		.pause_ns = 20 * LAB_MSEC,
		.cork = CORK_ROUND,
		.request = {2, {BYTES(100), BYTES(100)}},
		.reply = {1, {BYTES(100)}},
	},
	{
		.name = "one-way",
		.about = "records of --size bytes without a reply; 5 ms apart",
		.rounds = 100,
		.interval_ns = 5 * LAB_MSEC,
		.size = 100,
		.request = {1, {SIZED}},
	},
	{
		.name = "bulk",
		.about = "writes of --size bytes without a reply; back to back",
		.rounds = 200,
		.size = 65536,
		.request = {1, {SIZED}},
	},
};

const struct lab_scenario *scenario_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
		if (!strcmp(scenarios[i].name, name))
			return &scenarios[i];
	}
	return NULL;
}

void scenario_list(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++)
		printf("%-18s %s\n", scenarios[i].name, scenarios[i].about);
}

size_t message_sizes(const struct lab_message *m, uint64_t size, uint32_t mss, uint32_t *out)
{
	size_t total = 0;

	for (uint32_t i = 0; i < m->nr; i++) {
		const struct lab_part *part = &m->part[i];

		out[i] = part->sized ? (uint32_t)size : part->bytes + part->segments * mss;
		total += out[i];
	}
	return total;
}

static bool message_is_sized(const struct lab_message *m)
{
	for (uint32_t i = 0; i < m->nr; i++) {
		if (m->part[i].sized)
			return true;
	}
	return false;
}

static void drop_first_part(struct lab_message *m)
{
	if (m->nr < 2)
		return;
	m->nr--;
	memmove(m->part, m->part + 1, m->nr * sizeof(m->part[0]));
}

static void resolve_messages(struct lab_plan *plan)
{
	const struct lab_options *opt = &plan->opt;

	plan->request = opt->sizes.nr ? opt->sizes : plan->scenario->request;
	plan->reply = opt->reply_sizes.nr ? opt->reply_sizes : plan->scenario->reply;
	if (opt->agreed_length) {
		drop_first_part(&plan->request);
		drop_first_part(&plan->reply);
	}
	if (opt->one_part)
		plan->request.nr = 1;
	if (opt->reply_bytes != LAB_UNSET)
		plan->reply = (struct lab_message){1, {BYTES(opt->reply_bytes)}};
	if (opt->no_reply)
		plan->reply.nr = 0;
}

struct rule {
	bool broken;
	const char *says;
};

static int check_rules(const struct rule *rules, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		if (rules[i].broken)
			return fail(-EINVAL, "%s", rules[i].says);
	}
	return 0;
}

static int check_network(const struct lab_options *o)
{
	const struct rule rules[] = {
		{o->own_netns && o->over_veth,
		 "--own-netns with --over veth: veth has its own namespaces; leave --own-netns out"},
		{o->quickack_route && !o->over_veth && !o->own_netns,
		 "--quickack-route would change this host's route: add --own-netns or --over veth"},
		{o->v4_mapped && o->family == 6,
		 "--v4-mapped with -6: mapped addresses carry IPv4; leave -6 out"},
		{o->late_connect && !o->wait, "--late-connect connects after the go: add --wait"},
		{o->rounds * o->connections > LAB_MAX_TOTAL_ROUNDS,
		 "--rounds times --connections is above 200000: lower one of them"},
	};

	return check_rules(rules, ARRAY_SIZE(rules));
}

static int check_play(const struct lab_plan *plan)
{
	const struct lab_options *o = &plan->opt;
	const struct lab_scenario *s = plan->scenario;
	bool sized = message_is_sized(&s->request) || message_is_sized(&s->reply);
	bool corks = s->cork != CORK_NONE;
	const struct rule rules[] = {
		{o->agreed_length && !s->length_first,
		 "--agreed-length is for length-data only: leave it out"},
		{o->agreed_length && (o->sizes.nr || o->reply_sizes.nr),
		 "--agreed-length with --sizes: --sizes already says every part; leave one out"},
		{o->size != LAB_UNSET && !sized,
		 "--size has no part to size in this scenario: use --sizes or --reply"},
		{o->one_part && plan->opt.sizes.nr == 0 && s->request.nr < 2,
		 "--one-part: the request of this scenario has one part already; leave it out"},
		{(o->reply_bytes != LAB_UNSET) + (o->reply_sizes.nr > 0) + o->no_reply > 1,
		 "--reply, --reply-sizes and --no-reply exclude each other: give one of them"},
		{o->delay_reply_ns != LAB_UNSET && !plan->reply.nr,
		 "--delay-reply without a reply: leave it out, or give --reply N"},
		{o->nodelay_while_held && (o->nodelay || o->nodelay_client),
		 "--nodelay-while-held with --nodelay: nothing would be held; leave one out"},
		{(o->nodelay_while_held || o->close_while_held) && s->cork == CORK_ROUND,
		 "--nodelay-while-held, --close-while-held: uncork ends its own hold; "
		 "use cork-forgotten"},
		{o->close_while_held && o->handover == HANDOVER_FORK,
		 "--close-while-held with --fork-worker: the first process keeps the socket open; "
		 "use --pass-fd"},
		{corks && o->how != HOW_UNSET &&
			 !(s->cork == CORK_FORGOTTEN && o->how == HOW_MSG_MORE),
		 "--coalesce, --writev, --sendmsg, --msg-more: this scenario corks with TCP_CORK; "
		 "leave it out (cork-forgotten takes --msg-more)"},
	};

	return check_rules(rules, ARRAY_SIZE(rules));
}

static uint64_t or_default(uint64_t given, uint64_t def)
{
	return given == LAB_UNSET ? def : given;
}

int plan_resolve(struct lab_plan *plan)
{
	const struct lab_scenario *s = plan->scenario;
	struct lab_options *opt = &plan->opt;
	int err;

	resolve_messages(plan);
	err = check_play(plan);
	if (err)
		return err;
	opt->rounds = or_default(opt->rounds, s->rounds);
	opt->interval_ns = or_default(opt->interval_ns, s->interval_ns);
	opt->pause_ns = or_default(opt->pause_ns, s->pause_ns);
	opt->delay_reply_ns = or_default(opt->delay_reply_ns, s->delay_reply_ns);
	opt->size = or_default(opt->size, s->size);
	plan->cork = s->cork;
	if (s->cork == CORK_FORGOTTEN && opt->how == HOW_MSG_MORE) {
		plan->cork = CORK_NONE;
		plan->forget_more = true;
	}
	if (opt->how == HOW_UNSET)
		opt->how = HOW_WRITES;
	return check_network(opt);
}
