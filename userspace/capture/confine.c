// SPDX-License-Identifier: GPL-2.0
#include "capture/confine.h"

#include "base/log.h"
#include "names/keeper.h"
#include "privileges/privileges.h"
#include "privileges/refusals.h"

/* Before 5.19 the kernel asks for CAP_BPF to read a map, if unprivileged BPF is off. */
static bool maps_can_be_read(void *context)
{
	struct nt_session *session = context;
	struct nt_counts counts;

	return !nt_tracer_counts(&session->tracer, &counts) &&
	       (!session->owners.iterator || !nt_owners_try(&session->owners));
}

static bool names_can_be_read(void *context)
{
	return !nt_processes_hidden();
}

/* Before 5.19 the kernel asks for CAP_BPF, which reading maps takes there too; of kprobes for
 * CAP_PERFMON at any time. In standby nothing is attached yet. */
static bool hooks_can_be_attached(void *context)
{
	struct nt_session *session = context;
	const char *failed;

	return !session->settings->standby ||
	       (!nt_tracer_resume(&session->tracer, &failed) && !nt_tracer_pause(&session->tracer));
}

static const struct nt_must_work must_work[] = {
	{maps_can_be_read, {CAP_BPF, CAP_SYS_ADMIN}, 2},
	{names_can_be_read, {CAP_SYS_PTRACE}, 1},
	{hooks_can_be_attached, {CAP_PERFMON, CAP_SYS_ADMIN}, 2},
};

/* Warns of capabilities that the keeper lacks: it started with those that this process has now. */
static void say_what_the_keeper_lacks(const struct nt_settings *settings)
{
	for (size_t i = 0; settings->stacks && i < NT_KEEPER_PRIVILEGES; i++)
		if (!nt_privileges_has(CAP_PERMITTED, nt_keeper_privileges[i].cap))
			nt_log("--stacks: without %s %s", nt_keeper_privileges[i].name,
			       nt_keeper_privileges[i].part);
}

int nt_confine(struct nt_session *session, char *kept, size_t size)
{
	const struct nt_settings *settings = session->settings;
	static const char *const pidfd_getfd[] = {"pidfd_getfd", NULL};
	static const char *const perf_event_open[] = {"perf_event_open", NULL};
	/* nt_tracer_see_reads(), while a stream is read */
	bool attaches_later =
		settings->standby ||
		(settings->max_late_acks && session->tracer.hooks.family == NT_HOOKS_TRACEPOINT);
	bool opens_kprobes = settings->standby && session->tracer.hooks.family == NT_HOOKS_KPROBE;
	cap_value_t keep[2];
	size_t n = 0;
	int err;

	if (!settings->quiet)
		say_what_the_keeper_lacks(settings);
	if (settings->max_overhead_ppm) /* bpf_enable_stats() */
		keep[n++] = CAP_SYS_ADMIN;
	if (settings->borrows_sockets)
		keep[n++] = CAP_SYS_PTRACE;
	err = nt_privileges_drop(keep, n, must_work, sizeof(must_work) / sizeof(must_work[0]),
				 session, kept, size);
	if (err)
		return err;
	if (!settings->quiet && nt_processes_hidden())
		nt_log("/proc hides other users' processes (hidepid): without CAP_SYS_PTRACE "
		       "many names are missing");
	nt_refuse_system_calls_or_report(settings->borrows_sockets ? pidfd_getfd
					 : opens_kprobes           ? perf_event_open
								   : NULL,
					 attaches_later);
	return 0;
}
