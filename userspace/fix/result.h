/* SPDX-License-Identifier: GPL-2.0 */
/* Reports, as text or JSON, which sockets `fix` would set and how the experiment ended. */
#pragma once

#include <stdio.h>
#include "output/advice.h"
#include "output/writer.h"
#include "summary/aggregate.h"
#include "fix/sockets.h"
#include "fix/verdict.h"
#include "terms/settings.h"
#include "base/text.h"

/* An experiment ends for one of these reasons. */
enum nt_fix_ended {
	NT_FIX_TIME_OVER,
	NT_FIX_SIGNAL,
	NT_FIX_PROCESS_ENDED,
	NT_FIX_NOTHING_TO_SET,
	NT_FIX_DECLINED,
	NT_FIX_NOBODY_READS, /* nothing can be written any more */
};

struct nt_fix_phase {
	struct nt_aggregate stalls;
	struct nt_counts counts; /* of this phase */
	uint64_t begin_ns, end_ns;
	uint64_t other_end;               /* stalls at the end where the option does nothing */
	uint64_t beside[NT_HOLD_REASONS]; /* stalls of the sender that are not Nagle's */
	uint64_t kernels; /* stalls where the kernel itself uses the socket to be set */
	uint64_t not_yet; /* while set: stalls after which their connection was set */
	uint64_t never;   /* while set: stalls of connections that were never set */
};

struct nt_fix_result {
	const struct nt_settings *settings;
	const struct nt_writer *writer; /* for what a report and a trace have in common */
	const struct nt_fix_sockets *sockets;
	struct nt_fix_phase before, during;
	bool set;          /* else there was no second phase */
	uint64_t again_ns; /* mean interval at which TCP_QUICKACK was set again; 0: it was not */
	enum nt_fix_ended ended;
	char remedy[NT_ADVICE_LEN]; /* the change of code; "" where nothing stalled */
};

/* Would the option act on a socket that the kernel itself uses? Then `fix` sets nothing. */
bool nt_fix_is_kernels(const struct nt_fix_sockets *sockets, const struct nt_stall *stall);

/* Is this stall the sender's, and not Nagle's? No option of `fix` ends it there. */
bool nt_fix_is_beside(const struct nt_stall *stall);

#define NT_FIX_WHOSE_LEN (NT_ESCAPED_LEN(NT_USER_LEN) + 100)

/* Writes on which connections it would be set: "3 connections of lab-client[4242]". */
void nt_fix_whose(const struct nt_fix_sockets *sockets, char whose[NT_FIX_WHOSE_LEN]);

/* Writes the parts that only an experiment has. Both functions return 0, or -errno of writing. */
struct nt_fix_writer {
	int (*plan)(FILE *out,
		    const struct nt_fix_result *result); /* which sockets are to be set */
	int (*result)(FILE *out, const struct nt_fix_result *result);
};

extern const struct nt_fix_writer nt_fix_writers[]; /* by enum nt_output */
