/* SPDX-License-Identifier: GPL-2.0 */
/* Judges an experiment by the time lost before and while an option was set. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum nt_fix_verdict {
	NT_FIX_UNCLEAR, /* there is too little to compare */
	NT_FIX_CURED,   /* at most a twentieth of the lost time is left */
	NT_FIX_HELPED,  /* at most half of it is left */
	NT_FIX_NO_HELP,
	NT_FIX_VERDICTS,
};

/* One connection, before the option was set on it and while it was. The time before begins at the
 * end of its first stall, since that stall is why it was chosen; the time while set is as long. */
struct nt_fix_pair {
	uint64_t before_ns; /* time observed before */
	uint64_t during_ns; /* time for which it was set */
	uint64_t stalls_before, stalls_during;
	uint64_t excess_before_ns, excess_during_ns;
};

/* The sums of one phase of the experiment. */
struct nt_fix_sum {
	uint64_t span_ns;
	double stalls;    /* of the connections and the time that are compared */
	double excess_ns; /* of these stalls */
	uint64_t writes;  /* of the whole process in span_ns; 0: none, or not counted */
};

struct nt_fix_comparison {
	struct nt_fix_sum before, during;
	uint64_t connections; /* compared ones that stalled in the time compared */
	uint64_t all_before;  /* stalls where the option acts, also of connections not compared */
	uint64_t again_ns;    /* interval at which TCP_QUICKACK was set again; 0: it lasts */
};

/* Adds a pair, with both phases cut to the time of the shorter one. */
void nt_fix_compare(struct nt_fix_comparison *c, const struct nt_fix_pair *pair);

/* TCP_QUICKACK set again sends the pending ACK. If it is set again less often than this, that ACK
 * may itself have been late, and still look like no stall. */
#define NT_FIX_AGAIN_MOST_NS 5000000ULL

#define NT_FIX_SENTENCE_LEN  400

/*
 * Writes the verdict on the option of that name as a sentence. A program that waits for each answer
 * does more in the same time once nothing stalls, so the time lost is compared by write where
 * writes are counted. These include other connections' writes, so it is compared by second as well.
 */
enum nt_fix_verdict nt_fix_judge(const struct nt_fix_comparison *c, const char *option,
				 char sentence[NT_FIX_SENTENCE_LEN]);
