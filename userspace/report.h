/* SPDX-License-Identifier: GPL-2.0 */
/* What a report holds, whichever way it is written: json.c and text_report.c write it. */
#ifndef NT_REPORT_H
#define NT_REPORT_H

#include <stdint.h>
#include <stdio.h>
#include "aggregate.h"
#include "stacks.h"
#include "tracer.h"

struct nt_report {
	const struct nt_tracer *tracer;
	const struct nt_options *opts;
	struct nt_aggregate *stalls;
	struct nt_stacks *stacks; /* NULL without --stacks */
	struct nt_totals totals;  /* of the time reported */
	unsigned long long recursion_misses;
	uint64_t span_ns; /* the time reported */
	bool closing;
};

/* All ways to lose a record, recursion too. */
unsigned long long nt_report_lost(const struct nt_report *report);

/* Text: the line of one stall (with its heading before the first), a report. Return 0 or -errno of
 * writing. */
int nt_text_heading(FILE *out, const struct nt_options *opts);
int nt_text_stall(FILE *out, const struct nt_options *opts, const struct nt_stall *stall);
int nt_text_report(FILE *out, const struct nt_report *report);

/* JSON Lines, flushed. Return 0 or -errno. */
int nt_json_start(FILE *out, const struct nt_tracer *tracer);
int nt_json_stall(FILE *out, const struct nt_stall *stall, struct nt_stacks *stacks);
int nt_json_report(FILE *out, const struct nt_report *report);
int nt_json_lost(FILE *out, const struct nt_totals *totals, unsigned long long recursion_misses);

#endif /* NT_REPORT_H */
