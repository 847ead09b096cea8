// SPDX-License-Identifier: GPL-2.0
#include "capture/asked.h"

bool nt_ask_once(struct nt_asked *asked, pid_t tgid, bool (*ask)(void *context, pid_t tgid),
		 void *context)
{
	struct nt_answered *at = &asked->at[(unsigned int)tgid % NT_ASKED_PLACES];

	if (at->tgid != tgid)
		*at = (struct nt_answered){.tgid = tgid, .answer = ask(context, tgid)};
	return at->answer;
}

static bool match(void *context, pid_t tgid)
{
	return nt_targets_match(context, tgid);
}

bool nt_targets_match_once(const struct nt_targets *targets, pid_t tgid, struct nt_asked *asked)
{
	return nt_ask_once(asked, tgid, match, (void *)targets);
}
