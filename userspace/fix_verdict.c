// SPDX-License-Identifier: GPL-2.0
#include "fix_verdict.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

/* Where so many are expected by chance, none comes in less than one of a hundred cases (Poisson).
 */
#define ENOUGH 5.0

static bool by_write(const struct nt_fix_sum *before, const struct nt_fix_sum *during)
{
	return before->writes && during->writes;
}

/* Lost time in ns by write, or by second. */
static double measure(const struct nt_fix_sum *sum, bool write)
{
	double over = write ? (double)sum->writes : sum->span_ns / 1e9;

	return over > 0 ? sum->lost_ns / over : 0;
}

/* The stalls to expect while it was set, had nothing changed. */
static double expected(const struct nt_fix_sum *before, const struct nt_fix_sum *during)
{
	double part = by_write(before, during) ? (double)during->writes / before->writes
					       : (double)during->span_ns / before->span_ns;

	return before->stalls * part;
}

static void say_unclear(const struct nt_fix_sum *before, const struct nt_fix_sum *during,
			char sentence[NT_FIX_SENTENCE_LEN])
{
	if (!before->stalls)
		snprintf(sentence, NT_FIX_SENTENCE_LEN,
			 "unclear: nothing stalled before, so there was nothing to improve");
	else if (before->writes && !during->writes)
		snprintf(
			sentence, NT_FIX_SENTENCE_LEN,
			"unclear: the process wrote nothing while it was set; try again under load");
	else
		snprintf(sentence, NT_FIX_SENTENCE_LEN,
			 "unclear: %" PRIu64
			 " %s before, of which some %.0f would be expected while "
			 "it was set, are too few to compare; take a longer time, as --for 60s",
			 before->stalls, before->stalls == 1 ? "stall" : "stalls",
			 expected(before, during));
}

static enum nt_fix_verdict verdict_of(double was, double is)
{
	if (is <= was / 20)
		return NT_FIX_CURED;
	return is <= was / 2 ? NT_FIX_HELPED : NT_FIX_NO_HELP;
}

/* Other things than the option have changed too, as far as can be seen. */
static void add_caution(const struct nt_fix_sum *before, const struct nt_fix_sum *during,
			char sentence[NT_FIX_SENTENCE_LEN])
{
	double was = before->writes / (before->span_ns / 1e9);
	double is = during->writes / (during->span_ns / 1e9);
	size_t at = strlen(sentence);

	if (by_write(before, during) && is < was / 2)
		snprintf(sentence + at, NT_FIX_SENTENCE_LEN - at,
			 ". The process wrote less than half as often meanwhile: try again under "
			 "the same load");
}

enum nt_fix_verdict nt_fix_judge(const struct nt_fix_sum *before, const struct nt_fix_sum *during,
				 const char *option, char sentence[NT_FIX_SENTENCE_LEN])
{
	bool write = by_write(before, during);
	double was = measure(before, write), is = measure(during, write);
	char was_text[16], is_text[16], span[16];
	enum nt_fix_verdict verdict;

	if (!during->span_ns || !before->span_ns || before->stalls < ENOUGH ||
	    (before->writes && !during->writes) || expected(before, during) < ENOUGH) {
		say_unclear(before, during, sentence);
		return NT_FIX_UNCLEAR;
	}
	verdict = verdict_of(was, is);
	nt_format_duration(was, was_text, sizeof(was_text));
	nt_format_duration(is, is_text, sizeof(is_text));
	nt_format_duration(during->span_ns, span, sizeof(span));
	if (!during->stalls)
		snprintf(sentence, NT_FIX_SENTENCE_LEN,
			 "%s ends the stalls: before, they cost %s %s; while it was set, for %s, "
			 "there was none",
			 option, was_text, write ? "a write" : "a second", span);
	else
		snprintf(sentence, NT_FIX_SENTENCE_LEN,
			 "%s %s: %s were lost %s before, and %s while it was set (%+.0f %%)",
			 option,
			 verdict == NT_FIX_CURED    ? "cures it"
			 : verdict == NT_FIX_HELPED ? "helps in part"
						    : "does not help",
			 was_text, write ? "by write" : "by second", is_text,
			 was > 0 ? 100 * (is - was) / was : 0);
	add_caution(before, during, sentence);
	return verdict;
}
