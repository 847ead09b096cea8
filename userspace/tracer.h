/* SPDX-License-Identifier: GPL-2.0 */
/* The BPF programs, configured, loaded and attached. */
#ifndef NT_TRACER_H
#define NT_TRACER_H

#include "../bpf/nagletrace.h"
#include "counts.h"
#include "hooks.h"
#include "kernel.h"
#include "options.h"

struct nagletrace_bpf;
struct bpf_link;

struct nt_tracer {
	struct nagletrace_bpf *skel;
	struct bpf_link *links[NT_MAX_HOOKS]; /* by place in nt_hooks */
	bool missing[NT_MAX_HOOKS]; /* of the family's hooks, those that this kernel lacks */
	bool let_go[NT_MAX_HOOKS];  /* of the others, those that are attached no more */
	uint64_t missed_let_go;     /* by those, while they were */
	enum nt_hooks family;
	bool typed;    /* tracepoints are BTF-typed */
	char why[160]; /* why this family */
};

/*
 * Chooses hooks, loads and attaches. Returns NT_EXIT_OK, or the exit code with one line in err. A
 * tracer that could not be opened needs no close.
 */
enum nt_exit nt_tracer_open(struct nt_tracer *tracer, const struct nt_options *opts, char *err,
			    size_t err_size);
void nt_tracer_close(struct nt_tracer *tracer);

/*
 * What the kernel side counted on all CPUs since it was attached, and how often one of its programs
 * was not run because it ran already on that CPU (5.12 and newer tell), or a kprobe was not because
 * another one ran there, or a return because too many calls were under way (6.7 and newer). 0, or
 * -errno with *counts zero.
 */
int nt_tracer_counts(const struct nt_tracer *tracer, struct nt_counts *counts);

/* Events of --timeline that found no room. */
uint64_t nt_tracer_events_lost(const struct nt_tracer *tracer);

/* How long the programs have run on all CPUs, as far as the kernel keeps statistics of that
 * (kernel.bpf_stats_enabled); else 0. */
uint64_t nt_tracer_run_time_ns(const struct nt_tracer *tracer);

/* Detaches the hooks of a step (nt_hook.let_go), 0: all that are left. Returns how many. */
int nt_tracer_let_go(struct nt_tracer *tracer, unsigned int step);

#endif /* NT_TRACER_H */
