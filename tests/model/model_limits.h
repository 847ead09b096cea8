/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How far what the programs report may be from the truth where they do not see everything. Function hooks see
 * everything where both ends are on this host: 0. What tracepoints or one end cannot know has its reason below; how often
 * that happens depends on what the model plays, so that these numbers are measured once and rounded up.
 */
#pragma once

#include "told.h"

enum measure {
	STALLS_MISSED,
	HOLDS_MISSED,
	FELT_MISSED,
	FELT_OTHERWISE,
	NEVER_WERE,
	CONTRADICTED,
	OTHERWISE, /* one for each part of a record */
	HOLDS_COUNTED = OTHERWISE + PARTS,
	HELD_FOR,
	OTHERS_COUNTED,
	ACKS_BY_TIMER,
	LOOKUPS,
	MEASURES,
};

struct limit {
	const char *what;
	double seen[2][2]; /* %, where no program is skipped; [by tracepoints][one end alone] */
	u32 programs;      /* so many have to see their part; 0: not measured where any is skipped, or no matter */
};

static const struct limit limits[MEASURES] = {
	/* Several programs may see the begin of a stall, one sees its end. Tracepoints show no attempt
	 * to send, so that a stall just above the limit may seem to be just below. */
	[STALLS_MISSED] = {"stalls missed", {{0, 0}, {1, 1}}, 1},
	[HOLDS_MISSED] = {"holds missed", {{0, 0}, {4, 4}}, 1},
	/* The receiver's end sees its segment come, its ACK leave, and the answer come; an answer that
	 * comes at the very edge of a round trip is none. */
	[FELT_MISSED] = {"felt, missed", {{0, 1}, {0, 2}}, 3},
	/* A read moves the receiver's clock: when the first ACK of a bucket became pending is then known to a jiffy. */
	[FELT_OTHERWISE] = {"felt, otherwise", {{0, 0}, {0, 20}}, 2},
	/* Where the end of a hold went unseen, it may seem to last until other bytes are held. */
	[NEVER_WERE] = {"holds that never were", {{0, 0}, {1, 1}}, 1},
	/* User space drops them, as it has the records of the sender's end. */
	[CONTRADICTED] = {"felt, contradicted", {{2, 0}, {2, 0}}, 2},
	/* The attempt that left the bytes, and the program that ended the hold before. From one end it is open
	 * which of two short holds an ACK released. By tracepoints a hold begins when its write ends. */
	[OTHERWISE + PART_BEGIN] = {"begin", {{0, 1}, {5, 5}}, 2},
	[OTHERWISE + PART_END] = {"end", {{0, 0}, {1, 1}}, 1},
	[OTHERWISE + PART_SIZE] = {"size", {{0, 1}, {5, 5}}, 2},
	/* As with the begin, and besides the write itself and the one that is in flight. */
	[OTHERWISE + PART_WRITES] = {"writes", {{0, 1}, {15, 20}}, 4},
	/* Begin and end. From one end, stalls of less than 30 ms have no cause. */
	[OTHERWISE + PART_WORDS] = {"words", {{0, 10}, {5, 10}}, 2},
	/* When it became pending, and when it left; an ACK that a read or a segment sends has no tracepoint. */
	[OTHERWISE + PART_ACK] = {"ACK", {{0, 0}, {17, 0}}, 2},
	[HOLDS_COUNTED] = {"holds counted", {{0, 0}, {10, 10}}, 0},
	[HELD_FOR] = {"time held", {{0, 0}, {2, 2}}, 0},
	/* What waits for no ACK is looked at now and then: the count is right to a factor of two or so. */
	[OTHERS_COUNTED] = {"other holds counted", {{75, 75}, {75, 75}}, 0},
	[ACKS_BY_TIMER] = {"ACKs by the timer", {{0, 0}, {0.1, 1}}, 0},
	/* In maps, by a program: each looks up one thing or two. */
	[LOOKUPS] = {"lookups", {{160, 160}, {120, 120}}, 0},
};

/* Returns the limit in %. skip: one in so many programs is skipped; 0: none. */
static double most_of(const struct limit *l, bool tracepoints, bool one_end, u32 skip)
{
	double seen_all = 1;

	for (u32 i = 0; skip && i < l->programs; i++)
		seen_all *= 1 - 1.0 / skip;
	return 100 - (100 - l->seen[tracepoints][one_end]) * seen_all;
}
