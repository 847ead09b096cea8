// SPDX-License-Identifier: GPL-2.0
/*
 * Writes the table of options into the files that show it: `make options`. Copies stdin to stdout,
 * and between the lines with "options: begin" and "options: end" writes what argv[1] names: the
 * part of bash's completion, of zsh's, or of the manual.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/options_table.h"

/* ---- what both shells ask ---- */

/* By kind: what completes a value, for bash; what zsh calls the value, and what completes it. */
static const struct {
	const char *bash, *name, *zsh;
} values[] = {
	[NT_DURATION] = {"any", "duration", " "},
	[NT_COUNT] = {"any", "number", " "},
	[NT_PERCENT] = {"any", "percent of the time of all CPUs", " "},
	[NT_PIDS] = {"pids", "process id", "_sequence _nagletrace_pids"},
	[NT_PORTS] = {"any", "ports", " "},
	[NT_COMM] = {"names", "command name", "_nagletrace_names"},
	[NT_CGROUP] = {"cgroups", "cgroup", "_nagletrace_cgroups"},
	[NT_CONTAINER] = {"any", "container", " "},
	[NT_POD] = {"any", "uid of a pod", " "},
	[NT_UNIT] = {"any", "unit", " "},
	[NT_NETNS] = {"namespaces", "process id or path", "_nagletrace_namespaces"},
	[NT_USER] = {"users", "user", "_users"},
	[NT_USER_GROUP] = {"groups", "group", "_groups"},
	[NT_BTF_FILE] = {"files", "file", "_files"},
	[NT_KEY_FILE] = {"files", "file", "_files"},
	[NT_HOST] = {"any", "name of the host", " "},
	[NT_OUTPUT_FILE] = {"files", "file", "_files"},
	[NT_SOCKET_PATH] = {"files", "socket", "_files"},
};

/* Takes it a value that may be the next word? */
static bool takes_word(const struct nt_option *option)
{
	return option->argument && !nt_may_lack_value(option);
}

static void print_words(const struct nt_option *option, const char *separator)
{
	for (size_t i = 0; option->words[i]; i++)
		printf("%s%s", i ? separator : "", option->words[i]);
}

/* The commands with which an option goes. */
static void print_commands(const struct nt_option *option, const char *separator)
{
	const char *before = "";

	if (option->commands & NT_ON(NT_CMD_TRACE)) {
		fputs("trace", stdout);
		before = separator;
	}
	for (const struct nt_command_row *row = nt_commands; row->name; row++) {
		if (option->commands & NT_ON(row->command)) {
			printf("%s%s", before, row->name);
			before = separator;
		}
	}
}

static void print_command_names(const char *declare)
{
	printf("%s_nagletrace_commands=(", declare);
	for (const struct nt_command_row *row = nt_commands; row->name; row++)
		printf("%s%s", row == nt_commands ? "" : " ", row->name);
	puts(")");
}

/* ---- bash ---- */

static void print_bash(void)
{
	print_command_names("");
	puts("# of each option: its name, its letter, what completes its value, its commands\n"
	     "_nagletrace_options='");
	for (const struct nt_option *option = nt_options; option->help; option++) {
		if (!option->name)
			continue;
		printf("--%s -%c ", option->name, option->letter ? option->letter : '-');
		if (option->words)
			print_words(option, "|");
		else
			fputs(takes_word(option) ? values[option->kind].bash : "none", stdout);
		putchar(' ');
		print_commands(option, " ");
		putchar('\n');
	}
	puts("'");
}

/* ---- zsh ---- */

static void print_spellings(const struct nt_option *option)
{
	if (option->letter)
		printf("-%c ", option->letter);
	printf("--%s", option->name);
}

/* What may not stand beside it: "(-q --quiet -v --verbose)". */
static void print_exclusions(const struct nt_option *option)
{
	const char *before = "(";
	bool repeats = nt_may_be_repeated(option);

	if (option->kind == NT_ANSWER) {
		fputs("(- *)", stdout);
		return;
	}
	for (const struct nt_option *other = nt_options; other->help; other++) {
		if (other == option ? repeats || (!option->letter && !option->set)
				    : !option->set || other->set != option->set)
			continue;
		fputs(before, stdout);
		print_spellings(other);
		before = " ";
	}
	printf("%s%s", *before == ' ' ? ")" : "", repeats ? "*" : "");
}

/* Between single quotes and square brackets. */
static void print_description(const char *text)
{
	putchar('[');
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\''", stdout);
		else if (*text != '`')
			printf("%s%c", strchr("[]:\\", *text) ? "\\" : "", *text);
	}
	putchar(']');
}

static void print_spec(const struct nt_option *option)
{
	const char *with_letter = option->argument ? "+" : "";
	const char *with_name = !option->argument ? "" : takes_word(option) ? "=" : "=-";

	putchar('\'');
	print_exclusions(option);
	if (option->letter)
		printf("'{-%c%s,--%s%s}'", option->letter, with_letter, option->name, with_name);
	else
		printf("--%s%s", option->name, with_name);
	print_description(option->help);
	if (option->words) {
		printf(":%s:(", option->name);
		print_words(option, " ");
		putchar(')');
	} else if (option->argument) {
		printf("%s:%s:%s", takes_word(option) ? "" : ":", values[option->kind].name,
		       values[option->kind].zsh);
	}
	putchar('\'');
}

static void print_zsh(void)
{
	print_command_names("typeset -ga ");
	puts("\n# What the command $1 takes, into specs.\n_nagletrace_specs() {");
	fputs("  specs=('1:command, or interval in seconds:((", stdout);
	for (const struct nt_command_row *row = nt_commands; row->name; row++)
		printf("%s%s\\:\"%s\"", row == nt_commands ? "" : " ", row->name, row->help);
	puts("))')");
	for (const struct nt_option *option = nt_options; option->help; option++) {
		if (!option->name)
			continue;
		if (option->kind != NT_ANSWER) {
			fputs("  [[ $1 != (", stdout);
			print_commands(option, "|");
			fputs(") ]] ||", stdout);
		} else {
			putchar(' ');
		}
		fputs(" specs+=(", stdout);
		print_spec(option);
		puts(")");
	}
	puts("}");
}

/* ---- the manual ---- */

#define MANUAL_COLUMNS 79

static size_t column; /* of the line of the manual that is being written */

static void end_line(void)
{
	if (column)
		putchar('\n');
	column = 0;
}

/* Is it one of capitals, or several, and with an underscore or without? */
static bool is_capitals(const char *word, bool underscore)
{
	return strlen(word) > 1 && strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_ ") == strlen(word) &&
	       (strchr(word, '_') != NULL) == underscore;
}

/* mdoc's macro for a word; NULL: it is text. */
static const char *macro_of(const struct nt_option *option, const char *word, bool quoted)
{
	if (word[0] == '-' && (isalpha((unsigned char)word[1]) || word[1] == '-'))
		return "Fl";
	if (word[0] == '/')
		return "Pa";
	if (is_capitals(word, true))
		return "Dv";
	if (option->argument && !strcmp(word, option->argument))
		return "Ar";
	if (!quoted)
		return NULL;
	for (const struct nt_command_row *row = nt_commands; row->name; row++)
		if (!strcmp(word, row->name))
			return "Cm";
	if (!strcmp(word, "INTERVAL"))
		return "Ar";
	return is_capitals(word, false) ? "Sx" : "Ql";
}

/* Writes a word with what stands behind it; a macro has a line of its own. */
static void put_word(const struct nt_option *option, const char *word, const char *behind,
		     bool quoted)
{
	const char *macro = macro_of(option, word, quoted);
	size_t length = strlen(word) + strlen(behind);

	if (macro) {
		end_line();
		printf(".%s %s", macro, word + (*macro == 'F'));
		for (const char *c = behind; *c; c++)
			printf(" %c", *c);
		putchar('\n');
		return;
	}
	if (column && column + 1 + length > MANUAL_COLUMNS)
		end_line();
	column += printf("%s%s%s", column ? " " : "", word, behind);
	if (*behind && behind[strlen(behind) - 1] == '.') /* a sentence has lines of its own */
		end_line();
}

static void print_prose(const struct nt_option *option, const char *prose)
{
	char copy[1024], *at = copy;

	snprintf(copy, sizeof(copy), "%s", prose);
	while (*at) {
		bool quoted = *at == '`';
		char *word = at + quoted, *end = word + strcspn(word, quoted ? "`" : " ");
		char behind[8];
		size_t n = quoted ? strcspn(end + 1, " ") : 0;

		if (!quoted)
			while (end > word && strchr(".,:;)", end[-1]) && n < sizeof(behind) - 1)
				end--, n++;
		snprintf(behind, sizeof(behind), "%.*s", (int)n, end + quoted);
		at = end + quoted + n;
		at += *at == ' ';
		*end = '\0';
		put_word(option, word, behind, quoted);
	}
	end_line();
}

static void print_entry(const struct nt_option *option)
{
	char prose[1024], standard[80] = "";

	fputs(".It ", stdout);
	if (option->letter)
		printf("Fl %c , ", option->letter);
	if (option->argument && !takes_word(option))
		printf("Fl -%s Ns Op = Ns Ar N\n", option->name);
	else
		printf("Fl -%s%s%s\n", option->name, option->argument ? " Ar " : "",
		       option->argument ? option->argument : "");
	if (option->standard)
		snprintf(standard, sizeof(standard), " (default %s)", option->standard);
	snprintf(prose, sizeof(prose), "%c%s%s.%s%s", toupper((unsigned char)option->help[0]),
		 option->help + 1, standard, option->more ? " " : "",
		 option->more ? option->more : "");
	print_prose(option, prose);
}

static void print_manual(void)
{
	const char *before = "";

	for (const struct nt_option *option = nt_options; option->help; option++) {
		if (option->name) {
			print_entry(option);
			continue;
		}
		printf("%s.Ss ", before);
		for (const char *c = option->help; *c; c++)
			if (*c != '`')
				putchar(*c);
		puts("\n.Bl -tag -width Ds");
		before = ".El\n";
	}
	fputs(before, stdout);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*print)(void);
	} parts[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"man", print_manual}};
	const char *name = argc == 2 ? argv[1] : "";
	bool inside = false, done = false;
	char line[4096];

	while (fgets(line, sizeof(line), stdin)) {
		if (strstr(line, "options: end"))
			inside = false;
		if (!inside)
			fputs(line, stdout);
		if (!strstr(line, "options: begin"))
			continue;
		inside = true;
		for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
			if (!strcmp(name, parts[i].name)) {
				parts[i].print();
				done = true;
			}
		}
	}
	if (!done || inside || fflush(stdout)) {
		fprintf(stderr, "%s bash|zsh|man: the lines of its options are not in the input\n",
			argv[0]);
		return 1;
	}
	return 0;
}
