/* SPDX-License-Identifier: GPL-2.0 */
/* The command line: one table of options, from which parser and --help come. */
#ifndef NT_OPTIONS_H
#define NT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum nt_exit {
	NT_EXIT_OK = 0,
	NT_EXIT_FAILED = 1, /* at run time */
	NT_EXIT_USAGE = 2,
	NT_EXIT_KERNEL = 3, /* this kernel cannot */
	NT_EXIT_PERMISSION = 4,
};

enum nt_command {
	NT_CMD_TRACE = 0,
	NT_CMD_CHECK,
	NT_CMD_DAEMON,
	NT_CMD_REPORT,
	NT_CMD_TOP,
	NT_CMD_FIX,
	NT_CMD_HELP,
	NT_CMD_VERSION,
	NT_CMD_JSON_SCHEMA,
};

enum nt_hooks {
	NT_HOOKS_AUTO = 0,
	NT_HOOKS_FUNCTION,
	NT_HOOKS_KPROBE,
	NT_HOOKS_TRACEPOINT,
};

enum nt_output {
	NT_OUTPUT_TEXT = 0,
	NT_OUTPUT_JSON,
};

#define NT_MAX_PIDS       64
#define NT_MAX_PORTS      32
#define NT_NAME_LEN       16 /* TASK_COMM_LEN */

#define NT_DEFAULT_SOCKET "/run/nagletrace/nagletrace.sock"

struct nt_port_list {
	uint16_t port[NT_MAX_PORTS];
	unsigned int count;
};

struct nt_options {
	enum nt_command command;
	pid_t pids[NT_MAX_PIDS];
	unsigned int n_pids;
	char name[NT_NAME_LEN]; /* "": none */
	const char *cgroup;     /* NULL: none */
	uint64_t netns;         /* inode of a network namespace; 0: all */
	struct nt_port_list ports, local_ports, remote_ports;
	bool only_v4, only_v6;
	uint64_t min_ns;      /* default 1 ms */
	uint64_t interval_ns; /* 0: no reports at intervals */
	uint64_t duration_ns; /* 0: until interrupted */
	uint64_t count;       /* 0: without limit */
	bool all_holds, stacks, timeline, progress, wide, quiet;
	int verbose;
	enum nt_output output;
	enum nt_hooks hooks;
	const char *btf;           /* NULL: the kernel's own */
	uint64_t max_overhead_ppm; /* of the time of all CPUs; 0: no limit */

	const char *socket; /* the daemon's */
	const char *group;  /* who may use it; NULL: the group the daemon runs in */
	gid_t group_id;     /* its number, where it is given */
	uint64_t window_ns; /* what the daemon's report looks back on: half of this at least */
	uint64_t max_series;
	uint64_t max_connections;
	bool by_cgroup; /* series are told apart by cgroup too */
	bool follow;
	bool traces_itself; /* top: is told to by an option of the trace */

	bool nodelay, quickack; /* fix: one of them, what is set */
	uint64_t for_ns;        /* for so long, after looking for as long */
	bool yes;               /* without asking */
	bool all;               /* on connections that did not stall too */
};

#define NT_OPTION_ERROR_LEN 256

/*
 * Parses argv. Returns 0 with *opts filled, or -EINVAL (-EPERM: what an option names may not be
 * looked at) with one line in err (no newline, no control character) that names the option, the
 * value and the remedy. Prints nothing. What *opts points to
 * is argv's.
 */
int nt_options_parse(int argc, char **argv, struct nt_options *opts, char *err, size_t err_size);

/* Prints usage and options, in at most 80 columns. */
void nt_options_help(FILE *out);

#endif /* NT_OPTIONS_H */
