// SPDX-License-Identifier: GPL-2.0
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "numbers.h"
#include "options_table.h"

static const struct nt_option_row *row_of(int val)
{
	for (size_t i = 0; i < NT_N_OPTION_ROWS; i++)
		if (nt_option_rows[i].name && nt_option_rows[i].val == val)
			return &nt_option_rows[i];
	return NULL;
}

/* getopt_long's own tables, from ours. */
static void build_tables(struct option table[NT_N_OPTION_ROWS + 1],
			 char shorts[2 * NT_N_OPTION_ROWS + 3])
{
	size_t n = 0, s = 0;

	shorts[s++] = '+'; /* a command's words end the options of getopt; we go on by ourselves */
	shorts[s++] = ':';
	for (size_t i = 0; i < NT_N_OPTION_ROWS; i++) {
		const struct nt_option_row *row = &nt_option_rows[i];

		if (!row->name)
			continue;
		table[n++] = (struct option){
			row->name, row->argument ? required_argument : no_argument, NULL, row->val};
		if (row->val < 256) {
			shorts[s++] = row->val;
			if (row->argument)
				shorts[s++] = ':';
		}
	}
	memset(&table[n], 0, sizeof(table[n]));
	shorts[s] = '\0';
}

static int take(struct nt_parse *p, const struct nt_option_row *row, const char *value)
{
	const char *before = p->given[row->val];

	snprintf(p->spelled, sizeof(p->spelled), "--%s", row->name);
	if (before && !row->repeatable && strcmp(before, value ? value : ""))
		return nt_refuse(p, value, "given twice with different values; give it once");
	p->given[row->val] = value ? value : "";
	if (row->set)
		return row->set(p, value);
	*(bool *)((char *)p->opts + row->flag) = true;
	return 0;
}

static bool is_long(const char *word)
{
	return !strncmp(word, "--", 2);
}

/* getopt_long takes abbreviations, which would change their meaning with every new option. */
static bool is_long_but_no_name(const char *word)
{
	size_t length = strcspn(word, "=");

	if (!is_long(word))
		return false;
	for (size_t i = 0; i < NT_N_OPTION_ROWS; i++) {
		const char *name = nt_option_rows[i].name;

		if (name && strlen(name) == length - 2 && !strncmp(word + 2, name, length - 2))
			return false;
	}
	return true;
}

/* What getopt_long refused, or would take for an abbreviation. */
static int refuse_option(struct nt_parse *p, int what, const char *word)
{
	const char letter[] = {'-', (char)optopt, '\0'}; /* getopt gives a byte above 127 signed */
	char shown[NT_SHOWN_LEN];

	if (is_long(word))
		nt_show(word, strcspn(word, "="), shown);
	else
		nt_show(letter, 2, shown);
	if (!is_long_but_no_name(word)) {
		if (what == ':')
			return nt_fail(p, "%s: needs a value; `nagletrace --help` shows which",
				       shown);
		if (is_long(word))
			return nt_fail(p, "%s: takes no value; leave it out", shown);
	}
	return nt_fail(p, "%s: no such option; `nagletrace --help` lists them", shown);
}

static int set_bcc_interval(struct nt_parse *p, const char *word)
{
	strcpy(p->spelled, "INTERVAL");
	if (p->opts->interval_ns)
		return nt_refuse(p, word,
				 "an interval is given already by --interval; give one of them");
	if (nt_parse_decimal(word, strlen(word), 1000000000ULL, &p->opts->interval_ns) ||
	    !p->opts->interval_ns)
		return nt_refuse(p, word, "not a number of seconds; give for example 5");
	return 0;
}

static int set_bcc_count(struct nt_parse *p, const char *word)
{
	strcpy(p->spelled, "COUNT");
	if (p->opts->count)
		return nt_refuse(p, word, "a count is given already by --count; give one of them");
	if (!nt_parse_number(word, strlen(word), UINT32_MAX, &p->opts->count) || !p->opts->count)
		return nt_refuse(p, word, "not a number of reports; give 1 or more");
	return 0;
}

static const struct {
	const char *name;
	enum nt_command command;
} commands[] = {
	{"check", NT_CMD_CHECK}, {"daemon", NT_CMD_DAEMON}, {"report", NT_CMD_REPORT},
	{"top", NT_CMD_TOP},     {"fix", NT_CMD_FIX},
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* NULL: none is named, the command is to trace. */
static const char *command_name(enum nt_command command)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (commands[i].command == command)
			return commands[i].name;
	return NULL;
}

static int take_command(struct nt_parse *p, char **words, int n)
{
	char shown[NT_SHOWN_LEN];

	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(words[0], commands[i].name))
			p->opts->command = commands[i].command;
	nt_show(words[n - 1], strlen(words[n - 1]), shown);
	if (p->opts->command != NT_CMD_TRACE && n > 1)
		return nt_fail(p, "%s: one word too many; `%s` takes options only", shown,
			       words[0]);
	if (p->opts->command != NT_CMD_TRACE)
		return 0;
	nt_show(words[0], strlen(words[0]), shown);
	return nt_fail(
		p,
		"%s: no such command; give check, daemon, report, top or fix, or INTERVAL [COUNT] "
		"in seconds",
		shown);
}

/* A command, or the bcc habit INTERVAL [COUNT]. */
static int take_words(struct nt_parse *p, char **words, int n)
{
	char shown[NT_SHOWN_LEN];
	int err;

	if (!n)
		return 0;
	if (!isdigit((unsigned char)words[0][0]))
		return take_command(p, words, n);
	nt_show(words[n - 1], strlen(words[n - 1]), shown);
	if (n > 2)
		return nt_fail(p, "%s: one word too many; give INTERVAL [COUNT] in seconds", shown);
	err = set_bcc_interval(p, words[0]);
	if (!err && n == 2)
		err = set_bcc_count(p, words[1]);
	return err;
}

/* Those with which an option goes, as "`daemon`, `report`". */
static void name_commands(const struct nt_option_row *row, char *out, size_t size)
{
	size_t at = 0;

	for (size_t i = 0; i < N_COMMANDS; i++)
		if (row->commands & NT_ON(commands[i].command))
			at += snprintf(out + at, size - at, "%s`%s`", at ? ", " : "",
				       commands[i].name);
}

/* Each option goes with some commands only. */
static int check_command(struct nt_parse *p)
{
	const char *name = command_name(p->opts->command);
	char names[64];

	for (size_t i = 0; i < NT_N_OPTION_ROWS; i++) {
		const struct nt_option_row *row = &nt_option_rows[i];

		if (!row->name || !p->given[row->val] || row->commands & NT_ON(p->opts->command))
			continue;
		if (name)
			return nt_fail(p, "--%s: does not go with `%s`; leave it out", row->name,
				       name);
		name_commands(row, names, sizeof(names));
		return nt_fail(p, "--%s: goes with %s only; leave it out", row->name, names);
	}
	return 0;
}

static int check_together(struct nt_parse *p)
{
	const struct nt_options *o = p->opts;
	int whose = (o->n_pids > 0) + (o->name[0] != 0) + (o->cgroup != NULL);

	if (whose > 1)
		return nt_fail(p,
			       "--pid, --name and --cgroup: do not go together; give one of them");
	if (o->only_v4 && o->only_v6)
		return nt_fail(p, "--ipv4 and --ipv6: do not go together; leave both out for both");
	if (o->quiet && o->verbose)
		return nt_fail(p, "--quiet and --verbose: do not go together; give one of them");
	if (p->given['j'] && p->given['o'] && strcmp(p->given['o'], "json"))
		return nt_fail(p, "--json and --output %s: do not go together; give one of them",
			       p->given['o']);
	if (o->count && !o->interval_ns)
		return nt_fail(
			p, "--count %" PRIu64 ": counts reports, which need --interval; give both",
			o->count);
	return 0;
}

/* Whoever chooses what is traced has it traced; the daemon has chosen for itself. */
static int check_top(struct nt_parse *p)
{
	const uint64_t least_ns = 100000000;

	if (p->opts->command != NT_CMD_TOP)
		return 0;
	if (p->opts->interval_ns && p->opts->interval_ns < least_ns) {
		strcpy(p->spelled, "--interval");
		return nt_refuse(p, p->given['i'], "too short to be looked at; give 100ms or more");
	}
	for (size_t i = 0; i < NT_N_OPTION_ROWS; i++) {
		const struct nt_option_row *row = &nt_option_rows[i];

		if (!row->name || !p->given[row->val] || !(row->commands & NT_TRACES_ITSELF))
			continue;
		p->opts->traces_itself = true;
		if (p->given[NT_OPT_SOCKET])
			return nt_fail(p,
				       "--socket and --%s: do not go together; with --%s, top "
				       "traces by itself",
				       row->name, row->name);
	}
	return 0;
}

/* An experiment changes one thing, and only where it is told to. */
static int check_fix(struct nt_parse *p)
{
	const struct nt_options *o = p->opts;

	if (o->command != NT_CMD_FIX)
		return 0;
	if (o->nodelay && o->quickack)
		return nt_fail(p,
			       "--nodelay and --quickack: do not go together, or nobody could say "
			       "which helped; give one of them");
	if (!o->nodelay && !o->quickack)
		return nt_fail(p,
			       "fix: says not what to set; give --nodelay where the process sends, "
			       "or --quickack where it receives");
	if (!o->n_pids && !o->name[0] && !o->cgroup)
		return nt_fail(p,
			       "fix: says not whose connections; give --pid, --name or --cgroup");
	return 0;
}

static int parse_all(struct nt_parse *p, int argc, char **argv)
{
	struct option table[NT_N_OPTION_ROWS + 1];
	char shorts[2 * NT_N_OPTION_ROWS + 3];
	char *words[4];
	int n_words = 0, err;

	build_tables(table, shorts);
	optind = 0; /* begins anew, also after another call */
	opterr = 0;
	for (;;) {
		int place = optind ? optind : 1;
		int val = getopt_long(argc, argv, shorts, table, NULL);
		const struct nt_option_row *row;

		if (val == -1) {
			bool ended =
				optind > 1 && !strcmp(argv[optind - 1], "--") && place != optind;

			/* words may stand between options; behind -- there is nothing else */
			do {
				if (optind >= argc || n_words == 3)
					goto words;
				words[n_words++] = argv[optind++];
			} while (ended);
			continue;
		}
		row = val == '?' || val == ':' ? NULL : row_of(val);
		if (!row || is_long_but_no_name(argv[place]))
			return refuse_option(p, val, argv[place]);
		err = take(p, row, optarg);
		if (err)
			return err;
		if (p->opts->command != NT_CMD_TRACE)
			return 0; /* --help and the like answer at once */
	}
words:
	err = take_words(p, words, n_words);
	if (!err)
		err = check_command(p);
	if (!err)
		err = check_top(p);
	if (!err)
		err = check_fix(p);
	return err ? err : check_together(p);
}

int nt_options_parse(int argc, char **argv, struct nt_options *opts, char *err, size_t err_size)
{
	struct nt_parse p = {.opts = opts, .err = err, .err_size = err_size};

	memset(opts, 0, sizeof(*opts));
	opts->min_ns = 1000000;
	opts->socket = NT_DEFAULT_SOCKET;
	opts->for_ns = 10 * 1000000000ULL;
	opts->window_ns = 10 * 60 * 1000000000ULL;
	opts->max_series = 1000;
	opts->max_connections = 1024;
	if (err_size)
		err[0] = '\0';
	return parse_all(&p, argc, argv);
}

static void print_row(FILE *out, const struct nt_option_row *row)
{
	const char *line = row->help;
	char left[40], letter[8] = "    ";

	if (row->val < 256)
		snprintf(letter, sizeof(letter), "-%c, ", row->val);
	snprintf(left, sizeof(left), "  %s--%s%s%s", letter, row->name, row->argument ? " " : "",
		 row->argument ? row->argument : "");
	if (strlen(left) > 27)
		fprintf(out, "%s\n%28s", left, "");
	else
		fprintf(out, "%-28s", left);
	while (line) {
		size_t n = strcspn(line, "\n");

		fprintf(out, "%*s%.*s\n", line == row->help ? 0 : 28, "", (int)n, line);
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
	      "  nagletrace check                      what this kernel offers, what is missing\n"
	      "  nagletrace daemon [OPTIONS]           stays attached, and answers on a socket\n"
	      "  nagletrace report [-f]                what the daemon has; needs no privilege\n"
	      "  nagletrace top [OPTIONS]              a live view, by the daemon, or as root\n"
	      "  nagletrace fix -p PID --nodelay       the remedy tried on the running process\n",
	      out);
	for (size_t i = 0; i < NT_N_OPTION_ROWS; i++) {
		if (nt_option_rows[i].name)
			print_row(out, &nt_option_rows[i]);
		else
			fprintf(out, "\n%s:\n", nt_option_rows[i].help);
	}
	fputs("\n"
	      "Durations take a unit: 250us, 40ms, 5s, 2m. Ctrl-C ends with the closing report.\n"
	      "Exit codes: 0 done, 1 failed at run time, 2 usage, 3 this kernel cannot, 4 not\n"
	      "permitted.\n"
	      "\n"
	      "Examples:\n"
	      "  sudo nagletrace -p 4242 -i 5s         a report every 5 seconds\n"
	      "  sudo nagletrace -P 6379 -d 30s -o json\n"
	      "  sudo nagletrace -n nginx --stacks     where the held writes were made\n"
	      "  sudo nagletrace fix -p 4242 --nodelay --for 30s\n",
	      out);
}
