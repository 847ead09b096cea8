/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Asks a question about a process, which takes a look into /proc, once for each process, however
 * many sockets it has.
 */
#ifndef NT_ASKED_H
#define NT_ASKED_H

#include <stdbool.h>
#include <sys/types.h>

/* The answers so far; the struct is all zero at first. */
struct nt_asked {
	struct nt_asked_process *processes;
};

/* Returns the answer of ask(context, tgid), which it may have given before. */
bool nt_ask_once(struct nt_asked *asked, pid_t tgid, bool (*ask)(void *context, pid_t tgid),
		 void *context);
void nt_asked_clear(struct nt_asked *asked);

#endif /* NT_ASKED_H */
