/* SPDX-License-Identifier: GPL-2.0 */
/* Reads /proc about a process, and finds the processes that -p, -n and -c ask for. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include "terms/container.h"
#include "base/clock.h"
#include "base/error.h"
#include "terms/settings.h"
#include "capture/find_cgroup.h"
#include "bpf/nagletrace.h"

struct nt_tracer;

/* Of a process, or of a part of the kernel: "kernel (nvme_tcp)". */
#define NT_USER_LEN (NT_COMM_LEN + sizeof("kernel ()") - 1)

struct nt_process {
	pid_t tgid; /* 0: it is not known; negative: a part of the kernel, by its name */
	char comm[NT_USER_LEN];
	char cgroup[NT_CGROUP_LEN]; /* cgroup v2 path, "" where there is none */
	struct nt_container container;
};

/* Notes where our cgroup namespace begins, once that is known: cgroups are read from the host's
 * root on from then on. */
void nt_process_take_root(const struct nt_cgroup_root *root);

/* From now on no process can be read: the numbers that we have are not those of our /proc. */
void nt_process_read_none(void);

/* Reads comm and cgroup of a thread group. Returns 0, or -errno if it is gone (comm and cgroup are
 * then ""). */
int nt_process_read(pid_t tgid, struct nt_process *process);

/* Processes as they were read lately; all zero: none. Two may share a place: the later one has it.
 */
#define NT_RECENT_PLACES 64
#define NT_RECENT_NS     (NT_SECOND_NS / 10)

struct nt_recent_processes {
	struct {
		uint64_t until_ns; /* valid until then, CLOCK_MONOTONIC */
		struct nt_process process;
	} at[NT_RECENT_PLACES];
};

/* The same, but from /proc only once in NT_RECENT_NS: a process may stall 1,000 times a second. */
static inline int nt_process_read_once(struct nt_recent_processes *recent, pid_t tgid,
				       struct nt_process *process)
{
	unsigned int place = (unsigned int)tgid % NT_RECENT_PLACES;
	uint64_t now_ns = nt_now_ns();
	int err;

	if (recent->at[place].process.tgid == tgid && now_ns < recent->at[place].until_ns) {
		*process = recent->at[place].process;
		return 0;
	}
	err = nt_process_read(tgid, process);
	if (err)
		return err;
	recent->at[place].process = *process;
	recent->at[place].until_ns = now_ns + NT_RECENT_NS;
	return 0;
}

/* Returns what stands for the tgid of a part of the kernel: a negative number for each name. */
static inline pid_t nt_kernel_tgid(const char *name, size_t size)
{
	unsigned int number = 0;

	for (size_t i = 0; i < size && name[i]; i++)
		number = 31 * number + (unsigned char)name[i];
	return -1 - (pid_t)(number % INT_MAX);
}

/*
 * Makes the process that stands for a part of the kernel. name: of its module or thread, padded
 * with NUL; "" if it is not known.
 */
static inline void nt_process_of_kernel(const char name[NT_COMM_LEN], struct nt_process *process)
{
	memset(process, 0, sizeof(*process));
	process->tgid = nt_kernel_tgid(name, NT_COMM_LEN);
	snprintf(process->comm, sizeof(process->comm), name[0] ? "kernel (%.*s)" : "kernel",
		 NT_COMM_LEN, name);
}

/* Returns the parent of a process; 0: it has none, or is gone. */
pid_t nt_process_parent(pid_t pid);

/* Does /proc hide other users' processes from this one? */
bool nt_processes_hidden(void);

struct nt_targets {
	const struct nt_settings *settings;
	int pids_map;               /* children that the kernel side added are in it */
	unsigned char *pid_marks;   /* NT_PID_MARKS of them, to ask first; NULL: no tracer runs */
	int pidfds[NT_MAX_PIDS];    /* of the processes that -p names; -1: it has ended */
	char cgroup[NT_CGROUP_LEN]; /* path as /proc shows it */
	int cgroup_fd;
};

/*
 * Do the processes and the cgroup that the user asked for exist? Opens descriptors that refer to
 * them.
 */
bool nt_targets_open(struct nt_targets *targets, const struct nt_settings *settings,
		     struct nt_error *error);
void nt_targets_close(struct nt_targets *targets);

/*
 * The first finds a process of -p that has ended and is not marked yet, and returns its place, or
 * -1. The second marks it, since another process may soon have its number; true: none is left.
 */
int nt_targets_find_ended(const struct nt_targets *targets);
bool nt_targets_mark_ended(struct nt_targets *targets, unsigned int i);

/* Says of the processes of -p that all have ended. */
const char *nt_targets_ended(const struct nt_settings *settings);

/* Gives the targets, with children forked before, to the attached programs. Returns 0 or -errno. */
int nt_targets_start(struct nt_targets *targets, const struct nt_tracer *tracer);

/*
 * The first: did the user ask for certain processes at all? The others: for this one, as it is now,
 * or as it was when we read it?
 */
bool nt_targets_any(const struct nt_targets *targets);
bool nt_targets_match(const struct nt_targets *targets, pid_t tgid);
bool nt_targets_match_known(const struct nt_targets *targets, const struct nt_process *process);
