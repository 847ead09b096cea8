// SPDX-License-Identifier: GPL-2.0
/* Has the table of scenarios, and lays the options over one. To add a scenario, add a row. */
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

/* Two small writes, then a wait for the answer: the textbook stall. */
#define WRITE_WRITE_READ \
	.rounds = 10, .request = {2, {BYTES(6), BYTES(7)}}, .reply = {1, {BYTES(13)}}

/* The same with parts that no other system would call tiny, for what works on them. */
#define HEADER_BODY \
	.rounds = 10, .request = {2, {BYTES(512), BYTES(512)}}, .reply = {1, {BYTES(1448)}}

#define STREAM .rounds = 200, .size = 65536, .request = {1, {SIZED}}

/* clang-format off */
static const struct lab_scenario scenarios[] = {
	/* These experiments were published: docs/experiments.md. */
	{"echo", "2 bytes, the server thinks 10 ms and echoes them; 50 ms apart",
	 .rounds = 10, .interval_ns = 50 * LAB_MSEC, .delay_reply_ns = 10 * LAB_MSEC,
	 .request = {1, {BYTES(2)}}, .reply = {1, {BYTES(2)}}},
	{"echo-64k", "64 KiB written, of which the server reads 1024 bytes and answers as many",
	 .with = "--answer-after 1024", .rounds = 1,
	 .request = {1, {BYTES(65536)}}, .reply = {1, {BYTES(1024)}}},
	{"write-write-read", "6 bytes, 7 bytes, then a one-line answer; back to back",
	 WRITE_WRITE_READ},
	{"header-body", "512 and 512 bytes, a reply of 1448; 100 ms apart",
	 HEADER_BODY, .interval_ns = 100 * LAB_MSEC},
	{"length-data", "4 bytes of length, --size bytes of data, answered the same way",
	 .rounds = 10, .size = 100, .length_first = true,
	 .request = {2, {BYTES(4), SIZED}}, .reply = {2, {BYTES(4), SIZED}}},
	{"chunks", "--size bytes in --parts writes, answered the same way",
	 .with = "--parts 10", .rounds = 10, .size = 1024,
	 .request = {1, {SIZED}}, .reply = {1, {SIZED}}},
	{"reply-tail", "a small request; the reply is 200 bytes, then 2 MSS + 300 bytes",
	 .rounds = 10, .request = {1, {BYTES(100)}}, .reply = {2, {BYTES(200), SEGMENTS(2, 300)}}},
	{"cork-forgotten", "TCP_CORK (or --msg-more), a small request, never uncorked",
	 .rounds = 5, .cork = CORK_FORGOTTEN,
	 .request = {1, {BYTES(100)}}, .reply = {1, {BYTES(100)}}},

	/* Section B: nobody may call these stalls. */
	{"bulk", "writes of --size bytes without a reply; back to back", STREAM},
	{"slow-reader", "bulk to a server that sleeps 5 ms before it reads 16 KiB",
	 STREAM, .with = "--rcvbuf 65536 --read-bytes 16384 --read-pause 5ms --rounds 20"},
	{"small-window", "bulk to a server with a receive buffer of 4 KiB",
	 STREAM, .with = "--rcvbuf 4096 --size 8192 --rounds 100"},
	{"long-rtt", "bulk with 40 ms of round trip: bound by the congestion window",
	 STREAM, .with = "--over veth --rtt 40ms --rounds 40"},
	{"loss", "header-body in one write, with 5 ms of round trip and 3 % of loss each way",
	 HEADER_BODY, .with = "--over veth --rtt 5ms --loss 30 --coalesce --rounds 60"},
	{"paced", "bulk at 1 MB/s by SO_MAX_PACING_RATE", STREAM, .with = "--pace 1000000 --rounds 20"},
	{"rate-limited", "bulk through a token bucket of 8 Mbit/s",
	 STREAM, .with = "--over veth --rate 8000 --rounds 20"},
	{"autocork", "many small writes on a slow device, TCP_NODELAY set",
	 .with = "--over veth --rate 8000 --nodelay --parts 200", .rounds = 5, .size = 200 * 100,
	 .request = {1, {SIZED}}, .reply = {1, {BYTES(100)}}},
	{"idle", "one small exchange a second", .rounds = 3, .interval_ns = LAB_SEC,
	 .request = {1, {BYTES(100)}}, .reply = {1, {BYTES(100)}}},
	{"one-way", "records of --size bytes without a reply; 5 ms apart",
	 .rounds = 100, .interval_ns = 5 * LAB_MSEC, .size = 100, .request = {1, {SIZED}}},
	{"keepalive", "idle for 2.5 s a round, with keepalive probes each second",
	 .with = "--keepalive", .rounds = 2, .interval_ns = 2500 * LAB_MSEC,
	 .request = {1, {BYTES(100)}}, .reply = {1, {BYTES(100)}}},
	{"zero-window-probe", "the server reads nothing for 1 s; its window is closed and probed",
	 STREAM, .with = "--rcvbuf 4096 --read-delay 1s --rounds 4"},

	/* Section C: ways of life. Sockets are open before the go unless a row says otherwise. */
	{"late-connect", "write-write-read on sockets made after the go",
	 WRITE_WRITE_READ, .with = "--late-connect"},
	{"threads", "write-write-read, three threads writing in turn",
	 WRITE_WRITE_READ, .with = "--threads 3"},
	{"fork-worker", "write-write-read by a forked child that inherited the socket",
	 WRITE_WRITE_READ, .with = "--fork-worker"},
	{"pass-fd", "write-write-read by a process to which the socket was passed",
	 WRITE_WRITE_READ, .with = "--pass-fd"},
	{"nonblocking", "write-write-read on non-blocking sockets with epoll",
	 WRITE_WRITE_READ, .with = "--epoll"},
	{"writev", "header-body in one writev", HEADER_BODY, .with = "--writev"},
	{"sendmsg", "header-body in one sendmsg", HEADER_BODY, .with = "--sendmsg"},
	{"msg-more", "header-body, the header with MSG_MORE", HEADER_BODY, .with = "--msg-more"},
	{"sendfile", "header-body by sendfile", HEADER_BODY, .with = "--by sendfile"},
	{"splice", "header-body by splice", HEADER_BODY, .with = "--by splice"},
	{"zerocopy", "header-body by MSG_ZEROCOPY", HEADER_BODY, .with = "--by zerocopy"},
	{"io-uring", "header-body by io_uring, from its worker threads",
	 HEADER_BODY, .with = "--by io-uring"},
	{"ktls", "write-write-read over kernel TLS", WRITE_WRITE_READ, .with = "--ktls"},
	{"fast-open", "write-write-read, each round on a TCP Fast Open connection",
	 WRITE_WRITE_READ, .with = "--over veth --fast-open"},
	{"mptcp", "write-write-read over Multipath TCP", WRITE_WRITE_READ, .with = "--over veth --mptcp"},
	{"v4-mapped", "write-write-read over IPv4 on AF_INET6 sockets",
	 WRITE_WRITE_READ, .with = "--v4-mapped"},
	{"uncork", "TCP_CORK, two small writes, uncorked after --pause",
	 .rounds = 10, .pause_ns = 20 * LAB_MSEC, .cork = CORK_ROUND,
	 .request = {2, {BYTES(100), BYTES(100)}}, .reply = {1, {BYTES(100)}}},
	{"nodelay-while-held", "write-write-read, TCP_NODELAY set while the second write is held",
	 WRITE_WRITE_READ, .with = "--nodelay-while-held"},
	{"close-while-held", "write-write-read, closed while the last write is held",
	 WRITE_WRITE_READ, .with = "--ending close"},
	{"shutdown-while-held", "write-write-read, shut down while the last write is held",
	 WRITE_WRITE_READ, .with = "--ending shutdown"},
	{"reset-while-held", "write-write-read, reset while the last write is held",
	 WRITE_WRITE_READ, .with = "--ending reset"},
	{"killed-while-held", "write-write-read, the process killed while its last write is held",
	 WRITE_WRITE_READ, .with = "--ending kill"},
	{"churn", "a connection for each of many exchanges, all in one write",
	 .with = "--reconnect --rounds 12500 --connections 4",
	 .request = {1, {BYTES(100)}}, .reply = {1, {BYTES(100)}}},
	{"changing", "write-write-read, congestion control and autocorking changed before each round",
	 WRITE_WRITE_READ, .with = "--over veth --changing"},
	{"mix", "rounds of random sizes, pauses, options and fixes on many connections at once",
	 .with = "--connections 40 --seconds 10", .rounds = LAB_MAX_MIX_ROUNDS, .mixed = true,
	 .request = {1, {BYTES(1)}}, .reply = {1, {BYTES(1)}}},
};
/* clang-format on */

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
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
		const struct lab_scenario *s = &scenarios[i];

		printf("%-20s %s%s%s%s\n", s->name, s->about, s->with ? " [" : "",
		       s->with ? s->with : "", s->with ? "]" : "");
	}
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
	bool fresh = o->over_veth || o->own_netns;
	bool shaped = o->rtt_ns || o->jitter_ns || o->loss || o->rate;
	const struct rule rules[] = {
		{o->own_netns && o->over_veth,
		 "--own-netns with --over veth: veth has its own namespaces; leave --own-netns out"},
		{o->quickack_route && !fresh,
		 "--quickack-route would change this host's route: add --own-netns or --over veth"},
		{o->fast_open && !fresh,
		 "--fast-open would change this host's sysctl: add --own-netns or --over veth"},
		{o->changing && !fresh,
		 "--changing would change this host's sysctl: add --own-netns or --over veth"},
		{(shaped || o->rto_min_ns) && !o->over_veth,
		 "--rtt, --jitter, --loss, --rate and --rto-min shape a veth: add --over veth"},
		{o->jitter_ns && o->jitter_ns * 2 > o->rtt_ns,
		 "--jitter is of each way: give an --rtt of at least twice as much"},
		{o->quickack_route && o->rto_min_ns,
		 "--quickack-route and --rto-min exclude each other: give one of them"},
		{o->v4_mapped && o->family == 6,
		 "--v4-mapped with -6: mapped addresses carry IPv4; leave -6 out"},
		{o->reconnect && o->play_s,
		 "--seconds with --reconnect: the server cannot know how many come; leave one out"},
		{o->client_port && (o->connections > 1 || o->reconnect),
		 "--client-port is for one connection: leave --connections and --reconnect out"},
		{o->rounds * o->connections > LAB_MAX_TOTAL_ROUNDS,
		 "--rounds times --connections is above 200000: lower one of them"},
	};

	return check_rules(rules, ARRAY_SIZE(rules));
}

static int check_messages(const struct lab_plan *plan)
{
	const struct lab_options *o = &plan->opt;
	const struct lab_scenario *s = plan->scenario;
	bool sized = message_is_sized(&s->request) || message_is_sized(&s->reply);
	bool shaped = o->sizes.nr || o->reply_sizes.nr || o->parts || o->size != LAB_UNSET ||
		      o->one_part || o->no_reply || o->reply_bytes != LAB_UNSET ||
		      o->how != HOW_UNSET || o->by || o->ending || o->pause_ns != LAB_UNSET ||
		      o->delay_reply_ns != LAB_UNSET || o->reconnect || o->nodelay_while_held;
	const struct rule rules[] = {
		{s->mixed && shaped,
		 "mix rolls sizes, pauses and system calls itself: leave them out"},
		{o->agreed_length && !s->length_first,
		 "--agreed-length is for length-data only: leave it out"},
		{o->agreed_length && (o->sizes.nr || o->reply_sizes.nr),
		 "--agreed-length with --sizes: --sizes already says every part; leave one out"},
		{(o->size != LAB_UNSET || o->parts) && !sized,
		 "--size, --parts: this scenario has nothing to size; use --sizes or --reply"},
		{o->one_part && plan->opt.sizes.nr == 0 && s->request.nr < 2,
		 "--one-part: the request of this scenario has one part already; leave it out"},
		{(o->reply_bytes != LAB_UNSET) + (o->reply_sizes.nr > 0) + o->no_reply > 1,
		 "--reply, --reply-sizes and --no-reply exclude each other: give one of them"},
		{o->delay_reply_ns != LAB_UNSET && !plan->reply.nr,
		 "--delay-reply without a reply: leave it out, or give --reply N"},
	};

	return check_rules(rules, ARRAY_SIZE(rules));
}

static int check_play(const struct lab_plan *plan)
{
	const struct lab_options *o = &plan->opt;
	const struct lab_scenario *s = plan->scenario;
	bool corks = s->cork != CORK_NONE || o->cork;
	const struct rule rules[] = {
		{o->nodelay_while_held && o->nodelay,
		 "--nodelay-while-held with --nodelay: nothing would be held; leave one out"},
		{(o->nodelay_while_held || o->ending) && s->cork == CORK_ROUND,
		 "--nodelay-while-held, --ending: uncork ends its own hold; use cork-forgotten"},
		{o->cork && s->cork, "--cork: this scenario corks already; leave it out"},
		{o->ending && o->handover == HANDOVER_FORK,
		 "--ending with --fork-worker: the first process keeps the socket open; "
		 "use --pass-fd"},
		{o->ending && (o->reconnect || o->fast_open),
		 "--ending is of one connection: leave --reconnect and --fast-open out"},
		{o->reconnect && o->handover,
		 "--reconnect with --fork-worker or --pass-fd: no socket would be handed on; "
		 "leave one out"},
		{corks && o->how != HOW_UNSET &&
			 !(s->cork == CORK_FORGOTTEN && o->how == HOW_MSG_MORE),
		 "--coalesce, --writev, --sendmsg, --msg-more: this corks with TCP_CORK; "
		 "leave it out (cork-forgotten takes --msg-more)"},
		{o->by && o->how != HOW_UNSET && o->how != HOW_COALESCE,
		 "--by with --writev, --sendmsg or --msg-more: give one of them"},
		{o->by && o->threads > 1, "--by with --threads: give one of them"},
	};

	return check_rules(rules, ARRAY_SIZE(rules));
}

static uint64_t or_default(uint64_t given, uint64_t def)
{
	return given == LAB_UNSET ? def : given;
}

static int check(const struct lab_plan *plan)
{
	int err = check_messages(plan);

	if (!err)
		err = check_play(plan);
	return err;
}

int plan_resolve(struct lab_plan *plan)
{
	const struct lab_scenario *s = plan->scenario;
	struct lab_options *opt = &plan->opt;
	int err;

	resolve_messages(plan);
	err = check(plan);
	if (err)
		return err;
	opt->rounds = or_default(opt->rounds, s->rounds);
	opt->interval_ns = or_default(opt->interval_ns, s->interval_ns);
	opt->pause_ns = or_default(opt->pause_ns, s->pause_ns);
	opt->delay_reply_ns = or_default(opt->delay_reply_ns, s->delay_reply_ns);
	opt->size = or_default(opt->size, s->size);
	/* A Fast Open connection carries data in its SYN, so each round needs its own. */
	opt->reconnect |= opt->fast_open;
	plan->cork = opt->cork ? CORK_BOTH : s->cork;
	if (s->cork == CORK_FORGOTTEN && opt->how == HOW_MSG_MORE) {
		plan->cork = CORK_NONE;
		plan->forget_more = true;
	}
	if (opt->how == HOW_UNSET)
		opt->how = HOW_WRITES;
	return check_network(opt);
}
