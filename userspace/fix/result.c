// SPDX-License-Identifier: GPL-2.0
#include "fix/result.h"

#include <inttypes.h>
#include <netinet/tcp.h>
#include <string.h>

#include "output/json.h"
#include "base/text.h"
#include "terms/words.h"
#include "terms/tuple.h"

#define TOP_SOCKETS 10 /* shown without --wide */
#define TEXT_LEN    600
#define SOCKET_LEN  (2 * NT_ADDRESS_LEN + NT_ESCAPED_LEN(NT_USER_LEN) + 40)

void nt_fix_whose(const struct nt_fix_sockets *sockets, char whose[NT_FIX_WHOSE_LEN])
{
	size_t planned = nt_fix_count(sockets, NT_FIX_PLANNED);
	const struct nt_fix_socket *first = NULL;
	char name[NT_ESCAPED_LEN(NT_USER_LEN) + 16];
	bool several = false;

	for (size_t i = 0; i < sockets->count; i++) {
		const struct nt_fix_socket *s = &sockets->list[i];

		if (s->state != (planned ? NT_FIX_PLANNED : NT_FIX_CLOSED))
			continue;
		several |= first && first->process.tgid != s->process.tgid;
		first = s;
	}
	snprintf(name, sizeof(name), "several processes");
	if (first && !several)
		nt_format_process(&first->process, name, sizeof(name));
	if (planned)
		snprintf(whose, NT_FIX_WHOSE_LEN, "%zu connection%s of %s", planned,
			 nt_plural(planned), name);
	else
		snprintf(whose, NT_FIX_WHOSE_LEN, "each connection of %s that stalls", name);
}

static uint64_t span_ns(const struct nt_fix_phase *phase)
{
	return phase->end_ns - phase->begin_ns;
}

static uint64_t all_beside(const struct nt_fix_phase *phase)
{
	uint64_t all = 0;

	for (size_t i = 0; i < NT_HOLD_REASONS; i++)
		all += phase->beside[i];
	return all;
}

/* Compares each connection with itself, where the option was on until the end. */
static struct nt_fix_comparison compare(const struct nt_fix_result *result)
{
	const struct nt_fix_phase *before = &result->before, *during = &result->during;
	struct nt_fix_comparison c = {
		.before = {.span_ns = span_ns(before), .writes = before->counts.totals.writes},
		.during = {.span_ns = span_ns(during), .writes = during->counts.totals.writes},
		.all_before = before->stalls.stalls - before->other_end - before->kernels -
			      all_beside(before),
		.again_ns = result->again_ns,
	};

	for (size_t i = 0; i < result->sockets->count; i++) {
		const struct nt_fix_socket *s = &result->sockets->list[i];
		struct nt_fix_pair pair = s->pair;

		if (!s->set_ns || (s->state != NT_FIX_RESTORED && s->state != NT_FIX_STUCK))
			continue;
		pair.during_ns = during->end_ns > s->set_ns ? during->end_ns - s->set_ns : 0;
		nt_fix_compare(&c, &pair);
	}
	return c;
}

/* Says whether at least a tenth of the stalls where it should act were on connections where the
 * program switched it off. */
static bool much_switched_off(const struct nt_fix_sockets *sockets)
{
	uint64_t off = 0, all = 0;

	for (size_t i = 0; i < sockets->count; i++) {
		const struct nt_fix_socket *s = &sockets->list[i];
		uint64_t stalls = s->set_ns ? s->stalls_before + s->stalls_during : 0;

		all += stalls;
		off += s->state == NT_FIX_CHANGED ? stalls : 0;
	}
	return off && 10 * off >= all;
}

/* Gives the verdict on the option, if it was set at all. */
static enum nt_fix_verdict judge(const struct nt_fix_result *result,
				 char sentence[NT_FIX_SENTENCE_LEN])
{
	struct nt_fix_comparison c = compare(result);
	bool any = false;

	for (size_t i = 0; i < result->sockets->count; i++)
		any |= result->sockets->list[i].set_ns != 0;
	if (!any) {
		snprintf(sentence, NT_FIX_SENTENCE_LEN, "unclear: it was set on no connection");
		return NT_FIX_UNCLEAR;
	}
	if (much_switched_off(result->sockets)) {
		snprintf(sentence, NT_FIX_SENTENCE_LEN,
			 "unclear: the program itself switched %s off while it was set, so it was "
			 "not on; look for setsockopt() in the program",
			 nt_fix_option_name(result->sockets));
		return NT_FIX_UNCLEAR;
	}
	return nt_fix_judge(&c, nt_fix_option_name(result->sockets), sentence);
}

/* ---- text ---- */

/* Writes "10.0.0.1:4000 → 10.0.0.2:8000 of lab-client[4242]". */
static void name_socket(const struct nt_fix_socket *s, char *out, size_t size)
{
	char local[NT_ADDRESS_LEN], remote[NT_ADDRESS_LEN];
	char name[NT_ESCAPED_LEN(NT_USER_LEN) + 16];

	nt_format_address(&s->key.tuple, true, local, sizeof(local));
	nt_format_address(&s->key.tuple, false, remote, sizeof(remote));
	nt_format_process(&s->process, name, sizeof(name));
	snprintf(out, size, "%s → %s of %s", local, remote, name);
}

static void print_planned(FILE *out, const struct nt_fix_result *result,
			  const struct nt_fix_socket *s)
{
	char socket[SOCKET_LEN];

	name_socket(s, socket, sizeof(socket));
	nt_text_labelled(result->writer, out, "", "%s, fd %d: %" PRIu64 " stall%s", socket, s->fd,
			 s->stalls_before, nt_plural(s->stalls_before));
}

bool nt_fix_is_kernels(const struct nt_fix_sockets *sockets, const struct nt_stall *stall)
{
	enum nt_side side = sockets->option == TCP_NODELAY ? NT_SIDE_SENDER : NT_SIDE_RECEIVER;

	return stall->side == side && nt_stall_end(stall, side)->user == NT_USER_KERNEL;
}

bool nt_fix_is_beside(const struct nt_stall *stall)
{
	return (stall->side == NT_SIDE_SENDER &&
		stall->record.cause != NT_CAUSE_NAGLE_DELAYED_ACK) ||
	       stall->record.hold.reason == NT_HOLD_HANDSHAKE;
}

/* Prints how many stalls something other than Nagle made, for this reason, and their remedy. */
static void print_beside(FILE *out, const struct nt_fix_result *result,
			 const struct nt_fix_phase *phase, unsigned int reason)
{
	struct nt_advice advice = {};

	for (struct nt_connection *c = phase->stalls.connections; c; c = c->hh.next)
		if (nt_fix_is_beside(&c->last) && c->last.record.hold.reason == reason)
			nt_advice_for(&c->last, nt_connection_pattern(c), &advice);
	nt_text_labelled(result->writer, out, "left",
			 "%" PRIu64 " stall%s by %s, which %s does not end%s%s",
			 phase->beside[reason], nt_plural(phase->beside[reason]),
			 nt_hold_reason_word(reason), nt_fix_option_name(result->sockets),
			 advice.fix[0] ? ": " : "", advice.fix);
}

/* Prints that some stalls are left as they are, and which, if there are any. */
static void stalls_left(FILE *out, const struct nt_fix_result *result, uint64_t n,
			const char *which)
{
	if (n)
		nt_text_labelled(result->writer, out, "left", "%" PRIu64 " stall%s %s", n,
				 nt_plural(n), which);
}

/* Prints after a phase what the option leaves as it is, and why. */
static void print_left(FILE *out, const struct nt_fix_result *result,
		       const struct nt_fix_phase *phase)
{
	const struct nt_fix_sockets *sockets = result->sockets;
	const char *option = nt_fix_option_name(sockets);
	size_t had_it = nt_fix_count(sockets, NT_FIX_HAD_IT), shown = 0;
	char socket[SOCKET_LEN];

	stalls_left(out, result, phase->other_end,
		    sockets->option == TCP_NODELAY
			    ? "where the process receives: the peer waits for the ACK, so the fix "
			      "belongs in its program; on this host, try --quickack"
			    : "where the process sends, and another one delays the ACK: try "
			      "--nodelay");
	stalls_left(
		out, result, phase->kernels,
		"of sockets that the kernel itself uses: nagletrace's report names their remedy");
	for (unsigned int reason = 1; reason < NT_HOLD_REASONS; reason++)
		if (phase->beside[reason])
			print_beside(out, result, phase, reason);
	if (had_it)
		nt_text_labelled(result->writer, out, "left",
				 "%zu connection%s with %s set already", had_it, nt_plural(had_it),
				 option);
	for (size_t i = 0; i < sockets->count && shown < TOP_SOCKETS; i++) {
		const struct nt_fix_socket *s = &sockets->list[i];

		if (s->state != NT_FIX_FAILED)
			continue;
		name_socket(s, socket, sizeof(socket));
		nt_text_labelled(result->writer, out, "left", "%s cannot be set: %s", socket,
				 strerror(-s->err));
		shown++;
	}
	if (sockets->no_room)
		nt_text_labelled(result->writer, out, "left",
				 "%" PRIu64 " connection%s more than the %d that it sets at a time",
				 sockets->no_room, nt_plural(sockets->no_room), NT_FIX_MOST);
}

static int text_plan(FILE *out, const struct nt_fix_result *result)
{
	const struct nt_fix_sockets *sockets = result->sockets;
	size_t planned = nt_fix_count(sockets, NT_FIX_PLANNED), shown = 0;
	size_t closed = nt_fix_count(sockets, NT_FIX_CLOSED);
	char whose[NT_FIX_WHOSE_LEN];

	nt_fix_whose(sockets, whose);
	if (planned)
		nt_text_labelled(result->writer, out, "to try",
				 "%s would be set on %s, and on %s:", nt_fix_option_name(sockets),
				 whose,
				 result->settings->all ? "new ones" : "others once they stall");
	else if (closed)
		nt_text_labelled(result->writer, out, "to try",
				 "%s would be set on %s; those that did (%zu) are closed by now",
				 nt_fix_option_name(sockets), whose, closed);
	for (size_t i = 0; i < sockets->count; i++) {
		if (sockets->list[i].state != NT_FIX_PLANNED)
			continue;
		if (shown++ < TOP_SOCKETS || result->writer->wide)
			print_planned(out, result, &sockets->list[i]);
	}
	if (shown > TOP_SOCKETS && !result->writer->wide)
		nt_text_labelled(result->writer, out, "", "and %zu more (--wide shows all)",
				 shown - TOP_SOCKETS);
	print_left(out, result, &result->before);
	fputc('\n', out);
	return nt_flush(out);
}

/* Prints a row of the table: its name, and its value in each phase. */
static void print_row(FILE *out, const char *what, const char *before, const char *during)
{
	fprintf(out, "    %-20s %12s %12s\n", what, before, during);
}

static void print_count(FILE *out, const char *what, uint64_t before, uint64_t during)
{
	char b[24], d[24];

	snprintf(b, sizeof(b), "%" PRIu64, before);
	snprintf(d, sizeof(d), "%" PRIu64, during);
	print_row(out, what, b, d);
}

static void print_rate(FILE *out, const char *what, double before, double during)
{
	char b[24], d[24];

	snprintf(b, sizeof(b), "%.1f", before);
	snprintf(d, sizeof(d), "%.1f", during);
	print_row(out, what, b, d);
}

/* Prints durations; 0 means none, as of stalls that did not happen. */
static void print_duration(FILE *out, const char *what, uint64_t before_ns, uint64_t during_ns)
{
	print_row(out, what, before_ns ? nt_duration(before_ns).text : "-",
		  during_ns ? nt_duration(during_ns).text : "-");
}

static void print_table(FILE *out, const struct nt_fix_result *result)
{
	const struct nt_aggregate *b_stalls = &result->before.stalls;
	const struct nt_aggregate *d_stalls = &result->during.stalls;
	uint64_t b_dropped = nt_counts_dropped(&result->before.counts);
	uint64_t d_dropped = nt_counts_dropped(&result->during.counts);
	uint64_t b_writes = result->before.counts.totals.writes;
	uint64_t d_writes = result->during.counts.totals.writes;
	struct nt_fix_comparison c = compare(result);
	double b_s = span_ns(&result->before) / 1e9, d_s = span_ns(&result->during) / 1e9;

	print_row(out, "", "before", "while set");
	print_duration(out, "time", span_ns(&result->before), span_ns(&result->during));
	if (b_writes || d_writes)
		print_rate(out, "writes a second", b_writes / b_s, d_writes / d_s);
	print_count(out, "stalls", b_stalls->stalls, d_stalls->stalls);
	print_rate(out, "stalls a second", b_stalls->stalls / b_s, d_stalls->stalls / d_s);
	print_duration(out, "time lost", b_stalls->excess_ns, d_stalls->excess_ns);
	print_duration(out, "time lost a second", b_stalls->excess_ns / b_s,
		       d_stalls->excess_ns / d_s);
	print_duration(out, "a stall lasts, p50", nt_aggregate_percentile(b_stalls, 50),
		       nt_aggregate_percentile(d_stalls, 50));
	print_duration(out, "a stall lasts, p99", nt_aggregate_percentile(b_stalls, 99),
		       nt_aggregate_percentile(d_stalls, 99));
	if (b_dropped || d_dropped)
		print_count(out, "records dropped", b_dropped, d_dropped);
	print_count(out, "compared, stalls", c.before.stalls + 0.5, c.during.stalls);
	print_duration(out, "compared, time lost", c.before.excess_ns, c.during.excess_ns);
	if (b_writes && d_writes) /* both cover as much time as the second phase */
		print_duration(out, "compared, a write",
			       c.before.excess_ns / d_s / (b_writes / b_s),
			       c.during.excess_ns / d_writes);
	fputc('\n', out);
}

/* Prints the stalls of the second phase that the option had no chance to prevent. */
static void print_unset_stalls(FILE *out, const struct nt_fix_result *result)
{
	const struct nt_fix_phase *during = &result->during;

	stalls_left(out, result, during->not_yet,
		    "of connections on which it was not set yet: a new one is set once it has "
		    "stalled");
	stalls_left(out, result, during->never,
		    "of connections on which it was never set: they were closed by then, had it, "
		    "could not be reached, or were too many");
}

/* Says how much weaker TCP_QUICKACK is from outside than in the program. */
static void print_again(FILE *out, const struct nt_fix_result *result)
{
	if (!result->again_ns)
		return;
	nt_text_labelled(
		result->writer, out, "set",
		"again every %s, up to which an ACK is still delayed; by the program itself, before "
		"each read, it would not be",
		nt_duration(result->again_ns).text);
}

static void print_restored(FILE *out, const struct nt_fix_result *result)
{
	static const struct {
		enum nt_fix_state state;
		const char *what;
	} ends[] = {
		{NT_FIX_RESTORED, "as before"},
		{NT_FIX_CHANGED, "switched off by the program itself meanwhile, and left so"},
		{NT_FIX_CLOSED, "closed meanwhile"},
		{NT_FIX_STUCK, "not set back"},
	};
	char text[TEXT_LEN] = "";

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		size_t n = 0, at = strlen(text);

		for (size_t s = 0; s < result->sockets->count; s++)
			n += result->sockets->list[s].set_ns &&
			     result->sockets->list[s].state == ends[i].state;
		if (n)
			snprintf(text + at, sizeof(text) - at, "%s%zu connection%s %s",
				 at ? ", " : "", n, nt_plural(n), ends[i].what);
	}
	if (text[0]) /* empty: it was set nowhere */
		nt_text_labelled(result->writer, out, "restored", "%s", text);
}

static void print_nothing_set(FILE *out, const struct nt_fix_result *result)
{
	const char *const why[] = {
		[NT_FIX_SIGNAL] = "it was interrupted",
		[NT_FIX_PROCESS_ENDED] = nt_targets_ended(result->settings),
		[NT_FIX_DECLINED] = "you answered no",
	};
	const struct nt_fix_phase *before = &result->before;
	const char *reason = "there is nothing to set it on";

	if (result->ended == NT_FIX_NOTHING_TO_SET && !before->stalls.stalls &&
	    !result->settings->all)
		reason = "nothing stalled";
	else if (result->ended != NT_FIX_NOTHING_TO_SET)
		reason = why[result->ended];
	nt_text_labelled(result->writer, out, "nothing", "%s; no connection was touched", reason);
}

static int text_result(FILE *out, const struct nt_fix_result *result)
{
	char sentence[NT_FIX_SENTENCE_LEN];
	enum nt_fix_verdict verdict;

	if (!result->set) {
		print_nothing_set(out, result);
		return nt_flush(out);
	}
	verdict = judge(result, sentence);
	print_table(out, result);
	nt_text_labelled(result->writer, out, "verdict", "%s", sentence);
	print_again(out, result);
	print_unset_stalls(out, result);
	print_left(out, result, &result->during);
	print_restored(out, result);
	if (verdict == NT_FIX_CURED || verdict == NT_FIX_HELPED)
		nt_text_labelled(result->writer, out, "for good", "%s", result->remedy);
	return nt_flush(out);
}

/* ---- JSON ---- */

static const char *const states[NT_FIX_STATES] = {
	[NT_FIX_PLANNED] = "untouched", [NT_FIX_SET] = "set",
	[NT_FIX_RESTORED] = "restored", [NT_FIX_HAD_IT] = "had_it",
	[NT_FIX_CHANGED] = "changed",   [NT_FIX_CLOSED] = "closed",
	[NT_FIX_FAILED] = "failed",     [NT_FIX_STUCK] = "stuck",
};

static struct json_object *json_socket(const struct nt_fix_socket *s)
{
	struct json_object *o = json_object_new_object();

	nt_json_process(o, &s->process, 0);
	nt_json_tuple(o, &s->key.tuple);
	if (s->fd >= 0)
		nt_json_number(o, "fd", s->fd);
	if (s->cookie)
		nt_json_flag(o, "was_set", s->former);
	nt_json_string(o, "state", states[s->state]);
	if (s->err)
		nt_json_string(o, "error", nt_fix_why(s));
	nt_json_number(o, "stalls_before", s->stalls_before);
	nt_json_number(o, "stalls_while_set", s->stalls_during);
	return o;
}

static struct json_object *json_phase(const struct nt_fix_phase *phase)
{
	struct json_object *o = json_object_new_object();

	nt_json_number(o, "span_us", span_ns(phase) / 1000);
	nt_json_number(o, "stalls", phase->stalls.stalls);
	nt_json_number(o, "excess_us", phase->stalls.excess_ns / 1000);
	nt_json_number(o, "writes", phase->counts.totals.writes);
	if (phase->stalls.stalls) {
		nt_json_number(o, "p50_us", nt_aggregate_percentile(&phase->stalls, 50) / 1000);
		nt_json_number(o, "p99_us", nt_aggregate_percentile(&phase->stalls, 99) / 1000);
	}
	nt_json_number(o, "other_end_stalls", phase->other_end);
	nt_json_number(o, "beside_stalls", all_beside(phase));
	nt_json_number(o, "kernel_stalls", phase->kernels);
	nt_json_number(o, "not_yet_set_stalls", phase->not_yet);
	nt_json_number(o, "never_set_stalls", phase->never);
	nt_json_number(o, "dropped_records", nt_counts_dropped(&phase->counts));
	return o;
}

/* Makes the object that says which numbers the verdict compares. */
static struct json_object *json_compared(const struct nt_fix_comparison *c)
{
	struct json_object *o = json_object_new_object();

	nt_json_number(o, "connections", c->connections);
	nt_json_number(o, "stalls_before", c->before.stalls + 0.5);
	nt_json_number(o, "excess_before_us", c->before.excess_ns / 1000);
	nt_json_number(o, "stalls_while_set", c->during.stalls);
	nt_json_number(o, "excess_while_set_us", c->during.excess_ns / 1000);
	return o;
}

/* Writes nothing: the records of the stalls name the sockets. */
static int json_plan(FILE *out, const struct nt_fix_result *result)
{
	return 0;
}

static int json_result(FILE *out, const struct nt_fix_result *result)
{
	static const char *const ends[] = {
		[NT_FIX_TIME_OVER] = "time",
		[NT_FIX_SIGNAL] = "signal",
		[NT_FIX_PROCESS_ENDED] = "process_ended",
		[NT_FIX_NOTHING_TO_SET] = "nothing_to_set",
		[NT_FIX_DECLINED] = "declined",
	};
	static const char *const verdicts[NT_FIX_VERDICTS] = {
		[NT_FIX_UNCLEAR] = "unclear",
		[NT_FIX_CURED] = "cured",
		[NT_FIX_HELPED] = "helped",
		[NT_FIX_NO_HELP] = "no_help",
	};
	const struct nt_fix_sockets *sockets = result->sockets;
	struct json_object *o = nt_json_new("fix"), *list = json_object_new_array();
	char sentence[NT_FIX_SENTENCE_LEN];

	nt_json_time_now(o);
	nt_json_string(o, "option", nt_fix_option_name(sockets));
	nt_json_string(o, "ended", ends[result->ended]);
	json_object_object_add(o, "before", json_phase(&result->before));
	if (result->set) {
		struct nt_fix_comparison compared = compare(result);

		json_object_object_add(o, "compared", json_compared(&compared));
		json_object_object_add(o, "while_set", json_phase(&result->during));
		nt_json_string(o, "verdict", verdicts[judge(result, sentence)]);
		nt_json_string(o, "verdict_text", sentence);
		if (result->again_ns)
			nt_json_number(o, "set_again_us", result->again_ns / 1000);
	}
	if (result->remedy[0])
		nt_json_string(o, "fix", result->remedy);
	for (size_t i = 0; i < sockets->count; i++)
		json_object_array_add(list, json_socket(&sockets->list[i]));
	json_object_object_add(o, "sockets", list);
	nt_json_number(o, "more_sockets", sockets->no_room);
	return nt_json_write(out, o);
}

const struct nt_fix_writer nt_fix_writers[] = {
	[NT_OUTPUT_TEXT] = {.plan = text_plan, .result = text_result},
	[NT_OUTPUT_JSON] = {.plan = json_plan, .result = json_result},
};
