// SPDX-License-Identifier: GPL-2.0
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "advice.h"
#include "text.h"
#include "words.h"

#define WIDTH           80
#define WIDE            200
#define INDENT          14 /* of what follows a label */
#define TOP_CONNECTIONS 10

size_t nt_text_width(const struct nt_options *opts)
{
	return opts->wide ? WIDE : WIDTH;
}

static size_t columns(const char *text, size_t bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < bytes; i++)
		n += (text[i] & 0xc0) != 0x80;
	return n;
}

void nt_text_labelled(FILE *out, const char *label, const char *text, size_t width)
{
	size_t at = INDENT;

	fprintf(out, "    %-*s", INDENT - 4, label);
	while (*text) {
		size_t word = strcspn(text, " "), length = columns(text, word);

		if (at > INDENT && at + 1 + length > width) {
			fprintf(out, "\n%*s", INDENT, "");
			at = INDENT;
		} else if (at > INDENT) {
			fputc(' ', out);
			at++;
		}
		fwrite(text, 1, word, out);
		at += length;
		text += word;
		text += *text == ' ';
	}
	fputc('\n', out);
}

static void format_clock(uint64_t mono_ns, char *out, size_t size)
{
	int64_t ns = nt_time_of_day_ns(mono_ns);
	time_t seconds = ns / 1000000000;
	char clock[16];
	struct tm tm;

	localtime_r(&seconds, &tm);
	strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	snprintf(out, size, "%s.%03u", clock, (unsigned int)(ns % 1000000000 / 1000000));
}

int nt_text_heading(FILE *out, const struct nt_options *opts)
{
	if (opts->wide)
		fprintf(out, "%-12s %-15s %7s %-8s %8s %7s %-9s %-12s %-16s %-8s %s\n", "TIME",
			"PROCESS", "PID", "SIDE", "LASTED", "BYTES", "HELD", "RELEASED", "PATTERN",
			"EVIDENCE", "CONNECTION");
	else
		fprintf(out, "%-12s %-18s %4s %8s %5s %s\n", "TIME", "PROCESS", "SIDE", "LASTED",
			"BYTES", "CONNECTION");
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

/* "java[4242]" in so many columns: a long name is shortened, never the number. */
static void print_process(FILE *out, char *name, pid_t tgid, size_t width)
{
	char number[16];
	size_t n;

	snprintf(number, sizeof(number), "[%d]", tgid);
	n = strlen(number);
	nt_shorten(name, width - n);
	fprintf(out, "%s%s%*s", name, number, (int)(width - n - columns(name, strlen(name))), "");
}

int nt_text_stall(FILE *out, const struct nt_options *opts, const struct nt_stall *stall)
{
	const struct nt_record *r = &stall->record;
	const struct nt_tuple *tuple = &nt_stall_self(stall)->tuple;
	char clock[32], name[NT_ESCAPED_LEN(NT_COMM_LEN)] = "?", lasted[16], bytes[16];
	char local[NT_ADDRESS_LEN], remote[NT_ADDRESS_LEN], connection[2 * NT_ADDRESS_LEN + 8];

	format_clock(r->time_ns, clock, sizeof(clock));
	if (stall->self.tgid)
		nt_escape(stall->self.comm, sizeof(stall->self.comm), name, sizeof(name));
	nt_format_duration(stall->duration_ns, lasted, sizeof(lasted));
	format_bytes(stall, bytes, sizeof(bytes));
	nt_format_address(tuple, true, local, sizeof(local));
	nt_format_address(tuple, false, remote, sizeof(remote));
	if (opts->wide) {
		fprintf(out, "%-12s %-15s %7d %-8s %8s %7s %-9s %-12s %-16s %-8s %s → %s\n", clock,
			name, stall->self.tgid,
			stall->side == NT_SIDE_SENDER ? "sender" : "receiver", lasted, bytes,
			or_dash(nt_hold_reason_word(r->hold.reason)),
			or_dash(nt_release_word(r->hold.release)),
			or_dash(nt_pattern_word(r->pattern)),
			or_dash(nt_evidence_word(r->evidence)), local, remote);
	} else {
		snprintf(connection, sizeof(connection), ":%u → %s", tuple->local_port, remote);
		nt_shorten(connection, 28);
		fprintf(out, "%-12s ", clock);
		print_process(out, name, stall->self.tgid, 18);
		fprintf(out, " %4s %8s %5s %s\n", stall->side == NT_SIDE_SENDER ? "send" : "recv",
			lasted, bytes, connection);
	}
	return nt_flush(out);
}

/* "(tracepoint hooks, kernel 6.18.44, 0 lost)" */
static void print_source(FILE *out, const struct nt_report *report)
{
	const struct nt_totals *t = &report->counts.totals;
	unsigned long long lost = nt_counts_lost(&report->counts);
	struct utsname uname_now;

	uname(&uname_now);
	fprintf(out, "(%s hooks, kernel %.*s, %llu lost%s", nt_family_name(report->tracer->family),
		(int)strcspn(uname_now.release, "-"), uname_now.release, lost, lost ? ":" : "");
	for (size_t i = 0; i < NT_LOST_WAYS; i++)
		if (t->lost[i])
			fprintf(out, " %s %llu", nt_lost_word(i), (unsigned long long)t->lost[i]);
	if (report->counts.recursion_misses)
		fprintf(out, " recursion %llu", report->counts.recursion_misses);
	fprintf(out, ")\n");
}

static void add_text(char *out, size_t size, const char *format, ...)
{
	size_t at = strlen(out);
	va_list args;

	va_start(args, format);
	vsnprintf(out + at, size - at, format, args);
	va_end(args);
}

/* What was looked at: ruling Nagle out is half the use. */
static void print_looked_at(FILE *out, const struct nt_report *report)
{
	const struct nt_totals *t = &report->counts.totals;
	char text[1024] = "", mean[16];
	unsigned long long holds = 0, acks = 0;
	const char *comma = " (";

	for (size_t i = 1; i < NT_HOLD_REASONS; i++)
		holds += t->holds[i];
	for (size_t i = 1; i < NT_ACK_ENDS; i++)
		acks += t->ack_ends[i];
	add_text(text, sizeof(text), "%llu writes, %llu holds", (unsigned long long)t->writes,
		 holds);
	for (size_t i = 1; i < NT_HOLD_REASONS; i++) {
		if (!t->holds[i])
			continue;
		nt_format_duration(t->hold_ns[i] / t->holds[i], mean, sizeof(mean));
		add_text(text, sizeof(text), "%s%s %llu, mean %s", comma, nt_hold_reason_word(i),
			 (unsigned long long)t->holds[i], mean);
		comma = "; ";
	}
	add_text(text, sizeof(text), "%s, %llu delayed ACKs", holds ? ")" : "", acks);
	comma = " (";
	for (size_t i = 1; i < NT_ACK_ENDS; i++) {
		if (!t->ack_ends[i])
			continue;
		add_text(text, sizeof(text), "%sended by %s %llu", comma, nt_ack_end_word(i),
			 (unsigned long long)t->ack_ends[i]);
		comma = ", ";
	}
	if (acks)
		add_text(text, sizeof(text), ")");
	nt_text_labelled(out, "looked at", text, nt_text_width(report->opts));
}

static void print_stack(FILE *out, const struct nt_report *report, const struct nt_stall *stall)
{
	const struct nt_frame *frames;
	char text[1024] = "", part[256];
	size_t n, shown = 0;

	if (!report->stacks || stall->side != NT_SIDE_SENDER)
		return;
	n = nt_stacks_get(report->stacks, stall->record.hold.stack_id, &frames);
	for (size_t i = 0; i < n && shown < 8; i++, shown++) {
		const struct nt_frame *f = &frames[i];
		const char *file = f->module ? strrchr(f->module, '/') : NULL;

		if (f->symbol)
			nt_escape(f->symbol, strlen(f->symbol), part, sizeof(part));
		else if (f->module) {
			nt_escape(file ? file + 1 : f->module, 128, part, sizeof(part));
			add_text(part, sizeof(part), "+0x%" PRIx64, f->offset);
		} else
			snprintf(part, sizeof(part), "0x%" PRIx64, f->ip);
		add_text(text, sizeof(text), "%s%s", shown ? " ← " : "", part);
	}
	if (n)
		nt_text_labelled(out, "where", text, nt_text_width(report->opts));
}

static void print_connection(FILE *out, const struct nt_report *report,
			     const struct nt_connection *c)
{
	const struct nt_tuple *tuple = &nt_stall_self(&c->last)->tuple;
	char local[NT_ADDRESS_LEN], remote[NT_ADDRESS_LEN], name[NT_ESCAPED_LEN(NT_COMM_LEN) + 16];
	char p50[16], p99[16], max[16];
	struct nt_advice advice;
	char text[2 * NT_ADVICE_LEN];

	nt_format_address(tuple, true, local, sizeof(local));
	nt_format_address(tuple, false, remote, sizeof(remote));
	nt_format_process(&c->last.self, name, sizeof(name));
	nt_format_duration(nt_connection_percentile(c, 50), p50, sizeof(p50));
	nt_format_duration(nt_connection_percentile(c, 99), p99, sizeof(p99));
	nt_format_duration(c->max_ns, max, sizeof(max));
	nt_advice_for(&c->last, nt_connection_pattern(c), &advice);
	fprintf(out, "\n  %s  %s → %s  (%s)\n", name, local, remote,
		c->key.side == NT_SIDE_SENDER ? "sender" : "receiver");
	snprintf(text, sizeof(text), "%" PRIu64 " %s: p50 %s, p99 %s, max %s", c->count,
		 c->count == 1 ? "stall" : "stalls", p50, p99, max);
	nt_text_labelled(out, "lasted", text, nt_text_width(report->opts));
	nt_text_labelled(out, "pattern", advice.pattern, nt_text_width(report->opts));
	snprintf(text, sizeof(text), "%s", advice.why);
	nt_text_labelled(out, "why", text, nt_text_width(report->opts));
	nt_text_labelled(out, "evidence", advice.evidence, nt_text_width(report->opts));
	print_stack(out, report, &c->last);
	nt_text_labelled(out, "fix", advice.fix, nt_text_width(report->opts));
}

/* The process that lost most, for the first line. */
static void print_headline(FILE *out, const struct nt_report *report,
			   struct nt_connection *const *list, size_t n)
{
	const struct nt_aggregate *a = report->stalls;
	char span[16], lost[16], name[NT_ESCAPED_LEN(NT_COMM_LEN) + 16];

	nt_format_duration(report->span_ns, span, sizeof(span));
	if (!a->stalls) {
		fprintf(out, "nagletrace: no stall in %s  ", span);
		print_source(out, report);
		return;
	}
	nt_format_duration(a->lost_ns, lost, sizeof(lost));
	fprintf(out, "nagletrace: %" PRIu64 " %s in %s cost ", a->stalls,
		a->stalls == 1 ? "stall" : "stalls", span);
	if (n && list[0]->key.tgid == list[n - 1]->key.tgid) {
		nt_format_process(&list[0]->last.self, name, sizeof(name));
		fprintf(out, "%s ", name);
	}
	fprintf(out, "%s\n%*s", lost, 12, "");
	print_source(out, report);
}

int nt_text_report(FILE *out, const struct nt_report *report)
{
	struct nt_connection **list = nt_aggregate_sorted(report->stalls);
	size_t n = list ? nt_aggregate_count(report->stalls) : 0;

	print_headline(out, report, list, n);
	for (size_t i = 0; i < n && (report->opts->wide || i < TOP_CONNECTIONS); i++)
		print_connection(out, report, list[i]);
	if (!report->opts->wide && n > TOP_CONNECTIONS)
		fprintf(out, "\n  and %zu more connections (--wide shows all)\n",
			n - TOP_CONNECTIONS);
	if (report->stalls->folded)
		fprintf(out, "\n  and %" PRIu64 " stalls of further connections\n",
			report->stalls->folded);
	free(list);
	if (n)
		fputc('\n', out);
	print_looked_at(out, report);
	fputc('\n', out);
	return nt_flush(out);
}
