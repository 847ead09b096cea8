/* SPDX-License-Identifier: GPL-2.0 */
/* What `fix` tells: which sockets it would set, and what came of it, as text or JSON. */
#ifndef NT_FIX_REPORT_H
#define NT_FIX_REPORT_H

#include <stdio.h>
#include "advice.h"
#include "aggregate.h"
#include "fix_sockets.h"
#include "fix_verdict.h"
#include "options.h"
#include "text.h"

/* Why it ended. */
enum nt_fix_ended {
	NT_FIX_TIME_OVER,
	NT_FIX_SIGNAL,
	NT_FIX_PROCESS_ENDED,
	NT_FIX_NOTHING_TO_SET,
	NT_FIX_DECLINED,
	NT_FIX_NOBODY_READS, /* nothing is told any more */
};

struct nt_fix_phase {
	struct nt_aggregate stalls;
	struct nt_counts counts; /* of this time */
	uint64_t begin_ns, end_ns;
	uint64_t other_end; /* of the stalls, those at the end where the option does nothing */
	uint64_t corked;    /* those on which neither option does */
	uint64_t not_yet;   /* while it is set, those by which a connection came to be set */
	uint64_t never;     /* and those of connections on which it was never set */
};

struct nt_fix_result {
	const struct nt_options *opts;
	const struct nt_fix_sockets *sockets;
	struct nt_fix_phase before, during;
	bool set;          /* else there was no second phase */
	uint64_t again_ns; /* how often TCP_QUICKACK was set again, in the mean; 0: not */
	enum nt_fix_ended ended;
	char remedy[NT_ADVICE_LEN]; /* the change of code; "" where nothing stalled */
};

/* The entries in this state. */
size_t nt_fix_count(const struct nt_fix_sockets *sockets, enum nt_fix_state state);

#define NT_FIX_WHOSE_LEN (NT_ESCAPED_LEN(NT_COMM_LEN) + 100)

/* On what it is to be set: "3 connections of lab-client[4242]". */
void nt_fix_whose(const struct nt_fix_sockets *sockets, char whose[NT_FIX_WHOSE_LEN]);

/* Which sockets are to be set. Returns 0, or -errno of writing, as the next. */
int nt_fix_text_plan(FILE *out, const struct nt_fix_result *result);
int nt_fix_text_result(FILE *out, const struct nt_fix_result *result);
int nt_fix_json_result(FILE *out, const struct nt_fix_result *result);

#endif /* NT_FIX_REPORT_H */
