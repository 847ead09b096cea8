// SPDX-License-Identifier: GPL-2.0
#include "confine.h"

#include <string.h>

#include "privileges.h"
#include "refusals.h"

/* What --stacks reads of other processes, and what is lost without. */
static const struct {
	cap_value_t cap;
	const char *name, *lost;
} for_stacks[] = {
	/* ptrace_may_access(): /proc/PID/maps, map_files and root */
	{CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "frames of other users' programs stay addresses"},
	/* inode_permission() */
	{CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH",
	 "frames of programs that only others may read have no names"},
	/* proc_map_files_get_link(); before 5.9 CAP_SYS_ADMIN */
	{CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE",
	 "frames of programs whose file was deleted or replaced have no names"},
};
#define N_FOR_STACKS (sizeof(for_stacks) / sizeof(for_stacks[0]))

/* Before 5.19 the kernel asks for CAP_BPF to read a map, if unprivileged BPF is off. */
static bool maps_can_be_read(void *context)
{
	struct nt_session *session = context;
	struct nt_counts counts;

	return !nt_tracer_counts(&session->tracer, &counts) &&
	       (!session->owners.iterator || !nt_owners_scan(&session->owners));
}

static bool names_can_be_read(void *context)
{
	(void)context;
	return !nt_processes_hidden();
}

static const struct nt_must_work must_work[] = {
	{maps_can_be_read, {CAP_BPF, CAP_SYS_ADMIN}, 2},
	{names_can_be_read, {CAP_SYS_PTRACE}, 1},
};

static void say_what_is_lost(const struct nt_options *opts)
{
	for (size_t i = 0; opts->stacks && i < N_FOR_STACKS; i++)
		if (!nt_privileges_has(for_stacks[i].cap))
			nt_complain("--stacks: without %s %s", for_stacks[i].name,
				    for_stacks[i].lost);
	if (nt_processes_hidden())
		nt_complain("/proc hides other users' processes (hidepid): without CAP_SYS_PTRACE "
			    "many names are missing");
}

int nt_confine(struct nt_session *session, char *kept, size_t size)
{
	const struct nt_options *opts = session->opts;
	bool takes_sockets = opts->command == NT_CMD_FIX; /* by pidfd_getfd() */
	cap_value_t keep[N_FOR_STACKS + 2];
	size_t n = 0;
	int err;

	for (size_t i = 0; opts->stacks && i < N_FOR_STACKS; i++)
		keep[n++] = for_stacks[i].cap;
	if (opts->max_overhead_ppm) /* bpf_enable_stats() */
		keep[n++] = CAP_SYS_ADMIN;
	if (takes_sockets && !opts->stacks) /* else it is among those */
		keep[n++] = CAP_SYS_PTRACE;
	err = nt_privileges_drop(keep, n, must_work, sizeof(must_work) / sizeof(must_work[0]),
				 session, kept, size);
	if (err)
		return err;
	if (!opts->quiet)
		say_what_is_lost(opts);
	err = nt_refuse_system_calls(takes_sockets ? "pidfd_getfd" : NULL);
	if (err)
		nt_complain("system calls that are not needed stay allowed: seccomp: %s",
			    strerror(-err));
	return 0;
}
