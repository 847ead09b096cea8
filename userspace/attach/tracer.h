/* SPDX-License-Identifier: GPL-2.0 */
/* Configures, loads and attaches the BPF programs. */
#pragma once

#include "bpf/nagletrace.h"
#include "attach/counts.h"
#include "attach/hooks.h"
#include "attach/kernel.h"
#include "terms/settings.h"

struct nagletrace_bpf;
struct bpf_link;

struct nt_tracer {
	struct nagletrace_bpf *skel;
	struct bpf_link *links[NT_MAX_HOOKS]; /* by place in nt_hooks */
	const char *targets[NT_MAX_HOOKS]; /* what each of them hooks; NULL: it is not attached */
	struct nt_hook_set hooks;
	uint64_t missed_detached; /* runs that the detached ones missed while they were attached */
	bool typed;               /* tracepoints are BTF-typed */
	struct nt_cast cast;
};

/* Chooses hooks, loads and attaches. A tracer that could not be opened needs no close. */
bool nt_tracer_open(struct nt_tracer *tracer, const struct nt_settings *settings,
		    struct nt_error *error);
void nt_tracer_close(struct nt_tracer *tracer);

/*
 * Reads the counts of the kernel side on all CPUs since it was attached, and how often
 * * the kernel skipped one of our programs because it ran already on that CPU (known from 5.12 on),
 * * it skipped a kprobe because another one ran there, or a return because too many calls were
 *   under way (known from 6.7 on).
 *
 * Returns 0, or -errno with *counts zero.
 */
int nt_tracer_counts(const struct nt_tracer *tracer, struct nt_counts *counts);

/*
 * Returns how long the programs have run on all CPUs, if the kernel keeps statistics of that
 * (kernel.bpf_stats_enabled); else 0.
 */
uint64_t nt_tracer_run_time_ns(const struct nt_tracer *tracer);

/* Detaches the hooks of a step (nt_hook.detach_step); 0: all that are left. Returns how many. */
int nt_tracer_detach(struct nt_tracer *tracer, unsigned int step);

/*
 * A read may send an ACK late. Function hooks see that; the tracepoint family has a hook for it,
 * which costs each read something. Attaches that hook, or detaches it. Returns 0, or -errno: such
 * ACKs go unseen.
 */
int nt_tracer_see_reads(struct nt_tracer *tracer, bool wanted);

/*
 * Pause detaches all hooks, and forgets what the programs keep of sockets, whose events go by from
 * then on; the programs stay loaded, and the counts as they are. Resume attaches the same hooks
 * again, all or none: *failed is the one that it could not attach. Both take settings.standby from
 * the start on. They return 0 or -errno.
 */
int nt_tracer_pause(struct nt_tracer *tracer);
int nt_tracer_resume(struct nt_tracer *tracer, const char **failed);
