/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Asks a question about a process, which takes a look into /proc, once for each process, however
 * many sockets it has.
 */
#pragma once

#include "capture/processes.h"

/* The answers so far; the struct is all zero at first. */
struct nt_asked {
	struct nt_asked_process *processes;
};

/* Returns the answer of ask(context, tgid), which it may have given before. */
bool nt_ask_once(struct nt_asked *asked, pid_t tgid, bool (*ask)(void *context, pid_t tgid),
		 void *context);

/* Returns what nt_targets_match() says, by asking it once. */
bool nt_targets_match_once(const struct nt_targets *targets, pid_t tgid, struct nt_asked *asked);

void nt_asked_clear(struct nt_asked *asked);
