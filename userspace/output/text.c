// SPDX-License-Identifier: GPL-2.0
#include "output/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "output/advice.h"
#include "output/slow.h"
#include "output/timeline.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "terms/words.h"
#include "terms/tuple.h"

#define WIDTH        80
#define WIDE         200
#define INDENT       14 /* the text after a label begins in this column */
#define TOP_GROUPS   10
#define TOP_BEHIND   3
#define SHOWN_FRAMES 8

void nt_text_labelled(const struct nt_writer *writer, FILE *out, const char *label,
		      const char *format, ...)
{
	size_t width = (writer->wide ? WIDE : WIDTH) - INDENT;
	char whole[4096], *text = whole;
	va_list args;

	va_start(args, format);
	vsnprintf(whole, sizeof(whole), format, args);
	va_end(args);
	fprintf(out, "    %-*s", INDENT - 4, label);
	while (*text) {
		size_t n = nt_line_length(text, width, false);

		fwrite(text, 1, n, out);
		text += n;
		text += *text == ' ';
		if (*text)
			fprintf(out, "\n%*s", INDENT, "");
	}
	fputc('\n', out);
}

/* The columns of a stall's time. */
static int clock_width(const struct nt_writer *writer)
{
	return writer->utc ? NT_UTC_LEN - 1 : 12;
}

static void format_clock(const struct nt_writer *writer, uint64_t mono_ns, char out[NT_UTC_LEN])
{
	int64_t ns = nt_time_of_day_ns(mono_ns);

	if (writer->utc)
		nt_format_utc(ns, out);
	else
		nt_format_clock(ns / NT_SECOND_NS, ns % NT_SECOND_NS / 1000, out);
}

static int write_heading(const struct nt_writer *writer, FILE *out)
{
	int width = clock_width(writer);

	if (writer->wide)
		fprintf(out, "%-*s %-15s %7s %-8s %8s %7s %-9s %-12s %-16s %-8s %s\n", width,
			"TIME", "PROCESS", "PID", "SIDE", "LASTED", "BYTES", "HELD", "RELEASED",
			"PATTERN", "EVIDENCE", "CONNECTION");
	else
		fprintf(out, "%-*s %-18s %4s %8s %5s %s\n", width, "TIME", "PROCESS", "SIDE",
			"LASTED", "BYTES", "CONNECTION");
	return nt_flush(out);
}

static const char *or_dash(const char *word)
{
	return word ? word : "-";
}

static void format_bytes(const struct nt_stall *stall, char *out, size_t size)
{
	snprintf(out, size, "%u",
		 stall->record.sender.present ? stall->record.hold.bytes : stall->record.ack.bytes);
}

static int write_stall(const struct nt_writer *writer, FILE *out, const struct nt_stall *stall,
		       struct nt_stacks *stacks)
{
	const struct nt_record *r = &stall->record;
	const struct nt_tuple *tuple = &nt_stall_end(stall, stall->side)->tuple;
	const struct nt_process *process = nt_stall_process(stall, stall->side);
	char clock[NT_UTC_LEN], name[NT_ESCAPED_LEN(NT_USER_LEN)] = "?", bytes[16];
	char named[sizeof(name) + 24];
	char local[NT_ADDRESS_LEN], remote[NT_ADDRESS_LEN], connection[2 * NT_ADDRESS_LEN + 8];
	struct nt_duration lasted = nt_duration(stall->duration_ns);

	if (nt_is_late_ack(stall))
		return 0;
	format_clock(writer, r->time_ns, clock);
	if (process->tgid)
		nt_escape(process->comm, sizeof(process->comm), name, sizeof(name));
	format_bytes(stall, bytes, sizeof(bytes));
	nt_format_address(tuple, true, local, sizeof(local));
	nt_format_address(tuple, false, remote, sizeof(remote));
	if (writer->wide) {
		nt_shorten(name, 15);
		fprintf(out, "%-*s ", clock_width(writer), clock);
		nt_write_padded(out, name, 15);
		fprintf(out, " %7d %-8s %8s %7s %-9s %-12s %-16s %-8s %s → %s\n",
			process->tgid > 0 ? process->tgid : 0,
			stall->side == NT_SIDE_SENDER ? "sender" : "receiver", lasted.text, bytes,
			or_dash(r->sender.present ? nt_hold_reason_word(r->hold.reason) : NULL),
			or_dash(nt_release_word(r->hold.release)),
			or_dash(nt_pattern_word(r->pattern)),
			stall->contradicted ? "contradicted"
					    : or_dash(nt_evidence_word(r->evidence)),
			local, remote);
	} else {
		snprintf(connection, sizeof(connection), ":%u → %s", tuple->local_port, remote);
		nt_shorten(connection, 28);
		fprintf(out, "%-*s ", clock_width(writer), clock);
		nt_format_named(process->tgid ? name : "?[0]", process->tgid, 18, named,
				sizeof(named));
		nt_write_padded(out, named, 18);
		fprintf(out, " %4s %8s %5s %s\n", stall->side == NT_SIDE_SENDER ? "send" : "recv",
			lasted.text, bytes, connection);
	}
	return 0;
}

/* Prints "(tracepoint hooks, kernel 6.18.44, 0 dropped)". */
static void print_source(FILE *out, const struct nt_report *report)
{
	const struct nt_totals *t = &report->counts.totals;
	unsigned long long dropped = nt_counts_dropped(&report->counts);
	bool left_out = t->dropped[NT_DROPPED_STACK] || t->dropped[NT_DROPPED_LATE_ACK] ||
			report->counts.unowned;
	struct utsname uname_now;

	uname(&uname_now);
	fprintf(out, "(%s hooks, kernel %.*s, %llu dropped%s",
		nt_family_name(report->hooks->family), (int)strcspn(uname_now.release, "-"),
		uname_now.release, dropped, dropped || left_out ? ":" : "");
	for (size_t i = 0; i < NT_DROPPED_WAYS; i++)
		if (t->dropped[i])
			fprintf(out, " %s %llu", nt_dropped_word(i),
				(unsigned long long)t->dropped[i]);
	if (report->counts.recursion_misses)
		fprintf(out, " recursion %llu", report->counts.recursion_misses);
	if (report->counts.unowned)
		fprintf(out, " owners %llu", report->counts.unowned);
	fprintf(out, ")\n");
}

/* Appends text, and cuts what finds no room at a whole character. */
static void add_text(char *out, size_t size, const char *format, ...)
{
	size_t at = strlen(out);
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(out + at, size - at, format, args);
	va_end(args);
	if (n >= (int)(size - at))
		out[nt_whole_characters(out, size - 1)] = '\0';
}

/* Prints how many stacks lack names, so that nobody takes an address for all there is to know. */
static void print_unnamed(const struct nt_writer *writer, FILE *out, const struct nt_report *report)
{
	unsigned long long all = 0;
	const char *comma = ": ";
	char text[256] = "";

	for (size_t i = 1; i < NT_UNNAMED_REASONS; i++)
		all += report->counts.unnamed[i];
	if (!all)
		return;
	add_text(text, sizeof(text), "%llu stack%s without names", all, nt_plural(all));
	for (size_t i = 1; i < NT_UNNAMED_REASONS; i++) {
		if (!report->counts.unnamed[i])
			continue;
		add_text(text, sizeof(text), "%s%s %llu", comma, nt_unnamed_word(i),
			 report->counts.unnamed[i]);
		comma = ", ";
	}
	nt_text_labelled(writer, out, "unnamed", "%s", text);
}

/* Prints which sockets of the processes asked for may stall where no hook sees it. */
static void print_untraced(const struct nt_writer *writer, FILE *out,
			   const struct nt_counts *counts)
{
	static const char *const kinds[NT_UNTRACED_KINDS] = {
		[NT_UNTRACED_KTLS] = "with kernel TLS, which may hold a part of a record above "
				     "TCP (MSG_MORE)",
		[NT_UNTRACED_PACKETS] = "for packets: TCP in user space (gVisor, DPDK) is not "
					"seen",
	};
	const char *semicolon = "";
	char text[256] = "";

	for (size_t i = 1; i < NT_UNTRACED_KINDS; i++) {
		if (!counts->untraced[i])
			continue;
		add_text(text, sizeof(text), "%s%u socket%s %s", semicolon, counts->untraced[i],
			 nt_plural(counts->untraced[i]), kinds[i]);
		semicolon = "; ";
	}
	if (text[0])
		nt_text_labelled(writer, out, "untraced", "%s", text);
}

/* What there is to ask where "no stall" says nothing. */
#define NOTHING_SEEN                                                                                 \
	"no socket that was asked for wrote anything or sent an ACK late in this time: unless they " \
	"only receive, is it the right process, port and namespace, did the connection come about, " \
	"did anybody use it, and is it TCP?"

/* Did all hooks look for all of the time that this report is of, so that nothing is nothing? */
static bool has_looked(const struct nt_report *report)
{
	const struct nt_counts *counts = &report->counts;
	bool looked = report->standby || report->closing;

	if (report->standby && report->standby->state != NT_STANDBY_OFF)
		return false;
	for (size_t i = 0; i < NT_MAX_HOOKS; i++)
		looked = looked && !report->hooks->missing[i] && !report->hooks->detached[i];
	return looked && !report->stalls->stalls && !counts->unseen;
}

/* Prints the totals, also of what did not stall: they help to rule Nagle out. */
static void print_looked_at(const struct nt_writer *writer, FILE *out,
			    const struct nt_report *report)
{
	const struct nt_totals *t = &report->counts.totals;
	char text[1024] = "";
	unsigned long long holds = 0, acks = t->delayed_acks;
	const char *comma = " (";

	for (size_t i = 1; i < NT_HOLD_REASONS; i++)
		holds += t->holds[i];
	add_text(text, sizeof(text), "%llu write%s, %llu hold%s", (unsigned long long)t->writes,
		 nt_plural(t->writes), holds, nt_plural(holds));
	for (size_t i = 1; i < NT_HOLD_REASONS; i++) {
		if (!t->holds[i])
			continue;
		add_text(text, sizeof(text), "%s%s %llu, mean %s", comma, nt_hold_reason_word(i),
			 (unsigned long long)t->holds[i],
			 nt_duration(t->hold_ns[i] / t->holds[i]).text);
		comma = "; ";
	}
	add_text(text, sizeof(text), "%s, %llu delayed ACK%s sent by the timer", holds ? ")" : "",
		 acks, nt_plural(acks));
	if (report->counts.contradicted)
		add_text(text, sizeof(text), "; %llu late by one end, contradicted by the other",
			 report->counts.contradicted);
	nt_text_labelled(writer, out, "looked at", "%s", text);
	if (!t->writes && !holds && !acks && has_looked(report))
		nt_text_labelled(writer, out, "nothing", NOTHING_SEEN);
	if (report->counts.unseen)
		nt_text_labelled(writer, out, "unseen",
				 "%llu delayed ACK%s whose timer this machine hid from BPF",
				 report->counts.unseen, nt_plural(report->counts.unseen));
	print_untraced(writer, out, &report->counts);
	print_unnamed(writer, out, report);
}

/* Prints which holds cost most time although they were no stall. Returns how many. */
static size_t print_slow(const struct nt_writer *writer, FILE *out, const struct nt_report *report)
{
	const struct nt_slow_row *rows[NT_SLOW_ROWS];
	size_t n = nt_slow_choose(&report->counts, report->span_ns / 100, rows);
	char name[NT_ESCAPED_LEN(NT_USER_LEN) + 16], advice[NT_SLOW_TEXT];
	char local[NT_ADDRESS_LEN], remote[NT_ADDRESS_LEN];

	if (n)
		fprintf(out, "\n  not a stall, but time\n");
	for (size_t i = 0; i < n; i++) {
		const struct nt_slow *slow = &rows[i]->slow;

		nt_slow_name(rows[i], name, sizeof(name));
		nt_slow_advise(rows[i], advice);
		nt_format_address(&slow->tuple, true, local, sizeof(local));
		nt_format_address(&slow->tuple, false, remote, sizeof(remote));
		nt_text_labelled(writer, out, nt_hold_reason_word(rows[i]->key.reason),
				 "%s: %llu hold%s, %s in all, mean %s, last %s → %s; %s", name,
				 (unsigned long long)slow->holds, nt_plural(slow->holds),
				 nt_duration(slow->duration_ns).text,
				 nt_duration(slow->duration_ns / slow->holds).text, local, remote,
				 advice);
	}
	return n;
}

/* Prints which connection of a relay lost most, of those with one problem. */
static void print_relay(const struct nt_writer *writer, FILE *out, const struct nt_group *group)
{
	const struct nt_connection *worst = group->connections[0];
	const struct nt_stall *last = &worst->last;
	const struct nt_process *relay = nt_stall_process(last, last->side);
	const struct nt_process *peer = nt_stall_process(last, !last->side);
	char name[NT_ESCAPED_LEN(NT_USER_LEN) + 16], other[sizeof(name) + 4] = "";
	char remote[NT_ADDRESS_LEN], all[64] = "";

	if (peer->tgid) {
		nt_format_process(peer, name, sizeof(name));
		snprintf(other, sizeof(other), "%s at ", name);
	}
	nt_format_process(relay, name, sizeof(name));
	nt_format_address(&nt_stall_end(last, last->side)->tuple, false, remote, sizeof(remote));
	if (group->count > 1)
		snprintf(all, sizeof(all), "; %zu such connections: %" PRIu64 " stalls, %s",
			 group->count, group->stalls, nt_duration(group->excess_ns).text);
	nt_text_labelled(writer, out, "behind it",
			 "%s waited for %s%s: %" PRIu64
			 " stall%s, %s%s; what you trace was connected to "
			 "it and may have waited too (-p %d shows cause and fix)",
			 name, other, remote, worst->count, nt_plural(worst->count),
			 nt_duration(worst->excess_ns).text, all, relay->tgid);
}

/* Prints for which relays the processes asked for may have waited. Returns how many groups of
 * connections those are. */
static size_t print_behind(const struct nt_writer *writer, FILE *out,
			   const struct nt_report *report)
{
	struct nt_groups groups = {};
	size_t n;

	if (report->behind)
		nt_groups_make(&groups, report->behind);
	n = groups.count;
	if (n)
		fputc('\n', out);
	for (size_t i = 0; i < n && i < TOP_BEHIND; i++)
		print_relay(writer, out, &groups.list[i]);
	if (n > TOP_BEHIND)
		fprintf(out, "%*sand %zu more\n", INDENT, "", n - TOP_BEHIND);
	nt_groups_free(&groups);
	return n;
}

/* Prints in which state a daemon with --standby is, and what of the time was not counted exactly.
 */
static void print_standby(const struct nt_writer *writer, FILE *out, const struct nt_report *report)
{
	const struct nt_standby *standby = report->standby;
	uint64_t attached_ns = report->counts.attached_ns;
	uint64_t waited_ns = report->span_ns > attached_ns ? report->span_ns - attached_ns : 0;
	struct nt_duration excess = nt_duration(report->counts.sampled_excess_ns);

	if (!standby || standby->state == NT_STANDBY_OFF)
		return;
	nt_text_labelled(
		writer, out, "standby",
		"%s for %s; nothing was attached for %s of this time, in which looks at the "
		"sockets found %s%s lost",
		standby->state == NT_STANDBY_ATTACHED ? "attached" : "in standby",
		nt_duration(nt_now_ns() - standby->since_ns).text, nt_duration(waited_ns).text,
		report->counts.sampled_excess_ns ? "about " : "no time",
		report->counts.sampled_excess_ns ? excess.text : "");
	if (standby->cannot_attach)
		nt_text_labelled(writer, out, "",
				 "the hooks could not be attached; the daemon's log says why");
}

static void print_stack(const struct nt_writer *writer, FILE *out, const struct nt_report *report,
			const struct nt_stall *stall)
{
	const struct nt_frame *frames;
	char part[256], text[SHOWN_FRAMES * (sizeof(part) + sizeof(" ← "))] = "";
	size_t n, shown = 0;

	if (!report->stacks || stall->side != NT_SIDE_SENDER)
		return;
	n = nt_stacks_get(report->stacks, stall->record.hold.stack_id, &frames);
	for (size_t i = 0; i < n && shown < SHOWN_FRAMES; i++, shown++) {
		nt_format_frame(&frames[i], part, sizeof(part));
		add_text(text, sizeof(text), "%s%s", shown ? " ← " : "", part);
	}
	if (n)
		nt_text_labelled(writer, out, "where", "%s", text);
}

/* Prints whose stalls they are, and on which connection; of several, which one lost most. */
static void print_whose(const struct nt_writer *writer, FILE *out, const struct nt_group *group)
{
	const struct nt_connection *worst = group->connections[0];
	const struct nt_tuple *tuple = &nt_stall_end(&worst->last, worst->last.side)->tuple;
	const struct nt_process *process = nt_stall_process(&worst->last, worst->last.side);
	char local[NT_ADDRESS_LEN], remote[NT_ADDRESS_LEN], name[NT_PLACED_LEN];
	char text[NT_PLACED_LEN + 2 * NT_ADDRESS_LEN + 64];
	const char *side = worst->key.side == NT_SIDE_SENDER ? "sender" : "receiver";

	nt_format_address(tuple, true, local, sizeof(local));
	nt_format_address(tuple, false, remote, sizeof(remote));
	nt_format_placed(process, writer->wide, name, sizeof(name));
	if (group->count == 1) {
		fprintf(out, "\n  %s  %s → %s  (%s)\n", name, local, remote, side);
		return;
	}
	if (group->processes == 1) {
		fprintf(out, "\n  %s  %zu connections  (%s)\n", name, group->count, side);
		name[0] = '\0';
	} else {
		nt_escape(process->comm, sizeof(process->comm), text, sizeof(text));
		fprintf(out, "\n  %s  %zu connections of %zu processes  (%s)\n",
			text[0] ? text : "unknown", group->count, group->processes, side);
	}
	nt_text_labelled(writer, out, "worst", "%s%s%s → %s, %" PRIu64 " stall%s, %s", name,
			 name[0] ? "  " : "", local, remote, worst->count, nt_plural(worst->count),
			 nt_duration(worst->excess_ns).text);
}

/* Prints a block for connections with one problem, or for one connection. */
static void print_group(const struct nt_writer *writer, FILE *out, const struct nt_report *report,
			const struct nt_group *group)
{
	const struct nt_stall *last = &group->connections[0]->last;
	char sum[48] = "";
	struct nt_advice advice;

	nt_advice_for(last, group->pattern, &advice);
	print_whose(writer, out, group);
	if (group->count > 1)
		snprintf(sum, sizeof(sum), ", %s in all", nt_duration(group->excess_ns).text);
	nt_text_labelled(writer, out, "lasted", "%" PRIu64 " stall%s: p50 %s, p99 %s, max %s%s",
			 group->stalls, nt_plural(group->stalls),
			 nt_duration(nt_percentile(group->connections, group->count, 50)).text,
			 nt_duration(nt_percentile(group->connections, group->count, 99)).text,
			 nt_duration(group->max_ns).text, sum);
	nt_text_labelled(writer, out, "pattern", "%s", advice.pattern);
	nt_text_labelled(writer, out, "why", "%s", advice.why);
	if (group->seen && group->seen < group->stalls)
		snprintf(advice.evidence, sizeof(advice.evidence),
			 "%" PRIu64 " seen, %" PRIu64 " inferred", group->seen,
			 group->stalls - group->seen);
	nt_text_labelled(writer, out, "evidence", "%s", advice.evidence);
	print_stack(writer, out, report, last);
	nt_text_labelled(writer, out, "fix", "%s", advice.fix);
}

/* Prints those blocks; each connection's own where more is asked for. */
static void print_stalls(const struct nt_writer *writer, FILE *out, const struct nt_report *report,
			 struct nt_connection *const *list, size_t n)
{
	struct nt_groups groups;
	struct nt_group alone;
	size_t left = 0;

	if (writer->wide || report->settings->all_holds) {
		for (size_t i = 0; i < n; i++) {
			alone = nt_group_of(&list[i], 1);
			print_group(writer, out, report, &alone);
		}
		return;
	}
	nt_groups_make(&groups, report->stalls);
	for (size_t i = 0; i < groups.count; i++) {
		if (i < TOP_GROUPS)
			print_group(writer, out, report, &groups.list[i]);
		else
			left += groups.list[i].count;
	}
	nt_groups_free(&groups);
	if (left)
		fprintf(out, "\n  and %zu more connection%s (--wide shows all)\n", left,
			nt_plural(left));
}

/* Prints the process that lost most, for the first line. */
static void print_headline(FILE *out, const struct nt_report *report,
			   struct nt_connection *const *list, size_t n)
{
	const struct nt_aggregate *a = report->stalls;
	const struct nt_stall *last;
	struct nt_duration span = nt_duration(report->span_ns);
	char name[NT_ESCAPED_LEN(NT_USER_LEN) + 16];

	if (!a->stalls) {
		fprintf(out, "nagletrace: no stall in %s  ", span.text);
		print_source(out, report);
		return;
	}
	fprintf(out, "nagletrace: %" PRIu64 " stall%s in %s cost ", a->stalls, nt_plural(a->stalls),
		span.text);
	if (n && !a->folded && list[0]->key.tgid && list[0]->key.tgid == list[n - 1]->key.tgid) {
		last = &list[0]->last;
		nt_format_process(nt_stall_process(last, last->side), name, sizeof(name));
		fprintf(out, "%s ", name);
	}
	fprintf(out, "%s\n%*s", nt_duration(a->excess_ns).text, 12, "");
	print_source(out, report);
}

static int write_report(const struct nt_writer *writer, FILE *out, const struct nt_report *report)
{
	struct nt_connection **list = nt_aggregate_sorted(report->stalls);
	size_t n = list ? nt_aggregate_count(report->stalls) : 0;

	print_headline(out, report, list, n);
	print_stalls(writer, out, report, list, n);
	if (report->stalls->folded)
		fprintf(out, "\n  and %" PRIu64 " stall%s of further connections\n",
			report->stalls->folded, nt_plural(report->stalls->folded));
	free(list);
	n += print_slow(writer, out, report);
	n += print_behind(writer, out, report);
	if (n)
		fputc('\n', out);
	print_looked_at(writer, out, report);
	print_standby(writer, out, report);
	fputc('\n', out);
	return nt_flush(out);
}

/* Complains on stderr: on stdout the stalls form a table. */
static int write_dropped(FILE *out, const struct nt_counts *counts)
{
	nt_log("%llu record%s dropped so far; reports have too few stalls",
	       nt_counts_dropped(counts), nt_plural(nt_counts_dropped(counts)));
	return 0;
}

const struct nt_writer nt_text_writer = {
	.heading = write_heading,
	.stall = write_stall,
	.timeline_stall = nt_text_timeline_stall,
	.timeline_line = nt_text_timeline_line,
	.report = write_report,
	.dropped = write_dropped,
};
