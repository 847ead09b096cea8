/* SPDX-License-Identifier: GPL-2.0 */
/* The table of options: what each is called, takes, means and sets. A new option is one row there.
 */
#ifndef NT_OPTIONS_TABLE_H
#define NT_OPTIONS_TABLE_H

#include "options.h"
#include "text.h"

/* Numbers of options that have no short form; getopt_long's val. */
enum {
	NT_OPT_COUNT = 256,
	NT_OPT_TIMELINE,
	NT_OPT_PROGRESS,
	NT_OPT_NETNS,
	NT_OPT_HOOKS,
	NT_OPT_BTF,
	NT_OPT_MAX_OVERHEAD,
	NT_OPT_SOCKET,
	NT_OPT_GROUP,
	NT_OPT_WINDOW,
	NT_OPT_MAX_SERIES,
	NT_OPT_MAX_CONNECTIONS,
	NT_OPT_BY_CGROUP,
	NT_OPT_NODELAY,
	NT_OPT_QUICKACK,
	NT_OPT_FOR,
	NT_OPT_ALL,
	NT_OPT_VERSION,
	NT_OPT_JSON_SCHEMA,
};

/* What is known while the command line is read. */
struct nt_parse {
	struct nt_options *opts;
	char *err;
	size_t err_size;
	const char *given[512]; /* by val: the value (or "") where the option was given */
	char spelled[24];       /* the option at hand, as --pid */
};

struct nt_option_row {
	int val; /* the short option's letter, or NT_OPT_… */
	const char *name;
	const char *argument; /* as help shows it; NULL: takes none */
	const char *help;
	int (*set)(struct nt_parse *p, const char *value); /* NULL: sets the flag */
	size_t flag; /* offset of a bool in struct nt_options */
	bool repeatable;
	unsigned int commands; /* NT_ON(): with which it goes */
};

#define NT_ON(command)   (1U << (command))
#define NT_TRACES_ITSELF (1U << 31) /* given to `top`, this makes it trace by itself */

#define NT_N_OPTION_ROWS 45
extern const struct nt_option_row *const nt_option_rows; /* without a name: a heading of the help */

#define NT_SHOWN_MAX 24 /* bytes of a value that a message shows */
#define NT_SHOWN_LEN (NT_ESCAPED_LEN(NT_SHOWN_MAX) + 3)

/* Writes text[length] as a message shows it: escaped, cut with an ellipsis, "" where it is empty.
 */
void nt_show(const char *text, size_t length, char shown[NT_SHOWN_LEN]);

/* Puts one line into p->err and returns -EINVAL. */
int nt_fail(struct nt_parse *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Likewise "--pid VALUE: what is wrong; remedy", with a value that may hold anything. */
int nt_refuse(struct nt_parse *p, const char *value, const char *what);

#endif /* NT_OPTIONS_TABLE_H */
