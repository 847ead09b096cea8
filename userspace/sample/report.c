// SPDX-License-Identifier: GPL-2.0
#include "sample/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/text.h"
#include "terms/words.h"
#include "terms/tuple.h"
#include "output/json.h"

#define TOP_CONNECTIONS 20
#define US              1000ULL /* in ns */

/* sock_diag does not distinguish a cork from MSG_MORE; then the reason is not known. */
static const char *reason_word(const struct nt_source *source, const struct nt_sampled *sampled)
{
	if (source->kind == NT_SOURCE_SOCK_DIAG && sampled->reason == NT_HOLD_UNKNOWN)
		return NULL;
	return nt_hold_reason_word(sampled->reason);
}

/* ---- JSON ---- */

static struct json_object *sender_of(const struct nt_source *source, const struct nt_seen *seen)
{
	const struct nt_end *end = &seen->last.end;
	struct json_object *o = json_object_new_object(), *hold = json_object_new_object();
	char address[NT_ADDRESS_LEN];

	nt_format_address(&end->tuple, true, address, sizeof(address));
	nt_json_string(o, "address", address);
	nt_json_number(o, "netns", end->tuple.netns);
	nt_json_process(o, &seen->process, 0);
	nt_json_string(hold, "reason", reason_word(source, &seen->last));
	if (seen->longest_ns)
		nt_json_number(hold, "duration_us", seen->longest_ns / US);
	nt_json_number(hold, "bytes", seen->last.bytes);
	if (source->kind == NT_SOURCE_ITERATOR) {
		nt_json_options(o, end->nodelay, end->cork, end->pingpong, end->quick);
		nt_json_number(hold, "in_flight_bytes", seen->last.in_flight_bytes);
	}
	nt_json_number(hold, "mss", seen->last.mss);
	json_object_object_add(o, "hold", hold);
	return o;
}

static void add_excess(struct json_object *o, struct nt_excess excess)
{
	nt_json_number(o, "excess_us_per_s", excess.us);
	nt_json_number(o, "error_us_per_s", excess.error_us);
}

static struct json_object *connection_of(const struct nt_source *source, const struct nt_seen *seen,
					 uint64_t looks)
{
	struct json_object *o = json_object_new_object(), *receiver = json_object_new_object();
	bool stalls = nt_seen_stalls(seen);
	char address[NT_ADDRESS_LEN];

	if (stalls)
		nt_json_string(o, "cause", nt_cause_word(NT_CAUSE_NAGLE_DELAYED_ACK));
	nt_json_number(o, "family", seen->last.end.tuple.family == AF_INET6 ? 6 : 4);
	json_object_object_add(o, "sender", sender_of(source, seen));
	nt_format_address(&seen->last.end.tuple, false, address, sizeof(address));
	nt_json_string(receiver, "address", address);
	json_object_object_add(o, "receiver", receiver);
	nt_json_number(o, "looks", seen->looks);
	nt_json_number(o, "late_looks", nt_seen_late(seen).looks);
	if (seen->last.end.min_rtt_us)
		nt_json_number(o, "min_rtt_us", seen->last.end.min_rtt_us);
	if (stalls)
		add_excess(o, nt_seen_excess(seen, looks));
	return o;
}

static int write_json(FILE *out, const struct nt_sample_report *report, struct nt_seen **list,
		      size_t count)
{
	const struct nt_estimate *estimate = report->estimate;
	struct json_object *o = nt_json_new("sample"), *connections = json_object_new_array();

	nt_json_time_now(o);
	nt_json_flag(o, "closing", report->closing);
	nt_json_string(o, "source", nt_source_word(report->source->kind));
	nt_json_number(o, "span_us", report->span_ns / US);
	nt_json_number(o, "looks", estimate->looks);
	if (estimate->looks) {
		nt_json_number(o, "look_cost_us", estimate->cost_ns / estimate->looks / US);
		add_excess(o, nt_estimate_excess(estimate));
	}
	for (size_t i = 0; i < count; i++)
		json_object_array_add(connections,
				      connection_of(report->source, list[i], estimate->looks));
	json_object_object_add(o, "connections", connections);
	nt_json_number(o, "folded_looks", estimate->folded);
	return nt_json_write(out, o);
}

/* ---- text ---- */

static void print_headline(FILE *out, const struct nt_sample_report *report)
{
	const struct nt_estimate *estimate = report->estimate;
	struct nt_excess excess = nt_estimate_excess(estimate);
	struct nt_duration span = nt_duration(report->span_ns), error;

	if (!estimate->looks) {
		fprintf(out, "nagletrace: no look in %s\n", span.text);
		return;
	}
	error = nt_duration(excess.error_us * US);
	if (excess.us || estimate->folded)
		fprintf(out, "nagletrace: stalls cost %s%s a second, ± %s\n",
			estimate->folded ? "at least " : "", nt_duration(excess.us * US).text,
			error.text);
	else
		fprintf(out, "nagletrace: no stall seen; they cost less than %s a second\n",
			error.text);
	fprintf(out, "%*s(%" PRIu64 " look%s in %s by %s, %s of CPU each)\n", 12, "",
		estimate->looks, nt_plural(estimate->looks), span.text,
		nt_source_word(report->source->kind),
		nt_duration(estimate->cost_ns / estimate->looks).text);
	if (estimate->looks < NT_FEW_LOOKS)
		fprintf(out, "%*slooked too seldom to judge by; give a longer INTERVAL\n", 12, "");
}

static void print_heading(FILE *out, bool wide)
{
	if (wide)
		fprintf(out, "%-15s %7s %-9s %8s %6s %8s %7s %5s %s\n", "PROCESS", "PID", "HELD",
			"LONGEST", "SEEN", "COSTS/s", "BYTES", "MSS", "CONNECTION");
	else
		fprintf(out, "%-18s %-9s %8s %6s %8s  %s\n", "PROCESS", "HELD", "LONGEST", "SEEN",
			"COSTS/s", "CONNECTION");
}

static void print_connection(FILE *out, const struct nt_sample_report *report,
			     const struct nt_seen *seen)
{
	const struct nt_tuple *tuple = &seen->last.end.tuple;
	const char *reason = reason_word(report->source, &seen->last);
	char local[NT_ADDRESS_LEN], remote[NT_ADDRESS_LEN], connection[2 * NT_ADDRESS_LEN + 8];
	char name[NT_ESCAPED_LEN(NT_COMM_LEN)], named[sizeof(name) + 24], share[16];
	struct nt_duration longest = {"-"}, excess = {"-"};
	uint64_t looks = report->estimate->looks;

	nt_escape(seen->process.comm, sizeof(seen->process.comm), name, sizeof(name));
	if (seen->longest_ns)
		longest = nt_duration(seen->longest_ns);
	if (nt_seen_stalls(seen))
		excess = nt_duration(nt_seen_excess(seen, looks).us * US);
	snprintf(share, sizeof(share), 10 * seen->looks < looks ? "%.1f %%" : "%.0f %%",
		 100.0 * seen->looks / looks);
	nt_format_address(tuple, true, local, sizeof(local));
	nt_format_address(tuple, false, remote, sizeof(remote));
	if (report->settings->wide) {
		nt_write_padded(out, seen->process.tgid ? name : "?", 15);
		fprintf(out, " %7d %-9s %8s %6s %8s %7u %5u %s → %s\n", seen->process.tgid,
			reason ? reason : "cork?", longest.text, share, excess.text,
			seen->last.bytes, seen->last.mss, local, remote);
		return;
	}
	nt_format_named(seen->process.tgid ? name : "?", seen->process.tgid, 18, named,
			sizeof(named));
	snprintf(connection, sizeof(connection), ":%u → %s", tuple->local_port, remote);
	nt_shorten(connection, 25);
	nt_write_padded(out, named, 18);
	fprintf(out, " %-9s %8s %6s %8s  %s\n", reason ? reason : "cork?", longest.text, share,
		excess.text, connection);
}

static int write_text(FILE *out, const struct nt_sample_report *report, struct nt_seen **list,
		      size_t count)
{
	size_t shown = report->settings->wide || count < TOP_CONNECTIONS ? count : TOP_CONNECTIONS;

	print_headline(out, report);
	if (count)
		print_heading(out, report->settings->wide);
	for (size_t i = 0; i < shown; i++)
		print_connection(out, report, list[i]);
	if (shown < count)
		fprintf(out, "and %zu more connection%s (--wide shows all)\n", count - shown,
			nt_plural(count - shown));
	if (report->estimate->folded)
		fprintf(out, "and %" PRIu64 " look%s at further connections\n",
			report->estimate->folded, nt_plural(report->estimate->folded));
	fputc('\n', out);
	return nt_flush(out);
}

/* Leaves out what is no hold worth a line: Nagle's that no late ACK explains. */
static size_t keep_shown(const struct nt_sample_report *report, struct nt_seen **list, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (report->settings->all_holds || nt_seen_stalls(list[i]) ||
		    list[i]->last.reason != NT_HOLD_NAGLE)
			list[kept++] = list[i];
	return kept;
}

int nt_sample_report(FILE *out, const struct nt_sample_report *report)
{
	size_t count;
	struct nt_seen **list = nt_estimate_sorted(report->estimate, &count);
	int err;

	if (list)
		count = keep_shown(report, list, count);
	if (report->settings->output == NT_OUTPUT_JSON)
		err = write_json(out, report, list, count);
	else
		err = write_text(out, report, list, count);
	free(list);
	return err;
}
