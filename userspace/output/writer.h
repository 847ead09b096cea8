/* SPDX-License-Identifier: GPL-2.0 */
/* A report's content, and the two ways to write it: text.c and json.c. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include "summary/groups.h"
#include "attach/counts.h"
#include "attach/hooks.h"
#include "capture/origin.h"
#include "capture/stacks.h"
#include "capture/standby.h"
#include "timeline/line.h"

struct nt_report {
	const struct nt_hook_set *hooks;
	const struct nt_settings *settings;
	const struct nt_origin *origin;
	const struct nt_aggregate *stalls;
	const struct nt_aggregate *behind; /* stalls of relays; NULL: not looked for */
	struct nt_stacks *stacks;          /* NULL without --stacks */
	const struct nt_standby *standby;  /* NULL: not a daemon's */
	struct nt_counts counts;           /* of the reported time */
	uint64_t span_ns;                  /* the reported time */
	uint64_t reported; /* the number of the last stall, hold or late ACK; 0: none */
	bool closing;
};

/*
 * Writes all output, as text or as JSON Lines; nt_writer_of() chooses one. Each function writes to
 * out, flushes it, and returns 0 or -errno; only those of one stall, which may come in crowds,
 * leave it in out's buffer. Start, heading and overhead are NULL in a writer that has no form for
 * them.
 */
struct nt_writer {
	bool wide;              /* text: use all columns, show all connections */
	bool utc;               /* text: a stall's time has its date and zone */
	bool writes_each_stall; /* also beside interval reports, which include them too */

	/* Comes first. late_acks: they are written too. timeline_cost: what --timeline costs, in
	 * words, or NULL without it. */
	int (*start)(FILE *out, const struct nt_hook_set *hooks, const struct nt_origin *origin,
		     bool late_acks, const char *timeline_cost);
	int (*heading)(const struct nt_writer *writer, FILE *out); /* precedes the first stall */
	int (*stall)(const struct nt_writer *writer, FILE *out, const struct nt_stall *stall,
		     struct nt_stacks *stacks);
	/* Writes a stall among the events that led to it. */
	int (*timeline_stall)(const struct nt_writer *writer, FILE *out,
			      const struct nt_stall *stall, struct nt_stacks *stacks);
	int (*timeline_line)(const struct nt_writer *writer, FILE *out, const struct nt_line *line);
	int (*report)(const struct nt_writer *writer, FILE *out, const struct nt_report *report);
	int (*dropped)(FILE *out, const struct nt_counts *counts); /* text: on stderr */
	/* Hooks were detached: see nt_json_overhead(). */
	int (*overhead)(FILE *out, uint64_t limit_ppm, uint64_t share_ppm,
			const struct nt_hook_set *hooks);
};

extern const struct nt_writer nt_text_writer, nt_json_writer;

struct nt_writer nt_writer_of(enum nt_output output, bool wide);

/* Writes "    label     text", broken at words so that no line is longer than the writer's are. */
void __attribute__((format(printf, 4, 5)))
nt_text_labelled(const struct nt_writer *writer, FILE *out, const char *label, const char *format,
		 ...);
