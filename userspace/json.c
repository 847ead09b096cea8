// SPDX-License-Identifier: GPL-2.0
/* JSON Lines by userspace/nagletrace.schema.json. A key that does not apply is absent. */
#include "report.h"

#include <stdlib.h>
#include <sys/utsname.h>

#include "json_parts.h"
#include "json_stall.h"
#include "version.h"

#define SCHEMA 1

int nt_json_start(FILE *out, const struct nt_tracer *tracer, const char *timeline_cost)
{
	struct json_object *o = nt_json_new("start");
	struct utsname name;

	uname(&name);
	nt_json_number(o, "schema", SCHEMA);
	nt_json_string(o, "version", NT_VERSION);
	nt_json_string(o, "kernel", name.release);
	nt_json_string(o, "hooks", nt_family_name(tracer->family));
	if (tracer->why[0])
		nt_json_string(o, "hooks_because", tracer->why);
	nt_json_string(o, "clock", "CLOCK_REALTIME");
	nt_json_hooks(o, "missing_hooks", tracer->missing);
	nt_json_string(o, "timeline_cost", timeline_cost);
	return nt_json_write(out, o);
}

int nt_json_stall(FILE *out, const struct nt_stall *stall, struct nt_stacks *stacks)
{
	return nt_json_write(out, nt_json_stall_record(stall, stacks));
}

int nt_json_report(FILE *out, const struct nt_report *report)
{
	struct json_object *o = nt_json_new("report"), *list = json_object_new_array();
	struct nt_connection **sorted = nt_aggregate_sorted(report->stalls);

	nt_json_time_now(o);
	nt_json_flag(o, "closing", report->closing);
	nt_json_number(o, "span_us", report->span_ns / 1000);
	nt_json_number(o, "stalls", report->stalls->stalls);
	nt_json_number(o, "lost_us", report->stalls->lost_ns / 1000);
	for (size_t i = 0; sorted && i < nt_aggregate_count(report->stalls); i++)
		json_object_array_add(list, nt_json_connection(sorted[i], report->stacks));
	free(sorted);
	json_object_object_add(o, "connections", list);
	nt_json_number(o, "folded_stalls", report->stalls->folded);
	nt_json_totals(o, &report->counts.totals);
	nt_json_lost_counts(o, &report->counts);
	if (report->opts->max_overhead_ppm)
		nt_json_hooks(o, "hooks_let_go", report->tracer->let_go);
	return nt_json_write(out, o);
}

int nt_json_lost(FILE *out, const struct nt_counts *counts)
{
	struct json_object *o = nt_json_new("lost");

	nt_json_time_now(o);
	nt_json_lost_counts(o, counts);
	return nt_json_write(out, o);
}

int nt_json_overhead(FILE *out, const struct nt_overhead *overhead, const struct nt_tracer *tracer)
{
	struct json_object *o = nt_json_new("overhead");

	nt_json_time_now(o);
	nt_json_overhead_state(o, overhead);
	nt_json_hooks(o, "hooks_let_go", tracer->let_go);
	return nt_json_write(out, o);
}
