/* SPDX-License-Identifier: GPL-2.0 */
/* Processes: what /proc says of one, and which are asked for by -p, -n and -c. */
#ifndef NT_PROCESSES_H
#define NT_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "options.h"
#include "tracer.h"

#define NT_CGROUP_LEN 256

struct nt_process {
	pid_t tgid;
	char comm[NT_COMM_LEN];
	char cgroup[NT_CGROUP_LEN]; /* cgroup v2 path, "" where there is none */
};

/* Reads comm and cgroup of a thread group. Returns 0, or -errno if it is gone (comm and cgroup are
 * then ""). */
int nt_process_read(pid_t tgid, struct nt_process *process);

/* Does /proc hide other users' processes from this one? */
bool nt_processes_hidden(void);

struct nt_targets {
	const struct nt_options *opts;
	int pids_map;               /* children that the kernel side added are in it */
	int pidfds[NT_MAX_PIDS];    /* of the processes named; -1: has ended */
	char cgroup[NT_CGROUP_LEN]; /* path as /proc shows it */
	int cgroup_fd;
};

/*
 * Do the processes and the cgroup asked for exist? Opens what refers to them. Returns NT_EXIT_OK,
 * or the exit code with one line in err.
 */
enum nt_exit nt_targets_open(struct nt_targets *targets, const struct nt_options *opts, char *err,
			     size_t err_size);
void nt_targets_close(struct nt_targets *targets);

/* The i-th process named has ended: its number may be another's soon. */
void nt_targets_ended(struct nt_targets *targets, unsigned int i);

/* Tells the attached programs; processes forked before are found. 0 or -errno. */
int nt_targets_start(struct nt_targets *targets, const struct nt_tracer *tracer);

/* Is one asked for? */
bool nt_targets_any(const struct nt_targets *targets);
bool nt_targets_match(const struct nt_targets *targets, pid_t tgid);

#endif /* NT_PROCESSES_H */
