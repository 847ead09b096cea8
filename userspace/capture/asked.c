// SPDX-License-Identifier: GPL-2.0
#include "capture/asked.h"

#include <stdlib.h>

#include "base/hash.h"

/* The most processes whose answers we keep; then we forget all, to bound memory. */
#define MOST_ASKED 16384

struct nt_asked_process {
	pid_t tgid;
	bool answer;
	UT_hash_handle hh;
};

bool nt_ask_once(struct nt_asked *asked, pid_t tgid, bool (*ask)(void *context, pid_t tgid),
		 void *context)
{
	struct nt_asked_process *process;
	bool answer;

	HASH_FIND(hh, asked->processes, &tgid, sizeof(tgid), process);
	if (process)
		return process->answer;
	answer = ask(context, tgid);
	if (HASH_COUNT(asked->processes) >= MOST_ASKED)
		nt_asked_clear(asked);
	process = calloc(1, sizeof(*process));
	if (!process)
		return answer;
	process->tgid = tgid;
	process->answer = answer;
	HASH_ADD(hh, asked->processes, tgid, sizeof(tgid), process);
	if (!process->hh.tbl)
		free(process);
	return answer;
}

static bool match(void *context, pid_t tgid)
{
	return nt_targets_match(context, tgid);
}

bool nt_targets_match_once(const struct nt_targets *targets, pid_t tgid, struct nt_asked *asked)
{
	return nt_ask_once(asked, tgid, match, (void *)targets);
}

void nt_asked_clear(struct nt_asked *asked)
{
	while (asked->processes) {
		struct nt_asked_process *process = asked->processes;

		HASH_DEL(asked->processes, process);
		free(process);
	}
}
