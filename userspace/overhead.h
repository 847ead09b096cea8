/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs cost the host, by the kernel's own statistics, which cost more than the
 * programs and are kept for a moment now and then only; and letting go of hooks past a limit
 * (--max-overhead).
 */
#ifndef NT_OVERHEAD_H
#define NT_OVERHEAD_H

#include "tracer.h"

enum nt_overhead_news {
	NT_OVERHEAD_NO_NEWS = 0,
	NT_OVERHEAD_LET_GO, /* of some hooks */
	NT_OVERHEAD_ENDED,  /* of all that were left: nothing is traced any more */
};

struct nt_overhead {
	uint64_t limit_ppm; /* of the time of all CPUs */
	uint64_t share_ppm; /* at the last look, of the same */
	uint64_t began_ns, ran_ns;
	bool looking;
	bool told;           /* that the statistics cannot be had now */
	int statistics;      /* during a look: the descriptor that keeps them on */
	bool past;           /* the last look was past the limit; the next one decides */
	unsigned int let_go; /* steps of nt_hook.let_go that are done */
};

/*
 * Tries whether the statistics can be had. Returns NT_EXIT_OK, or the exit code with one line in
 * err. limit_ppm 0: no limit, and nothing to do. To be closed when it has returned NT_EXIT_OK.
 */
enum nt_exit nt_overhead_open(struct nt_overhead *overhead, uint64_t limit_ppm, char *err,
			      size_t err_size);
void nt_overhead_close(struct nt_overhead *overhead);

/*
 * Begins a look, or ends one and decides: past the limit twice in a row, the next hooks are let go,
 * which it says on stderr. Sets *again_ns to when it wants to be called next: so many ns from now,
 * 0 never.
 */
enum nt_overhead_news nt_overhead_turn(struct nt_overhead *overhead, struct nt_tracer *tracer,
				       uint64_t *again_ns);

#endif /* NT_OVERHEAD_H */
