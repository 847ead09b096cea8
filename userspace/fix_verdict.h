/* SPDX-License-Identifier: GPL-2.0 */
/* What an experiment has shown: the time lost before, and while an option was set. */
#ifndef NT_FIX_VERDICT_H
#define NT_FIX_VERDICT_H

#include <stddef.h>
#include <stdint.h>

enum nt_fix_verdict {
	NT_FIX_UNCLEAR, /* too little to compare */
	NT_FIX_CURED,   /* at most a twentieth of the time lost is left */
	NT_FIX_HELPED,  /* at most half of it */
	NT_FIX_NO_HELP,
	NT_FIX_VERDICTS,
};

/* Of one phase of the experiment. */
struct nt_fix_sum {
	uint64_t span_ns;
	uint64_t stalls;
	uint64_t lost_ns;
	uint64_t writes; /* 0: not counted, or none */
};

#define NT_FIX_SENTENCE_LEN 400

/*
 * Compares by write where writes were counted, else by time: a program that waits for each answer
 * does more in the same time once nothing stalls. Writes the verdict on the option of that name as
 * a sentence.
 */
enum nt_fix_verdict nt_fix_judge(const struct nt_fix_sum *before, const struct nt_fix_sum *during,
				 const char *option, char sentence[NT_FIX_SENTENCE_LEN]);

#endif /* NT_FIX_VERDICT_H */
