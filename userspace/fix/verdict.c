// SPDX-License-Identifier: GPL-2.0
#include "fix/verdict.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Where chance brings this number of stalls, none comes in less than 1 % of cases (Poisson). */
#define ENOUGH 5.0

void nt_fix_compare(struct nt_fix_comparison *c, const struct nt_fix_pair *pair)
{
	double part;

	if (!pair->before_ns || !pair->during_ns)
		return;
	part = pair->during_ns < pair->before_ns ? (double)pair->during_ns / pair->before_ns : 1;
	c->connections += pair->stalls_before || pair->stalls_during;
	c->before.stalls += part * pair->stalls_before;
	c->before.excess_ns += part * pair->excess_before_ns;
	c->during.stalls += pair->stalls_during;
	c->during.excess_ns += pair->excess_during_ns;
}

static bool writes_counted(const struct nt_fix_comparison *c)
{
	return c->before.writes && c->during.writes;
}

/* Returns the ratio of writes per second, while set to before; 1 where writes are not counted. */
static double load(const struct nt_fix_comparison *c)
{
	if (!writes_counted(c))
		return 1;
	return ((double)c->during.writes / c->during.span_ns) /
	       ((double)c->before.writes / c->before.span_ns);
}

/* Returns the stalls to expect while it was set, had nothing changed; the lower of both
 * measures. */
static double expected(const struct nt_fix_comparison *c)
{
	double less = load(c);

	return less < 1 ? c->before.stalls * less : c->before.stalls;
}

static enum nt_fix_verdict verdict_of(double was, double is)
{
	if (is <= was / 20)
		return NT_FIX_CURED;
	return is <= was / 2 ? NT_FIX_HELPED : NT_FIX_NO_HELP;
}

/* Returns the mean excess of a stall; 0 without one. */
static double by_stall(const struct nt_fix_sum *sum)
{
	return sum->stalls > 0 ? sum->excess_ns / sum->stalls : 0;
}

/* Says whether there is too little to compare, and why. */
static bool undecided(const struct nt_fix_comparison *c, const char *option,
		      char sentence[NT_FIX_SENTENCE_LEN])
{
	if (!c->before.stalls && !c->all_before)
		snprintf(sentence, NT_FIX_SENTENCE_LEN,
			 "unclear: nothing stalled before, so there was nothing to improve");
	else if (c->again_ns > NT_FIX_AGAIN_MOST_NS)
		snprintf(
			sentence, NT_FIX_SENTENCE_LEN,
			"unclear: %s could be set again only every %s, and an ACK that it sends so "
			"late is a short wait, not none; choose fewer connections, as by --port",
			option, nt_duration(c->again_ns).text);
	else if (c->before.writes && !c->during.writes)
		snprintf(
			sentence, NT_FIX_SENTENCE_LEN,
			"unclear: the process wrote nothing while it was set; try again under load");
	else if (!c->before.stalls)
		snprintf(sentence, NT_FIX_SENTENCE_LEN,
			 "unclear: no connection stalled twice before and stayed open while it was "
			 "set, so there is none to compare with itself; take a longer time, as "
			 "--for 60s");
	else if (!c->before.span_ns || !c->during.span_ns || expected(c) < ENOUGH)
		snprintf(sentence, NT_FIX_SENTENCE_LEN,
			 "unclear: %" PRIu64
			 " stall%s before, of which some %.0f would be expected on "
			 "the connections compared, are too few; take a longer time, as --for 60s",
			 c->all_before, nt_plural(c->all_before), expected(c));
	else
		return false;
	return true;
}

/* Reports that the measures disagree and the stalls are not shorter: other connections may have
 * written. */
static enum nt_fix_verdict say_disagree(const struct nt_fix_comparison *c,
					char sentence[NT_FIX_SENTENCE_LEN])
{
	double more = load(c);

	snprintf(
		sentence, NT_FIX_SENTENCE_LEN,
		"unclear: lost time fell per %s but not per %s, because the process wrote %.1f times as "
		"%s while it was set, on these connections or on others; try again under the same "
		"load",
		more > 1 ? "write" : "second", more > 1 ? "second" : "write",
		more > 1 ? more : 1 / more, more > 1 ? "often" : "seldom");
	return NT_FIX_UNCLEAR;
}

static void say_verdict(const struct nt_fix_comparison *c, enum nt_fix_verdict verdict, bool write,
			const char *option, char sentence[NT_FIX_SENTENCE_LEN])
{
	double span_s = c->during.span_ns / 1e9, per = load(c);
	double was = c->before.excess_ns / span_s, is = c->during.excess_ns / span_s;
	struct nt_duration was_text, span = nt_duration(c->during.span_ns);
	char on[48];

	if (write) {
		was /= c->before.writes / (c->before.span_ns / 1e9);
		is /= c->during.writes / span_s;
	}
	was_text = nt_duration(was);
	if (c->connections == 1)
		snprintf(on, sizeof(on), "the connection compared");
	else
		snprintf(on, sizeof(on), "the %" PRIu64 " connections compared", c->connections);
	if (!c->during.stalls)
		snprintf(sentence, NT_FIX_SENTENCE_LEN,
			 "%s ends the stalls on %s: before, they cost %s %s; while it was set, for "
			 "%s, there was none",
			 option, on, was_text.text, write ? "a write" : "a second", span.text);
	else
		snprintf(sentence, NT_FIX_SENTENCE_LEN,
			 "%s %s: on %s, %s were lost %s before, and %s while it was set (%+.0f %%)",
			 option,
			 verdict == NT_FIX_CURED    ? "cures it"
			 : verdict == NT_FIX_HELPED ? "helps in part"
						    : "does not help",
			 on, was_text.text, write ? "by write" : "by second", nt_duration(is).text,
			 was > 0 ? 100 * (is - was) / was : 0);
	if (per < 0.5)
		snprintf(sentence + strlen(sentence), NT_FIX_SENTENCE_LEN - strlen(sentence),
			 ". The process wrote less than half as often meanwhile: try again under "
			 "the same load");
}

enum nt_fix_verdict nt_fix_judge(const struct nt_fix_comparison *c, const char *option,
				 char sentence[NT_FIX_SENTENCE_LEN])
{
	enum nt_fix_verdict second, write, stall, verdict;

	if (undecided(c, option, sentence))
		return NT_FIX_UNCLEAR;
	second = verdict_of(c->before.excess_ns, c->during.excess_ns);
	write = verdict_of(c->before.excess_ns * load(c), c->during.excess_ns);
	stall = verdict_of(by_stall(&c->before), by_stall(&c->during));
	/* a lower number is better; writes elsewhere cannot make stalls shorter */
	if (write < second && stall <= write)
		verdict = write;
	else if ((write == NT_FIX_NO_HELP) != (second == NT_FIX_NO_HELP))
		return say_disagree(c, sentence);
	else
		verdict = write > second ? write : second;
	say_verdict(c, verdict, writes_counted(c) && verdict == write, option, sentence);
	return verdict;
}
