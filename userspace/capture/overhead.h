/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Measures what the programs cost the host, by the kernel's own statistics, and detaches hooks past
 * a limit (--max-overhead). The statistics cost more than the programs, so they are on only for a
 * moment now and then.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

struct nt_tracer;

enum nt_overhead_news {
	NT_OVERHEAD_NO_NEWS = 0,
	NT_OVERHEAD_DETACHED, /* some hooks were detached */
	NT_OVERHEAD_ENDED,    /* all that were left were detached: nothing is traced any more */
};

struct nt_overhead {
	uint64_t limit_ppm; /* share of the time of all CPUs */
	uint64_t share_ppm; /* the same share, at the last look */
	uint64_t began_ns, ran_ns;
	bool looking;
	bool refused;       /* a message has said that the kernel refuses the statistics now */
	int statistics;     /* during a look: the descriptor that keeps them on */
	bool past;          /* the last look was past the limit; the next one decides */
	unsigned int steps; /* of nt_hook.detach_step that are done */
};

/*
 * Checks whether the kernel gives the statistics. limit_ppm 0: there is no limit, and nothing to
 * do. The caller closes it if it returns true.
 */
bool nt_overhead_open(struct nt_overhead *overhead, uint64_t limit_ppm, struct nt_error *error);
void nt_overhead_close(struct nt_overhead *overhead);

/*
 * Begins a look, or ends one and decides: when two looks in a row are past the limit, it detaches
 * the next hooks, and reports that on stderr. Sets *again_ns to the time until its next call, in
 * ns; 0: never.
 */
enum nt_overhead_news nt_overhead_turn(struct nt_overhead *overhead, struct nt_tracer *tracer,
				       uint64_t *again_ns);
