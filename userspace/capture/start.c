// SPDX-License-Identifier: GPL-2.0
#include "capture/start.h"

#include <stdio.h>

#include "base/log.h"
#include "base/loop.h"
#include "capture/confine.h"

/* Reports which hooks are in use, and what is lost with the missing ones. */
static void print_hooks(const struct nt_tracer *tracer)
{
	nt_log("%s hooks%s%s%s", nt_family_name(tracer->hooks.family),
	       tracer->hooks.why[0] ? " (" : "", tracer->hooks.why,
	       tracer->hooks.why[0] ? ")" : "");
	for (size_t i = 0; i < nt_n_hooks; i++)
		if (tracer->hooks.missing[i] && nt_hooks[i].how != NT_ATTACH_KRETPROBE)
			nt_log("%s %s is missing; lost with it: %s",
			       nt_attach_name(nt_hooks[i].how), nt_hooks[i].target,
			       nt_hooks[i].part);
}

bool nt_session_start(struct nt_session *session, const struct nt_settings *settings,
		      const struct nt_start *start, struct nt_error *error)
{
	char kept[128];

	nt_loop_signals_end_at_once();
	if (!nt_session_open(session, settings, start->on_stall, start->context, error) ||
	    (start->watch_signals && !nt_started(start->watch_signals(start->context), error)) ||
	    !nt_started(nt_session_watch(session, start->loop, &start->watch), error) ||
	    (start->prepare && !start->prepare(start->context, error)))
		return false;
	if (start->announce && !settings->quiet)
		print_hooks(&session->tracer);
	if (!nt_started(nt_confine(session, kept, sizeof(kept)), error))
		return false;
	if (start->announce) {
		start->announce(start->context, kept);
		fputs("nagletrace: ready\n", stderr);
	}
	return true;
}
