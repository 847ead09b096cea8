/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Asks a question about a process, which takes a look into /proc, once for each process, however
 * many sockets it has.
 */
#pragma once

#include "capture/processes.h"

/* Sockets come process by process, so that two which share a place are seldom asked for in turn. */
#define NT_ASKED_PLACES 4096

struct nt_answered {
	pid_t tgid; /* 0: nobody */
	bool answer;
};

/* The latest answers; the struct is all zero at first, and is zeroed to forget them. */
struct nt_asked {
	struct nt_answered at[NT_ASKED_PLACES];
};

/* Returns the answer of ask(context, tgid), which it may have given before; of nobody, false. */
bool nt_ask_once(struct nt_asked *asked, pid_t tgid, bool (*ask)(void *context, pid_t tgid),
		 void *context);

/* Returns what nt_targets_match() says, by asking it once. */
bool nt_targets_match_once(const struct nt_targets *targets, pid_t tgid, struct nt_asked *asked);
