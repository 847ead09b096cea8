/* SPDX-License-Identifier: GPL-2.0 */
/* What a report holds, whichever way it is written: json.c and text_report.c write it. */
#ifndef NT_REPORT_H
#define NT_REPORT_H

#include <stdint.h>
#include <stdio.h>
#include "aggregate.h"
#include "counts.h"
#include "overhead.h"
#include "stacks.h"
#include "tracer.h"

struct nt_report {
	const struct nt_tracer *tracer;
	const struct nt_options *opts;
	const struct nt_aggregate *stalls;
	struct nt_stacks *stacks; /* NULL without --stacks */
	struct nt_counts counts;  /* of the time reported */
	uint64_t span_ns;         /* the time reported */
	bool closing;
};

/* Text: the line of one stall (with its heading before the first), a report. Return 0 or -errno of
 * writing. */
int nt_text_heading(FILE *out, const struct nt_options *opts);
int nt_text_stall(FILE *out, const struct nt_options *opts, const struct nt_stall *stall);
int nt_text_report(FILE *out, const struct nt_report *report);

/* Its parts: "    label     text", broken at words so that no line is longer than width, which is
 * that of the options. */
void nt_text_labelled(FILE *out, const char *label, const char *text, size_t width);
size_t nt_text_width(const struct nt_options *opts);

/* JSON Lines, flushed. Return 0 or -errno. */
/* timeline_cost: what --timeline costs, in words, or NULL without it. */
int nt_json_start(FILE *out, const struct nt_tracer *tracer, const char *timeline_cost);
int nt_json_stall(FILE *out, const struct nt_stall *stall, struct nt_stacks *stacks);
int nt_json_report(FILE *out, const struct nt_report *report);
int nt_json_lost(FILE *out, const struct nt_counts *counts);
int nt_json_overhead(FILE *out, const struct nt_overhead *overhead, const struct nt_tracer *tracer);

#endif /* NT_REPORT_H */
