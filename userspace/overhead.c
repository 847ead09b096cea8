// SPDX-License-Identifier: GPL-2.0
#include "overhead.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "clock.h"
#include "session.h"

#define LOOK_NS  (NT_SECOND_NS / 5) /* how long a look takes */
#define PAUSE_NS (5 * NT_SECOND_NS) /* between looks, while all is well */

/* False with errno set where they cannot be had. */
static bool switch_on(struct nt_overhead *overhead)
{
	overhead->statistics = bpf_enable_stats(BPF_STATS_RUN_TIME);
	overhead->looking = overhead->statistics >= 0;
	return overhead->looking;
}

enum nt_exit nt_overhead_open(struct nt_overhead *overhead, uint64_t limit_ppm, char *err,
			      size_t err_size)
{
	memset(overhead, 0, sizeof(*overhead));
	overhead->limit_ppm = limit_ppm;
	if (!limit_ppm)
		return NT_EXIT_OK;
	if (!switch_on(overhead)) {
		int cause = -errno;

		snprintf(err, err_size, "--max-overhead %.4g: the kernel's BPF statistics: %s%s",
			 limit_ppm / 1e4, strerror(-cause),
			 cause == -EPERM ? "; they need CAP_SYS_ADMIN: add it, or leave the "
					   "option out"
					 : "");
		return cause == -EPERM ? NT_EXIT_PERMISSION : NT_EXIT_FAILED;
	}
	nt_overhead_close(overhead);
	return NT_EXIT_OK;
}

void nt_overhead_close(struct nt_overhead *overhead)
{
	if (overhead->looking)
		close(overhead->statistics);
	overhead->looking = false;
}

/* When to be called next: at the look's end, or, where the statistics cannot be had now, later. */
static uint64_t begin_look(struct nt_overhead *overhead, const struct nt_tracer *tracer)
{
	bool on = switch_on(overhead);

	if (!on && !overhead->told)
		nt_complain("--max-overhead: the kernel's BPF statistics: %s; it looks again later",
			    strerror(errno));
	overhead->told = !on;
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

/* The next step that lets go of anything; the last one, of all that is left. */
static enum nt_overhead_news let_go(struct nt_overhead *overhead, struct nt_tracer *tracer)
{
	bool last = false;
	int n = 0;

	nt_complain("the programs take %.4g %% of the CPUs' time, past --max-overhead %.4g",
		    overhead->share_ppm / 1e4, overhead->limit_ppm / 1e4);
	while (!n && !last) {
		last = ++overhead->let_go > NT_LET_GO_STEPS;
		n = nt_tracer_let_go(tracer, last ? 0 : overhead->let_go);
	}
	if (last) {
		nt_complain("let go of all hooks: nothing is traced any more");
		return NT_OVERHEAD_ENDED;
	}
	for (size_t i = 0; i < nt_n_hooks; i++)
		if (tracer->let_go[i] && nt_hooks[i].let_go == overhead->let_go &&
		    nt_hooks[i].how != NT_ATTACH_KRETPROBE)
			nt_complain("let go of %s; lost with it: %s", nt_hooks[i].target,
				    nt_hooks[i].part);
	return NT_OVERHEAD_LET_GO;
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
		news = let_go(overhead, tracer);
	overhead->past = !overhead->past;
	*again_ns = news == NT_OVERHEAD_ENDED ? 0 : begin_look(overhead, tracer);
	return news;
}
