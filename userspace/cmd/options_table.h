/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table of options says how each is called, what it takes, means and sets. The parser, --help,
 * the completions and the manual's OPTIONS come from it. To add an option, add one row; then run
 * `make options`.
 */
#pragma once

#include "terms/settings.h"
#include "cmd/commands.h"
#include "base/text.h"

/* An option takes one of these kinds of value; options_table.c reads each with its own function. */
enum nt_option_kind {
	NT_HEADING = 0, /* not an option: .help is the heading of the options below */
	NT_FLAG,        /* sets a bool */
	NT_LEVEL,       /* raises an int each time */
	NT_CHOICE,      /* sets an enum to .choice */
	NT_ANSWER,      /* makes .choice the command, which answers at once */
	NT_ENUM,        /* one of .words; sets an enum to its place there */
	NT_DURATION,    /* in ns; at least .least */
	NT_COUNT,       /* at least .least; at most .most if that is set */
	NT_PERCENT,     /* in millionths, above 0 */
	NT_PIDS,
	NT_PORTS,
	NT_COMM, /* a process's name */
	NT_CGROUP,
	NT_CONTAINER,
	NT_POD,
	NT_UNIT,
	NT_NETNS,
	NT_USER,
	NT_USER_GROUP,
	NT_BTF_FILE,
	NT_KEY_FILE, /* 16 secret bytes */
	NT_HOST,     /* the name of a host */
	NT_OUTPUT_FILE,
	NT_SOCKET_PATH,
};

/* Options of the same set exclude each other. */
enum nt_option_set {
	NT_ANY = 0,
	NT_ONE_CHOICE_OF_PROCESSES,
	NT_ONE_FAMILY,
	NT_ONE_FORMAT, /* the same may be given twice: -j -o json */
	NT_ONE_LOUDNESS,
	NT_ONE_REMEDY,
	NT_ONE_TIME_TO_KEEP,
	NT_ONE_REPORT,
};

struct nt_option {
	const char *name;
	char letter; /* the short form; 0: it has none */
	enum nt_option_kind kind;
	const char *argument; /* as --help shows it, "[=N]" if it may be left out; NULL: it takes
				 none */
	size_t field;         /* offset of what it sets in struct nt_settings */
	int choice;
	const char *const *words; /* ends with NULL */
	uint64_t least, most;
	const char *standard; /* the value that applies where none is given */
	enum nt_option_set set;
	unsigned int commands; /* NT_ON(): the commands that accept it */
	/*
	 * .help is one imperative sentence without its full stop; .more is what only the manual
	 * adds. In both, backquotes mark words of the program, and capitals in backquotes a
	 * section.
	 */
	const char *help, *more;
};

#define NT_ON(command)   (1U << (command))
#define NT_TRACES_ITSELF (1U << 31) /* given to `top`, it makes top trace by itself */

#define NT_MAX_OPTIONS   64
extern const struct nt_option nt_options[]; /* the last has no help */

struct nt_command_row {
	const char *name;
	enum nt_command command;
	const char *arguments; /* as --help shows them */
	const char *help;
	const char *examples[2];
};
extern const struct nt_command_row nt_commands[]; /* the last has no name */

/* The parser's state while it reads the command line. */
struct nt_parse {
	enum nt_command command;
	struct nt_settings *settings;
	char *err;
	size_t err_size;
	/* by place in the table: the value, or "", of each option that was given */
	const char *given[NT_MAX_OPTIONS];
	char spelled[24]; /* the current option, as --pid */
};

/* Stores the value of an option in the settings. Returns what nt_options_parse() returns. */
int nt_option_read(struct nt_parse *p, const struct nt_option *option, const char *value);

/* Lists and levels may be repeated: each use adds to them. */
static inline bool nt_may_be_repeated(const struct nt_option *option)
{
	return option->kind == NT_PIDS || option->kind == NT_PORTS || option->kind == NT_LEVEL;
}

static inline bool nt_may_lack_value(const struct nt_option *option)
{
	return option->argument && option->argument[0] == '[';
}

#define NT_SHOWN_MAX 24 /* the most bytes of a value that a message shows */
#define NT_SHOWN_LEN (NT_ESCAPED_LEN(NT_SHOWN_MAX) + 3)

/* Writes text[length] as a message shows it: escaped, cut with an ellipsis, "" if empty. */
void nt_show(const char *text, size_t length, char shown[NT_SHOWN_LEN]);

/* Puts one line into p->err and returns -EINVAL. */
int nt_fail(struct nt_parse *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Does the same with "--pid VALUE: what is wrong; remedy"; it escapes the value. */
int nt_refuse(struct nt_parse *p, const char *value, const char *what);
