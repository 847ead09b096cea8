// SPDX-License-Identifier: GPL-2.0
#include "capture/overhead.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "base/clock.h"
#include "attach/tracer.h"
#include "base/log.h"

#define LOOK_NS  (NT_SECOND_NS / 5) /* how long a look takes */
#define PAUSE_NS (5 * NT_SECOND_NS) /* between looks, while all is well */

/* Switches the statistics on. Returns false, with errno set, if the kernel refuses. */
static bool switch_on(struct nt_overhead *overhead)
{
	overhead->statistics = bpf_enable_stats(BPF_STATS_RUN_TIME);
	overhead->looking = overhead->statistics >= 0;
	return overhead->looking;
}

bool nt_overhead_open(struct nt_overhead *overhead, uint64_t limit_ppm, struct nt_error *error)
{
	memset(overhead, 0, sizeof(*overhead));
	overhead->limit_ppm = limit_ppm;
	if (!limit_ppm)
		return true;
	if (!switch_on(overhead))
		return nt_error_set(
			error, errno == EPERM ? NT_EXIT_PERMISSION : NT_EXIT_FAILED,
			"--max-overhead %.4g: the kernel's BPF statistics: %s%s", limit_ppm / 1e4,
			strerror(errno),
			errno == EPERM
				? "; they need CAP_SYS_ADMIN: add it, or leave the option out"
				: "");
	nt_overhead_close(overhead);
	return true;
}

void nt_overhead_close(struct nt_overhead *overhead)
{
	if (overhead->looking)
		close(overhead->statistics);
	overhead->looking = false;
}

/*
 * Begins a look. Returns the time to the next call: the look's length, or more if the kernel
 * refuses the statistics now.
 */
static uint64_t begin_look(struct nt_overhead *overhead, const struct nt_tracer *tracer)
{
	bool on = switch_on(overhead);

	if (!on && !overhead->refused)
		nt_log("--max-overhead: the kernel's BPF statistics: %s; it looks again later",
		       strerror(errno));
	overhead->refused = !on;
	overhead->past &= on;
	overhead->began_ns = nt_now_ns();
	overhead->ran_ns = nt_tracer_run_time_ns(tracer);
	return on ? LOOK_NS : PAUSE_NS;
}

static void end_look(struct nt_overhead *overhead, const struct nt_tracer *tracer)
{
	uint64_t span_ns = nt_now_ns() - overhead->began_ns;
	uint64_t ran_ns = nt_tracer_run_time_ns(tracer) - overhead->ran_ns;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	nt_overhead_close(overhead);
	overhead->share_ppm = 1e6 * ran_ns / span_ns / (cpus > 0 ? cpus : 1);
}

/* Takes the next step that detaches anything; the last one detaches all hooks that are left. */
static enum nt_overhead_news detach(struct nt_overhead *overhead, struct nt_tracer *tracer)
{
	bool last = false;
	int n = 0;

	nt_log("the programs take %.4g %% of the CPUs' time, past --max-overhead %.4g",
	       overhead->share_ppm / 1e4, overhead->limit_ppm / 1e4);
	while (!n && !last) {
		last = ++overhead->steps > NT_DETACH_STEPS;
		n = nt_tracer_detach(tracer, last ? 0 : overhead->steps);
	}
	if (last) {
		nt_log("detached all hooks: nothing is traced any more");
		return NT_OVERHEAD_ENDED;
	}
	for (size_t i = 0; i < nt_n_hooks; i++)
		if (tracer->hooks.detached[i] && nt_hooks[i].detach_step == overhead->steps &&
		    nt_hooks[i].how != NT_ATTACH_KRETPROBE)
			nt_log("detached %s; lost with it: %s", nt_hooks[i].target,
			       nt_hooks[i].part);
	return NT_OVERHEAD_DETACHED;
}

enum nt_overhead_news nt_overhead_turn(struct nt_overhead *overhead, struct nt_tracer *tracer,
				       uint64_t *again_ns)
{
	enum nt_overhead_news news = NT_OVERHEAD_NO_NEWS;

	if (!overhead->looking) {
		*again_ns = begin_look(overhead, tracer);
		return news;
	}
	end_look(overhead, tracer);
	if (overhead->share_ppm <= overhead->limit_ppm) {
		overhead->past = false;
		*again_ns = PAUSE_NS;
		return news;
	}
	if (overhead->past)
		news = detach(overhead, tracer);
	overhead->past = !overhead->past;
	*again_ns = news == NT_OVERHEAD_ENDED ? 0 : begin_look(overhead, tracer);
	return news;
}
