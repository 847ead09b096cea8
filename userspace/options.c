// SPDX-License-Identifier: GPL-2.0
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

#define PID_MAX_LIMIT 4194304 /* include/linux/threads.h */

/* Numbers of options that have no short form; getopt_long's val. */
enum {
	OPT_COUNT = 256,
	OPT_HOOKS,
	OPT_BTF,
	OPT_VERSION,
	OPT_JSON_SCHEMA,
};

/* What is known while the command line is read. */
struct parse {
	struct nt_options *opts;
	char *err;
	size_t err_size;
	const char *given[512]; /* by val: the value (or "") where the option was given */
	char spelled[24]; /* the option at hand, as --pid */
};

struct option_row {
	int val; /* the short option's letter, or OPT_… */
	const char *name;
	const char *argument; /* as help shows it; NULL: takes none */
	const char *help;
	int (*set)(struct parse *p, const char *value);
	bool repeatable;
	bool for_check; /* goes with `nagletrace check` */
};

static int fail(struct parse *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int fail(struct parse *p, const char *format, ...)
{
	char text[4 * NT_OPTION_ERROR_LEN];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(p->err, p->err_size, "%s", text);
	return -EINVAL;
}

/* "--pid VALUE: what is wrong; remedy", with a value that may hold anything. */
static int refuse(struct parse *p, const char *value, const char *what)
{
	char shown[NT_ESCAPED_LEN(24)];

	nt_escape(value, 24, shown, sizeof(shown));
	return fail(p, "%s %s%s: %s", p->spelled, shown, strlen(value) > 24 ? "…" : "", what);
}

/* A decimal number without sign or anything behind it. */
static bool parse_number(const char *text, size_t length, uint64_t max, uint64_t *number)
{
	uint64_t n = 0;

	if (!length)
		return false;
	for (size_t i = 0; i < length; i++) {
		unsigned int digit = text[i] - '0';

		if (!isdigit((unsigned char)text[i]) || n > (max - digit) / 10)
			return false;
		n = 10 * n + digit;
	}
	*number = n;
	return n <= max;
}

/* digits[.digits] times unit_ns; exact as far as whole ns go. */
static int scale(const char *text, size_t length, uint64_t unit_ns, uint64_t *ns)
{
	const char *dot = memchr(text, '.', length);
	size_t whole = dot ? (size_t)(dot - text) : length;
	uint64_t n, place = unit_ns;

	for (size_t i = 0; i < length; i++)
		if (!isdigit((unsigned char)text[i]) && text + i != dot)
			return -EINVAL;
	if (!whole || (dot && whole + 1 == length))
		return -EINVAL;
	if (!parse_number(text, whole, UINT64_MAX / unit_ns - 1, &n))
		return -ERANGE;
	n *= unit_ns;
	for (size_t i = whole + 1; i < length; i++) {
		place /= 10;
		n += place * (text[i] - '0');
	}
	*ns = n;
	return 0;
}

int nt_parse_duration(const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {{"ns", 1},		    {"us", 1000},	    {"ms", 1000000},
		     {"s", 1000000000ULL}, {"m", 60000000000ULL}, {"h", 3600000000000ULL}};
	size_t length = strspn(text, "0123456789.");

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(text + length, units[i].name))
			return scale(text, length, units[i].ns, ns);
	return -EINVAL;
}

static int set_duration(struct parse *p, const char *value, uint64_t *ns, bool zero_allowed)
{
	int err = nt_parse_duration(value, ns);

	if (err == -ERANGE)
		return refuse(p, value, "too long; give at most some hundred years, for example 24h");
	if (err && *value && strspn(value, "0123456789.") == strlen(value))
		return refuse(p, value, "a duration needs a unit; for example 250us, 40ms, 5s or 2m");
	if (err)
		return refuse(p, value, "not a duration; give for example 250us, 40ms, 5s or 2m");
	if (!*ns && !zero_allowed)
		return refuse(p, value, "must be more than zero; for example 5s");
	return 0;
}

/* Calls each() for every element of a list separated by commas. */
static int for_each(struct parse *p, const char *value,
		    int (*each)(struct parse *p, const char *element, size_t length, const char *all))
{
	const char *element = value;
	int err;

	for (;;) {
		size_t length = strcspn(element, ",");

		err = each(p, element, length, value);
		if (err || !element[length])
			return err;
		element += length + 1;
	}
}

static int add_pid(struct parse *p, const char *element, size_t length, const char *all)
{
	struct nt_options *opts = p->opts;
	uint64_t pid;

	if (!parse_number(element, length, PID_MAX_LIMIT, &pid) || !pid)
		return refuse(p, all, "not a process id; give numbers such as 4242 or 4242,4243");
	for (unsigned int i = 0; i < opts->n_pids; i++)
		if (opts->pids[i] == (pid_t)pid)
			return 0;
	if (opts->n_pids == NT_MAX_PIDS)
		return refuse(p, all, "too many processes; give at most 64, or --name or --cgroup");
	opts->pids[opts->n_pids++] = pid;
	return 0;
}

static int set_pid(struct parse *p, const char *value)
{
	return for_each(p, value, add_pid);
}

static struct nt_port_list *port_list(struct parse *p)
{
	if (!strcmp(p->spelled, "--localport"))
		return &p->opts->local_ports;
	return strcmp(p->spelled, "--remoteport") ? &p->opts->ports : &p->opts->remote_ports;
}

static int add_port(struct parse *p, const char *element, size_t length, const char *all)
{
	struct nt_port_list *list = port_list(p);
	uint64_t port;

	if (!parse_number(element, length, 65535, &port) || !port)
		return refuse(p, all, "not a port; give 1 to 65535, several with commas");
	if (list->count == NT_MAX_PORTS)
		return refuse(p, all, "too many ports; give at most 32");
	list->port[list->count++] = port;
	return 0;
}

static int set_port(struct parse *p, const char *value)
{
	return for_each(p, value, add_port);
}

static int set_name(struct parse *p, const char *value)
{
	if (!*value)
		return refuse(p, value, "empty; give a command name, as `ps -o comm` shows it");
	if (strlen(value) >= NT_NAME_LEN)
		return refuse(p, value, "the kernel keeps 15 bytes of a name; give its first 15");
	snprintf(p->opts->name, sizeof(p->opts->name), "%s", value);
	return 0;
}

static int set_cgroup(struct parse *p, const char *value)
{
	if (value[0] != '/')
		return refuse(p, value, "not a cgroup path; give it from the root, as /system.slice/x");
	p->opts->cgroup = value;
	return 0;
}

static int set_v4(struct parse *p, const char *value)
{
	(void)value;
	p->opts->only_v4 = true;
	return 0;
}

static int set_v6(struct parse *p, const char *value)
{
	(void)value;
	p->opts->only_v6 = true;
	return 0;
}

static int set_min(struct parse *p, const char *value)
{
	return set_duration(p, value, &p->opts->min_ns, true);
}

static int set_interval(struct parse *p, const char *value)
{
	return set_duration(p, value, &p->opts->interval_ns, false);
}

static int set_total_duration(struct parse *p, const char *value)
{
	return set_duration(p, value, &p->opts->duration_ns, false);
}

static int set_count(struct parse *p, const char *value)
{
	if (!parse_number(value, strlen(value), UINT32_MAX, &p->opts->count) || !p->opts->count)
		return refuse(p, value, "not a number of reports; give 1 or more");
	return 0;
}

static int set_all_holds(struct parse *p, const char *value)
{
	(void)value;
	p->opts->all_holds = true;
	return 0;
}

static int set_stacks(struct parse *p, const char *value)
{
	(void)value;
	p->opts->stacks = true;
	return 0;
}

static int set_output(struct parse *p, const char *value)
{
	if (!strcmp(value, "text"))
		p->opts->output = NT_OUTPUT_TEXT;
	else if (!strcmp(value, "json"))
		p->opts->output = NT_OUTPUT_JSON;
	else
		return refuse(p, value, "no such output; give text or json");
	return 0;
}

static int set_json(struct parse *p, const char *value)
{
	(void)value;
	p->opts->output = NT_OUTPUT_JSON;
	return 0;
}

static int set_wide(struct parse *p, const char *value)
{
	(void)value;
	p->opts->wide = true;
	return 0;
}

static int set_hooks(struct parse *p, const char *value)
{
	static const char *const names[] = {"auto", "function", "kprobe", "tracepoint"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(value, names[i])) {
			p->opts->hooks = i;
			return 0;
		}
	}
	return refuse(p, value, "no such hooks; give auto, function, kprobe or tracepoint");
}

static int set_btf(struct parse *p, const char *value)
{
	char what[128];

	if (access(value, R_OK)) {
		snprintf(what, sizeof(what), "cannot be read: %s; give a file with the kernel's BTF",
			 strerror(errno));
		return refuse(p, value, what);
	}
	p->opts->btf = value;
	return 0;
}

static int set_quiet(struct parse *p, const char *value)
{
	(void)value;
	p->opts->quiet = true;
	return 0;
}

static int set_verbose(struct parse *p, const char *value)
{
	(void)value;
	p->opts->verbose++;
	return 0;
}

static int set_command(struct parse *p, const char *value)
{
	(void)value;
	if (!strcmp(p->spelled, "--help"))
		p->opts->command = NT_CMD_HELP;
	else if (!strcmp(p->spelled, "--version"))
		p->opts->command = NT_CMD_VERSION;
	else
		p->opts->command = NT_CMD_JSON_SCHEMA;
	return 0;
}

/* A row without a name is a heading of the help. */
static const struct option_row rows[] = {
	{0, NULL, NULL, "Whose connections", NULL, false, false},
	{'p', "pid", "PID[,PID]", "sockets of these processes, either end; with their\n"
	 "threads and children", set_pid, true, false},
	{'n', "name", "NAME", "likewise by command name", set_name, false, false},
	{'c', "cgroup", "PATH", "likewise by cgroup v2", set_cgroup, false, false},
	{'P', "port", "PORT[,PORT]", "local or remote port; also several, as the next two", set_port, true, false},
	{'L', "localport", "PORT", "local port", set_port, true, false},
	{'D', "remoteport", "PORT", "remote port", set_port, true, false},
	{'4', "ipv4", NULL, "IPv4 only", set_v4, false, false},
	{'6', "ipv6", NULL, "IPv6 only", set_v6, false, false},
	{0, NULL, NULL, "What to report, and when", NULL, false, false},
	{'m', "min", "DURATION", "stalls and holds of at least this (default 1ms)", set_min, false,
	 false},
	{'i', "interval", "DURATION", "a report each interval instead of a line each stall",
	 set_interval, false, false},
	{OPT_COUNT, "count", "N", "stop after N reports", set_count, false, false},
	{'d', "duration", "DURATION", "stop after this", set_total_duration, false, false},
	{'a', "all-holds", NULL, "also holds that are no stall", set_all_holds, false, false},
	{'U', "stacks", NULL, "where in the program the held write was made", set_stacks, false,
	 false},
	{0, NULL, NULL, "How", NULL, false, false},
	{'o', "output", "text|json", "JSON: one object a line on stdout", set_output, false, true},
	{'j', "json", NULL, "the same as --output json", set_json, false, true},
	{'w', "wide", NULL, "full addresses and names, beyond 80 columns", set_wide, false,
	 false},
	{OPT_HOOKS, "hooks", "WHICH", "auto (default), function, kprobe or tracepoint", set_hooks,
	 false, true},
	{OPT_BTF, "btf", "FILE", "BTF for a kernel without its own", set_btf, false, true},
	{'q', "quiet", NULL, "no word but errors and `ready` on stderr", set_quiet, false, false},
	{'v', "verbose", NULL, "what libbpf and the verifier say", set_verbose, true, true},
	{'h', "help", NULL, "this text", set_command, false, true},
	{OPT_VERSION, "version", NULL, "the version", set_command, false, true},
	{OPT_JSON_SCHEMA, "json-schema", NULL, "the JSON Schema of the records", set_command, false,
	 true},
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct option_row *row_of(int val)
{
	for (size_t i = 0; i < N_ROWS; i++)
		if (rows[i].name && rows[i].val == val)
			return &rows[i];
	return NULL;
}

/* getopt_long's own tables, from ours. */
static void build_tables(struct option table[N_ROWS + 1], char shorts[2 * N_ROWS + 3])
{
	size_t n = 0, s = 0;

	shorts[s++] = '+'; /* a command's words end the options of getopt; we go on by ourselves */
	shorts[s++] = ':';
	for (size_t i = 0; i < N_ROWS; i++) {
		const struct option_row *row = &rows[i];

		if (!row->name)
			continue;
		table[n++] = (struct option){row->name,
					     row->argument ? required_argument : no_argument, NULL,
					     row->val};
		if (row->val < 256) {
			shorts[s++] = row->val;
			if (row->argument)
				shorts[s++] = ':';
		}
	}
	memset(&table[n], 0, sizeof(table[n]));
	shorts[s] = '\0';
}

static int take(struct parse *p, const struct option_row *row, const char *value)
{
	const char *before = p->given[row->val];

	snprintf(p->spelled, sizeof(p->spelled), "--%s", row->name);
	if (before && !row->repeatable && strcmp(before, value ? value : ""))
		return refuse(p, value, "given twice with different values; give it once");
	p->given[row->val] = value ? value : "";
	return row->set(p, value);
}

/* What getopt_long refused: an option that is none, or one without its value. */
static int refuse_option(struct parse *p, int what, const char *word)
{
	char shown[NT_ESCAPED_LEN(32)];

	if (optopt && optopt < 256 && (word[0] != '-' || word[1] != '-'))
		snprintf(shown, sizeof(shown), "-%c", isprint(optopt) ? optopt : '?');
	else
		nt_escape(word, strcspn(word, "=") < 32 ? strcspn(word, "=") : 32, shown, sizeof(shown));
	if (what == ':')
		return fail(p, "%s: needs a value; `nagletrace --help` shows which", shown);
	if (optopt && row_of(optopt))
		return fail(p, "%s: takes no value; leave it out", shown);
	return fail(p, "%s: no such option; `nagletrace --help` lists them", shown);
}

/* getopt_long takes abbreviations, which would change their meaning with every new option. */
static bool is_abbreviated(const char *word, const struct option_row *row)
{
	size_t length = strcspn(word, "=");

	return !strncmp(word, "--", 2) && strlen(row->name) != length - 2;
}

static int set_bcc_interval(struct parse *p, const char *word)
{
	strcpy(p->spelled, "INTERVAL");
	if (p->opts->interval_ns)
		return refuse(p, word, "an interval is given already by --interval; give one of them");
	if (scale(word, strlen(word), 1000000000ULL, &p->opts->interval_ns) || !p->opts->interval_ns)
		return refuse(p, word, "not a number of seconds; give for example 5");
	return 0;
}

static int set_bcc_count(struct parse *p, const char *word)
{
	strcpy(p->spelled, "COUNT");
	if (p->opts->count)
		return refuse(p, word, "a count is given already by --count; give one of them");
	if (!parse_number(word, strlen(word), UINT32_MAX, &p->opts->count) || !p->opts->count)
		return refuse(p, word, "not a number of reports; give 1 or more");
	return 0;
}

/* `check`, or the bcc habit INTERVAL [COUNT]. */
static int take_words(struct parse *p, char **words, int n)
{
	char shown[NT_ESCAPED_LEN(32)];
	int err = 0;

	if (!n)
		return 0;
	nt_escape(words[n - 1], 32, shown, sizeof(shown));
	if (!strcmp(words[0], "check")) {
		if (n > 1)
			return fail(p, "%s: one word too many; `check` takes options only", shown);
		p->opts->command = NT_CMD_CHECK;
		return 0;
	}
	if (!isdigit((unsigned char)words[0][0])) {
		nt_escape(words[0], 32, shown, sizeof(shown));
		return fail(p, "%s: no such command; give check, or INTERVAL [COUNT] in seconds", shown);
	}
	if (n > 2)
		return fail(p, "%s: one word too many; give INTERVAL [COUNT] in seconds", shown);
	err = set_bcc_interval(p, words[0]);
	if (!err && n == 2)
		err = set_bcc_count(p, words[1]);
	return err;
}

static int check_together(struct parse *p)
{
	const struct nt_options *o = p->opts;
	int whose = (o->n_pids > 0) + (o->name[0] != 0) + (o->cgroup != NULL);

	if (whose > 1)
		return fail(p, "--pid, --name and --cgroup: do not go together; give one of them");
	if (o->only_v4 && o->only_v6)
		return fail(p, "--ipv4 and --ipv6: do not go together; leave both out for both");
	if (o->quiet && o->verbose)
		return fail(p, "--quiet and --verbose: do not go together; give one of them");
	if (p->given['j'] && p->given['o'] && strcmp(p->given['o'], "json"))
		return fail(p, "--json and --output %s: do not go together; give one of them",
			    p->given['o']);
	if (o->count && !o->interval_ns)
		return fail(p, "--count %s: counts reports, which need --interval; give both",
			    p->given[OPT_COUNT]);
	if (o->command != NT_CMD_CHECK)
		return 0;
	for (size_t i = 0; i < N_ROWS; i++)
		if (rows[i].name && !rows[i].for_check && p->given[rows[i].val])
			return fail(p, "--%s: does not go with `check`; leave it out", rows[i].name);
	return 0;
}

static int parse_all(struct parse *p, int argc, char **argv)
{
	struct option table[N_ROWS + 1];
	char shorts[2 * N_ROWS + 3];
	char *words[4];
	int n_words = 0, err;

	build_tables(table, shorts);
	optind = 0; /* begins anew, also after another call */
	opterr = 0;
	for (;;) {
		int place = optind ? optind : 1;
		int val = getopt_long(argc, argv, shorts, table, NULL);
		const struct option_row *row;

		if (val == -1) {
			bool ended = optind > 1 && !strcmp(argv[optind - 1], "--") && place != optind;

			/* words may stand between options, but not behind -- */
			if (optind >= argc)
				break;
			if (n_words == 3)
				break;
			words[n_words++] = argv[optind++];
			if (ended)
				while (optind < argc && n_words < 3)
					words[n_words++] = argv[optind++];
			continue;
		}
		row = val == '?' || val == ':' ? NULL : row_of(val);
		if (!row)
			return refuse_option(p, val, argv[place]);
		if (is_abbreviated(argv[place], row)) {
			optopt = 0;
			return refuse_option(p, '?', argv[place]);
		}
		err = take(p, row, optarg);
		if (err)
			return err;
		if (p->opts->command != NT_CMD_TRACE)
			return 0; /* --help and the like answer at once */
	}
	err = take_words(p, words, n_words);
	return err ? err : check_together(p);
}

int nt_options_parse(int argc, char **argv, struct nt_options *opts, char *err, size_t err_size)
{
	struct parse p = {.opts = opts, .err = err, .err_size = err_size};

	memset(opts, 0, sizeof(*opts));
	opts->min_ns = 1000000;
	if (err_size)
		err[0] = '\0';
	return parse_all(&p, argc, argv);
}

static void print_row(FILE *out, const struct option_row *row)
{
	const char *line = row->help;
	char left[40], letter[8] = "    ";

	if (row->val < 256)
		snprintf(letter, sizeof(letter), "-%c, ", row->val);
	snprintf(left, sizeof(left), "  %s--%s%s%s", letter, row->name, row->argument ? " " : "",
		 row->argument ? row->argument : "");
	fprintf(out, "%-27s", left);
	while (line) {
		size_t n = strcspn(line, "\n");

		fprintf(out, "%s%.*s\n", line == row->help ? " " : "                            ", (int)n,
			line);
		line = line[n] ? line + n + 1 : NULL;
	}
}

void nt_options_help(FILE *out)
{
	fputs("nagletrace finds the time that TCP connections lose when a sender holds a small\n"
	      "segment (Nagle, cork) while the receiver holds the ACK: the 40 ms stall\n"
	      "\n"
	      "  nagletrace [OPTIONS]                  every stall on this host, as it happens\n"
	      "  nagletrace -p PID                     only sockets of that process\n"
	      "  nagletrace [OPTIONS] INTERVAL [COUNT] a report every INTERVAL seconds\n"
	      "  nagletrace check                      what this kernel offers, what is missing\n",
	      out);
	for (size_t i = 0; i < N_ROWS; i++) {
		if (rows[i].name)
			print_row(out, &rows[i]);
		else
			fprintf(out, "\n%s:\n", rows[i].help);
	}
	fputs("\n"
	      "Durations take a unit: 250us, 40ms, 5s, 2m. Ctrl-C ends with the closing report.\n"
	      "Exit codes: 0 done, 1 failed at run time, 2 usage, 3 this kernel cannot, 4 not\n"
	      "permitted.\n"
	      "\n"
	      "Examples:\n"
	      "  sudo nagletrace -p 4242 -i 5s         a report every 5 seconds\n"
	      "  sudo nagletrace -P 6379 -d 30s -o json\n"
	      "  sudo nagletrace -n nginx --stacks     where the held writes were made\n",
	      out);
}
