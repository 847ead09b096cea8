// SPDX-License-Identifier: GPL-2.0
#include "cmd/options.h"

#include <ctype.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "base/numbers.h"
#include "cmd/options_table.h"

#define FROM_LONG 256 /* getopt_long's val of a long option: this plus its place in the table */

static const struct nt_option *option_of(int val)
{
	const struct nt_option *option = nt_options;

	if (val >= FROM_LONG)
		return &nt_options[val - FROM_LONG];
	while (option->help && option->letter != val)
		option++;
	return option->help ? option : NULL;
}

/* Returns the value, or "", of an option that was given; NULL if it was not given. */
static const char *given(const struct nt_parse *p, const char *name)
{
	for (const struct nt_option *option = nt_options; option->help; option++)
		if (option->name && !strcmp(option->name, name))
			return p->given[option - nt_options];
	return NULL;
}

/* Builds the tables that getopt_long reads from ours. */
static void build_tables(struct option table[NT_MAX_OPTIONS], char shorts[2 * NT_MAX_OPTIONS + 3])
{
	size_t n = 0, s = 0;

	shorts[s++] = '+'; /* getopt stops at a command's word; parse_all() goes on by itself */
	shorts[s++] = ':';
	for (const struct nt_option *option = nt_options; option->help; option++) {
		if (!option->name)
			continue;
		table[n++] = (struct option){
			.name = option->name,
			.has_arg = !option->argument           ? no_argument
				   : nt_may_lack_value(option) ? optional_argument
							       : required_argument,
			.val = FROM_LONG + (int)(option - nt_options),
		};
		if (option->letter) {
			shorts[s++] = option->letter;
			if (option->argument)
				shorts[s++] = ':';
		}
	}
	memset(&table[n], 0, sizeof(table[n]));
	shorts[s] = '\0';
}

static int take(struct nt_parse *p, const struct nt_option *option, const char *value)
{
	const char **before = &p->given[option - nt_options], *now = value ? value : "";

	snprintf(p->spelled, sizeof(p->spelled), "--%s", option->name);
	if (*before && !nt_may_be_repeated(option) && strcmp(*before, now))
		return nt_refuse(p, now, "given twice with different values; give it once");
	*before = now;
	return nt_option_read(p, option, value);
}

static bool is_long(const char *word)
{
	return !strncmp(word, "--", 2);
}

/* getopt_long accepts abbreviations; each new option could change what one of them means. */
static bool is_long_but_no_name(const char *word)
{
	size_t length = strcspn(word, "=");

	if (!is_long(word))
		return false;
	for (const struct nt_option *option = nt_options; option->help; option++)
		if (option->name && strlen(option->name) == length - 2 &&
		    !strncmp(word + 2, option->name, length - 2))
			return false;
	return true;
}

/* Refuses an option that getopt_long rejected, or accepted as an abbreviation. */
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
	if (p->settings->interval_ns)
		return nt_refuse(p, word, "--interval gives one already; give only one of them");
	if (nt_parse_decimal(word, strlen(word), 1000000000ULL, &p->settings->interval_ns) ||
	    !p->settings->interval_ns)
		return nt_refuse(p, word, "not a number of seconds; give for example 5");
	return 0;
}

static int set_bcc_count(struct nt_parse *p, const char *word)
{
	strcpy(p->spelled, "COUNT");
	if (p->settings->count)
		return nt_refuse(p, word, "--count gives one already; give only one of them");
	if (!nt_parse_number(word, strlen(word), UINT32_MAX, &p->settings->count) ||
	    !p->settings->count)
		return nt_refuse(p, word, "not a count; give 1 or more");
	return 0;
}

/* Returns the command's row; NULL where none is named: the command is then to trace. */
static const struct nt_command_row *row_of(enum nt_command command)
{
	for (const struct nt_command_row *row = nt_commands; row->name; row++)
		if (row->command == command)
			return row;
	return NULL;
}

/* Returns the row of the command of that name; NULL: there is none. */
static const struct nt_command_row *row_named(const char *name)
{
	for (const struct nt_command_row *row = nt_commands; row->name; row++)
		if (!strcmp(name, row->name))
			return row;
	return NULL;
}

static int take_command(struct nt_parse *p, const char *word)
{
	const struct nt_command_row *row = row_named(word);
	char shown[NT_SHOWN_LEN];

	if (row) {
		p->command = row->command;
		return 0;
	}
	nt_show(word, strlen(word), shown);
	return nt_fail(p,
		       "%s: no such command; give check, daemon, report, top, fix, sample, "
		       "INTERVAL [COUNT] or -- and a program",
		       shown);
}

/* Takes INTERVAL [COUNT], as the bcc tools do. */
static int take_interval(struct nt_parse *p, char **words, int n)
{
	char shown[NT_SHOWN_LEN];
	int err;

	if (!n)
		return 0;
	if (n > 2) {
		nt_show(words[2], strlen(words[2]), shown);
		return nt_fail(p, "%s: one word too many; give INTERVAL [COUNT] in seconds", shown);
	}
	err = set_bcc_interval(p, words[0]);
	if (!err && n == 2)
		err = set_bcc_count(p, words[1]);
	return err;
}

/* Takes `help`, `help COMMAND` or `version`, which answer as --help and --version do. Returns
 * whether it is one of them. */
static bool take_answer(struct nt_parse *p, char **words, int n, int *err)
{
	bool help = !strcmp(words[0], "help");
	const struct nt_command_row *row = help && n == 2 ? row_named(words[1]) : NULL;

	if (!help && strcmp(words[0], "version") != 0)
		return false;
	p->command = help ? NT_CMD_HELP : NT_CMD_VERSION;
	p->settings->help_of = row ? row->command : NT_CMD_TRACE;
	*err = 0;
	if (n > 1 && !row)
		*err = nt_fail(p, "%s: takes %s; leave out the rest", words[0],
			       help ? "one command, such as `fix`" : "no word");
	return true;
}

/* Takes a command and its words, or INTERVAL [COUNT] alone. */
static int take_words(struct nt_parse *p, char **words, int n)
{
	char shown[NT_SHOWN_LEN];
	int err;

	if (!n || isdigit((unsigned char)words[0][0]))
		return take_interval(p, words, n);
	if (take_answer(p, words, n, &err))
		return err;
	err = take_command(p, words[0]);
	if (err || n == 1 || p->command == NT_CMD_SAMPLE)
		return err ? err : take_interval(p, words + 1, n - 1);
	nt_show(words[1], strlen(words[1]), shown);
	return nt_fail(p, "%s: one word too many; `%s` takes options only", shown, words[0]);
}

/* Lists the commands that accept an option, as "`daemon`, `report`". */
static void name_commands(const struct nt_option *option, char *out, size_t size)
{
	size_t at = 0;

	for (const struct nt_command_row *row = nt_commands; row->name; row++)
		if (option->commands & NT_ON(row->command))
			at += snprintf(out + at, size - at, "%s`%s`", at ? ", " : "", row->name);
}

/* Checks that the command accepts each option given: an option belongs to some commands only. */
static int check_command(struct nt_parse *p)
{
	const struct nt_command_row *row = row_of(p->command);
	char names[64];

	for (const struct nt_option *option = nt_options; option->help; option++) {
		if (!p->given[option - nt_options] || option->commands & NT_ON(p->command))
			continue;
		if (row)
			return nt_fail(p, "--%s: does not go with `%s`; leave it out", option->name,
				       row->name);
		name_commands(option, names, sizeof(names));
		return nt_fail(p, "--%s: goes with %s only; leave it out", option->name, names);
	}
	return 0;
}

static int check_set(struct nt_parse *p, enum nt_option_set set, const char *remedy)
{
	const char *names[NT_MAX_OPTIONS];
	char text[NT_OPTION_ERROR_LEN];
	size_t n = 0, at = 0;

	for (const struct nt_option *option = nt_options; option->help; option++)
		if (option->set == set && p->given[option - nt_options])
			names[n++] = option->name;
	if (n < 2)
		return 0;
	for (size_t i = 0; i < n; i++)
		at += snprintf(text + at, sizeof(text) - at, "%s--%s",
			       !i          ? ""
			       : i < n - 1 ? ", "
					   : " and ",
			       names[i]);
	return nt_fail(p, "%s: do not go together%s", text, remedy);
}

static int check_together(struct nt_parse *p)
{
	static const char *const remedies[] = {
		[NT_ONE_CHOICE_OF_PROCESSES] = "; give one of them",
		[NT_ONE_FAMILY] = "; leave both out for both",
		[NT_ONE_LOUDNESS] = "; give one of them",
		[NT_ONE_REMEDY] = "; give one of them, or nobody can say which helped",
		[NT_ONE_TIME_TO_KEEP] = "; give one of them",
		[NT_ONE_REPORT] = "; give one of them",
	};
	const char *output = given(p, "output");
	int err = 0;

	for (size_t set = 0; !err && set < sizeof(remedies) / sizeof(remedies[0]); set++)
		if (remedies[set])
			err = check_set(p, set, remedies[set]);
	if (err)
		return err;
	if (given(p, "json") && output && strcmp(output, "json"))
		return nt_fail(p, "--json and --output %s: do not go together; give one of them",
			       output);
	if (p->settings->standby && p->settings->max_overhead_ppm)
		return nt_fail(p, "--standby and --max-overhead: do not go together; leave one "
				  "out: in standby nothing is attached while nothing stalls");
	if (given(p, "standby-after") && !p->settings->standby)
		return nt_fail(p, "--standby-after %s: is for --standby; give both",
			       given(p, "standby-after"));
	if (p->settings->late_acks && p->settings->output != NT_OUTPUT_JSON)
		return nt_fail(p, "--late-acks: is for programs; give --output json too");
	if (p->settings->count && !p->settings->interval_ns)
		return nt_fail(p,
			       "--count %" PRIu64 ": counts the reports of --interval; give both",
			       p->settings->count);
	return 0;
}

/* An option that selects what is traced makes top trace by itself: the daemon has made its own
 * selection. */
static int check_top(struct nt_parse *p)
{
	const uint64_t least_ns = 100000000;

	if (p->command != NT_CMD_TOP)
		return 0;
	if (p->settings->interval_ns && p->settings->interval_ns < least_ns) {
		strcpy(p->spelled, "--interval");
		return nt_refuse(p, given(p, "interval"),
				 "too short for `top`; give 100ms or more");
	}
	for (const struct nt_option *option = nt_options; option->help; option++) {
		if (!p->given[option - nt_options] || !(option->commands & NT_TRACES_ITSELF))
			continue;
		p->settings->traces_itself = true;
		if (given(p, "socket"))
			return nt_fail(p,
				       "--socket and --%s: do not go together; with --%s, top "
				       "traces by itself",
				       option->name, option->name);
	}
	return 0;
}

/* What is kept is set on all connections of a cgroup: an option that chooses among them, or belongs
 * to the experiment, would not be heeded. */
static int check_keep(struct nt_parse *p)
{
	static const char *const heeded[] = {"cgroup",  "container",      "pod",    "unit",
					     "nodelay", "quickack-limit", "keep",   "pin",
					     "undo",    "quiet",          "verbose"};
	const struct nt_settings *o = p->settings;
	const char *what = o->keep   ? "--keep"
			   : o->pin  ? "--pin"
			   : o->undo ? "--undo"
				     : "the list of what is kept";

	if (!o->cgroup)
		return nt_fail(p, "%s: give --cgroup, --container, --pod or --unit too", what);
	if ((o->keep || o->pin) && !o->nodelay && !o->quickack_limit_ns)
		return nt_fail(p, "%s: give --nodelay or --quickack-limit too", what);
	if (!o->keep && !o->pin && (o->nodelay || o->quickack_limit_ns))
		return nt_fail(p, "%s: ends both remedies; leave out which", what);
	for (const struct nt_option *option = nt_options; option->help; option++) {
		bool fits = !p->given[option - nt_options];

		for (size_t i = 0; !fits && i < sizeof(heeded) / sizeof(heeded[0]); i++)
			fits = !strcmp(option->name, heeded[i]);
		if (!fits)
			return nt_fail(p, "--%s: does not go with %s; leave it out", option->name,
				       what);
	}
	return 0;
}

/* An experiment changes one option, and only on processes that the user has named. */
static int check_fix(struct nt_parse *p)
{
	const struct nt_settings *o = p->settings;

	if (p->command != NT_CMD_FIX)
		return 0;
	if (o->keep || o->pin || o->undo ||
	    (o->cgroup && !o->nodelay && !o->quickack && !o->quickack_limit_ns))
		return check_keep(p);
	if (o->quickack_limit_ns)
		return nt_fail(p, "--quickack-limit: is for --keep or --pin; give one of them");
	if (!o->nodelay && !o->quickack)
		return nt_fail(p, "fix: choose --nodelay (for the sender) or --quickack (for the "
				  "receiver)");
	if (!o->n_pids && !o->name[0] && !o->cgroup)
		return nt_fail(
			p,
			"fix: choose processes with --pid, --name, --cgroup, --container, --pod or "
			"--unit");
	return 0;
}

/* Checks a command to trace, which stands behind --, against the options before it. */
static int check_workload(struct nt_parse *p)
{
	static const char *const others[] = {"pid", "name", "cgroup",  "container",
					     "pod", "unit", "duration"};
	const struct nt_settings *o = p->settings;

	if (!o->workload)
		return o->user ? nt_fail(p,
					 "--user %s: is for a command to trace; give that behind --",
					 o->user)
			       : 0;
	if (p->command != NT_CMD_TRACE)
		return nt_fail(p, "--: `%s` traces no command; leave it out",
			       row_of(p->command)->name);
	if (!o->workload[0])
		return nt_fail(p, "--: needs a command to trace behind it, as in `nagletrace -- "
				  "curl URL`");
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (given(p, others[i]))
			return nt_fail(p,
				       "--%s: does not go with a command behind --, which says "
				       "what is traced and how long; leave one out",
				       others[i]);
	if (o->count)
		return nt_fail(p,
			       "COUNT %" PRIu64 ": does not go with a command behind --, which "
			       "ends the trace; leave it out",
			       o->count);
	if (o->output == NT_OUTPUT_JSON && !o->output_file)
		return nt_fail(p, "--output json: the command has stdout, and our messages "
				  "stderr; give --output-file too");
	return 0;
}

static int take_option(struct nt_parse *p, int val, const char *word)
{
	const struct nt_option *option = val == '?' || val == ':' ? NULL : option_of(val);

	if (!option || is_long_but_no_name(word))
		return refuse_option(p, val, word);
	return take(p, option, optarg);
}

/* Takes the words that are not options, then checks the command line as a whole. */
static int finish(struct nt_parse *p, char **words, int n_words)
{
	static int (*const checks[])(struct nt_parse *) = {check_command, check_top, check_fix,
							   check_together, check_workload};
	int err = take_words(p, words, n_words);

	if (p->command == NT_CMD_HELP || p->command == NT_CMD_VERSION)
		return err;
	for (size_t i = 0; !err && i < sizeof(checks) / sizeof(checks[0]); i++)
		err = checks[i](p);
	return err;
}

static int parse_all(struct nt_parse *p, int argc, char **argv)
{
	struct option table[NT_MAX_OPTIONS];
	char shorts[2 * NT_MAX_OPTIONS + 3];
	char *words[4];
	int n_words = 0;

	build_tables(table, shorts);
	optind = 0; /* parsing begins anew, also in a second call */
	opterr = 0;
	for (;;) {
		int place = optind ? optind : 1;
		int val = getopt_long(argc, argv, shorts, table, NULL);

		if (val != -1) {
			const struct nt_command_row *row = n_words ? row_named(words[0]) : NULL;
			int err = take_option(p, val, argv[place]);

			if (row)
				p->settings->help_of = row->command;
			if (err || p->command != NT_CMD_TRACE)
				return err; /* --help and its like answer at once */
			continue;
		}
		if (place != optind && !strcmp(argv[optind - 1], "--"))
			p->settings->workload = argv + optind;
		if (p->settings->workload || optind >= argc || n_words == 4)
			return finish(p, words, n_words);
		words[n_words++] = argv[optind++]; /* words may stand between options */
	}
}

/* Derives settings from the command and the options together, for code that knows neither. */
static void derive(const struct nt_parse *p)
{
	struct nt_settings *settings = p->settings;

	settings->borrows_sockets = p->command == NT_CMD_FIX;
	settings->counts_kept = p->command == NT_CMD_DAEMON;
	if (p->command != NT_CMD_DAEMON)
		settings->max_late_acks = 0;
	settings->streams_stacks =
		settings->stacks &&
		(p->command == NT_CMD_DAEMON ||
		 (p->command == NT_CMD_TRACE && settings->output == NT_OUTPUT_JSON));
}

int nt_options_parse(int argc, char **argv, enum nt_command *command, struct nt_settings *settings,
		     char *err, size_t err_size)
{
	struct nt_parse p = {.settings = settings, .err = err, .err_size = err_size};
	int cause;

	memset(settings, 0, sizeof(*settings));
	for (const struct nt_option *option = nt_options; option->help; option++)
		if (option->standard)
			nt_option_read(&p, option, option->standard);
	if (err_size)
		err[0] = '\0';
	cause = parse_all(&p, argc, argv);
	*command = p.command;
	derive(&p);
	return cause;
}

#define TEXT_COLUMN 28
#define COLUMNS     80

/* Writes text that must stay on one line, on this line or the next. Returns the column after it. */
static size_t put(FILE *out, size_t column, const char *text, size_t length)
{
	if (column > TEXT_COLUMN && column + 1 + length > COLUMNS) {
		fprintf(out, "\n%*s", TEXT_COLUMN, "");
		column = TEXT_COLUMN;
	} else if (column > TEXT_COLUMN) {
		fputc(' ', out);
		column++;
	}
	fwrite(text, 1, length, out);
	return column + length;
}

static void print_option(FILE *out, const struct nt_option *option)
{
	const char *text = option->help;
	char left[40], standard[64];
	size_t column = TEXT_COLUMN;

	snprintf(left, sizeof(left), "  %c%c%c --%s%s%s", option->letter ? '-' : ' ',
		 option->letter ? option->letter : ' ', option->letter ? ',' : ' ', option->name,
		 option->argument && !nt_may_lack_value(option) ? " " : "",
		 option->argument ? option->argument : "");
	if (strlen(left) < TEXT_COLUMN)
		fprintf(out, "%-*s", TEXT_COLUMN, left);
	else
		fprintf(out, "%s\n%*s", left, TEXT_COLUMN, "");
	while (*text) {
		size_t length = strcspn(text, " ");

		column = put(out, column, text, length);
		text += length + (text[length] == ' ');
	}
	if (option->standard) {
		snprintf(standard, sizeof(standard), "(default %s)", option->standard);
		put(out, column, standard, strlen(standard));
	}
	fputc('\n', out);
}

#define REPORTS_AT_END (NT_ON(NT_CMD_TRACE) | NT_ON(NT_CMD_SAMPLE) | NT_ON(NT_CMD_FIX))

/* Prints the options of these commands (NT_ON()), under their headings. */
static void print_options(FILE *out, unsigned int commands)
{
	const struct nt_option *heading = NULL;

	for (const struct nt_option *option = nt_options; option->help; option++) {
		if (!option->name) {
			heading = option;
		} else if (option->commands & commands) {
			if (heading)
				fprintf(out, "\n%s:\n", heading->help);
			heading = NULL;
			print_option(out, option);
		}
	}
	fprintf(out, "\nDurations take a unit: 250us, 40ms, 5s, 2m.%s\n",
		commands & REPORTS_AT_END ? " Ctrl-C ends with the closing report." : "");
	fputs("Exit codes: 0 done, 1 failed at run time, 2 usage, 3 this kernel cannot, 4 not\n"
	      "permitted, 5 stalls (--fail-on-stall).\n",
	      out);
}

static void print_command(FILE *out, const struct nt_command_row *row)
{
	fprintf(out, "  nagletrace %s %-*s %s\n", row->name, (int)(25 - strlen(row->name)),
		row->arguments, row->help);
}

void nt_options_help(FILE *out, enum nt_command command)
{
	const struct nt_command_row *of = row_of(command);

	if (of) {
		print_command(out, of);
		print_options(out, NT_ON(command));
		fprintf(out, "\nExamples:\n  %s\n  %s\n", of->examples[0], of->examples[1]);
		return;
	}
	fputs("nagletrace finds the time that TCP connections lose when a sender holds a small\n"
	      "segment (Nagle, cork) while the receiver holds the ACK: the 40 ms stall\n"
	      "\n"
	      "  nagletrace [OPTIONS]                  report each stall as it happens\n"
	      "  nagletrace -p PID                     report only that process's stalls\n"
	      "  nagletrace [OPTIONS] -- COMMAND...    trace a command from start to end\n"
	      "  nagletrace [OPTIONS] INTERVAL [COUNT] print a report every INTERVAL seconds\n"
	      "  nagletrace help fix                   show the options of one command\n",
	      out);
	for (const struct nt_command_row *row = nt_commands; row->name; row++)
		print_command(out, row);
	print_options(out, ~0U);
	fputs("\n"
	      "Examples:\n"
	      "  sudo nagletrace -p 4242 -i 5s         print a report every 5 seconds\n"
	      "  sudo nagletrace -P 6379 -d 30s -o json\n"
	      "  sudo nagletrace --fail-on-stall -- make check\n"
	      "  sudo nagletrace -n nginx --stacks     show where the held writes were made\n"
	      "  sudo nagletrace fix -p 4242 --nodelay --for 30s\n",
	      out);
}
