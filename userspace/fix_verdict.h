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

/*
 * One connection, before the option was set on it and while it was. Before, it is looked at from
 * the end of its first stall on, for that stall is why it was chosen; while it is set, for as long.
 */
struct nt_fix_pair {
	uint64_t before_ns; /* for how long it was looked at before */
	uint64_t during_ns; /* for how long it was set */
	uint64_t stalls_before, stalls_during;
	uint64_t lost_before_ns, lost_during_ns;
};

/* Of one phase of the experiment. */
struct nt_fix_sum {
	uint64_t span_ns;
	double stalls;   /* of the connections compared, in the time compared */
	double lost_ns;  /* by these */
	uint64_t writes; /* of the whole process in span_ns; 0: not counted, or none */
};

struct nt_fix_comparison {
	struct nt_fix_sum before, during;
	uint64_t connections; /* compared, that stalled in the time compared */
	uint64_t all_before;  /* stalls where the option acts, of connections not compared too */
	uint64_t again_ns;    /* TCP_QUICKACK: how often it was set again; 0: it lasts */
};

/* Sums up a pair: both phases for the shorter one's time. */
void nt_fix_compare(struct nt_fix_comparison *c, const struct nt_fix_pair *pair);

/*
 * TCP_QUICKACK set again sends the ACK that is put off. Where that is later than so, what it sends
 * may have been late as such, and looks like no stall all the same.
 */
#define NT_FIX_AGAIN_MOST_NS 5000000ULL

#define NT_FIX_SENTENCE_LEN  400

/*
 * Writes the verdict on the option of that name as a sentence. A program that waits for each answer
 * does more in the same time once nothing stalls, so the time lost is compared by write where
 * writes are counted; but these are those of other connections too, so it is compared by second as
 * well.
 */
enum nt_fix_verdict nt_fix_judge(const struct nt_fix_comparison *c, const char *option,
				 char sentence[NT_FIX_SENTENCE_LEN]);

#endif /* NT_FIX_VERDICT_H */
