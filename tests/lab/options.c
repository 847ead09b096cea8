// SPDX-License-Identifier: GPL-2.0
/* The parser and --help both come from one table of options. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab.h"

enum option_type {
	OPT_FLAG,
	OPT_SET, /* stores .min; a second, different one is refused */
	OPT_NUMBER,
	OPT_DURATION, /* .max in ns */
	OPT_SIZES,
	OPT_TEXT,
	OPT_OVER,
	OPT_WORD, /* one of words[], by .min */
	OPT_HELP,
	OPT_LIST,
};

struct option_row {
	const char *name;
	char letter;
	enum option_type type;
	size_t offset;
	uint64_t min;
	uint64_t max;
	const char *arg;
	const char *help;
};

/* The words that an option takes; their places are the enums' values. */
static const char *const by_words[] = {"write", "sendfile", "splice", "zerocopy", "io-uring", NULL};
static const char *const ending_words[] = {"none", "close", "shutdown", "reset", "kill", NULL};
static const char *const *const words[] = {by_words, ending_words};

#define AT(field) offsetof(struct lab_options, field)

/* clang-format off */
#define FLAG(name, field, help) {name, 0, OPT_FLAG, AT(field), 0, 0, NULL, help}
#define SET(name, letter, field, value, help) \
	{name, letter, OPT_SET, AT(field), value, value, NULL, help}
#define NUMBER(name, field, min, max, help) {name, 0, OPT_NUMBER, AT(field), min, max, "N", help}
#define DURATION(name, field, max, help) \
	{name, 0, OPT_DURATION, AT(field), 0, max, "DURATION", help}

static const struct option_row rows[] = {
	NUMBER("rounds", rounds, 1, LAB_MAX_ROUNDS, "rounds each connection plays"),
	DURATION("interval", interval_ns, 60 * LAB_SEC, "sleep between rounds"),
	DURATION("pause", pause_ns, 60 * LAB_SEC,
		 "sleep between the parts of a message (uncork: before uncorking)"),
	{"sizes", 0, OPT_SIZES, AT(sizes), 0, 0, "A,B,C", "sizes of the request's parts"},
	NUMBER("size", size, 1, LAB_MAX_PART_BYTES, "size of the data (length-data, one-way, bulk)"),
	NUMBER("reply", reply_bytes, 1, LAB_MAX_PART_BYTES, "one reply of N bytes"),
	NUMBER("parts", parts, 1, 1000, "divide the sized data into N writes"),
	{"reply-sizes", 0, OPT_SIZES, AT(reply_sizes), 0, 0, "A,B,C", "sizes of the reply's parts"},
	FLAG("no-reply", no_reply, "the server only reads"),
	FLAG("one-part", one_part, "only the first part of the request, then the reply"),
	FLAG("agreed-length", agreed_length, "length-data: only the data, both ways"),
	DURATION("delay-reply", delay_reply_ns, 60 * LAB_SEC, "the server thinks before it replies"),
	FLAG("nodelay", nodelay, "TCP_NODELAY at both ends"),
	FLAG("nodelay-server", nodelay_server, "TCP_NODELAY at the server"),
	FLAG("nodelay-while-held", nodelay_while_held,
	     "the client sets TCP_NODELAY 10 ms after the last write of a round"),
	{"ending", 0, OPT_WORD, AT(ending), 1, 0, "WORD",
	 "what the client does 10 ms after its last write: close, shutdown, reset or kill"},
	FLAG("cork", cork, "TCP_CORK at both ends, never taken off"),
	SET("coalesce", 0, how, HOW_COALESCE, "all parts of a message in one write"),
	SET("writev", 0, how, HOW_WRITEV, "all parts of a message in one writev"),
	SET("sendmsg", 0, how, HOW_SENDMSG, "all parts of a message in one sendmsg"),
	SET("msg-more", 0, how, HOW_MSG_MORE,
	    "all parts but the last with MSG_MORE (cork-forgotten: the last too)"),
	{"by", 0, OPT_WORD, AT(by), 0, 0, "CALL",
	 "what carries a write: write, sendfile, splice, zerocopy or io-uring"},
	FLAG("epoll", epoll, "non-blocking sockets, waited for with epoll"),
	NUMBER("read-bytes", read_bytes, 1, LAB_MAX_PART_BYTES,
	       "the server reads N bytes at a time"),
	NUMBER("answer-after", answer_after, 1, LAB_MAX_PART_BYTES,
	       "the server answers after N bytes of a request and reads no more of it"),
	DURATION("read-pause", read_pause_ns, LAB_SEC, "the server sleeps before each read"),
	DURATION("read-delay", read_delay_ns, 60 * LAB_SEC, "the server sleeps before its first read"),
	NUMBER("rcvbuf", rcvbuf, 1024, 1 << 24, "SO_RCVBUF of the server"),
	NUMBER("pace", pace, 1000, 1000000000, "SO_MAX_PACING_RATE of the client, bytes a second"),
	FLAG("keepalive", keepalive, "SO_KEEPALIVE at both ends, after 1 s, each second"),
	FLAG("reconnect", reconnect, "a connection for each round"),
	FLAG("changing", changing,
	     "congestion control and net.ipv4.tcp_autocorking change before each round"),
	FLAG("ktls", ktls, "kernel TLS 1.2 at both ends, with a key that both know"),
	FLAG("fast-open", fast_open, "a TCP Fast Open connection for each round"),
	FLAG("mptcp", mptcp, "Multipath TCP"),
	FLAG("quickack", quickack, "the server sets TCP_QUICKACK before each read"),
	FLAG("quickack-off", quickack_off, "the server sets TCP_QUICKACK 0 once after accept"),
	FLAG("quickack-route", quickack_route, "'quickack 1' on the server's route to the client"),
	{"cc", 0, OPT_TEXT, AT(cc), 1, 15, "NAME", "TCP_CONGESTION at both ends"},
	{"client-name", 0, OPT_TEXT, AT(client_name), 1, 15, "NAME",
	 "what the client is called (default lab-client)"},
	{"server-name", 0, OPT_TEXT, AT(server_name), 1, 15, "NAME",
	 "what the server is called (default lab-server)"},
	NUMBER("connections", connections, 1, LAB_MAX_CONNECTIONS,
	       "connections in parallel, a thread each at both ends"),
	NUMBER("threads", threads, 1, LAB_MAX_THREADS,
	       "threads that make the client's writes of a connection in turn"),
	SET("fork-worker", 0, handover, HANDOVER_FORK,
	    "a forked child that inherited the client's sockets plays the rounds"),
	SET("pass-fd", 0, handover, HANDOVER_PASS_FD,
	    "the client passes its sockets to a process that plays the rounds"),
	SET("ipv4", '4', family, 4, "IPv4 (default)"),
	SET("ipv6", '6', family, 6, "IPv6"),
	FLAG("v4-mapped", v4_mapped, "IPv4 on AF_INET6 sockets"),
	{"over", 0, OPT_OVER, AT(over_veth), 0, 0, "loopback|veth",
	 "loopback (default) or veth between two fresh namespaces"},
	FLAG("any-address", any_address, "the server listens on every address"),
	FLAG("own-netns", own_netns, "loopback in a fresh network namespace"),
	DURATION("rtt", rtt_ns, 10 * LAB_SEC, "netem: so much round trip, half of it each way"),
	DURATION("jitter", jitter_ns, LAB_SEC, "netem: each way varies by so much"),
	NUMBER("loss", loss, 1, 500, "netem: so many of 1000 packets are lost, each way"),
	NUMBER("rate", rate, 8, 10000000, "tbf: kbit a second each way"),
	DURATION("rto-min", rto_min_ns, LAB_SEC, "'rto_min' on both ends' route"),
	NUMBER("port", port, 1, 65535, "port the server listens on (default: any free one)"),
	NUMBER("client-port", client_port, 1, 65535, "port the client binds (default: any free one)"),
	FLAG("wait", wait, "wait for a newline on stdin before the first round"),
	FLAG("late-connect", late_connect, "connect only after the go"),
	NUMBER("seconds", play_s, 1, 600, "begin no round later than N seconds after the go"),
	DURATION("linger", linger_ns, 60 * LAB_SEC, "keep everything open after the last round"),
	{"timeout", 0, OPT_DURATION, AT(timeout_ns), LAB_MSEC, 3600 * LAB_SEC, "DURATION",
	 "end the run after this long (default 120s)"},
	NUMBER("seed", seed, 0, INT64_MAX, "seed of payload and dice, told in the output (default 1)"),
	FLAG("events", events, "print every write, read and option too"),
	{"list", 0, OPT_LIST, 0, 0, 0, NULL, "list the scenarios"},
	{"help", 'h', OPT_HELP, 0, 0, 0, NULL, "this text"},
};
/* clang-format on */

static void print_help(void)
{
	printf("Usage: nagle-lab SCENARIO [options]\n\n"
	       "Plays both ends of a TCP experiment and prints as JSON Lines what they measured.\n"
	       "A DURATION is a whole number with us, ms or s.\n\nScenarios:\n");
	scenario_list();
	printf("\nOptions:\n");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char left[64];

		snprintf(left, sizeof(left), "%c%c%s--%s%s%s", rows[i].letter ? '-' : ' ',
			 rows[i].letter ? rows[i].letter : ' ', rows[i].letter ? ", " : "  ",
			 rows[i].name, rows[i].arg ? " " : "", rows[i].arg ? rows[i].arg : "");
		printf("  %-26s %s\n", left, rows[i].help);
	}
}

/* strtoull takes signs, spaces and overflow; a size on the command line has none of them. */
static int parse_digits(const char *text, uint64_t *value, const char **end)
{
	uint64_t v = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++) {
		if (v > (UINT64_MAX - 9) / 10)
			return -ERANGE;
		v = v * 10 + (uint64_t)(*p - '0');
	}
	if (p == text)
		return -EINVAL;
	*value = v;
	*end = p;
	return 0;
}

static int parse_number(const struct option_row *row, const char *text, uint64_t *out)
{
	const char *end;

	if (parse_digits(text, out, &end) || *end || *out < row->min || *out > row->max)
		return fail(-EINVAL, "--%s '%s': give a whole number from %llu to %llu", row->name,
			    text, (unsigned long long)row->min, (unsigned long long)row->max);
	return 0;
}

static int parse_duration(const struct option_row *row, const char *text, uint64_t *out)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = {{"us", LAB_USEC}, {"ms", LAB_MSEC}, {"s", LAB_SEC}};
	const char *end = text;
	uint64_t value;

	if (!parse_digits(text, &value, &end)) {
		for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
			if (strcmp(end, units[i].unit) || value > row->max / units[i].ns ||
			    value * units[i].ns < row->min)
				continue;
			*out = value * units[i].ns;
			return 0;
		}
	}
	return fail(-EINVAL, "--%s '%s': give a whole number with us, ms or s, at most %llus",
		    row->name, text, (unsigned long long)(row->max / LAB_SEC));
}

static int parse_sizes(const struct option_row *row, const char *text, struct lab_message *out)
{
	const char *p = text;

	out->nr = 0;
	for (;;) {
		uint64_t value;

		if (out->nr == LAB_MAX_PARTS || parse_digits(p, &value, &p) || !value ||
		    value > LAB_MAX_PART_BYTES)
			break;
		out->part[out->nr++] = (struct lab_part){.bytes = (uint32_t)value};
		if (!*p)
			return 0;
		if (*p++ != ',')
			break;
	}
	return fail(-EINVAL, "--%s '%s': give 1 to %d sizes from 1 to %d, with commas between",
		    row->name, text, LAB_MAX_PARTS, LAB_MAX_PART_BYTES);
}

static int parse_over(const struct option_row *row, const char *text, uint64_t *out)
{
	*out = !strcmp(text, "veth");
	if (*out || !strcmp(text, "loopback"))
		return 0;
	return fail(-EINVAL, "--%s '%s': give loopback or veth", row->name, text);
}

static int parse_text(const struct option_row *row, const char *text, const char **out)
{
	size_t len = strlen(text);

	if (len < row->min || len > row->max)
		return fail(-EINVAL, "--%s '%s': give a name of %llu to %llu characters", row->name,
			    text, (unsigned long long)row->min, (unsigned long long)row->max);
	*out = text;
	return 0;
}

static int parse_word(const struct option_row *row, const char *text, uint64_t *out)
{
	const char *const *list = words[row->min];

	for (*out = 0; list[*out]; (*out)++) {
		if (!strcmp(list[*out], text))
			return 0;
	}
	return fail(-EINVAL, "--%s '%s': no such word; see nagle-lab --help", row->name, text);
}

static int set_once(const struct option_row *row, uint64_t *out)
{
	if (*out == row->min || !*out) {
		*out = row->min;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].type == OPT_SET && rows[i].offset == row->offset && rows[i].min == *out)
			return fail(-EINVAL, "--%s with --%s: give one of them", rows[i].name,
				    row->name);
	}
	return -EINVAL;
}

static int apply(const struct option_row *row, const char *arg, struct lab_options *opt)
{
	void *at = (char *)opt + row->offset;

	switch (row->type) {
	case OPT_FLAG:
		*(bool *)at = true;
		return 0;
	case OPT_SET:
		return set_once(row, at);
	case OPT_NUMBER:
		return parse_number(row, arg, at);
	case OPT_DURATION:
		return parse_duration(row, arg, at);
	case OPT_SIZES:
		return parse_sizes(row, arg, at);
	case OPT_TEXT:
		return parse_text(row, arg, at);
	case OPT_OVER:
		return parse_over(row, arg, at);
	case OPT_WORD:
		return parse_word(row, arg, at);
	case OPT_LIST:
		scenario_list();
		return 1;
	case OPT_HELP:
		print_help();
		return 1;
	}
	return -EINVAL;
}

/* The rows as getopt_long wants them; a row's val is its index + 256, so no letter meets it. */
static void build_getopt(struct option *longs, char *shorts)
{
	*shorts++ = ':';
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		longs[i] =
			(struct option){rows[i].name, rows[i].arg ? required_argument : no_argument,
					NULL, 256 + (int)i};
		if (rows[i].letter)
			*shorts++ = rows[i].letter;
	}
	*shorts = 0;
}

static const struct option_row *row_of(int val)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (val == 256 + (int)i || (val < 256 && val == rows[i].letter))
			return &rows[i];
	}
	return NULL;
}

static int parse_rows(int argc, char **argv, struct lab_options *opt)
{
	struct option longs[ARRAY_SIZE(rows) + 1] = {};
	char shorts[ARRAY_SIZE(rows) + 2];
	int val, err;

	build_getopt(longs, shorts);
	opterr = 0;
	for (;;) {
		val = getopt_long(argc, argv, shorts, longs, NULL);
		if (val == -1)
			return 0;
		if (val == ':')
			return fail(-EINVAL, "%s: give it a value; see nagle-lab --help",
				    argv[optind - 1]);
		if (val == '?' && optopt >= 256)
			return fail(-EINVAL, "--%s takes no value: leave it out",
				    row_of(optopt)->name);
		if (val == '?' && optopt)
			return fail(-EINVAL, "-%c: no such option; see nagle-lab --help", optopt);
		if (val == '?')
			return fail(-EINVAL,
				    "%s: no such option (or cut too short); see "
				    "nagle-lab --help",
				    argv[optind - 1]);
		err = apply(row_of(val), optarg, opt);
		if (err)
			return err;
	}
}

/* Splits the options that come with a scenario's name at spaces. */
static int parse_with(const char *with, struct lab_options *opt)
{
	char text[256], *argv[32] = {"nagle-lab"};
	int argc = 1;

	snprintf(text, sizeof(text), "%s", with);
	for (char *save, *word = strtok_r(text, " ", &save); word;
	     word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	optind = 0;
	return parse_rows(argc, argv, opt);
}

/* getopt_long has moved the operands to the end. */
static int find_scenario(int argc, char **argv, struct lab_plan *plan)
{
	if (optind == argc)
		return fail(-EINVAL, "no scenario given: name one of nagle-lab --list");
	if (optind + 1 < argc)
		return fail(-EINVAL, "'%s': one scenario at a time; leave it out",
			    argv[optind + 1]);
	plan->scenario = scenario_find(argv[optind]);
	if (!plan->scenario)
		return fail(-EINVAL, "no scenario '%s': name one of nagle-lab --list",
			    argv[optind]);
	return 0;
}

int options_parse(int argc, char **argv, struct lab_plan *plan)
{
	const struct lab_options unset = {
		.rounds = LAB_UNSET,
		.size = LAB_UNSET,
		.reply_bytes = LAB_UNSET,
		.interval_ns = LAB_UNSET,
		.pause_ns = LAB_UNSET,
		.delay_reply_ns = LAB_UNSET,
		.connections = 1,
		.threads = 1,
		.seed = 1,
		.timeout_ns = 120 * LAB_SEC,
	};
	struct lab_options *opt = &plan->opt;
	int err;

	*opt = unset;
	err = parse_rows(argc, argv, opt);
	if (!err)
		err = find_scenario(argc, argv, plan);
	if (err)
		return err;
	if (plan->scenario->with) {
		/* The user's options come second and win. */
		*opt = unset;
		err = parse_with(plan->scenario->with, opt);
		optind = 0;
		if (!err)
			err = parse_rows(argc, argv, opt);
		if (err)
			return err;
	}
	if (!opt->family)
		opt->family = 4;
	return plan_resolve(plan);
}
